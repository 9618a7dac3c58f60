"""A schedule is a standing rule with a revision; its ticks become runs. Values, for every room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from foliot.domain.instant import Duration, Instant
from foliot.domain.policy import Policy
from foliot.domain.run import Lane, Origin
from foliot.domain.state import Reason, State

FORMAT = 2
"""The format of fingerprints that this release makes. Format 0: releases that stored no number."""


class Fingerprint(NamedTuple):
    """What identifies a declaration: a hash of its canonical data. See `foliot.domain.fingerprint`."""

    hash: str
    format: int
    former: str
    """The same declaration in format 0, which every release can compare."""


class Release(NamedTuple):
    """What identifies a release of an app: all that it declares."""

    name: str
    """In format 0. Instances register by it, so that older releases see which release they run."""
    hash: str = ""
    """Of the fingerprints; an empty one is compared with nothing."""
    format: int = FORMAT


NO_RELEASE = Release("")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule as code or an operator states it. Applied only where it differs from what was last applied."""

    id: str
    job: str
    rule: str
    """As `Rule.encode` writes it."""
    payload: bytes
    policy: Policy
    """App, job and schedule settings, merged: what firing needs."""
    options: bytes | None
    """Only what the schedule itself chose: carried by each of its runs, for the worker."""
    delay: Duration | None
    """For a fixed-delay rule; the end of each run makes the next."""
    first: Instant | None = None
    """The first nominal time, counted from when it is declared; None when the rule has none."""
    first_fire_at: Instant | None = None
    first_since: Instant | None = None
    """Where the first tick's interval begins: the nominal time before it."""
    first_wall: str | None = None
    """The first tick's wall time; see `Rule.wall`."""
    after: Instant | None = None
    """Nothing up to here is promised: the first tick is the rule's first one after it."""
    tables: str | None = None
    """The release of zones and holidays that `first` was computed with."""
    queue: str | None = None
    priority: int = 0
    tenant: str | None = None
    owner: str | None = None
    runbook: str | None = None
    changes: str | None = None
    fingerprint: str = ""
    """The hash of its canonical data, in `format`."""
    paused: str | None = None
    """Why it begins its life paused; None when it does not. What operators said later survives."""
    fault: str | None = None
    """Why it has no first tick, although its rule has not ended; None when all is well."""
    over: str | None = None
    """The set of members that each tick makes a run for; None: the tick itself runs."""
    said: frozenset[str] | None = None
    """The settings of `policy` that app, job or schedule chose; None: those that are not the defaults."""
    format: int = FORMAT
    former: str = ""
    """Its fingerprint in format 0; where that is empty, `fingerprint` stands for it."""


@dataclass(slots=True)  # a value; frozen, it would take three times as long to make, and firing makes one for each tick
class Schedule:
    """A schedule as the store holds it: the template, and how far it has been evaluated."""

    id: str
    job: str
    rule: str
    payload: bytes
    policy: Policy
    options: bytes | None
    delay: Duration | None
    queue: str | None
    priority: int
    tenant: str | None
    owner: str | None
    runbook: str | None
    changes: str | None
    revision: int
    fingerprint: str
    """Of the declaration that was applied last, in `format`. An edit leaves it as it is."""
    made_at: Instant
    paused_at: Instant | None = None
    paused_until: Instant | None = None
    paused_note: str | None = None
    evaluated_through: Instant | None = None
    """All ticks up to here have been decided upon, or lie before what was promised."""
    last_created: str | None = None
    """The last run that was made: "should exist" and "exists" can disagree visibly."""
    fault: str | None = None
    """Why it was set aside (an unreadable rule); None for one that works."""
    tables: str | None = None
    """The release of zones and holidays that the pending tick was computed with; None when it depends on none."""
    last_wall: str | None = None
    """The wall time of the last tick that was decided upon, as it was understood when that tick was made."""
    next_wall: str | None = None
    """The wall time of the pending tick."""
    source: str = "code"
    """Who states it: `code`, or an import."""
    skip_through: Instant | None = None
    """Ticks up to here fell into a pause, and are not made up for."""
    over: str | None = None
    """The set of members that each tick makes a run for."""
    paused_by: str | None = None
    """Who paused it; None where that was not written down yet."""
    format: int = 0
    former: str = ""
    """The fingerprint in format 0."""

    @property
    def applied(self) -> Fingerprint:
        """The declaration that was applied last."""
        return Fingerprint(self.fingerprint, self.format, self.former)

    def paused(self, now: Instant) -> bool:
        return self.paused_at is not None and (self.paused_until is None or now < self.paused_until)


class Edit(NamedTuple):
    """What operators changed of a schedule since its declaration was last applied."""

    at: Instant
    actor: str
    """Who did so last."""
    fields: tuple[str, ...]
    """All that is otherwise than declared, or was made so."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule with what its runs say about it."""

    schedule: Schedule
    next_id: str | None
    next_nominal: Instant | None
    next_fire_at: Instant | None
    last_success_at: Instant | None
    last_run_id: str | None
    last_run_state: str | None
    active: int
    edit: Edit | None = None
    """None for one that is as it was stated."""


