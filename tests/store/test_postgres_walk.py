"""Random walks: everybody does everything at once over a network that breaks, and nothing is lost or doubled."""

from __future__ import annotations

import pytest

from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.store.walkers import Walk
from tests.tiers import by_tier, full_only
from tests.waiting import until_async

HOUR = 3_600
"""Seconds that no walk takes."""

SEEDS = range(by_tier(1, 2, 20))
BREAKS = by_tier(4, 12, 100)
"""How many things break in a walk."""
PROMISES = by_tier(60, 400, 4_000)
"""How many promises are acknowledged in it, at least."""


async def walked(server: PostgresServer, seed: int, *, crashes: bool) -> None:
    with Proxy(server.port) as proxy:
        walk = Walk(emptied(server), proxy, seed, server if crashes else None)
        await walk.begin(3)
        try:
            await until_async(
                lambda: walk.broken >= BREAKS and len(walk.acknowledged) >= PROMISES, "enough has happened and broken"
            )
            await walk.drain()
        finally:
            await walk.end()
        await walk.judge()
    print(f"{len(walk.acknowledged)} promises, {sum(walk.accepted.values())} endings, {dict(walk.told)}")


@full_only  # the other walk breaks the same things, and the server as well
@pytest.mark.timeout(HOUR)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_walk_loses_nothing_and_doubles_nothing(postgres: PostgresServer, seed: int) -> None:
    await walked(postgres, seed, crashes=False)


@pytest.mark.timeout(HOUR)
@pytest.mark.needs("postgres")
@pytest.mark.parametrize("seed", SEEDS[: (len(SEEDS) + 1) // 2])
async def test_nor_does_one_while_the_server_crashes(seed: int) -> None:
    # What need not be flushed is not, for as long as the server allows: a crash forgets it.
    with PostgresServer(settings={"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}) as server:
        await walked(server, seed, crashes=True)
