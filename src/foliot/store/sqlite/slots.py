"""Frees slots and lets waiters in by the batch: one write per slot.

Triggers do the same run by run in transactions that are not the writer's (migration 0019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from foliot.domain.gates import Need, Taken, times_of
from foliot.domain.instant import Instant
from foliot.store.verbs.passing import pass_on
from foliot.store.verbs.transaction import Transaction, longs

MOST = 1_000
"""Waiters of one slot that are let in at once. The next run that ends lets more in."""

_read = msgspec.json.Decoder(list[str]).decode


async def free(tx: Transaction) -> list[str]:
    """Frees the slots that triggers have collected in this transaction. Returns their names."""
    units: Counter[str] = Counter()
    for names, count in await tx.all("collected"):
        for name in _read(names):
            units[name] += count
    await tx.run("forget_collected")
    await tx.run_each("slot_freed", [(count, name) for name, count in sorted(units.items())])
    return sorted(units)


async def let_in(tx: Transaction, names: Collection[str]) -> None:
    """Lets runs in that wait for one of these slots, as far as the slot has room. A run that has all that it needs is
    handed off at once. The others go to the scheduler."""
    if not names or not await tx.value("any_waiting"):
        return
    ready: list[int] = []
    for name, used, most, every, slack, tat in await tx.all("slots_with_room", names=list(names)):
        count = min(most - used, MOST)
        waiting = [row[0] for row in await tx.all("next_waiting", slot=name, limit=count)]
        if every is None:
            await tx.run("let_waiting_in", slot=name, numbers=longs(waiting), now=tx.now)
            ready += waiting
            tat = 0
        else:
            need, taken = Need(name, most, every, slack), Taken(used, tat)
            tat = await _give_times(tx, waiting, need, taken)
        await tx.run_each("slot_taken", [(len(waiting), tat, name)])
    if ready:
        passed = await pass_on(tx, ready)
        await tx.stir([number for number in ready if number not in passed])


async def _give_times(tx: Transaction, waiting: Sequence[int], need: Need, taken: Taken) -> Instant:
    """Gives each waiter of a rate its time. Returns when the next start would be on time."""
    times = times_of(need, taken, len(waiting), tx.now)
    await tx.run_each("give_time", [(at, need.name, number) for at, number in zip(times, waiting, strict=True)])
    await tx.stir(waiting)
    return taken.tat
