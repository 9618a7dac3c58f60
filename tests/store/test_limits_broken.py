"""The walk of limits, on a store that breaks between any two statements: no slot is lost, given twice, or forgotten.

On PostgreSQL the connection is cut: before a statement, before the commit, or after it, so that the answer is lost. On
SQLite a statement fails. As a worker and an operator do, the walk repeats each request until it has an answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foliot.clock import ManualClock
from foliot.domain.store import Store
from foliot.errors import FoliotError, StoreError
from foliot.store.sqlite import SqliteStore
from tests.contract.engines import ENGINES
from tests.contract.stage import START, Stage
from tests.contract.test_limits_walk import ACTS, Walk, drained
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.store.lines import keep, line
from tests.tiers import by_tier

FURTHEST = 12
"""A break comes before this statement, counted from the one after it was armed."""
TRIES = 50
EXAMPLES = by_tier(2, 20, 1_000)
BROKEN = ["broken"] * 25
STEPS = st.lists(st.tuples(st.sampled_from([*BROKEN, *ACTS]), st.integers(0, 1 << 20)), min_size=40, max_size=100)

Break = Callable[[Random], Callable[[], None]]
"""Arms a break, and returns the function that disarms it."""


class Persistent:
    """A store whose requests are repeated until they have an answer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return repeated(found) if asyncio.iscoroutinefunction(found) else found


def repeated(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def asked(*args: Any, **more: Any) -> Any:
        for left in reversed(range(TRIES)):
            try:
                return await verb(*args, **more)
            except StoreError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    return asked


class BrokenWalk(Walk):
    def __init__(self, stage: Stage, arm: Break) -> None:
        super().__init__(stage)
        self._arm = arm

    async def broken(self) -> None:
        disarm = self._arm(self.any)
        acts = [self.fire, self.claim, self.finish, self.finish, self.settle, self.lose, self.watch, self.give_back]
        acts += [self.promise, self.move, self.replace, self.cancel, self.limit, self.unlimit, self.together]
        try:
            await self.any.choice(acts)()
        finally:
            disarm()

    async def fire(self) -> None:
        """As the loop of a dispatcher does: an error does not end it."""
        for left in reversed(range(TRIES)):
            try:
                await super().fire()
                return
            except FoliotError:
                if not left:
                    raise


async def walked(opened: AbstractAsyncContextManager[Store], clock: ManualClock, arm: Break, steps: Any) -> None:
    async with opened as store:
        walk = BrokenWalk(Stage(Persistent(store), clock), arm)
        await walk.begin()
        for name, seed in steps:
            await walk.step(name, seed)
        await drained(walk)


class Statements:
    """Counts the statements of a store's writer, and fails one of them."""

    def __init__(self) -> None:
        self._connection: Any = None

    @asynccontextmanager
    async def of(self, store: SqliteStore) -> AsyncIterator[SqliteStore]:
        await store.open()
        self._connection = store._writer.connection  # type: ignore[union-attr]
        yield store
        await store.close()

    def arm(self, chance: Random) -> Callable[[], None]:
        count = itertools.count()
        fails_at, connection = chance.randrange(FURTHEST), self._connection
        connection.exec_trace = lambda *_: next(count) != fails_at

        def disarm() -> None:
            connection.exec_trace = None

        return disarm


def cut(proxy: Proxy) -> Break:
    def arm(chance: Random) -> Callable[[], None]:
        count, at = itertools.count(), chance.randrange(FURTHEST)
        chance.choice([proxy.cut_before, proxy.cut_before_commit, proxy.cut_after_commit])(lambda _: next(count) == at)
        return proxy._armed.clear

    return arm


def test_sqlite_keeps_limits_whichever_statement_fails(
    tmp_path: Path, runner: asyncio.Runner, request: pytest.FixtureRequest
) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def walks(steps: list[tuple[str, int]]) -> None:
        statements, clock = Statements(), ManualClock(START)
        for file in tmp_path.iterdir():
            file.unlink()
        store = ENGINES["sqlite"].make(request, tmp_path, clock)
        assert isinstance(store, SqliteStore)
        runner.run(walked(statements.of(store), clock, statements.arm, steps))

    walks()


def test_postgres_keeps_limits_whenever_the_connection_is_cut(
    postgres: PostgresServer, runner: asyncio.Runner, request: pytest.FixtureRequest
) -> None:
    kept = request.getfixturevalue("kept")
    keep(kept)

    @asynccontextmanager
    async def opened(clock: ManualClock) -> AsyncIterator[Store]:
        async with line(postgres, clock=clock) as to:
            yield to.store

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def walks(steps: list[tuple[str, int]]) -> None:
        clock = ManualClock(START)
        runner.run(walked(opened(clock), clock, cut(kept.proxy), steps))

    walks()
