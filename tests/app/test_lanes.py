"""After an outage, in virtual time: fresh work is on time, and what was missed is caught up at a chosen rate."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from foliot import Foliot, every
from foliot.domain.instant import SECOND
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
