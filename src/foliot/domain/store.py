"""The port to the store. These docstrings are the contract; `tests/contract` holds every engine to it.

Rules that every verb keeps:

- *Durable before it returns.* A verb that changes something returns only when a kill -9 can no longer undo it. What
  only dispatchers are told of (a firing, a lease) may be forgotten by a crash of the store itself, whole: owners are
  told that then (`LostOwnership`), and whatever anybody else was told of since includes it.
- *All or nothing.* A verb is one transaction, or part of one that other callers share; if it raises, nothing changed.
- *The store's clock decides.* "Now" is read inside the transaction, from the store; arguments never carry it.
- *Every write names what it expects* (state, token, epoch). Zero rows is a normal branch: somebody got there first.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from foliot.domain.backfill import (
    Backfill,
    BackfillProgress,
    BackfillState,
    FillTick,
    NewBackfill,
    Taken,
    UnderWay,
)
from foliot.domain.fairness import TenantView
from foliot.domain.gates import Gate, GateView
from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView, Settled
from foliot.domain.members import Member, MembersChanged, MemberSet
from foliot.domain.members import Standing as MemberStanding
from foliot.domain.replay import DeadFilter, DeadLetter, Replayed
from foliot.domain.run import Claimed, Ending, Kept, Lane, Loss, Progress, Promise, RunView, SilentAttempt
from foliot.domain.schedule import Applied, Armed, Declaration, Rearming, ScheduleView, TickDecision, TickFacts

DEFAULT_QUEUE = "default"
ALIVE: Duration = MINUTE
"""A worker that was heard of within this time counts as one that may know a job."""


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
    draining: bool = False
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
    """Refused, because the store's clock had not reached them; put them back."""
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
    """Ticks over many members that have made runs for some of them: put them back, they go on at once."""


class Beat(NamedTuple):
    """What a worker hears when it says that it lives."""

    known: bool
    """False when the store has already declared this instance dead: its leases are lost."""
    cancel: list[int]
    """Runs of this worker that somebody asked to stop."""
    unheard: frozenset[int] = frozenset()
    """Runs of whose progress nothing was kept: say it again. If they are another's by now, that is in vain."""


class EventRow(NamedTuple):
    """Something out of the ordinary. The happy path writes none."""

    position: int
    at: Instant
    kind: str
    subject: str
    detail: str


class AuditRow(NamedTuple):
    """What a person did, and why."""

    at: Instant
    actor: str
    action: str
    note: str


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


