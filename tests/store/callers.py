"""Everybody who can have a transaction of their own, in one shape: tests play the same scenes with each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from foliot import Foliot, Job
from foliot.clock import ManualClock
from foliot.domain.run import Kept, Promise
from foliot.domain.store import Store
from tests.contract.stage import Stage
from tests.tiers import FULL, only_in_full
from tests.waiting import until_async

Manager = Callable[[], Any]
T = TypeVar("T", bound=Callable[..., Any])


class Undone(Exception):
    """Raised inside a transaction or a savepoint to roll it back."""


@dataclass
class Caller:
    """One connection, and how its library does what all of them do. Plain ones run in a thread of their own."""

    connection: Any
    _begin: Manager
    _nest: Manager
    _execute: Callable[[str], Any]
    thread: ThreadPoolExecutor | None = None

    @property
    def is_async(self) -> bool:
        return self.thread is None

    async def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.thread is None:
            return await function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)

    @asynccontextmanager
    async def _entered(self, make: Manager) -> AsyncIterator[None]:
        """As `with make():`, wherever the library lives; Undone has done its work when this is left."""
        manager = make() if self.thread is None else await self._do(make)
        enter, leave = (
            (manager.__aenter__, manager.__aexit__) if self.is_async else (manager.__enter__, manager.__exit__)
        )
        await self._do(enter)
        try:
            yield
        except BaseException as error:
            await self._do(leave, type(error), error, None)
            if not isinstance(error, Undone):
                raise
        else:
            await self._do(leave, None, None, None)

    def transaction(self) -> AbstractAsyncContextManager[None]:
        return self._entered(self._begin)

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        return self._entered(self._nest)

    async def execute(self, sql: str) -> None:
        await self._do(self._execute, sql)

    async def promise(
        self, job: Job[..., Any], length: str = "1h", /, *, wrongly: bool = False, **options: Any
    ) -> Kept:
        """`delay` or its twin; `wrongly` the other one."""
        chosen = job.using(connection=self.connection, **options)
        if self.is_async is not wrongly:
            return await chosen.delay_async(length)
        if self.thread is None:
            return chosen.delay(length)
        kept: Kept = await self._do(chosen.delay, length)
        return kept

    async def promise_many(self, app: Any, promises: list[Promise]) -> list[Kept]:
        if self.is_async:
            made: list[Kept] = await app.promise_many_async(promises, connection=self.connection)
        else:
            made = await self._do(lambda: app.promise_many(promises, connection=self.connection))
        return made


def _job(word: str = "") -> None: ...


class School(Stage):
    """The stage of the contract's tests with an app on it, and where its database is."""

    def __init__(self, store: Store, clock: ManualClock, dsn: str) -> None:
        super().__init__(store, clock)
        self.dsn = dsn
        self.app = Foliot(store, clock=clock)
        self.job = self.app.job(name="job")(_job)

    async def rows(self, sql: str, *values: Any) -> list[Any]:
        """What anybody sees."""
        connection = await asyncpg.connect(self.dsn)
        try:
            found: list[Any] = [tuple(row) for row in await connection.fetch(sql, *values)]
            return found
        finally:
            await connection.close()

    async def traces(self) -> tuple[int, int, int]:
        """How many runs, names and words to owners there are."""
        [found] = await self.rows(
            "SELECT (SELECT count(*) FROM foliot.run), (SELECT count(*) FROM foliot.named), "
            "(SELECT count(*) FROM foliot.stir)"
        )
        return found  # type: ignore[no-any-return]

    async def until_a_lock_is_waited_for(self) -> None:
        """Until a transaction of this database waits for another."""
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await until_async(lambda: self.rows(waiting), "a transaction waits for another")


@asynccontextmanager
async def _with_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    try:
        yield Caller(connection, connection.transaction, connection.transaction, connection.execute)
    finally:
        await connection.close()


@asynccontextmanager
async def _with_asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield Caller(connection, connection.transaction, connection.transaction, connection.execute)


