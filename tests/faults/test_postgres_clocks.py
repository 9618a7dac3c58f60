"""A host whose clock is wrong by seconds: nothing is early by the server's clock, and those with good clocks work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from foliot import Foliot, bootstrap
from foliot.clock import Clock, SystemClock
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.state import State
from tests.waiting import until_async

pytestmark = pytest.mark.faults

COUNT = 20


class WrongClock(SystemClock):
    """A host's clock that nobody set right."""

    def __init__(self, ahead: Duration) -> None:
        self.ahead = ahead

    def now(self) -> Instant:
        return super().now() + self.ahead


@pytest.mark.parametrize("ahead", [3 * SECOND, -3 * SECOND], ids=["3 s fast", "3 s slow"])
async def test_a_host_with_a_wrong_clock_fences_itself_and_the_others_work(database: str, ahead: Duration) -> None:
    app = Foliot(database)
    done: list[tuple[str, int]] = []

    @app.job
    async def record(due: float, n: int) -> None:
        done.append(("record", n))
        assert time.time() >= due, "early by the clock of the server's host, which is this one"

    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.close_async)
        await app.opened()
        judge = await asyncpg.connect(database)
        stack.push_async_callback(judge.close)

        async def holds(question: str) -> None:
            await until_async(lambda: judge.fetchval(question), f"the server says yes: {question}")

        handlers = {name: job.handler for name, job in app.jobs.items()}
        tasks: list[asyncio.Task[object]] = []
        clocks: list[Clock] = [WrongClock(ahead), SystemClock()]
        for clock in clocks:  # the wrong one is first, and could have everything
            for role in ("scheduler", "worker"):
                store = bootstrap.make_store(database)
                await store.open()
                stack.push_async_callback(store.close)
                work: Coroutine[Any, Any, object]
                if role == "scheduler":
                    work = bootstrap.run_scheduler(store, stop, clock=clock)
                else:
                    work = bootstrap.run_worker(
                        store, handlers, stop, grace=SECOND, queues=["default"], slots=10, clock=clock
                    )
                tasks.append(asyncio.create_task(work))
            if clock is clocks[0]:
                await holds("SELECT count(*) = 2 FROM foliot.event WHERE kind = 'clock_fenced'")
        await holds("SELECT count(*) = 16 FROM foliot.shard WHERE shard >= 0 AND owner IS NOT NULL")
        due = [datetime.now(UTC) + timedelta(milliseconds=25 * n) for n in range(COUNT)]
        kept = await app.promise_many_async(
            [record.promise_at(when, due=when.timestamp(), n=n) for n, when in enumerate(due)]
        )
        await holds(f"SELECT count(*) = {COUNT} FROM foliot.history")
        stop.set()
        await asyncio.gather(*tasks)
        for one in kept:
            assert (await app.operate.run_async(one.id)).state is State.SUCCEEDED
        wrong = "SELECT count(*) FROM foliot.history WHERE fired_at < fire_at OR claimed_at < fire_at"
        assert await judge.fetchval(wrong) == 0
        assert (await app.operate.counts_async())["early"] == 0
        fenced = "SELECT count(*) FROM foliot.history h JOIN foliot.instance i ON i.number = h.worker WHERE i.fenced"
        assert await judge.fetchval(fenced) == 0
        assert await judge.fetchval("SELECT count(*) FROM foliot.instance WHERE fenced") == 2
        told = await judge.fetch("SELECT detail FROM foliot.event WHERE kind = 'clock_fenced'")
        assert all(("ahead of" if ahead > 0 else "behind") in row[0] for row in told)
    assert len(done) == COUNT