class PromiseStore(Protocol):
    """Making promises, and changing them before they are kept."""

    async def promise(self, promises: Sequence[Promise]) -> list[Kept]:
        """Makes all promises, or none: one answer each, in order.

        A key that exists already is answered by `on_conflict`: KEEP returns what exists (also after it ended, while
        history keeps it and `unique_for` has not passed since it was made); REPLACE changes one that has not been
        claimed and raises Conflict for one that has; ERROR raises Conflict; RENEW makes the next generation when the
        last one has ended, and raises Conflict when it has not. Two promises of one call with one key count as made
        one after the other.
        """

    def promise_within(self, connection: Any, promises: Sequence[Promise]) -> list[Kept]:
        """As `promise`, inside the transaction that the caller has begun on a connection of its own to the store's
        database: the promises exist if and only if that commits. Runs in the caller's thread, also while the store is
        not open. Conflict leaves the transaction as it was. InvalidInput from an engine that cannot."""

    async def promise_within_async(self, connection: Any, promises: Sequence[Promise]) -> list[Kept]:
        """As `promise_within`, for connections that are awaited."""

    async def move(self, key: str, tenant: str | None, fire_at: Instant) -> Kept:
        """Changes when a keyed promise is due. Conflict once an attempt owns it or it ended; UnknownName if none."""

    async def cancel_promise(self, key: str, tenant: str | None, *, actor: str, note: str) -> Kept:
        """Like `cancel`, by key: the latest generation. UnknownName if absent."""

    async def cancel(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Ends a run that no attempt owns as `cancelled`; asks the worker of a running one to stop (`asked`, and the
        state says running). The next run of a calendar rule carries its schedule on: it is withdrawn, and ends as
        skipped when it is due. Conflict when it has ended already; UnknownName if there is none.

        No run ends while an effect of it is open: it is parked as ambiguous instead."""

    async def retry(self, run_id: str, *, actor: str, note: str, override: bool) -> Kept:
        """Makes a parked run due again now, with its attempts renewed, its checkpoint, items and ledger as they are.

        One that is `ambiguous`, or whose ledger has an effect without an end, only with `override` and a note: its open
        effects are written down as not done then, on that person's word. Conflict when it is not parked; UnknownName if
        there is none."""

    async def rerun(
        self,
        run_id: str,
        *,
        repair: bool,
        repeat: Sequence[str],
        override: bool,
        actor: str,
        note: str,
        lane: Lane = Lane.LIVE,
        due_at: Instant = 0,
    ) -> Kept:
        """Repeats the intent of a run that ended or is parked: a new run of its lineage, due now, or at `due_at`, with
        its arguments.

        It shares the lineage's ledger, so that what is done stays done, but for effects named in `repeat`, which are
        written down as not done. A parked run is answered for by its rerun, and ends as `reconciled`. Conflict while
        any run of the lineage is waiting or busy; while an effect has no end, or with `repeat`, unless `override`.
        UnknownName if there is none."""

    async def dead(self, wanted: DeadFilter, *, after: int = 0, limit: int) -> list[DeadLetter]:
        """Dead letters by number, those after `after`: page by page, each is told once."""

    async def replay(
        self, runs: Sequence[int], *, due_at: Instant, every: Duration, override: bool, actor: str, note: str
    ) -> list[Replayed]:
        """Makes dead runs due again, with their attempts renewed, in the lane backfill: one in `every`, the first at
        `due_at`, or now. One answer each, in order, with an audit row for each that goes.

        Each is judged by itself, as it is now. One that is dead no more, or whose lineage is busy, is passed over; one
        past its `useful_until` is too late, and that is looked at again when it fires. One whose ledger has an effect
        without an end is refused, but for `override`: then it is written down as not done."""

    async def recheck(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Sends an `unverified` or `ambiguous` run to its check again. Conflict when it is neither; UnknownName."""

    async def reconcile(
        self, run_id: str, *, settled: Sequence[Settled], actor: str, evidence: str, note: str = ""
    ) -> Kept:
        """A person looked, and says what happened: the run ends as `reconciled`, with the evidence, and the ledger is
        told which effects were done. Effects that are open and not named stay as they are. Conflict when it is not
        parked, or when an effect that is named is not in its ledger; UnknownName."""


class ScheduleStore(Protocol):
    """Standing rules."""

    async def apply(
        self, declarations: Sequence[Declaration], *, prune: bool, actor: str, source: str = "code", release: str = ""
    ) -> Applied:
        """Brings schedules to what is declared, where the declaration differs from the one last applied.

        Each has exactly one pending run then: the one that was due already, or the one at `first` (none while one
        is busy, for a fixed delay). That is also made for an unchanged one that lost it. Operators' pauses survive.
        Schedules that this `source` once declared and no longer does are reported; with `prune` they and their pending
        runs are removed (one that was due ends as skipped, `revised`). A schedule of another source is left as it is,
        and reported. TickTaken, and nothing is changed, when a `first` was
        made before: count on from there.

        `release` names all that an app declares. Releases are as old as their first `apply`. What a newer one declares
        (or has removed) that a live instance runs, an older one leaves as it is, and reports as outdated.
        """

    async def fingerprints(self, source: str = "code") -> dict[str, str]:
        """By schedule, which declaration is in force: a cheap look, for whoever wants to know if it is theirs."""

    async def declared_otherwise(self, schedule_id: str) -> list[str]:
        """The live instances whose code declares the schedule otherwise than it is stored, each in a few words.
        UnknownName if there is none."""

    async def schedules(self) -> list[ScheduleView]: ...

    async def schedule(self, schedule_id: str) -> ScheduleView:
        """UnknownName if there is none."""

    async def pause(self, schedule_id: str, *, until: Instant | None, actor: str, note: str) -> None:
        """The tick that falls due while it is paused is held, and no other is made, until it is resumed, or `until`."""

    async def resume(self, schedule_id: str, *, actor: str, note: str, catch_up: bool = False) -> None:
        """Ticks that fell due while it was paused end as `skipped: paused`, in one row; with `catch_up` they were
        missed, and the schedule's policy speaks."""

    async def delete(self, schedule_id: str, *, actor: str, note: str) -> None:
        """Removes a schedule and its pending run; one that was due ends as skipped, `revised`. History stays, and runs
        that were handed off go on. UnknownName if there is none."""

    async def trigger(self, schedule_id: str, *, since: Instant | None = None, actor: str, note: str) -> Kept:
        """One run of the schedule's job, due now, beside its ticks, for the time since `since`. It obeys overlap when
        it fires."""


class DispatchStore(Protocol):
    """From durable promise to handed-off work.

    Pending runs are spread over shards by their numbers (`shard_of`). Each shard is leased apart, so that any number of
    schedulers can share them; what one scheduler holds it renews, watches and fires together. Shards below zero have no
    runs: they are the duties that one instance does for all (see `Duty`), and are leased in the same way.
    """

    @property
    def shard_count(self) -> int:
        """How many shards the runs of this store are spread over; it never changes."""

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        """Who has which shard, and who could. Says at the same time that the scheduler `owner` lives."""

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        """Leases a shard that is free, whose lease has ended, or whose owner's process is known to be gone.

        The epoch rises, and everything the old owner still sends under its own is refused. None when somebody else
        holds it. The new lease has its high-water mark at the beginning of time: load everything.
        """

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        """Prolongs leases of one owner, and may raise their high-water marks: from then on promises below are late
        arrivals. Returns those that are still held; what is missing was lost.

        Load the newly leased window with the cursor that `arrivals` had come to when the mark was raised: what lies
        at or below it is in the window's cells, what lies above is told by `arrivals`, and nothing by both.
        """

    async def release(self, leases: Sequence[Lease]) -> None:
        """Gives shards of one owner up at once, for whoever comes next. Nothing happens to what was lost already."""

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None = None) -> Cells:
        """Pending runs of a shard after `start` (fire time, number) and below its high-water mark, at most `limit`.
        Those before `until` only, where it is given: so the past is loaded apart from what is live.

        Leaves out what came after `lease.cursor`: `arrivals` tells that. Leaves out what hand-off chunks named already
        when the shard was taken, until a load of the past was exhausted; after that it may be told, and is claimed once
        all the same.
        """

    async def lane_rates(self) -> dict[Lane, float | None]:
        """How many runs of a lane the whole fleet of schedulers may hand off in a second. None, or no entry: any
        number. Can change at any time."""

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        """What became pending in these shards, below their marks, since `cursor`: new promises, moved ones, retries,
        releases. A cursor means something only to the store that gave it.

        Everything is told at least once, also when its transaction was open for long.
        """

    async def fire(
        self, leases: Sequence[Lease], due: Sequence[tuple[Instant, int]], cursor: int, decide: Decide
    ) -> Fired:
        """One transaction: checks the epochs, refuses what the clock has not reached, hands off the rest in chunks.

        A run whose fire time is not the one given, or that is no longer pending, is stale and is passed over. Runs
        past their `useful_until` end as `skipped: too_late`. Runs of schedules are decided by `decide`, and each
        recurrence's next run is inserted here. `cursor`: arrivals up to there need not be told again.
        LostOwnership, with the shards in question, when an epoch is no longer the store's; then nothing was fired.
        """

    def look_ahead(self, leases: Sequence[Lease], decide: Decide) -> None:
        """A hint, given by the owner of these shards every now and then, at least every quarter of a second: what falls
        due within a moment may be made ready for `fire`, which does with it what it would have done without. Nobody
        sees anything of it before that. `decide` may be called with a time that is to come: that of the ticks."""

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        """Schedules whose pending tick was computed with tables of the world, and with none of these releases of them;
        by id, those after `after`. An empty list means that there are no more."""

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        """Moves pending ticks to where newer tables put them. Each names revision and tick: a schedule that was
        edited, or whose tick is due, handed off or decided by now, is passed over. Returns how many were moved; each
        of these leaves an event `tick_moved`."""


