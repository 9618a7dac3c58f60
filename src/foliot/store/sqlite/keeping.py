"""What keeps the file small: what has outlived its term goes, in small steps between which others write."""

from __future__ import annotations

from typing import Protocol, TypeVar

from foliot.domain.identity import number_at
from foliot.domain.instant import DAY
from foliot.store.sqlite.writer import Work
from foliot.store.verbs.transaction import Transaction, longs

AT_ONCE = 1_000
LOOK = 10_000
"""How many rows in a row may have been written by a wrong clock, and not keep those behind them."""
MOST_ROUNDS = 50
"""Bounded, so that a long backlog of what has outlived its term does not keep the holder of the duty for hours."""

T = TypeVar("T")


class Place(Protocol):
    """What this module needs of the store."""

    async def write(self, work: Work[T], *, lazily: bool = False) -> T: ...


async def tidy(place: Place, days: int | None) -> None:
    """1. Ended runs, oldest first, with their attempts. 2. Events. 3. Ledgers of which no run is left."""
    if days is None:
        return
    for drop in (_drop_runs, _drop_events, _drop_ledgers):
        after = 0
        for _ in range(MOST_ROUNDS):
            after = await place.write(lambda tx, drop=drop, after=after: drop(tx, tx.now - days * DAY, after))  # type: ignore[misc]
            if not after:
                break


async def _drop_runs(tx: Transaction, before: int, after: int) -> int:
    """Where to go on; 0 when nothing that follows has outlived its term, as far as one looks."""
    rows = await tx.all("outlived", after=after, before=before, look=LOOK, limit=AT_ONCE)
    gone = [row for row in rows if not row[2]]
    await tx.run("drop_attempts", numbers=longs(row[1] for row in gone))
    await tx.run("drop_outlived", places=longs(row[0] for row in gone))
    return rows[-1][0] if rows else 0


async def _drop_events(tx: Transaction, before: int, _: int) -> int:
    return await tx.run("drop_events", before=before, look=LOOK, limit=AT_ONCE)


async def _drop_ledgers(tx: Transaction, before: int, after: int) -> int:
    """Where to go on; 0 when all were looked at. A lineage is named by its first run, whose number tells when it was
    made."""
    rows = await tx.all("forgotten_ledgers", after=after, before_number=number_at(max(before, 0), 0), limit=AT_ONCE)
    lineages = [row[0] for row in rows if row[1]]
    for query in ("drop_effects", "drop_items", "drop_batches") if lineages else ():
        await tx.run(query, lineages=longs(lineages))
    return rows[-1][0] if len(rows) == AT_ONCE else 0
