"""Standbys: runs that this worker claimed without a slot, and begins when its own runs give up their slots.

    running     an attempt has a slot of a limit for which other runs wait
    heir        it ended well: the first standby of that slot begins at once, and the slot passes to it
    delivered   the transaction that records the ending passes the slot on in the store, and claims more standbys

A slot passes on within this process, so it is never used twice, and waits neither for a disk nor for a message. A
standby that does not begin soon returns to the waiters: its handlers take longer than expected, or end otherwise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from foliot.clock import Clock
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.policy import OnLost
from foliot.domain.run import Ending
from foliot.domain.state import Event
from foliot.domain.store import PassedSlot, StandbyRequest
from foliot.work.attempt import Attempt
from foliot.work.endings import may_have_ledger
from foliot.work.room import Room

AHEAD: Duration = 150 * MILLISECOND
"""A worker asks for as many standbys as its runs of a slot are expected to need in this time."""
MOST = 400
"""Most standbys of a slot."""
KEPT: Duration = 500 * MILLISECOND
"""After this time a standby that has not begun returns to the waiters."""
STAYS_FOR: Duration = 2 * SECOND
"""In this time each slot that a worker has of a limit leaves it once, one slot after another, however the worker got
it. The next run is then for all workers: the least busy takes it, and this worker claims by priority."""
_NEWEST = 0.2
"""The weight of the newest duration in the mean."""


class Unit:
    """One slot of a limit that an attempt of this worker has."""

    __slots__ = ("attempt", "holders", "line")

    def __init__(self, line: Line, attempt: Attempt) -> None:
        self.line = line
        self.attempt = attempt
        self.holders = [self.heir]
        """Runs, with their tokens: by the store's knowledge one of them has it. More than one after a lost answer."""

    @property
    def heir(self) -> tuple[int, int]:
        """The run that has it now, with its token."""
        return self.attempt.claimed.number, self.attempt.claimed.token


class Line:
    """The attempts of one job that have the same slot, and their standbys."""

    __slots__ = ("freed", "job", "leaves_at", "mean", "name", "ready", "running")

    def __init__(self, name: str, job: str, leaves_at: Instant) -> None:
        self.name = name
        self.job = job
        self.running = 0
        self.freed = 0
        """Slots of endings which are not recorded yet, and which this worker should get again."""
        self.leaves_at = leaves_at
        """When the next slot may leave this worker. Monotonic."""
        self.mean: float | None = None
        """Microseconds that a run takes."""
        self.ready: deque[tuple[Instant, Attempt]] = deque()
        """When each was claimed, and the standby, in the order of the waiters."""

    @property
    def wanted(self) -> int:
        """How many standbys it should have."""
        return 0 if self.mean is None else min(int((self.running + self.freed) * AHEAD / max(self.mean, 1.0)), MOST)


