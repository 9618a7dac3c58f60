"""A store on a real server, with a network between the two that fails on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from foliot.clock import Clock, SystemClock
from foliot.store.postgres import PostgresStore
from tests.contract.stage import Stage
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
            return await connection.fetch(sql, *values)
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
            assert hasattr(store._connections, name)
            setattr(store._connections, name, seconds)
        await store.open()
        try:
            yield Line(store, proxy, Stage(store, clock or SystemClock()), dsn)  # type: ignore[arg-type]
        finally:
            proxy.thaw()
            proxy.allow()
            await store.close()
