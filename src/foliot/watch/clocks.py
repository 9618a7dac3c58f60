"""Measures how far the host's clock is from the store's, and says so when that is too far."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from foliot.clock import DisciplinedClock, offset_in_words
from foliot.domain.instant import SECOND, Duration, Instant

MEASURE_EVERY: Duration = SECOND
REPORT_EVERY: Duration = 10 * SECOND
"""What was measured is kept with the instance this often, and at once when the verdict changes."""

_log = logging.getLogger("foliot.watch")


class ClockStore(Protocol):
    """What is needed of a store."""

    async def now(self) -> Instant: ...

    async def note(self, kind: str, subject: str, detail: str) -> None: ...

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None: ...


class ClockWatch:
    """Disciplines one process's clock. Who goes by that clock asks it whether it is fenced."""

    def __init__(
        self, store: ClockStore, clock: DisciplinedClock, role: str, host: str, instance: Callable[[], int | None]
    ) -> None:
        """`instance` is asked each time: a worker that the store declared dead has another number from then on."""
        self._store = store
        self._clock = clock
        self._role = role
        self._host = host
        self._instance = instance
        self._told_fenced = False
        self._reported_at: Instant | None = None
        self._reported_for: int | None = None
        self._failing = False

    async def run_once(self) -> None:
        """1. Measure. 2. Tell the store what was measured. 3. Say it aloud when the verdict changed."""
        base = self._clock.base
        before = base.now()
        now = await self._store.now()
        self._clock.observe(before, now, base.now())
        instance, offset, fenced = self._instance(), self._clock.offset, self._clock.fenced
        if instance is None or offset is None:
            return
        changed = fenced != self._told_fenced
        passed = base.monotonic()
        due = self._reported_at is None or passed - self._reported_at >= REPORT_EVERY
        if changed or due or instance != self._reported_for:
            await self._store.report_clock(instance, *offset, fenced)
            self._reported_at, self._reported_for = passed, instance
        if changed:
            await self._tell(instance, offset, fenced)
            self._told_fenced = fenced

    async def run(self) -> None:
        """Until it is cancelled. What could not be measured leaves the last verdict as it is."""
        while True:
            await self.try_once()
            await self._clock.beat(MEASURE_EVERY)

    async def try_once(self) -> None:
        try:
            await self.run_once()
            self._failing = False
        except Exception:
            if not self._failing:
                _log.warning("reading the store's clock failed, retrying", exc_info=True)
            self._failing = True

    async def _tell(self, instance: int, offset: tuple[Duration, Duration], fenced: bool) -> None:
        what = f"{self._role} {instance}: the clock of this host is {offset_in_words(*offset)}"
        if fenced:
            advice = "it starts no new work until the clock is right: fix the host's time synchronisation"
            _log.warning("%s; %s", what, advice)
            await self._store.note("clock_fenced", self._host, f"{what}; {advice}")
        else:
            _log.warning("%s, trusted again", what)
            await self._store.note("clock_trusted", self._host, f"{what}, trusted again")
