from __future__ import annotations

import asyncio

import pytest

from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.state import Outcome
from foliot.errors import StoreClosed, StoreError
from foliot.work.context import Context
from tests import waiting
from tests.waiting import soon
from tests.work.fakes import START, Bench, FakeStore, Gate, run, until


async def reports(ctx: Context) -> None:
    ctx.progress(1, of=3, note="begun")
    await asyncio.Event().wait()


async def silent() -> None:
    await asyncio.Event().wait()


async def noop() -> None: ...


@pytest.mark.parametrize(
    ("lease", "every"),
    [(3 * SECOND, SECOND), (HOUR, SECOND), (900 * MILLISECOND, 300 * MILLISECOND), (0, 200 * MILLISECOND)],
)
def test_it_beats_three_times_in_a_lease_and_once_a_second_at_least(lease, every):
    async def scene():
        heartbeat = Bench(noop, policy=Policy(lease=lease)).worker.heartbeat
        assert heartbeat.every == every

    run(scene())


def test_one_beat_tells_of_all_attempts_that_have_news():
    async def scene():
        bench = Bench(reports, silent)
        bench.store.hand_off("reports")
        bench.store.hand_off("silent")
        await bench.work()
        heartbeat = bench.worker.heartbeat
        assert heartbeat.due_at == START
        assert await heartbeat.run_once()
        assert heartbeat.due_at == START + SECOND
        ((worker, (first, second)),) = bench.store.beats
        assert worker == bench.worker.number
        assert (first.number, first.started_at, first.note) == (
            1,
            START,
            b'{"done":1,"of":3,"note":"begun","at":%d}' % START,
        )
        assert (second.number, second.started_at, second.note) == (2, START, None)
        await heartbeat.run_once()
        assert bench.store.beats[1] == (worker, [])

    run(scene())


def test_what_was_not_heard_is_said_again():
    async def scene():
        bench = Bench(reports)
        bench.store.hand_off("reports")
        await bench.work()
        bench.store.failing["beat"] = StoreError("busy")
        assert not await bench.worker.heartbeat.run_once()
        del bench.store.failing["beat"]
        assert await bench.worker.heartbeat.run_once()
        assert [len(words) for _, words in bench.store.beats] == [1]

    run(scene())


def test_a_heartbeat_that_fails_again_for_the_same_reason_is_logged_once(caplog):
    async def scene():
        bench = Bench(silent)
        bench.store.hand_off("silent")
        await bench.work()
        for error in (StoreError("full"), StoreError("full"), StoreError("away")):
            bench.store.failing["beat"] = error
            assert not await bench.worker.heartbeat.run_once()
        del bench.store.failing["beat"]
        assert await bench.worker.heartbeat.run_once()
        bench.store.failing["beat"] = StoreError("away")
        assert not await bench.worker.heartbeat.run_once()
        assert [line.rpartition(": ")[2] for line in caplog.messages] == ["full", "away", "away"]

    run(scene())


def test_before_it_is_registered_a_worker_has_nothing_to_say():
    async def scene():
        bench = Bench(noop)
        assert not await bench.worker.heartbeat.run_once()
        assert bench.store.beats == []

    run(scene())


def test_a_cancellation_is_heard_with_a_beat():
    async def scene():
        bench = Bench(silent)
        bench.store.hand_off("silent")
        await bench.work()
        bench.store.cancel = [1]
        await bench.worker.heartbeat.run_once()
        await bench.work()
        assert bench.store.outcomes == [Outcome.CANCELLED]

    run(scene())


def test_a_worker_hears_that_it_was_declared_dead():
    async def scene():
        bench = Bench(silent)
        bench.store.hand_off("silent")
        await bench.work()
        bench.store.dead.add(bench.worker.number)
        bench.store.take_away()
        await bench.worker.heartbeat.run_once()
        await bench.work()
        assert bench.worker.number == 2
        assert bench.worker.idle

    run(scene())


def test_a_handler_that_blocks_the_loop_does_not_stop_the_heart():
    async def scene():
        async def blocks() -> None:
            before = len(bench.store.beats)
            waiting.until(
                lambda: len(bench.store.beats) >= before + 3, "the heart has beaten, though the loop is blocked"
            )

        bench = Bench(blocks, policy=Policy(lease=300 * MILLISECOND, timeout=MINUTE))
        bench.store.hand_off("blocks")
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: bench.store.finished)
        await bench.worker.drain(0)
        await running
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


@pytest.mark.parametrize("blocked", ["claim", "finish"])
def test_a_store_that_is_long_at_work_does_not_silence_a_heart_with_a_handle_of_its_own(blocked):
    async def scene():
        beside = FakeStore()
        bench = Bench(noop, silent, policy=Policy(lease=300 * MILLISECOND), beat_store=beside)
        await bench.worker.start()
        written = asyncio.Event()
        bench.store.slow = {blocked: written, "beat": written}  # who asks the same handle has to wait
        bench.store.hand_off("noop")
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(beside.beats) >= 3)
        assert bench.store.finished == []
        assert bench.store.beats == []
        written.set()
        await until(lambda: bench.store.finished)
        await bench.worker.drain(0)
        await running

    run(scene())


def test_a_request_heard_in_the_hearts_own_thread_reaches_task_and_thread():
    async def scene():
        bench = Bench(Gate().polite, silent, policy=Policy(lease=300 * MILLISECOND, timeout=MINUTE))
        bench.store.hand_off("polite")
        bench.store.hand_off("silent")
        running = asyncio.create_task(bench.worker.run())
        await until(lambda: len(bench.worker.running) == 2)
        bench.store.cancel = [1, 2]
        await until(lambda: len(bench.store.finished) == 2)
        await bench.worker.drain(0)
        await running
        assert bench.store.outcomes == [Outcome.CANCELLED] * 2

    run(scene())


def test_a_heart_that_stops_for_good_stops_the_worker():
    async def scene():
        bench = Bench(noop)
        bench.store.failing["beat"] = StoreClosed("closed")
        running = asyncio.create_task(bench.worker.run())
        with pytest.raises(StoreClosed):
            await soon(running)
        await bench.worker.heartbeat.stop()

    run(scene())
