"""Clocks. Functions that decide take `now`; functions that act take a Clock."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from typing import NamedTuple, Protocol

from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant


class Clock(Protocol):
    """Where `now` comes from, and how to wait for a later one."""

    @property
    def fenced(self) -> bool:
        """Whether it is known to be wrong: whoever goes by it finishes what was begun, and takes nothing new."""

    def now(self) -> Instant:
        """What is recorded and shown. Hosts' clocks are set, so two readings do not say how much time passed."""

    def monotonic(self) -> Instant:
        """Microseconds since a moment that only this clock knows: never goes back, and is nobody's to set."""

    async def sleep(self, length: Duration) -> None: ...

    def until_beat(self, every: Duration) -> Duration:
        """How long to rest before work that is done again and again `every` so often.

        The periodic work of one process is due at the same moments: then its loops share a wake-up, and their writes a
        commit. So the first rest may be shorter, by less than a second. A length that is not of whole seconds is
        exact."""

    async def beat(self, every: Duration) -> None:
        """Rests for that long."""


_PHASE: Duration = time.monotonic_ns() // 1_000 % SECOND
"""When in each second the periodic work of this process is due. Processes differ: they do not all write at once."""
_EARLY: Duration = 50 * MILLISECOND
"""A timer that fires this early counts as on time."""


class SystemClock:
    """The host's clock."""

    fenced = False

    def now(self) -> Instant:
        return time.time_ns() // 1_000

    def monotonic(self) -> Instant:
        return time.monotonic_ns() // 1_000

    async def sleep(self, length: Duration) -> None:
        await asyncio.sleep(max(length, 0) / SECOND)

    def until_beat(self, every: Duration) -> Duration:
        if every % SECOND:
            return every
        since_beat = (self.monotonic() - _PHASE) % SECOND
        return every - (since_beat if since_beat < SECOND - _EARLY else since_beat - SECOND)

    async def beat(self, every: Duration) -> None:
        if every % SECOND:
            await self.sleep(every)
            return
        # At the same moment for all of them, so that the event loop wakes once.
        beats = round((self.monotonic() + self.until_beat(every) - _PHASE) / SECOND)
        loop = asyncio.get_running_loop()
        ends = loop.create_future()
        timer = loop.call_at(loop.time() + (_PHASE + beats * SECOND) / SECOND - time.monotonic(), _end, ends)
        try:
            await ends
        finally:
            timer.cancel()


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class ManualClock:
    """A clock that moves only when told to. Sleepers wake in order of their time, when it is passed.

    Time passes when the clock is moved forwards, and is then also what `monotonic` counts; moved backwards, or by
    `step`, only what the clock shows has changed.
    """

    fenced = False

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

    def until_beat(self, every: Duration) -> Duration:
        return every

    async def beat(self, every: Duration) -> None:
        await self.sleep(every)

    def next_sleeper(self) -> Instant | None:
        """When the next sleeper is to wake; None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._now + self._sleepers[0][0] - self._passed if self._sleepers else None

    @property
    def sleeping(self) -> int:
        """The number of sleepers that still wait."""
        return sum(not waiting.done() for _, _, waiting in self._sleepers)

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


TRUSTED: Duration = 100 * MILLISECOND
"""A host whose clock is certainly further from the store's is fenced."""
DRIFT = 200
"""How fast two clocks may drift apart, in microseconds per second. Ordinary quartz keeps to a quarter of that."""
_RECENT = 10
_STEP: Duration = MILLISECOND


class _Sighting(NamedTuple):
    low: Duration
    high: Duration
    since: Instant
    """When the question was asked, by the base's monotonic clock."""
    lead: Duration
    """What the base showed then, less its monotonic clock: another number means that somebody set the base."""

    def seen_from(self, at: Instant) -> tuple[Duration, Duration]:
        """What it still says later on: the clocks drift."""
        drifted = max(at - self.since, 0) * DRIFT // SECOND
        return self.low - drifted, self.high + drifted


class DisciplinedClock:
    """A host's clock, corrected by what was seen of the store's.

    A question to the store takes time, and its clock was read somewhere in between: so what is known of the offset
    (store minus host) is an interval, as wide as the question took. The narrowest of the last ones counts, widened by
    what the clocks may have drifted since. It starts anew when somebody set either clock.
    """

    def __init__(self, base: Clock) -> None:
        self.base = base
        self.offset: tuple[Duration, Duration] | None = None
        """The store's clock minus the host's certainly lies between these; None before the first observation."""
        self._estimate: Duration = 0
        self._sightings: deque[_Sighting] = deque(maxlen=_RECENT)

    @property
    def fenced(self) -> bool:
        """Only when no offset that is possible could be trusted: a slow answer accuses nobody."""
        return self.offset is not None and (self.offset[0] > TRUSTED or self.offset[1] < -TRUSTED)

    def observe(self, before: Instant, store: Instant, after: Instant) -> None:
        """The store's clock was read at some moment between these two of the base."""
        if after < before:
            return  # the base was set back while we asked: nothing can be said
        at = self.base.monotonic()
        seen = _Sighting(store - after, store - before, at - (after - before), after - at)
        if any(_contradict(seen, earlier, at) for earlier in self._sightings):
            self._sightings.clear()
        self._sightings.append(seen)
        self.offset = min(
            (one.seen_from(at) for one in self._sightings), key=lambda interval: interval[1] - interval[0]
        )
        self._estimate = sum(self.offset) // 2

    def now(self) -> Instant:
        return self.base.now() + self._estimate

    def monotonic(self) -> Instant:
        return self.base.monotonic()

    async def sleep(self, length: Duration) -> None:
        await self.base.sleep(length)

    def until_beat(self, every: Duration) -> Duration:
        return self.base.until_beat(every)

    async def beat(self, every: Duration) -> None:
        await self.base.beat(every)


def _contradict(new: _Sighting, earlier: _Sighting, at: Instant) -> bool:
    """Somebody set the host's clock, or the store's."""
    low, high = earlier.seen_from(at)
    return new.low > high or new.high < low or abs(new.lead - earlier.lead) > _STEP


def offset_in_words(low: Duration, high: Duration) -> str:
    """How far a host's clock is from the store's, from what is known of the offset (store minus host)."""
    if low > 0:
        return f"{_milliseconds(low)} to {_milliseconds(high)} ms behind the store's"
    if high < 0:
        return f"{_milliseconds(-high)} to {_milliseconds(-low)} ms ahead of the store's"
    return f"within {_milliseconds(max(-low, high))} ms of the store's"


def _milliseconds(length: Duration) -> str:
    return f"{length / MILLISECOND:,.1f}"
