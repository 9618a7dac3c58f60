"""Duties: one instance of the fleet does the work, and knows when it is no longer the one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.store import Duty, Lease
from foliot.errors import StoreError
from foliot.store.sqlite import SqliteStore
from foliot.watch.duty import OnDuty, rest
from foliot.watch.retention import Retention
from tests.waiting import soon

NOON: Instant = 1_800_000_000 * SECOND
TTL: Duration = 5 * SECOND


class Unreliable(SqliteStore):
    """The real one, and sometimes out of reach."""

    trouble = False

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        if self.trouble:
            raise StoreError("out of reach")
        return await super().renew(leases, ttl, high_water)


class House:
    """A store in memory, and instances that want the same duty."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.store = Unreliable(":memory:", self.clock)
        self.stop = asyncio.Event()
        self.at_work: list[int] = []

    async def candidate(self) -> tuple[int, OnDuty]:
        number = (await self.store.register("scheduler", version="", queues=(), slots=0, jobs=())).number

        async def work(stop: asyncio.Event) -> None:
            self.at_work.append(number)
            try:
                await stop.wait()
            finally:
                self.at_work.remove(number)

        return number, OnDuty(self.store, self.clock, Duty.WATCH, owner=number, work=work, lease_ttl=TTL)

    async def round(self, *candidates: OnDuty) -> None:
        for one in candidates:
            await one.run_once(self.stop)
        await asyncio.sleep(0)


@asynccontextmanager
async def opened() -> AsyncIterator[House]:
    house = House()
    await house.store.open()
    try:
        yield house
    finally:
        await house.store.close()


async def test_one_of_many_does_the_work_and_goes_on_doing_it() -> None:
    async with opened() as house:
        (first, one), (_, two) = await house.candidate(), await house.candidate()
        for _ in range(20):
            await house.round(one, two)
            assert house.at_work == [first]
            house.clock.advance(SECOND)
        await one.release()


async def test_another_takes_over_when_the_lease_has_ended_and_the_first_steps_down_at_once() -> None:
    async with opened() as house:
        (_, one), (second, two) = await house.candidate(), await house.candidate()
        await house.round(one, two)
        house.clock.advance(TTL)  # the first was stopped for so long
        await house.round(two, one)
        assert house.at_work == [second]
        assert (one.held, two.held) == (False, True)
        await two.release()


async def test_a_duty_that_is_given_up_is_free_at_once_and_its_work_has_ended() -> None:
    async with opened() as house:
        (_, one), (second, two) = await house.candidate(), await house.candidate()
        await house.round(one, two)
        await one.release()
        assert house.at_work == []
        await house.round(two)
        assert house.at_work == [second]
        await two.release()


async def test_a_store_out_of_reach_ends_the_work_only_when_the_lease_has_ended() -> None:
    async with opened() as house:
        first, one = await house.candidate()
        await house.round(one)
        house.store.trouble = True
        for _ in range(TTL // SECOND - 1):
            house.clock.advance(SECOND)
            with pytest.raises(StoreError):
                await house.round(one)
            assert house.at_work == [first]
        house.clock.advance(SECOND)
        with pytest.raises(StoreError):
            await house.round(one)
        assert (house.at_work, one.held) == ([], False)
        house.store.trouble = False
        await house.round(one)
        assert house.at_work == [first]
        await one.release()


async def test_an_instance_whose_clock_is_fenced_has_no_duty() -> None:
    async with opened() as house:
        (first, one), (second, two) = await house.candidate(), await house.candidate()
        await house.round(one, two)
        assert house.at_work == [first]
        one._clock = ManualClock(NOON)
        one._clock.fenced = True
        await house.round(one, two)
        assert house.at_work == [second]
        await two.release()


async def test_work_that_fails_is_begun_again() -> None:
    async with opened() as house:
        begun = 0

        async def work(stop: asyncio.Event) -> None:
            nonlocal begun
            begun += 1
            raise RuntimeError("odd")

        number, _ = await house.candidate()
        one = OnDuty(house.store, house.clock, Duty.RETENTION, owner=number, work=work)
        for _ in range(3):
            await house.round(one)
        assert begun == 3
        await one.release()


async def test_duties_are_held_apart_from_one_another_and_from_shards() -> None:
    async with opened() as house:
        number, watching = await house.candidate()
        await house.round(watching)
        another, _ = await house.candidate()
        assert await house.store.take(Duty.RETENTION, another, TTL) is not None
        assert await house.store.take(0, another, TTL) is not None
        assert await house.store.take(Duty.WATCH, another, TTL) is None
        assert [shard.shard for shard in (await house.store.standing(number, TTL)).shards] == [0]
        await watching.release()


async def turn(clock: ManualClock, length: Duration) -> None:
    """Moves the clock as fast as sleepers allow, and lets everybody run."""
    end = clock.now() + length
    while True:
        for _ in range(20):
            await asyncio.sleep(0)
        wake = clock.next_sleeper()
        if wake is None or wake > end:
            break
        clock.set(wake)
    clock.set(end)


async def test_the_loop_keeps_the_duty_and_gives_it_up_at_the_end() -> None:
    async with opened() as house:
        (first, one), (second, two) = await house.candidate(), await house.candidate()
        loops = [asyncio.create_task(each.run(house.stop)) for each in (one, two)]
        await turn(house.clock, MINUTE)
        assert house.at_work == [first]
        house.stop.set()
        await turn(house.clock, SECOND)
        await asyncio.gather(*loops)
        assert house.at_work == []
        assert await house.store.take(Duty.WATCH, second, TTL) is not None


async def test_the_store_is_tidied_at_once_and_then_every_minute_and_counts_in_between_whatever_it_says() -> None:
    tidied: list[Instant] = []
    counted: list[Instant] = []
    clock, stop = ManualClock(NOON), asyncio.Event()

    class Store:
        async def tidy(self) -> None:
            tidied.append(clock.now() - NOON)
            if len(tidied) == 2:
                raise StoreError("gone")

        async def count_endings(self) -> None:
            counted.append(clock.now() - NOON)

    keeping = asyncio.create_task(Retention(Store(), clock).run(stop))
    await turn(clock, 3 * MINUTE)
    assert tidied == [0, MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert counted[:6] == [*(seconds * SECOND for seconds in (10, 20, 30, 40, 50)), 70 * SECOND]
    stop.set()
    await turn(clock, SECOND)
    await keeping


async def test_a_loop_at_rest_has_one_timer_and_ends_when_it_is_stopped() -> None:
    """It does not look every few milliseconds whether it is to stop."""
    clock, stop = ManualClock(NOON), asyncio.Event()
    resting = asyncio.create_task(rest(clock, MINUTE, stop))
    for _ in range(3):
        await asyncio.sleep(0)
    assert clock.next_sleeper() == NOON + MINUTE
    clock.advance(MINUTE - 1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not resting.done()
    assert clock.next_sleeper() == NOON + MINUTE
    stop.set()
    await soon(resting)
    assert clock.next_sleeper() is None
