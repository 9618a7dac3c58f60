from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.state import Event, Outcome
from foliot.domain.store import Wish
from foliot.errors import Cancelled, StoreError
from foliot.work import drain
from foliot.work.context import Context
from foliot.work.worker import Worker
from tests.waiting import HANG
from tests.work.fakes import START, Bench, Gate, begin, occupy, run, until


async def noop() -> None: ...


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_drain_does_not_miss_an_ending_while_the_loop_goes_home():
    async def scene():
        bench = Bench(forever, noop)
        running = asyncio.create_task(bench.worker.run())
        bench.store.hand_off("forever")
        await until(lambda: bench.worker.running)
        draining = asyncio.create_task(bench.worker.drain(HOUR))
        (attempt,) = bench.worker.running
        attempt.task.cancel()
        await until(lambda: bench.store.finished)  # though the clock stands still
        await draining
        await running

    run(scene())


def test_a_drain_rests_while_nothing_happens():
    async def scene():
        bench = Bench(forever)
        running = asyncio.create_task(bench.worker.run())
        bench.store.hand_off("forever")
        await until(lambda: bench.worker.running)
        rounds: list[int] = []
        worker: Any = bench.worker
        go_round = worker.run_once

        async def counted() -> Any:
            rounds.append(1)
            return await go_round()

        worker.run_once = counted
        draining = asyncio.create_task(bench.worker.drain(HOUR))
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(rounds) < 20
        for attempt in list(bench.worker.running):
            attempt.task.cancel()
        await draining
        await running

    run(scene())


async def drained(bench: Bench, grace: int) -> Any:
    """Drains while virtual time goes on."""
    draining = asyncio.create_task(bench.worker.drain(grace))
    for _ in range(1000):
        await bench.worker.settle(patience=0)
        await passes()
        if draining.done():
            return draining.result()
        moment = bench.clock.next_sleeper()
        if moment is not None:
            bench.clock.set(moment)
    raise AssertionError("the drain never ends")


