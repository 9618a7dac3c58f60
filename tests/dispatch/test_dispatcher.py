"""The dispatcher, round by round, on a clock that moves only when told to."""

from __future__ import annotations

import asyncio
import itertools
import logging
from array import array
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.clock import ManualClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.store import CALLED_FOR, Cells
from foliot.errors import StoreError, StoreFull
from foliot.timing import every
from tests.dispatch.fake_store import FakeStore
from tests.dispatch.schedules import a_schedule
from tests.tiers import by_tier, only_in_full

T = TypeVar("T")

NOON: Instant = 1_800_000_000 * SECOND  # the beginning of a five-minute bucket


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class House:
    """One store, one dispatcher, and their clocks."""

    def __init__(self, *, skew: int = 0, owner: int = 1, shards: int = 1, **settings: Any) -> None:
        self.clock = ManualClock(NOON)
        self.store = FakeStore(self.clock if not skew else ManualClock(NOON + skew), shard_count=shards)
        self.dispatcher = Dispatcher(self.store, self.clock, owner=owner, **settings)

    def advance(self, length: int) -> None:
        self.clock.advance(length)
        if self.store.clock is not self.clock:
            self.store.clock.advance(length)

    async def settle(self) -> Instant:
        """Rounds until the dispatcher wants to be called later."""
        for _ in range(1_000):
            if (wanted := await self.dispatcher.run_once()) > self.clock.now():
                return wanted
        raise AssertionError("the dispatcher never rests")

    async def live_until(self, moment: Instant) -> None:
        """Calls it whenever it wants to be called, as the loop would."""
        wanted = await self.settle()
        while (step := min(wanted, moment)) < moment or wanted <= moment:
            self.advance(step - self.clock.now())
            wanted = await self.settle()
        self.advance(moment - self.clock.now())
        await self.settle()

    def fired(self) -> list[int]:
        return [number for _, _, number in self.store.fired]


# Firing


def test_a_store_that_calls_is_read_as_often_as_it_leaves_out_calls() -> None:
    """It calls for no run that is due later than `CALLED_FOR`: that one is found before it is due."""

    async def story() -> None:
        house = House()
        house.dispatcher._is_called = True
        house.store.version = lambda: 0  # type: ignore[method-assign]  # it calls for none of these
        for place in range(7):
            await house.live_until(NOON + place * 1_130 * MILLISECOND)
            due = house.clock.now() + CALLED_FOR
            house.store.promise(due)
            await house.live_until(due)
            assert [at for at, _, _ in house.store.fired[place:]] == [due]

    run(story())


def test_a_run_fires_at_its_time_and_not_before() -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(NOON + 3 * SECOND)
        await house.live_until(NOON + 3 * SECOND - 1)
        assert house.fired() == []
        await house.live_until(NOON + 3 * SECOND)
        assert house.store.fired == [(NOON + 3 * SECOND, NOON + 3 * SECOND, number)]

    run(story())


def test_the_dispatcher_asks_to_be_called_when_the_next_run_is_due() -> None:
    async def story() -> None:
        house = House()
        house.store.promise(NOON + 120 * MILLISECOND)
        assert await house.settle() == NOON + 120 * MILLISECOND

    run(story())


def test_the_store_may_look_ahead_at_least_every_250_ms() -> None:
    async def story() -> None:
        house = House(shards=4)
        await house.live_until(NOON + 5 * SECOND)
        moments = [moment for moment, shards in house.store.looked_ahead if shards == {0, 1, 2, 3}]
        assert moments[0] < NOON + SECOND
        assert max(later - sooner for sooner, later in itertools.pairwise(moments)) <= 250 * MILLISECOND
        assert moments[-1] >= NOON + 5 * SECOND - 250 * MILLISECOND

    run(story())


def test_a_single_due_run_does_not_wait_for_a_batch_to_fill() -> None:
    async def story() -> None:
        house = House(batch=1_000)
        house.store.promise(NOON)
        await house.dispatcher.run_once()
        assert house.store.batches == [1]

    run(story())


def test_a_burst_is_fired_in_full_batches_within_one_round() -> None:
    async def story() -> None:
        house = House(batch=10)
        for _ in range(25):
            house.store.promise(NOON - SECOND)
        await house.dispatcher.run_once()
        assert house.store.batches == [10, 10, 5]
        assert house.dispatcher.counters.fired == 25

    run(story())


