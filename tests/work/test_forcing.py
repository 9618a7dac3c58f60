"""An operator forces the cancellation of an attempt. If it goes on for a second, it ends with its process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.state import Event, Outcome
from foliot.domain.store import Beat
from foliot.errors import Cancelled
from foliot.work.context import Context
from tests.work.fakes import Bench, Gate, begin, claimed, run
from tests.work.test_blockade import Blocked, blocked
from tests.work.test_drain import drained

NAME = claimed().id
"""Of the first run that is handed off."""


async def forever(ctx: Context) -> None:
    await asyncio.Event().wait()


def recycling(*functions: Any, policy: Policy | None = None) -> Bench:
    return Bench(*functions, policy=policy or Policy(timeout=HOUR), recycle_after=HOUR, end_process=lambda code: None)


async def force(bench: Bench, *numbers: int) -> None:
    bench.store.cancel = bench.store.force = list(numbers)
    assert await bench.worker.heartbeat.run_once()
    await bench.worker.run_once()


async def pass_by(bench: Bench, *lengths: int) -> None:
    for length in lengths:
        bench.clock.advance(length)
        await bench.worker.run_once()


def test_a_thread_that_does_not_stop_costs_its_process_after_a_second():
    async def scene():
        gate = Gate()
        bench = recycling(gate.ignorant)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await force(bench, 1)
        await pass_by(bench, SECOND - 1)
        assert not bench.worker.recycling
        await pass_by(bench, 1)
        assert (bench.worker.recycling, bench.worker.recycling_now) == (True, True)
        await bench.worker.run()  # ends by itself, to be drained
        assert await drained(bench, 0) == [NAME]
        assert [detail for _, _, detail in bench.store.notes] == [
            "attempt 1 of ignorant continues after its forced cancellation"
        ]
        assert bench.store.finished == [], "no ending is recorded while it may still do something"
        assert bench.store.leaving == {bench.worker.number}
        gate.open.set()

    run(scene())


def test_the_contexts_of_all_attempts_in_the_process_are_over():
    async def scene():
        gate = Gate()
        contexts: list[Context] = []

        def keep(ctx: Context) -> None:
            contexts.append(ctx)
            gate.ignorant()

        bench = recycling(keep)
        bench.store.hand_off("keep")
        bench.store.hand_off("keep")
        await begin(bench, gate, 2)
        await force(bench, 1)
        await pass_by(bench, SECOND)
        await drained(bench, 0)
        assert len(contexts) == 2
        for context in contexts:
            with pytest.raises(Cancelled):
                context.checkpoint(7)
        gate.open.set()

    run(scene())


def test_a_task_that_swallows_its_cancellation_costs_its_process():
    async def scene():
        goes_on = [True]

        async def swallow() -> None:
            while goes_on:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        bench = recycling(swallow)
        bench.store.hand_off("swallow")
        await bench.work()
        await force(bench, 1)
        await bench.work()
        assert not bench.worker.recycling
        await pass_by(bench, SECOND)
        assert bench.worker.recycling_now
        goes_on.clear()

    run(scene())


@pytest.mark.parametrize("job", ["forever", "polite"])
def test_a_handler_that_stops_costs_no_process(job: str):
    async def scene():
        gate = Gate()
        bench = recycling(forever, gate.polite)
        bench.store.hand_off(job)
        await (begin(bench, gate) if job == "polite" else bench.work())
        await force(bench, 1)
        await bench.work()
        assert bench.store.outcomes == [Outcome.CANCELLED]
        await pass_by(bench, MINUTE)
        assert not bench.worker.recycling

    run(scene())


def test_a_thread_that_succeeds_within_the_second_has_succeeded():
    async def scene():
        gate = Gate()
        bench = recycling(gate.ignorant)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await force(bench, 1)
        gate.open.set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        await pass_by(bench, MINUTE)
        assert not bench.worker.recycling

    run(scene())


def test_an_attempt_that_was_cancelled_before_has_another_second_when_that_is_forced():
    async def scene():
        gate = Gate()
        bench = recycling(gate.ignorant)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        bench.store.cancel = [1]
        await bench.worker.heartbeat.run_once()
        await pass_by(bench, MINUTE)
        assert not bench.worker.recycling, "a plain cancellation costs no process"
        await force(bench, 1)
        assert not bench.worker.recycling
        await pass_by(bench, SECOND)
        assert bench.worker.recycling
        gate.open.set()

    run(scene())


def test_the_patience_with_an_attempt_that_timed_out_ends_when_its_cancellation_is_forced():
    async def scene():
        gate = Gate()
        bench = recycling(gate.ignorant, policy=Policy(timeout=10 * SECOND))
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await pass_by(bench, 10 * SECOND, SECOND)
        await force(bench, 1)
        await pass_by(bench, SECOND)
        assert bench.worker.recycling_now
        assert [kind for kind, _, _ in bench.store.notes] == ["overrun"], "once is enough"
        gate.open.set()

    run(scene())


def test_the_grace_of_a_drain_ends_when_a_cancellation_is_forced():
    async def scene():
        gate = Gate()
        bench = recycling(gate.ignorant, forever)
        bench.store.hand_off("ignorant")
        bench.store.hand_off("forever")
        await begin(bench, gate)
        draining = asyncio.create_task(bench.worker.drain(HOUR))
        await asyncio.sleep(0)
        await force(bench, 1)
        began = bench.clock.monotonic()
        for _ in range(1000):
            await bench.worker.settle(patience=0)
            await asyncio.sleep(0)
            if draining.done():
                break
            moment = bench.clock.next_sleeper()
            if moment is not None:
                bench.clock.set(moment)
        assert await draining == [NAME]
        assert bench.clock.monotonic() - began < MINUTE
        assert [(ending.outcome, ending.event) for ending in bench.store.finished] == [
            (Outcome.INTERRUPTED, Event.GIVEN_BACK)
        ]
        gate.open.set()

    run(scene())


def test_a_worker_that_cannot_end_its_process_only_reports_it():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, policy=Policy(timeout=HOUR))
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await force(bench, 1)
        await pass_by(bench, SECOND, MINUTE, HOUR)
        assert not bench.worker.recycling
        assert [kind for kind, _, _ in bench.store.notes] == ["overrun"]
        gate.open.set()
        await bench.work()

    run(scene())


@pytest.mark.parametrize("more", [{}, {"recycle_after": SECOND}, {"end_process": lambda code: None}])
def test_a_worker_registers_whether_it_ends_its_process(more: dict[str, Any]):
    async def scene():
        bench = Bench(forever, **more)
        await bench.worker.start()
        assert bench.store.recycling == [False]
        bench = recycling(forever)
        await bench.worker.start()
        assert bench.store.recycling == [True]

    run(scene())


def hear(bench: Blocked, number: int) -> None:
    """In the heartbeat's thread: the event loop does not turn."""
    beat = Beat(True, [number], force=frozenset({number}))
    heard = Thread(target=bench.worker.heard, args=(bench.worker.number, beat))
    heard.start()
    heard.join()


def test_the_process_ends_after_a_second_when_the_event_loop_is_blocked():
    async def scene():
        bench = await blocked(forever, policy=Policy(timeout=HOUR))
        bench.store.hand_off("forever")
        await bench.work()
        hear(bench, 1)
        bench.look()
        bench.block(SECOND)
        assert bench.exits == [75]
        assert bench.store.leaving == {bench.worker.number}, "the other run is interrupted, and not lost"
        assert [word.ending for _, words in bench.store.beats for word in words] == [None, None]

    run(scene())


def test_a_loop_that_turns_is_not_ended_for_a_task_that_stops():
    async def scene():
        bench = await blocked(forever, policy=Policy(timeout=HOUR))
        hear(bench, 1)
        bench.look()
        await bench.work()
        bench.block(10 * SECOND)
        assert bench.exits == []
        assert bench.store.outcomes == [Outcome.CANCELLED]

    run(scene())
