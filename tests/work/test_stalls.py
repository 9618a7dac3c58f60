"""Attempts that live and do not move, and handlers that do not heed what they are told; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.policy import OnStall, Policy
from foliot.domain.state import Event, Outcome, Reason
from foliot.work.context import Context
from tests.work.fakes import Bench, Gate, begin, claimed, run

NAME = claimed().id
"""Of the first run that is handed off."""
POLICY = Policy(timeout=60 * MINUTE, stall_after=5 * MINUTE)
ALERT = Policy(timeout=60 * MINUTE, stall_after=5 * MINUTE, on_stall=OnStall.ALERT)


def kinds(bench: Bench) -> list[str]:
    return [kind for kind, _, _ in bench.store.notes]


class Walker:
    """An async handler that makes a step whenever it is told to."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[str] = asyncio.Queue()

    async def walk(self, ctx: Context) -> None:
        count = 0
        while (step := await self.steps.get()) != "home":
            count += 1
            ctx.checkpoint(count) if step == "checkpoint" else ctx.progress(count)


def test_an_attempt_that_does_not_move_is_stuck_and_asked_to_stop():
    async def scene():
        walker = Walker()
        bench = Bench(walker.walk, policy=POLICY)
        bench.store.hand_off("walk")
        await bench.work()
        await bench.advance(5 * MINUTE - 1)
        assert bench.store.finished == []
        await bench.advance(1)
        (ending,) = bench.store.finished
        assert (ending.outcome, ending.event, ending.reason) == (
            Outcome.STALLED,
            Event.RETRY_GRANTED,
            Reason.STALLED,
        )
        assert "no progress for 300 s" in (ending.error or "")
        assert bench.store.notes == [("stuck", NAME, "attempt 1: no progress for 5m; cancelling it")]

    run(scene())


@pytest.mark.parametrize("step", ["progress", "checkpoint"])
def test_whatever_moves_it_counts_from_there(step: str):
    async def scene():
        walker = Walker()
        bench = Bench(walker.walk, policy=POLICY)
        bench.store.hand_off("walk")
        await bench.work()
        for _ in range(4):
            await bench.advance(4 * MINUTE)
            walker.steps.put_nowait(step)
            await bench.work()
        assert (kinds(bench), bench.store.finished) == ([], [])
        await bench.advance(5 * MINUTE)
        assert (kinds(bench), bench.store.outcomes) == (["stuck"], [Outcome.STALLED])

    run(scene())


def test_an_alert_stops_nothing_is_told_once_and_says_when_it_moves_again():
    async def scene():
        walker = Walker()
        bench = Bench(walker.walk, policy=ALERT)
        bench.store.hand_off("walk")
        await bench.work()
        for _ in range(3):
            await bench.advance(5 * MINUTE)
        assert kinds(bench) == ["stuck"]
        walker.steps.put_nowait("progress")
        await bench.work()
        await bench.advance(SECOND)
        assert kinds(bench) == ["stuck", "moving"]
        await bench.advance(5 * MINUTE)
        assert kinds(bench) == ["stuck", "moving", "stuck"], "a new standstill is a new event"
        walker.steps.put_nowait("home")
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_one_that_stands_still_still_has_its_deadline():
    async def scene():
        walker = Walker()
        bench = Bench(walker.walk, policy=ALERT)
        bench.store.hand_off("walk")
        await bench.work()
        await bench.advance(5 * MINUTE)
        await bench.advance(55 * MINUTE)
        assert bench.store.outcomes == [Outcome.TIMED_OUT]

    run(scene())


def test_virtual_time_knows_when_an_attempt_will_have_stood_still_for_too_long():
    async def scene():
        walker = Walker()
        bench = Bench(walker.walk, policy=POLICY)
        bench.store.hand_off("walk")
        await bench.work()
        began = bench.clock.now()
        assert bench.worker.next_deadline() == began + 5 * MINUTE
        bench.clock.advance(MINUTE)
        walker.steps.put_nowait("progress")
        await bench.work()
        assert bench.worker.next_deadline() == began + 6 * MINUTE

    run(scene())


