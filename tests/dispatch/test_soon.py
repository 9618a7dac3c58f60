"""The dispatcher with a store that takes runs a little before their time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.dispatch.dispatcher import AHEAD, LOOK_EVERY, MOST_HERD_REST, Dispatcher
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND
from foliot.domain.lanes import DueKind
from foliot.domain.store import Fired
from foliot.errors import StoreError
from foliot.timing import every
from tests.dispatch.fake_store import FakeStore
from tests.dispatch.schedules import a_schedule
from tests.dispatch.test_dispatcher import NOON, House, run
from tests.tiers import by_tier

LEAD = 40 * MILLISECOND


def a_house(*, skew: int = 0, **settings: int) -> House:
    house = House(skew=skew, **settings)
    house.store.lead = LEAD
    return house


def test_a_run_is_handed_off_half_a_lead_before_its_time_and_all_that_is_due_within_the_whole_goes_with_it() -> None:
    async def story() -> None:
        house = a_house()
        due = NOON + SECOND
        with_it = [house.store.promise(due + after) for after in (0, 1, LEAD // 2, LEAD // 2 + 1)]
        await house.live_until(due - LEAD // AHEAD - 1)
        assert house.store.ahead == []
        await house.live_until(due - LEAD // AHEAD)
        assert [number for _, _, number in house.store.ahead] == with_it[:3]
        await house.live_until(due + LEAD)
        assert [number for _, _, number in house.store.ahead] == with_it
        assert house.fired() == []
        assert house.dispatcher.counters.fired == 4
        assert house.dispatcher.counters.lateness.counts[0] == 4, "on time"

    run(story())


def test_the_dispatcher_asks_to_be_called_half_a_lead_before_the_next_run() -> None:
    async def story() -> None:
        house = a_house()
        house.store.promise(NOON + 120 * MILLISECOND)
        assert await house.settle() == NOON + 120 * MILLISECOND - LEAD // AHEAD

    run(story())


def test_what_is_due_soon_goes_along_with_what_is_due_now() -> None:
    async def story() -> None:
        house = a_house()
        now, soon = house.store.promise(NOON), house.store.promise(NOON + LEAD)
        await house.settle()
        assert house.fired() == [now]
        assert [number for _, _, number in house.store.ahead] == [soon]
        assert house.store.batches == [2]

    run(story())


def test_a_tick_is_offered_once_and_fired_at_its_time() -> None:
    async def story() -> None:
        house = a_house()
        due = NOON + SECOND
        tick = house.store.promise(due, a_schedule(every("1h")), due)
        await house.live_until(due - 1)
        assert (house.fired(), house.store.batches) == ([], [1])
        await house.live_until(due)
        assert house.store.fired[0] == (due, due, tick)

    run(story())


def test_ticks_that_are_late_after_an_outage_join_the_backlog() -> None:
    async def story() -> None:
        house = a_house()
        house.store.catch_up_rate = 1.0
        due = NOON + SECOND
        for _ in range(3):
            house.store.promise(due, a_schedule(every("1h")), due)
        await house.live_until(due - LEAD // AHEAD)
        house.advance(5 * MINUTE)
        await house.settle()
        assert len(house.fired()) <= 1, "at the rate of the backlog"
        await house.live_until(house.clock.now() + 5 * SECOND)
        assert len(house.fired()) == 3

    run(story())


def test_what_was_offered_in_vain_is_offered_again() -> None:
    async def story() -> None:
        house = a_house()
        due = NOON + SECOND
        number = house.store.promise(due)
        await house.live_until(due - LEAD // AHEAD - 1)
        house.store.trouble["fire"] = [StoreError("gone")]
        house.advance(1)
        with pytest.raises(StoreError):
            await house.settle()
        assert house.dispatcher.waiting == 1
        await house.settle()
        assert [one for _, _, one in house.store.ahead] == [number]

    run(story())


@pytest.mark.parametrize("skew", [-90 * MILLISECOND, -LEAD, 90 * MILLISECOND])
def test_a_store_whose_clock_differs_is_asked_no_more_than_a_few_times(skew: int) -> None:
    """`skew`: how much later it is there."""

    async def story() -> None:
        house = a_house(skew=skew)
        due = NOON + SECOND
        number = house.store.promise(due)
        await house.live_until(due + 200 * MILLISECOND)
        assert [one for *_, one in (*house.store.ahead, *house.store.fired)] == [number]
        assert all(at >= fire_at - LEAD for at, fire_at, _ in house.store.ahead)
        assert len(house.store.batches) <= 4

    run(story())


def test_a_store_whose_clock_is_behind_is_offered_only_what_it_may_hand_off() -> None:
    async def story() -> None:
        house = a_house(skew=-90 * MILLISECOND)
        due = NOON + SECOND
        house.store.promise(due)
        house.store.promise(due + LEAD)
        await house.live_until(due + 2 * SECOND)
        assert [at for at, *_ in house.store.ahead] == [due - LEAD // AHEAD, due + LEAD - LEAD // AHEAD]
        assert house.store.batches == [1, 1]

    run(story())


@pytest.mark.parametrize(("count", "kind"), [(59, DueKind.LIVE), (61, DueKind.BURST)])
def test_what_is_handed_off_before_its_time_is_of_a_burst_if_it_will_be(count: int, kind: DueKind) -> None:
    async def story() -> None:
        house = a_house()
        house.dispatcher = Dispatcher(house.store, house.clock, owner=1, batch=20, burst=60)
        due = NOON + SECOND
        await house.live_until(NOON)
        burst = {house.store.promise(due) for _ in range(count)}
        later = house.store.promise(due + 5 * MILLISECOND)
        await house.live_until(due + SECOND)
        kinds = {number: of for of, number in house.store.kinds}
        assert kinds[min(burst)] is kind
        assert kinds[later] is DueKind.LIVE
        assert len(house.store.ahead) == count + 1
        assert len(kinds) == len(house.store.kinds) == count + 1

    run(story())


class Slow(FakeStore):
    async def fire(self, *asked: Any) -> Fired:
        fired = await super().fire(*asked)
        self.clock.advance(2 * MILLISECOND)
        return fired


def a_slow_house(batch: int) -> House:
    house = House()
    house.store = Slow(house.clock, lead=LEAD)
    house.dispatcher = Dispatcher(house.store, house.clock, owner=1, batch=batch)
    return house


def test_a_rest_from_a_herd_ends_when_a_whole_batch_is_fresh() -> None:
    """Else nothing could be fired, and the dispatcher would ask itself for it again and again."""

    async def story() -> None:
        house = a_slow_house(3)
        for _ in range(300):
            house.store.promise(NOON)
        while not house.fired():
            await house.dispatcher.run_once()
        assert len(house.fired()) < 300, "the herd is not over"
        for _ in range(5):
            house.store.promise(house.clock.now())
        house.advance(LOOK_EVERY)
        house.dispatcher._herd_rests_until = house.clock.now() + MOST_HERD_REST
        before = len(house.fired())
        wanted = await house.dispatcher.run_once()
        assert len(house.fired()) > before or wanted > house.clock.now()

    run(story())


def test_beside_a_herd_nothing_goes_before_its_time() -> None:
    """What is fresh goes before the rest of the herd, which rests for it: that is seen when it is due."""

    async def story() -> None:
        house = a_slow_house(4)
        herd = {house.store.promise(NOON) for _ in range(60)}
        fresh = {house.store.promise(NOON + place * 5 * MILLISECOND) for place in range(1, 60)}
        while not herd <= set(house.fired()):
            house.advance(max(await house.dispatcher.run_once() - house.clock.now(), 0))
            assert herd <= set(house.fired()) or house.store.ahead == []
        await house.live_until(NOON + SECOND)
        assert fresh == {number for *_, number in (*house.store.ahead, *house.store.fired)} - herd

    run(story())


MOMENTS = some.integers(0, 2_000).map(lambda n: n * MILLISECOND)


@settings(max_examples=by_tier(25, 100, 600))
@given(
    promises=some.lists(some.tuples(MOMENTS, MOMENTS, some.booleans()), max_size=25),
    batch=some.integers(1, 6),
    skew=some.sampled_from([0, 0, -30, 30]).map(lambda n: n * MILLISECOND),
)
def test_everything_is_handed_off_once_and_none_of_it_late(
    promises: list[tuple[int, int, bool]], batch: int, skew: int
) -> None:
    """Plain runs and ticks, promised at any time for any time, with a store whose clock may differ."""

    async def story() -> None:
        house = a_house(batch=batch, skew=skew)
        schedule = a_schedule(every("1h"))
        made: dict[int, int] = {}
        for made_after, due_after, is_tick in sorted(promises):
            await house.live_until(NOON + made_after)
            due = NOON + due_after
            made[house.store.promise(due, *((schedule, due) if is_tick else ()))] = house.store.clock.now()
            await house.settle()
        await house.live_until(NOON + 5 * SECOND)
        handed_off = [*house.store.ahead, *house.store.fired]
        assert sorted(number for *_, number in handed_off) == sorted(made)
        for at, fire_at, number in handed_off:
            # What waits for the store's clock is tried by ours: it can be late by as much as they differ.
            assert fire_at - LEAD <= at <= max(fire_at, made[number]) + max(-skew, skew, 0)
        for at, fire_at, _ in house.store.fired:
            assert at >= fire_at

    run(story())