def test_runs_fire_in_the_order_of_their_times() -> None:
    async def story() -> None:
        house = House()
        late = house.store.promise(NOON - SECOND)
        later = house.store.promise(NOON - 2 * SECOND)
        await house.settle()
        assert house.fired() == [later, late]

    run(story())


def test_a_schedule_goes_on_tick_after_tick() -> None:
    async def story() -> None:
        house = House()
        schedule = a_schedule(every("1s"))
        house.store.promise(NOON, schedule)
        await house.live_until(NOON + 10 * MINUTE)
        assert [fire_at for _, fire_at, _ in house.store.fired] == [NOON + n * SECOND for n in range(601)]
        assert house.dispatcher.counters.created == 601
        assert len(house.store.pending()) == 1

    run(story())


# Arrivals


def test_a_promise_for_now_is_found_as_soon_as_the_store_has_changed() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        number = house.store.promise(NOON)
        await house.dispatcher.run_once()
        assert house.fired() == [number]

    run(story())


def test_nothing_is_read_while_nothing_changes_and_250_ms_have_not_passed() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        await house.dispatcher.run_once()  # its own renewal changed the store
        before = house.store.calls.count("arrivals")
        house.advance(249 * MILLISECOND)
        await house.dispatcher.run_once()
        assert house.store.calls.count("arrivals") == before
        house.advance(1 * MILLISECOND)
        await house.dispatcher.run_once()
        assert house.store.calls.count("arrivals") == before + 1

    run(story())


def test_what_is_committed_while_arrivals_are_read_is_seen_at_the_next_look() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        read = house.store.arrivals

        async def interrupted(*arguments: Any) -> Any:
            told = await read(*arguments)
            house.store.arrivals = read  # type: ignore[method-assign]
            house.store.promise(NOON)
            return told

        house.store.arrivals = interrupted  # type: ignore[method-assign, assignment]
        house.store.commits += 1
        await house.dispatcher.run_once()
        assert house.fired() == []
        await house.dispatcher.run_once()
        assert len(house.fired()) == 1

    run(story())


def test_a_moved_run_fires_at_its_new_time_only() -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(NOON + SECOND)
        await house.settle()
        house.store.move(number, NOON + 2 * SECOND)
        await house.live_until(NOON + 3 * SECOND)
        assert house.store.fired == [(NOON + 2 * SECOND, NOON + 2 * SECOND, number)]
        assert house.dispatcher.counters.stale == 1

    run(story())


def test_a_run_that_is_moved_out_of_the_window_and_back_again_is_not_lost() -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(NOON + SECOND)
        await house.settle()
        house.store.move(number, NOON + HOUR)
        await house.live_until(NOON + 2 * SECOND)
        house.store.move(number, NOON + 3 * SECOND)
        await house.live_until(NOON + 4 * SECOND)
        assert house.fired() == [number]

    run(story())


# Windows


def test_the_next_window_is_loaded_a_minute_before_the_bucket_ends() -> None:
    async def story() -> None:
        house = House()
        house.store.promise(NOON + 5 * MINUTE)
        await house.live_until(NOON + 4 * MINUTE - 1)
        assert house.dispatcher.waiting == 0
        await house.live_until(NOON + 4 * MINUTE)
        assert house.dispatcher.waiting == 1
        assert house.dispatcher.next_event() == NOON + 5 * MINUTE

    run(story())


def test_a_promise_made_above_the_mark_before_it_is_raised_is_in_the_next_window() -> None:
    """The reason why a window is loaded as of a new cursor: arrivals passed these runs by."""

    async def story() -> None:
        house = House()
        await house.settle()
        number = house.store.promise(NOON + 6 * MINUTE)
        await house.live_until(NOON + MINUTE)  # arrivals have read past it, and it was not below the mark
        await house.live_until(NOON + 6 * MINUTE)
        assert house.fired() == [number]

    run(story())


def test_what_arrivals_told_is_not_loaded_once_more_with_the_next_window() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        for n in range(10):
            house.store.promise(NOON + 4 * MINUTE + 30 * SECOND + n)
        await house.live_until(NOON + 4 * MINUTE + SECOND)
        assert sum(house.store.loaded) == 0
        assert house.dispatcher.waiting == 10

    run(story())


SPAN = by_tier(7, 12)
"""Minutes. A bucket has five."""


