"""A backfill is manufactured history: the ticks of a bounded interval, made into runs now, at a pace of their own.

Values, and the decisions about its pace. Pure: facts and `now` are arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.gates import Rate
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.errors import Conflict, InvalidInput

MOST_AT_ONCE = 1_000
MOST_IN_A_ROW = 10
"""So many failures in a row, and a backfill waits for a person."""
MOST_TICKS = 100_000
"""What nobody starts without having said that this is meant."""
BURST: Duration = SECOND
"""What was not made for lack of attention is made up for, but no more than this much of it."""

_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


class BackfillState(StrEnum):
    """Where a backfill stands."""

    RUNNING = "running"
    PAUSED = "paused"
    """It makes no runs; those that it made go on. `reason` says why."""
    DONE = "done"
    """Every tick is a run, and each of those has ended or waits for a person."""
    CANCELLED = "cancelled"


UNENDED = frozenset({BackfillState.RUNNING, BackfillState.PAUSED})

_TURNS = {
    (BackfillState.RUNNING, BackfillState.PAUSED),
    (BackfillState.PAUSED, BackfillState.RUNNING),
    (BackfillState.RUNNING, BackfillState.CANCELLED),
    (BackfillState.PAUSED, BackfillState.CANCELLED),
}
_SAID = {
    BackfillState.RUNNING: "resumed",
    BackfillState.PAUSED: "paused",
    BackfillState.CANCELLED: "cancelled",
    BackfillState.DONE: "ended",
}


class Window(NamedTuple):
    """The hours of the day in which runs are made, by the clock on the wall of a zone; they may span midnight."""

    opens: tuple[int, int]
    """Hour and minute."""
    closes: tuple[int, int]
    tz: str

    @property
    def hours(self) -> str:
        """`22:00-06:00`."""
        return f"{self.opens[0]:02}:{self.opens[1]:02}-{self.closes[0]:02}:{self.closes[1]:02}"

    def __str__(self) -> str:
        return f"{self.hours} {self.tz}"


def window(hours: str, tz: str) -> Window:
    """Reads `22:00-06:00`. Whether there is such a zone, the rules of time know."""
    found = _WINDOW.fullmatch(hours.strip()) if isinstance(hours, str) else None
    if found is None:
        raise InvalidInput(f"{hours!r:.80} is not a window; write it as 22:00-06:00")
    opens, closes = (int(found[1]), int(found[2])), (int(found[3]), int(found[4]))
    if opens == closes:
        raise InvalidInput(f"the window {hours.strip()} is empty; leave it out to run at any hour")
    return Window(opens, closes, tz)


def stored_window(text: str | None) -> Window | None:
    """Reads what `str(window)` wrote."""
    return None if text is None else window(*text.split(" ", 1))


class Pace(NamedTuple):
    """How fast runs are made, and when."""

    rate: Rate | None = None
    at_once: int = 1
    """The most runs at a time that were made and have not ended."""
    window: Window | None = None


class NewBackfill(NamedTuple):
    """A backfill that somebody asks for: previewed, and not durable yet."""

    schedule: str
    revision: int
    """Of the schedule, as it was previewed."""
    start: Instant
    end: Instant
    """Ticks from `start` on and before `end`."""
    total: int
    """How many ticks that is."""
    newest_first: bool = False
    pace: Pace = Pace()
    stop_after: int | None = MOST_IN_A_ROW


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill as the store holds it."""

    number: int
    schedule: str
    state: BackfillState
    version: int
    """Raised by every change: a decision that was taken about another version changes nothing."""
    start: Instant
    end: Instant
    newest_first: bool
    cursor: Instant
    """The last tick that was decided upon; before the first one, where the interval begins."""
    total: int
    made: int
    existed: int
    """Ticks that had a run already."""
    pace: Pace
    pace_at: Instant
    """When the next run is due by its rate."""
    stop_after: int | None
    forgiven: Instant | None
    """Where it stood when somebody had it go on: failures up to there count no more."""
    reason: str | None
    """Why it is paused."""
    job: str
    rule: str
    """As the schedule had it when this was started; it stays, whatever becomes of the schedule."""
    revision: int
    actor: str
    note: str
    made_at: Instant
    ended_at: Instant | None
    first_number: int | None
    """The numbers of its runs lie between these two."""
    last_number: int | None

    @property
    def left(self) -> int:
        """Ticks that were not decided upon yet."""
        return max(self.total - self.made - self.existed, 0)

    @property
    def subject(self) -> str:
        """What audit rows call it."""
        return f"backfill:{self.number}"


class FillTick(NamedTuple):
    """A tick of the interval: its nominal time, and where the time begins that it stands for."""

    nominal: Instant
    since: Instant | None


