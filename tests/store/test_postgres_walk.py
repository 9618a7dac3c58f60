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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_walk_loses_nothing_and_doubles_nothing(postgres: PostgresServer, seed: int) -> None:
    with Proxy(postgres.port) as proxy:
        walk = Walk(emptied(postgres), proxy, seed)
        await walk.begin(3)
        try:
            await asyncio.sleep(SECONDS)  # a walk takes time
            await walk.drain()
        finally:
            await walk.end()
        for stage in walk.stages:
            assert stage.store.shard_count == 16
        await walk.judge()
        print(f"{len(walk.acknowledged)} promises, {sum(walk.accepted.values())} endings; {dict(walk.told)}")