@settings(max_examples=by_tier(10, 100, 600))
@given(
    promises=some.lists(
        some.tuples(
            some.integers(0, SPAN * 60).map(lambda n: n * SECOND),
            some.integers(-60, SPAN * 60).map(lambda n: n * SECOND),
        ),
        max_size=30,
    ),
    slice_size=some.integers(1, 8),
    batch=some.integers(1, 4),
)
def test_whenever_it_was_promised_every_run_fires_once_and_on_time(
    promises: list[tuple[int, int]], slice_size: int, batch: int
) -> None:
    async def story() -> None:
        house = House(slice_size=slice_size, batch=batch)
        for made_after, due_after in sorted(promises):
            await house.live_until(NOON + made_after)
            house.store.promise(NOON + due_after)
            await house.settle()
        await house.live_until(NOON + (SPAN + 1) * MINUTE)
        assert sorted(house.fired()) == sorted(house.store.rows)
        made = dict(zip(house.store.rows, (NOON + made for made, _ in sorted(promises)), strict=True))
        for at, fire_at, number in house.store.fired:
            assert at == max(fire_at, made[number])

    run(story())


def test_overdue_cells_are_streamed_and_never_loaded_whole() -> None:
    async def story() -> None:
        house = House(slice_size=50, batch=10)
        for n in range(500):
            house.store.promise(NOON - HOUR + n)
        most = 0
        while len(house.fired()) < 500:
            await house.dispatcher.run_once()
            most = max(most, house.dispatcher.waiting)
        assert most <= 50
        assert max(house.store.loaded) <= 10
        assert house.fired() == sorted(house.fired())

    run(story())


def test_a_scheduler_that_starts_fires_what_is_loaded_while_the_rest_loads_and_live_runs_before_the_backlog() -> None:
    async def story() -> None:
        house = House(shards=16, slice_size=200, batch=20)
        backlog = [house.store.promise(NOON - HOUR + n) for n in range(1_600)]
        live = [house.store.promise(NOON) for _ in range(160)]
        while not house.fired():
            await house.dispatcher.run_once()
        before = house.store.calls[: house.store.calls.index("fire")]
        assert before.count("load") == 1
        while len(house.fired()) < len(backlog) + len(live):
            await house.dispatcher.run_once()
        assert set(house.fired()[: len(live)]) == set(live)
        assert sorted(house.fired()) == sorted([*backlog, *live])

    run(story())


def test_far_runs_fill_no_more_than_a_slice() -> None:
    async def story() -> None:
        house = House(slice_size=20, batch=5)
        for n in range(100):
            house.store.promise(NOON + 2 * MINUTE + n)
        await house.settle()
        assert house.dispatcher.waiting == 20
        await house.live_until(NOON + 3 * MINUTE)
        assert len(house.fired()) == 100

    run(story())


def test_a_scheduler_holds_at_most_fifty_thousand_coming_runs_of_a_shard_in_memory() -> None:
    class Endless(FakeStore):
        """Its first page has one run: the others of that page were handed off before."""

        async def load(self, lease: Any, start: tuple[int, int], limit: int, until: int | None = None) -> Cells:
            if until is not None and until <= NOON + MINUTE:
                return Cells(array("q"), array("q"), last=start, exhausted=True)
            first = max(start[1], 0) + 1
            numbers = array("q", range(first, first + (limit if first > 1 else 1)))
            due = array("q", (NOON + MINUTE + number for number in numbers))
            return Cells(due, numbers, last=(due[-1], numbers[-1]), exhausted=False)

    async def story() -> None:
        house = House()
        house.store = Endless(house.clock)
        house.dispatcher = Dispatcher(house.store, house.clock, owner=1)
        await house.settle()
        assert 40_000 < house.dispatcher.waiting <= 50_000

    run(story())


def test_runs_from_before_1970_fire_too() -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(-HOUR)
        await house.settle()
        assert house.fired() == [number]

    run(story())


# Ownership


def test_somebody_elses_shard_is_asked_for_once_per_second() -> None:
    async def story() -> None:
        house = House(owner=2)
        await house.store.standing(1, HOUR)
        await house.store.take(0, 1, HOUR)
        house.store.calls.clear()
        await house.live_until(NOON + 3 * SECOND)
        assert house.store.calls == ["standing"] * 4
        assert not house.dispatcher.shards

    run(story())


def test_a_shard_is_taken_over_when_its_lease_has_ended_and_everything_is_loaded() -> None:
    async def story() -> None:
        house = House(owner=2)
        await house.store.take(0, 1, 5 * SECOND)
        number = house.store.promise(NOON + SECOND)
        await house.live_until(NOON + 4 * SECOND)
        assert house.fired() == []
        await house.live_until(NOON + 6 * SECOND)
        assert house.fired() == [number]
        assert house.dispatcher.counters.takeovers == 1

    run(story())


