"""A schedule that needs another one's result waits for it, until its cutoff."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from foliot import Foliot, cron
from foliot.cli.doctor import _required
from foliot.domain.state import Reason, State
from foliot.testing import virtual_time
from foliot.testing.world import World

START = datetime(2026, 4, 1, 1, tzinfo=UTC)


class House:
    """Orders are loaded at 02:58, and reported at 03:00 if they are there."""

    def __init__(self, takes: int = 0, *, checked: bool = False, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:")
        self.takes, self.fails, self.right = takes, False, True
        self.reported: list[str] = []

        @self.app.job(attempts=1, timeout="1d")
        async def load() -> None:
            await self.app.clock.sleep(self.takes * 60_000_000)
            if self.fails:
                raise ValueError("no orders")

        @self.app.job
        async def report() -> None:
            self.reported.append(datetime.fromtimestamp(self.app.clock.now() / 1_000_000, UTC).strftime("%d %H:%M"))

        if checked:

            @load.verify
            async def all_there() -> bool:
                return self.right

        self.app.schedule("orders", load, cron("58 2 * * *"))
        self.app.schedule("report", report, cron("0 3 * * *"), requires="orders", **settings)


def rows(world: World) -> list[tuple[State, str | None]]:
    return [(run.state, run.reason) for run in world.runs(schedule="report")]


def test_a_result_that_is_there_is_not_waited_for() -> None:
    house = House()
    with virtual_time(house.app, start=START) as world:
        world.run_for("3h")
    assert house.reported == ["01 03:00"]


def test_a_run_waits_until_the_result_is_there_and_goes_at_once_then() -> None:
    house = House(takes=10)
    with virtual_time(house.app, start=START) as world:
        world.run_for("2h2m")
        held = world.runs(schedule="report")[0]
        assert (held.state, held.reason) == (State.HELD, Reason.UPSTREAM)
        assert held.detail == "waits for a useful result of orders"
        world.run_for("20m")
    assert house.reported == ["01 03:08"]


@pytest.mark.parametrize(("at_cutoff", "reported"), [("skip", []), ("run", ["01 05:00"])])
def test_at_its_cutoff_it_does_what_was_stated(at_cutoff: str, reported: list[str]) -> None:
    house = House(cutoff="2h", at_cutoff=at_cutoff)
    house.fails = True
    with virtual_time(house.app, start=START) as world:
        world.run_for("6h")
        assert house.reported == reported
        if at_cutoff == "skip":
            assert rows(world)[0] == (State.SKIPPED, Reason.UPSTREAM)
            assert "orders had no useful result" in (world.runs(schedule="report")[0].detail or "")


def test_a_result_that_its_check_refuses_is_not_useful_until_somebody_has_it_checked_again() -> None:
    house = House(checked=True)
    house.right = False
    with virtual_time(house.app, start=START) as world:
        world.run_for("3h")
        assert house.reported == []
        house.right = True
        [unverified] = [run for run in world.runs(schedule="orders") if run.state is State.UNVERIFIED]
        house.app.operate.verify(unverified.id, reason="mended", actor="ana")
        world.run_for("1m")
    assert house.reported == ["01 04:00"]


def test_a_rerun_of_the_upstream_that_succeeds_lets_it_go() -> None:
    house = House()
    house.fails = True
    with virtual_time(house.app, start=START) as world:
        world.run_for("3h")
        house.fails = False
        house.app.operate.rerun(world.runs(schedule="orders")[0].id, reason="mended", actor="ana")
        world.run_for("1m")
    assert house.reported == ["01 04:00"]


def test_a_schedule_that_requires_one_that_is_not_there_waits_and_says_so() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def report() -> None: ...

    app.schedule("report", report, cron("0 3 * * *"), requires="nothing", cutoff="1h")
    with virtual_time(app, start=START) as world:
        world.run_for("4h")
        first = world.runs(schedule="report")[0]
        assert (first.state, first.reason) == (State.SKIPPED, Reason.UPSTREAM)
        assert "schedule nothing did not exist" in (first.detail or "")


def test_after_an_outage_the_latest_tick_waits_for_the_latest_result() -> None:
    house = House(takes=5)
    with virtual_time(house.app, start=START) as world:
        world.run_for("30m")
        world.outage("3d3h")
        world.run_for("20m")
        assert house.reported == ["04 04:35"]


def test_an_operator_lets_it_go_without_the_result() -> None:
    house = House(takes=10)
    with virtual_time(house.app, start=START) as world:
        world.run_for("2h2m")
        world.call(world.store.release_run(world.runs(schedule="report")[0].id, actor="ana", note="the board meets"))
        world.run_for("1m")
    assert house.reported == ["01 03:02"]


def test_code_that_requires_a_schedule_which_does_not_exist_is_applied_and_says_so() -> None:
    house = House()
    with virtual_time(house.app, start=START) as world:
        assert world.call(house.app.apply_async()).lacking == {}
        later = Foliot(world.store, clock=world.clock)

        @later.job
        async def report() -> None: ...

        later.schedule("report", report, cron("0 3 * * *"), requires="orders")
        assert world.call(later.apply_async()).lacking == {}, "another app declares it"
        assert not world.call(later.operate.lacks_required_async(world.schedule("report").schedule))
        world.app.operate.delete("orders", reason="moved", actor="ana")
        assert world.call(later.apply_async()).lacking == {"report": "orders"}
        view = world.schedule("report")
        assert world.call(later.operate.lacks_required_async(view.schedule))
        [check] = _required([view])
        assert (check.verdict, "report requires orders" in check.detail) == ("warning", True)
