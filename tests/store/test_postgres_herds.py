"""Many ticks that are due at one moment, over many shards."""

from __future__ import annotations

import pytest

from foliot.domain.store import Lease
from foliot.errors import LostOwnership
from tests.contract.stage import Entry, Stage, deciding, declared, fires_hourly
from tests.servers.postgres import PostgresServer
from tests.store.lines import due_in, in_chunks, leased, stages

SHARDS, TICKS = 16, 150


async def test_a_herd_is_fired_whole(postgres: PostgresServer) -> None:
    async with stages(postgres, 1, shards=SHARDS) as (judge, [stage]):
        leases, due = await _herd(stage)
        fired = await stage.store.fire(leases, due, leases[0].cursor, deciding(fires_hourly))
        assert (fired.handed_off, fired.created, fired.stale, fired.busy) == (TICKS, TICKS, 0, [])
        assert await in_chunks(judge) == sorted(number for _, number in due)
        again = await stage.store.fire(leases, due, leases[0].cursor, deciding(fires_hourly))
        assert (again.handed_off, again.created, again.stale) == (0, 0, TICKS)


async def test_a_shard_that_was_lost_takes_nothing_from_the_herd_and_doubles_nothing(postgres: PostgresServer) -> None:
    async with stages(postgres, 1, shards=SHARDS) as (judge, [stage]):
        leases, due = await _herd(stage)
        await judge.execute("UPDATE foliot.shard SET epoch = epoch + 1 WHERE shard = 3")
        with pytest.raises(LostOwnership) as lost:
            await stage.store.fire(leases, due, leases[0].cursor, deciding(fires_hourly))
        assert lost.value.shards == {3}
        leases = [await leased(stage, shard) for shard in range(SHARDS)]
        await stage.store.fire(leases, due, leases[0].cursor, deciding(fires_hourly))
        assert await in_chunks(judge) == sorted(number for _, number in due)
        assert await judge.fetchval("SELECT count(*) FROM foliot.run WHERE fired_at IS NULL") == TICKS


async def _herd(stage: Stage) -> tuple[list[Lease], list[Entry]]:
    await stage.apply(*(declared(f"s{n}", stage.now) for n in range(TICKS)))
    leases = [await leased(stage, shard) for shard in range(SHARDS)]
    return leases, [entry for lease in leases for entry in await due_in(stage, lease)]
