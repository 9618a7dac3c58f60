"""A database with the tables of Foliot and nothing in them: made once for each server, emptied for each test."""

from __future__ import annotations

import asyncio
import threading
from weakref import WeakKeyDictionary

import asyncpg

from foliot.store.postgres import PostgresStore
from tests.servers.postgres import PostgresServer

_MADE: WeakKeyDictionary[PostgresServer, str] = WeakKeyDictionary()

_EMPTY = """
DO $$
DECLARE found text;
BEGIN
    -- Nobody refuses that, or has anything to do because of it.
    SET LOCAL session_replication_role = replica;
    -- Few rows each: deleting them is a tenth of the work of giving every table new files.
    FOR found IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'foliot' AND tablename NOT IN ('setting', 'migration') LOOP
        EXECUTE format('DELETE FROM foliot.%I', found);
    END LOOP;
END $$;
"""


def emptied(server: PostgresServer, *, shards: int = 16) -> str:
    """Its DSN. One test at a time uses it. History goes to the one partition for all days: most tests live in another
    year than the server."""
    dsn = _MADE.get(server)
    if dsn is None:
        server.create_database("contract")
        dsn = _MADE[server] = server.dsn("contract")
        _elsewhere(_migrate(dsn))
    _elsewhere(_empty(dsn, shards))
    return dsn


async def _migrate(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    await store.close()


async def _empty(dsn: str, shards: int) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_EMPTY)
        await connection.execute("UPDATE foliot.setting SET shards = $1, keep_days = 90", shards)
    finally:
        await connection.close()


def _elsewhere(work: object) -> None:
    """In a loop of its own: fixtures are called with and without a running one."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)  # type: ignore[arg-type]
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