async def passes() -> None:
    """Lets the event loop turn, until all is done that waits neither for the clock nor for a thread."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_drain_lets_running_work_finish_within_the_grace():
    clock: Any = None

    async def takes_three_seconds() -> None:
        await clock.sleep(3 * SECOND)

    async def scene():
        nonlocal clock
        bench = Bench(takes_three_seconds)
        clock = bench.clock
        bench.store.hand_off("takes_three_seconds")
        await bench.work()
        bench.store.hand_off("takes_three_seconds")
        assert await drained(bench, 5 * SECOND) == []
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert len(bench.store.ready) == 1, "it claims no more"
        assert bench.store.retired == [1]
        assert bench.clock.now() == START + 3 * SECOND

    run(scene())


def test_a_drain_interrupts_what_outlives_the_grace_and_keeps_its_checkpoint():
    async def tidies_up(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ctx.checkpoint({"page": 7})

    async def scene():
        bench = Bench(tidies_up)
        bench.store.hand_off("tidies_up")
        await bench.work()
        assert await drained(bench, 5 * SECOND) == []
        (ending,) = bench.store.finished
        assert (ending.event, ending.outcome) == (Event.GIVEN_BACK, Outcome.INTERRUPTED)
        assert ending.finished_at == START + 5 * SECOND
        assert bench.store.ready[0].checkpoint == b'{"page":7}'
        assert bench.store.retired == [1]

    run(scene())


def test_setting_the_hosts_clock_does_not_end_the_grace():
    clock: Any = None

    async def takes_three_seconds() -> None:
        await clock.sleep(SECOND)
        clock.step(HOUR)
        await clock.sleep(2 * SECOND)

    async def scene():
        nonlocal clock
        bench = Bench(takes_three_seconds)
        clock = bench.clock
        bench.store.hand_off("takes_three_seconds")
        await bench.work()
        assert await drained(bench, 5 * SECOND) == []
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert bench.clock.monotonic() == 3 * SECOND

    run(scene())


def test_a_task_that_others_cancel_while_the_worker_drains_costs_its_run_nothing():
    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        (attempt,) = bench.worker.running
        draining = asyncio.create_task(bench.worker.drain(HOUR))
        await until(lambda: bench.worker.draining)
        attempt.task.cancel()
        assert await draining == []
        assert bench.store.outcomes == [Outcome.INTERRUPTED]

    run(scene())


def test_a_drain_gives_back_what_has_not_begun():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=8, threads=3)
        await occupy(bench, gate, 2)
        for _ in range(3):
            bench.store.hand_off("ignorant")
        await begin(bench, gate)
        draining = asyncio.create_task(bench.worker.drain(MINUTE))
        await until(lambda: len(bench.store.given_back) == 2)
        gate.open.set()
        assert await draining == []
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert bench.store.retired == [1]

    run(scene())


def test_a_claim_in_flight_when_the_drain_begins_is_given_back():
    async def scene():
        bench = Bench(noop)
        await bench.worker.start()
        bench.store.hand_off("noop")
        bench.store.slow["claim"] = asyncio.Event()
        going_round = asyncio.create_task(bench.worker.run_once())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        draining = asyncio.create_task(bench.worker.drain(SECOND))
        await asyncio.sleep(0)
        bench.store.slow.pop("claim").set()
        await draining
        await going_round
        assert len(bench.store.given_back) == 1
        assert bench.store.finished == []
        assert bench.store.retired == [1]

    run(scene())


def test_a_drain_interrupts_attempts_while_a_claim_waits_for_the_store():
    """One of them may hold the lock that the claim waits for."""

    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        waiting = bench.store.hand_off("forever")
        answer = bench.store.slow["claim"] = asyncio.Event()
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: bench.worker.claiming is not None)
        draining = asyncio.create_task(bench.worker.drain(0))
        await until(lambda: bench.store.finished)
        assert bench.store.outcomes == [Outcome.INTERRUPTED]
        assert bench.worker.claiming is not None
        answer.set()
        await draining
        await running
        assert waiting.number in {claimed.number for claimed in bench.store.given_back}

    run(scene())


def test_threads_that_outlive_the_drain_stay_owned_and_are_named():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, gate.polite)
        bench.store.hand_off("ignorant", name="books#1")
        bench.store.hand_off("polite", name="books#2")
        await begin(bench, gate, 2)
        draining = asyncio.create_task(bench.worker.drain(SECOND))

        def has_drained() -> bool:
            moment = bench.clock.next_sleeper()
            if moment is not None and (moment < START + 2 * SECOND or bench.store.finished):
                bench.clock.set(moment)
            return draining.done()

        await until(has_drained)
        assert await draining == ["books#1"]
        assert bench.store.outcomes == [Outcome.INTERRUPTED]
        assert bench.store.retired == [], "it still owns a run"
        assert bench.store.leaving == {1}, "the store knows that the run will be interrupted"
        gate.open.set()

    run(scene())


def test_the_store_hears_of_a_shutdown_with_the_next_heartbeat():
    async def scene():
        bench = Bench(forever)
        bench.store.hand_off("forever")
        await bench.work()
        await bench.worker.heartbeat.run_once()
        assert bench.store.leaving == set()
        draining = asyncio.create_task(bench.worker.drain(HOUR))
        await until(lambda: bench.worker.draining)
        await bench.worker.heartbeat.run_once()
        assert bench.store.leaving == {1}, "it may be killed before its grace has ended"
        for attempt in list(bench.worker.running):
            attempt.task.cancel()
        await draining

    run(scene())


async def drained_around_a_thread(bench: Bench) -> None:
    """A drain that ends although a thread goes on."""
    draining = asyncio.create_task(bench.worker.drain(0))

    def has_drained() -> bool:
        moment = bench.clock.next_sleeper()
        if moment is not None:
            bench.clock.set(moment)
        return draining.done()

    await until(has_drained)


def test_after_an_attempt_is_recorded_as_interrupted_each_call_of_its_context_raises():
    gate = Gate()
    calls: list[Callable[[Context], object]] = [
        lambda ctx: ctx.check(),
        lambda ctx: ctx.progress(1),
        lambda ctx: ctx.checkpoint(1),
        lambda ctx: ctx.each([1]),
        lambda ctx: ctx.item_failed("broken"),
        lambda ctx: ctx.effect("pay", key=1),
        lambda ctx: ctx.transaction(),
    ]
    raised: list[str] = []

    def deaf(ctx: Context) -> None:
        gate.ignorant()
        for call in calls:
            try:
                call(ctx)
            except Cancelled as error:
                raised.append(str(error))

    async def scene():
        bench = Bench(deaf)
        bench.store.hand_off("deaf", name="books#1")
        await begin(bench, gate)
        (attempt,) = bench.worker.running
        await drained_around_a_thread(bench)
        gate.open.set()
        await asyncio.wrap_future(attempt.future)
        assert raised == ["books#1/1 was interrupted: its worker is shutting down"] * len(calls)

    run(scene())


def test_the_record_of_an_interrupted_attempt_contains_each_item_whose_report_did_not_raise():
    gate = Gate()
    finished: list[int] = []

    def settle(ctx: Context) -> None:
        for number in ctx.each(range(3)):
            if finished:
                gate.ignorant()
            finished.append(number)

    async def scene():
        bench = Bench(settle)
        run = bench.store.hand_off("settle")
        await begin(bench, gate)
        (attempt,) = bench.worker.running
        await drained_around_a_thread(bench)
        gate.open.set()
        await asyncio.wrap_future(attempt.future)
        assert finished == [0, 1], "the loop raised when it reported the second item"
        assert [key for _, key in bench.store.items[run.number]] == ["0"]

    run(scene())


def test_interrupted_attempts_are_recorded_before_processes_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    gate = Gate()
    seen: list[tuple[bool, list[bytes | None]]] = []

    def settle(ctx: Context) -> None:
        ctx.checkpoint(1)
        gate.ignorant()

    async def look(worker: Worker) -> None:
        reports = [report.checkpoint for report in worker.outbox.parting]
        seen.extend((attempt.context is not None and attempt.context._over, reports) for attempt in worker.running)

    async def scene():
        monkeypatch.setattr(drain, "_processes_ended", look)
        bench = Bench(settle)
        bench.store.hand_off("settle")
        await begin(bench, gate)
        await drained_around_a_thread(bench)
        assert seen == [(True, [b"1"])]

    run(scene())


def test_a_heartbeat_that_is_under_way_does_not_overwrite_the_last_record():
    gate = Gate()
    go = threading.Event()

    def settle(ctx: Context) -> None:
        ctx.checkpoint(1)
        gate.begun.release()
        assert go.wait(HANG)
        ctx.checkpoint(2)
        gate.ignorant()

    async def scene():
        bench = Bench(settle)
        run = bench.store.hand_off("settle")
        await begin(bench, gate)
        bench.store.slow["beat"] = asyncio.Event()
        beating = asyncio.create_task(bench.worker.heartbeat.run_once())
        await asyncio.sleep(0)
        go.set()
        await asyncio.to_thread(gate.begun.acquire)
        slow = bench.store.slow.pop("beat")
        draining = asyncio.create_task(drained_around_a_thread(bench))
        await until(lambda: all(attempt.context._over for attempt in bench.worker.running))
        assert not bench.store.beats, "the record waits for the beat that began before it"
        slow.set()
        assert await beating
        await draining
        assert bench.store.owned[run.number].checkpoint == b"2"

    run(scene())


def test_a_drain_tells_the_store_when_it_comes_back():
    async def scene():
        bench = Bench(noop)
        bench.store.hand_off("noop")
        await bench.worker.run_once()
        await asyncio.sleep(0)
        bench.store.failing["finish"] = StoreError("busy")
        draining = asyncio.create_task(drained(bench, SECOND))
        while bench.worker.outbox.pause.until is None:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0)
        del bench.store.failing["finish"]
        assert await draining == []
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        assert bench.store.retired == [1]

    run(scene())


def test_a_worker_that_never_started_drains_at_once():
    async def scene():
        bench = Bench(noop)
        assert await bench.worker.drain(HOUR) == []
        assert bench.store.retired == []

    run(scene())


# What an operator wants of it


def test_a_worker_that_is_to_leave_takes_nothing_more_and_goes_when_the_last_of_its_work_has_ended():
    async def scene():
        bench = Bench(forever, noop)
        running = asyncio.create_task(bench.worker.run())
        bench.store.hand_off("forever")
        await until(lambda: bench.worker.running)
        bench.store.wishes[bench.worker.number] = Wish.DRAIN
        await until(lambda: bench.worker.wish is Wish.DRAIN)
        bench.store.hand_off("noop")
        (attempt,) = bench.worker.running
        await bench.work()
        assert list(bench.worker.running) == [attempt], "what runs goes on, and nothing new begins"
        assert not running.done()
        attempt.task.cancel()
        await running
        assert bench.worker.has_left
        await bench.worker.drain(HOUR)
        assert [ending.outcome for ending in bench.store.finished] == [Outcome.FAILED]

    run(scene())


def test_a_worker_in_quarantine_stays_and_works_again_when_it_is_told_to():
    async def scene():
        bench = Bench(noop)
        await bench.work()
        bench.store.wishes[bench.worker.number] = Wish.QUARANTINE
        await bench.worker.heartbeat.run_once()
        bench.store.hand_off("noop")
        await bench.work()
        assert (bench.store.finished, bench.worker.has_left) == ([], False)
        bench.store.wishes[bench.worker.number] = None
        await bench.worker.heartbeat.run_once()
        await bench.work()
        assert len(bench.store.finished) == 1
        await bench.worker.drain(0)

    run(scene())


def test_what_a_person_wants_is_of_the_worker_and_not_of_the_number_that_it_had():
    async def scene():
        bench = Bench(noop)
        await bench.work()
        first = bench.worker.number
        bench.store.wishes[first] = Wish.QUARANTINE
        await bench.worker.heartbeat.run_once()
        bench.store.dead.add(first)
        await bench.worker.heartbeat.run_once()
        await bench.work()
        assert bench.worker.number != first
        assert bench.store.wishes[bench.worker.number] is Wish.QUARANTINE
        await bench.worker.drain(0)

    run(scene())