@asynccontextmanager
async def _with_psycopg(dsn: str) -> AsyncIterator[Caller]:
    """With rows of a shape of its own, as many have it."""
    with ThreadPoolExecutor(1) as thread, psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield Caller(connection, connection.transaction, connection.transaction, connection.execute, thread)


@asynccontextmanager
async def _with_psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        yield Caller(connection, connection.transaction, connection.transaction, connection.execute)


@asynccontextmanager
async def _with_session(dsn: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_for("psycopg", dsn))
    with ThreadPoolExecutor(1) as thread, Session(engine) as session:
        yield Caller(session, session.begin, session.begin_nested, _text(session.execute), thread)
    engine.dispose()


@asynccontextmanager
async def _with_scoped_session(dsn: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_for("psycopg", dsn))
    sessions = scoped_session(sessionmaker(engine))
    with ThreadPoolExecutor(1) as thread:
        yield Caller(sessions, sessions.begin, sessions.begin_nested, _text(sessions.execute), thread)
        thread.submit(sessions.remove).result()
    engine.dispose()


@asynccontextmanager
async def _with_connection(dsn: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(_for("psycopg", dsn))
    with ThreadPoolExecutor(1) as thread, engine.connect() as connection:
        yield Caller(connection, connection.begin, connection.begin_nested, _text(connection.execute), thread)
    engine.dispose()


@asynccontextmanager
async def _with_async_session(dsn: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(_for("asyncpg", dsn))
    async with AsyncSession(engine) as session:
        yield Caller(session, session.begin, session.begin_nested, _text(session.execute))
    await engine.dispose()


@asynccontextmanager
async def _with_async_connection(dsn: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(_for("psycopg", dsn))
    async with engine.connect() as connection:
        yield Caller(connection, connection.begin, connection.begin_nested, _text(connection.execute))
    await engine.dispose()


@asynccontextmanager
async def _with_django(dsn: str) -> AsyncIterator[Caller]:
    import django
    from django.conf import settings
    from django.db import connection, connections, transaction

    parts = urlsplit(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    connections.settings["default"].update(database)  # the same for all tests of a session, but for its name

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    with ThreadPoolExecutor(1) as thread:  # the connection is the thread's
        yield Caller(connection, transaction.atomic, transaction.atomic, execute, thread)
        thread.submit(connections.close_all).result()


def _for(driver: str, dsn: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://", 1)


def _text(execute: Callable[[Any], Any]) -> Callable[[str], Any]:
    return lambda sql: execute(sqlalchemy.text(sql))


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Caller]]] = {
    "asyncpg": _with_asyncpg,
    "asyncpg-pool": _with_asyncpg_pool,
    "psycopg": _with_psycopg,
    "psycopg-async": _with_psycopg_async,
    "sqlalchemy-session": _with_session,
    "sqlalchemy-scoped-session": _with_scoped_session,
    "sqlalchemy-connection": _with_connection,
    "sqlalchemy-async-session": _with_async_session,
    "sqlalchemy-async-connection": _with_async_connection,
    "django": _with_django,
}

BLOCKING = ["psycopg", "sqlalchemy-session", "sqlalchemy-scoped-session", "sqlalchemy-connection", "django"]
AWAITED = [name for name in CALLERS if name not in BLOCKING]

_with_each: set[Callable[..., Any]] = set()
_turns: dict[str, list[str]] = {}


def with_each_library(test: T) -> T:
    """Marks a test that takes a `caller` and runs with each library in the short form, too."""
    _with_each.add(test)
    return test


def callers_for(test: Callable[..., Any]) -> list[Any]:
    """The names of all libraries. In the short form a test runs with one that blocks and one that is awaited, and the
    next test of its file with the next two: five tests take all ten."""
    if FULL or test in _with_each:
        return list(CALLERS)
    seen = _turns.setdefault(test.__module__, [])
    if test.__qualname__ not in seen:
        seen.append(test.__qualname__)
    turn = seen.index(test.__qualname__)
    chosen = {BLOCKING[turn % len(BLOCKING)], AWAITED[turn % len(AWAITED)]}
    return [name if name in chosen else only_in_full(name, id=name) for name in CALLERS]
