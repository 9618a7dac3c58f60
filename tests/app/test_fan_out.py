"""A schedule over many members: a run for each of them and tick, each judged by itself; and the tick waits for all."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pytest

from foliot import Context, Foliot, after, every
from foliot.domain.standing import Mark
from foliot.domain.state import Reason, State
from foliot.errors import InvalidInput
from foliot.operate.report import Verdict
from foliot.testing import virtual_time
from foliot.testing.world import World

START = datetime(2026, 4, 1, 0, 1, tzinfo=UTC)
MINUTE = 60_000_000


class Clinic:
    """Looks after tenants every quarter of an hour."""

    def __init__(self, *tenants: str, store: str = "sqlite:///:memory:", rule: str = "15m", **settings: Any) -> None:
        self.app = Foliot(store)
        self.seen: list[tuple[str, str]] = []
        self.takes: dict[str, int] = {}
        """Minutes, by tenant."""
        self.ill: set[str] = set()

        @self.app.job(attempts=1, timeout="1d")
        async def health(ctx: Context, tenant: str) -> None:
            assert ctx.member == tenant
            assert ctx.schedule == "health"
            now = datetime.fromtimestamp(self.app.clock.now() / 1_000_000, UTC)
            self.seen.append((now.strftime("%H:%M"), tenant))
            await self.app.clock.sleep(self.takes.get(tenant, 0) * MINUTE)
            if tenant in self.ill:
                raise ValueError("no answer")

        self.tenants = self.app.members("tenants", tenants)
        self.app.schedule("health", health, every(rule), over="tenants", bind={"tenant": "member"}, **settings)

    def at(self, time: str) -> list[str]:
        return sorted(tenant for when, tenant in self.seen if when == time)


def ticks(world: World) -> list[tuple[str, State, str | None]]:
    """Each tick of the schedule, oldest first."""
    found = sorted((run for run in world.runs(schedule="health") if run.member is None), key=lambda run: run.nominal)
    return [((run.name or "")[-9:-4], run.state, run.detail) for run in found]


def member_runs(world: World, member: str) -> list[tuple[State, str | None]]:
    found = sorted((run for run in world.runs(job="health") if run.member == member), key=lambda run: run.nominal)
    return [(run.state, run.reason) for run in found]


def test_each_tick_makes_one_run_per_member() -> None:
    clinic = Clinic("acme", "globex", "initech")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("35m")
        names = {run.id for run in world.runs(job="health") if run.member is not None}
    assert clinic.at("00:15") == clinic.at("00:30") == ["acme", "globex", "initech"]
    assert len(clinic.seen) == 6
    assert "health@2026-04-01T00:15:00Z[acme]" in names


def test_the_tick_says_how_complete_it_is_when_all_have_come_to_an_end() -> None:
    clinic = Clinic("acme", "globex", "initech")
    clinic.ill = {"globex"}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        first = ticks(world)[0]
        interval = world.run("health@2026-04-01T00:15:00Z").interval
    assert first == ("00:15", State.SUCCEEDED, "2 of 3; 1 dead")
    assert interval is not None
    assert (interval.done, interval.members) == (2, 3)
    assert [(one.member, one.state) for one in interval.lacking] == [("globex", State.DEAD)]


def test_a_tick_waits_for_its_members_and_does_not_hold_up_the_next_one() -> None:
    clinic = Clinic("acme", "globex")
    clinic.takes = {"globex": 20}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("30m")
        assert [(state, told) for _, state, told in ticks(world)][:2] == [
            (State.VERIFYING, None),
            (State.SUCCEEDED, "1 of 2; 1 skipped"),
        ]
        assert clinic.at("00:30") == ["acme"]
        world.run_for("8m")
        assert ticks(world)[0] == ("00:15", State.SUCCEEDED, "2 of 2")


def test_overlap_is_judged_by_member() -> None:
    clinic = Clinic("acme", "globex")
    clinic.takes = {"globex": 20}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("50m")
        slow, quick = member_runs(world, "globex"), member_runs(world, "acme")
    assert slow[:3] == [(State.SUCCEEDED, None), (State.SKIPPED, Reason.OVERLAP), (State.RUNNING, None)]
    assert quick[:3] == [(State.SUCCEEDED, None)] * 3


def test_members_that_queue_up_run_one_after_another() -> None:
    clinic = Clinic("acme", "globex", overlap="queue")
    clinic.takes = {"globex": 20}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("70m")
    assert [when for when, tenant in clinic.seen if tenant == "globex"] == ["00:15", "00:35", "00:55"]
    assert [when for when, tenant in clinic.seen if tenant == "acme"] == ["00:15", "00:30", "00:45", "01:00"]


def test_a_tick_that_has_to_be_complete_is_verified_or_not() -> None:
    clinic = Clinic("acme", "globex", "initech", "umbrella", complete="75%")
    with virtual_time(clinic.app, start=START) as world:
        clinic.ill = {"acme"}
        world.run_for("20m")
        clinic.ill = {"acme", "globex"}
        world.run_for("15m")
        found = [(state, told) for _, state, told in ticks(world)][:2]
        stands = clinic.app.operate.standing("health")
    assert found == [(State.VERIFIED, "3 of 4; 1 dead"), (State.UNVERIFIED, "2 of 4; 2 dead")]
    assert (stands.strip, stands.partial, stands.useful) == ((Mark.PARTIAL, Mark.FAILED), 1, 1)


def test_an_incomplete_tick_is_counted_again_and_verified_once_enough_members_were_mended() -> None:
    clinic = Clinic("acme", "globex", complete=1)
    with virtual_time(clinic.app, start=START) as world:
        clinic.ill = {"acme", "globex"}
        world.run_for("20m")
        clinic.ill = set()
        tick = "health@2026-04-01T00:15:00Z"
        found = [ticks(world)[0]]
        for member in ("acme", "globex"):
            clinic.app.operate.retry(f"{tick}[{member}]", reason="mended", actor="ann")
            world.run_for("1m")
            found.append(ticks(world)[0])
        assert found == [
            ("00:15", State.UNVERIFIED, "0 of 2; 2 dead"),
            ("00:15", State.UNVERIFIED, "1 of 2; 1 dead"),
            ("00:15", State.VERIFIED, "2 of 2"),
        ]


def test_an_incomplete_tick_of_a_deleted_schedule_waits_until_all_members_are_done() -> None:
    clinic = Clinic("acme", "globex", complete=1)
    with virtual_time(clinic.app, start=START) as world:
        clinic.ill = {"acme", "globex"}
        world.run_for("20m")
        clinic.ill = set()
        tick, found = "health@2026-04-01T00:15:00Z", []
        clinic.app.operate.delete("health", reason="closed", actor="ann")
        for member in ("acme", "globex"):
            clinic.app.operate.retry(f"{tick}[{member}]", reason="mended", actor="ann")
            world.run_for("1m")
            found.append((world.run(tick).state, world.run(tick).detail))
        assert found == [(State.UNVERIFIED, "1 of 2; 1 dead"), (State.SUCCEEDED, "2 of 2")]


def test_an_incomplete_tick_is_verified_on_request() -> None:
    clinic = Clinic("acme", "globex", complete=1)
    with virtual_time(clinic.app, start=START) as world:
        clinic.ill = {"acme"}
        world.run_for("20m")
        clinic.ill = set()
        tick = "health@2026-04-01T00:15:00Z"
        clinic.app.operate.retry(f"{tick}[acme]", reason="mended", actor="ann")
        clinic.app.operate.verify(tick, reason="mended", actor="ann")
        assert world.run(tick).state is State.VERIFYING
        world.run_for("1m")
        assert ticks(world)[0] == ("00:15", State.VERIFIED, "2 of 2")


def test_members_are_added_and_removed_while_it_runs() -> None:
    clinic = Clinic("acme")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        assert world.call(clinic.tenants.add_async("globex", "acme")).added == 1
        world.run_for("15m")
        assert world.call(clinic.tenants.remove_async("acme")).removed == 1
        world.run_for("15m")
    assert (clinic.at("00:15"), clinic.at("00:30"), clinic.at("00:45")) == (["acme"], ["acme", "globex"], ["globex"])


def test_runs_of_a_removed_member_that_nobody_has_begun_do_not_run() -> None:
    clinic = Clinic("acme", "globex", overlap="queue")
    clinic.takes = {"acme": 40}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("32m")  # the second one waits for its turn
        assert world.call(clinic.tenants.set_async(["globex"])).skipped == 1
        world.run_for("40m")
        assert member_runs(world, "acme") == [(State.SUCCEEDED, None), (State.SKIPPED, Reason.REVISED)]


def test_a_set_without_members_is_no_silent_nothing() -> None:
    clinic = Clinic()
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        assert ticks(world)[0] == ("00:15", State.SKIPPED, "tenants has no members")


def test_jitter_spreads_the_members_and_none_of_them_to_the_next_tick() -> None:
    clinic = Clinic(*(f"tenant-{number}" for number in range(60)), jitter="1h")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("29m")
    starts = Counter(when for when, _ in clinic.seen)
    assert len(clinic.seen) == 60
    assert len(starts) > 8
    assert min(starts) >= "00:15"
    assert max(starts) <= "00:29"


def test_more_members_than_one_chunk_are_each_served_once() -> None:
    clinic = Clinic(*(f"tenant-{number}" for number in range(1_203)))
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("16m")
        assert ticks(world)[0][1:] == (State.SUCCEEDED, "1,203 of 1,203")
    assert len(clinic.seen) == len(set(clinic.seen)) == 1_203


def test_missed_ticks_are_caught_up_by_one_for_every_member() -> None:
    clinic = Clinic("acme", "globex")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("16m")
        world.outage("1h")
        world.run_for("2m")
        caught_up = [row for row in ticks(world) if row[1] is not State.SKIPPED][1]
    assert caught_up == ("01:15", State.SUCCEEDED, "2 of 2")
    assert Counter(tenant for _, tenant in clinic.seen) == {"acme": 2, "globex": 2}


def test_every_missed_tick_is_caught_up_one_after_another() -> None:
    clinic = Clinic("acme", "globex", catch_up="all")
    clinic.takes = {"acme": 2}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        world.outage("45m")
        world.run_for("14m")
        assert [state for _, state, _ in ticks(world)][:4] == [State.SUCCEEDED] * 4
    assert [when for when, tenant in clinic.seen if tenant == "acme"] == ["00:15", "01:06", "01:08", "01:10", "01:15"]
    assert [when for when, tenant in clinic.seen if tenant == "globex"] == ["00:15", "01:06", "01:08", "01:10", "01:15"]


def test_a_member_that_is_busy_waits_for_its_turn_where_a_tick_is_caught_up() -> None:
    clinic = Clinic("acme", "globex")
    clinic.takes = {"acme": 50}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("16m")
        world.kill_scheduler()
        world.run_for("40m")  # nobody fires, and the worker goes on
        world.add_scheduler()
        world.run_for("20m")
    assert [when for when, tenant in clinic.seen if tenant == "acme"] == ["00:15", "01:05"]
    assert [when for when, tenant in clinic.seen if tenant == "globex"] == ["00:15", "00:57", "01:00", "01:15"]


def test_a_paused_schedule_serves_nobody_and_goes_on_when_it_is_resumed() -> None:
    clinic = Clinic("acme", "globex")
    operate = clinic.app.operate
    with virtual_time(clinic.app, start=START) as world:
        world.call(operate.pause_async("health", reason="quiet", actor="ann"))
        world.run_for("20m")
        assert clinic.seen == []
        world.call(operate.resume_async("health", reason="done", actor="ann"))
        world.run_for("15m")
    assert clinic.at("00:30") == ["acme", "globex"]


def test_triggered_by_hand_it_serves_every_member() -> None:
    clinic = Clinic("acme", "globex")
    with virtual_time(clinic.app, start=START) as world:
        kept = world.call(clinic.app.operate.trigger_async("health", reason="now", actor="ann"))
        world.run_for("2m")
        assert world.run(kept.id).detail == "2 of 2"
    assert sorted(tenant for _, tenant in clinic.seen) == ["acme", "globex"]


def test_a_tick_that_is_cancelled_takes_its_members_along() -> None:
    clinic = Clinic("acme", "globex", overlap="queue")
    clinic.takes = {"acme": 40}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("32m")
        world.call(clinic.app.operate.cancel_async("health@2026-04-01T00:30:00Z", reason="enough", actor="ann"))
        assert ticks(world)[1][1] is State.CANCELLED
        assert member_runs(world, "acme")[1] == (State.CANCELLED, Reason.OPERATOR)


def test_a_rerun_of_a_tick_serves_every_member_again() -> None:
    clinic = Clinic("acme", "globex")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        tick = "health@2026-04-01T00:15:00Z"
        kept = world.call(clinic.app.operate.rerun_async(tick, reason="wrong data", actor="ann"))
        world.run_for("2m")
        assert world.run(kept.id).detail == "2 of 2"
    assert Counter(clinic.seen) == {("00:15", "acme"): 1, ("00:15", "globex"): 1, ("00:21", "acme"): 1} | {
        ("00:21", "globex"): 1
    }


def test_who_needs_its_result_waits_for_all_members() -> None:
    clinic = Clinic("acme", "globex")
    clinic.takes = {"globex": 5}
    done: list[str] = []

    @clinic.app.job
    async def summary() -> None:
        done.append(datetime.fromtimestamp(clinic.app.clock.now() / 1_000_000, UTC).strftime("%H:%M"))

    clinic.app.schedule("summary", summary, every("15m"), requires="health")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("25m")
    assert done == ["00:20"]


def test_a_tick_waits_for_what_it_requires_before_it_makes_any_runs() -> None:
    clinic = Clinic("acme", "globex", requires="feed", cutoff="10m")
    takes = {"minutes": 5}

    @clinic.app.job(attempts=1, timeout="1h")
    async def feed() -> None:
        await clinic.app.clock.sleep(takes["minutes"] * MINUTE)
        if takes["minutes"] > 5:
            raise ValueError("no feed")

    clinic.app.schedule("feed", feed, every("15m"))
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("16m")
        assert {run.member for run in world.runs(job="health")} == {None}
        world.run_for("5m")
        assert clinic.at("00:20") == ["acme", "globex"]
        takes["minutes"] = 6
        world.run_for("22m")
        assert ticks(world)[1][1] is State.SKIPPED
        assert world.run("health@2026-04-01T00:30:00Z").reason == Reason.UPSTREAM


def test_jitter_moves_ticks_and_nothing_that_was_ordered() -> None:
    clinic = Clinic(*(f"tenant-{number}" for number in range(20)), jitter="10m")
    with virtual_time(clinic.app, start=START) as world:
        world.call(clinic.app.operate.trigger_async("health", reason="now", actor="ann"))
        world.run_for("10s")
    assert len(clinic.at("00:01")) == 20


def test_what_is_ordered_now_is_not_skipped_for_a_run_that_is_still_to_come() -> None:
    clinic = Clinic(*(f"tenant-{number}" for number in range(20)), jitter="14m")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("14m1s")
        assert len(clinic.seen) < 20
        world.call(clinic.app.operate.trigger_async("health", reason="now", actor="ann"))
        world.run_for("5s")
    assert {tenant for _, tenant in clinic.seen} == {f"tenant-{number}" for number in range(20)}


def test_a_backfill_stops_when_its_ticks_come_to_nothing() -> None:
    clinic = Clinic("acme", "globex")
    clinic.ill = {"acme", "globex"}
    operate = clinic.app.operate
    with virtual_time(clinic.app, start=START) as world:
        made = world.call(
            operate.backfill_async(
                "health",
                datetime(2026, 3, 1, tzinfo=UTC),
                datetime(2026, 3, 3, tzinfo=UTC),
                reason="again",
                actor="ann",
                stop_after=3,
            )
        )
        world.run_for("10m")
        progress = world.call(operate.backfill_progress_async(made.number))
    assert str(progress.backfill.state) == "paused"


def test_a_report_speaks_of_members_and_not_of_their_sum() -> None:
    clinic = Clinic("acme", "globex")
    clinic.ill = {"globex"}
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        report = world.call(clinic.app.operate.report_async("health", START.date()))
    assert [(one.run.removeprefix("health@2026-04-01T"), str(one.verdict)) for one in report.statements] == [
        ("00:15:00Z[acme]", "complete"),
        ("00:15:00Z[globex]", "failed"),
        ("00:30:00Z", "waiting"),
    ]


def test_a_report_about_a_schedule_says_which_ticks_were_partial() -> None:
    app = Foliot("sqlite:///:memory:", attempts=1)

    @app.job
    def visit(shop: str) -> None:
        if shop == "south":
            raise ValueError("closed")

    app.members("shops", ["east", "south", "west"])
    app.schedule("visits", visit, every("15m"), over="shops", bind={"shop": "member"})
    with virtual_time(app, start=START) as world:
        world.run_for("20m")
        report = world.call(app.operate.report_async("visits", START.date()))
    [partial, waiting] = report.statements
    assert (partial.verdict, waiting.verdict, report.is_good) == (Verdict.PARTIAL, Verdict.WAITING, False)
    assert "not for all of its members: 2 of 3; 1 dead" in partial.text


def test_a_day_is_complete_once_the_dead_members_of_its_tick_were_retried() -> None:
    clinic = Clinic(*(f"tenant-{number}" for number in range(8)), rule="1d")
    clinic.ill = {"tenant-2", "tenant-5"}
    day = date(2026, 4, 2)
    tick = f"health@{day}T00:00:00Z"
    operate = clinic.app.operate

    def said(world: World) -> tuple[str | None, str | None, bool]:
        row = world.run(tick)
        return row.reason, row.detail, world.call(operate.report_async("health", day)).is_good

    with virtual_time(clinic.app, start=START) as world:
        world.run_for("1d")
        seen = [said(world)]
        for tenant in sorted(clinic.ill):
            clinic.ill = clinic.ill - {tenant}
            world.call(operate.retry_async(f"{tick}[{tenant}]", reason="mended", actor="ann"))
            world.run_for("1m")
            seen.append(said(world))
    assert seen == [
        (Reason.PARTIAL, "6 of 8; 2 dead", False),
        (Reason.PARTIAL, "7 of 8; 1 dead", False),
        (None, "8 of 8", True),
    ]


def test_nobody_is_no_set() -> None:
    clinic = Clinic("acme")
    with (
        virtual_time(clinic.app, start=START) as world,
        pytest.raises(InvalidInput, match="remove all members of tenants"),
    ):
        world.call(clinic.tenants.set_async([]))


def test_a_member_is_the_tenant_of_its_runs() -> None:
    clinic = Clinic("acme")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("16m")
        assert world.run("health@2026-04-01T00:15:00Z[acme]").tenant == "acme"


def test_the_last_useful_completion_of_each_member_is_known() -> None:
    clinic = Clinic("acme", "globex")
    with virtual_time(clinic.app, start=START) as world:
        world.run_for("20m")
        clinic.ill = {"globex"}
        world.run_for("15m")
        standings = world.call(clinic.app.operate.member_standings_async("health"))
        stale = world.call(clinic.app.operate.member_standings_async("health", older_than="10m"))
    assert [(one.member, one.useful_tick is not None) for one in standings] == [("acme", True), ("globex", True)]
    assert [one.member for one in stale] == ["globex"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"over": "tenats"}, "known: tenants"),
        ({"over": 7}, "not a member set"),
        ({"bind": {"tenant": "member"}}, "is bound to the member, but the schedule has no member set; add"),
        ({"complete": 1}, "complete= requires a member set; add over="),
        ({"over": "tenants", "complete": "110%"}, "share above 0 and up to 1"),
    ],
)
def test_a_mistake_is_refused_with_what_to_do(given: dict[str, Any], told: str) -> None:
    app = Foliot("sqlite:///:memory:")
    app.members("tenants")

    @app.job
    def health(tenant: str) -> None: ...

    with pytest.raises(InvalidInput, match=told):
        app.schedule("health", health, every("15m"), **{"args": {} if "bind" in given else {"tenant": "x"}} | given)


def test_a_fixed_delay_goes_over_nobody() -> None:
    app = Foliot("sqlite:///:memory:")
    app.members("tenants")

    @app.job
    def health() -> None: ...

    with pytest.raises(InvalidInput, match="use every"):
        app.schedule("health", health, after("15m"), over="tenants")


@pytest.mark.parametrize("name", ["", "a b", "a[b]", "x" * 101, 7])
def test_a_member_has_a_name_that_can_be_told(name: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot name a member"):
        Foliot("sqlite:///:memory:").members("tenants", [name])