class WorkStore(Protocol):
    """From handed-off work to a recorded outcome."""

    async def claim(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        suspects: bool = True,
        backlog: int | None = None,
        put_off: int | None = None,
        labels: Sequence[str] = (),
    ) -> list[Claimed]:
        """Takes up to `limit` runs that were handed off, by lane, priority, fair share and order; each with a fencing
        token. No more than `backlog` of them from other lanes than live, where it is given. Once it has taken `put_off`
        in all, none of what fair share has put off: the rest of `limit` is for tenants that have had less than theirs.

        Of runs that may have killed a worker it takes one at most, under a token of its own, and none unless
        `suspects`: a worker tries one of them at a time.

        Re-checks state, fire time and `useful_until`. `jobs` names what the worker knows, with `check_of` each job
        whose check it has. Runs of jobs that are not in `jobs` are left for a worker that knows them, and are reported
        once as an event `unknown_job` when no live worker does. Runs that need other labels than `labels` are left for
        a worker that has them, and are reported as `missing_labels`.
        """

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        """Records how attempts ended, and everything that follows: history, retry, next run of a fixed delay, release
        of what was held. Returns those that were refused because the token is no longer the run's: each is recorded
        as a `fenced` attempt and changes nothing else.

        A run that is put to its check is handed off for that at once. One whose check passes has its open effects
        written down as done. Retries beyond the job's `retries_per_hour` are put off to the next hour (`budget`)."""

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        """Returns claims that never began: handed off again, no trace, no attempt. Fenced ones are passed over."""

    async def beat(self, worker: int, progress: Sequence[Progress], *, patient: bool = False) -> Beat:
        """The instance lives; keeps what its attempts said of themselves, items too; tells what is to be stopped.

        A heart waits for nobody: what somebody's open transaction has its hands on is not heard, unless `patient`."""