def test_a_thread_that_stalls_and_does_not_look_ends_as_it_likes_before_its_deadline():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, policy=POLICY)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        bench.clock.advance(5 * MINUTE)
        await bench.worker.run_once()
        gate.open.set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED], "a proven completion is not thrown away"
        assert kinds(bench) == ["stuck"]

    run(scene())


def test_a_thread_that_stalls_and_looks_has_stalled():
    async def scene():
        gate = Gate()
        bench = Bench(gate.polite, policy=POLICY)
        bench.store.hand_off("polite")
        await begin(bench, gate)
        bench.clock.advance(5 * MINUTE)
        await bench.worker.run_once()
        await bench.work()
        assert bench.store.outcomes == [Outcome.STALLED]

    run(scene())


def recycling(gate: Gate, policy: Policy, **more: Any) -> Bench:
    bench = Bench(gate.ignorant, gate.polite, policy=policy, recycle_after=10 * SECOND, **more)
    bench.store.hand_off("ignorant")
    return bench


async def pass_by(bench: Bench, *lengths: int) -> None:
    """Time passes, and a thread goes on that nobody can wait for."""
    for length in lengths:
        bench.clock.advance(length)
        await bench.worker.run_once()


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (Policy(timeout=10 * SECOND), Outcome.TIMED_OUT),
        (Policy(stall_after=10 * SECOND, on_stall=OnStall.KILL), Outcome.STALLED),
    ],
    ids=["past its deadline", "standing still"],
)
def test_a_worker_gives_itself_up_for_a_thread_that_cannot_be_ended(policy: Policy, outcome: Outcome):
    async def scene():
        gate = Gate()
        bench = recycling(gate, policy)
        await begin(bench, gate)
        await pass_by(bench, 10 * SECOND, SECOND, 9 * SECOND)
        assert not bench.worker.recycling
        await pass_by(bench, SECOND)
        assert bench.worker.recycling
        assert kinds(bench)[-1] == "overrun"
        await bench.worker.run()  # ends by itself, to be drained
        assert await bench.worker.drain(MINUTE) == [NAME], "without waiting for what will not end"
        ((_, (word,)),) = [(worker, words) for worker, words in bench.store.beats if words and words[0].ending]
        assert (word.number, word.ending) == (1, outcome)
        assert bench.store.finished == [], "no ending is told while it may still do something"
        assert bench.store.retired == []
        gate.open.set()

    run(scene())


def test_a_worker_that_gives_itself_up_lets_its_other_work_finish():
    async def scene():
        gate, other = Gate(), Gate()
        bench = Bench(gate.ignorant, other.polite, policy=Policy(timeout=10 * SECOND), recycle_after=10 * SECOND)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await pass_by(bench, 10 * SECOND, SECOND)
        bench.store.hand_off("polite")
        await pass_by(bench, 5 * SECOND)
        await asyncio.to_thread(other.begun.acquire)
        await pass_by(bench, 5 * SECOND)
        assert bench.worker.recycling
        draining = asyncio.create_task(bench.worker.drain(MINUTE))
        await asyncio.sleep(0)
        other.open.set()
        assert await draining == [NAME]
        assert bench.store.outcomes == [Outcome.SUCCEEDED]
        gate.open.set()

    run(scene())


def test_without_a_process_to_give_up_a_thread_that_goes_on_is_only_reported():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, policy=Policy(timeout=10 * SECOND))
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await pass_by(bench, 10 * SECOND, SECOND, MINUTE, MINUTE)
        assert not bench.worker.recycling
        assert kinds(bench) == ["overrun"]
        gate.open.set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.TIMED_OUT]

    run(scene())


def test_a_thread_that_was_only_cancelled_by_somebody_costs_no_process():
    async def scene():
        gate = Gate()
        bench = recycling(gate, Policy(stall_after=10 * SECOND))
        await begin(bench, gate)
        await pass_by(bench, 10 * SECOND, MINUTE, MINUTE)
        assert not bench.worker.recycling, 'on_stall="cancel" asks, and does not insist'
        gate.open.set()
        await bench.work()

    run(scene())
