"""A database with the tables of Foliot and nothing in them: made once for each server, emptied for each test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import psycopg

from foliot.store.postgres import PostgresStore
from tests.servers.postgres import PostgresServer

_KEPT: WeakKeyDictionary[PostgresServer, list[psycopg.Connection]] = WeakKeyDictionary()
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


def emptied(server: PostgresServer, *, shards: int = 16, by_socket: bool = False) -> str:
    """Its DSN; by the socket in the server's directory, which makes a question a third as dear. One test at a time uses
    it. History goes to the one partition for all days: most tests live in another year than the server."""
    dsn = _MADE.get(server)
    if dsn is None:
        server.create_database("contract")
        dsn = _MADE[server] = server.dsn("contract")
        _elsewhere(_migrate(dsn))
    kept = _KEPT.get(server)
    if kept is None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            _empty(connection, shards)
    else:
        if not kept:
            kept.append(psycopg.connect(dsn, autocommit=True))
        _empty(kept[0], shards)
    return server.socket_dsn("contract") if by_socket else dsn


@contextmanager
def emptied_often(server: PostgresServer) -> Iterator[None]:
    """Whoever does it stays connected: a session that has read the catalogs needs a tenth of the time. Not for a server
    whose test counts those who are there, or sends them away."""
    kept = _KEPT[server] = []
    try:
        yield
    finally:
        del _KEPT[server]
        for connection in kept:
            connection.close()


def _empty(connection: psycopg.Connection, shards: int) -> None:
    connection.execute(_EMPTY)
    connection.execute("UPDATE foliot.setting SET shards = %s, keep_days = 90", [shards])


async def _migrate(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    await store.close()


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
