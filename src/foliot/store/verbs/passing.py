"""Hands off runs in the transaction that lets them in. So no slot stays empty until a scheduler hears of it."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Hands off those of these runs, due now, that have all slots that they need. The scheduler decides about ticks,
    checks, runs under suspicion, runs of tenants, which have ranks, and all runs while something is paused."""
    keeper = Gatekeeper(tx)
    if await keeper.is_any_paused():
        return set()
    rows = await due_runs(tx, numbers)
    groups: dict[Group, list[int]] = {}
    passed: set[int] = set()
    for number in numbers:
        row = rows.get(number)
        if row is not None and _is_plain(row) and await keeper.has_all(row.candidate(Lane(row.lane))):
            group = (row.queue or DEFAULT_QUEUE, row.lane, row.priority, None, 0, row.version, UNRANKED)
            groups.setdefault(group, []).append(number)
            passed.add(number)
    await tx.run_each("add_handoff", chunks_of(tx, groups, CHUNK))
    return passed


def _is_plain(row: Due) -> bool:
    is_for_any = whom_for(row.label, row.job, row.options) is None
    return is_for_any and row.schedule is None and row.tenant is None and not row.is_suspected
