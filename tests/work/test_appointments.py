"""Runs that were claimed before their time begin at it, and hold a slot until then; their ends wait for company."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from foliot.domain.instant import MILLISECOND, SECOND
from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Outcome
from foliot.domain.store import Beat
from foliot.errors import StoreError
from foliot.work import appointments
from foliot.work.handler import Handler
from tests.work.fakes import START, Bench, claimed, run, until

EARLY = 30 * MILLISECOND


class Began:
    """A job that notes when it began, by the bench's clock."""

    def __init__(self) -> None:
        self.moments: list[int] = []
        self.bench: Bench
        self.error: Exception | None = None

    def bench_of(self, **worker: Any) -> Bench:
        async def job() -> None:
            self.moments.append(self.bench.clock.now() - START)
            if self.error is not None:
                raise self.error

        self.bench = Bench(job, **worker)
        return self.bench

    def called_bench(self) -> Bench:
        """Its worker goes to the store when it is called, and nobody calls."""
        bench: Any = self.bench_of()
        bench.store.when_new = lambda callback: True
        bench.store.version = lambda: 0
        return self.bench


def _numbers(ones: Iterable[Claimed | Ending]) -> list[int]:
    return [one.number for one in ones]


def test_a_run_that_was_claimed_before_its_time_begins_at_it():
    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready += [claimed(1, early=EARLY), claimed(2, token=11)]
        await bench.work()
        assert began.moments == [0]
        await bench.advance(EARLY - 1)
        assert began.moments == [0]
        await bench.advance(1)
        assert began.moments == [0, EARLY]
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 2

    run(scene())


def test_each_begins_at_its_own_time_in_whatever_order_they_came():
    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready += [claimed(n, token=n, early=n * MILLISECOND) for n in (3, 1, 2, 2)]
        await bench.work()
        for _ in range(3):
            await bench.advance(MILLISECOND)
        assert began.moments == [n * MILLISECOND for n in (1, 2, 2, 3)]

    run(scene())


def test_a_worker_that_runs_starts_it_by_itself():
    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready.append(claimed(1, early=EARLY))
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: bench.worker.running)
        bench.clock.advance(EARLY)
        await until(lambda: bench.store.finished)
        assert began.moments == [EARLY]
        await bench.worker.drain(0)
        await running

    run(scene())


def test_a_sync_handler_waits_for_its_time_too():
    async def scene():
        def job() -> None: ...

        bench = Bench(Handler.of(job))
        bench.store.ready.append(claimed(1, early=EARLY))
        await bench.work()
        assert not bench.store.finished
        await bench.advance(EARLY)
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_what_waits_holds_a_slot():
    async def scene():
        began = Began()
        bench = began.bench_of(slots=1)
        bench.store.ready += [claimed(1, early=EARLY), claimed(2, token=11)]
        await bench.work()
        assert (bench.worker.taken, len(bench.store.ready)) == (1, 1)
        await bench.advance(EARLY)
        assert began.moments == [EARLY, EARLY]

    run(scene())


def test_half_of_the_free_slots_are_for_what_is_due_now():
    async def scene():
        bench = Began().bench_of(slots=10)
        await bench.work()
        assert bench.store.ahead == 5
        bench.store.ready += [claimed(n, token=n, early=EARLY) for n in range(4)]
        await bench.work()
        assert bench.store.ahead == 3

    run(scene())


def test_a_claim_says_whether_the_store_s_call_is_its_only_reason():
    async def scene():
        bench: Any = Began().called_bench()
        await bench.work()
        assert not bench.store.called, "the first: anything may be there"
        bench.store.version = lambda: 1
        await bench.work()
        assert bench.store.called
        bench.worker._left_some, bench.store.version = True, lambda: 2
        await bench.work()
        assert not bench.store.called, "there was more than it could take"
        called = []
        for place in range(10):
            bench.store.version = lambda place=place: 3 + place
            await bench.advance(SECOND // 10)
            called.append(bench.store.called)
        assert called == [True] * 9 + [False], "a call may have been lost: once a second, however many come"

    run(scene())


def test_who_has_slots_for_single_queues_takes_nothing_ahead():
    async def scene():
        bench = Began().bench_of(slots=10, queues=("default", "reports"), reserved={"reports": 2})
        await bench.work()
        assert bench.store.ahead == 0

    run(scene())


def test_one_that_is_cancelled_while_it_waits_never_begins():
    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready.append(claimed(1, early=EARLY))
        await bench.work()
        bench.worker.heard(bench.worker.number, Beat(True, [1], frozenset(), None))
        await bench.advance(EARLY)
        assert (began.moments, bench.store.outcomes) == ([], [Outcome.CANCELLED])

    run(scene())


def test_a_drain_gives_back_what_waits():
    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready.append(claimed(1, early=EARLY))
        await bench.work()
        assert await bench.worker.drain(SECOND) == [], "at once, though the clock stands still"
        assert (began.moments, _numbers(bench.store.given_back)) == ([], [1])

    run(scene())


def test_what_should_have_begun_while_the_process_stood_still_is_given_back():
    """The store may have taken it for dead meanwhile, and somebody else may have the run."""

    async def scene():
        began = Began()
        bench = began.bench_of()
        bench.store.ready.append(claimed(1, early=EARLY))
        await bench.work()
        await bench.advance(EARLY + appointments.STOOD_STILL + 1)
        assert (began.moments, _numbers(bench.store.given_back)) == ([], [1])
        assert bench.worker.idle

    run(scene())


def test_an_ending_waits_for_others_while_more_is_about_to_begin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(n, token=n, early=n * MILLISECOND) for n in (1, 2, 3)]
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 3)
        for _ in range(2):
            before = bench.worker.ended
            bench.clock.advance(MILLISECOND)
            await until(lambda before=before: bench.worker.ended != before)  # type: ignore[misc]
            for _ in range(20):
                await asyncio.sleep(0)
            assert bench.store.finishes == []
        bench.worker.appointments._have_told()  # an hour has passed
        await until(lambda: bench.store.finished)
        assert bench.store.finishes == [2]
        bench.clock.advance(MILLISECOND)
        await until(lambda: len(bench.store.finished) == 3)
        await bench.worker.drain(0)
        await running

    run(scene())


