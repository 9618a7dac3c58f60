"""Connections: how they are made, what is refused, and what it means when one breaks.

An event loop has its own connections, made when they are first needed: an app may be used from several loops and
threads, and a connection belongs to one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg

from foliot.errors import FoliotError, StoreClosed, StoreError, StoreTooOld
from foliot.store.postgres.address import Address

OLDEST = 140_000
"""PostgreSQL 14: earlier ones lack what the schema is written in."""

STATEMENT_TIMEOUT, LOCK_TIMEOUT, IDLE_TIMEOUT = "30s", "10s", "30s"
"""The server ends what takes longer, so that nobody holds a lock for ever; `IDLE_TIMEOUT` inside a transaction."""
COMMAND_TIMEOUT = 40.0
"""Seconds until we give up on a server that does not answer at all: longer than it may take itself."""
CONNECT_TIMEOUT = 10.0
PATIENCE = 5.0
"""Seconds that a verb waits for a server which cannot be reached before it fails."""

UNREACHABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""The server is not there, not for us, or no longer the primary. What was under way has failed, or its end is unknown."""

AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
"""Two transactions stood in one another's way, and this one was chosen to go back: nothing of it was done."""

_SETTINGS = {
    "application_name": "foliot",
    "statement_timeout": STATEMENT_TIMEOUT,
    "lock_timeout": LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT,
    "default_transaction_isolation": "read committed",
    "jit": "off",  # compiling a statement that takes a millisecond takes a hundred
    "plan_cache_mode": "force_generic_plan",  # the best plan does not depend on the values, and planning is not free
}

_log = logging.getLogger("foliot.store")


class Connections:
    """Hands out connections of the running event loop."""

    def __init__(self, where: Address) -> None:
        self.where = where
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, asyncpg.Pool[Any]]] = WeakKeyDictionary()
        self._closed = True

    def open(self) -> None:
        self._closed = False

    async def connect(self, dsn: str | None = None) -> asyncpg.Connection[Any]:
        """A connection of the caller's own."""
        return await asyncpg.connect(dsn or self.where.dsn, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "timeout": CONNECT_TIMEOUT,
            "command_timeout": COMMAND_TIMEOUT,
            "target_session_attrs": self.where.session,
            # A pooler gives each transaction another session: nothing may be left in one.
            "statement_cache_size": 0 if self.where.pooler else 200,
            "server_settings": None if self.where.pooler else _SETTINGS,
        }

    async def _pool(self) -> asyncpg.Pool[Any]:
        loop = asyncio.get_running_loop()
        pid, pool = self._pools.get(loop, (0, None))
        if pool is None or pid != os.getpid():
            pool = asyncpg.create_pool(
                self.where.dsn, min_size=0, max_size=self.where.connections, reset=_nothing_to_reset, **self._options()
            )
            self._pools[loop] = os.getpid(), pool
        return pool

    @asynccontextmanager
    async def acquired(self) -> AsyncIterator[Any]:
        """A connection, waited for with patience while the server cannot be reached. Raises StoreError then."""
        if self._closed:
            raise StoreClosed("the store is closed")
        pool = await self._pool()
        if not pool._initialized:
            await pool
        connection = await self._patiently(pool)
        try:
            yield connection
        finally:
            await asyncio.shield(pool.release(connection))

    async def _patiently(self, pool: asyncpg.Pool[Any]) -> Any:
        pause, left = 0.05, PATIENCE
        while True:
            try:
                return await pool.acquire(timeout=CONNECT_TIMEOUT)
            except UNREACHABLE as error:
                if self._closed:
                    raise StoreClosed("the store is closed") from error
                if left <= 0:
                    raise as_store_error(error, self.where) from error
                _log.debug("the server cannot be reached (%s); trying again", error)
                length = pause * (0.5 + random.random())  # a fleet that comes back together should not come at once
                await asyncio.sleep(length)
                left, pause = left - length, min(pause * 2, 1)

    async def close(self) -> None:
        self._closed = True
        here = asyncio.get_running_loop()
        for loop, (pid, pool) in list(self._pools.items()):
            if pid != os.getpid():
                continue
            if loop is here:
                await _close(pool)
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close(pool), loop))
            else:
                pool.terminate()
        self._pools.clear()


async def _close(pool: asyncpg.Pool[Any]) -> None:
    try:
        await asyncio.wait_for(pool.close(), 5)
    except (asyncio.TimeoutError, asyncpg.InterfaceError, OSError):
        pool.terminate()


async def _nothing_to_reset(_connection: Any) -> None:
    """We leave nothing in a session, and a round trip after each statement would cost as much as the statement."""


def begin(pooler: bool, *, lazily: bool = False, reading: bool = False) -> str:
    """How a transaction begins. `lazily`: its loss in a crash of the server would be no harm, so none waits for disk."""
    words = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if reading else "BEGIN"]
    if pooler:
        words.append(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        words.append(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        words.append(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT}'")
        words.append("SET LOCAL jit = off")
    if lazily:
        words.append("SET LOCAL synchronous_commit = off")
    return "; ".join(words)


def as_store_error(error: BaseException, where: Address) -> FoliotError:
    """A driver's error in our words."""
    if isinstance(error, FoliotError):
        return error
    if isinstance(error, UNREACHABLE):
        return StoreError(f"PostgreSQL at {where.shown} cannot be used now: {_named(error)}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreError(f"the server's disk is full: {error}; nothing of this request was written")
    return StoreError(f"PostgreSQL: {_named(error)}; nothing of this request was written")


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def checked(connection: Any, where: Address) -> None:
    """Refuses a server that cannot keep what it acknowledges."""
    row = await connection.fetchrow(
        "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), "
        "current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'), "
        "pg_is_in_recovery()"
    )
    number, version, fsync, commit, pages, standby = row
    if number < OLDEST:
        raise StoreTooOld(f"PostgreSQL {version} at {where.shown} is too old; Foliot needs 14 or newer")
    if fsync != "on" or pages != "on":
        raise StoreError(
            f"PostgreSQL at {where.shown} runs with fsync={fsync} and full_page_writes={pages}: a crash of its host "
            f"would lose promises that were acknowledged, or all of them. Turn both on"
        )
    if standby:
        raise StoreError(f"PostgreSQL at {where.shown} is a standby, which cannot be written to; name the primary")
    if commit == "off":
        _log.warning(
            "PostgreSQL at %s runs with synchronous_commit=off: a crash of its host may lose the last promises that "
            "were acknowledged",
            where.shown,
        )
