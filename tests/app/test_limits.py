"""Keys, limits and rates, from what an app says to when its runs start, in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot, every
from foliot.domain.instant import MINUTE, Duration
from foliot.domain.policy import wants_of
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, InvalidInput, UnknownName
from foliot.operate.limits import held_words, limit_shape
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)
WHY: dict[str, Any] = {"reason": "a test", "actor": "ana"}


class Shop:
    """An app whose jobs take a while, and that writes down how many run at a time."""

    def __init__(self, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:", **settings)
        self.world: World
        self.begun: list[tuple[datetime, Any]] = []
        self.active: dict[Any, int] = defaultdict(int)
        self.most: dict[Any, int] = defaultdict(int)

    async def work(self, what: Any, takes: Duration = MINUTE) -> None:
        self.begun.append((self.world.now, what))
        self.active[what] += 1
        self.most[what] = max(self.most[what], self.active[what])
        await self.world.clock.sleep(takes)
        self.active[what] -= 1

    @contextmanager
    def open(self) -> Iterator[World]:
        with virtual_time(self.app, start=START) as self.world:
            yield self.world

    def seconds(self) -> list[int]:
        return [int((at - START).total_seconds()) for at, _ in self.begun]


def _payroll(**settings: Any) -> tuple[Shop, Any]:
    shop = Shop()

    @shop.app.job(**settings)
    async def pay(account_id: int, region: str = "west") -> None:
        await shop.work(account_id)

    return shop, pay


# ---------------------------------------------------------------------------------------------------------------- keys


def test_a_key_is_kept_across_two_schedules_and_delayed_promises() -> None:
    shop, pay = _payroll(concurrency_key="account:{account_id}")
    shop.app.schedule("wages", pay, every("30m"), args={"account_id": 7}, overlap="allow")
    shop.app.schedule("bonus", pay, every("30m"), args={"account_id": 7}, overlap="allow")
    with shop.open() as world:
        due = START + timedelta(minutes=30)
        for _ in range(3):
            pay.at(due, account_id=7)
        pay.at(due, account_id=8)
        world.run_for("40m")
        assert shop.most == {7: 1, 8: 1}
        assert [what for _, what in shop.begun].count(7) == 5
        assert shop.seconds() == [1800, 1800, 1860, 1920, 1980, 2040]


def test_one_that_waits_for_a_key_says_which_and_goes_when_it_is_free() -> None:
    shop, pay = _payroll(concurrency_key="account:{account_id}")
    with shop.open() as world:
        _, second = pay.now(account_id=7), pay.now(account_id=7)
        world.run_for("1s")
        view = world.run(second.id)
        assert (view.state, view.reason) == (State.HELD, Reason.KEY)
        assert held_words(view) == "waits for the end of another run with the key account:7"
        story = world.call(shop.app.operate.story_async(second.id))
        assert story[-1].text == "held: waits for the end of another run with the key account:7"
        [limit] = shop.app.operate.limits()
        assert (limit.gate.name, limit.gate.source, limit.used, limit.waiting) == ("key:account:7", "runs", 1, 1)
        world.run_for("2m")
        assert world.run(second.id).state is State.SUCCEEDED
        assert shop.app.operate.limits() == []


def test_a_key_may_let_several_in_and_belongs_to_its_tenant() -> None:
    shop, pay = _payroll(concurrency_key="books", key_limit=2)
    with shop.open() as world:
        for _ in range(4):
            pay.now(account_id=1)
        pay.using(tenant="acme").now(account_id=2)
        world.run_for("1s")
        assert shop.most == {1: 2, 2: 1}


def test_what_a_promise_says_of_its_key_is_the_last_word() -> None:
    shop, pay = _payroll(concurrency_key="books")
    with shop.open() as world:
        pay.now(account_id=1)
        pay.using(concurrency_key=None).now(account_id=2)
        pay.using(concurrency_key="other:{region}").now(account_id=3)
        pay.using(concurrency_key="other:{region}").now(account_id=4, region="west")
        world.run_for("1s")
        assert [what for _, what in shop.begun] == [1, 2, 3], "the default of the function fills its name, too"


def test_a_dead_run_keeps_its_key_where_the_job_says_so() -> None:
    shop = Shop(attempts=1)

    @shop.app.job(concurrency_key="account:{account_id}", blocks_until="succeeded")
    async def pay(account_id: int, fails: bool) -> None:
        await shop.work(account_id)
        if fails:
            raise ValueError("no money")

    with shop.open() as world:
        first, second = pay.now(account_id=7, fails=True), pay.now(account_id=7, fails=False)
        world.run_for("1h")
        assert [world.run(one.id).state for one in (first, second)] == [State.DEAD, State.HELD]
        shop.app.operate.reconcile(first.id, evidence="paid by hand", actor="ana")
        world.run_for("1h")
        assert world.run(second.id).state is State.SUCCEEDED


def test_a_schedule_carries_its_key_and_destination_as_its_arguments_make_them() -> None:
    shop, pay = _payroll(destination="api.{region}.example")
    shop.app.schedule("wages", pay, every("1h"), args={"account_id": 7}, concurrency_key="a:{account_id}")
    [declared] = shop.app.declarations()
    assert wants_of(declared.options) == ("a:7", 1, "api.west.example")
    assert declared.policy.destination == "api.west.example"


def test_a_schedule_is_declared_otherwise_when_its_key_comes_out_otherwise() -> None:
    def fingerprint(region: str) -> str:
        app = Foliot("sqlite:///:memory:")

        def pay(region: str = region) -> None: ...

        app.schedule("wages", app.job(destination="{region}")(pay), every("1h"))
        return app.declarations()[0].fingerprint

    assert fingerprint("west") == fingerprint("west")
    assert fingerprint("west") != fingerprint("east")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"concurrency_key": "{acount_id}"}, "pay: concurrency_key names 'acount_id'.*did you mean account_id"),
        ({"destination": "{zone}"}, "it takes: account_id, region"),
        ({"concurrency_key": "{account_id.real}"}, "braces may only contain the name of an argument, as"),
        ({"concurrency_key": "{account_id"}, "unbalanced braces"),
    ],
)
def test_a_template_is_checked_wherever_it_is_said(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        _payroll(**settings)
    shop, pay = _payroll()
    with pytest.raises(InvalidInput, match=told):
        pay.using(**settings)
    with pytest.raises(InvalidInput, match=told):
        shop.app.schedule("wages", pay, every("1h"), args={"account_id": 7}, **settings)


def test_a_template_of_the_app_is_checked_with_each_job() -> None:
    app = Foliot("sqlite:///:memory:", concurrency_key="account:{account_id}")
    with pytest.raises(InvalidInput, match=r"sweep: .* names 'account_id'.*it takes: none"):

        @app.job
        def sweep() -> None: ...


def test_a_key_that_comes_out_badly_is_told_to_whoever_makes_the_promise() -> None:
    _, pay = _payroll(concurrency_key="region:{region}")
    with pytest.raises(InvalidInput, match=r"pay: concurrency_key is .* printable characters"):
        pay.promise_at(START, account_id=1, region="x" * 200)


def test_a_template_that_names_a_bound_argument_is_refused() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def settle(day: date, account: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"contains day, which is bound to tick\.date"):
        app.schedule(
            "books", settle, every("1d"), args={"account": 7}, bind={"day": "tick.date"}, concurrency_key="{day}"
        )
    app.schedule(
        "books", settle, every("1d"), args={"account": 7}, bind={"day": "tick.date"}, concurrency_key="{account}"
    )
    assert wants_of(app.declarations()[0].options).key == "7"


@pytest.mark.parametrize("setting", [{"concurrency": 3}, {"rate": "5/s"}])
def test_what_speaks_of_all_runs_of_a_job_is_refused_for_some_of_them(setting: dict[str, Any]) -> None:
    shop, pay = _payroll()
    with pytest.raises(InvalidInput, match=r"all runs of the job, and .*give it to @app\.job.*foliot limits set"):
        pay.using(**setting)
    with pytest.raises(InvalidInput, match=r"schedule 'wages'.*give it to @app\.job"):
        shop.app.schedule("wages", pay, every("1h"), args={"account_id": 7}, **setting)


def test_a_preset_gives_a_promise_what_is_not_about_ticks() -> None:
    _, pay = _payroll()
    promise = pay.using(preset="never_retry_after_effect").promise_at(START, account_id=1)
    assert b"overlap" not in promise.options
    assert b'"attempts_after_effect":0' in promise.options


def test_a_preset_says_what_becomes_of_ticks_of_a_job_with_effects() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(effects=("payout",), preset="every_interval")
    def pay(ctx: Context) -> None: ...

    app.schedule("wages", pay, every("1h"))
    assert [str(one.policy.overlap) for one in app.declarations()] == ["queue"]


# -------------------------------------------------------------------------------------------------------------- limits


def test_a_job_that_says_its_concurrency_has_never_more_at_a_time() -> None:
    shop, pay = _payroll(concurrency=3)
    with shop.open() as world:
        shop.app.promise_many([pay.promise_at(START, account_id=1) for _ in range(10)])
        world.run_for("1s")
        [limit] = shop.app.operate.limits()
        assert (limit.gate.name, limit.gate.most, limit.gate.source) == ("job:pay", 3, "job")
        assert (limit.used, limit.waiting) == (3, 7)
        world.run_for("10m")
        assert shop.most == {1: 3}
        assert world.states() == [State.SUCCEEDED] * 10


@pytest.mark.parametrize("name", ["tenant:acme", "tenant:*", "queue:slow", "to:bank", "schedule:wages", "job:pay"])
def test_a_limit_holds_what_it_is_about_and_nothing_else(name: str) -> None:
    shop, pay = _payroll(queue="slow", destination="bank")

    @shop.app.job
    async def other() -> None:
        await shop.work("other")

    shop.app.schedule("wages", pay, every("1h"), args={"account_id": 7}, tenant="acme", overlap="allow")
    shop.app.limit(name, concurrency=1)
    with shop.open() as world:
        for _ in range(3):
            shop.app.operate.trigger("wages", **WHY)
            other.now()
            world.run_for("1s")
        assert shop.most == {7: 1, "other": 3}
        [held] = {held_words(run) for run in world.runs() if run.state is State.HELD}
        assert held is not None
        assert held.startswith("waits for ")
        world.run_for("5m")
        assert shop.most[7] == 1
        assert shop.seconds().count(60) == 1


def test_a_limit_of_each_tenant_is_each_ones_own_and_one_tenant_may_have_another() -> None:
    shop, pay = _payroll()
    shop.app.limit("tenant:*", concurrency=1)
    shop.app.limit("tenant:acme", concurrency=3)
    shop.app.limit("tenant:bolt", weight=2)
    with shop.open() as world:
        for account, tenant in enumerate(("acme", "bolt", "core")):
            for _ in range(5):
                pay.using(tenant=tenant).now(account_id=account)
        world.run_for("10m")
        assert shop.most == {0: 3, 1: 1, 2: 1}


def test_what_was_missed_may_have_fewer_at_a_time_than_live_work() -> None:
    shop, pay = _payroll()
    shop.app.limit("lane:catch-up/job:pay", concurrency=2)
    with shop.open() as world:
        shop.app.promise_many([pay.promise_at(START + timedelta(minutes=1), account_id=1) for _ in range(6)])
        world.outage("10m")
        for _ in range(3):
            pay.now(account_id=2)
        world.run_for("1s")
        assert shop.active == {1: 2, 2: 3}
        world.run_for("1h")
        assert shop.most == {1: 2, 2: 3}
        assert world.states() == [State.SUCCEEDED] * 9


def test_a_limit_is_raised_while_runs_wait_and_those_with_room_go_at_once() -> None:
    shop, pay = _payroll(concurrency=1)
    with shop.open() as world:
        shop.app.promise_many([pay.promise_at(START, account_id=1) for _ in range(6)])
        world.run_for("1s")
        gate = shop.app.operate.limit("job:pay", concurrency=4, **WHY)
        assert (gate.most, gate.source, gate.note) == (4, "operator", "a test")
        world.run_for("1s")
        assert shop.most == {1: 4}
        shop.app.operate.limit("job:pay", concurrency=1, **WHY)
        world.run_for("1h")
        assert shop.seconds() == [0, 1, 1, 1, 61, 121]


def test_a_limit_of_nobody_holds_everybody_until_it_is_lifted() -> None:
    shop, pay = _payroll()
    with shop.open() as world:
        shop.app.operate.limit("job:pay", concurrency=0, **WHY)
        pay.now(account_id=1)
        world.run_for("1h")
        assert shop.begun == []
        shop.app.operate.unlimit("job:pay", **WHY)
        world.run_for("1s")
        assert len(shop.begun) == 1


def test_a_limit_is_dropped_and_whoever_waits_goes() -> None:
    shop, pay = _payroll(concurrency=1)
    with shop.open() as world:
        shop.app.promise_many([pay.promise_at(START, account_id=1) for _ in range(6)])
        world.run_for("1s")
        shop.app.operate.unlimit("job:pay", **WHY)
        world.run_for("1s")
        assert shop.most == {1: 6}
        with pytest.raises(UnknownName, match="no limit for 'job:pay'"):
            shop.app.operate.unlimit("job:pay", **WHY)


def test_a_limit_that_is_dropped_and_set_again_counts_those_that_go_on() -> None:
    shop, pay = _payroll()
    with shop.open() as world:
        shop.app.operate.limit("job:pay", concurrency=2, **WHY)
        shop.app.promise_many([pay.promise_at(START, account_id=1) for _ in range(2)])
        world.run_for("1s")
        shop.app.operate.unlimit("job:pay", **WHY)
        shop.app.operate.limit("job:pay", concurrency=2, **WHY)
        shop.app.promise_many([pay.promise_at(START, account_id=1) for _ in range(9)])
        world.run_for("1h")
        assert shop.most == {1: 2}
        assert [(view.used, view.waiting) for view in shop.app.operate.limits()] == [(0, 0)]


def test_what_is_not_said_of_a_limit_stays_as_it_is() -> None:
    shop, _ = _payroll(concurrency=5)
    with shop.open():
        shop.app.operate.limit("job:pay", rate="10/s", burst=3, **WHY)
        shop.app.operate.limit("job:pay", concurrency=2, **WHY)
        [view] = shop.app.operate.limits()
        shape = limit_shape(view)
        assert {name: shape[name] for name in ("name", "concurrency", "rate", "burst", "weight", "source")} == {
            "name": "job:pay",
            "concurrency": 2,
            "rate": "10/s",
            "burst": 3,
            "weight": None,
            "source": "operator",
        }


def test_what_an_operator_said_survives_the_next_start_of_the_code() -> None:
    shop, _ = _payroll(concurrency=5)
    shop.app.limit("tenant:acme", concurrency=4)
    with shop.open() as world:
        shop.app.operate.limit("job:pay", concurrency=2, **WHY)
        shop.app.operate.limit("tenant:acme", concurrency=1, **WHY)
        world.outage("1m")
        shop.app.apply()
        assert {view.gate.name: view.gate.most for view in shop.app.operate.limits()} == {
            "job:pay": 2,
            "tenant:acme": 1,
        }


# --------------------------------------------------------------------------------------------------------------- rates


@pytest.mark.parametrize(("rate", "burst", "allowed"), [("5/s", None, 5), ("50/s", None, 50), ("5/s", 10, 15)])
def test_no_window_of_a_second_has_more_starts_than_its_rate_allows(rate: str, burst: int | None, allowed: int) -> None:
    shop, pay = _payroll()
    shop.app.limit("job:pay", rate=rate, burst=burst)
    with shop.open() as world:
        shop.app.promise_many([pay.promise_at(START, account_id=n) for n in range(100)])
        world.run_for("5m")
        starts = [at for at, _ in shop.begun]
        assert len(starts) == 100
        for at in starts:
            assert sum(at <= other < at + timedelta(seconds=1) for other in starts) <= allowed
        pace = (max(starts) - min(starts)).total_seconds()
        assert pace <= 100 / int(rate.split("/")[0]), "and no slower than it allows"


def test_what_waits_for_a_rate_says_until_when() -> None:
    shop, pay = _payroll(rate="1/m")
    with shop.open() as world:
        _, second = pay.now(account_id=1), pay.now(account_id=2)
        world.run_for("1s")
        view = world.run(second.id)
        assert (view.state, view.reason) == (State.HELD, Reason.RATE)
        assert held_words(view) == "waits for the rate limit of job:pay: 2026-04-01T00:31:00Z"
        world.run_for("1m")
        assert shop.seconds() == [0, 60]


# ------------------------------------------------------------------------------------------------------------ releases


def test_a_run_is_released_against_its_key_and_its_limit() -> None:
    shop, pay = _payroll(concurrency=1, concurrency_key="books")
    with shop.open() as world:
        kept = [pay.now(account_id=n) for n in range(3)]
        world.run_for("1s")
        assert shop.app.operate.release(kept[2].id, **WHY).outcome == "released"
        world.run_for("1s")
        assert [what for _, what in shop.begun] == [0, 2]
        assert any(
            line.text == "ana released the run despite its hold: a test"
            for line in world.call(shop.app.operate.story_async(kept[2].id))
        )
        with pytest.raises(Conflict, match="only held runs can be released"):
            shop.app.operate.release(kept[0].id, **WHY)
        with pytest.raises(InvalidInput, match="reason is missing"):
            shop.app.operate.release(kept[1].id, reason="", actor="ana")
        world.run_for("1h")
        assert [what for _, what in shop.begun] == [0, 2, 1]


def test_a_tick_is_released_against_overlap() -> None:
    shop, pay = _payroll(timeout="1d")
    shop.app.schedule("wages", pay, every("1m"), args={"account_id": 7}, overlap="queue")

    with shop.open() as world:

        async def work(what: Any, takes: Duration = MINUTE) -> None:
            shop.begun.append((world.now, what))
            await world.clock.sleep(100 * MINUTE)

        shop.work = work  # type: ignore[method-assign]
        world.run_for("3m")
        [_, second, third] = [run for run in world.runs() if run.state is not State.SCHEDULED]
        assert (second.state, held_words(second)) == (
            State.HELD,
            "waits for an earlier run: wages@2026-04-01T00:31:00Z was active",
        )
        shop.app.operate.release(third.id, **WHY)
        world.run_for("1s")
        assert world.run(third.id).state is State.RUNNING
        assert world.run(second.id).state is State.HELD


# --------------------------------------------------------------------------------------------------------- declaring


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("acme", {"concurrency": 1}, "is not the name of a limit; use job:X, queue:X, schedule:X"),
        ("lane:live", {"concurrency": 1}, "is not the name of a limit; use job:X, queue:X, schedule:X"),
        ("lane:catch-up", {"rate": "1/s", "burst": 5}, "lanes drain evenly"),
        ("lane:backfill", {"weight": 2}, "only tenants have weights: tenant:X"),
        ("job:", {"concurrency": 1}, "cannot name a job"),
        ("tenant:a b", {"concurrency": 1}, "cannot name a tenant"),
        ("job:pay", {}, 'give a concurrency such as 5, or a rate such as "10/s"'),
        ("job:pay", {"concurrency": -1}, "from 0 to"),
        ("job:pay", {"concurrency": True}, "whole number"),
        ("job:pay", {"rate": "fast"}, "write a count and a unit of time"),
        ("job:pay", {"burst": 3, "concurrency": 1}, "a burst requires a rate; give both"),
        ("job:pay", {"weight": 2}, "only tenants have weights: tenant:X"),
        ("tenant:acme", {"weight": 0}, "above 0"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_where_it_is_said(name: str, settings: dict[str, Any], told: str) -> None:
    app = Foliot("sqlite:///:memory:")
    with pytest.raises(InvalidInput, match=told):
        app.limit(name, **settings)
    with virtual_time(app), pytest.raises(InvalidInput, match=told):
        app.operate.limit(name, **settings, **WHY)


def test_a_limit_is_said_once() -> None:
    app = Foliot("sqlite:///:memory:")
    app.limit("lane:backfill/job:pay", concurrency=1)
    with pytest.raises(InvalidInput, match="already"):
        app.limit("lane:backfill/job:pay", rate="1/s")
