"""Of every worker a part is left free by tenants that have had their share, for those who have not."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from foliot.domain.run import Lane
from foliot.errors import InvalidInput
from foliot.work.context import Context
from tests.waiting import HANG
from tests.work.fakes import FLOOD, Bench, run


async def forever(ctx: Context) -> None:
    await asyncio.Event().wait()


def running(bench: Bench) -> Counter[str | None]:
    return Counter(attempt.claimed.tenant for attempt in bench.worker.running)


def hand_off(bench: Bench, tenant: str | None, count: int, job: str = "forever", lane: Lane = Lane.LIVE) -> None:
    for _ in range(count):
        bench.store.hand_off(job, tenant=tenant, lane=lane)


@pytest.mark.parametrize(
    ("slots", "headroom", "flooded"),
    [(100, 0.1, 90), (10, 0.1, 9), (4, 0.1, 4), (1, 0.9, 1), (20, 0.0, 20), (8, 0.5, 4)],
)
def test_who_floods_leaves_the_headroom_free(slots: int, headroom: float, flooded: int) -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=slots, headroom=headroom)
        hand_off(bench, FLOOD, 2 * slots)
        await bench.work()
        assert running(bench) == {FLOOD: flooded}

    run(scene())


def test_others_find_room_in_a_worker_that_is_full_of_a_flood() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=10, headroom=0.2)
        hand_off(bench, FLOOD, 100)
        await bench.work()
        hand_off(bench, "trickle", 3)
        await bench.work()
        assert running(bench) == {FLOOD: 8, "trickle": 2}

    run(scene())


def test_who_floods_goes_on_when_one_of_its_runs_has_ended_also_where_nothing_new_is_told() -> None:
    async def scene() -> None:
        gates = [asyncio.Event() for _ in range(30)]
        begun: list[int] = []

        async def waits() -> None:
            begun.append(len(begun))
            await gates[begun[-1]].wait()

        bench = Bench(waits, slots=10, headroom=0.2)
        bench.store.when_new = lambda callback: True  # type: ignore[method-assign]
        bench.store.version = lambda: 1  # type: ignore[method-assign]
        hand_off(bench, FLOOD, 30, "waits")
        await bench.work()
        assert len(begun) == 8
        for gate in gates[:5]:
            gate.set()
        await bench.work()
        assert (len(begun), len(bench.worker.running)) == (13, 8)

    run(scene())


def test_threads_have_headroom_as_slots_have() -> None:
    async def scene() -> None:
        gate = threading.Event()

        def waits() -> None:
            gate.wait(HANG)

        bench = Bench(waits, slots=100, threads=10, headroom=0.1)
        hand_off(bench, FLOOD, 20, "waits")
        await bench.work(patience=0)
        assert running(bench) == {FLOOD: 9}
        hand_off(bench, "trickle", 5, "waits")
        await bench.work(patience=0)
        assert running(bench) == {FLOOD: 9, "trickle": 1}
        gate.set()
        bench.store.ready.clear()
        await bench.work()

    run(scene())


@pytest.mark.parametrize("headroom", [-0.1, 1.0])
def test_a_headroom_that_is_no_share_is_refused(headroom: float) -> None:
    with pytest.raises(InvalidInput, match="headroom"):
        Bench(forever, headroom=headroom)