class Standbys:
    """The standbys of one worker, and the slots that it passes on."""

    def __init__(self, clock: Clock, room: Room, wake: Callable[[], None]) -> None:
        """`wake` is called when a standby has waited for too long."""
        self._clock = clock
        self._room = room
        self._wake = wake
        self._lines: dict[str, Line] = {}
        self._units: dict[Attempt, Unit] = {}
        self._passed: dict[Unit, None] = {}
        """Units that the store must still pass on."""
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return any(line.ready for line in self._lines.values())

    def next(self) -> Instant | None:
        """When the first standby returns to the waiters, by the monotonic clock."""
        return min((line.ready[0][0] + KEPT for line in self._lines.values() if line.ready), default=None)

    def has_slot(self, attempt: Attempt) -> None:
        """This attempt has a slot that can pass to a standby."""
        name = attempt.claimed.slot
        if name is None or OnLost.ASK in (attempt.policy.on_lost, attempt.handler.policy.on_lost):
            # If this worker dies, the store cannot know which of its standbys had begun. The job's own policy is that
            # of the standbys: the store makes none of runs with an `on_lost` of their own.
            return
        line = self._line(name, attempt)
        if line.job == attempt.claimed.job:
            line.running += 1
            self._units[attempt] = Unit(line, attempt)

    def add(self, attempt: Attempt) -> None:
        name = attempt.claimed.slot or ""  # unknown after a lost answer: it returns to the waiters
        self._line(name, attempt).ready.append((self._clock.monotonic(), attempt))
        self._set_timer()

    def _line(self, name: str, attempt: Attempt) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name, attempt.claimed.job, self._clock.monotonic() + STAYS_FOR)
        return line

    def heir(self, attempt: Attempt, ending: Ending | None) -> Attempt | None:
        """The standby that begins because this attempt ended; None when its slot does not pass on here.

        Only the slot of a run that ends with this attempt passes on. A handler's own transaction may have ended the
        run before, and freed the slot."""
        unit = self._units.get(attempt)
        if unit is None or ending is None or ending.event is not Event.COMPLETED:
            return None
        if attempt.claimed.phase is not None or may_have_ledger(attempt) or _may_complete(attempt):
            return None
        line, now = unit.line, self._clock.monotonic()
        if attempt.begun_at is not None:
            took = now - attempt.begun_at
            line.mean = took if line.mean is None else line.mean + _NEWEST * (took - line.mean)
        if not line.ready or now > line.leaves_at:
            return None
        claimed_at, heir = line.ready[0]
        if claimed_at + KEPT <= now:
            return None  # this process stood still: its lease may have ended, and another worker may have the run
        if heir.claimed.job != attempt.claimed.job or heir.isolated != attempt.isolated:
            return None
        line.ready.popleft()
        del self._units[attempt]
        unit.attempt = heir
        self._units[heir] = unit
        self._passed[unit] = None
        return heir

    def ended(self, attempt: Attempt, *, is_recorded: bool) -> None:
        """The slot of this attempt does not pass on here. `is_recorded`: an ending of it will be recorded."""
        unit = self._units.pop(attempt, None)
        if unit is None:
            return
        # It stays in `_passed`: the store passes the slot to this run first, which may keep it for its next attempt.
        line, now = unit.line, self._clock.monotonic()
        if now > line.leaves_at:
            line.leaves_at = now + STAYS_FOR // line.running
        elif is_recorded:
            line.freed += 1
            self._room.offered += 1
        line.running -= 1

    def freed(self) -> dict[Line, int]:
        """Slots that the endings set free, and that this worker should get again."""
        return {line: line.freed for line in self._lines.values() if line.freed}

    def recorded(self, freed: Mapping[Line, int]) -> None:
        """The store has recorded the endings that freed these."""
        for line, count in freed.items():
            line.freed -= count
            self._room.offered -= count

    def forget_unused(self) -> None:
        """Forgets slots that no run of this worker has or waits for: each key of a run is a slot."""
        unused = [name for name, line in self._lines.items() if not (line.running or line.freed or line.ready)]
        for name in unused:
            del self._lines[name]

    def is_well_stocked(self, attempt: Attempt) -> bool:
        """Whether the standbys suffice until some more endings are recorded together. `attempt` has just begun."""
        unit = self._units.get(attempt)
        return unit is not None and 2 * len(unit.line.ready) >= max(unit.line.wanted, 1)

    def passed(self) -> list[tuple[Unit, list[PassedSlot]]]:
        """Units that have passed on, for the store, and which unit each entry is about."""
        return [(unit, [PassedSlot(*holder, *unit.heir) for holder in unit.holders]) for unit in self._passed]

    def delivered(self, unit: Unit, slots: Iterable[PassedSlot], *, is_known: bool) -> None:
        """These were sent to the store. Not `is_known`: whether it has passed the slot on."""
        heirs = {(one.heir, one.heir_token) for one in slots}
        if not is_known:
            unit.holders += [heir for heir in heirs if heir not in unit.holders]
            return
        unit.holders = list(heirs)
        if unit.heir in heirs:
            self._passed.pop(unit, None)

    def requests(self) -> list[StandbyRequest]:
        """Standbys that this worker needs."""
        missing = ((line, line.wanted - len(line.ready)) for line in self._lines.values())
        return [StandbyRequest(line.name, line.job, count) for line, count in missing if count > 0]

    def take_old(self, now: Instant) -> list[Attempt]:
        """Removes and answers the standbys that return to the waiters."""
        old: list[Attempt] = []
        for line in self._lines.values():
            while line.ready and line.ready[0][0] + KEPT <= now:
                old.append(line.ready.popleft()[1])
        self._set_timer()
        return old

    def take_all(self) -> list[Attempt]:
        """Removes and answers all standbys."""
        return self.take({attempt.claimed.number for line in self._lines.values() for _, attempt in line.ready})

    def take(self, numbers: Collection[int]) -> list[Attempt]:
        """Removes and answers the standbys with these numbers."""
        taken: list[Attempt] = []
        for line in self._lines.values():
            taken += (attempt for _, attempt in line.ready if attempt.claimed.number in numbers)
            line.ready = deque(one for one in line.ready if one[1].claimed.number not in numbers)
        self._set_timer()
        return taken

    def _set_timer(self) -> None:
        first = self.next()
        if self._timer is not None and first is None:
            self._timer.cancel()
            self._timer = None
        elif self._timer is None and first is not None:
            wait = max(first - self._clock.monotonic(), MILLISECOND) / SECOND
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def _look(self) -> None:
        self._timer = None
        first = self.next()
        if first is not None and first <= self._clock.monotonic():
            self._wake()
        else:
            self._set_timer()


def _may_complete(attempt: Attempt) -> bool:
    return attempt.context is not None and attempt.context._may_complete
