"""What the verbs of the store speak of."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.schedule import TickDecision, TickFacts

CALLED_FOR: Duration = SECOND // 2
"""A store that calls schedulers calls them at once for runs due within this time. Schedulers read arrivals at least
this often, which finds the rest. Releases before this one, and the SQL functions for callers, use the same time."""
DEFAULT_QUEUE = "default"
ALIVE: Duration = MINUTE
"""A worker that was heard of within this time counts as one that may know a job."""


class Wish(StrEnum):
    """What a person wants of a worker. It hears of that with its next heartbeat."""

    DRAIN = "drain"
    """It takes nothing more, ends what runs, however long that takes, and leaves."""
    QUARANTINE = "quarantine"
    """It takes nothing more, and stays, for somebody to look at."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One start of one process. The store gives it a number that no other start ever gets."""

    number: int
    role: str
    host: str
    pid: int
    version: str
    started_at: Instant
    beat_at: Instant
    queues: tuple[str, ...] = ()
    slots: int = 0
    ended_at: Instant | None = None
    offset_low: Duration | None = None
    """The store's clock minus its host's lies between these two; None where it was not measured."""
    offset_high: Duration | None = None
    fenced: bool = False
    """Its host's clock is wrong, and it takes no new work."""
    labels: tuple[str, ...] = ()
    """What it has, of what runs may need."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """By queue, how many of its slots only runs of that queue take."""
    wish: Wish | None = None
    wish_note: str | None = None
    """Who wants that, and why."""
    recycles: bool = False
    """It ends its process when a forced cancellation cannot be done otherwise."""


@dataclass(frozen=True, slots=True)
class JobCard:
    """What the store knows of a job, so that processes without its code can decide about its runs."""

    name: str
    policy: bytes
    """The job's settings as JSON; see `foliot.domain.policy`."""
    queue: str
    owner: str | None = None
    runbook: str | None = None
    changes: str | None = None
    traits: bytes | None = None
    """What its code says of itself; see `foliot.domain.ledger`."""


def check_of(job: str) -> str:
    """The name under which a job's checks are handed off, for workers whose code has the check. No job is called so."""
    return f"{job}?"


class Duty(IntEnum):
    """What one instance of the fleet does for all; leased like a shard."""

    WATCH = -1
    RETENTION = -2
    BACKFILL = -3
    SENTRY = -4
    """A worker's: it notices when nobody watches."""


def shard_of(number: int, shard_count: int) -> int:
    """The shard that a run belongs to, for all of its life."""
    return number % shard_count


class Lease(NamedTuple):
    """Ownership of a shard's cells, from the distant past up to the high-water mark."""

    shard: int
    owner: int
    epoch: int
    """The fencing token: raised by every change of owner."""
    until: Instant
    high_water: Instant
    """All cells below this instant are leased and loaded; promises made below it are late arrivals."""
    cursor: int
    """What became visible up to here is in the cells; what came after is told by `arrivals`."""


class Shard(NamedTuple):
    """Who has a shard."""

    shard: int
    owner: int | None
    """None when it is free: nobody has it, its lease has ended, or its owner is known to be gone."""


class Standing(NamedTuple):
    """How the fleet of schedulers stands."""

    shards: list[Shard]
    schedulers: list[int]
    """Those that were heard of within a lease's time, and trust their clocks."""


class Cells(NamedTuple):
    """A slice of pending runs, sorted by fire time: two parallel arrays, small and cheap to keep."""

    fire_at: array[int]
    number: array[int]
    last: tuple[Instant, int]
    """Where the next slice begins; more than the last entry, when that one was left out."""
    exhausted: bool
    """Nothing more in this window."""


class Arrivals(NamedTuple):
    """Pending runs that came to lie in loaded cells after these were loaded."""

    fire_at: array[int]
    number: array[int]
    cursor: int


class Fired(NamedTuple):
    """What one firing transaction did."""

    at: Instant
    handed_off: int
    early: int
    """Refused, because the store's clock had not reached them; they are in `again`."""
    stale: int
    """Moved, cancelled or claimed meanwhile; ticks also when they were fired. (A delayed run that is fired twice is in
    two chunks, and claimed once.)"""
    skipped: int
    held: int
    created: int
    """Next runs of recurrences."""
    faults: list[str]
    """Schedules that were set aside in this transaction."""
    busy: Sequence[tuple[Instant, int]] = ()
    """Entries that somebody's open transaction has its hands on: put them back, for a little later."""
    again: Sequence[tuple[Instant, int]] = ()
    """What is still to be fired: put it back. Refused; or due soon, and left out; or a tick over many members that has
    made runs for some of them."""
    ahead: int = 0
    """Of what was handed off, how much before its time."""
    patient: Sequence[tuple[Instant, int]] = ()
    """What is due soon, and has to wait for its time, because there is something to decide about it then."""
    paced: Sequence[tuple[Instant, int]] = ()
    """Entries with the decision `later`: put them with the backlog, which keeps to the rate of catch-up."""
    skipped_for: Mapping[str, int] = MappingProxyType({})
    """By reason, how many were skipped, or held."""
    held_for: Mapping[str, int] = MappingProxyType({})


class Beat(NamedTuple):
    """What a worker hears when it says that it lives."""

    known: bool
    """False when the store has already declared this instance dead: its leases are lost."""
    cancel: list[int]
    """Runs of this worker that somebody asked to stop."""
    unheard: frozenset[int] = frozenset()
    """Runs of whose progress nothing was kept: say it again. If they are another's by now, that is in vain."""
    wish: Wish | None = None
    """What a person wants of it; None: that it works."""
    force: frozenset[int] = frozenset()
    """Those of `cancel` that an operator forces: the worker ends its process if the attempt does not stop."""


class PassedSlot(NamedTuple):
    """A slot that a worker passed from a run of its own that ended to a standby that it began."""

    holder: int
    holder_token: int
    heir: int
    heir_token: int


class StandbyRequest(NamedTuple):
    """Standbys that a worker can use: runs of one job that wait for a slot which its runs have."""

    slot: str
    job: str
    most: int


class Offer(NamedTuple):
    """What a worker can begin when its endings are recorded."""

    queues: Sequence[str]
    jobs: Sequence[str]
    limit: int
    """Of the runs that get the slots freed now."""
    backlog: int | None = None
    """Of these, from other lanes than live."""
    passed: Sequence[PassedSlot] = ()
    """Slots that it has passed on already. It names each run that may have the slot by the store's knowledge."""
    standbys: Sequence[StandbyRequest] = ()


class EventRow(NamedTuple):
    """Something out of the ordinary. The happy path writes none."""

    position: int
    at: Instant
    kind: str
    subject: str
    detail: str


class Ticking(NamedTuple):
    """Whether ticks happen: who fires them, and what was not fired."""

    at: Instant
    schedulers: int
    """Those that have not ended, and trust their clocks."""
    beat_at: Instant | None
    """When one of them was last heard of."""
    held: int
    """Shards that somebody holds a lease of."""
    shards: int
    overdue_since: Instant | None
    """When the oldest run was due that nobody has handed off for ten seconds or longer; None when there is none."""


class QueueView(NamedTuple):
    """What waits in a queue."""

    queue: str
    waiting: int
    """Runs that were handed off, and that no worker has taken yet."""
    oldest: Instant
    """Since when the first of them has waited."""


Decide = Callable[[Sequence[TickFacts], Instant], Sequence[TickDecision]]
"""Pure; called inside the firing transaction with facts read under its lock and with the store's clock.

Each call is given one run per schedule at most: what one decision does is a fact for the next."""