@pytest.mark.parametrize("rung", ["because it is called", "because something was told"])
def test_an_ending_that_waits_goes_on_waiting_whatever_the_worker_is_woken_by(
    monkeypatch: pytest.MonkeyPatch, rung: str
):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(1, early=MILLISECOND), claimed(2, token=11, early=SECOND)]
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 2)
        bench.clock.advance(MILLISECOND)
        await until(lambda: bench.worker.ended)
        if rung == "because it is called":
            bench.worker.alarm.ring()
        else:
            bench.worker._delivered(bench.worker.number or 0, None)
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.store.finishes == []
        await bench.worker.drain(0)
        assert bench.store.finishes == [1], "a drain waits for no company"
        await running

    run(scene())


def test_endings_are_told_when_their_time_is_over_though_the_worker_is_busy_then(monkeypatch: pytest.MonkeyPatch):
    """It is in the middle of a claim, say, and more ends until it comes round."""
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(n, token=n, early=n * MILLISECOND) for n in (1, 2)]
        bench.store.ready.append(claimed(3, token=3, early=SECOND))
        await bench.work()
        for ended in (1, 2):
            bench.clock.advance(MILLISECOND)
            bench.worker.appointments.keep(bench.clock.monotonic())
            await until(lambda: bench.worker.ended == ended)  # noqa: B023
            if ended == 1:
                bench.worker.appointments._have_told()  # an hour has passed
        assert bench.worker.appointments.lingering, "the second one has only begun to wait"
        await bench.work()
        assert bench.store.finishes == [2]
        await bench.worker.drain(0)

    run(scene())


def test_endings_that_could_not_be_told_do_not_wait_for_company_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(1, early=1, schedule="daily"), claimed(2, token=2, early=2)]
        bench.store.ready.append(claimed(3, token=3, early=3600 * SECOND))
        await bench.work()
        bench.store.failing["finish"] = StoreError("the store is away")
        for ended in (1, 2):
            bench.clock.advance(1)
            bench.worker.appointments.keep(bench.clock.monotonic())
            await until(lambda: bench.worker.ended == ended)  # noqa: B023
            await bench.work()
        assert (bench.store.finishes, bench.worker.appointments.lingering) == ([], True)
        bench.store.failing.clear()
        for _ in range(3):  # the first batches after a failure are smaller
            await bench.advance(SECOND)
        assert sum(bench.store.finishes) == 2
        await bench.worker.drain(0)

    run(scene())


def test_what_is_given_back_waits_for_no_company(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(1, early=MILLISECOND), claimed(2, token=11, early=SECOND)]
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 2)
        bench.clock.advance(MILLISECOND)
        await until(lambda: bench.worker.ended)
        bench.worker.begin([claimed(3, token=12)._replace(job="unknown")])
        await until(lambda: not bench.worker.outbox)
        assert bench.store.finishes == [1], "it took the ending along"
        await bench.worker.drain(0)
        await running

    run(scene())


def test_an_ending_that_a_check_follows_waits_for_no_company(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        handler = bench.worker.handlers["job"]
        bench.worker.handlers["job"] = handler.checked_by(lambda: True, {})
        bench.store.ready += [claimed(1, early=MILLISECOND), claimed(2, token=11, early=SECOND)]
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 2)
        bench.clock.advance(MILLISECOND)
        await until(lambda: bench.store.finished)
        await bench.worker.drain(0)
        await running

    run(scene())


def test_an_ending_that_somebody_waits_for_takes_those_along_that_could_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        bench = Began().called_bench()
        bench.store.ready += [claimed(n, token=n, early=n) for n in (1, 3)]
        bench.store.ready += [claimed(2, token=2, early=2, schedule="daily"), claimed(4, token=4, early=SECOND)]
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 4)
        bench.clock.advance(3)  # all three at one moment: one that waits comes after the one that cannot
        await until(lambda: bench.store.finished)
        assert bench.store.finishes == [3]
        bench.store.ready.append(claimed(5, token=5, early=MILLISECOND))
        bench.worker._left_some = True
        bench.worker.alarm.ring()
        await until(lambda: len(bench.worker.running) == 2)
        bench.clock.advance(MILLISECOND)
        await until(lambda: bench.worker.ended == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.store.finishes == [3], "and after that, others wait again"
        await bench.worker.drain(0)
        await running

    run(scene())


@pytest.mark.parametrize("why", ["nothing waits any more", "a schedule made it", "it failed"])
def test_an_ending_that_somebody_may_wait_for_is_told_at_once(monkeypatch: pytest.MonkeyPatch, why: str):
    monkeypatch.setattr(appointments, "LINGER", 3600)

    async def scene():
        began = Began()
        bench = began.called_bench()
        began.error = ValueError() if why == "it failed" else None
        bench.store.ready.append(claimed(1, early=1, schedule="daily" if why == "a schedule made it" else None))
        if why != "nothing waits any more":
            bench.store.ready.append(claimed(2, token=11, early=SECOND))
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: bench.worker.running)
        bench.clock.advance(1)
        await until(lambda: bench.store.finished)
        bench.clock.advance(SECOND)
        await bench.worker.drain(0)
        await running

    run(scene())
