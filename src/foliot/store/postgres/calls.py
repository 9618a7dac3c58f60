"""Calls for work that is there, or that will be at a moment by the server's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from math import inf
from typing import NamedTuple, Protocol, Self

from foliot.domain.instant import SECOND, Duration, Instant

COVERED_AFTER = 0.04
"""Seconds after which another worker answers a call, unless it has heard that the call was answered. Longer than the
time between two firings where there are many."""
KNOWN_FOR, MOST_KNOWN = 1.0, 64
"""Seconds for which a message says what time it is at the server, and how many are remembered."""
ANY = 1 << 62
"""For a chunk whose number is not known."""
DRIFT = 0.0005
"""By how much two clocks may differ more after a second than before it."""


class Call(NamedTuple):
    """When there is work (0: now), the number of the worker that is called ('': all), and for which chunk (0: any). For
    work that is ready now it takes any chunk, too."""

    at: Instant
    worker: str
    chunk: int


class Message(NamedTuple):
    """When it was said; until when whatever was ready is taken, of chunks behind `since` (0: that is not known); and
    the calls."""

    at: Instant
    taken: Instant
    since: int
    calls: list[Call]

    @classmethod
    def read(cls, text: str) -> Self | None:
        """`1790000000000000/1789999999990000/2600 0:17:2999 1790000000004000:18:3000`: see `foliot.fire_runs`. None
        where it says nothing of the kind: then anybody may be meant."""
        moments, *calls = text.split(" ")
        at, taken, since, *_ = [*moments.split("/"), "0", "0"]
        try:
            return cls(int(at), int(taken), int(since), list(map(_call, calls))) if calls else None
        except ValueError:
            return None


def _call(text: str) -> Call:
    at, worker, chunk, *_ = [*text.split(":"), "", ""]
    return Call(int(at), worker, int(chunk or 0))


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
    later than it is, never for earlier. Unless a clock was set: that shows when an answer comes (`ago`).
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
        """Long after the last message: never."""
        now = self._loop.time()
        return at / SECOND + min((later + (now - came) * DRIFT for came, later in self._known), default=inf)

    def ago(self, at: Instant, asked: float) -> Duration:
        """For how long, at least, it has not been this moment at the server any more. It came after `asked`."""
        now, when = self._loop.time(), self.here(at)
        if when < asked:
            self._known.clear()  # a clock was set since the messages came
        return round((now - when) * SECOND) if asked <= when < now else 0


class Cover(NamedTuple):
    """Work that another worker was called for. This process claims a little later, unless the work was taken."""

    when: float
    """When there is, and not before we heard of it."""
    heard: float
    at: Instant
    """When there is, by the server's clock."""
    chunk: int

    def is_taken(self, until: Instant, here: float, since: int) -> bool:
        """`here`: the same moment by our clock. Who said so may have looked before that chunk could be seen: then he
        looked before we heard of it."""
        return self.at <= until and self.heard <= here and self.chunk > since


class Answer(NamedTuple):
    """The work that a claim made now was called for."""

    chunks: dict[int, float]
    """His own, that are to come, and when they are ready."""
    anything: bool
    """Whatever is there."""


class Calls:
    """Calls that are still to be answered, and one timer for the next moment."""

    def __init__(self, loop: Loop, go: Callable[[bool], None]) -> None:
        """`go` makes this process claim; its argument is whether no other process was called."""
        self._loop = loop
        self._go = go
        self._chunks: dict[int, float] = {}
        self._is_anything = False
        self._moments: set[float] = set()
        """When to claim, unless this process claims before."""
        self._covers: set[Cover] = set()
        self._expected: Cover | None = None
        self._timer: Timer | None = None

    def now(self, *, alone: bool) -> None:
        """There is work; `alone`: no other process was called for it."""
        self._is_anything = True
        self._go(alone)

    def mark(self) -> None:
        """There may be work, for another reason than a call."""
        self._is_anything = True

    def chunk(self, number: int, when: float) -> None:
        """There will be, and it is ours."""
        self._chunks[number] = when
        self._set_timer()
        self._go(False)

    def at(self, when: float) -> None:
        """There will be work for any worker."""
        self._moments.add(when)
        self._set_timer()

    def others(self, when: float, at: Instant, chunk: int) -> None:
        """There will be work, and another worker was called."""
        heard = self._loop.time()
        self._cover(Cover(max(when, heard), heard, at, chunk))

    def expect(self, when: float) -> None:
        """The same, if the call was not lost. It replaces what was expected before."""
        if self._expected is not None:
            self._covers.discard(self._expected)
        self._expected = Cover(when, when, 0, ANY)
        self._cover(self._expected)

    def taken(self, until: Instant, here: float, since: int) -> None:
        """The workers that were called for chunks ready at that time have claimed."""
        self._covers = {one for one in self._covers if not one.is_taken(until, here, since)}
        self._set_timer()

    def _cover(self, one: Cover) -> None:
        self._covers.add(one)
        self._set_timer()

    def answered(self) -> Answer:
        """This process claims now, which answers every call before this."""
        answer = Answer(self._chunks, self._is_anything or not self._chunks)
        self._chunks, self._is_anything = {}, False
        self._take(self._loop.time())
        self._set_timer()
        return answer

    def close(self) -> None:
        self._chunks.clear()
        self._moments.clear()
        self._covers.clear()
        self._set_timer()

    def _take(self, now: float) -> bool:
        """Whether any moment has come."""
        moments = [when for when in self._moments if when <= now]
        covers = [one for one in self._covers if one.when + COVERED_AFTER <= now]
        self._moments.difference_update(moments)
        self._covers.difference_update(covers)
        return bool(moments or covers)

    def _set_timer(self) -> None:
        covered = (one.when + COVERED_AFTER for one in self._covers)
        first = min(chain(self._moments, covered, self._chunks.values()), default=None)
        if self._timer is not None:
            if self._timer.when() == first:
                return
            self._timer.cancel()
            self._timer = None
        if first is not None:
            self._timer = self._loop.call_at(first, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        ours = [number for number, when in self._chunks.items() if when <= now]
        for number in ours:  # not claimed before its time: now any worker may take it
            del self._chunks[number]
        is_time = self._take(now) or bool(ours)
        self._set_timer()
        if is_time:  # timers are a little early here and there
            self.now(alone=bool(ours))
