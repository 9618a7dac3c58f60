"""Transactions that end their run, made by handlers in processes of their own: real ones, which take real time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foliot import bootstrap
from foliot.clock import SystemClock
from foliot.domain.instant import SECOND
from foliot.domain.ledger import EffectState
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, State
from foliot.domain.store import Store
from tests.app.counting_house import app
from tests.servers.emptied import emptied
from tests.tiers import full_only, only_in_full
from tests.waiting import HANG, until_async

needs_postgres = pytest.mark.needs("postgres")
on_both_stores = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=needs_postgres)], indirect=True
)
on_sqlite = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=[needs_postgres, full_only])], indirect=True
)
"""The full suite runs these on PostgreSQL, too: each process costs half a second."""


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'books.db'}"
    return emptied(request.getfixturevalue("postgres"))


class House:
    """A scheduler and a worker here, whose handlers have processes of their own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stop = asyncio.Event()
        self.loops: list[asyncio.Task[Any]] = []

    async def ended(self, job: str, n: int = 7) -> RunView:
        kept = await app.jobs[job].now_async(n=n)

        async def found() -> RunView | None:
            run = await self.store.run(kept.id)
            return None if run.finished_at is None else run

        run = await until_async(found, f"{job} has ended")
        assert run is not None
        return run

    async def stopped(self) -> None:
        """Returns when the worker has reported every attempt that it began."""
        self.stop.set()
        await asyncio.gather(*self.loops)

    async def booked(self) -> list[int]:
        return [row[0] for row in await self.asked("SELECT n FROM booked")]

    async def asked(self, query: str) -> list[Any]:
        transaction = self.store.transaction()
        await transaction.begin()
        connection: Any = transaction.connection
        if transaction.is_blocking:
            rows = connection.execute(query).fetchall()
        else:
            rows = await connection.fetch(query)
        await transaction.commit()
        return list(rows)

    async def promised(self) -> list[int]:
        return [json.loads(view.payload)["n"] for view in await self.store.runs(job="follow")]


@asynccontextmanager
async def house(url: str) -> AsyncIterator[House]:
    store = bootstrap.make_store(url)
    await store.open()
    handlers = {name: job.handler for name, job in app.jobs.items()}
    here = House(store)
    await here.asked("DROP TABLE IF EXISTS booked")
    await here.asked("CREATE TABLE booked (n INTEGER)")
    with app.standing_on(store, SystemClock()):
        scheduler = bootstrap.run_scheduler(store, here.stop)
        worker = bootstrap.run_worker(store, handlers, here.stop, grace=int(HANG) * SECOND, queues=["default"], slots=4)
        here.loops = [asyncio.create_task(scheduler), asyncio.create_task(worker)]
        try:
            yield here
        finally:
            await here.stopped()
    await store.close()


@pytest.mark.parametrize(
    ("url", "job"),
    [
        ("sqlite", "book_in_thread"),
        only_in_full("sqlite", "book"),
        pytest.param("postgres", "book", marks=needs_postgres),
        pytest.param("postgres", "book_in_thread", marks=[needs_postgres, full_only]),
    ],
    indirect=["url"],
)
async def test_rows_effect_promise_and_completion_are_one_in_a_process_of_its_own(url: str, job: str) -> None:
    async with house(url) as here:
        run = await here.ended(job)
        assert (run.state, run.result, run.attempt) == (State.SUCCEEDED, b"7", 1)
        assert [(one.key, one.state) for one in run.effects] == [("7", EffectState.DONE)]
        assert (await here.booked(), await here.promised()) == ([7], [7])
        assert await here.store.events_of(run.id) == []


@on_both_stores
async def test_a_process_that_dies_right_after_its_commit_has_completed_its_run_once(url: str) -> None:
    async with house(url) as here:
        run = await here.ended("book_and_die")
        assert (run.state, run.result, run.attempt) == (State.SUCCEEDED, b"7", 1)
        assert (await here.booked(), await here.promised()) == ([7], [7])
        await here.stopped()  # until then the worker may still report that the process died
        assert await here.booked() == [7]
        again = await here.store.run(run.id)
        assert (again.state, again.attempt, again.detail) == (State.SUCCEEDED, 1, None)
        assert await here.store.events_of(run.id) == []


@on_sqlite
async def test_one_that_dies_right_after_its_commit_is_still_checked(url: str) -> None:
    async with house(url) as here:
        run = await here.ended("book_for_checking")
        assert run.state is State.VERIFIED
        assert [one.outcome for one in run.attempts] == [Outcome.SUCCEEDED] * 2
        assert (await here.booked(), await here.promised()) == ([7], [7])


@on_sqlite
async def test_one_that_dies_before_its_commit_has_written_nothing(url: str) -> None:
    async with house(url) as here:
        run = await here.ended("book_on_the_second_try")
        assert [one.outcome for one in run.attempts] == [Outcome.FAILED, Outcome.SUCCEEDED]
        assert "SIGKILL" in (run.attempts[0].error or "")
        assert await here.booked() == [7]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_what_a_handler_promises_is_promised_in_the_store_of_its_worker(url: str) -> None:
    async with house(url) as here:
        run = await here.ended("promise_elsewhere")
        assert (run.state, await here.promised()) == (State.SUCCEEDED, [7])
    assert app.store.url is None, "although its app names another one"