class LedgerStore(Protocol):
    """What attempts did outside, written down before and after. Every write names the attempt's token: LostOwnership,
    and nothing is written, when the run is no longer the attempt's."""

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        """Writes `started`, durably, before the effect begins, unless it is done already, or is a maybe of an earlier
        attempt: then nothing is written, and the answer says which. One that is known not to have happened begins
        anew. So does a maybe that is declared idempotent, then and now: doing it twice does it once."""

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        """Writes how an effect ended, or was found to have ended. `started`: it begins anew, because a probe found that
        it had not happened."""

    async def done_items(self, number: int, batch: str) -> set[str]:
        """The keys of a batch's items that the lineage has done already."""

    async def ledger_of(self, number: int) -> list[EffectView]:
        """All effects of a run's lineage, in the order in which they were begun."""

    async def maybes(self, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
        """Effects without an end of runs that wait for a person, with the runs' ids; of one job, and of one name."""


class OpenTransaction(Protocol):
    """A transaction in a handler's hands: what is done on its connection, lines of the ledger, promises, and the end of
    the run itself are one."""

    @property
    def connection(self) -> Any:
        """The driver's own, for statements about the handler's tables."""

    def connection_in_thread(self, loop: Any) -> Any:
        """The same for a thread beside the event loop that the transaction lives in."""

    @property
    def is_blocking(self) -> bool:
        """Whether its verbs never suspend, and so have to be run where nobody is kept waiting."""

    @property
    def is_callers(self) -> bool:
        """Whether somebody else began it, and commits it: then `begin`, `commit` and `roll_back` do nothing."""

    async def begin(self) -> None: ...

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        """As in `LedgerStore`, if this commits."""

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None: ...

    async def ledger_of(self, number: int) -> list[EffectView]: ...

    async def finish(self, worker: int, ending: Ending) -> bool:
        """Ends the run, if this commits; it is the last thing to do. False when the run is no longer the attempt's:
        then roll back."""

    async def commit(self) -> None:
        """An answer that was lost is asked for: when this returns it was committed, when it raises it was not."""

    async def roll_back(self) -> None: ...


class HandlerStore(Protocol):
    """Transactions for handlers."""

    def transaction(self, connection: Any = None) -> OpenTransaction:
        """One on a connection of the store's, or inside the one that was begun on a connection of the caller's own to
        the store's database. InvalidInput when that is none that can be used."""


class WatchStore(Protocol):
    """What must not be silent."""

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        """Attempts whose worker's last beat is older than `beat_before`, or whose process is known to be gone."""

    async def lose(self, losses: Sequence[Loss]) -> int:
        """Takes attempts away from vanished workers; each leaves an attempt `lost` and an event.

        Names token and state: an attempt that finished meanwhile keeps its verdict. Where the ledger says otherwise by
        now than the decision knew, nothing happens: look again. Returns how many were lost."""

    async def give_up(self) -> int:
        """Ends runs as dead that are held for a destination, and are older than their `give_up_after` by now. Returns
        how many; some may be left."""

    async def gather(self) -> int:
        """See `MemberStore`."""

    async def jobs(self) -> dict[str, JobCard]: ...

    async def note(self, kind: str, subject: str, detail: str) -> None:
        """Writes an event."""


class MemberStore(Protocol):
    """Whom schedules go over, and how complete they are.

    A tick of a schedule over a set of members makes a run for each of them, in chunks, each in a firing transaction of
    its own, and none twice: `health@T[acme]`. Those fire like other runs, and whatever is decided about them (overlap,
    turns) is decided among runs of the same member. The tick waits until no run of its members is under way."""

    async def members(self, member_set: str, *, after: str = "", limit: int = 1_000) -> list[Member]:
        """By their keys, after one."""

    async def member_sets(self) -> list[MemberSet]:
        """Those that have members, or that schedules go over."""

    async def change_members(
        self, member_set: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), actor: str, note: str
    ) -> MembersChanged:
        """Adds and removes members; what is so already stays so. Ticks that have not come to a new member's key yet
        make a run for it, too. Runs of a removed one that nobody has begun end as skipped, `revised`."""

    async def set_members(self, member_set: str, keys: Sequence[str], *, actor: str, note: str) -> MembersChanged:
        """Brings a set to exactly these."""

    async def declare_members(self, member_set: str, keys: Sequence[str], *, prune: bool, actor: str) -> MembersChanged:
        """What code says: adds what is missing. What it said once and no longer does goes with `prune`."""

    async def standings(
        self, schedule: str, *, after: str = "", limit: int = 1_000, stale_before: Instant | None = None
    ) -> list[MemberStanding]:
        """The members that a schedule goes over, by their keys, each with its last useful completion; or only those
        that had none since `stale_before`. UnknownName if there is no such schedule; Conflict if it goes over none."""

    async def gather(self) -> int:
        """Ends ticks whose members have all come to an end, or wait for a person: as verified or unverified where their
        schedule says how complete they have to be, as succeeded otherwise; with how many were done. Returns how many
        schedules had such."""


