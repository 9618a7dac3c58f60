"""A queue can have slots of a worker to itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from foliot.errors import InvalidInput
from foliot.work.context import Context
from tests.work.fakes import Bench, run

BOTH = ("default", "mail")


async def forever(ctx: Context) -> None:
    await asyncio.Event().wait()


def running(bench: Bench) -> Counter[str | None]:
    return Counter(attempt.claimed.queue for attempt in bench.worker.running)


def hand_off(bench: Bench, queue: str, count: int) -> None:
    for _ in range(count):
        bench.store.hand_off("forever", queue=queue)


def test_others_leave_the_slots_of_a_queue_free() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=5, queues=BOTH, reserved={"mail": 2})
        hand_off(bench, "default", 10)
        await bench.work()
        assert running(bench) == {"default": 3}
        hand_off(bench, "mail", 3)
        await bench.work()
        assert running(bench) == {"default": 3, "mail": 2}

    run(scene())


def test_a_queue_uses_its_own_slots_first_and_then_those_of_all() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=5, queues=BOTH, reserved={"mail": 2})
        hand_off(bench, "mail", 1)
        await bench.work()
        hand_off(bench, "default", 10)
        await bench.work()
        assert running(bench) == {"mail": 1, "default": 3}
        fresh = Bench(forever, slots=5, queues=BOTH, reserved={"mail": 2})
        hand_off(fresh, "mail", 10)
        await fresh.work()
        assert running(fresh) == {"mail": 5}

    run(scene())


def test_several_queues_may_have_slots_and_a_slot_that_is_free_again_is_whose_it_was() -> None:
    async def scene() -> None:
        gates = {"mail": asyncio.Event(), "reports": asyncio.Event(), "default": asyncio.Event()}

        async def waits(queue: str) -> None:
            await gates[queue].wait()

        bench = Bench(waits, slots=4, queues=(*BOTH, "reports"), reserved={"mail": 1, "reports": 2})
        bench.store.when_new = lambda callback: True  # type: ignore[method-assign]
        bench.store.version = lambda: 1  # type: ignore[method-assign]
        for queue in ("mail", "reports", "default"):
            for _ in range(4):
                bench.store.hand_off("waits", {"queue": queue}, queue=queue)
        await bench.work()
        assert running(bench) == {"mail": 2, "reports": 2}
        gates["mail"].set()
        await bench.work()
        assert running(bench) == {"reports": 3}, "the rest of the mail is done, and its own slot stays free"
        assert len(bench.store.ready) == 1 + 4

    run(scene())


@pytest.mark.parametrize(
    ("given", "taught"),
    [
        ({"queues": BOTH, "slots": 5, "reserved": {"fax": 1}}, "does not serve; it serves default, mail"),
        ({"queues": BOTH, "slots": 5, "reserved": {"mail": 0}}, "from 1"),
        ({"queues": BOTH, "slots": 5, "reserved": {"mail": 1.5}}, "a whole number"),
        (
            {"queues": BOTH, "slots": 5, "reserved": {"mail": 4, "default": 2}},
            "6 slots are reserved, but this worker has only 5",
        ),
        ({"queues": BOTH, "slots": 5, "reserved": {"mail": 5}}, "leaves none for default"),
        ({"queues": ("mail",), "slots": 5, "reserved": {"mail": 2}}, "serves only mail"),
    ],
)
def test_what_cannot_be_reserved_is_refused(given: Mapping[str, Any], taught: str) -> None:
    with pytest.raises(InvalidInput, match=taught):
        Bench(forever, **given)


def test_all_slots_may_be_parted() -> None:
    async def scene() -> None:
        bench = Bench(forever, slots=3, queues=BOTH, reserved={"mail": 1, "default": 2})
        hand_off(bench, "mail", 3)
        hand_off(bench, "default", 1)
        await bench.work()
        assert running(bench) == {"mail": 1, "default": 1}

    run(scene())
