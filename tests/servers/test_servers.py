"""The servers that other tests stand on."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conftest import parts_of
from tests.servers.home import ServerFailed
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer, Settings
from tests.tiers import full_only
from tests.waiting import HANG, soon, until, until_async

pytestmark = pytest.mark.needs("postgres")

ROOT = Path(__file__).parents[2]
SETTINGS: Settings = {"cluster_name": "it's ours", "jit": False, "work_mem": "5MB", "max_connections": 17}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One to stop, freeze and follow: never the session's."""
    with PostgresServer(settings=SETTINGS) as made:
        yield made


# --------------------------------------------------------------------------------------------------------------- server


def test_what_a_server_acknowledges_is_durable(postgres: PostgresServer) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
        assert postgres.psql(f"SHOW {setting}") == "on"


def test_a_server_is_reached_over_the_loopback_and_its_socket_only(postgres: PostgresServer) -> None:
    assert postgres.psql("SHOW listen_addresses") == "127.0.0.1"
    for dsn in (postgres.dsn(), postgres.socket_dsn()):
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_does_not_run_as_root(postgres: PostgresServer) -> None:
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


@full_only
def test_settings_reach_the_server_as_they_were_given(server: PostgresServer) -> None:
    assert [server.psql(f"SHOW {name}") for name in SETTINGS] == ["it's ours", "off", "5MB", "17"]


def test_a_committed_row_survives_an_immediate_stop(server: PostgresServer) -> None:
    server.create_database("kept")
    with psycopg.connect(server.dsn("kept")) as connection:
        connection.execute("CREATE TABLE promise AS SELECT 1 AS number")
        connection.commit()
        connection.execute("INSERT INTO promise VALUES (2)")
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    assert "was not properly shut down" in server.log.read_text()
    assert server.psql("SELECT number FROM promise", "kept") == "1"


def test_a_frozen_server_keeps_connections_and_answers_when_thawed(server: PostgresServer) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        backend = connection.info.backend_pid
        server.freeze()
        try:
            states = {Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in (server.pid, backend)}
        finally:
            server.thaw()
        assert states == {"T"}
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerFailed, match='unrecognized configuration parameter "no_such_setting"'):
        PostgresServer(settings={"no_such_setting": 1}).__enter__()


def test_nothing_of_a_server_outlives_its_killed_owner() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, janitor, home = owner.stdout.readline().split()
        assert int(pid) in running("postgres")
        cleaned = os.pidfd_open(int(janitor))
        owner.kill()
    ended, _, _ = select.select([cleaned], [], [], HANG)
    os.close(cleaned)
    assert ended
    assert not Path(home).exists()
    assert int(pid) not in running("postgres")


def running(program: str) -> set[int]:
    """Who runs it. One that is dead, and not yet reaped, has no command line any more."""
    found = set()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if program.encode() in command.read_bytes().partition(b"\0")[0]:
                found.add(int(command.parent.name))
    return found


OWNER = """
from tests.servers.postgres import PostgresServer
with PostgresServer() as server:
    server.freeze()
    print(server.pid, server.home._janitor.pid, server.home.path, flush=True)
    input()
"""


# ------------------------------------------------------------------------------------------------------------- replicas


@full_only
def test_a_replica_follows_and_can_be_promoted(server: PostgresServer) -> None:
    with server.replica() as replica:
        server.psql("CREATE TABLE followed AS SELECT 1 AS number")
        replica.catch_up()
        assert replica.psql("SELECT number FROM followed") == "1"
        with pytest.raises(ServerFailed, match="read-only"):
            replica.psql("INSERT INTO followed VALUES (2)")
        server.stop("immediate")
        replica.promote()
        replica.psql("INSERT INTO followed VALUES (2)")
        assert replica.psql("SELECT count(*) FROM followed") == "2"
        server.start()


@full_only
def test_a_synchronous_replica_has_what_the_primary_acknowledged(server: PostgresServer) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with server.replica(synchronous=True) as replica, ThreadPoolExecutor() as pool:
        replica.freeze()
        acknowledged = pool.submit(server.psql, "CREATE TABLE promise AS SELECT 1 AS number")

        def commit_waits() -> bool:
            assert not acknowledged.done()
            return server.psql(waiting) == "1"

        until(commit_waits, "the commit waits for the replica")
        replica.thaw()
        acknowledged.result()
        server.stop("immediate")
        replica.promote()
        assert replica.psql("SELECT number FROM promise") == "1"
        server.start()


@full_only
def test_a_replica_that_is_closed_is_not_waited_for(server: PostgresServer) -> None:
    server.replica(synchronous=True).close()
    server.psql("CREATE TABLE acknowledged (number int)")
    assert server.psql("SELECT count(*) FROM pg_replication_slots") == "0"  # each keeps the log from being removed


# ------------------------------------------------------------------------------------------------------------ pgbouncer


@pytest.mark.needs("pgbouncer")
async def test_a_pooler_in_transaction_mode_hands_one_connection_to_many_clients(
    postgres: PostgresServer, database: str
) -> None:
    with PgBouncer(postgres, pool_size=1) as pooler:
        clients = [await asyncpg.connect(pooler.through(database), statement_cache_size=0) for _ in range(3)]
        backends = {await client.fetchval("SELECT pg_backend_pid()") for client in clients}
        async with clients[0].transaction():
            holder = await clients[0].fetchval("SELECT pg_backend_pid()")
            waiting = asyncio.create_task(clients[1].fetchval("SELECT 1"))
            await until_async(lambda: clients_that_wait(pooler) == 1, "another client waits for the connection")
            assert not waiting.done()
        assert await soon(waiting) == 1
        for client in clients:
            client.terminate()
    assert backends == {holder}


def clients_that_wait(pooler: PgBouncer) -> int:
    """What the pooler itself says. It understands the simple protocol alone."""
    with psycopg.connect(pooler.dsn("pgbouncer"), autocommit=True) as connection:
        cursor = psycopg.ClientCursor(connection, row_factory=dict_row)
        return sum(pool["cl_waiting"] for pool in cursor.execute("SHOW POOLS"))


def test_a_restarted_pooler_takes_connections_again(pgbouncer: PgBouncer, database: str) -> None:
    pgbouncer.restart()
    with psycopg.connect(pgbouncer.through(database)) as connection:
        assert connection.info.port == pgbouncer.port
        assert connection.execute("SELECT 1").fetchone() == (1,)


# ------------------------------------------------------------------------------------------------------------- fixtures


def test_each_test_has_an_empty_database_of_its_own(database: str, postgres: PostgresServer) -> None:
    with psycopg.connect(database) as connection:
        assert connection.info.port == postgres.port
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_who_asks_for_a_database_needs_a_server(request: pytest.FixtureRequest, database: str) -> None:
    assert database
    assert "postgres" in parts_of(request.node)
