"""Each fault of the proxy, proved on a real server with the drivers that are used through it."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator

import asyncpg
import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Fault, Proxy
from tests.waiting import soon, until_async

GONE = (OSError, psycopg.OperationalError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)
"""How the drivers say that the connection is no more."""

INSERT = "INSERT INTO note (id, text) VALUES (1, 'first')"


@pytest.fixture(scope="module")
def cleaning(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    """A session that stays: a new database for each test would cost more than the tests."""
    postgres.create_database("proxied")
    with psycopg.connect(postgres.dsn("proxied"), autocommit=True) as connection:
        yield connection
    postgres.drop_database("proxied")


@pytest.fixture
def database(postgres: PostgresServer, cleaning: psycopg.Connection) -> str:
    """With one table, empty, and without a session of an earlier test: that could hold a lock."""
    cleaning.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    cleaning.execute(
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE note (id int PRIMARY KEY, text text)"
    )
    return postgres.dsn("proxied")


@pytest.fixture
def proxy(postgres: PostgresServer, database: str) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def dsn(proxy: Proxy, database: str) -> str:
    return proxy.through(database)


def notes(database: str) -> list[int]:
    """What the server itself has, asked without the proxy."""
    with psycopg.connect(database) as connection:
        return [number for (number,) in connection.execute("SELECT id FROM note ORDER BY id")]


# --------------------------------------------------------------------------------------- the ways to commit one row


async def asyncpg_block(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO note (id, text) VALUES ($1, $2)", 1, "first")
            await connection.fetchval("SELECT count(*) FROM note")
    finally:
        connection.terminate()


async def asyncpg_statement(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.fetchval("INSERT INTO note (id, text) VALUES ($1, $2) RETURNING id", 1, "first")
    finally:
        connection.terminate()


async def asyncpg_statement_uncached(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        await connection.execute("INSERT INTO note (id, text) VALUES ($1, $2)", 1, "first")
    finally:
        connection.terminate()


async def asyncpg_simple(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(INSERT)
    finally:
        connection.terminate()


async def asyncpg_many(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        rows = [(number, "x" * 1_000) for number in range(1, 500)]
        await connection.executemany("INSERT INTO note (id, text) VALUES ($1, $2)", rows)
    finally:
        connection.terminate()


async def asyncpg_copy(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.copy_records_to_table("note", records=[(1, "first")])
    finally:
        connection.terminate()


async def psycopg_block(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("INSERT INTO note (id, text) VALUES (%s, %s)", (1, "first"))


async def psycopg_statement(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("INSERT INTO note (id, text) VALUES (%s, %s)", (1, "first"))


async def psycopg_pipeline(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection, connection.pipeline():
        await connection.execute("INSERT INTO note (id, text) VALUES (%s, %s)", (1, "first"))
        await connection.commit()
        await connection.execute("SELECT 1")


async def psycopg_copy(dsn: str) -> None:
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY note (id, text) FROM STDIN") as copy,
    ):
        await copy.write_row((1, "first"))


Way = Callable[[str], Awaitable[None]]

every_way = pytest.mark.parametrize(
    "commit",
    [
        asyncpg_block,
        asyncpg_statement,
        asyncpg_statement_uncached,
        asyncpg_simple,
        asyncpg_many,
        asyncpg_copy,
        psycopg_block,
        psycopg_statement,
        psycopg_pipeline,
        psycopg_copy,
    ],
)


@every_way
async def test_without_a_fault_every_way_to_commit_passes(commit: Way, dsn: str, database: str) -> None:
    await commit(dsn)
    assert notes(database)[0] == 1


@every_way
async def test_a_cut_before_the_commit_loses_it(commit: Way, proxy: Proxy, dsn: str, database: str) -> None:
    cut = proxy.cut_before_commit()
    with pytest.raises(GONE):
        await commit(dsn)
    assert cut.happened
    assert notes(database) == []
    await commit(dsn)  # a fault happens once
    assert notes(database)[0] == 1


@every_way
async def test_a_cut_after_the_commit_keeps_it(commit: Way, proxy: Proxy, dsn: str, database: str) -> None:
    cut = proxy.cut_after_commit()
    with pytest.raises(GONE):
        await commit(dsn)
    assert cut.happened
    assert notes(database)[0] == 1


# -------------------------------------------------------------------------------------------- which commit is meant


@pytest.mark.parametrize("arm", [Proxy.cut_before_commit, Proxy.cut_after_commit])
async def test_only_a_transaction_with_that_statement_is_cut(
    arm: Callable[[Proxy, str], Fault], proxy: Proxy, dsn: str, database: str
) -> None:
    cut = arm(proxy, "update  NOTE set")
    await asyncpg_statement(dsn)
    assert not cut.happened
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await connection.execute("INSERT INTO note VALUES (2, 'second')")
    await connection.execute("BEGIN")
    await connection.execute("UPDATE note\nSET text = $1", "changed")
    await connection.execute("INSERT INTO note VALUES (3, 'third')")
    with pytest.raises(GONE):
        await connection.execute("COMMIT")
    assert cut.happened
    assert notes(database) == ([1, 2] if cut.when == "before" else [1, 2, 3])
    connection.terminate()


def test_what_is_rolled_back_is_no_commit(proxy: Proxy, dsn: str, database: str) -> None:
    cut = proxy.cut_before_commit(where="INSERT")
    with psycopg.connect(dsn) as connection:
        connection.execute(INSERT)
        connection.rollback()
        connection.execute("SELECT 1")
        connection.commit()
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(INSERT + "; SELECT 1 / 0")
        connection.execute("COMMIT")  # which the server answers with ROLLBACK
        assert not cut.happened
        with psycopg.connect(dsn, autocommit=True) as other:
            with pytest.raises(psycopg.errors.DivisionByZero):
                other.execute("SELECT 1 / 0; BEGIN; " + INSERT)
            other.execute("SELECT 1")  # no block was opened, and no INSERT is left over from it
        assert not cut.happened
        connection.execute(INSERT)
        with connection.transaction() as savepoint:
            raise psycopg.Rollback(savepoint)
        assert not cut.happened
        with pytest.raises(GONE):
            connection.commit()  # what stands before the savepoint was still to be committed
    assert cut.happened
    assert notes(database) == []


async def test_a_commit_that_the_server_refuses_is_not_cut_after(proxy: Proxy, dsn: str, database: str) -> None:
    cut = proxy.cut_after_commit(where="INSERT")
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("INSERT INTO note (id) VALUES (%s)", (None,))
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("INSERT INTO note (id) VALUES (NULL)")
        assert not cut.happened
        with pytest.raises(GONE):
            connection.execute("INSERT INTO note (id) VALUES (%s)", (1,))
    assert cut.happened
    assert notes(database) == [1]


def test_a_deferred_check_that_fails_at_commit_is_heard(proxy: Proxy, dsn: str, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("ALTER TABLE note ADD UNIQUE (text) DEFERRABLE INITIALLY DEFERRED")
        connection.execute(INSERT)
    cut = proxy.cut_after_commit()
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO note VALUES (2, 'first')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.commit()
    assert not cut.happened
    assert notes(database) == [1]


def test_a_sync_that_the_server_skips_during_copy_does_not_lead_the_proxy_astray(
    proxy: Proxy, dsn: str, database: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        libpq = connection.pgconn
        libpq.exec_params(b"COPY note (id, text) FROM STDIN", [])  # sends one Sync at once, and another at the end
        libpq.put_copy_data(b"1\tfirst\n")
        libpq.put_copy_end()
        answered = True
        while answered:
            while libpq.is_busy():
                select.select([libpq.socket], [], [])  # unlike libpq's own waiting, this lets the proxy's thread run
                libpq.consume_input()
            answered = libpq.get_result() is not None
        cut = proxy.cut_after_commit()
        with pytest.raises(GONE):
            connection.execute("INSERT INTO note VALUES (%s, 'second')", (2,))
    assert cut.happened
    assert notes(database) == [1, 2]


def test_a_function_that_writes_has_to_be_named(proxy: Proxy, dsn: str, database: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION jot(n int) RETURNS void LANGUAGE sql BEGIN ATOMIC INSERT INTO note VALUES (n, ''); END"
        )
        unnamed, named = proxy.cut_after_commit(), proxy.cut_after_commit(where="jot(")
        with pytest.raises(GONE):
            connection.execute("/* by hand */ SELECT jot(%s)", (1,))
    assert named.happened
    assert not unnamed.happened
    assert notes(database) == [1]
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT jot(%s)", (2,))
        with pytest.raises(GONE):
            connection.commit()  # a COMMIT is always meant
    assert unnamed.happened
    assert notes(database) == [1, 2]


def test_where_may_be_any_function_of_the_text(proxy: Proxy, dsn: str) -> None:
    cut = proxy.cut_before(re.compile(r"^-- name: second$", re.MULTILINE).search)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("-- name: first\nSELECT 1")
        with pytest.raises(GONE):
            connection.execute("-- name: second\nSELECT 1")
    assert cut.happened
    assert list(proxy.seen)[-2:] == ["-- name: first\nSELECT 1", "-- name: second\nSELECT 1"]


def test_a_fault_that_does_not_happen_says_what_was_waited_for(proxy: Proxy) -> None:
    cut = proxy.cut_before_commit(where="DELETE FROM note")
    with pytest.raises(
        TimeoutError, match=r"cut_before_commit\(where='DELETE FROM note'\) did not happen .*proxy.seen"
    ):
        cut.wait(timeout=0)


async def test_a_fault_whose_connection_is_lost_on_the_way_waits_for_the_next(
    proxy: Proxy, dsn: str, database: str
) -> None:
    cut = proxy.cut_after_commit()
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE note")
        blocked = asyncio.create_task(asyncpg_simple(dsn))
        waiting = "SELECT FROM pg_locks WHERE NOT granted"
        await until_async(lambda: other.execute(waiting).rowcount, "the INSERT waits for the lock")
        proxy.cut_all()
        with pytest.raises(GONE):
            await blocked
    assert not cut.happened
    with psycopg.connect(dsn, autocommit=True) as connection, pytest.raises(GONE):
        connection.execute("INSERT INTO note VALUES (2, 'second')")
    assert cut.happened


async def test_who_gives_up_waiting_does_not_call_the_fault_off(proxy: Proxy, dsn: str) -> None:
    cut = proxy.cut_before_commit()
    waiting = asyncio.ensure_future(cut)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(GONE):
        await asyncpg_block(dsn)
    await cut


# ------------------------------------------------------------------------------------------- half-open connections


async def test_a_commit_that_froze_on_its_way_arrives_when_it_thaws(proxy: Proxy, dsn: str, database: str) -> None:
    freeze = proxy.freeze_before_commit(where="INSERT")
    frozen = asyncio.create_task(asyncpg_block(dsn))
    await freeze
    with psycopg.connect(dsn) as other:  # one connection is frozen: the network is not
        states = other.execute("SELECT state FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    assert ("idle in transaction",) in states
    assert notes(database) == []
    assert not frozen.done()
    proxy.thaw()
    await frozen
    assert notes(database) == [1]


async def test_the_server_does_the_work_of_a_single_statement_though_its_commit_froze(
    proxy: Proxy, dsn: str, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as direct:
        direct.execute("CREATE SEQUENCE numbers")  # what it gave out is seen at once, committed or not
        freeze = proxy.freeze_before_commit()
        connection = await asyncpg.connect(dsn)
        insert = "INSERT INTO note VALUES (nextval('numbers'), $1)"
        frozen = asyncio.create_task(connection.execute(insert, "first"))
        await freeze
        used = "SELECT FROM numbers WHERE is_called"
        await until_async(lambda: direct.execute(used).rowcount, "the INSERT was executed")
        assert notes(database) == []
    proxy.cut_all()
    with pytest.raises(GONE):
        await frozen
    assert notes(database) == []


@pytest.mark.parametrize("commit", [asyncpg_block, asyncpg_statement, psycopg_statement])
async def test_an_answer_that_froze_on_its_way_arrives_when_it_thaws(
    commit: Way, proxy: Proxy, dsn: str, database: str
) -> None:
    freeze = proxy.freeze_after_commit(where="INSERT")
    frozen = asyncio.ensure_future(commit(dsn))
    await freeze
    assert notes(database) == [1]
    assert not frozen.done()
    proxy.thaw()
    await frozen


async def test_a_frozen_transaction_keeps_its_locks_though_its_client_has_gone(
    proxy: Proxy, dsn: str, database: str
) -> None:
    freeze = proxy.freeze_before("UPDATE")
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN; LOCK TABLE note")
    update = asyncio.create_task(connection.execute("UPDATE note SET text = ''"))
    await freeze
    connection.terminate()
    with pytest.raises(GONE):
        await update
    with psycopg.connect(database) as other:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("LOCK TABLE note NOWAIT")
        other.rollback()
        proxy.thaw()
        other.execute("LOCK TABLE note")  # granted once the server has heard that the client has gone


async def test_a_frozen_network_does_not_tell_that_an_end_was_reset(proxy: Proxy, dsn: str, database: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN; LOCK TABLE note")
    proxy.freeze()
    transport = connection._transport  # below the driver, which would say goodbye first
    reset = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    transport.abort()
    async with await psycopg.AsyncConnection.connect(database) as other:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await other.execute("LOCK TABLE note NOWAIT")
        await other.rollback()
        proxy.thaw()
        await other.execute("LOCK TABLE note")


async def test_a_frozen_network_passes_nothing_on_until_it_thaws(proxy: Proxy, dsn: str, database: str) -> None:
    """What is said first through the frozen network comes second: after what is said later, and directly."""
    with psycopg.connect(database, autocommit=True) as direct:
        direct.execute("CREATE SEQUENCE numbers")
        take, present = "SELECT nextval('numbers')", "SELECT FROM pg_stat_activity WHERE application_name = 'late'"
        connection = await asyncpg.connect(dsn)
        proxy.freeze()
        asked = asyncio.create_task(connection.fetchval(take))
        late = asyncio.create_task(asyncpg.connect(dsn, server_settings={"application_name": "late"}))
        for _ in range(20):  # turns of the loop here, and of the proxy's: what could pass would have passed
            await asyncio.sleep(0)
            proxy.freeze()
        assert direct.execute(take).fetchone() == (1,)
        assert direct.execute(present).rowcount == 0
        proxy.thaw()
        assert await soon(asked) == 2
        other = await soon(late)
        assert direct.execute(present).rowcount == 1
    await other.close()
    await connection.close()


async def test_a_frozen_connection_can_be_cut(proxy: Proxy, dsn: str, database: str) -> None:
    freeze = proxy.freeze_before_commit()
    frozen = asyncio.create_task(asyncpg_block(dsn))
    await freeze
    proxy.cut_all()
    with pytest.raises(GONE):
        await frozen
    assert notes(database) == []


# ----------------------------------------------------------------------------------------------- the network as a whole


def test_latency_is_added_in_both_directions(proxy: Proxy, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        proxy.delay(0.05)
        before = time.monotonic()
        connection.execute("SELECT 1")
        assert time.monotonic() - before >= 0.1
        proxy.delay(0)


async def test_every_connection_is_dropped_and_a_new_one_works(proxy: Proxy, dsn: str) -> None:
    connections = [await asyncpg.connect(dsn) for _ in range(3)]
    proxy.cut_all()
    for connection in connections:
        with pytest.raises(GONE):
            await connection.fetchval("SELECT 1")
    await asyncpg_statement(dsn)


def test_new_connections_are_refused_until_they_are_allowed(proxy: Proxy, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        proxy.refuse()
        with pytest.raises(GONE):
            psycopg.connect(dsn)
        connection.execute("SELECT 1")
        proxy.allow()
        psycopg.connect(dsn).close()


def test_a_server_that_is_not_there_is_a_connection_error(proxy: Proxy, dsn: str) -> None:
    proxy.server_port = proxy.port + 1 if proxy.port < 65_535 else 1
    with pytest.raises(GONE):
        psycopg.connect(dsn)


# ------------------------------------------------------------------------------------------- what must pass unharmed


async def test_a_request_to_cancel_reaches_the_server(dsn: str, database: str) -> None:
    connection = await asyncpg.connect(dsn)
    sleeping = asyncio.create_task(connection.fetchval("SELECT pg_sleep(3600)"))
    asleep = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    with psycopg.connect(database, autocommit=True) as direct:
        await until_async(lambda: direct.execute(asleep).rowcount, "the server executes it")
    sleeping.cancel()  # the driver then asks the server to cancel, on a connection of its own
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await soon(connection.fetchval("SELECT 1")) == 1
    await connection.close()


async def test_large_messages_pass_whole_in_both_directions(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    large = "x" * 3_000_000
    assert await connection.fetchval("SELECT $1::text", large) == large
    await connection.copy_records_to_table("note", records=[(number, "y" * 100) for number in range(20_000)])
    rows = await connection.fetch("SELECT id FROM note ORDER BY id")
    assert [row["id"] for row in rows] == list(range(20_000))
    await connection.close()


async def test_notifications_pass_while_nothing_is_asked(dsn: str, database: str) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    connection = await asyncpg.connect(dsn)
    await connection.add_listener("bell", lambda *words: heard.put_nowait(words[-1]))
    with psycopg.connect(database) as other:
        other.execute("NOTIFY bell, 'dong'")
    assert await heard.get() == "dong"
    await connection.close()
