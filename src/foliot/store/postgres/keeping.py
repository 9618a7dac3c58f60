"""What keeps the store small: partitions ahead, and what has outlived its term goes, a day at a time."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol, TypeVar

from foliot.domain.instant import DAY, MINUTE
from foliot.errors import StoreError
from foliot.store.postgres.transaction import PostgresTransaction, Work
from foliot.store.verbs import working

_AT_ONCE = 1_000
_MOST_ROUNDS = 50
"""Bounded, so that a long backlog of what has outlived its term does not keep the holder of the duty for hours."""
_PATIENCE = "SET LOCAL lock_timeout = '100ms'"
"""Whoever reads history for long must not make everybody wait who ends a run: the next minute is not far."""

_log = logging.getLogger("foliot.store")

T = TypeVar("T")


class Server(Protocol):
    """What this module needs of the store."""

    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T: ...


async def tidy(server: Server) -> None:
    """1. Partitions for the week to come. 2. What nobody will come back to. 3. Whole days that are over.
    4. Stragglers, and events and ledgers of that time."""
    await _try(server, _make_partitions)
    await _try(server, _drop_abandoned)
    await _try(server, working.report_waiting)
    for name in await server.write(_outlived):
        await _try(server, partial(_drop_partition, name=name))
    for _ in range(_MOST_ROUNDS):
        if not await server.write(_drop_stragglers):
            return


async def _try(server: Server, work: Work[None]) -> None:
    try:
        await server.write(work)
    except StoreError as error:  # somebody reads history, or the server is away
        _log.info("deleting expired history failed, the next round retries: %s", error)


async def _make_partitions(tx: PostgresTransaction) -> None:
    await tx.plainly(_PATIENCE)
    await tx.all("make_partitions")


async def _drop_abandoned(tx: PostgresTransaction) -> None:
    await tx.run("drop_unheeded")
    await tx.run("drop_empty_claims", before=tx.now - MINUTE)
    await tx.run("end_silent", now=tx.now, before=tx.now - DAY)


async def _outlived(tx: PostgresTransaction) -> list[str]:
    return [row[0] for row in await tx.all("outlived_partitions", now=tx.now)]


async def _drop_partition(tx: PostgresTransaction, name: str) -> None:
    """With the names of its runs, which may be promised again then, and with their attempts."""
    await tx.plainly(f"DELETE FROM foliot.named n USING foliot.{name} h WHERE h.name = n.name AND h.number = n.number")
    await tx.plainly(f"DELETE FROM foliot.attempt a USING foliot.{name} h WHERE a.run = h.number")
    await tx.plainly(_PATIENCE)
    await tx.plainly(f"DROP TABLE foliot.{name}")


async def _drop_stragglers(tx: PostgresTransaction) -> int:
    before = await tx.value("begins_at", now=tx.now)
    if before is None:
        return 0
    return sum(
        [
            int(await tx.value(query, before=before, limit=_AT_ONCE))
            for query in ("drop_outlived", "drop_events", "drop_ledgers")
        ]
    )
