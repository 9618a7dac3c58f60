"""Calls for work that is there, or that will be at a moment by the server's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol, Self

from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant

EARLY = 0.001
"""Seconds: who is called for a moment goes this much before it, and waits at the server if need be. Timers, and the way
there, take about as long."""
COVERED_AFTER = 0.02
"""Seconds after which somebody else answers a call in any case."""
KNOWN_FOR, MOST_KNOWN = 10.0, 64
"""Seconds for which a message says what time it is at the server, and how many are remembered."""


class Message(NamedTuple):
    """When it was said, and the calls: for when (0: for now), and the number of who is to answer ('': all)."""

    at: Instant
    calls: list[tuple[Instant, str]]

    @classmethod
    def read(cls, text: str) -> Self | None:
        """`1790000000000000 0:17 1790000000004000:18`: see `foliot.fire_runs`. None where it says nothing of the kind:
        then anybody may be meant."""
        at, *calls = text.split(" ")
        parts = [call.partition(":") for call in calls]
        try:
            return cls(int(at), [(int(when), whom) for when, _, whom in parts]) if parts else None
        except ValueError:
            return None


class Timer(Protocol):
    def when(self) -> float: ...
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What is needed of an event loop; times are of its clock, in seconds."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...


class ServerTime:
    """What time of the event loop's clock a moment of the server's is.

    Every message was on its way for some time, the swiftest of them hardly at all: so a moment is taken for a little
    later than it is. Where it is wrong all the same, because a clock was set, whoever goes too soon is told so by the
    claim, and whoever goes too late is late, until a few messages have come.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._known: deque[tuple[float, float]] = deque(maxlen=MOST_KNOWN)
        """When a message came, and how much later that was than it was said."""

    def note(self, at: Instant) -> float:
        """A message of this moment has come; answers what time it is here."""
        now = self._loop.time()
        while self._known and self._known[0][0] < now - KNOWN_FOR:
            self._known.popleft()
        self._known.append((now, now - at / SECOND))
        return now

    def here(self, at: Instant) -> float:
        """There was a message lately."""
        return at / SECOND + min(later for _, later in self._known)


class Calls:
    """Calls that are still to be answered, and one timer for the next of them."""

    def __init__(self, loop: Loop, go: Callable[[bool], None]) -> None:
        """`go`: somebody here is to look for work; whether nobody else was called to it."""
        self._loop = loop
        self._go = go
        self._ours: set[float] = set()
        self._all: set[float] = set()
        self._others: set[float] = set()
        self._latest = -inf
        """Of the calls that somebody here goes to answer, or went."""
        self._expected: float | None = None
        self._timer: Timer | None = None

    def ours(self, when: float) -> None:
        self._add(self._ours, when)

    def all(self, when: float) -> None:
        self._add(self._all, when)

    def others(self, when: float) -> None:
        """We see to it a little later, unless we went meanwhile."""
        self._add(self._others, when)

    def expect(self, when: float) -> None:
        """The same: somebody was called, if that call was not lost. What was expected before is not any more."""
        if self._expected is not None:
            self._others.discard(self._expected)
        self._expected = when
        self.others(when)

    def answered(self) -> Duration:
        """Somebody here looks: whatever was called for until now, or will be in a moment, is taken care of. Answers for
        how long to wait for it."""
        now = self._loop.time()
        if self._ours or self._all or self._others:
            self._take(now)
            self._set_timer()
        return round((self._latest - now) * SECOND) + MILLISECOND if self._latest > now else 0

    def close(self) -> None:
        for calls in (self._ours, self._all, self._others):
            calls.clear()
        self._set_timer()

    def _add(self, calls: set[float], when: float) -> None:
        calls.add(when)
        self._set_timer()

    def _take(self, now: float) -> bool:
        """Whether there was any."""
        found = False
        for calls in (self._ours, self._all, self._others):
            taken = [when for when in calls if when <= now + EARLY]
            calls.difference_update(taken)
            self._latest = max(self._latest, *taken, -inf)
            found |= bool(taken)
        return found

    def _set_timer(self) -> None:
        moments = [when - EARLY for calls in (self._ours, self._all) for when in calls]
        moments += [when + COVERED_AFTER for when in self._others]
        first = min(moments, default=None)
        if self._timer is not None:
            if self._timer.when() == first:
                return
            self._timer.cancel()
            self._timer = None
        if first is not None and first <= self._loop.time():
            self._look()
        elif first is not None:
            self._timer = self._loop.call_at(first, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        is_for_us_alone = any(when <= now + EARLY for when in self._ours)
        found = self._take(now)
        self._set_timer()
        if found:  # timers are a little early here and there
            self._go(is_for_us_alone)
