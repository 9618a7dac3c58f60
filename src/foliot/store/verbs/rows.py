"""Rows of runs as people see them: live and ended ones in one shape."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

from foliot.domain.identity import member_of_series, schedule_of_series
from foliot.domain.instant import Instant
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import PENDING, State, read_state
from foliot.domain.store.values import DEFAULT_QUEUE
from foliot.store.verbs.transaction import Row, Transaction, longs

Number = TypeVar("Number", bound=IntEnum)


async def with_ready(tx: Transaction, views: list[RunView]) -> list[RunView]:
    """`ready` is derived: a pending run that is due and that a hand-off chunk names."""
    if not any(view.state in PENDING and view.fire_at <= tx.now for view in views):
        return views
    waiting = set(await handed_off(tx))

    def is_ready(view: RunView) -> bool:
        return view.state in PENDING and view.fire_at <= tx.now and view.number in waiting

    return [replace(view, state=State.READY) if is_ready(view) else view for view in views]


async def handed_off(tx: Transaction) -> list[int]:
    """Returns the runs that chunks name, without those that were changed since."""
    chunks = [(tx.unpacked(stored), version) for stored, version in await tx.all("handed_off")]
    numbers = [number for named, _ in chunks for number in named]
    changed = {row[0]: row[1] for row in await tx.all("changed_among", numbers=longs(numbers))} if numbers else {}
    if not changed:
        return numbers
    return [n for named, version in chunks for n in named if version is None or changed.get(n, 0) == version]


_CHECKED = 20_000
"""Runs in chunks, up to which each is looked up. More than these are counted by their chunks."""


async def waiting_chunks(tx: Transaction, query: str) -> list[tuple[Any, Instant, list[int]]]:
    """What waits for a worker, by chunk: its queue or lane, when it was handed off, and its runs. A run that was
    cancelled, moved or replaced stays in its chunk until a worker takes that, and is left out."""
    chunks = [(row[0], row[1], list(tx.unpacked(row[2])), row[3]) for row in await tx.all(query)]
    numbers = [number for _, _, named, _ in chunks for number in named]
    if not 0 < len(numbers) <= _CHECKED:
        return [(what, fired_at, named) for what, fired_at, named, _ in chunks]
    known = {row[0]: row[1] or 0 for row in await tx.all("waiting_among", numbers=longs(numbers), now=tx.now)}
    found = []
    for what, fired_at, named, version in chunks:
        still = [one for one in named if one in known and (version is None or known[one] == version)]
        found += [(what, fired_at, still)] if still else []
    return found


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
        state=read_state(state, reason),
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
