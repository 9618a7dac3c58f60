"""The server itself goes away: stopped at once, started again, replaced by its replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from foliot.clock import SystemClock
from foliot.domain.instant import HOUR
from foliot.domain.run import Promise
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres import PostgresStore
from tests.contract.stage import FAR, TTL, Stage
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.store.lines import end_waits_for_answers, line
from tests.tiers import by_tier
from tests.waiting import until_async


@pytest.fixture(scope="module")
def lazy_server() -> Iterator[PostgresServer]:
    """It forgets what was not flushed, as a crash of its host would; and flushes only what has to be. Each test
    leaves it running."""
    with PostgresServer(settings={"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}) as server:
        yield server


async def more(acknowledged: list[int], count: int) -> None:
    """Until `count` more are acknowledged."""
    wanted = len(acknowledged) + count
    await until_async(lambda: len(acknowledged) >= wanted, f"{count} more promises are acknowledged")


async def test_a_promise_made_after_a_crash_is_told_although_its_transactions_number_was_used_before(
    lazy_server: PostgresServer,
) -> None:
    async with line(lazy_server) as to:
        owner = await to.stage.scheduler()
        lease = await to.stage.lease(owner)
        # Transactions that nobody waits for: a crash forgets them, and their numbers are given out again.
        for _ in range(100):
            await to.store.standing(owner, TTL)
        cursor = (await to.store.arrivals([lease], lease.cursor)).cursor
        lazy_server.restart("immediate")
        kept = await to.stage.promise()
        try:
            told = list((await to.store.arrivals([lease], cursor)).number)
        except LostOwnership:
            told = [number for _, number in await to.stage.loaded(await to.stage.lease(owner))]
        assert told == [kept.number]


async def test_a_change_is_not_called_done_because_another_transaction_got_its_number_after_a_crash(
    lazy_server: PostgresServer,
) -> None:
    async with line(lazy_server) as to:
        kept = await to.stage.promise("class:7", after=HOUR)
        fault = to.proxy.freeze_before_commit("SET fire_at = ")
        moving = asyncio.create_task(to.store.move("class:7", None, FAR))
        await fault
        [[number]] = await to.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        lazy_server.restart("immediate")
        connection = await asyncpg.connect(to.dsn)
        while await connection.fetchval("SELECT pg_current_xact_id()::text::bigint") < number:
            pass
        await connection.close()
        to.proxy.cut_all()
        try:
            await moving
            moved = True
        except StoreError:
            moved = False  # not known; whoever looks sees it
        fire_at = (await to.stage.run(kept)).fire_at
        assert fire_at == FAR or not moved


# ------------------------------------------------------------------------------------------------------------ absences


async def test_a_store_goes_on_by_itself_when_its_server_was_restarted(lazy_server: PostgresServer) -> None:
    async with line(lazy_server) as to:
        before = await to.stage.promise()
        lazy_server.restart("immediate")
        after = await to.stage.promise("class:7")
        await to.stage.fire()
        runs = await to.stage.claim()
        lazy_server.restart("immediate")
        endings = [to.stage.succeeded(run) for run in runs]
        with contextlib.suppress(StoreError):  # a worker says it again until it is heard
            await to.stage.finish(*endings)
        assert await to.stage.finish(*endings) == []
        assert await to.runs() == [before.number, after.number]
        assert await to.count("history") == 2


async def test_what_was_acknowledged_while_the_server_crashed_is_there_afterwards(lazy_server: PostgresServer) -> None:
    async with line(lazy_server) as to:
        acknowledged: list[int] = []
        going = True

        async def produce(key: str | None) -> None:
            count = 0
            while going:
                count += 1
                wanted = [Promise("job", b"{}", to.stage.now + HOUR, key=key and f"{key}:{count}") for _ in range(3)]
                with contextlib.suppress(StoreError):  # not acknowledged: it may be there or not
                    acknowledged.extend({one.number for one in await to.store.promise(wanted[: 1 + count % 3])})

        producing = [asyncio.create_task(produce(key)) for key in (None, "a", None, "b")]
        for _ in range(by_tier(1, 3)):
            await more(acknowledged, 50)
            await asyncio.to_thread(lazy_server.restart, "immediate")
        await more(acknowledged, 50)
        going = False
        await asyncio.gather(*producing)
        found = await to.runs()
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        named = await to.ask("SELECT name, count(*) FROM foliot.run WHERE name IS NOT NULL GROUP BY name")
        assert {row[1] for row in named} == {1}


async def test_a_server_that_refuses_for_a_moment_is_waited_for(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with line(postgres) as to:
        tries, connect = [], to.store.connections._connect

        async def try_to_connect(*arguments: Any) -> Any:
            tries.append(arguments)
            return await connect(*arguments)

        monkeypatch.setattr(to.store.connections, "_connect", try_to_connect)
        to.proxy.refuse()
        to.proxy.cut_all()
        making = asyncio.create_task(to.stage.promise(after=HOUR))
        await until_async(lambda: len(tries) > 3, "the server has refused three connections")
        assert not making.done()
        to.proxy.allow()
        assert (await making).outcome == "made"


async def test_a_server_that_refuses_for_long_is_an_error_that_says_where(postgres: PostgresServer) -> None:
    async with line(postgres, patience=0) as to:
        to.proxy.refuse()
        to.proxy.cut_all()
        for act in (to.stage.promise(after=HOUR), to.store.schedules(), to.stage.claim(worker=1)):
            with pytest.raises(StoreError, match=f"127.0.0.1:{to.proxy.port}/contract cannot be reached"):
                await act
        to.proxy.allow()
        assert await to.store.schedules() == []


async def test_a_half_open_connection_ends_by_timeouts(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        kept = await to.stage.promise()
        to.proxy.freeze()
        connections = to.store.connections
        usual = connections.connect_timeout, connections.patience
        # No connection can be made through a frozen proxy, however long a caller waits for one.
        connections.connect_timeout, connections.patience = 0.2, 0
        verbs = (
            to.stage.promise(after=HOUR),
            to.stage.promise("class:7", after=HOUR),
            to.store.schedules(),
            to.store.standing(1, TTL),
            to.store.now(),
        )
        answering = asyncio.gather(*verbs, return_exceptions=True)

        def are_answered() -> bool:
            end_waits_for_answers()
            return answering.done()

        await until_async(are_answered, "each verb has given up")
        answers = await answering
        assert all(isinstance(answer, StoreError) for answer in answers), answers
        connections.connect_timeout, connections.patience = usual
        to.proxy.thaw()
        # What was refused may have happened; what happens from now on happens.
        await to.stage.fire()
        assert kept.number in [run.number for run in await to.stage.claim()]
        names = [row[0] for row in await to.ask("SELECT name FROM foliot.run WHERE name IS NOT NULL")]
        assert len(names) <= 1


async def test_a_store_with_a_read_only_primary_looks_for_another_one(postgres: PostgresServer) -> None:
    """A connection that was made before its server stopped being the primary is not used for ever."""
    async with line(postgres) as to:
        await to.stage.promise(after=HOUR)
        [pools] = to.store.connections._loops.values()
        for pool in (pools.plain, pools.hot):
            connection = await pool.acquire(1.0)
            await connection.execute("SET default_transaction_read_only = on")
            pool.release(connection)
        await to.stage.promise(after=HOUR)
        await to.stage.promise("class:7", after=HOUR)
        await to.store.move("class:7", None, FAR)


# ------------------------------------------------------------------------------------------------------------- failover


async def test_a_store_refuses_a_standby_and_follows_the_primary_with_all_that_was_acknowledged() -> None:
    with PostgresServer() as primary, primary.replica(synchronous=True) as replica:
        database = urlsplit(primary.dsn())
        # A standby alone is refused.
        for options in ("", "?target_session_attrs=any"):
            with pytest.raises(StoreError, match=r"standby|read-write"):
                await PostgresStore(replica.dsn() + options).open()
        hosts = f"127.0.0.1:{replica.port},127.0.0.1:{primary.port}"
        store = PostgresStore(database._replace(netloc=f"postgres@{hosts}").geturl())
        await store.open()
        stage = Stage(store, SystemClock())  # type: ignore[arg-type]
        lease = await store.take(0, await stage.scheduler(), TTL)
        assert lease is not None
        acknowledged: list[int] = []
        going = True

        async def produce(key: str) -> None:
            count = 0
            while going:
                count += 1
                try:
                    kept = await stage.promise(f"{key}:{count}" if count % 2 else None, after=HOUR)
                except StoreError:
                    continue
                acknowledged.append(kept.number)

        producing = [asyncio.create_task(produce(key)) for key in "abc"]
        await more(acknowledged, 100)
        primary.stop("immediate")
        await asyncio.to_thread(replica.promote)
        replica.psql("ALTER SYSTEM RESET synchronous_standby_names")
        replica.psql("SELECT pg_reload_conf()")
        await more(acknowledged, 100)
        going = False
        await asyncio.gather(*producing)
        with pytest.raises(LostOwnership):  # the cursor is another server's
            await store.arrivals([lease], lease.cursor)
        await store.close()
        found = replica.psql("SELECT number FROM foliot.run").split()
        assert set(map(str, acknowledged)) <= set(found)
        assert len(found) == len(set(found))
        assert int(replica.psql("SELECT count(*) - count(DISTINCT name) FROM foliot.run WHERE name IS NOT NULL")) == 0


# ---------------------------------------------------------------------------------------------- what keeps no promises


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_may_lose_everything_is_refused(lazy_server: PostgresServer, setting: str) -> None:
    async def becomes(value: str) -> None:
        await until_async(lambda: lazy_server.psql(f"SHOW {setting}") == value, f"{setting} is {value}")

    lazy_server.start()
    lazy_server.psql(f"ALTER SYSTEM SET {setting} = off")
    lazy_server.psql("SELECT pg_reload_conf()")
    try:
        await becomes("off")
        with pytest.raises(StoreError, match=f"{setting}=off"):
            await PostgresStore(lazy_server.dsn()).open()
    finally:
        lazy_server.psql(f"ALTER SYSTEM RESET {setting}")
        lazy_server.psql("SELECT pg_reload_conf()")
        await becomes("on")


async def test_a_server_that_acknowledges_before_it_writes_is_warned_about(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = emptied(postgres)
    name = dsn.rpartition("/")[2]
    postgres.psql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    try:
        store = PostgresStore(dsn)
        with caplog.at_level(logging.WARNING, "foliot.store"):
            await store.open()
        await store.close()
    finally:
        postgres.psql(f"ALTER DATABASE {name} RESET synchronous_commit")
    assert "synchronous_commit=off" in caplog.text
