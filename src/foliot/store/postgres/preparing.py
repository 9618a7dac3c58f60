"""Ticks that are about to fall due, made ready inside a transaction that waits for their time.

All that a firing does but for the last step is done here, as of the moment when they are due: under the schedules'
locks nothing can change until then that would make the decision another one. Ticks whose facts could change are not
made ready, and are fired as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from foliot.domain.fairness import Placing
from foliot.domain.instant import SECOND, Duration
from foliot.domain.policy import Policy, wants_of
from foliot.domain.run import Lane
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.store import Decide
from foliot.store.verbs.facts import Around, due_of
from foliot.store.verbs.firing import Firing
from foliot.store.verbs.schedules import schedule_of
from foliot.store.verbs.transaction import Row, Transaction

SHORTEST_MISS: Duration = SECOND
"""A tick that is missed sooner than this is not made ready: it may be missed by the time it is handed off."""


PIECE = 500
"""Ticks that are decided about at once: other tasks of this event loop wait for no more of them."""


async def prepare(tx: Transaction, numbers: Sequence[int], decide: Decide, placing: Placing) -> Firing | None:
    """Everything up to the hand-off, at `tx.now`, which lies ahead; `Firing.write` does the rest. None when nothing is
    to be made ready.

    1. Of the ticks that are due then, those whose schedules have no other run: no ending waits for these locks.
    2. They and their schedules are locked, but for those that another transaction locks. 3. They are decided about.
    4. Those that simply go are marked as fired, and have their successors. All others are left as they are.
    """
    if await tx.value("any_limits"):
        return None  # who may go then depends on who has gone by then
    firing, is_any = Firing(tx, placing), False
    for begin in range(0, len(numbers), PIECE):
        is_any |= await _prepare(tx, numbers[begin : begin + PIECE], decide, firing)
    return firing if is_any else None


async def _prepare(tx: Transaction, numbers: Sequence[int], decide: Decide, firing: Firing) -> bool:
    """Whether any of these is ready."""
    rows: dict[str, Row] = {}
    for row in await tx.all("fresh_ticks", numbers=list(numbers), now=tx.now):
        due = due_of(row)
        if due.schedule is not None and wants_of(due.options).key is None:
            rows[due.schedule] = row
    facts = await _facts(tx, rows)
    decided = [pair for pair in zip(facts, decide(facts, tx.now), strict=True) if _simply_goes(pair[1])]
    firing.rows |= {row[0]: due_of(row) for row in rows.values()}
    if decided:
        await firing.carry_out(decided)
    return bool(decided)


async def _facts(tx: Transaction, rows: dict[str, Row]) -> list[TickFacts]:
    """Of ticks that depend on their schedule alone, under the schedules' locks."""
    alone = await _without_crowded(tx, rows)
    held = await tx.lock_free(alone)
    # Once more: what came before we had the lock is in the way now.
    alone = await _without_crowded(tx, [name for name in alone if name not in held])
    schedules = {row[0]: schedule_of(row) for row in await tx.all("schedules_by_id", ids=alone)}
    around = Around(schedules, {}, (), ())
    facts = []
    for name, schedule in schedules.items():
        if _is_certain(schedule.policy):
            with suppress(ValueError):  # it cannot be read: firing sets it aside
                facts.append(around.facts_of(rows[name]))
    return facts


async def _without_crowded(tx: Transaction, names: Iterable[str]) -> list[str]:
    listed = list(names)
    crowded = {row[0] for row in await tx.all("crowded_schedules", ids=listed)}
    return [name for name in listed if name not in crowded]


def _is_certain(policy: Policy) -> bool:
    """What other schedules did, and by how much it is late, is known when it is due."""
    return policy.requires is None and policy.missed_after >= SHORTEST_MISS


def _simply_goes(decision: TickDecision) -> bool:
    is_odd = decision.instead or decision.merges or decision.replaces or decision.fault or decision.since is not None
    return decision.verdict == "fire" and decision.lane is Lane.LIVE and not is_odd
