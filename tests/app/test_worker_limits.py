"""What a worker may take, and what its runs may cost it: with the real store, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from foliot import Foliot, RetryAfter
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.state import State
from foliot.testing import World, virtual_time
from tests.waiting import HANG
from tests.work.fakes import Liar

START = datetime(2026, 4, 1, 9, tzinfo=UTC)


@pytest.fixture
def app() -> Foliot:
    return Foliot("sqlite:///:memory:")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end whatever happens: no thread outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


def go_round(world: World) -> None:
    """What is due is handed off and claimed, without waiting for threads."""

    async def once() -> None:
        for scheduler in world.schedulers:
            await scheduler.run_once()
        for _ in range(20):
            for worker in world.workers:
                await worker.run_once()
                await worker.settle(patience=0)

    world.call(once())


def test_sync_runs_are_shared_by_workers_instead_of_waiting_for_the_threads_of_one(
    app: Foliot, gate: threading.Event
) -> None:
    @app.job
    def blocks() -> None:
        assert gate.wait(HANG)

    with virtual_time(app, start=START) as world:
        world.add_worker()
        world.call(app.promise_many_async([blocks.promise_at(START) for _ in range(60)]))
        go_round(world)
        assert [len(worker.running) for worker in world.workers] == [32, 28]
        gate.set()
        world.run_for("1s")
        assert world.states() == [State.SUCCEEDED] * 60


def test_async_runs_pass_the_sync_ones_that_wait_for_a_thread_and_nothing_is_forgotten(
    app: Foliot, gate: threading.Event
) -> None:
    done = []

    @app.job
    def blocks() -> None:
        assert gate.wait(HANG)

    @app.job
    async def quick() -> None:
        done.append(1)

    with virtual_time(app, start=START) as world:
        promises = [blocks.promise_at(START) for _ in range(50)] + [quick.promise_at(START) for _ in range(50)]
        world.call(app.promise_many_async(promises))
        go_round(world)
        (worker,) = world.workers
        assert len(done) == 50
        assert [attempt.handler.name for attempt in worker.running] == ["blocks"] * 32
        gate.set()
        world.run_for("1s")
        assert world.states() == [State.SUCCEEDED] * 100
        assert [event.kind for event in world.events() if event.kind == "unknown_job"] == []


def test_an_error_that_cannot_be_classified_costs_an_attempt_and_no_slot(app: Foliot) -> None:
    class RateLimited(RetryAfter):
        def __init__(self) -> None:
            Exception.__init__(self, "429")

    @app.job(attempts=2)
    async def limited() -> None:
        raise RateLimited

    @app.job(attempts=2)
    def lies() -> None:
        raise Liar

    with virtual_time(app, start=START) as world:
        limited.now()
        lies.now()
        world.run_for("1h")
        assert world.states() == [State.DEAD] * 2
        assert [run.spent for run in world.runs()] == [2, 2]
        assert world.workers[0].idle


def test_a_handler_that_cancels_itself_has_failed_and_is_not_tried_for_ever(app: Foliot) -> None:
    tried = []

    @app.job(attempts=2)
    async def cancels_itself() -> None:
        tried.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with virtual_time(app, start=START) as world:
        cancels_itself.now()
        world.run_for("1h")
        assert len(tried) == 2
        assert world.states() == [State.DEAD]


def test_a_step_of_the_hosts_clock_times_nothing_out_and_virtual_time_still_finds_the_deadline(app: Foliot) -> None:
    @app.job(timeout="5m", attempts=1)
    async def waits() -> None:
        await asyncio.Event().wait()

    with virtual_time(app, start=START) as world:
        waits.now()
        world.run_for("1s")
        world.clock.step(HOUR)
        world.run_for("1s")
        assert world.states() == [State.RUNNING]
        began = world.clock.monotonic()
        world.run_for("10m")
        (run,) = world.runs()
        assert run.state is State.DEAD
        assert run.detail == "timed out after 300 s"
        assert world.clock.monotonic() - began == 600 * SECOND
