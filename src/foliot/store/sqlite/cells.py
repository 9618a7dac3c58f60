"""How SQLite finds what is pending: numbers are drawn under the write lock, so their order is the order of commits."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.fairness import Placing
from foliot.domain.instant import Duration, Instant
from foliot.domain.lanes import DueKind
from foliot.domain.store import Arrivals, Cells, Decide, Fired, Lease
from foliot.store.verbs import dispatching, firing
from foliot.store.verbs.dispatching import NOTHING, HandedOff
from foliot.store.verbs.transaction import Transaction


async def take(tx: Transaction, shard: int, owner: int, ttl: Duration) -> tuple[Lease | None, HandedOff]:
    lease = await dispatching.take(tx, shard, owner, ttl)
    if lease is None or shard < 0:
        return lease, NOTHING
    cursor = await tx.value("last_number")
    # What was stirred before this moment is read with the cells.
    await tx.run("forget_stirs", cursor=cursor)
    return lease._replace(cursor=cursor), await dispatching.handed_off(tx)


async def load(
    tx: Transaction, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None, before: HandedOff
) -> Cells:
    rows = await tx.all(
        "load_cells",
        fire_at=start[0],
        number=start[1],
        below=dispatching.end_of(lease, until),
        cursor=lease.cursor,
        limit=limit,
    )
    return dispatching.cells(rows, start, limit, before)


async def arrivals(tx: Transaction, leases: Sequence[Lease], cursor: int) -> Arrivals:
    last = await tx.value("last_number")
    if last == cursor or not leases:
        return dispatching.told((), cursor)
    bounds = {"cursor": cursor, "last": last, "high_water": leases[0].high_water}
    return dispatching.told(await tx.all("arrived_new", **bounds) + await tx.all("arrived_again", **bounds), last)


async def fire(
    tx: Transaction,
    leases: Sequence[Lease],
    due: Sequence[tuple[Instant, int]],
    cursor: int,
    decide: Decide,
    placing: Placing,
    kind: DueKind,
) -> Fired:
    fired = await firing.fire(tx, leases, due, decide, placing, kind)
    await tx.run("forget_stirs", cursor=cursor)
    return fired
