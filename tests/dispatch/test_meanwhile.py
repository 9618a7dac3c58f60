"""A store elsewhere takes its time to answer, and what falls due meanwhile is fired."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foliot.clock import ManualClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.run import Lane
from foliot.domain.store import Arrivals, Lease, Standing
from foliot.errors import StoreError
from tests.dispatch.fake_store import FakeStore
from tests.waiting import soon, until_async

NOON: Instant = 1_800_000_000 * SECOND
DUE: Instant = NOON + 1_305 * MILLISECOND
"""A moment after the store was made to hold an answer back."""
ROUTINE = ("lane_rates", "renew", "standing", "arrivals")


class SlowStore(FakeStore):
    """One that calls, as a server does, and whose answers can be held back."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, shard_count=4)
        self.held_back: dict[str, asyncio.Event] = {}
        self.waiting: set[str] = set()
        self.told: set[int] = set()
        self.call: Callable[[], None] = lambda: None

    def when_new(self, callback: Callable[[], None]) -> bool:
        self.call = callback
        return True

    async def lane_rates(self) -> dict[Lane, float | None]:
        await self._answer("lane_rates")
        return await super().lane_rates()

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        await self._answer("renew")
        return await super().renew(leases, ttl, high_water)

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        await self._answer("standing")
        return await super().standing(owner, ttl)

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        """Nothing is told twice, as what committed late is not."""
        await self._answer("arrivals")
        found = await super().arrivals(leases, cursor)
        new = [entry for entry in zip(found.fire_at, found.number, strict=True) if entry[1] not in self.told]
        self.told.update(number for _, number in new)
        return Arrivals(array("q", [at for at, _ in new]), array("q", [number for _, number in new]), found.cursor)

    async def _answer(self, verb: str) -> None:
        if verb in self.held_back:
            self.waiting.add(verb)
            await self.held_back[verb].wait()
            self.waiting.discard(verb)


class FencedClock(ManualClock):
    """Counts how often it was found to be wrong: who finds that fires nothing in the same step of the event loop."""

    is_wrong = False
    found_wrong = 0

    @property
    def fenced(self) -> bool:  # type: ignore[override]
        self.found_wrong += self.is_wrong
        return self.is_wrong


