"""What SQLite's tidying leaves, and what it does not stop at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from foliot import Foliot, cron
from foliot.domain.instant import DAY, SECOND
from foliot.domain.state import State
from foliot.store.sqlite import keeping
from foliot.testing import World, virtual_time

START = datetime(2026, 1, 1, tzinfo=UTC)


def _tidy(world: World) -> None:
    world.call(world.store.count_endings())
    world.call(world.store.tidy())


def test_a_tick_over_many_counts_members_that_ended_long_before_the_last_one() -> None:
    app = Foliot("sqlite:///:memory:")
    fails = ["c"]

    @app.job(attempts=1000, backoff="6h", backoff_cap="6h", give_up_after="30d")
    def check(member: str) -> None:
        if member in fails:
            raise ValueError(member)

    app.members("tenants", ["a", "b", "c"])
    app.schedule("health", check, cron("0 1 1 1 *"), over="tenants", bind={"member": "member"})
    with virtual_time(app, start=START) as world:
        world.call(world.store.set_keep_days(1, actor="ana", note="x"))
        world.run_for("2h")
        world.clock.advance(3 * DAY)
        _tidy(world)
        fails.clear()
        world.run_for("1h")
        tick = world.run("health@2026-01-01T01:00:00Z")
        assert (tick.state, tick.detail) == (State.SUCCEEDED, "3 of 3")
        world.clock.advance(3 * DAY)
        check.now(member="z")  # the last ending stays, whichever it is
        world.run_for("1m")
        _tidy(world)
        assert [run.id for run in world.runs(schedule="health[a]")] == []


def test_an_ending_by_a_wrong_clock_does_not_keep_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "AT_ONCE", 3)
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    async def misdate(tx: Any) -> None:
        tx._connection.execute("UPDATE history SET finished_at = ? WHERE n = 1", (tx.now + 365 * DAY,))

    with virtual_time(app, start=START) as world:
        world.call(world.store.set_keep_days(1, actor="ana", note="x"))
        for _ in range(12):
            work.now()
        world.run_for("1m")
        world.call(world.store.write(misdate))  # type: ignore[attr-defined]
        world.clock.advance(3 * DAY + SECOND)
        _tidy(world)
        assert len(world.runs()) == 2, "the one of the wrong clock, and the last one"
