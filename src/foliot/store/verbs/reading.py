"""What people look at: runs, live and ended in one shape, attempts, events, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TypeVar

from foliot.domain.identity import member_of_series, rerun_stem, run_number, schedule_of_series
from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import Stage
from foliot.domain.run import AttemptView, Lane, Origin, RunView
from foliot.domain.state import PARKED, PENDING, TERMINAL, Outcome, State
from foliot.domain.store import DEFAULT_QUEUE, AuditRow, EventRow, QueueView
from foliot.errors import UnknownName
from foliot.store.verbs import ledger, spreading
from foliot.store.verbs.recovering import lineage_number
from foliot.store.verbs.transaction import Row, Transaction, longs

Number = TypeVar("Number", bound=IntEnum)
_ALL = (1 << 63) - 1


async def runs(
    tx: Transaction,
    states: Sequence[int],
    schedule: str | None,
    job: str | None,
    tenant: str | None,
    limit: int,
    before: int | None,
) -> list[RunView]:
    # `ready` is stored as the pending state it was handed off from, so asking for it asks for those too.
    asked = {State(state) for state in states} or set(State)
    stored = asked | (PENDING if State.READY in asked else set())
    filters: dict[str, object] = {
        "before": _ALL if before is None else before,
        "schedule": schedule,
        "job": job,
        "tenant": tenant,
        "states": sorted(stored),
        "limit": limit,
    }
    views = await _live_asked(tx, asked, stored, filters, limit)
    if stored & TERMINAL:
        views += [view_of(row) for row in await tx.all("ended_runs", **filters)]
    return sorted(views, key=lambda view: -view.number)[:limit]


async def _live_asked(
    tx: Transaction, asked: set[State], stored: set[State], filters: dict[str, object], limit: int
) -> list[RunView]:
    """Pages through the stored states until enough of what was asked for is there: `ready` is derived page by page."""
    found: list[RunView] = []
    while True:
        page = await _live(tx, stored, filters)
        found += [view for view in await _with_ready(tx, page) if view.state in asked]
        if len(page) < limit or len(found) >= limit:
            return found
        filters = {**filters, "before": page[-1].number}


async def _live(tx: Transaction, states: set[State], filters: dict[str, object]) -> list[RunView]:
    """By the cheapest way that can find them all."""
    if not states - TERMINAL:
        return []
    if not states - TERMINAL - {State.RUNNING}:
        numbers = [number for (stored,) in await tx.all("owned_by_workers") for number in tx.unpacked(stored)]
        return [view_of(row) for row in await tx.all("claimed_now", numbers=longs(numbers), **filters)]
    query = "live_runs"
    if not states - TERMINAL - PARKED:
        query = "parked_runs"
    elif not states - TERMINAL - {State.RETRYING}:
        query = "retrying_runs"
    elif not states - TERMINAL - {State.VERIFYING}:
        query = "checked_runs"
    return [view_of(row) for row in await tx.all(query, **filters)]


async def next_pending(tx: Transaction) -> RunView | None:
    row = await tx.one("next_pending", now=tx.now)
    return None if row is None else view_of(row)


async def events_of(tx: Transaction, subject: str) -> list[EventRow]:
    return [EventRow(int(row[0]), *row[1:]) for row in await tx.all("events_of", subject=subject)]


async def last_positions(tx: Transaction) -> tuple[int, int]:
    row = await tx.one("last_positions")
    assert row is not None
    return int(row[0]), int(row[1])


async def run(tx: Transaction, identifier: str) -> RunView:
    wanted = {"number": run_number(identifier), "name": identifier}
    row = await tx.one("live_run", **wanted) or await tx.one("ended_run", **wanted)
    if row is None:
        raise UnknownName(f"there is no run {identifier!r}")
    [view] = await _with_ready(tx, [view_of(row)])
    attempts = [_attempt(row) for row in await tx.all("attempts_of", number=view.number)]
    lineage = await lineage_number(tx, view.id)
    stem = rerun_stem(view.id)
    repair = view.repair or (view.origin is Origin.RERUN and await _was_repair(tx, view.id))
    return replace(
        view,
        repair=repair,
        attempts=attempts + _last_attempt(view, attempts),
        effects=await ledger.effects_of(tx, lineage),
        batches=await ledger.batches_of(tx, lineage),
        reruns=[row[0] for row in await tx.all("reruns_of", stem=stem, stem_end=stem[:-1] + "s")],
        interval=await spreading.interval(tx, view) if view.schedule is not None and view.member is None else None,
    )


def _attempt(row: Row) -> AttemptView:
    attempt, outcome, worker, started_at, finished_at, error, stage, reason, progress = row
    told = None if stage is None else Stage(stage)
    return AttemptView(attempt, Outcome(outcome), worker, started_at, finished_at, error, told, reason, progress)


async def _was_repair(tx: Transaction, identifier: str) -> bool:
    """Of a rerun that has ended, the audit tells."""
    return any(row[2] == "repair" for row in await tx.all("audits_of", subject=identifier))


async def audit_of(tx: Transaction, subject: str) -> list[AuditRow]:
    return [AuditRow(*row) for row in await tx.all("audits_of", subject=subject)]


async def runs_between(tx: Transaction, name: str, start: Instant, end: Instant, limit: int) -> list[RunView]:
    rows = await tx.all("runs_between", name=name, start=start, end=end, limit=limit)
    views = await _with_ready(tx, [view_of(row) for row in rows])
    return [replace(view, batches=await ledger.batches_of(tx, await lineage_number(tx, view.id))) for view in views]


async def durations(tx: Transaction, job: str, limit: int) -> list[Duration]:
    return [row[0] for row in await tx.all("durations", job=job, limit=limit)]


def _last_attempt(view: RunView, told: list[AttemptView]) -> list[AttemptView]:
    """The attempt that only the run's own row tells of: the one that runs now, or that succeeded."""
    if view.worker is None or any(a.attempt == view.attempt and a.outcome is not Outcome.FENCED for a in told):
        return []
    ended = view.state in (State.SUCCEEDED, State.VERIFIED)
    outcome = Outcome.SUCCEEDED if ended else None
    return [AttemptView(view.attempt, outcome, view.worker, view.started_at, view.finished_at, None)]