class House:
    def __init__(self) -> None:
        self.clock = FencedClock(NOON)
        self.store = SlowStore(self.clock)
        self.dispatcher = Dispatcher(self.store, self.clock, owner=1)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Its loop really turns, and sleeps for milliseconds at a time."""
        await until_async(condition, "the dispatcher has done it")

    async def live_until(self, condition: Callable[[], Any]) -> None:
        """The same, while time goes by."""

        def is_so() -> bool:
            answer = bool(condition())
            if not answer:
                self.clock.advance(20 * MILLISECOND)
            return answer

        await until_async(is_so, "the dispatcher has done it")

    async def hold_back(self, verb: str) -> asyncio.Event:
        """From here on the store does not answer this; nothing else is under way."""
        self.store.held_back[verb] = answer = asyncio.Event()
        self.clock.advance(SECOND)
        await self.until(lambda: verb in self.store.waiting)
        return answer

    def fired(self) -> list[int]:
        return [number for _, _, number in self.store.fired]


@asynccontextmanager
async def lively() -> AsyncIterator[House]:
    house, stop = House(), asyncio.Event()
    running = asyncio.create_task(house.dispatcher.run(stop))
    await house.until(lambda: len(house.dispatcher.shards) == 4 and house.store.looked_ahead)
    yield house
    stop.set()
    for answer in house.store.held_back.values():
        answer.set()
    house.clock.advance(SECOND)
    await soon(running)


@pytest.mark.parametrize("verb", ROUTINE)
def test_what_falls_due_while_the_store_thinks_about_something_else_is_fired_all_the_same(verb: str) -> None:
    async def story() -> None:
        async with lively() as house:
            first, second = (house.store.promise(DUE + later) for later in (0, 5 * MILLISECOND))
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.dispatcher.waiting == 2)
            answer = await house.hold_back(verb)
            assert house.fired() == []
            house.clock.advance(20 * MILLISECOND)
            await house.until(lambda: house.fired() == [first, second])
            assert verb in house.store.waiting, "the store has not answered yet"
            del house.store.held_back[verb]
            answer.set()
            third = house.store.promise(house.clock.now())
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.fired() == [first, second, third])

    asyncio.run(story())


@pytest.mark.parametrize("verb", ["lane_rates", "renew", "standing"])
def test_a_promise_for_now_made_while_the_store_has_not_answered_is_fired(verb: str) -> None:
    async def story() -> None:
        async with lively() as house:
            await house.hold_back(verb)
            number = house.store.promise(house.clock.now())
            house.store.call()
            await house.until(lambda: house.fired() == [number])
            assert verb in house.store.waiting, "the store has not answered yet"

    asyncio.run(story())


def test_a_look_that_fails_while_the_store_has_not_answered_does_not_lose_the_answer() -> None:
    async def story() -> None:
        async with lively() as house:
            answer = await house.hold_back("renew")
            house.store.trouble["arrivals"] = [StoreError("arrivals cannot be read")]
            number = house.store.promise(house.clock.now())
            house.store.call()
            await house.until(lambda: not house.store.trouble["arrivals"])
            del house.store.held_back["renew"]
            answer.set()
            await house.live_until(lambda: house.fired() == [number])
            assert house.dispatcher.counters.failures == 1
            assert len(house.dispatcher.shards) == 4

    asyncio.run(story())


def test_an_answer_is_not_thrown_away_because_a_firing_failed_meanwhile() -> None:
    async def story() -> None:
        async with lively() as house:
            first = house.store.promise(DUE)
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.dispatcher.waiting == 1)
            second = house.store.promise(DUE + 50 * MILLISECOND)
            answer = await house.hold_back("arrivals")
            house.store.trouble["fire"] = [StoreError("the server went away")]
            house.clock.advance(20 * MILLISECOND)
            await house.until(lambda: not house.store.trouble["fire"])
            del house.store.held_back["arrivals"]
            answer.set()
            await house.live_until(lambda: house.fired() == [first, second])
            assert house.dispatcher.counters.failures == 1

    asyncio.run(story())


def test_leases_are_renewed_although_every_firing_fails() -> None:
    async def story() -> None:
        async with lively() as house:
            house.store.promise(NOON + 300 * MILLISECOND)
            house.store.trouble["fire"] = [StoreError("no") for _ in range(1_000)]
            before = house.store.calls.count("renew")
            await house.live_until(lambda: house.dispatcher.counters.failures == 7)
            assert house.store.calls.count("renew") >= before + 2
            house.store.trouble.clear()

    asyncio.run(story())


def test_with_a_clock_that_is_known_to_be_wrong_nothing_is_fired_meanwhile() -> None:
    async def story() -> None:
        async with lively() as house:
            house.store.promise(DUE)
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.dispatcher.waiting == 1)
            answer = await house.hold_back("renew")
            house.clock.is_wrong = True
            house.clock.advance(20 * MILLISECOND)
            await house.until(lambda: house.clock.found_wrong or house.fired())
            assert house.fired() == []
            del house.store.held_back["renew"]
            answer.set()
            house.clock.is_wrong = False

    asyncio.run(story())


def test_what_is_lost_meanwhile_is_dropped_once_the_store_has_answered() -> None:
    async def story() -> None:
        async with lively() as house:
            house.store.promise(DUE)
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.dispatcher.waiting == 1)
            answer = await house.hold_back("standing")
            for held in house.store.held.values():  # somebody else took them all; it will hear of one
                held.owner, held.epoch = 2, held.epoch + 1
            house.clock.advance(20 * MILLISECOND)
            await house.until(lambda: house.store.calls.count("fire") == 1)
            for _ in range(100):  # passes of the event loop, in which the dispatcher takes the failure in
                await asyncio.sleep(0)
            assert len(house.dispatcher.shards) == 4, "the round is not over"
            del house.store.held_back["standing"]
            answer.set()
            await house.until(lambda: len(house.dispatcher.shards) == 3)
            assert house.fired() == []
            assert house.dispatcher.counters.failures == 0

    asyncio.run(story())


def test_an_answer_that_is_an_error_is_told_although_something_was_fired_meanwhile() -> None:
    async def story() -> None:
        async with lively() as house:
            number = house.store.promise(DUE)
            house.clock.advance(300 * MILLISECOND)
            await house.until(lambda: house.dispatcher.waiting == 1)
            answer = await house.hold_back("renew")
            house.clock.advance(20 * MILLISECOND)
            await house.until(lambda: house.fired() == [number])
            house.store.trouble["renew"] = [StoreError("the server went away")]
            del house.store.held_back["renew"]
            answer.set()
            await house.until(lambda: house.dispatcher.counters.failures == 1)
            assert len(house.dispatcher.shards) == 4

    asyncio.run(story())
