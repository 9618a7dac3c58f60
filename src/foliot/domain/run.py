"""A run is one logical occurrence; an attempt is one try at it. The values that rooms pass one another about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from foliot.domain.identity import made_at, run_id
from foliot.domain.instant import Duration, Instant
from foliot.domain.state import Event, Outcome, Reason, State


class Origin(IntEnum):
    """Where a run came from. Stored as its number."""

    SCHEDULED = 0
    DELAYED = 1
    MANUAL = 2
    BACKFILL = 3
    RERUN = 4

    def __str__(self) -> str:
        return self.name.lower()


class Lane(IntEnum):
    """Which road a run takes to a worker; a lower lane goes first. Stored as its number."""

    LIVE = 0
    CATCH_UP = 1
    BACKFILL = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


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


class Kept(NamedTuple):
    """What became of a promise: the run that now stands for it."""

    number: int
    name: str | None
    outcome: str
    """`made`, `kept` (it existed already), `replaced`, `renewed`, `moved`, `cancelled`, `asked` (to stop), `withdrawn`
    (a schedule's next run: skipped when due), `retried`."""
    state: State
    fire_at: Instant

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)


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

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)


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


class Progress(NamedTuple):
    """What a running attempt last said of itself; travels with the heartbeat."""

    number: int
    token: int
    started_at: Instant
    """When the handler began: until then the run is shown as claimed."""
    note: bytes | None
    """JSON `{"done": …, "of": …, "note": …}`; None when it has said nothing new."""
    checkpoint: bytes | None


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


class Loss(NamedTuple):
    """The decision about a silent attempt: it is lost, and this is what happens to its run."""

    number: int
    token: int
    attempt: int
    event: Event
    retry_at: Instant | None
    reason: Reason | None
    error: str


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One finished or running attempt, for people."""

    attempt: int
    outcome: Outcome | None
    worker: int | None
    started_at: Instant | None
    finished_at: Instant | None
    error: str | None


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
    position: int = 0
    """For ended runs, its place in the order of endings: where `ended_since` goes on."""
    options: bytes | None = None
    """What its schedule or its caller chose for it."""
    attempts: list[AttemptView] = field(default_factory=list)

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
