"""Hands off runs in the transaction that lets them in. So no slot stays empty until a scheduler hears of it."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.decisions import too_late
from foliot.domain.fairness import UNRANKED
from foliot.domain.run import Lane
from foliot.domain.store import DEFAULT_QUEUE
from foliot.store.verbs.facts import Due, due_runs
from foliot.store.verbs.gates import Gatekeeper
from foliot.store.verbs.transaction import Transaction
from foliot.store.verbs.working import Group, chunks_of, whom_for

CHUNK = 500
"""Most runs in one hand-off chunk."""


async def pass_on(tx: Transaction, numbers: Sequence[int]) -> set[int]:
    """Hands off those of these runs that have all that they need. The scheduler decides about ticks, checks, runs under
    suspicion, runs of tenants, which have ranks, and all runs while a pause, an open breaker or a limit of a lane
    exists."""
    keeper = Gatekeeper(tx)
    if not await keeper.is_simple():
        return set()
    rows = await due_runs(tx, numbers)
    ready = [
        row
        for number in numbers
        if (row := rows.get(number)) is not None
        and _is_plain(tx, row)
        and keeper.has_all(row.candidate(Lane(row.lane)))
    ]
    groups: dict[Group, list[int]] = {}
    for row in ready:
        group = (row.queue or DEFAULT_QUEUE, row.lane, row.priority, None, 0, UNRANKED)
        groups.setdefault(group, []).append(row.number)
    if groups:
        await tx.run_each("add_handoff", chunks_of(tx, groups, CHUNK))
    return {row.number for row in ready}


def _is_plain(tx: Transaction, row: Due) -> bool:
    return (
        row.schedule is None
        and row.tenant is None
        and row.fire_at <= tx.now
        and not (row.is_suspected or row.is_forced or too_late(row.useful_until, tx.now))
        and whom_for(row.label, row.job, row.options) is None
    )
