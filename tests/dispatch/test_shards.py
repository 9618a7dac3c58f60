"""Several shards in one process, and several processes that share them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.clock import ManualClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.dispatch.shards import Shards
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.run import LATE
from foliot.domain.store import Arrivals, Cells, Lease, shard_of
from foliot.errors import LostOwnership
from tests.dispatch.fake_store import BEGINNING, FakeStore
from tests.tiers import by_tier

T = TypeVar("T")

NOON: Instant = 1_800_000_000 * SECOND
SHARDS = 4


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Town:
    """One store, its clock, and any number of dispatchers that come and go."""

    def __init__(self, dispatchers: int = 1, shards: int = SHARDS, **settings: Any) -> None:
        self.clock = ManualClock(NOON)
        self.store = FakeStore(self.clock, shard_count=shards)
        self.settings = settings
        self.dispatchers: dict[int, Dispatcher] = {}
        self.wanted: dict[int, Instant] = {}
        self.born = 0
        for _ in range(dispatchers):
            self.join()

    def join(self) -> Dispatcher:
        self.born += 1
        self.dispatchers[self.born] = Dispatcher(self.store, self.clock, owner=self.born, **self.settings)
        self.wanted[self.born] = self.clock.now()
        return self.dispatchers[self.born]

    def die(self, number: int) -> None:
        del self.dispatchers[number], self.wanted[number]

    async def leave(self, number: int) -> None:
        dispatcher = self.dispatchers[number]
        self.die(number)
        del self.store.schedulers[number]
        await dispatcher.release()

    async def settle(self) -> None:
        """Everybody whose time has come has its rounds."""
        for number, dispatcher in self.dispatchers.items():
            for _ in range(1_000):
                self.wanted[number] = await dispatcher.run_once()
                if self.wanted[number] > self.clock.now():
                    break
            else:
                raise AssertionError("a dispatcher never rests")

    async def live_until(self, moment: Instant) -> None:
        await self.settle()
        while self.wanted and (following := min(self.wanted.values())) <= moment:
            self.clock.set(max(following, self.clock.now()))
            await self.settle()
        self.clock.set(max(moment, self.clock.now()))
        await self.settle()

    def held(self) -> list[list[int]]:
        return [sorted(dispatcher.shards) for dispatcher in self.dispatchers.values()]

    def fired(self) -> list[int]:
        return [number for _, _, number in self.store.fired]


# One process


def test_what_is_due_in_all_shards_is_fired_together() -> None:
    async def story() -> None:
        town = Town()
        numbers = [town.store.promise(NOON + SECOND) for _ in range(20)]
        await town.live_until(NOON + SECOND)
        assert town.fired() == numbers
        assert town.store.batches == [20]
        assert town.store.fired_with == [{0, 1, 2, 3}]

    run(story())


def test_a_firing_names_only_the_shards_that_it_concerns() -> None:
    async def story() -> None:
        town = Town()
        await town.settle()
        number = town.store.promise(NOON)
        await town.settle()
        assert town.store.fired_with == [{shard_of(number, SHARDS)}]

    run(story())


def test_leases_are_renewed_and_arrivals_are_read_for_all_shards_at_once() -> None:
    async def story() -> None:
        town = Town(shards=16)
        await town.settle()
        town.store.calls.clear()
        await town.live_until(NOON + 10 * SECOND)
        calls = town.store.calls
        assert (calls.count("renew"), calls.count("standing"), calls.count("take")) == (10, 10, 0)
        assert calls.count("arrivals") <= 4 * 10 + 10 + 1  # every 250 ms, and after each commit of its own

    run(story())


def test_a_batch_is_shared_by_the_shards_and_what_one_leaves_the_others_use() -> None:
    held = Shards(2)
    held.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    held.hold(Lease(1, 1, 1, 0, BEGINNING, 0))
    even, odd = [(n, 2 * n) for n in range(100)], [(n, 2 * n + 1) for n in range(3)]
    held.age(LATE + 1_000)
    held.put_back(even + odd)
    assert held.overdue(99, 10) == sorted(even[:7] + odd)
    assert held.overdue(99, 10) == even[7:17]


def test_a_herd_does_not_keep_what_falls_due_after_it_waiting_until_its_last() -> None:
    held = Shards(1)
    held.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    held.put_back((0, number) for number in range(1_000))
    assert len(held.due(0, 10)) == 10
    held.put_back([(5, 5_000), (6, 6_000)])
    assert {(5, 5_000), (6, 6_000)} <= set(held.due(6, 10))
    left = 0
    while batch := held.due(6, 10):
        left += len(batch)
    assert (left, held.waiting()) == (1_000 - 10 - 8, 0)


def test_what_is_due_beside_a_herd_can_be_taken_without_it() -> None:
    held = Shards(16)
    for shard in range(16):
        held.hold(Lease(shard, 1, 1, 0, BEGINNING, 0))
    held.put_back((0, number) for number in range(1_000))
    assert held.fresh(0, 10) == [], "there is no herd before more is due than fits into a batch"
    held.due(0, 10)
    held.put_back([(5, 5_000), (7, 7_000), (6, 6_000)])
    assert held.fresh(6, 10) == [(5, 5_000), (6, 6_000)]
    assert held.fresh(6, 10) == []
    held.put_back((6, number) for number in range(2_000, 2_010))
    assert held.fresh(6, 10) == [], "as much as a batch is no exception"
    assert held.waiting() == 990 + 10 + 1


def test_the_newest_of_a_herd_that_was_loaded_are_in_the_first_batch() -> None:
    held = Shards(2)
    for shard in range(2):
        held.hold(Lease(shard, 1, 1, 0, BEGINNING, 0))
    for shard in range(2):
        numbers = range(shard, 200, 2)
        load(held, Cells(array("q", numbers), array("q", numbers), (200, 0), True))
    assert held.due(150, 20) == [(n, n) for n in (*range(10), *range(141, 151))]
    assert held.due(150, 20) == [(n, n) for n in range(10, 30)]
    assert held.waiting() == 200 - 40


def test_a_herd_that_is_late_is_backlog() -> None:
    held = Shards(1)
    held.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    held.put_back((0, number) for number in range(100))
    held.due(0, 10)
    held.age(LATE + 1)
    assert held.due(1, 100) == []
    assert len(held.overdue(1, 100)) == 90


def test_a_small_batch_takes_no_more_than_its_size() -> None:
    held = Shards(16)
    for shard in range(16):
        held.hold(Lease(shard, 1, 1, 0, BEGINNING, 0))
    held.put_back((0, number) for number in range(64))
    assert len(held.due(0, 5)) == 5
    assert len(held.due(0, 100)) == 59


def test_arrivals_of_shards_that_are_not_held_are_not_kept() -> None:
    held = Shards(2)
    held.hold(Lease(1, 1, 1, 0, BEGINNING, 0))
    held.add_arrivals(Arrivals(array("q", [5, 5]), array("q", [2, 3]), -7))
    assert (held.waiting(), held.cursor) == (1, -7)


def load(held: Shards, cells: Cells) -> int:
    """Gives the next window these cells; answers whose it was."""
    found = held.to_load(0, 0)
    assert found is not None
    shard, window = found
    shard.add(window, cells)
    return shard.lease.shard


def test_the_shard_that_is_furthest_behind_is_loaded_first() -> None:
    held = Shards(3)
    for shard, last in enumerate([30, 10, 20]):
        held.hold(Lease(shard, 1, 1, 0, BEGINNING, 0))
        assert load(held, Cells(array("q"), array("q"), (last, 0), exhausted=False)) == shard
    assert load(held, Cells(array("q", [11]), array("q", [1]), (11, 1), exhausted=False)) == 1
    assert load(held, Cells(array("q"), array("q"), (21, 0), exhausted=False)) == 2  # the other one has enough


# Losing some


def test_a_shard_that_was_lost_is_dropped_and_the_others_go_on() -> None:
    async def story() -> None:
        town = Town()
        numbers = [town.store.promise(NOON + SECOND // 2) for _ in range(8)]
        await town.settle()
        town.store.held[2].until = NOON  # as if this process had been stopped, and that one had run out
        await town.store.take(2, 99, HOUR)
        await town.live_until(NOON + SECOND // 2)
        assert town.held() == [[0, 1, 3]]
        assert town.fired() == [number for number in numbers if shard_of(number, SHARDS) != 2]
        assert town.dispatchers[1].counters.lost == 1

    run(story())


@pytest.mark.parametrize("verb", ["renew", "fire", "arrivals"])
@pytest.mark.parametrize("shards", [(), (0, 1, 2, 3), (1,)])
def test_when_the_store_no_longer_knows_who_owns_what_shards_are_taken_anew_and_nothing_is_lost(
    verb: str, shards: tuple[int, ...]
) -> None:
    """An engine says so too when a connection broke, and it cannot know what was done."""

    async def story() -> None:
        town = Town()
        numbers = [town.store.promise(NOON + n * SECOND) for n in range(12)]
        await town.live_until(NOON + 3 * SECOND)
        town.store.trouble[verb] = [LostOwnership("the answer was lost", shards)]
        await town.live_until(NOON + 12 * SECOND)
        assert town.fired() == numbers
        assert town.held() == [[0, 1, 2, 3]]
        assert town.dispatchers[1].counters.takeovers == SHARDS + (len(shards) or SHARDS)

    run(story())


def test_a_shard_whose_taking_was_not_answered_is_taken_again() -> None:
    async def story() -> None:
        town = Town()
        take = town.store.take

        async def unanswered(*arguments: Any) -> Any:
            await take(*arguments)
            town.store.take = take  # type: ignore[method-assign]
            raise ConnectionError("the answer was lost")

        town.store.take = unanswered  # type: ignore[method-assign, assignment]
        number = town.store.promise(NOON)
        with pytest.raises(ConnectionError):
            await town.settle()
        await town.settle()
        assert town.held() == [[0, 1, 2, 3]]
        assert town.fired() == [number]

    run(story())


# Sharing


def test_who_joins_has_its_share_within_a_second_or_so_and_nothing_is_late_for_longer() -> None:
    async def story() -> None:
        town = Town()
        for n in range(400):
            town.store.promise(NOON + n * 25 * MILLISECOND)
        await town.live_until(NOON + 3 * SECOND + 333 * MILLISECOND)
        town.join()
        await town.live_until(NOON + 5 * SECOND)
        assert town.held() == [[0, 1], [2, 3]]
        await town.live_until(NOON + 10 * SECOND)
        assert sorted(town.fired()) == sorted(town.store.rows)
        assert max(at - fire_at for at, fire_at, _ in town.store.fired) <= 100 * MILLISECOND

    run(story())


def test_the_shards_of_a_scheduler_that_ends_are_taken_within_a_second() -> None:
    async def story() -> None:
        town = Town(2)
        await town.live_until(NOON + 3 * SECOND)
        await town.leave(1)
        await town.live_until(NOON + 4 * SECOND)
        assert town.held() == [[0, 1, 2, 3]]

    run(story())


def test_the_shards_of_a_scheduler_that_died_are_taken_within_two_seconds_of_their_leases_end() -> None:
    async def story() -> None:
        town = Town(3, shards=16)
        await town.live_until(NOON + 3 * SECOND)
        town.die(2)
        await town.live_until(NOON + 10 * SECOND)
        assert sorted(len(held) for held in town.held()) == [8, 8]

    run(story())


def test_a_promise_that_was_made_just_before_a_shard_was_taken_is_told_whichever_shard_is_its_own() -> None:
    """The cursor of arrivals is older than that of the shard which is taken: they go on from the older one."""

    async def story() -> None:
        town = Town(2)
        await town.live_until(NOON + 3 * SECOND)
        numbers = [town.store.promise(NOON + 10 * SECOND) for _ in range(8)]
        await town.leave(1)
        town.clock.advance(SECOND)  # in the next round it takes what is free, and only then looks at arrivals
        numbers += [town.store.promise(NOON + 10 * SECOND) for _ in range(8)]
        await town.live_until(NOON + 10 * SECOND)
        assert town.fired() == numbers

    run(story())


def test_a_scheduler_whose_clock_is_wrong_gives_up_everything_and_others_go_on() -> None:
    async def story() -> None:
        town = Town(2)
        numbers = [town.store.promise(NOON + n * SECOND) for n in range(20)]
        await town.live_until(NOON + 3 * SECOND)
        wrong = town.dispatchers[1]
        wrong._clock = ManualClock(town.clock.now())
        wrong._clock.fenced = True
        await wrong.run_once()
        town.die(1)
        del town.store.schedulers[1]  # as the store does once it was told
        await town.live_until(NOON + 20 * SECOND)
        assert (wrong.shards, wrong.waiting) == (frozenset(), 0)
        assert town.held() == [[0, 1, 2, 3]]
        assert sorted(town.fired()) == numbers
        town.store.calls.clear()
        assert await wrong.run_once() == wrong._clock.now() + SECOND
        assert town.store.calls == []
        wrong._clock.fenced = False
        wrong._clock.advance(SECOND)
        await wrong.run_once()
        assert "standing" in town.store.calls

    run(story())


moments = some.integers(0, 400).map(lambda n: n * 900 * MILLISECOND)


@settings(max_examples=by_tier(10, 100, 500))
@given(
    promises=some.lists(some.tuples(moments, some.integers(-60, 400).map(lambda n: n * SECOND)), max_size=30),
    changes=some.lists(some.tuples(moments, some.sampled_from(["join", "leave", "die", "stop"])), max_size=8),
    slice_size=some.integers(1, 8),
    batch=some.integers(1, 4),
)
def test_whoever_comes_and_goes_every_run_is_fired_once_and_never_early(
    promises: list[tuple[int, int]], changes: list[tuple[int, str]], slice_size: int, batch: int
) -> None:
    async def story() -> None:
        town = Town(slice_size=slice_size, batch=batch)
        steps: list[tuple[int, str, int]] = [(at, "promise", due) for at, due in promises]
        steps += [(at, what, 0) for at, what in changes]
        for at, what, due in sorted(steps):
            await town.live_until(NOON + at)
            match what:
                case "promise":
                    town.store.promise(NOON + due)
                case "join" if len(town.dispatchers) < 5:
                    town.join()
                case "leave" if len(town.dispatchers) > 1:
                    await town.leave(min(town.dispatchers))
                case "die" if len(town.dispatchers) > 1:
                    town.die(max(town.dispatchers))
                case "stop":  # everybody sleeps for longer than a lease
                    town.clock.advance(7 * SECOND)
            await town.settle()
        await town.live_until(NOON + 7 * MINUTE)
        assert sorted(town.fired()) == sorted(town.store.rows)
        assert all(at >= fire_at for at, fire_at, _ in town.store.fired)

    run(story())
