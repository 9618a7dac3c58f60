"""The verbs as methods: what every engine's store has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foliot.domain.access import WorkBound
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
from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView, Settled, Then
from foliot.domain.listing import RunFilter, RunPage
from foliot.domain.members import Member, MembersChanged, MemberSet
from foliot.domain.members import Standing as MemberStanding
from foliot.domain.replay import DeadFilter, DeadLetter, Replayed
from foliot.domain.run import Claimed, Ending, Kept, Lane, Loss, Progress, Promise, Promised, RunView, SilentAttempt
from foliot.domain.schedule import (
    NO_RELEASE,
    Applied,
    Armed,
    Declaration,
    Fingerprint,
    Rearming,
    Release,
    ScheduleView,
    TickFacts,
)
from foliot.domain.store import AuditRow, Beat, EventRow, Instance, JobCard, Lease, Offer, QueueView, Standing
from foliot.domain.store.scheduling import NOTHING_SETTLED
from foliot.errors import UnknownName
from foliot.store.verbs import (
    access,
    backfilling,
    breakers,
    dispatching,
    editing,
    facts,
    gates,
    ledger,
    listing,
    promises,
    reading,
    recovering,
    replaying,
    schedules,
    sharing,
    spreading,
    watching,
    working,
)
from foliot.store.verbs.access import AccessVerbs
from foliot.store.verbs.alerting import AlertVerbs
from foliot.store.verbs.locking import LockVerbs
from foliot.store.verbs.measures import MeasureVerbs
from foliot.store.verbs.surveys import SurveyVerbs
from foliot.store.verbs.transaction import Transaction, longs


class Verbs(SurveyVerbs, LockVerbs, AlertVerbs, AccessVerbs, MeasureVerbs):
    """A verb is a transaction, or a look that sees one moment. An engine says how those are done, and does in its own
    way what carries its load."""

    shard_count: int

    # Promises

    async def promised(self, numbers: Sequence[int]) -> Mapping[int, Promised]:
        rows = await self.read(lambda tx: tx.all("promised", numbers=longs(numbers)))
        return {number: Promised(job, payload, due_at) for number, job, payload, due_at in rows}

    async def promise_as(self, wanted: Sequence[Promise], *, actor: str, note: str) -> list[Kept]:
        return await self.write(lambda tx: promises.promise_as(tx, wanted, actor, note))

    async def move(
        self, key: str, tenant: str | None, fire_at: Instant, *, actor: str | None = None, note: str = ""
    ) -> Kept:
        return await self.write(lambda tx: promises.move(tx, key, tenant, fire_at, actor, note))

    async def cancel_promise(self, key: str, tenant: str | None, *, actor: str, note: str) -> Kept:
        return await self.write(lambda tx: promises.cancel_promise(tx, key, tenant, actor, note))

    async def cancel(self, run_id: str, *, actor: str, note: str, force: bool = False) -> Kept:
        return await self.write(lambda tx: promises.cancel(tx, run_id, actor, note, force=force))

    async def retry(self, run_id: str, *, actor: str, note: str, override: bool, action: str = "retry") -> Kept:
        return await self.write(lambda tx: recovering.retry(tx, run_id, actor, note, override, action))

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
        return await self.write(
            lambda tx: recovering.rerun(tx, run_id, repair, repeat, override, actor, note, lane, due_at)
        )

    async def dead(self, wanted: DeadFilter, *, after: int = 0, limit: int) -> list[DeadLetter]:
        return await self.read(lambda tx: replaying.dead(tx, wanted, after, limit))

    async def replay(
        self, runs: Sequence[int], *, due_at: Instant, every: Duration, override: bool, actor: str, note: str
    ) -> list[Replayed]:
        return await self.write(lambda tx: replaying.replay(tx, runs, due_at, every, override, actor, note))

    async def recheck(self, run_id: str, *, actor: str, note: str) -> Kept:
        return await self.write(lambda tx: recovering.recheck(tx, run_id, actor, note))

    async def reconcile(
        self,
        run_id: str,
        *,
        settled: Sequence[Settled],
        actor: str,
        evidence: str,
        note: str = "",
        then: Then | None = None,
    ) -> Kept:
        return await self.write(lambda tx: recovering.reconcile(tx, run_id, settled, actor, evidence, note, then))

    # Schedules

    async def apply(
        self,
        declarations: Sequence[Declaration],
        *,
        prune: bool,
        actor: str,
        source: str = "code",
        release: Release = NO_RELEASE,
        note: str = "",
        fresh: bool = False,
        standing: Sequence[Declaration] = (),
        read: schedules.ReadPayload = schedules.as_stored,
        settled: Mapping[str, str] = NOTHING_SETTLED,
    ) -> Applied:
        if settled and not declarations and not prune:
            unchanged = await self.read(lambda tx: schedules.find_unchanged(tx, settled, source, release))
            if unchanged is not None:
                return unchanged
        return await self.write(
            lambda tx: schedules.apply(
                tx, declarations, prune, actor, source, release, note, fresh, standing, read, settled
            )
        )

    async def settled(self, source: str = "code") -> dict[str, str]:
        return await self.read(lambda tx: schedules.settled_schedules(tx, source))

    async def fingerprints(
        self, source: str = "code", *, after: str = "", limit: int = 1_000
    ) -> dict[str, Fingerprint]:
        return await self.read(lambda tx: schedules.fingerprints(tx, source, after, limit))

    async def declared_otherwise(self, schedule_id: str) -> list[str]:
        return await self.read(lambda tx: schedules.otherwise(tx, schedule_id))

    async def schedules(self) -> list[ScheduleView]:
        return await self.read(lambda tx: schedules.views(tx, None))

    async def schedule(self, schedule_id: str) -> ScheduleView:
        found = await self.read(lambda tx: schedules.views(tx, schedule_id))
        if not found:
            raise UnknownName(f"there is no schedule {schedule_id!r}")
        return found[0]

    async def pause(self, schedule_id: str, *, until: Instant | None, actor: str, note: str) -> None:
        await self.write(lambda tx: schedules.pause(tx, schedule_id, until, actor, note))

    async def resume(self, schedule_id: str, *, actor: str, note: str, catch_up: bool = False) -> None:
        await self.write(lambda tx: schedules.resume(tx, schedule_id, actor, note, catch_up))

    async def delete(self, schedule_id: str, *, actor: str, note: str, revision: int | None = None) -> None:
        await self.write(lambda tx: editing.delete(tx, schedule_id, revision, actor, note))

    async def trigger(
        self,
        schedule_id: str,
        *,
        since: Instant | None = None,
        actor: str,
        note: str,
        key: str | None = None,
        override: bool = False,
        check: Callable[[TickFacts], None] | None = None,
    ) -> Kept:
        async def make(tx: Transaction) -> Kept:
            if check is not None:
                check(await facts.trigger_facts(tx, schedule_id))
            return await schedules.trigger(tx, schedule_id, since, actor, note, override=override)

        if key is None:
            return await self.write(make)
        return await self.write(lambda tx: access.trigger_once(tx, schedule_id, key, lambda: make(tx)))

    async def trigger_facts(self, schedule_id: str) -> TickFacts:
        return await self.read(lambda tx: facts.trigger_facts(tx, schedule_id))

    # Dispatch

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        return await self.write(lambda tx: dispatching.standing(tx, owner, ttl, self.shard_count), lazily=True)

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        # Lost in a crash of the server, a renewal only makes the lease end sooner.
        return await self.write(lambda tx: dispatching.renew(tx, leases, ttl, high_water), lazily=True)

    async def release(self, leases: Sequence[Lease]) -> None:
        await self.write(lambda tx: dispatching.release(tx, leases), lazily=True)

    async def lane_rates(self) -> dict[Lane, float | None]:
        return dispatching.rates(await self.read(lambda tx: tx.all("lane_gates")))

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        return await self.read(lambda tx: schedules.computed_otherwise(tx, tables, after, limit))

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        return await self.write(lambda tx: schedules.rearm(tx, rearmings))

    # Work

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
        ahead: int = 0,
        called: bool = False,
    ) -> list[Claimed]:
        return await self.write(
            lambda tx: working.claim(tx, worker, queues, jobs, limit, suspects, backlog, put_off, labels)
        )

    async def claim_within(
        self,
        worker: int,
        bound: WorkBound,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        labels: Sequence[str] = (),
        suspects: bool = True,
    ) -> list[Claimed]:
        jobs, queues = bound.narrowed(jobs, queues)
        if bound.all_tenants:
            return await self.claim(worker, queues, jobs, limit, suspects, labels=labels)
        # The search reads beside the writer, because it takes long while many runs of other tenants wait.
        found = await self.read(lambda tx: working.chunks_within(tx, bound.tenant, queues, jobs, labels))
        within = working.Within(bound.tenant, found)
        return await self.write(
            lambda tx: working.claim(tx, worker, queues, jobs, limit, suspects, labels=labels, within=within)
        )

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        return await self.write(lambda tx: working.finish(tx, worker, endings))

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        return await self.finish(worker, endings), []

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        return await self.write(lambda tx: working.give_back(tx, worker, claimed))

    async def beat(
        self, worker: int, progress: Sequence[Progress], *, patient: bool = False, leaving: bool = False
    ) -> Beat:
        lazily = not (progress or leaving)
        return await self.write(lambda tx: working.beat(tx, worker, progress, patient, leaving), lazily=lazily)

    # Ledger

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        return await self.write(lambda tx: ledger.begin_effect(tx, number, token, effect))

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        await self.write(lambda tx: ledger.end_effect(tx, number, token, effect, state, result, note))

    async def done_items(self, number: int, batch: str) -> set[str]:
        return await self.read(lambda tx: ledger.done_items(tx, number, batch))

    async def ledger_of(self, number: int) -> list[EffectView]:
        return await self.read(lambda tx: ledger.ledger_of(tx, number))

    async def maybes(self, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
        return await self.read(lambda tx: ledger.maybes(tx, job, effect, limit))

    # Watch

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        return await self.read(lambda tx: watching.silent(tx, beat_before))

    async def lose(self, losses: Sequence[Loss]) -> int:
        return await self.write(lambda tx: watching.lose(tx, losses))

    async def jobs(self) -> dict[str, JobCard]:
        return await self.read(watching.jobs)

    async def note(self, kind: str, subject: str, detail: str) -> None:
        await self.write(lambda tx: tx.event(kind, subject, detail))

    # Members

    async def members(self, member_set: str, *, after: str = "", limit: int = 1_000) -> list[Member]:
        return await self.read(lambda tx: spreading.members(tx, member_set, after, limit))

    async def member_sets(self) -> list[MemberSet]:
        return await self.read(spreading.member_sets)

    async def change_members(
        self, member_set: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), actor: str, note: str
    ) -> MembersChanged:
        return await self.write(lambda tx: spreading.change(tx, member_set, add, remove, actor, actor, note))

    async def set_members(self, member_set: str, keys: Sequence[str], *, actor: str, note: str) -> MembersChanged:
        return await self.write(lambda tx: spreading.replace(tx, member_set, keys, actor, note))

    async def declare_members(self, member_set: str, keys: Sequence[str], *, prune: bool, actor: str) -> MembersChanged:
        return await self.write(lambda tx: spreading.declare(tx, member_set, keys, prune, actor))

    async def standings(
        self, schedule: str, *, after: str = "", limit: int = 1_000, stale_before: Instant | None = None
    ) -> list[MemberStanding]:
        return await self.read(lambda tx: spreading.standings(tx, schedule, after, limit, stale_before))

    async def worst_served(self, schedule: str, *, limit: int) -> list[MemberStanding]:
        return await self.read(lambda tx: spreading.worst_served(tx, schedule, limit))

    async def gather(self) -> int:
        ended, changed = await self.read(spreading.at_rest)
        count = await self.write(lambda tx: spreading.gather(tx, ended)) if ended else 0
        return count + (await self.write(lambda tx: spreading.recount(tx, changed)) if changed else 0)

    # Backfill

    async def start_backfill(self, wanted: NewBackfill, *, actor: str, note: str) -> Backfill:
        return await self.write(lambda tx: backfilling.start(tx, wanted, actor, note))

    async def backfill(self, number: int) -> Backfill:
        return await self.read(lambda tx: backfilling.get(tx, number))

    async def backfills(self, *, schedule: str | None = None, limit: int = 50) -> list[Backfill]:
        return await self.read(lambda tx: backfilling.listed(tx, schedule, limit))

    async def taken_ticks(self, schedule: str, ticks: Sequence[Instant]) -> list[Taken]:
        return await self.read(lambda tx: backfilling.taken(tx, schedule, ticks))

    async def change_backfill(
        self,
        number: int,
        *,
        state: BackfillState | None = None,
        pace: Mapping[str, Any] | None = None,
        actor: str,
        note: str,
    ) -> Backfill:
        return await self.write(lambda tx: backfilling.change(tx, number, state, pace or {}, actor, note))

    async def backfills_under_way(self) -> list[UnderWay]:
        return await self.read(backfilling.under_way)

    async def make_backfill(self, number: int, version: int, ticks: Sequence[FillTick], most: int) -> Backfill | None:
        return await self.write(lambda tx: backfilling.make(tx, number, version, ticks, most))

    async def halt_backfill(self, number: int, version: int, state: BackfillState, reason: str | None) -> bool:
        return await self.write(lambda tx: backfilling.halt(tx, number, version, state, reason))

    async def backfill_progress(self, number: int) -> BackfillProgress:
        return await self.read(lambda tx: backfilling.progress(tx, number))

    # Fleet

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
        recycles: bool = False,
    ) -> Instance:
        return await self.write(
            lambda tx: watching.register(
                tx, role, version, queues, slots, jobs, release, labels, reserved or {}, recycles=recycles
            )
        )

    async def retire(self, instance: int) -> None:
        await self.write(lambda tx: watching.retire(tx, instance))

    async def instances(self) -> list[Instance]:
        return await self.read(watching.instances)

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
        await self.write(lambda tx: watching.report_clock(tx, instance, low, high, fenced), lazily=True)

    # Reading

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
        return await self.read(lambda tx: reading.runs(tx, states, schedule, job, tenant, limit, before))

    async def list_runs(self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        return await self.read(lambda tx: listing.page(tx, wanted, cursor, limit))

    async def run(self, run_id: str) -> RunView:
        return await self.read(lambda tx: reading.run(tx, run_id))

    async def ended_since(self, position: int, limit: int) -> list[RunView]:
        return await self.read(lambda tx: reading.ended_since(tx, position, limit))

    async def events_since(self, position: int, limit: int) -> list[EventRow]:
        return await self.read(lambda tx: reading.events_since(tx, position, limit))

    async def events_of(self, subject: str) -> list[EventRow]:
        return await self.read(lambda tx: reading.events_of(tx, subject))

    async def last_positions(self) -> tuple[int, int]:
        return await self.read(reading.last_positions)

    async def next_pending(self) -> RunView | None:
        return await self.read(reading.next_pending)

    async def audit_of(self, subject: str) -> list[AuditRow]:
        return await self.read(lambda tx: reading.audit_of(tx, subject))

    async def runs_between(self, job: str, start: Instant, end: Instant, limit: int) -> list[RunView]:
        return await self.read(lambda tx: reading.runs_between(tx, job, start, end, limit))

    async def durations(self, job: str, limit: int) -> list[Duration]:
        return await self.read(lambda tx: reading.durations(tx, job, limit))

    # Limits

    async def give_up(self) -> int:
        return await self.write(breakers.give_up) if await self.read(breakers.is_anybody_hopeless) else 0

    async def limits(self) -> list[GateView]:
        return await self.read(gates.views)

    async def set_limit(self, gate: Gate, *, actor: str) -> None:
        await self.write(lambda tx: gates.set_gate(tx, gate, actor))

    async def drop_limit(self, name: str, *, actor: str, note: str) -> None:
        await self.write(lambda tx: gates.drop_gate(tx, name, actor, note))

    async def declare_limits(self, declared: Sequence[Gate]) -> None:
        await self.write(lambda tx: gates.declare_gates(tx, declared))

    async def release_run(self, run_id: str, *, actor: str, note: str) -> Kept:
        return await self.write(lambda tx: gates.release(tx, run_id, actor, note))

    async def queues_waiting(self) -> list[QueueView]:
        return await self.read(reading.queues_waiting)

    async def tenants_waiting(self, limit: int) -> list[TenantView]:
        return await self.read(lambda tx: sharing.tenants_waiting(tx, limit))