class Busy(NamedTuple):
    """A run that is in the way of others of its schedule."""

    number: int
    id: str
    stoppable: bool
    """Nobody has begun it, or whoever has can be asked to stop."""
    lane: Lane = Lane.LIVE
    nominal: Instant = 0
    is_let_go: bool = False
    """It waited, was let go, and is about to be decided upon: it is in the way only of those behind it."""
    parked: State | None = None
    """It is at work no more, and waits for a person."""


class Upstream(NamedTuple):
    """The schedule whose result a tick needs."""

    schedule: str
    rule: str | None
    """None when there is no such schedule."""
    useful_through: Instant | None
    """The nominal time of its last useful result."""


class Waiting(NamedTuple):
    """A run that waits for its turn."""

    number: int
    id: str
    nominal: Instant
    since: Instant | None
    is_tick: bool
    lane: Lane = Lane.LIVE
    is_wish: bool = False
    """Somebody wants this very work done: nobody takes its place."""


class TickFacts(NamedTuple):
    """What the firing transaction knows about one due run of a schedule, read under its lock."""

    number: int
    id: str
    origin: Origin
    nominal: Instant
    since: Instant | None
    fire_at: Instant
    useful_until: Instant | None
    attempt: int
    schedule: Schedule | None
    """None when the template is gone; the run stands for itself then."""
    occupied_by: str | None
    """Another run of this schedule that is in its way: the first of `busy`."""
    lane: Lane = Lane.LIVE
    """The road that it took before."""
    withdrawn: str | None = None
    """Why somebody asked that this tick shall not run; None when nobody did."""
    busy: tuple[Busy, ...] = ()
    """Other runs of this schedule that are ready, running, retrying or being verified, or wait for a slot; and those
    that wait for a person, where these block."""
    waiting: tuple[Waiting, ...] = ()
    """Others that wait for their turn: by lane, and oldest first."""
    decided: bool = False
    """Its schedule has decided about it before, and made the tick after it."""
    forced: bool = False
    """An operator let it go, against overlap."""
    upstream: Upstream | None = None
    """Where its schedule requires one."""
    over: str | None = None
    """The set of members that it makes runs for; None: it runs itself."""
    has_begun: bool = False
    """It has made runs for some of them."""
    member: str | None = None
    """Whom of such a set it is for. `busy` and `waiting` are other runs of the same member then."""


class NewTick(NamedTuple):
    """A run of the schedule that the firing transaction shall insert."""

    nominal: Instant
    since: Instant | None
    fire_at: Instant
    useful_until: Instant | None = None


@dataclass(slots=True)  # likewise
class TickDecision:
    """What happens to one due run of a schedule, and what is made in the same transaction."""

    number: int
    verdict: str
    """`fire`, `hold`, `skip`, or `later`: nothing is written, and the scheduler asks again."""
    lane: Lane = Lane.LIVE
    reason: Reason | None = None
    detail: str | None = None
    span_until: Instant | None = None
    span_count: int = 1
    instead: NewTick | None = None
    """The latest missed tick, fired in place of this one, which is merged into it."""
    successor: NewTick | None = None
    """The schedule's one next run."""
    evaluated_through: Instant | None = None
    """The last nominal time decided upon; None leaves the schedule's cursor where it is (a hold, a retry)."""
    fault: str | None = None
    last_wall: str | None = None
    next_wall: str | None = None
    tables: str | None = None
    merges: tuple[Waiting, ...] = ()
    """Runs that waited, and become one with this one, or are replaced by it (`merged_as`)."""
    merged_as: Reason = Reason.COALESCED
    since: Instant | None = None
    """Where its interval begins now; None: where it began."""
    until: Instant | None = None
    """Of a hold: when it is decided upon again by itself."""
    waits_for: str | None = None
    """Of a hold: what for; None for its turn."""
    replaces: tuple[Busy, ...] = ()
    """Runs that are to be stopped for it."""
    spread_within: Duration = 0
    """Of a tick over many members: these start within such a time after it."""


class Armed(NamedTuple):
    """A schedule with its pending tick; None while it has none."""

    schedule: Schedule
    nominal: Instant | None


@dataclass(frozen=True, slots=True)
class Rearming:
    """What becomes of a schedule's pending tick under newer tables of zones and holidays."""

    schedule: str
    revision: int
    nominal: Instant
    """The pending tick that was looked at; when another one waits by now, nothing happens."""
    tick: NewTick | None
    """What replaces it: None when it stays where it is."""
    wall: str | None
    tables: str | None
    has_ended: bool = False
    """The rule has no tick any more."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying declarations did, by schedule id."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    """Declared by code once, and no longer; reported, removed only on request."""
    pruned: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Names that another source has: by schedule id, which one. These were left as they are."""
    outdated: list[str] = field(default_factory=list)
    """Left as a newer release declares them, which is running; applied once it is not."""
    overwritten: list[str] = field(default_factory=list)
    """Those among the changed that operators had edited: what is declared now has taken the edit's place."""
    lacking: dict[str, str] = field(default_factory=dict)
    """By schedule id, the schedule that it requires and that does not exist, here or in the store."""
