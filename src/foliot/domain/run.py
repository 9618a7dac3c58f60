"""A run is one logical occurrence; an attempt is one try at it. The values that rooms pass one another about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, NamedTuple

from foliot.domain.breaker import Contact
from foliot.domain.identity import made_at, member_of_series, run_id
from foliot.domain.instant import LAST, MINUTE, Duration, Instant, rfc3339
from foliot.domain.ledger import BatchView, EffectView, Facts, Item, Stage
from foliot.domain.locking import is_shut
from foliot.domain.members import Interval
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.suspicion import losses_in
from foliot.errors import InvalidInput


class Origin(IntEnum):
    """Where a run came from. Stored as its number."""

    SCHEDULED = 0
    DELAYED = 1
    MANUAL = 2
    BACKFILL = 3
    RERUN = 4

    def __str__(self) -> str:
        return self.name.lower()


WISHES = frozenset({Origin.BACKFILL, Origin.RERUN})
"""Somebody wants this very work done: it waits where a tick would be skipped, and no tick takes its place."""


class Lane(IntEnum):
    """Which road a run takes to a worker; a lower lane goes first. Stored as its number."""

    LIVE = 0
    CATCH_UP = 1
    BACKFILL = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


LATE: Duration = MINUTE
"""A run that is later than this when it is handed off belongs to the backlog, and must not delay live work."""


class OnConflict(StrEnum):
    """What a promise does when its key has one already."""

    KEEP = "keep"
    """Return the promise that exists."""
    REPLACE = "replace"
    """Change the one that exists, if it has not started."""
    ERROR = "error"
    """Refuse."""
    RENEW = "renew"
    """Make the next generation, on purpose, once the one before has ended."""


def checked_conflict(given: str) -> OnConflict:
    try:
        return OnConflict(given)
    except ValueError:
        raise InvalidInput(f"on_conflict={given!r}; give one of {', '.join(map(repr, map(str, OnConflict)))}") from None


def checked_due(moment: Instant, what: str) -> Instant:
    """When a promise may be due."""
    if not 0 <= moment <= LAST:
        raise InvalidInput(f"{what}: the time must lie between 1970 and 9999")
    return moment


class Promise(NamedTuple):
    """A delayed run that somebody asks for: checked, encoded, and not durable yet."""

    job: str
    payload: bytes
    fire_at: Instant
    key: str | None = None
    tenant: str | None = None
    queue: str | None = None
    priority: int = 0
    useful_until: Instant | None = None
    options: bytes | None = None
    on_conflict: OnConflict = OnConflict.KEEP
    unique_for: Duration | None = None
    is_relative: bool = False
    """Its time counts from the call, so two calls never name the same time."""


class Kept(NamedTuple):
    """What became of a promise: the run that now stands for it."""

    number: int
    name: str | None
    outcome: str
    """`made`, `kept` (it existed already), `replaced`, `renewed`, `moved`, `cancelled`, `asked` (to stop), `forced`
    (asked to stop; if it does not, its worker ends its process), `withdrawn` (a schedule's next run: skipped when due),
    `parked` (it was to end, and an effect of it is open), `retried`, `rerun`, `rechecked`, `reconciled`,
    `settled` (work is left, and it stays parked), `recorded` (other effects have no answer), `resumed`, `closed`,
    `released`, `skipped`; `would`, where nothing was done."""
    state: State
    fire_at: Instant
    differs: tuple[str, ...] = ()
    """Of a promise that was `kept`, the parts that the caller gave otherwise: `job`, `args`, `time`."""

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)

    def __str__(self) -> str:
        """`class:7#1 was made: scheduled, due at 2026-04-03T02:00:00Z`."""
        what = "exists already and has this key" if self.outcome == "kept" else f"was {self.outcome}"
        other = f", with another {' and another '.join(self.differs)}" if self.differs else ""
        return f"{self.id} {what}: {self.state}, due at {rfc3339(self.fire_at)}{other}"


class Promised(NamedTuple):
    """The parts of a stored promise that its caller chose."""

    job: str
    payload: bytes
    due_at: Instant


def differing(wanted: Promise, stored: Promised) -> tuple[str, ...]:
    """The parts of a promise that differ from the stored one with the same key."""
    found = {
        "job": wanted.job != stored.job,
        "args": not is_shut(stored.payload) and _differ(wanted.payload, stored.payload),
        "time": wanted.fire_at != stored.due_at and not wanted.is_relative,
    }
    return tuple(name for name, differs in found.items() if differs)


def _differ(one: bytes, other: bytes) -> bool:
    """Whether two JSON objects differ in more than the order of their keys."""
    try:
        return one != other and _in_order(one) != _in_order(other)
    except (ValueError, RecursionError):  # one of them is no JSON
        return True


def _in_order(payload: bytes) -> str:
    return json.dumps(json.loads(payload), sort_keys=True)


class Claimed(NamedTuple):
    """An attempt that a worker owns until its lease ends: everything that executing it needs."""

    number: int
    name: str | None
    job: str
    payload: bytes
    token: int
    attempt: int
    spent: int
    fire_at: Instant
    nominal: Instant | None
    since: Instant | None
    schedule: str | None
    revision: int | None
    tenant: str | None
    queue: str | None
    priority: int
    origin: int
    lane: int
    options: bytes | None
    checkpoint: bytes | None
    phase: int | None = None
    """What is to be done: None for the handler's work, or else a Phase."""
    lineage: int | None = None
    """The number of the run whose ledger it shares; None when it is the first of its lineage."""
    repair: bool = False
    """A rerun that is to write again what an earlier run wrote wrongly."""
    deaths: int | None = None
    """Not None: it may have killed a worker, and is executed under the rule of suspicion; see `domain.suspicion`."""
    early: Duration = 0
    """It was claimed before its time, and begins after so long, counted from the claim's answer."""
    losses: int = 0
    """How often in a row it was lost. Read only of runs under suspicion."""
    slot: str | None = None
    """The slot of a limit that it has; of a standby, the slot that it needs. Only `finish_and_claim` sets it, and only
    where it is one slot."""
    standby: bool = False
    """It has no slot yet. Its worker begins it when one of its own runs gives up that slot, or returns it."""

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)

    @property
    def member(self) -> str | None:
        """Whom it is for, where its schedule goes over many: `schedule` is the series of that member then."""
        return None if self.schedule is None else member_of_series(self.schedule)