async def ended_since(tx: Transaction, position: int, limit: int) -> list[RunView]:
    return [view_of(row) for row in await tx.all("ended_in_order", position=position, limit=limit)]


async def events_since(tx: Transaction, position: int, limit: int) -> list[EventRow]:
    return [EventRow(int(row[0]), *row[1:]) for row in await tx.all("events_after", position=position, limit=limit)]


async def counts(tx: Transaction) -> dict[str, int]:
    found = {str(state): 0 for state in State}
    found |= {str(State(state)): count for state, count in await tx.all("count_states")}
    for state, count in await tx.all("count_ready", numbers=longs(await _handed_off(tx)), now=tx.now):
        found[str(State(state))] -= count
        found["ready"] += count
    found["history"] = await tx.value("count_history")
    found["early"] = await tx.value("count_early")
    return found


async def _with_ready(tx: Transaction, views: list[RunView]) -> list[RunView]:
    """`ready` is derived: a pending run that is due and that a hand-off chunk names."""
    if not any(view.state in PENDING and view.fire_at <= tx.now for view in views):
        return views
    handed_off = await _handed_off(tx)

    def is_ready(view: RunView) -> bool:
        return view.state in PENDING and view.fire_at <= tx.now and view.number in handed_off

    return [replace(view, state=State.READY) if is_ready(view) else view for view in views]


async def _handed_off(tx: Transaction) -> set[int]:
    return {number for (stored,) in await tx.all("handed_off") for number in tx.unpacked(stored)}


def _member(kind: type[Number], value: int, otherwise: Number) -> Number:
    """A number that a newer release wrote must not hide the whole list."""
    return kind(value) if value in kind._value2member_map_ else otherwise


def view_of(row: Row) -> RunView:
    (number, name, state, origin, job, schedule, revision, tenant, queue, lane, priority, nominal, since, fire_at) = (
        row[:14]
    )
    attempt, spent, reason, detail, payload, worker, fired_at, claimed_at, started_at, finished_at = row[14:24]
    progress, result, span_until, span_count, cancel_requested, position, options = row[24:31]
    phase, repair, deaths, has_checkpoint = row[31:35]
    return RunView(
        number=number,
        name=name,
        state=State(state),
        origin=_member(Origin, origin, Origin.DELAYED),
        job=job,
        schedule=None if schedule is None else schedule_of_series(schedule),
        member=None if schedule is None else member_of_series(schedule),
        revision=revision,
        tenant=tenant,
        queue=queue or DEFAULT_QUEUE,
        lane=_member(Lane, lane, Lane.LIVE),
        priority=priority,
        nominal=fire_at if nominal is None else nominal,
        since=since,
        fire_at=fire_at,
        attempt=attempt,
        spent=spent,
        reason=reason,
        detail=detail,
        payload=payload,
        worker=worker,
        fired_at=fired_at,
        claimed_at=claimed_at,
        started_at=started_at,
        finished_at=finished_at,
        progress=progress,
        result=result,
        span_until=span_until,
        span_count=span_count,
        cancel_requested=bool(cancel_requested),
        position=int(position),
        options=options,
        phase=phase,
        repair=bool(repair),
        deaths=deaths,
        has_checkpoint=bool(has_checkpoint),
    )


async def queues_waiting(tx: Transaction) -> list[QueueView]:
    """Read through chunks, which are few. What was moved or replaced since may be counted for a moment."""
    found: dict[str, QueueView] = {}
    for queue, fired_at, stored in await tx.all("waiting_chunks"):
        known = found.get(queue, QueueView(queue, 0, fired_at))
        waiting = known.waiting + len(tx.unpacked(stored))
        found[queue] = QueueView(queue, waiting, min(known.oldest, fired_at))
    return sorted(found.values())
