"""What an app's schedules would do: played in virtual time by the real schedulers and workers, with handlers that only
take time. None of the app's own functions is called.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from foliot import bootstrap
from foliot.app import Foliot
from foliot.clock import Clock, ManualClock
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import RunView
from foliot.domain.state import State
from foliot.testing.world import World

_ALL = 1_000_000
_WAITING = (State.SCHEDULED, State.HELD, State.READY, State.RETRYING)


class Outage(NamedTuple):
    """For so long, nobody is there."""

    at: Instant
    length: Duration


class Played(NamedTuple):
    """What became of one schedule."""

    schedule: str
    job: str
    states: Counter[str]
    """Ticks by what became of them."""
    skipped: Counter[str]
    """Those that did not run, by reason."""
    overlapping: int
    """Runs that began while another one of the schedule was under way."""
    latest: Duration
    """How long after its nominal time a run began at the most."""
    waiting: int
    """Ticks that were due and had not begun at the end."""


def play(
    app: Foliot, start: Instant, length: Duration, taking: Callable[[str], Duration], outages: Sequence[Outage] = ()
) -> list[Played]:
    """Plays the app's declared schedules for a time. `taking`: how long a run of a job takes. Outages in order."""
    clock = ManualClock(start)
    store = bootstrap.make_store("sqlite:///:memory:", clock)
    asyncio.run(store.open())
    with app.standing_on(store, clock), _pretending(app, clock, taking):
        world = _Hurried(app, store, clock)
        world.start()
        try:
            end = start + length
            for outage in outages:
                world.call(world._run_until(outage.at))
                world.outage(f"{min(outage.length, end - outage.at)}us")
            world.call(world._run_until(end))
            return [_played(one.id, one.job, world.runs(schedule=one.id, limit=_ALL), end) for one in _declared(app)]
        finally:
            world.close()


def _declared(app: Foliot) -> list[Any]:
    return sorted(app.declarations(), key=lambda one: one.id)


@contextmanager
def _pretending(app: Foliot, clock: Clock, taking: Callable[[str], Duration]) -> Iterator[None]:
    """While it lasts, the app's jobs do nothing, and take their time for it."""
    before = {name: job.handler for name, job in app.jobs.items()}

    def pretended(name: str) -> Callable[..., Any]:
        async def nothing(**_: Any) -> None:
            await clock.sleep(taking(name))

        return nothing

    for name, job in app.jobs.items():
        job.handler = replace(job.handler, function=pretended(name), is_async=True, isolation="none", check=None)
    try:
        yield
    finally:
        for name, job in app.jobs.items():
            job.handler = before[name]


class _Hurried(World):
    """Hearts beat only when something happens: a beat for each second of a week would be most of the work. Whoever
    looks whether workers live has heard of them at that very moment."""

    async def _beat_before(self, moment: Instant) -> bool:
        return False

    async def _round(self) -> bool:
        for worker in self.workers:
            if worker.heartbeat.due_at <= self.clock.now():
                await worker.heartbeat.run_once()
        return await super()._round()


def _played(schedule: str, job: str, views: Sequence[RunView], end: Instant) -> Played:
    due = [view for view in views if view.nominal <= end]
    begun = sorted((one for one in due if one.started_at is not None), key=lambda one: one.started_at or 0)
    states: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for view in due:
        states[str(view.state)] += view.span_count
        if view.state in (State.SKIPPED, State.CANCELLED):
            skipped[view.reason or "?"] += view.span_count
    overlapping, busy_until = 0, -1
    for view in begun:
        overlapping += (view.started_at or 0) < busy_until
        busy_until = max(busy_until, end if view.finished_at is None else view.finished_at)
    return Played(
        schedule,
        job,
        states,
        skipped,
        overlapping,
        max(((view.started_at or 0) - view.nominal for view in begun), default=0),
        sum(view.state in _WAITING for view in due),
    )
