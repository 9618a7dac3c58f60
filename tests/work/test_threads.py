from __future__ import annotations

import threading

from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.state import Outcome
from foliot.domain.store import Beat
from tests.work.fakes import START, Bench, Gate, begin, run


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


def test_waiting_for_a_thread_counts_as_a_slot_and_the_start_is_when_it_really_begins():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=4, threads=1)
        for _ in range(5):
            bench.store.hand_off("ignorant")
        await begin(bench, gate)
        await bench.worker.run_once()
        assert len(bench.worker.running) == 4
        bench.clock.advance(MINUTE)
        gate.open.set()
        await bench.work()
        first, *rest = bench.store.finished
        assert (first.started_at, first.outcome) == (START, Outcome.SUCCEEDED)
        assert {ending.started_at for ending in rest} == {START + MINUTE}

    run(scene())


def test_a_run_that_waits_for_a_thread_can_be_cancelled():
    async def scene():
        gate = Gate()
        bench = Bench(gate.ignorant, slots=4, threads=1)
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
