"""The maker of backfills: what one instance of the fleet does for all of them."""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from itertools import islice

from foliot.clock import Clock
from foliot.domain.backfill import Backfill, BackfillState, FillTick, UnderWay, allowance, fails_too_often
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.rule import Rule
from foliot.domain.store import BackfillStore
from foliot.timing import decode
from foliot.timing.interval import Interval
from foliot.timing.window import opens_at
from foliot.watch.duty import rest

LOOK_EVERY: Duration = SECOND
WAIT_EVERY: Duration = 100 * MILLISECOND
"""How often it looks whether a run has ended that the next one waits for."""

_AT_ONCE = 500
"""Ticks that one transaction decides about, at most."""
_MOST_ROUNDS = 20
"""Transactions for one backfill before the others have their turn."""

_log = logging.getLogger("foliot.watch")


class Backfiller:
    """Looks once per second whether a backfill is under way, and makes of each as many runs as its pace allows.

    Two that believe to have the duty do no harm: every write names the version of the backfill that it was decided on.
    """

    def __init__(self, store: BackfillStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next: Instant | None = None
        self._failing = False
        self.is_busy = False
        """Whether any backfill was under way at the last look."""

    async def run_once(self) -> Instant:
        """One look at all of them; returns when the next one is wanted."""
        tasks = await self._store.backfills_under_way()
        moments = [await self._tend(task) for task in tasks]
        self.is_busy = bool(tasks)
        self._next = min((moment for moment in moments if moment is not None), default=None)
        now = self._clock.now()
        latest = now + (WAIT_EVERY if None in moments else LOOK_EVERY)
        return latest if self._next is None else max(min(self._next, latest), now)

    def next_event(self) -> Instant | None:
        """When time alone lets it make more; None when it waits for the end of a run, or has nothing to do."""
        return self._next

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        while not stop.is_set():
            length = LOOK_EVERY
            try:
                length = await self.run_once() - self._clock.now()
                self._failing = False
            except Exception:
                if not self._failing:
                    _log.warning("backfill round failed, retrying", exc_info=True)
                self._failing = True
            await rest(self._clock, max(length, MILLISECOND) if self.is_busy else LOOK_EVERY, stop)

    async def _tend(self, task: UnderWay) -> Instant | None:
        """Makes what may be made now; answers when time alone allows more. What its rule cannot answer pauses it."""
        backfill = task.backfill
        fault = fails_too_often(backfill, task.failures)
        if fault is not None:
            await self._pause(backfill, fault)
            return None
        try:
            has_ended = task.unfinished == 0 and not next_ticks(backfill, 1)
        except Exception as problem:
            await self._pause(backfill, _told(problem))
            return None
        if has_ended:
            await self._store.halt_backfill(backfill.number, backfill.version, BackfillState.DONE, None)
            return None
        opens = None if backfill.pace.window is None else opens_at(backfill.pace.window, task.at)
        allowed = allowance(backfill, unfinished=task.unfinished, opens_at=opens, now=task.at)
        return allowed.again_at if await self._make(backfill, allowed.runs) else task.at

    async def _make(self, backfill: Backfill, count: int) -> bool:
        """Makes so many runs, or as many as there are ticks. False when it did not come to an end: look again.

        Ticks that have a run already cost nothing: more and more are looked at, until that many were made.
        """
        size = count
        for _ in range(_MOST_ROUNDS):
            try:
                ticks = next_ticks(backfill, min(size, _AT_ONCE)) if count else []
            except Exception as problem:
                await self._pause(backfill, _told(problem))
                return True
            if not ticks:
                return True
            following = await self._store.make_backfill(backfill.number, backfill.version, ticks, count)
            if following is None:
                return False  # somebody changed it meanwhile
            count -= following.made - backfill.made
            backfill, size = following, 4 * size
        return False

    async def _pause(self, backfill: Backfill, why: str) -> None:
        if await self._store.halt_backfill(backfill.number, backfill.version, BackfillState.PAUSED, why):
            _log.warning("paused backfill %d of %s: %s", backfill.number, backfill.schedule, why)


def next_ticks(backfill: Backfill, count: int) -> list[FillTick]:
    """The ticks that come next, in the backfill's order; fewer at the end of its interval."""
    rule, interval = _rule(backfill.rule), Interval(backfill.start, backfill.end)
    ticks = (interval.backward if backfill.newest_first else interval.forward)(rule, backfill.cursor)
    return [FillTick(*tick) for tick in islice(ticks, count)]


@lru_cache(maxsize=1_000)
def _rule(text: str) -> Rule:
    return decode(text)


def _told(problem: Exception) -> str:
    return f"evaluating the rule failed: {type(problem).__name__}: {problem}"
