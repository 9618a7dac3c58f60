"""The server itself goes away: stopped at once, started again, replaced by its replica. Each test has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from foliot.domain.instant import HOUR, SECOND
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres import PostgresStore
from tests.contract.stage import FAR, TTL, Stage, deciding, fires
from foliot.clock import SystemClock
from tests.servers.postgres import PostgresServer
from tests.store.lines import line


@pytest.fixture
def lazy_server() -> Iterator[PostgresServer]:
    """It forgets what was not flushed, as a crash of its host would; and flushes only what has to be."""
    with PostgresServer(settings={"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}) as server:
        yield server


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
