"""Connections: how they are made, what is refused, and what it means when one breaks.

An event loop has its own connections, made when they are first needed: an app may be used from several loops and
threads, and a connection belongs to one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg

from foliot.errors import (
    FoliotError,
    InvalidInput,
    NotWritten,
    OutcomeUnknown,
    StoreAway,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreTooOld,
)
from foliot.store.postgres.address import Address
from foliot.store.postgres.pool import Pool

OLDEST = 140_000
"""PostgreSQL 14: earlier ones lack what the schema is written in."""

STATEMENT_TIMEOUT, LOCK_TIMEOUT, IDLE_TIMEOUT = "30s", "10s", "30s"
"""The server ends what takes longer, so that nobody holds a lock for ever; `IDLE_TIMEOUT` inside a transaction."""
COMMAND_TIMEOUT = 40.0
"""Seconds until we give up on a server that does not answer at all: longer than it may take itself."""
CONNECT_TIMEOUT = 10.0
_GOODBYE = 5.0
"""Seconds for what is under way when the store is closed."""
PATIENCE = 5.0
"""Seconds that a verb waits for a server which cannot be reached before it fails. For as long it repeats the question
whether a transaction was committed. Counted as pauses, so that a busy machine does not shorten it."""

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
    asyncpg.TargetServerAttributeNotMatched,
)
"""The server is not there, not for us, or not the primary any more. What was under way has failed, or nobody knows."""

_GONE = (OSError, asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)
"""Of these, what tells of the server more than of one statement."""

_TOO_SLOW = (asyncio.TimeoutError, asyncpg.QueryCanceledError)
"""Of these, errors of a statement that waited long: a repetition would wait as long again."""

AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
"""Two transactions stood in one another's way, and this one was chosen to go back: nothing of it was done."""

_PLANNER = {
    # Compiling a statement that takes a millisecond takes a hundred. Not by `jit` itself: the driver turns that off and
    # on again by itself, and would leave it in a pooler's session as it finds it in our transaction.
    "jit_above_cost": "-1",
    # The best plan does not depend on the values, and planning is not free.
    "plan_cache_mode": "force_generic_plan",
    # Every statement of ours finds its rows by an index, whatever the size of the table.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    # What has no index to go by, in a table of a few rows, seems so dear then that processes would be started for it.
    "max_parallel_workers_per_gather": "0",
}
_HOT = {
    # The few statements that carry the load look their rows up by arrays of numbers, and join what they found with the
    # rest by hash. A planner that sees an empty table thinks any other way as cheap, and a session keeps its plans.
    "enable_nestloop": "off",
    "enable_bitmapscan": "off",
}

_SETTINGS = {
    "statement_timeout": STATEMENT_TIMEOUT,
    "lock_timeout": LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT,
    "default_transaction_isolation": "read committed",
    **_PLANNER,
}

_END = """
SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
WHERE pid = ANY($1::integer[]) AND application_name = $2 AND pid <> pg_backend_pid()
"""

_log = logging.getLogger("foliot.store")


class Connections:
    """Hands out connections of the running event loop."""

    def __init__(self, where: Address) -> None:
        self.where = where
        self.command_timeout, self.connect_timeout, self.patience = COMMAND_TIMEOUT, CONNECT_TIMEOUT, PATIENCE
        self._name = f"foliot {os.urandom(6).hex()}"
        self._lost: set[int] = set()
        """Backends whose connections broke in the middle of something. It may still be under way there."""
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools] = WeakKeyDictionary()
        self._closed = True

    def open(self) -> None:
        self._closed = False

    async def connect(self, dsn: str | None = None) -> asyncpg.Connection[Any]:
        """A connection of the caller's own."""
        return await self._connect(dsn=dsn)

    async def _connect(self, hot: bool = False, dsn: str | None = None) -> asyncpg.Connection[Any]:
        try:
            return await asyncpg.connect(dsn or self.where.dsn, **self._options(hot))
        except (
            asyncpg.UndefinedObjectError,
            asyncpg.InvalidParameterValueError,
            asyncpg.CantChangeRuntimeParamError,
        ) as error:
            raise InvalidInput(
                f"PostgreSQL at {self.where.shown} refuses a setting in the store's URL: {error}. Unknown words of "
                "the URL are passed to the server as settings: correct or remove the setting"
            ) from error

    def _options(self, hot: bool = False) -> dict[str, Any]:
        return {
            "timeout": self.connect_timeout,
            "command_timeout": self.command_timeout,
            "target_session_attrs": self.where.session,
            # A pooler gives each transaction another session: nothing may be left in one.
            "statement_cache_size": 0 if self.where.pooler else 200,
            "server_settings": None if self.where.pooler else self._settings(hot),
        }

    def _settings(self, hot: bool) -> dict[str, str]:
        return {"application_name": self._name, **_SETTINGS, **(_HOT if hot else {})}

    async def _pool(self, hot: bool, lent: bool) -> Pool:
        loop = asyncio.get_running_loop()
        pools = self._loops.get(loop)
        if pools is None or pools.pid != os.getpid():
            hot_ones = self.where.connections // 2
            self._loops[loop] = pools = _Pools(
                *(
                    Pool(partial(self._connect, hot), most, is_eager=is_eager)
                    for hot, most, is_eager in (
                        (False, self.where.connections - hot_ones, False),
                        (True, hot_ones, False),
                        (False, self.where.connections, True),
                    )
                )
            )
            await pools.begin()
        return pools.lent if lent else pools.hot if hot else pools.plain

    @asynccontextmanager
    async def acquired(self, *, hot: bool = False, lent: bool = False) -> AsyncIterator[Any]:
        """A connection, waited for with patience while the server cannot be reached. Raises StoreError then."""
        if self._closed:
            raise StoreClosed("the store is closed")
        pool = await self._pool(hot, lent)
        connection = await self._patiently(pool)
        backend = connection.get_server_pid()
        try:
            yield connection
        except (asyncio.CancelledError, *UNREACHABLE) as error:
            self._lost.add(backend)
            connection.terminate()
            if isinstance(error, _GONE):
                pool.forget_idle()
            raise
        finally:
            if (
                not connection.is_closed() and connection.is_in_transaction()
            ):  # whoever came next would be told of what is never committed
                connection.terminate()
            pool.release(connection)

    async def settle(self) -> bool:
        """Ends the statements of connections that broke. True: each of them was done, or never will be.

        A statement may wait for a lock after its client has gone, or reach the server minutes after it was sent. False:
        a backend had not ended. The server also says that of a backend that ended by itself in this moment. Through a
        pooler the backends are not known. There each statement is a block: one that can still commit has its locks
        already, and a repetition waits for them.
        """
        if self.where.pooler or not self._lost:
            return True
        lost = set(self._lost)
        async with self.acquired() as used:
            ended = await used.fetch(_END, list(lost), self._name)
        if not all(row[0] for row in ended):
            return False
        self._lost -= lost
        return True

    async def _patiently(self, pool: Pool) -> Any:
        lengths = pauses(self.patience)
        while True:
            try:
                return await pool.acquire(self.connect_timeout)
            except UNREACHABLE as error:
                if self._closed:
                    raise StoreClosed("the store is closed") from error
                length = next(lengths, None)
                if length is None:
                    raise away(error, self.where) from error
                _log.debug("PostgreSQL unreachable, reconnecting: %s", error)
                await asyncio.sleep(length)

    async def close(self) -> None:
        self._closed = True
        here = asyncio.get_running_loop()
        for loop, pools in list(self._loops.items()):
            if pools.pid != os.getpid():
                continue
            if loop is here:
                await pools.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pools.close(), loop))
        self._loops.clear()


