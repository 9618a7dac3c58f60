"""The event loop of a worker stands still. Here the test itself blocks it: nothing in it is awaited between two looks,
and the clock is moved meanwhile."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

import pytest

from foliot.domain.instant import MILLISECOND, SECOND
from foliot.domain.policy import OnStall, Policy
from foliot.domain.state import Outcome
from foliot.domain.store import Beat, Wish
from foliot.errors import StoreError
from foliot.portal import finished
from foliot.work.context import Context
from tests.waiting import HANG
from tests.work.fakes import Bench, Gate, begin, run

RECYCLE = 3 * SECOND
TOLD = "blocks the event loop of its worker (at "


async def patient(ctx: Context) -> None:
    ctx.checkpoint(7)
    await asyncio.Event().wait()


class Blocked(Bench):
    """Of a worker that may end its process; that this was done is written down."""

    def __init__(self, *functions: Any, policy: Policy | None = None, **worker: Any) -> None:
        self.exits: list[int] = []
        more = {"recycle_after": RECYCLE, "end_process": self.exits.append, **worker}
        super().__init__(*functions, policy=policy, **more)

    def block(self, length: int) -> None:
        """For so long the heart looks, and the loop does not turn."""
        for _ in range(length // (500 * MILLISECOND)):
            self.look()
            self.clock.advance(500 * MILLISECOND)
        self.look()

    def look(self) -> None:
        finished(self.worker.heartbeat.blockade.run_once())

    @property
    def told(self) -> list[str]:
        return [detail for kind, _, detail in self.store.notes if kind == "blocked"]


async def blocked(*functions: Any, **more: Any) -> Blocked:
    bench = Blocked(*functions, **more)
    for function in functions:
        bench.store.hand_off(function.__name__)
    await bench.work()
    return bench


def test_people_are_told_after_a_second_and_the_process_is_given_up_for_it():
    async def scene():
        bench = await blocked(patient)
        bench.block(10 * SECOND)
        assert (bench.told, bench.exits) == ([], []), "it is not past its deadline yet"
        bench.block(SECOND)
        assert len(bench.told) == 1
        bench.block(2 * SECOND)
        assert (len(bench.told), bench.exits) == (1, []), "once is enough"
        bench.block(SECOND)
        assert bench.exits == [75]
        assert bench.told[1].endswith("its worker process was ended because of that")
        _, (word,) = bench.store.beats[-1]
        assert (word.number, word.checkpoint, word.ending) == (1, b"7", Outcome.TIMED_OUT)

    run(scene())


def test_a_drained_worker_that_is_given_up_is_not_to_be_started_again():
    async def scene():
        bench = await blocked(patient)
        heard = Thread(target=bench.worker.heard, args=(bench.worker.number, Beat(True, [], wish=Wish.DRAIN)))
        heard.start()
        heard.join()
        bench.block(14 * SECOND)
        assert (bench.exits, bench.worker.wish) == ([77], None), "the loop has not heard of it"

    run(scene())


def test_a_loop_that_turns_is_left_to_its_own_deadlines():
    async def scene():
        bench = await blocked(patient)
        for _ in range(40):
            bench.block(500 * MILLISECOND)
            await asyncio.sleep(0)
        assert (bench.told, bench.exits) == ([], [])

    run(scene())


def test_the_handler_whose_task_the_loop_is_in_is_named():
    async def guilty() -> None:
        await asyncio.Event().wait()

    async def scene():
        bench = await blocked(patient, guilty)
        _, attempt = bench.worker.running
        attempt.task = asyncio.current_task()
        bench.block(11 * SECOND)
        ((_, subject, detail),) = bench.store.notes
        assert subject == attempt.claimed.id
        assert detail.startswith(f"attempt 1 of guilty {TOLD}")

    run(scene())


def test_what_is_not_past_its_deadline_is_simply_lost_with_the_process():
    async def scene():
        bench = await blocked(patient)
        bench.clock.advance(8 * SECOND)
        bench.store.hand_off("patient")
        await bench.work()
        bench.block(6 * SECOND)
        assert bench.exits == [75]
        assert [word.ending for word in bench.store.beats[-1][1]] == [Outcome.TIMED_OUT, None]

    run(scene())


def test_a_thread_is_asked_from_there_and_its_ending_is_not_lost():
    async def scene():
        gate = Gate()
        bench = Blocked(patient, gate.polite)
        bench.store.hand_off("patient")
        bench.store.hand_off("polite")
        await begin(bench, gate)
        _, thread = bench.worker.running
        bench.block(11 * SECOND)
        try:
            thread.future.result(HANG)  # the loop does not turn meanwhile
        finally:
            gate.open.set()
        bench.block(3 * SECOND)
        assert bench.exits == [75]
        assert [(ending.number, ending.outcome) for ending in bench.store.finished] == [(2, Outcome.TIMED_OUT)]

    run(scene())


def test_after_the_whole_process_slept_the_loop_has_its_time_again():
    async def scene():
        bench = await blocked(patient)
        bench.block(11 * SECOND)
        bench.clock.advance(60 * SECOND)
        bench.look()
        assert bench.exits == []
        bench.block(3 * SECOND)
        assert bench.exits == []
        bench.block(SECOND)
        assert bench.exits == [75]

    run(scene())


@pytest.mark.parametrize(("on_stall", "exits"), [(OnStall.KILL, [75]), (OnStall.CANCEL, []), (OnStall.ALERT, [])])
def test_a_standstill_counts_where_it_is_to_be_ended(on_stall: OnStall, exits: list[int]):
    async def scene():
        policy = Policy(timeout=60 * SECOND, stall_after=2 * SECOND, on_stall=on_stall)
        bench = await blocked(patient, policy=policy)
        bench.block(6 * SECOND)
        assert bench.exits == exits
        assert [word.ending for _, words in bench.store.beats for word in words] == [Outcome.STALLED] * len(exits)

    run(scene())


def test_a_store_that_does_not_answer_does_not_keep_the_process():
    async def scene():
        bench = await blocked(patient)
        bench.store.failing = {"beat": StoreError("away"), "note": StoreError("away")}
        bench.block(14 * SECOND)
        assert bench.exits == [75]

    run(scene())


def test_a_loop_that_turns_at_the_last_moment_ends_in_order():
    async def scene():
        bench = await blocked(patient)
        bench.block(13 * SECOND)
        bench.store.slow["beat"] = asyncio.Event()
        bench.clock.advance(SECOND)
        look = bench.worker.heartbeat.blockade.run_once()
        look.send(None)  # it tells the store, which does not answer yet
        await asyncio.sleep(0)
        bench.store.slow["beat"].set()
        finished(look)
        assert (bench.exits, bench.worker.recycling) == ([], True)

    run(scene())


def test_where_the_process_is_not_the_workers_own_people_are_only_told():
    async def scene():
        bench = await blocked(patient, end_process=None)
        bench.block(60 * SECOND)
        assert len(bench.told) == 1
        assert not bench.worker.recycling

    run(scene())


def test_a_process_that_shuts_down_records_what_a_blocked_loop_keeps_from_ending():
    async def scene():
        gate = Gate()
        bench = Blocked(patient, gate.ignorant)
        bench.store.hand_off("patient")
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        finished(bench.worker.heartbeat.blockade.record_interrupted())
        assert bench.store.leaving == {1}
        _, words = bench.store.beats[-1]
        assert [(word.number, word.checkpoint, word.ending) for word in words] == [(1, b"7", None), (2, None, None)]
        assert bench.store.finished == []
        gate.open.set()

    run(scene())
