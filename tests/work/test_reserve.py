"""A share of every worker is kept for live work, however much there is to catch up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from foliot.domain.run import Lane
from foliot.errors import InvalidInput
from foliot.work.context import Context
from tests.waiting import HANG
from tests.work.fakes import Bench, run


async def forever(ctx: Context) -> None:
    await asyncio.Event().wait()


def running(bench: Bench) -> list[int]:
    """How many attempts of each lane hold a slot."""
    return [sum(attempt.claimed.lane == lane for attempt in bench.worker.running) for lane in Lane]


@pytest.mark.parametrize(
    ("slots", "reserve", "late"),
    [(8, 0.25, 6), (8, 0.0, 8), (9, 0.25, 6), (2, 0.25, 1), (1, 0.25, 1), (4, 0.9, 1), (100, 0.25, 75)],
)
def test_the_backlog_takes_no_more_than_what_is_not_reserved_and_a_single_slot_is_not(
    slots: int, reserve: float, late: int
) -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=slots, reserve=reserve)
        for _ in range(slots):
            bench.store.hand_off("forever", lane=Lane.CATCH_UP)
        await bench.work()
        assert running(bench) == [0, late, 0]

    run(scene())


def test_catch_up_and_backfill_share_what_is_not_reserved_and_live_work_takes_everything() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=8, reserve=0.25)
        for lane in (Lane.BACKFILL, Lane.CATCH_UP) * 4:
            bench.store.hand_off("forever", lane=lane)
        await bench.work()
        assert sum(running(bench)[1:]) == 6
        for _ in range(3):
            bench.store.hand_off("forever")
        await bench.work()
        assert running(bench)[Lane.LIVE] == 2

    run(scene())


def test_a_worker_full_of_live_work_leaves_the_backlog_alone() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=4, reserve=0.25)
        for _ in range(4):
            bench.store.hand_off("forever")
        bench.store.hand_off("forever", lane=Lane.CATCH_UP)
        await bench.work()
        assert running(bench) == [4, 0, 0]

    run(scene())


def test_what_waited_for_a_place_of_the_backlog_is_taken_when_one_of_it_ends() -> None:
    async def scene() -> None:
        gate = asyncio.Event()

        async def waits() -> None:
            await gate.wait()

        bench = Bench(waits, slots=4, reserve=0.5)
        for _ in range(10):
            bench.store.hand_off("waits", lane=Lane.CATCH_UP)
        await bench.work()
        assert running(bench) == [0, 2, 0]
        gate.set()
        await bench.work()
        assert len(bench.store.finished) == 10

    run(scene())


def test_a_worker_that_is_told_of_news_claims_again_when_one_of_the_backlog_ends_and_not_before() -> None:
    """Such a worker does not ask while it has all: then an end of the backlog is what makes room."""

    async def scene() -> None:
        gates = [asyncio.Event() for _ in range(3)]

        async def waits(place: int) -> None:
            await gates[place].wait()

        bench = Bench(waits, slots=4, reserve=0.5)
        bench.store.when_new = lambda callback: True  # type: ignore[method-assign]
        bench.store.version = lambda: 1  # type: ignore[method-assign]
        for place in range(3):
            bench.store.hand_off("waits", {"place": place}, lane=Lane.CATCH_UP)
        await bench.work()
        asked = len(bench.store.claims)
        await bench.work()
        assert len(bench.store.claims) == asked
        gates[0].set()
        await bench.work()
        assert (len(bench.store.ready), running(bench)) == (0, [0, 2, 0])

    run(scene())


def test_threads_are_reserved_as_slots_are() -> None:
    async def scene() -> None:
        gate = threading.Event()

        def waits() -> None:
            gate.wait(HANG)

        bench = Bench(waits, slots=100, threads=4, reserve=0.25)
        for _ in range(10):
            bench.store.hand_off("waits", lane=Lane.CATCH_UP)
        await bench.worker.start()
        for _ in range(3):
            await bench.worker.run_once()
        assert running(bench) == [0, 3, 0]
        bench.store.hand_off("waits")
        await bench.worker.run_once()
        assert running(bench) == [1, 3, 0]
        gate.set()
        await bench.work()
        assert len(bench.store.finished) == 11

    run(scene())


@pytest.mark.parametrize("reserve", [-0.1, 1.0, 7.0])
def test_a_share_that_is_none_is_refused(reserve: float) -> None:
    with pytest.raises(InvalidInput, match="from 0 to below 1"):
        Bench(forever, reserve=reserve)