class _Pools:
    """The connections of one event loop: for transactions of any kind, for the statements that carry the load, and for
    handlers, who may hold theirs for long."""

    def __init__(self, plain: Pool, hot: Pool, lent: Pool) -> None:
        self.pid = os.getpid()
        self.plain = plain
        self.hot = hot
        self.lent = lent
        self._keeper = _closed_with_its_loop(self)

    async def begin(self) -> None:
        await anext(self._keeper)

    async def close(self) -> None:
        await asyncio.gather(*(pool.close(_GOODBYE) for pool in (self.plain, self.hot, self.lent)))


async def _closed_with_its_loop(pools: _Pools) -> AsyncGenerator[None, None]:
    """A loop that ends in order closes the generators that were begun in it, and so the connections that it had."""
    try:
        yield
    finally:
        await pools.close()


def pauses(patience: float) -> Iterator[float]:
    """Lengths of pauses between tries, in seconds: each about twice the one before, `patience` together."""
    pause, left = 0.05, patience
    while left > 0:
        length = pause * (0.5 + random.random())  # a fleet that comes back together should not come at once
        yield length
        left, pause = left - length, min(pause * 2, 1)


def begin(pooler: bool, *, lazily: bool = False, reading: bool = False, hot: bool = False) -> str:
    """How a transaction begins. `lazily`: its loss in a crash of the server does no harm, so no disk is waited for."""
    words = ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if reading else "BEGIN ISOLATION LEVEL READ COMMITTED"]
    if pooler:
        words.append(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        words.append(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        words.append(f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT}'")
        words += [f"SET LOCAL {name} = {value}" for name, value in (_PLANNER | (_HOT if hot else {})).items()]
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
        return StoreFull(f"the server's disk is full: {error}; nothing of this request was written")
    return NotWritten(f"PostgreSQL: {_named(error)}; nothing of this request was written")


def away(error: BaseException, where: Address) -> StoreAway:
    """The error of a request that was not sent, or whose connection ended before its COMMIT was sent."""
    if isinstance(error, StoreAway):
        return error
    return StoreAway(
        f"PostgreSQL at {where.shown} cannot be reached: {_named(error)}; nothing of this request was written"
    )


def is_unanswered(error: StoreError) -> bool:
    """Whether the statement may have been executed: it was sent, and the connection was lost."""
    return isinstance(error.__cause__, UNREACHABLE) and not isinstance(error, NotWritten)


def is_cut(error: StoreError) -> bool:
    """Whether the connection was lost, and the same question may be answered on another connection."""
    return is_unanswered(error) and not isinstance(error.__cause__, _TOO_SLOW)


def unknown(error: BaseException, where: Address) -> OutcomeUnknown:
    """`error`: why the server cannot say."""
    return OutcomeUnknown(
        f"the connection to PostgreSQL at {where.shown} was lost during this request, so it is unknown whether it "
        f"was committed: {error}. Check before you repeat it; a promise with a key can be repeated safely"
    )


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
            f"PostgreSQL at {where.shown} runs with fsync={fsync} and full_page_writes={pages}: a crash of its "
            "host could lose committed promises, or the whole database. Turn both on"
        )
    if standby:
        raise StoreError(f"PostgreSQL at {where.shown} is a read-only standby; give the address of the primary")
    if commit == "off":
        _log.warning(
            "PostgreSQL at %s runs with synchronous_commit=off: a crash of its host may lose the last committed "
            "promises",
            where.shown,
        )
