"""Calls for work that is there, or that will be at a moment by the server's clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

from foliot.domain.instant import SECOND, Instant

COVERED_AFTER = 0.02
"""Seconds after which somebody else answers a call in any case."""
KNOWN_FOR, MOST_KNOWN = 10.0, 64
"""Seconds for which a message says what time it is at the server, and how many are remembered."""


class Message(NamedTuple):
    """When it was said, and the calls: for when (0: for now), and the number of who is to answer ('': all)."""

    at: Instant
    calls: list[tuple[Instant, str]]

    @classmethod
    def read(cls, text: str) -> Self:
        """`1790000000000000 0:17 1790000000004000:18`: see `foliot.fire_runs`."""
        at, *calls = text.split(" ")
        parts = (call.partition(":") for call in calls)
        return cls(int(at), [(int(when), whom) for when, _, whom in parts])


class ServerTime:
    """What time of the event loop's clock a moment of the server's is.

    Every message was on its way for some time, the swiftest of them hardly at all: so a moment is taken for a little
    later than it is, and whoever goes then finds what is ready. Where it is wrong all the same, because a clock was set,
    whoever goes too soon is told so by the claim.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[float, float]] = deque(maxlen=MOST_KNOWN)
        """When a message came, and how much later that was than it was said."""

    def note(self, at: Instant) -> float:
        """A message of this moment has come; answers what time it is here."""
        now = asyncio.get_running_loop().time()
        while self._known and self._known[0][0] < now - KNOWN_FOR:
            self._known.popleft()
        self._known.append((now, now - at / SECOND))
        return now

    def here(self, at: Instant) -> float:
        return at / SECOND + min(ahead for _, ahead in self._known)


class Calls:
    """Calls that are still to be answered, and one timer for the next of them."""

    def __init__(self, go_alone: Callable[[], None], go: Callable[[], None]) -> None:
        """`go_alone`: answers a call for us alone. `go`: one that others may answer, too."""
        self._go_alone = go_alone
        self._go = go
        self._ours: set[float] = set()
        self._others: set[float] = set()
        """Moments of the loop's clock: when we are to go, and when others were; for all, and for somebody else."""
        self._all: set[float] = set()
        self._timer: asyncio.TimerHandle | None = None

    def ours(self, when: float) -> None:
        self._ours.add(when)
        self._set_timer()

    def all(self, when: float) -> None:
        self._all.add(when)
        self._set_timer()

    def others(self, when: float) -> None:
        """We see to it a little later, unless we went meanwhile."""
        self._others.add(when)
        self._set_timer()

    def answered(self) -> None:
        """We go and look: whatever was called for until now is taken care of."""
        if not (self._ours or self._all or self._others):
            return
        now = asyncio.get_running_loop().time()
        for calls in (self._ours, self._all, self._others):
            calls.difference_update([when for when in calls if when <= now])
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        pending = [*self._ours, *self._all, *(when + COVERED_AFTER for when in self._others)]
        if self._timer is not None:
            if pending and self._timer.when() == min(pending):
                return
            self._timer.cancel()
        self._timer = None
        if pending:
            loop = asyncio.get_running_loop()
            if min(pending) <= loop.time():
                self._look()
            else:
                self._timer = loop.call_at(min(pending), self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        is_for_us_alone = any(when <= now for when in self._ours)
        self.answered()
        (self._go_alone if is_for_us_alone else self._go)()
