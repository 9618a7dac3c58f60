"""Workers that vanish at every boundary of an attempt, in virtual time: the same table as for real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foliot.operate.advising import guidance
from foliot.store.verbs import working
from foliot.testing import World, virtual_time
from tests.faults.crash_table import CRASHES, Crash, unhurried
from tests.faults.till import Bank, Point, make_till

HERE = [crash for crash in CRASHES if crash.point is not Point.ROWS]
"""A store in memory has one connection: while a handler stands inside a transaction, no time can pass."""


class Fuse:
    """Where the first worker stops for ever, to be killed there; the others pass."""

    def __init__(self, point: Point) -> None:
        self.point: Point | None = point
        self.reached = False

    async def reach(self, point: Point) -> None:
        if point is self.point:
            self.reached = True
            await asyncio.Event().wait()


class _Died(Exception):
    """Raised where a process would have ended."""


def arm(fuse: Fuse, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points between the handler and the store: what the process was about to do is not done."""
    worker = world.workers[0]

    def dies(*_: Any) -> None:
        fuse.reached = True

    async def dies_in(verb: Any, *args: Any) -> Any:
        answer = await verb(*args)
        if answer or verb is finish:
            dies()
            raise _Died  # which rolls back
        return answer

    claim, finish = working.claim, working.finish
    if fuse.point is Point.CLAIM:
        monkeypatch.setattr(working, "claim", lambda *args: dies_in(claim, *args))
    elif fuse.point is Point.CLAIMED:
        monkeypatch.setattr(worker, "begin", lambda claimed: dies() if claimed else None)
    elif fuse.point is Point.FINISH:
        monkeypatch.setattr(working, "finish", lambda *args: dies_in(finish, *args))
    elif fuse.point is Point.FINISHED:
        monkeypatch.setattr(worker, "_has_all", lambda now: worker.begun > 0)
        monkeypatch.setattr(worker.outbox, "_on_delivered", dies)


@pytest.mark.parametrize("crash", HERE, ids=lambda crash: crash.id)
def test_what_is_known_after_a_crash_and_how_it_ends(
    crash: Crash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuse = Fuse(crash.point)
    app = make_till(tmp_path, fuse.reach, "sqlite:///:memory:", backoff="2h")
    with virtual_time(app) as world:
        arm(fuse, world, monkeypatch)
        kept = app.jobs[crash.job].now(case=0)
        world.run_for("1ms")
        assert fuse.reached, "the worker never came there"
        monkeypatch.undo()
        fuse.point = None
        world.kill_worker()
        world.run_for("31s")
        run = unhurried(world.run(kept.id))
        advice = guidance(run, world.call(world.store.jobs()).get(crash.job), world.clock.now())
        known = (None, None) if advice is None else (advice.advice.recovery, advice.advice.action)
        assert (run.state, *known) == (crash.state, crash.recovery, crash.action)
        world.add_worker()
        world.run_for("3h")
        crash.holds(world.run(kept.id), Bank(tmp_path, 0))