def test_a_lease_is_renewed_every_second() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        house.store.calls.clear()
        await house.live_until(NOON + 10 * SECOND)
        assert house.store.calls.count("renew") == 10
        assert house.store.held[0].until == NOON + 15 * SECOND

    run(story())


def test_a_stale_owner_fires_nothing_and_drops_all_that_it_holds() -> None:
    async def story() -> None:
        house = House()
        house.store.promise(NOON + SECOND)
        await house.settle()
        house.store.held[0].until = NOON  # it was stopped for so long that its lease ended
        await house.store.take(0, 9, HOUR)
        house.advance(SECOND - 1)
        await house.live_until(NOON + 2 * SECOND)
        assert house.fired() == []
        assert (house.dispatcher.waiting, house.dispatcher.shards) == (0, frozenset())
        assert house.dispatcher.counters.lost == 1

    run(story())


def test_ownership_that_is_lost_in_the_firing_itself_drops_the_wheel_too() -> None:
    async def story() -> None:
        house = House()
        house.store.promise(NOON + 500 * MILLISECOND)
        await house.settle()
        house.store.held[0].until = NOON
        await house.store.take(0, 9, HOUR)
        house.advance(500 * MILLISECOND)
        await house.dispatcher.run_once()
        assert "fire" in house.store.calls
        assert (house.fired(), house.dispatcher.waiting) == ([], 0)

    run(story())


def test_a_released_shard_is_free_at_once() -> None:
    async def story() -> None:
        house = House()
        await house.settle()
        await house.dispatcher.release()
        assert house.store.owner_of(0) is None
        assert await house.store.take(0, 7, SECOND) is not None
        await house.dispatcher.release()  # nothing is held any more: nothing happens

    run(story())


# Clocks


@pytest.mark.parametrize("behind", [1, 700 * MILLISECOND, 3 * SECOND, 3 * MINUTE, only_in_full(HOUR)])
def test_a_host_whose_clock_is_fast_fires_nothing_early_and_does_not_ask_again_and_again(behind: int) -> None:
    async def story() -> None:
        house = House(skew=-behind)
        number = house.store.promise(NOON + 2 * SECOND)
        await house.live_until(NOON + 2 * SECOND + behind)
        assert house.store.fired == [(NOON + 2 * SECOND, NOON + 2 * SECOND, number)]
        assert house.dispatcher.counters.early_refused <= 2

    run(story())


def test_a_clock_that_goes_back_stops_neither_renewals_nor_looks() -> None:
    async def story() -> None:
        house = House()
        await house.live_until(NOON + MINUTE)
        house.clock.set(NOON - HOUR)
        house.store.calls.clear()
        number = house.store.promise(NOON - HOUR + SECOND)
        await house.live_until(NOON - HOUR + 2 * SECOND)
        assert house.store.calls.count("renew") == 3
        assert house.fired() == [number]

    run(story())


# Trouble


def test_a_batch_whose_firing_failed_is_fired_in_the_next_round() -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(NOON)
        house.store.trouble["fire"] = [StoreError("disk full")]
        with pytest.raises(StoreError):
            await house.dispatcher.run_once()
        await house.settle()
        assert house.fired() == [number]

    run(story())


@pytest.mark.parametrize("verb", ["standing", "take", "renew", "arrivals", "load", "fire"])
def test_a_verb_that_fails_for_a_while_loses_nothing(verb: str) -> None:
    async def story() -> None:
        house = House(slice_size=4, batch=2)
        numbers = [house.store.promise(NOON + n * 30 * SECOND) for n in range(12)]
        house.store.trouble[verb] = [StoreError("gone")] * 3
        moment = NOON
        while moment < NOON + 6 * MINUTE:
            moment += SECOND
            try:
                await house.live_until(moment)
            except StoreError:
                house.store.trouble[verb] += [StoreError("gone")] if len(house.fired()) == 5 else []
        assert house.fired() == numbers

    run(story())


def test_a_store_that_says_there_is_more_and_gives_nothing_is_an_error_and_not_an_endless_loop() -> None:
    async def story() -> None:
        house = House()
        load = house.store.load

        async def stuck(*arguments: Any) -> Any:
            return (await load(*arguments))._replace(exhausted=False)

        house.store.load = stuck  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreError, match="not exhausted"):
            await house.settle()

    run(story())