new_promise: Callable[[Iterable[Any]], Promise] = partial(tuple.__new__, Promise)
new_kept: Callable[[Iterable[Any]], Kept] = partial(tuple.__new__, Kept)
new_claimed: Callable[[Iterable[Any]], Claimed] = partial(tuple.__new__, Claimed)
"""Of all their fields in order, for whoever makes a million of them: in a third of the time that the classes take."""


class Phase(IntEnum):
    """What a run that is `verifying` is checked for. Stored as its number."""

    CHECK = 1
    """Its handler succeeded; the check says whether the result is right."""
    DOUBT = 2
    """Nobody knows whether it succeeded; only a check that passes can tell."""


class Verdict(NamedTuple):
    """What a check says of a run's result."""

    ok: bool
    scope: str | None = None
    """What it looked at: "412 of 412 accounts"."""


class Progress(NamedTuple):
    """What an attempt reported since the store last kept a report of it. Sent with a heartbeat, or with its ending."""

    number: int
    token: int
    started_at: Instant
    """When the handler began: until then the run is shown as claimed."""
    note: bytes | None
    """JSON `{"done": …, "of": …, "note": …, "at": …}`; None when it has said nothing new."""
    checkpoint: bytes | None
    items: tuple[Item, ...] = ()
    ending: Outcome | None = None
    """The outcome to record once the process has ended: the attempt was asked to stop, and does not stop."""


