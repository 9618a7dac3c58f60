"""From durable promise to handed-off work: shard leases, cells, arrivals."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import Lane
from foliot.domain.store import Arrivals, Cells, Lease, Shard, Standing
from foliot.errors import LostOwnership
from foliot.store import process
from foliot.store.verbs import rows as run_rows
from foliot.store.verbs.transaction import Row, Transaction, as_json

BEGINNING: Instant = -(1 << 62)

# --------------------------------------------------------------------------------------------------------------- leases


async def standing(tx: Transaction, owner: int, ttl: Duration, shards: int) -> Standing:
    await tx.run("beat_instance", number=owner, now=tx.now)
    rows = {row[0]: row for row in await tx.all("shard_rows")}
    is_gone = cache(process.is_gone)  # one look at each process, however many shards are its
    found = []
    for shard in range(shards):
        row = rows.get(shard)
        found.append(Shard(shard, None if row is None or is_free(tx, row, ttl, is_gone) else row[1]))
    living = [
        number
        for number, beat_at, host, pid, birth in await tx.all("live_schedulers")
        if beat_at > tx.now - ttl and not is_gone(host, pid, birth)
    ]
    return Standing(found, living)


async def take(tx: Transaction, shard: int, owner: int, ttl: Duration) -> Lease | None:
    row = await tx.one("shard_row", shard=shard)
    if row is not None and row[1] != owner and not is_free(tx, row, ttl):
        return None
    epoch = await tx.one(
        "take_shard",
        shard=shard,
        owner=owner,
        epoch=row[2] if row else 0,
        until=tx.now + ttl,
        high_water=BEGINNING,
    )
    return None if epoch is None else Lease(shard, owner, epoch[0], tx.now + ttl, BEGINNING, 0)


def is_free(
    tx: Transaction, row: Row, ttl: Duration, is_gone: Callable[[str, int, str], bool] = process.is_gone
) -> bool:
    _, holder, _, until, host, pid, birth, ended_at = row
    # A lease that ends later than any could was made by a clock that has been set back since: it says nothing. A
    # transaction that began after this one and has committed gave a lease that ends a little later than ours would.
    held = holder is not None and tx.now < until <= tx.now + 2 * ttl and ended_at is None
    return not held or (host is not None and is_gone(host, pid, birth))


def leased(leases: Iterable[Lease]) -> str:
    return as_json([(lease.shard, lease.epoch) for lease in leases])


async def renew(tx: Transaction, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
    if not leases:
        return []
    until, owner = tx.now + ttl, leases[0].owner
    renewed = await tx.all("renew_shards", leases=leased(leases), owner=owner, until=until, high_water=high_water)
    held = {row[0] for row in renewed}
    await tx.run("beat_instance", number=owner, now=tx.now)
    return [
        lease._replace(until=until, high_water=max(lease.high_water, high_water))
        for lease in leases
        if lease.shard in held and lease.owner == owner
    ]


async def release(tx: Transaction, leases: Sequence[Lease]) -> None:
    if leases:
        await tx.run("release_shards", leases=leased(leases), owner=leases[0].owner)


async def hold(tx: Transaction, leases: Sequence[Lease]) -> None:
    """First in every firing transaction: whoever takes a shard over waits until this one has ended."""
    if leases:
        owned = await tx.all("owned_shards", leases=leased(leases), owner=leases[0].owner)
        lost = {lease.shard for lease in leases} - {row[0] for row in owned}
        if lost:
            raise LostOwnership(f"shards {sorted(lost)} are no longer owned under these epochs", lost)


def rates(rows: Sequence[Row]) -> dict[Lane, float | None]:
    """Of lanes that have one, from the names of their gates and the time between two runs."""
    lanes = {f"lane:{lane}": lane for lane in Lane}
    return {lanes[name]: SECOND / every for name, every in rows}


# ---------------------------------------------------------------------------------------------------------------- cells


class HandedOff(NamedTuple):
    """What chunks named when a shard was taken over: a new owner must not hand it off a second time.

    It stays true for as long as the lease does: only the owner adds to chunks, and only what it has loaded before. A
    run that has come back since then (a retry, a move) has a later fire time, or is told by `arrivals`.
    """

    at: Instant
    numbers: frozenset[int]

    def has(self, fire_at: Instant, number: int) -> bool:
        return fire_at <= self.at and number in self.numbers


NOTHING = HandedOff(BEGINNING, frozenset())


async def handed_off(tx: Transaction) -> HandedOff:
    return HandedOff(tx.now, frozenset(await run_rows.handed_off(tx)))


def end_of(lease: Lease, until: Instant | None) -> Instant:
    """Where a window of a lease ends."""
    return lease.high_water if until is None else min(until, lease.high_water)


def cells(rows: Sequence[Row], start: tuple[Instant, int], limit: int, before: HandedOff) -> Cells:
    kept = [row for row in rows if not before.has(row[0], row[1])] if before.numbers else rows
    return Cells(
        array("q", [row[0] for row in kept]),
        array("q", [row[1] for row in kept]),
        last=(rows[-1][0], rows[-1][1]) if rows else start,
        exhausted=len(rows) < limit,
    )


def told(rows: Sequence[Row], cursor: int) -> Arrivals:
    return Arrivals(array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows]), cursor)