# The loop


async def turn(clock: ManualClock, length: int) -> None:
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


def test_the_loop_fires_on_time_and_sees_a_new_promise_within_20_ms() -> None:
    async def story() -> None:
        house = House()
        stop = asyncio.Event()
        loop = asyncio.create_task(house.dispatcher.run(stop))
        first = house.store.promise(NOON + 1_234_567)
        await turn(house.clock, 2 * SECOND)
        assert house.store.fired == [(NOON + 1_234_567, NOON + 1_234_567, first)]
        second = house.store.promise(house.clock.now())
        await turn(house.clock, 20 * MILLISECOND)
        assert house.fired() == [first, second]
        stop.set()
        await turn(house.clock, 20 * MILLISECOND)
        await loop

    run(story())


def test_the_loop_does_not_spin_on_a_store_that_changes_all_the_time() -> None:
    async def story() -> None:
        house = House()
        changes = itertools.count()
        house.store.version = lambda: next(changes)  # type: ignore[method-assign]
        stop = asyncio.Event()
        loop = asyncio.create_task(house.dispatcher.run(stop))
        await turn(house.clock, SECOND)
        assert house.store.calls.count("arrivals") <= 52
        stop.set()
        await turn(house.clock, SECOND)
        await loop

    run(story())


def test_the_loop_outlives_trouble_notes_it_once_and_backs_off(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        house = House()
        number = house.store.promise(NOON)
        house.store.trouble["take"] = [StoreError("gone"), RuntimeError("odd"), StoreError("gone")]
        stop = asyncio.Event()
        loop = asyncio.create_task(house.dispatcher.run(stop))
        with caplog.at_level(logging.WARNING, "foliot.dispatch"):
            await turn(house.clock, 10 * SECOND)
        assert house.fired() == [number]
        assert [record.getMessage() for record in caplog.records] == [
            "dispatcher round failed, retrying",
            "dispatcher recovered after 3 failures",
        ]
        assert house.dispatcher.counters.failures == 3
        stop.set()
        await turn(house.clock, SECOND)
        await loop

    run(story())


@pytest.mark.parametrize(("error", "longest"), [(StoreFull("full"), SECOND // 2), (StoreError("gone"), 5 * SECOND)])
def test_the_dispatcher_asks_a_full_store_again_sooner_than_one_that_is_away(error: Exception, longest: int) -> None:
    async def story() -> None:
        house = House()
        asked: list[int] = []
        answer = house.store.take

        async def take(*arguments: Any) -> Any:
            asked.append(house.clock.now())
            if len(asked) <= 20:
                raise error
            return await answer(*arguments)

        house.store.take = take  # type: ignore[method-assign, assignment]
        stop = asyncio.Event()
        loop = asyncio.create_task(house.dispatcher.run(stop))
        await turn(house.clock, MINUTE * 2)
        pauses = [later - sooner for sooner, later in itertools.pairwise(asked[:21])]
        assert pauses[:3] == [50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND]
        assert max(pauses) == longest
        stop.set()
        await turn(house.clock, SECOND)
        await loop

    run(story())


@pytest.mark.parametrize("lead", [0, 40 * MILLISECOND])
@pytest.mark.parametrize("place", [0, 7])
def test_a_run_that_cannot_be_fired_is_left_out_alone_and_its_neighbours_fire(lead: int, place: int) -> None:
    """Whatever it is that the store's code cannot read about it: the batch is halved until it stands alone."""

    class Poisoned(FakeStore):
        async def fire(self, leases: Any, due: Any, cursor: int, decide: Any, soon: Any = (), kind: Any = None) -> Any:
            if any(number == poison for _, number in (*due, *soon)):
                raise ValueError("this row cannot be read")
            return await super().fire(leases, due, cursor, decide, soon, kind)

    async def story() -> None:
        for _ in range(50):
            try:
                await house.live_until(NOON + lead)
                return
            except ValueError:
                continue
        raise AssertionError("the poisoned run is never left out")

    house = House()
    house.store = Poisoned(house.clock, lead=lead)
    house.dispatcher = Dispatcher(house.store, house.clock, owner=1)
    numbers = [house.store.promise(NOON + n * lead // 20) for n in range(20)]
    poison = numbers[place]
    run(story())
    handed_off = [number for _, _, number in (*house.store.fired, *house.store.ahead)]
    assert sorted(handed_off) == sorted(set(numbers) - {poison})
