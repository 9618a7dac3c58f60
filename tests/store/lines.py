"""Stores on a real server: one with a network between the two that fails on demand, or several that race."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg

from foliot.clock import Clock, SystemClock
from foliot.domain.store import Lease
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.address import Address
from foliot.store.postgres.connection import Connections
from foliot.store.postgres.pool import Pool
from tests.contract.stage import FAR, TTL, Entry, Stage
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.warm import Warm
from tests.waiting import until_async


class Kept(NamedTuple):
    """What outlives the tests of a process: connections, and the proxy that some of them go through."""

    warm: Warm
    proxy: Proxy


_KEPT: list[Kept] = []


def keep(kept: Kept) -> None:
    """From now on `stages` and `line` take their connections from there."""
    _KEPT[:] = [kept]


class _Proxied(Connections):
    """Connections through the lasting proxy: warm ones, except while the proxy would not let a new one through."""

    def __init__(self, where: Address, kept: Kept, virtual: bool) -> None:
        super().__init__(where)
        self._kept = kept
        self._virtual = virtual

    async def _connect(self, hot: bool = False, dsn: str | None = None) -> asyncpg.Connection[Any]:
        warm, proxy = self._kept
        while not (proxy.refusing or proxy.frozen):
            before = _idle(warm)
            try:
                return await warm.connect(dsn or self.where.dsn, self._options(hot), self._virtual)
            except (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError):
                if _idle(warm) >= before:
                    raise
                # The proxy cut that one while no store used it.
        return await super()._connect(hot, dsn)


def _idle(warm: Warm) -> int:
    return sum(map(len, warm._kept.values()))


def _calm(proxy: Proxy) -> None:
    """No fault is left, neither armed nor going on. A connection that the proxy itself broke is an error."""
    proxy.thaw()
    proxy.allow()
    proxy.delay(0)
    proxy._armed.clear()
    proxy.seen.clear()
    if proxy._broken:
        raise proxy._broken.pop()


@dataclass
class Line:
    """The store goes through the proxy; whoever judges asks the server itself."""

    store: PostgresStore
    proxy: Proxy
    stage: Stage
    dsn: str
    socket: str
    """The same database by the server's socket, for questions of the test itself."""

    async def ask(self, sql: str, *values: Any) -> list[Any]:
        connection = await asyncpg.connect(self.socket)
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
    kept = next((one for one in _KEPT if one.proxy.server_port == server.port), None)
    with nullcontext(kept.proxy) if kept else Proxy(server.port) as proxy:
        store = PostgresStore(proxy.through(dsn) + options, clock)
        if kept and not store.where.pooler:
            store.connections = _Proxied(store.where, kept, clock is not None)
        for name, seconds in timeouts.items():
            assert hasattr(store.connections, name)
            setattr(store.connections, name, seconds)
        await store.open()
        try:
            socket = server.socket_dsn(dsn.rpartition("/")[2])
            yield Line(store, proxy, Stage(store, clock or SystemClock()), dsn, socket)  # type: ignore[arg-type]
        finally:
            _calm(proxy)
            await store.close()


@asynccontextmanager
async def stages(server: PostgresServer, count: int, *, shards: int = 1) -> AsyncIterator[tuple[Any, list[Stage]]]:
    """A connection for judging, and so many stores on one database, each with a scheduler and a worker of its own."""
    dsn = emptied(server, shards=shards, by_socket=True)
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            store = _KEPT[0].warm.store(dsn) if _KEPT else PostgresStore(dsn)
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


async def until_locks_are_waited_for(judge: Any, count: int = 1) -> None:
    """Until at least `count` requests for a lock wait on the server."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    async def are_waited_for() -> bool:
        return bool(await judge.fetchval(waiting) >= count)

    await until_async(are_waited_for, f"{count} requests for a lock wait")


def end_waits_for_answers() -> None:
    """The command timeout of each statement that waits for its answer in this loop ends now, whatever its length is."""
    loop: Any = asyncio.get_running_loop()
    for timer in list(loop._scheduled):
        if not timer.cancelled() and getattr(timer._callback, "__name__", "") == "_on_timeout":
            give_up, waiter = timer._callback, timer._args
            timer.cancel()
            give_up(*waiter)


def _pools(to: Line) -> list[Pool]:
    return [pool for one in to.store.connections._loops.values() for pool in (one.plain, one.hot, one.lent)]


def backends_in_use(to: Line) -> set[int]:
    """The server's processes for the connections that the store has lent out now."""
    return {used.get_server_pid() for pool in _pools(to) for used in pool._lent}


def backends_alive(to: Line) -> set[int]:
    """Those, and the ones for connections that the store has and does not use."""
    return backends_in_use(to) | {idle.get_server_pid() for pool in _pools(to) for idle, _ in pool._idle}


async def end_of_late_statements(to: Line, lost: Collection[int] = ()) -> None:
    """Until no statement is under way on the server, and these backends, whose clients have gone, have ended: each does
    so when it has done all that was sent to it."""

    async def are_ended() -> bool:
        rows = await to.ask(
            "SELECT pid, state FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return all(state == "idle" and pid not in lost for pid, state in rows)

    await until_async(are_ended, "no statement that lost its client is left on the server")


async def in_chunks(judge: Any) -> list[int]:
    return [row[0] for row in await judge.fetch("SELECT unnest(numbers) FROM foliot.handoff ORDER BY 1")]
