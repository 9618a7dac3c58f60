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

_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'foliot'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    AND relname NOT IN ('setting', 'migration')
"""

_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.empty_all(new_shards integer) RETURNS void LANGUAGE plpgsql
-- Without triggers and foreign keys.
SET session_replication_role = replica
AS $$
BEGIN
{deletions}
    UPDATE foliot.setting SET shards = new_shards, keep_days = 90;
END $$;
"""
_DELETION = "    IF EXISTS (SELECT FROM foliot.{table}) THEN DELETE FROM foliot.{table}; END IF;"


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
            _define(connection)
            _empty(connection, shards)
    else:
        if not kept:
            kept.append(psycopg.connect(dsn, autocommit=True))
            _define(kept[0])
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


def _define(connection: psycopg.Connection) -> None:
    """A function keeps its plans, so that a session plans the deletions once. Most tables stay empty in most tests."""
    tables = [name for (name,) in connection.execute(_TABLES)]
    deletions = "\n".join(_DELETION.format(table=_quoted(name)) for name in tables)
    connection.execute(_FUNCTION.format(deletions=deletions))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _empty(connection: psycopg.Connection, shards: int) -> None:
    connection.execute("SELECT pg_temp.empty_all(%s)", [shards])


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
