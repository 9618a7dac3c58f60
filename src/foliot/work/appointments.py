"""Attempts that were claimed before their time, and endings that wait for company."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from foliot.clock import Clock
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.work.attempt import Attempt

LINGER = 0.02
"""Seconds that an ending which nobody waits for may wait for others: to tell the store of ten costs little more than to
tell it of one."""
STOOD_STILL: Duration = SECOND
"""So late nothing comes to its appointment, unless this process stood still."""


class Appointments:
    """Each attempt is started when its time has come, by the clock's count of passing time. One timer serves all."""

    def __init__(
        self,
        clock: Clock,
        start: Callable[[Attempt, Instant], None],
        miss: Callable[[Attempt], None],
        tell: Callable[[], None],
    ) -> None:
        """`miss`: of an attempt that came far too late. `tell`: has endings told that waited for long enough."""
        self._clock = clock
        self._start = start
        self._miss = miss
        self._tell = tell
        self._waiting: list[tuple[Instant, int, Attempt]] = []
        self._order = count()
        self._timer: tuple[Instant, asyncio.TimerHandle] | None = None
        self._lingering: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether more is about to begin."""
        return bool(self._waiting)

    def next(self) -> Instant | None:
        """By the monotonic clock."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, when: Instant, attempt: Attempt) -> None:
        heappush(self._waiting, (when, next(self._order), attempt))
        self._set_timer()

    def keep(self, now: Instant) -> bool:
        """Starts whatever is due; answers whether anything was."""
        first = self.next()
        if first is None or first > now:
            return False
        while self._waiting and self._waiting[0][0] <= now:
            when, _, attempt = heappop(self._waiting)
            if now - when > STOOD_STILL:
                self._miss(attempt)
            else:
                self._start(attempt, now)
        self._set_timer()
        return True

    def cancel(self) -> list[Attempt]:
        """Answers those that waited."""
        waiting, self._waiting = self._waiting, []
        self._set_timer()
        return [attempt for _, _, attempt in sorted(waiting)]

    @property
    def lingering(self) -> bool:
        """Whether endings wait for company."""
        return self._lingering is not None

    def linger(self) -> None:
        """An ending waits."""
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(LINGER, self._have_told)

    def _have_told(self) -> None:
        self._lingering = None
        self._tell()

    def _set_timer(self) -> None:
        first = self.next()
        if self._timer is not None:
            if self._timer[0] == first:
                return
            self._timer[1].cancel()
            self._timer = None
        if first is not None:
            wait = max(first - self._clock.monotonic(), 0) / SECOND
            self._timer = first, asyncio.get_running_loop().call_later(wait, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.keep(self._clock.monotonic()):
            self._set_timer()  # it was a little early
