from __future__ import annotations

import threading
from unittest import mock

from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.state import Outcome
from foliot.domain.store import Beat
from foliot.work.attempt import Attempt
from foliot.work.deadlines import Deadlines
from foliot.work.handler import Handler
from tests.work.fakes import START, Bench, Gate, begin, claimed, occupy, run


def test_a_sync_handler_runs_in_a_thread():
    seen = []

    def sync_job(x: int) -> int:
        seen.append(threading.current_thread().name)
        return x + 1

    async def scene():
        bench = Bench(sync_job)
        bench.store.hand_off("sync_job", {"x": 1})
        await bench.work()
        (ending,) = bench.store.finished
        assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, b"2")

    run(scene())
    assert seen[0].startswith("foliot-handler")


def test_a_thread_past_its_deadline_keeps_its_slot_is_reported_and_timed_out_when_it_ends():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=1)
        bench.store.hand_off("ignorant")
        await begin(bench, gate)
        bench.clock.advance(11 * SECOND)
        await bench.worker.run_once()
        assert bench.store.notes == [], "it may be about to heed that"
        bench.clock.advance(SECOND)
        await bench.worker.run_once()
        await bench.worker.run_once()
        assert len(bench.worker.running) == 1
        assert bench.store.finished == []
        gate.open.set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.TIMED_OUT]
        assert [note[0] for note in bench.store.notes] == ["overrun"]

    run(scene())


def test_a_thread_that_looks_stops_when_it_is_cancelled():
    async def scene():
        gate = Gate()
        bench = Bench(gate.polite)
        bench.store.hand_off("polite")
        await begin(bench, gate)
        bench.worker.heard(bench.worker.number, Beat(True, [1]))
        await bench.work()
        assert bench.store.outcomes == [Outcome.CANCELLED]

    run(scene())


def test_a_worker_claims_no_more_sync_runs_than_it_has_free_threads():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=10, threads=2)
        for _ in range(5):
            bench.store.hand_off("ignorant")
        await begin(bench, gate, 2)
        asked = len(bench.store.claims)
        bench.clock.advance(5 * SECOND)
        bench.worker._look()
        assert not bench.worker.alarm.ringing, "nothing can be claimed, so it need not wake"
        await bench.worker.run_once()
        assert len(bench.store.claims) == asked, "the store is not asked for nothing"
        assert (len(bench.worker.running), len(bench.store.ready)) == (2, 3)
        gate.open.set()
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 5
        assert max(bench.store.claims) == 2

    run(scene())


def test_async_work_goes_on_while_no_thread_is_free():
    async def quick() -> None: ...

    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, quick, slots=10, threads=1)
        bench.store.hand_off("ignorant")
        bench.store.hand_off("ignorant")
        for _ in range(20):
            bench.store.hand_off("quick")
        await begin(bench, gate)
        while await bench.worker.run_once():
            await bench.worker.settle(patience=0)
        assert bench.store.outcomes == [Outcome.SUCCEEDED] * 20
        assert [waiting.job for waiting in bench.store.ready] == ["ignorant"]
        gate.open.set()
        await bench.work()
        assert bench.worker.idle
        assert len(bench.store.finished) == 22

    run(scene())


def test_without_sync_jobs_threads_do_not_limit_a_claim():
    async def quick() -> None: ...

    async def scene():
        bench = Bench(quick, slots=50, threads=1)
        for _ in range(50):
            bench.store.hand_off("quick")
        await bench.work()
        assert bench.store.claims[0] == 50

    run(scene())


class Sudden(Attempt):
    """Its thread begins just after it was asked for its deadline."""

    def deadline(self):
        found = super().deadline()
        self.begun_at = self.started_at = 0
        return found


def test_a_thread_that_begins_while_deadlines_are_looked_at_is_not_forgotten():
    def job() -> None: ...

    attempt = Sudden(claimed(), Handler.of(job), Policy(timeout=10 * SECOND))
    deadlines = Deadlines([attempt], mock.Mock(), mock.Mock())
    deadlines.nearest = SECOND
    deadlines.watch(SECOND)
    assert deadlines.nearest == 11 * SECOND


def test_waiting_for_a_thread_counts_as_a_slot_and_the_start_is_when_it_really_begins():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=4, threads=4)
        await occupy(bench, gate, 3)
        for _ in range(5):
            bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await bench.worker.run_once()
        assert len(bench.worker.running) == 4
        bench.clock.advance(MINUTE)
        gate.open.set()
        await bench.work()
        first, *rest = sorted(bench.store.finished)
        assert (first.started_at, first.outcome) == (START, Outcome.SUCCEEDED)
        assert {ending.started_at for ending in rest} == {START + MINUTE}

    run(scene())


def test_a_run_that_waits_for_a_thread_can_be_cancelled():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=4, threads=2)
        await occupy(bench, gate, 1)
        bench.store.hand_off("ignorant")
        waiting = bench.store.hand_off("ignorant")
        await begin(bench, gate)
        bench.worker.heard(bench.worker.number, Beat(True, [waiting.number]))
        await bench.worker.run_once()
        gate.open.set()
        await bench.work()
        by_number = {ending.number: ending for ending in bench.store.finished}
        assert by_number[waiting.number].outcome is Outcome.CANCELLED
        assert by_number[waiting.number].started_at is None

    run(scene())