class BackfillStore(Protocol):
    """Ticks of the past that are made into runs, one per tick, by whoever has the duty."""

    async def start_backfill(self, wanted: NewBackfill, *, actor: str, note: str) -> Backfill:
        """Enters a backfill with the schedule's rule and template as they are now: it keeps them, whatever becomes of
        the schedule. Conflict when the schedule's revision is not the one that was previewed, or when another backfill
        of it is under way that has ticks of this interval; UnknownName if there is no such schedule."""

    async def backfill(self, number: int) -> Backfill:
        """UnknownName if there is none."""

    async def backfills(self, *, schedule: str | None = None, limit: int = 50) -> list[Backfill]:
        """Newest first."""

    async def taken_ticks(self, schedule: str, ticks: Sequence[Instant]) -> list[Taken]:
        """Which of these ticks have a run, live or in history, or were merged into one; in the order given."""

    async def change_backfill(
        self,
        number: int,
        *,
        state: BackfillState | None = None,
        pace: Mapping[str, Any] | None = None,
        actor: str,
        note: str,
    ) -> Backfill:
        """Pauses, resumes or cancels it, or changes settings of its pace, by name. When it is cancelled, its runs that
        no worker has begun end as `cancelled`, and those that were begun go on. Failures from before it was resumed
        count no more. Conflict when its state does not allow that; UnknownName if there is none."""

    async def backfills_under_way(self) -> list[UnderWay]:
        """Those that are running, and how their runs stand. Cheap when there is none: asked every second."""

    async def make_backfill(self, number: int, version: int, ticks: Sequence[FillTick], most: int) -> Backfill | None:
        """Decides about the ticks that come next, in their order, in one transaction: those that have a run already are
        counted, at most `most` of the others become runs that are due now, and the cursor moves behind the last of
        them. Answers how it stands then; None when `version` is not the store's any more: then nothing was done."""

    async def halt_backfill(self, number: int, version: int, state: BackfillState, reason: str | None) -> bool:
        """Ends a running one, or pauses it and leaves an event `backfill_paused`. False when `version` is not the
        store's any more."""

    async def backfill_progress(self, number: int) -> BackfillProgress:
        """With its runs by state. UnknownName if there is none."""


