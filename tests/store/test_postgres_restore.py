"""A dump that is restored into another cluster brings the numbers of transactions that this one has never had."""

from __future__ import annotations

import asyncpg

from foliot.clock import SystemClock
from foliot.domain.instant import HOUR
from foliot.store.postgres import PostgresStore
from tests.contract.stage import Stage, entries
from tests.servers.postgres import PostgresServer
from tests.store.lines import leased, stages

_AS_RESTORED = """
UPDATE foliot.run SET xid = '987654321000';
UPDATE foliot.stir SET xid = '987654321000';
UPDATE foliot.life SET cluster = cluster + 1;
"""


async def test_runs_of_a_dump_that_was_restored_into_another_cluster_are_seen(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [before]):
        kept = await before.promise(after=HOUR)
        due = await before.promise()
        await judge.execute(_AS_RESTORED)
        store = PostgresStore(before.store.where.dsn)  # type: ignore[attr-defined]
        await store.open()
        after = Stage(store, SystemClock())  # type: ignore[arg-type]
        lease = await leased(after, 0)
        assert await after.loaded(lease) == [(due.fire_at, due.number), (kept.fire_at, kept.number)]
        assert entries(await store.arrivals([lease], lease.cursor)) == []
        assert (await after.fire()).handed_off == 1
        [run] = await after.claim()
        assert run.number == due.number
        await store.close()


async def test_a_store_that_is_opened_again_does_not_begin_a_new_life(database: str) -> None:
    """Or every start would fence all schedulers that run."""
    lives = set()
    for _ in range(2):
        store = PostgresStore(database)
        await store.open()
        await store.close()
        connection = await asyncpg.connect(database)
        lives.add(await connection.fetchval("SELECT began FROM foliot.life"))
        await connection.close()
    assert len(lives) == 1
