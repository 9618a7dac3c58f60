"""Sealing reads as many rows of the audit log as it seals, however many wait or are sealed already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND
from foliot.store.postgres import PostgresStore
from foliot.store.sqlite import SqliteStore
from foliot.store.verbs.transaction import Transaction
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer

NOON = 1_800_000_000 * SECOND
ROWS, SEALED, BATCH = 3_000, 500, 100


async def _add_rows(tx: Transaction) -> None:
    for place in range(ROWS):
        await tx.audit("test", "act", f"thing:{place}", "")


@pytest.mark.needs("postgres")
async def test_postgresql_reads_only_the_rows_that_it_seals(postgres: PostgresServer) -> None:
    store = PostgresStore(emptied(postgres), ManualClock(NOON))
    await store.open()
    await store.write(_add_rows)
    assert await store.seal(SEALED) == SEALED
    connection = await store.connections.connect()
    try:
        # Also with what PostgreSQL knows of a table that was just filled: nothing.
        for statistics in ("SELECT", "ANALYZE foliot.audit, foliot.unsealed"):
            await connection.execute(statistics)
            await connection.execute(f"PREPARE rows_to_seal AS {store._queries['rows_to_seal'].text}")
            found = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE rows_to_seal({BATCH})")
            read = {node["Relation Name"]: _rows(node) for node in _nodes(json.loads(found)[0]["Plan"])}
            assert read == {"audit": BATCH, "unsealed": BATCH}
            await connection.execute("DEALLOCATE rows_to_seal")
    finally:
        await connection.close()
        await store.close()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a plan that read a table."""
    if "Relation Name" in plan:
        yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _rows(node: dict[str, Any]) -> int:
    return int(node["Actual Rows"] * node["Actual Loops"]) + int(node.get("Rows Removed by Filter", 0))


async def test_sqlite_reads_only_the_rows_that_it_seals(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "foliot.db"), ManualClock(NOON))
    await store.open()
    await store.write(_add_rows)
    assert await store.seal(SEALED) == SEALED
    assert store._reader is not None
    query = f"EXPLAIN QUERY PLAN {store._queries['rows_to_seal']}"
    plan = [row[3] for row in store._reader.execute(query, {"limit": BATCH})]
    assert plan == ["SCAN u", "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)"]
    await store.close()
