"""Stores on a real server: one with a network between the two that fails on demand, or several that race."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from foliot.clock import Clock, SystemClock
from foliot.domain.store import Lease
from foliot.store.postgres import PostgresStore
from tests.contract.stage import FAR, TTL, Entry, Stage
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy


@dataclass
class Line:
    """The store goes through the proxy; whoever judges asks the server itself."""

    store: PostgresStore
    proxy: Proxy
    stage: Stage
    dsn: str

    async def ask(self, sql: str, *values: Any) -> list[Any]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await connection.close()

    async def count(self, sql: str, *values: Any) -> int:
        [[found]] = await self.ask(f"SELECT count(*) FROM foliot.{sql}", *values)
        return int(found)

    async def runs(self) -> list[int]:
        """The numbers of all runs, live and ended: one that stands in both is there twice."""
        rows = await self.ask("SELECT number FROM foliot.run UNION ALL SELECT number FROM foliot.history ORDER BY 1")
        return [row[0] for row in rows]


@asynccontextmanager
async def line(
    server: PostgresServer, options: str = "", *, shards: int = 1, clock: Clock | None = None, **timeouts: float
) -> AsyncIterator[Line]:
    """By the server's own clock if none is given. `timeouts` are those of `Connections`, in seconds."""
    dsn = emptied(server, shards=shards)
    with Proxy(server.port) as proxy:
        store = PostgresStore(proxy.through(dsn) + options, clock)
        for name, seconds in timeouts.items():
            assert hasattr(store.connections, name)
            setattr(store.connections, name, seconds)
        await store.open()
        try:
            yield Line(store, proxy, Stage(store, clock or SystemClock()), dsn)  # type: ignore[arg-type]
        finally:
            proxy.thaw()
            proxy.allow()
            await store.close()


@asynccontextmanager
async def stages(server: PostgresServer, count: int, *, shards: int = 1) -> AsyncIterator[tuple[Any, list[Stage]]]:
    """A connection for judging, and so many stores on one database, each with a scheduler and a worker of its own."""
    dsn = emptied(server, shards=shards, by_socket=True)
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            store = PostgresStore(dsn)
            await store.open()
            stack.push_async_callback(store.close)
            made.append(Stage(store, SystemClock()))  # type: ignore[arg-type]
        judge = await asyncpg.connect(dsn)
        stack.push_async_callback(judge.close)
        yield judge, made


async def due_in(stage: Stage, lease: Lease) -> list[Entry]:
    return [entry for entry in await stage.loaded(lease) if entry[0] <= stage.now]


async def leased(stage: Stage, shard: int) -> Lease:
    lease = await stage.store.take(shard, await stage.scheduler(), TTL)
    assert lease is not None
    return (await stage.store.renew([lease], TTL, FAR))[0]


async def somebody_waits(judge: Any, count: int = 1) -> None:
    for _ in range(500):
        if await judge.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


async def in_chunks(judge: Any) -> list[int]:
    return [row[0] for row in await judge.fetch("SELECT unnest(numbers) FROM foliot.handoff ORDER BY 1")]