class Ending(NamedTuple):
    """How a worker says that an attempt ended: the decision already taken, and what to remember of it."""

    number: int
    token: int
    attempt: int
    event: Event
    outcome: Outcome
    started_at: Instant | None
    finished_at: Instant
    retry_at: Instant | None = None
    reason: Reason | None = None
    error: str | None = None
    result: bytes | None = None
    stage: Stage | None = None
    scope: str | None = None
    """What a check looked at: "412 of 412 accounts"."""
    retries_per_hour: int | None = None
    """The job's budget of retries, where it has one."""
    contact: Contact | None = None
    """What it found out about its destination, where it has one."""
    report: Progress | None = None
    """Progress, checkpoint and items that a heartbeat may not have brought; None when there are none."""
    deaths: int | None = None
    """How many processes died that executed the run alone; None: it is under no suspicion from now on."""


class SilentAttempt(NamedTuple):
    """An attempt whose worker has not been heard of lately."""

    number: int
    name: str | None
    job: str
    token: int
    attempt: int
    spent: int
    nominal: Instant
    options: bytes | None
    claimed_at: Instant
    beat_at: Instant
    gone: bool
    """The store knows that the worker's process has ended (same host, no such process)."""
    worker: int = 0
    phase: int | None = None
    deaths: int | None = None
    ending: Outcome | None = None
    """The outcome to record if the process has ended; see `Progress.ending`. `interrupted`: it was shutting down."""
    facts: Facts = Facts()
    tenant: str | None = None
    queue: str | None = None
    slots: int = 1
    """Of its worker."""
    losses: int = 0
    """How often in a row the run was lost before this attempt."""


class Loss(NamedTuple):
    """The decision about a silent attempt: it is lost, and this is what happens to its run."""

    number: int
    token: int
    attempt: int
    event: Event
    retry_at: Instant | None
    reason: Reason | None
    error: str
    outcome: Outcome = Outcome.LOST
    stage: Stage | None = None
    charged: bool = True
    deaths: int | None = None
    facts: Facts | None = None
    """What the ledger said when this was decided; None: whatever it says."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One finished or running attempt, for people."""

    attempt: int
    outcome: Outcome | None
    worker: int | None
    started_at: Instant | None
    finished_at: Instant | None
    error: str | None
    stage: Stage | None = None
    reason: str | None = None
    """Why the run went on as it did after this attempt."""
    progress: bytes | None = None
    """How far it had come."""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, for people: the live row or the one in history, in the same shape."""

    number: int
    name: str | None
    state: State
    origin: Origin
    job: str
    schedule: str | None
    revision: int | None
    tenant: str | None
    queue: str
    lane: Lane
    priority: int
    nominal: Instant
    since: Instant | None
    fire_at: Instant
    attempt: int
    spent: int
    reason: str | None
    detail: str | None
    payload: bytes
    worker: int | None
    fired_at: Instant | None
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    progress: bytes | None
    result: bytes | None
    span_until: Instant | None = None
    span_count: int = 1
    cancel_requested: bool = False
    cancel_forced: bool = False
    """An operator forced its cancellation. Given for a single run only."""
    position: int = 0
    """For ended runs, its place in the order of endings: where `ended_since` goes on."""
    options: bytes | None = None
    """What its schedule or its caller chose for it."""
    phase: int | None = None
    repair: bool = False
    deaths: int | None = None
    """Not None: it may have killed a worker. The number of processes that died executing it alone."""
    attempts: list[AttemptView] = field(default_factory=list)
    effects: list[EffectView] = field(default_factory=list)
    """The ledger of its lineage, in the order in which it was begun. Like attempts, given for a single run only."""
    batches: list[BatchView] = field(default_factory=list)
    reruns: list[str] = field(default_factory=list)
    """All runs of its lineage that repeat the first one."""
    has_checkpoint: bool = False
    member: str | None = None
    """Whom it is for, where its schedule goes over many."""
    interval: Interval | None = None
    """Of a tick over many members: how complete it is. Given for a single run only."""

    @property
    def losses(self) -> int:
        """How often in a row it was lost. Known for a single run only."""
        return losses_in(attempt.outcome for attempt in self.attempts)

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)

    @property
    def made_at(self) -> Instant:
        return made_at(self.number)

    @property
    def late_by(self) -> Duration | None:
        """How long after its fire time the last attempt began."""
        begun = self.started_at or self.claimed_at
        return None if begun is None else begun - self.fire_at