class LimitStore(Protocol):
    """How many at a time, and how many in a time; see `foliot.domain.gates` for the names of limits.

    A run that needs a slot takes it when it fires, under the slot's lock, or is held for it. Whatever ends the run, or
    makes it wait, sets its slots free and lets the next ones in, by lane, priority and time, in the same transaction.
    Between two attempts a run keeps its key and nothing else."""

    async def limits(self) -> list[GateView]:
        """All limits by name, and keys that runs wait for."""

    async def set_limit(self, gate: Gate, *, actor: str) -> None:
        """For whatever fires from now on. Who waits is let in at once where there is room now."""

    async def drop_limit(self, name: str, *, actor: str, note: str) -> None:
        """Whoever waits for it goes. UnknownName if there is none."""

    async def declare_limits(self, gates: Sequence[Gate]) -> None:
        """All that an app's code says; what an operator said of the same name stays. What code said once and says no
        more stays, too, and `limits` notes it."""

    async def release_run(self, run_id: str, *, actor: str, note: str) -> Kept:
        """Lets one run go that is held, against overlap and limits. Conflict when it is not held; UnknownName."""


class FleetStore(Protocol):
    """Who is there."""

    async def register(
        self,
        role: str,
        *,
        version: str,
        queues: Sequence[str],
        slots: int,
        jobs: Sequence[JobCard],
        release: str = "",
        labels: Sequence[str] = (),
        reserved: Mapping[str, int] | None = None,
    ) -> Instance:
        """Enters one start of a process, and what it knows of jobs. `release`: what its code declares; see `apply`."""

    async def retire(self, instance: int) -> None:
        """The process ends in order: its claims are already given back."""

    async def instances(self) -> list[Instance]:
        """Those that have not ended."""

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
        """What an instance measured: the store's clock minus its host's. Fenced schedulers are not in `standing`."""


