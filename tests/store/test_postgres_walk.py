"""Random walks: everybody does everything at once over a network that breaks, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.store.walkers import Walk

TORTURE = bool(os.environ.get("FOLIOT_TORTURE"))
SEEDS = range(20) if TORTURE else range(2)
SECONDS = 30 if TORTURE else 4


async def walked(server: PostgresServer, seed: int, *, crashes: bool) -> None:
    with Proxy(server.port) as proxy:
        walk = Walk(emptied(server), proxy, seed, server if crashes else None)
        await walk.begin(3)
        try:
            await asyncio.sleep(SECONDS)  # a walk takes time
            await walk.drain()
        finally:
            await walk.end()
        await walk.judge()
    print(f"{len(walk.acknowledged)} promises, {sum(walk.accepted.values())} endings, {dict(walk.told)}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_walk_loses_nothing_and_doubles_nothing(postgres: PostgresServer, seed: int) -> None:
    await walked(postgres, seed, crashes=False)


@pytest.mark.timeout(300)
@pytest.mark.needs("postgres")
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 2])
async def test_nor_does_one_while_the_server_crashes(seed: int) -> None:
    # What need not be flushed is not, for as long as the server allows: a crash forgets it.
    with PostgresServer(settings={"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}) as server:
        await walked(server, seed, crashes=True)
