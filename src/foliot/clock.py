"""Clocks. Functions that decide take `now`; functions that act take a Clock."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol

from foliot.domain.instant import SECOND, Duration, Instant


class Clock(Protocol):
    """Where `now` comes from, and how to wait for a later one."""

    def now(self) -> Instant:
        """What is recorded and shown. Hosts' clocks are set, so two readings do not say how much time passed."""

    def monotonic(self) -> Instant:
        """Microseconds since a moment that only this clock knows: never goes back, and is nobody's to set."""

    async def sleep(self, length: Duration) -> None: ...


class SystemClock:
    """The host's clock."""

    def now(self) -> Instant:
        return time.time_ns() // 1_000

    def monotonic(self) -> Instant:
        return time.monotonic_ns() // 1_000

    async def sleep(self, length: Duration) -> None:
        await asyncio.sleep(max(length, 0) / SECOND)


class ManualClock:
    """A clock that moves only when told to. Sleepers wake in order of their time, when it is passed.

    Time passes when the clock is moved forwards, and is then also what `monotonic` counts; moved backwards, or by
    `step`, only what the clock shows has changed.
    """

    def __init__(self, start: Instant) -> None:
        self._now = start
        self._passed: Duration = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[Instant, int, asyncio.Future[None]]] = []

    def now(self) -> Instant:
        return self._now

    def monotonic(self) -> Instant:
        return self._passed

    async def sleep(self, length: Duration) -> None:
        if length <= 0:
            return
        waiting = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed + length, next(self._order), waiting))
        await waiting

    def next_sleeper(self) -> Instant | None:
        """When the next sleeper is to wake; None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._now + self._sleepers[0][0] - self._passed if self._sleepers else None

    def set(self, moment: Instant) -> None:
        """Moves the clock, also backwards (clocks do that), and wakes whoever has slept long enough."""
        self._passed += max(moment - self._now, 0)
        self._now = moment
        while self._sleepers and self._sleepers[0][0] <= self._passed:
            _, _, waiting = heapq.heappop(self._sleepers)
            if not waiting.done():
                waiting.set_result(None)

    def advance(self, length: Duration) -> None:
        self.set(self._now + length)

    def step(self, length: Duration) -> None:
        """Somebody sets the host's clock, forwards or back: no time passes, and nobody wakes."""
        self._now += length
