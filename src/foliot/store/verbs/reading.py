"""What people look at: runs, live and ended in one shape, attempts, events, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foliot.domain.identity import rerun_stem, run_number
from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import Stage
from foliot.domain.listing import BUDGET, RunFilter
from foliot.domain.run import AttemptView, Origin, RunView
from foliot.domain.state import Outcome, State
from foliot.domain.store import AuditRow, EventRow, QueueView
from foliot.errors import UnknownName
from foliot.store.verbs import ledger, listing, spreading
from foliot.store.verbs.recovering import lineage_number
from foliot.store.verbs.rows import view_of, waiting_chunks, with_ready
from foliot.store.verbs.transaction import Row, Transaction

_ALL = (1 << 63) - 1
_ENOUGH = 50
"""Durations that tell how long a job takes."""
_SCHEDULES = 20
"""Of one job, whose ticks are looked at."""


async def runs(
    tx: Transaction,
    states: Sequence[int],
    schedule: str | None,
    job: str | None,
    tenant: str | None,
    limit: int,
    before: int | None,
) -> list[RunView]:
    """As a list of theirs, however long the way to the end of a page is."""
    wanted = RunFilter(states=tuple(State(state) for state in states), schedule=schedule, job=job, tenant=tenant)
    views, _, _ = await listing.newest(tx, wanted, _ALL if before is None else before, limit, budget=None)
    return views


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
    [view] = await with_ready(tx, [view_of(row)])
    attempts = [_attempt(row) for row in await tx.all("attempts_of", number=view.number)]
    lineage = await lineage_number(tx, view.id)
    stem = rerun_stem(view.id)
    asked = await tx.one("cancellation_of", number=view.number) if view.cancel_requested else None
    repair = view.repair or (view.origin is Origin.RERUN and await _was_repair(tx, view.id))
    return replace(
        view,
        repair=repair,
        cancel_forced=asked is not None and bool(asked[2]),
        attempts=attempts + _last_attempt(view, attempts),
        effects=await ledger.effects_of(tx, lineage),
        batches=(await ledger.batches_of(tx, [lineage])).get(lineage, []),
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
    views = await with_ready(tx, [view_of(row) for row in rows])
    lineages = [await lineage_number(tx, view.id) for view in views]
    batches = await ledger.batches_of(tx, set(lineages))
    return [replace(view, batches=batches.get(lineage, [])) for view, lineage in zip(views, lineages, strict=True)]


async def durations(tx: Transaction, job: str, limit: int) -> list[Duration]:
    """Of its latest useful runs. No index knows jobs: they are looked for among what was made last, and if too few are
    there, among the ticks of its schedules."""
    found = [row[0] for row in await tx.all("durations", job=job, limit=limit, budget=BUDGET)]
    if len(found) >= min(limit, _ENOUGH):
        return found
    ticks = [row[0] for row in await tx.all("durations_of_ticks", job=job, limit=limit, schedules=_SCHEDULES)]
    return max(found, ticks, key=len)


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


async def queues_waiting(tx: Transaction) -> list[QueueView]:
    """Read through chunks, which are few."""
    found: dict[str, QueueView] = {}
    for queue, fired_at, named in await waiting_chunks(tx, "waiting_chunks"):
        known = found.get(queue, QueueView(queue, 0, fired_at))
        waiting = known.waiting + len(named)
        found[queue] = QueueView(queue, waiting, min(known.oldest, fired_at))
    return sorted(found.values())