class ReadStore(Protocol):
    """What people look at."""

    async def runs(
        self,
        *,
        states: Sequence[int] = (),
        schedule: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Newest first, live and ended ones together, by run number; `before` continues after a page. `schedule`: its
        runs, which are its ticks where it goes over members; or those of one member, by the name of their series."""

    async def run(self, run_id: str) -> RunView:
        """One run with its attempts. UnknownName if there is none."""

    async def ended_since(self, position: int, limit: int) -> list[RunView]:
        """Ended runs in the order of their endings, after `position`."""

    async def events_since(self, position: int, limit: int) -> list[EventRow]: ...

    async def events_of(self, subject: str) -> list[EventRow]:
        """What happened to one run, schedule or job, oldest first."""

    async def last_positions(self) -> tuple[int, int]:
        """Where `ended_since` and `events_since` stand now: from here on, only what is new."""

    async def next_pending(self) -> RunView | None:
        """The soonest run that is not due yet; None when nothing is pending."""

    async def audit_of(self, subject: str) -> list[AuditRow]:
        """What people did to one run or schedule, oldest first."""

    async def runs_between(self, job: str, start: Instant, end: Instant, limit: int) -> list[RunView]:
        """Runs of a job, or of a schedule of that name, whose nominal time lies in `[start, end)`, oldest first; reruns
        beside what they repeat. Without attempts, with batches."""

    async def durations(self, job: str, limit: int) -> list[Duration]:
        """How long the handlers of the latest runs of a job took that ended well, the newest first."""

    async def tenants_waiting(self, limit: int) -> list[TenantView]:
        """Tenants that have due runs waiting for a worker, or running: those with the most waiting first. Runs without
        a tenant count as those of one."""

    async def queues_waiting(self) -> list[QueueView]:
        """Queues in which runs were handed off that no worker has taken yet, by name."""

    async def counts(self) -> Mapping[str, int]:
        """Live runs by state, plus `history` and `early` (starts before their fire time; must be 0)."""

    async def health(self) -> Mapping[str, Any]:
        """Engine, version, settings, schema, sizes: what `foliot doctor` prints."""


class Schema(NamedTuple):
    """How a store's tables stand towards this release."""

    current: int
    """The last step that was made; 0 where there is nothing yet."""
    latest: int
    """The last one that this release knows."""
    needs: int
    """How many steps a release must know to use these tables."""
    pending: tuple[str, ...]
    """The steps that are still to be made, by name."""

    @property
    def is_too_new(self) -> bool:
        return self.needs > self.latest


class Store(
    PromiseStore,
    ScheduleStore,
    DispatchStore,
    WorkStore,
    LedgerStore,
    HandlerStore,
    WatchStore,
    MemberStore,
    BackfillStore,
    LimitStore,
    FleetStore,
    ReadStore,
    Protocol,
):
    """All of it, and its own life."""

    async def open(self) -> None:
        """Connects, checks engine and schema, migrates. Raises before anything was changed if it cannot be trusted."""

    async def close(self) -> None:
        """Finishes what was begun; later calls raise StoreClosed."""

    async def schema(self) -> Schema:
        """How the tables stand. Needs no open store, and changes nothing: who may only read may ask."""

    async def migrate(self) -> Schema:
        """Brings the tables to this release, and answers how they stood before. Needs no open store. All steps or none,
        or each whole; processes of older releases go on meanwhile. SchemaMismatch when the tables are too new."""

    def migration_sql(self, after: int) -> str:
        """What `migrate` does with tables that stand at step `after`, as text."""

    async def tidy(self) -> None:
        """What an engine must do now and then to stay small: partitions ahead, and what has outlived its term goes."""

    @property
    def name(self) -> str:
        """Where the store is, for people; without passwords."""

    @property
    def url(self) -> str | None:
        """What another process on this host opens it by, password included: not for people. None where it cannot."""

    @property
    def file(self) -> str | None:
        """Its path on this host's disk; None when it is no file."""

    @property
    def is_server(self) -> bool:
        """Whether it is another process, perhaps on another host."""

    def again(self) -> Store | None:
        """Another handle on the same store, to be opened by itself; None where that would be another store."""

    @property
    def has_own_clock(self) -> bool:
        """Whether the store's clock is another one than the host's, so that processes must measure how far apart
        they are."""

    async def now(self) -> Instant:
        """The store's clock."""

    def version(self) -> int:
        """A hint: a number that soon differs from an earlier answer when something was committed in between.

        Cheap: asked every few milliseconds, from the event loop. It may differ for no reason. Between hosts a hint may
        come late or be lost, so whoever waits for work looks for it now and then in any case.
        """

    def when_new(self, callback: Callable[[], None]) -> bool:
        """Has this called, in the running event loop, whenever `version` has changed. False when the store cannot do
        that: then it has to be asked. A hint all the same."""