class Taken(NamedTuple):
    """A tick that has a run already."""

    nominal: Instant
    run: str
    """The run's id. Another tick's for one that was merged into it."""
    state: State
    reason: str | None


class UnderWay(NamedTuple):
    """A running backfill, and how its runs stand."""

    backfill: Backfill
    unfinished: int
    failures: int
    """How many of its latest runs came to no good end, one after another."""
    at: Instant
    """The store's clock when this was seen."""


class BackfillProgress(NamedTuple):
    """How far a backfill has come."""

    backfill: Backfill
    states: dict[State, int]
    """Its runs by state, live and ended."""
    at: Instant

    @property
    def ended(self) -> int:
        """Runs that need no worker any more."""
        return sum(count for state, count in self.states.items() if state in TERMINAL | PARKED)

    @property
    def waiting_for_people(self) -> int:
        return sum(count for state, count in self.states.items() if state in PARKED)

    @property
    def unfinished(self) -> int:
        return sum(self.states.values()) - self.ended

    @property
    def settled(self) -> int:
        """Ticks that need nothing any more. Of runs that history has forgotten, too: they are not unfinished."""
        return self.backfill.made - self.unfinished + self.backfill.existed


@dataclass(frozen=True, slots=True)
class Preview:
    """What a backfill would do, to the tick."""

    schedule: str
    revision: int
    start: Instant
    end: Instant
    total: int
    first: Instant | None
    last: Instant | None
    pace: Pace
    taken: list[Taken] = field(default_factory=list)
    """The ticks that have a run already, and get no other."""
    lasting: Duration | None = None
    """About how long it will take; None when nobody knows."""
    ends_at: Instant | None = None

    @property
    def new(self) -> int:
        return self.total - len(self.taken)


# ------------------------------------------------------------------------------------------------------------ decisions


class Allowance(NamedTuple):
    """How many runs may be made now, and when time alone allows more; None when only the end of a run does."""

    runs: int
    again_at: Instant | None


def allowance(backfill: Backfill, *, unfinished: int, opens_at: Instant | None, now: Instant) -> Allowance:
    """Window, room and rate, in this order. `opens_at`: when its window is open next, or None where it has none."""
    if opens_at is not None and opens_at > now:
        return Allowance(0, opens_at)
    room = max(backfill.pace.at_once - unfinished, 0)
    if room == 0 or backfill.pace.rate is None:
        return Allowance(room, None)
    every = backfill.pace.rate.every
    count = min(due_by_rate(backfill.pace_at, every, now), room)
    return Allowance(count, None if count == room else paced(backfill.pace_at, every, now, count))


def due_by_rate(pace_at: Instant, every: Duration, now: Instant) -> int:
    """How many are due when the next was at `pace_at`, and one every `every`; a backlog counts up to `BURST`."""
    return 0 if now < pace_at else 1 + (now - _recent(pace_at, now)) // every


def paced(pace_at: Instant, every: Duration, now: Instant, made: int) -> Instant:
    """When the next one is due after so many were made."""
    return _recent(pace_at, now) + made * every if made else pace_at


def _recent(pace_at: Instant, now: Instant) -> Instant:
    return max(pace_at, now - BURST)


def repaced(backfill: Backfill, pace: Pace, now: Instant) -> Instant:
    """When the next one is due under another rate: no later than that rate says."""
    return backfill.pace_at if pace.rate is None else min(backfill.pace_at, now + pace.rate.every)


def fails_too_often(backfill: Backfill, failures: int) -> str | None:
    """Why it must not go on; None when it may."""
    if backfill.stop_after is None or failures < backfill.stop_after:
        return None
    return f"{failures} runs in a row failed; inspect them, then resume the backfill"


def checked_turn(backfill: Backfill, wanted: BackfillState) -> BackfillState:
    """The state that a person asks for, or Conflict."""
    if (backfill.state, wanted) not in _TURNS:
        raise Conflict(f"backfill {backfill.number} is {backfill.state}; it cannot be {_SAID[wanted]}")
    return wanted


def refuse_ended(backfill: Backfill) -> None:
    if backfill.state not in UNENDED:
        raise Conflict(f"backfill {backfill.number} is {backfill.state}; its pace cannot be changed")


def time_needed(left: int, pace: Pace, *, usual: Duration | None, abreast: bool) -> Duration | None:
    """How long so many runs take, while the window is open; None when nobody knows.

    `usual`: how long a run of the job takes. `abreast`: whether runs of the schedule may overlap.
    """
    if left == 0:
        return 0
    by_rate = pace.rate.every if pace.rate is not None else 0
    by_work = (usual or 0) // (pace.at_once if abreast else 1)
    gap = max(by_rate, by_work)
    return left * gap or None
