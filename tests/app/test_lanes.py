"""After an outage, in virtual time: fresh work is on time, and what was missed is caught up at a chosen rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from foliot import Foliot, every
from foliot.domain.instant import SECOND, Duration, instant
from foliot.domain.run import Lane, RunView
from foliot.domain.state import State
from foliot.testing import World, virtual_time


def ended(world: World, lane: Lane) -> list[RunView]:
    return [run for run in world.runs() if run.lane is lane and run.state is State.SUCCEEDED]


def test_after_an_outage_live_runs_are_on_time_and_the_backlog_drains_at_the_rate() -> None:
    app = Foliot()
    app.limit("lane:catch-up", rate="2/s")

    @app.job
    async def remind(number: int) -> None: ...

    with virtual_time(app) as world:
        for number in range(300):
            remind.at(world.now + timedelta(seconds=number), number=number)
        for number in range(100):
            remind.at(world.now + timedelta(minutes=25, seconds=number), number=number)
        world.outage("25m")
        world.run_for("60s")
        assert {run.late_by for run in ended(world, Lane.LIVE)} == {0}
        assert len(ended(world, Lane.LIVE)) == 61
        assert len(ended(world, Lane.CATCH_UP)) == pytest.approx(120, abs=3)
        world.run_for("2m")
        assert (len(ended(world, Lane.LIVE)), len(ended(world, Lane.CATCH_UP))) == (100, 300)


def test_ticks_that_are_caught_up_one_by_one_keep_to_the_rate_too() -> None:
    app = Foliot()
    app.limit("lane:catch-up", rate="1/s")

    @app.job
    async def load() -> None: ...

    app.schedule("load", load, every("1m"), catch_up="all", overlap="allow")
    with virtual_time(app) as world:
        world.run_for("5m")
        world.outage("30m")
        world.run_for("30s")
        late = sorted(run.fired_at or 0 for run in ended(world, Lane.CATCH_UP))
        assert len(late) == pytest.approx(29, abs=1)
        assert min(after - before for before, after in pairwise(late)) >= SECOND - 1


@pytest.mark.parametrize("catch_up", ["all", "once"])
def test_ticks_that_were_missed_by_seconds_keep_to_the_rate_too(catch_up: str) -> None:
    app = Foliot()
    app.limit("lane:catch-up", rate="1/s")

    @app.job
    async def load() -> None: ...

    for number in range(20):
        app.schedule(f"load-{number}", load, every("1h"), catch_up=catch_up, missed_after="5s", overlap="allow")
    with virtual_time(app, start=datetime(2026, 4, 1, 0, 59, 30, tzinfo=UTC)) as world:
        world.run_for("29s")
        world.clock.advance(31 * SECOND)  # the scheduler is up, and was held for half a minute
        world.run_for("5s")
        assert len(ended(world, Lane.CATCH_UP)) == pytest.approx(5, abs=2)
        world.run_for("20s")
        late = sorted(run.fired_at or 0 for run in ended(world, Lane.CATCH_UP))
        assert len(late) == 20
        assert min(after - before for before, after in pairwise(late)) >= SECOND - 1


def test_without_a_rate_everything_is_caught_up_at_once() -> None:
    app = Foliot()

    @app.job
    async def remind(number: int) -> None: ...

    with virtual_time(app) as world:
        for number in range(300):
            remind.at(world.now + timedelta(seconds=number), number=number)
        world.outage("25m")
        world.run_for("0s")
        assert len(ended(world, Lane.CATCH_UP)) == 300


# ----------------------------------------------------------------------------------------------------- limits of a lane

START = datetime(2026, 4, 10, 0, 30, tzinfo=UTC)
BY: dict[str, Any] = {"reason": "a test", "actor": "ana"}


class Mill:
    """Two schedules with a past, whose runs take a second and may overlap."""

    def __init__(self, *schedules: str, takes: Duration = SECOND, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:", timeout="1h", **settings)
        self.world: World

        @self.app.job
        async def grind() -> None:
            await self.world.clock.sleep(takes)

        for name in schedules:
            self.app.schedule(name, grind, every("1h"))

    def backfill(self, *schedules: str, hours: int = 30) -> None:
        for name in schedules:
            self.app.operate.backfill(name, START - timedelta(hours=hours), START, at_once=100, **BY)

    def starts(self, lane: Lane = Lane.BACKFILL) -> list[Duration]:
        begun = [run.started_at - instant(START) for run in self.world.runs() if run.lane is lane and run.started_at]
        return sorted(begun)


def most_at_a_time(runs: list[RunView]) -> int:
    spans = [(run.started_at or 0, run.finished_at or 0) for run in runs]
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


def test_the_rate_of_the_backfill_lane_bounds_all_backfills_together_and_changes_while_they_run() -> None:
    mill = Mill("barley", "oats", overlap="allow")
    mill.app.limit("lane:backfill", rate="2/s")
    with virtual_time(mill.app, start=START) as mill.world:
        mill.backfill("barley", "oats")
        mill.world.run_for("10s")
        assert len(mill.starts()) == pytest.approx(20, abs=1)
        mill.app.operate.limit("lane:backfill", rate="10/s", **BY)
        mill.world.run_for("2s")
        assert len(mill.starts()) == pytest.approx(40, abs=2)
        mill.app.operate.limit("lane:backfill", concurrency=0, **BY)
        mill.world.run_for("10s")
        stopped = len(mill.starts())
        assert stopped <= 42, "a concurrency of none stops the lane"
        mill.app.operate.unlimit("lane:backfill", **BY)
        mill.world.run_for("5s")
        assert len(mill.starts()) == 60
        for first, last in pairwise(mill.starts()[:19]):
            assert last - first == SECOND // 2


def test_no_more_of_the_backfill_lane_run_at_a_time_than_its_concurrency() -> None:
    mill = Mill("barley", "oats", overlap="allow")
    mill.app.limit("lane:backfill", concurrency=3)
    with virtual_time(mill.app, start=START) as mill.world:
        mill.backfill("barley", "oats", hours=10)
        mill.world.run_for("1m")
        assert len(ended(mill.world, Lane.BACKFILL)) == 20
        assert most_at_a_time(ended(mill.world, Lane.BACKFILL)) == 3


def test_no_more_of_a_backlog_run_at_a_time_than_the_concurrency_of_catch_up() -> None:
    mill = Mill()
    mill.app.limit("lane:catch-up", concurrency=4, rate="100/s")
    grind = mill.app.jobs["grind"]
    with virtual_time(mill.app, start=START) as mill.world:
        for number in range(40):
            grind.at(START + timedelta(seconds=number))
        mill.world.outage("25m")
        fresh = grind.now()
        mill.world.run_for("1s")
        assert mill.world.run(fresh.id).late_by == 0
        mill.world.run_for("1m")
        assert len(ended(mill.world, Lane.CATCH_UP)) == 40
        assert most_at_a_time(ended(mill.world, Lane.CATCH_UP)) == 4


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ({"rate": "1/h"}, "waits for the rate limit of lane:backfill"),
        ({"concurrency": 0}, "waits for a slot of lane:backfill"),
    ],
)
def test_a_run_that_waits_in_the_backfill_lane_says_for_what_and_keeps_no_live_tick_waiting(
    limit: dict[str, Any], told: str
) -> None:
    mill = Mill("barley", overlap="skip")
    mill.app.limit("lane:backfill", **limit)
    with virtual_time(mill.app, start=START) as mill.world:
        mill.backfill("barley", hours=3)
        mill.world.run_for("5m")
        held = next(run for run in mill.world.runs() if run.state is State.HELD and run.reason != "overlap")
        assert (held.detail or "").startswith(told)
        mill.world.run_for("26m")
        assert [run.late_by for run in ended(mill.world, Lane.LIVE)] == [0]
        mill.app.operate.limit("lane:backfill", concurrency=1, **BY)
        mill.world.run_for("4h")
        assert len(ended(mill.world, Lane.BACKFILL)) == 3
        assert len(ended(mill.world, Lane.LIVE)) == 5
