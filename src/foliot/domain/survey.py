"""What the watch looks at: facts of one moment, each kind of them bounded. Values, for the store and the watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foliot.domain.alerts import Alert, Finding
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import RunView
from foliot.domain.schedule import Schedule
from foliot.domain.state import State
from foliot.domain.store.values import EventRow, Instance, QueueView


class Asked(NamedTuple):
    """Where the last look stopped, and how far this one may go."""

    schedules_after: str = ""
    """A page of schedules, by id, behind this one."""
    parked_after: int = 0
    """A page of parked runs, by number, behind this one."""
    ended_after: int = 0
    """Endings behind this position."""
    events_after: int = 0
    due_before: Instant = 0
    """Runs whose time lies before this, and that have not begun."""
    claimed_before: Instant = 0
    """Runs that are at work since before this."""
    schedules: int = 1_000
    subjects: int = 5_000
    runs: int = 1_000
    endings: int = 5_000


class Posted(NamedTuple):
    """A schedule, and what its rows say of it."""

    schedule: Schedule
    waiting: Instant | None
    """The tick that waits to be decided upon; None when none does."""
    is_live: bool
    """A tick of it has not ended, nor waits for a person."""
    useful_tick: Instant | None
    """The last tick with a useful result. Asked only of those that expect one, like the next."""
    useful_at: Instant | None
    claims_paused: bool = False
    """Nothing of it is handed to a worker: it, its job, queue or tenant is paused so."""
    edited_at: Instant | None = None
    """When an operator last edited it, if what it promises was changed so."""
    lacks_required: bool = False
    """The schedule that it requires does not exist."""


class Ended(NamedTuple):
    """A run that has ended, briefly."""

    position: int
    number: int
    name: str | None
    job: str
    series: str | None
    state: State
    nominal: Instant
    since: Instant | None
    started_at: Instant | None
    finished_at: Instant


class Tried(NamedTuple):
    """A run that waits to be tried again."""

    number: int
    name: str | None
    job: str
    series: str | None
    spent: int
    detail: str | None


class ParkedSubject(NamedTuple):
    """Runs that wait for a person in one state: of one schedule with its members, or of one job."""

    state: State
    schedule: str | None
    job: str | None
    """Only of runs without a schedule."""
    tenant: str | None
    """Of all of these runs; None where they have none, or several."""
    size: int
    members: int
    """Of a schedule over many, how many members these runs belong to."""
    newest: RunView
    quiet: Sequence[tuple[bytes, int]] = ()
    """Settings of their own that name kinds of alerts which must not open, and how many of the runs have them."""


class Fleet(NamedTuple):
    """Who is there, and what waits for them."""

    instances: Sequence[Instance]
    """Those that have not ended, heard of or not."""
    known_jobs: frozenset[str]
    """What live workers take."""
    unowned: int
    """Shards that no live scheduler holds."""
    shards: int
    queues: Sequence[QueueView]
    waiting_jobs: Sequence[str]
    """Jobs that runs were handed off for by name: whoever comes first did not know them."""
    busy: Mapping[int, int]
    """By worker, how many runs it has."""
    dead: int
    """Dead letters, counted up to some ten thousand."""
    early: int
    """Attempts of the last day that began before their time."""


class Survey(NamedTuple):
    """One look at all of it, in one moment."""

    now: Instant
    version: int
    """Of the watch's memory: whoever concludes names it."""
    alerts: Sequence[Alert]
    """Those that are open."""
    schedules: Sequence[Posted]
    due: Sequence[RunView]
    """The first ones that are due and have not begun, oldest first; held ones, too."""
    at_work: Sequence[RunView]
    checking: Sequence[RunView]
    """Runs that wait for their check, or for their members."""
    parked: Sequence[RunView]
    """A page of them, for what failed since the last look."""
    subjects: Sequence[ParkedSubject]
    """All of them, counted; those with the newest runs, where there are more subjects than were asked for."""
    retrying: Sequence[Tried]
    ended: Sequence[Ended]
    events: Sequence[EventRow]
    fleet: Fleet
    pace: Duration | None = None
    """What was missed is handed off at a rate, one in so long: that of `lane:catch-up`. None when it has none."""


class Memory(NamedTuple):
    """What the watch knows from before, as the store keeps it."""

    version: int
    looked_at: Instant | None
    data: bytes | None


class Conclusion(NamedTuple):
    """What one look comes to, written in one transaction."""

    memory: bytes
    opens: Sequence[Finding] = ()
    changes: Sequence[tuple[int, Finding]] = ()
    resolves: Sequence[int] = ()
    forget_before: Instant | None = None
    """Alerts that were resolved before this are forgotten."""


class Tick(NamedTuple):
    """A tick that should have a row."""

    schedule: str
    nominal: Instant
