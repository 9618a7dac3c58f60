"""After an outage: what is live stays on time, and the backlog drains beside it, at a rate that somebody chose."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.clock import ManualClock
from foliot.dispatch.dispatcher import HERD_BATCH, HERD_REST, LATE_BATCH, LATE_PIECE, Dispatcher
from foliot.dispatch.lanes import SAVED, STEP, UNLIMITED, Pace
from foliot.dispatch.shards import Shards
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.lanes import BURST, DueKind
from foliot.domain.run import LATE
from foliot.domain.store import Arrivals, Cells, Decide, Fired, Lease
from tests.dispatch.fake_store import BEGINNING, FakeStore
from tests.dispatch.test_shards import SHARDS, Town
from tests.tiers import by_tier, only_in_full

T = TypeVar("T")

NOON: Instant = 1_800_000_000 * SECOND
COST = 4 * MILLISECOND
"""What one firing takes, where that matters."""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# The pace


def test_without_a_rate_everything_may_go_at_once() -> None:
    pace = Pace(200)
    pace.spend(10_000, NOON)
    assert (pace.allows(NOON), pace.next_at(NOON)) == (UNLIMITED, NOON)


def drained(pace: Pace, start: Instant, end: Instant) -> list[tuple[Instant, int]]:
    """What goes, and when, if somebody comes whenever some may."""
    went, now = [], start
    while now < end:
        count = min(pace.allows(now), 200)
        if count:
            pace.spend(count, now)
            went.append((now, count))
        now = max(pace.next_at(now), now)
    return went


@pytest.mark.parametrize("rate", [0.5, 3, 20, 333, 1_000, 7_777, 40_000])
def test_a_pace_is_kept_to_within_a_hundredth(rate: float) -> None:
    pace = Pace(200)
    pace.keep_to(rate)
    seconds = 600 if rate < 100 else 60
    went = drained(pace, NOON, NOON + seconds * SECOND)
    saved = max(rate * SAVED / SECOND, 1)
    assert sum(count for _, count in went) == pytest.approx(rate * seconds + saved, rel=0.01, abs=1)


def test_what_may_go_in_a_short_time_goes_together_and_no_more_than_a_batch_is_waited_for() -> None:
    pace = Pace(200)
    for rate, together in [(1_000, 50), (100_000, 200), (10, 1)]:
        pace.keep_to(rate)
        pace.spend(pace.allows(NOON), NOON)
        at = pace.next_at(NOON)
        assert (pace.allows(at - 1), pace.allows(at)) == (0, together)
    assert 1_000 * STEP / SECOND == 50


def test_a_pause_makes_no_burst() -> None:
    pace = Pace(200)
    pace.keep_to(1_000)
    pace.spend(pace.allows(NOON), NOON)
    assert pace.allows(NOON + HOUR) == 250


def test_a_round_that_comes_late_makes_nobody_slower() -> None:
    pace = Pace(200)
    pace.keep_to(1_000)
    pace.spend(pace.allows(NOON), NOON)
    assert pace.allows(NOON + 200 * MILLISECOND) == 200


@pytest.mark.parametrize("to", [None, 1_000.0])
def test_a_rate_that_is_raised_counts_at_once(to: float | None) -> None:
    pace = Pace(200)
    pace.keep_to(0.001)
    pace.spend(1, NOON)
    assert pace.next_at(NOON) > NOON + 10 * MINUTE
    pace.keep_to(to)
    at = pace.next_at(NOON)
    assert at <= NOON + STEP
    assert pace.allows(at) >= 50


def test_a_clock_that_is_set_back_does_not_stop_the_backlog() -> None:
    pace = Pace(200)
    pace.keep_to(1_000)
    pace.spend(10, NOON)
    assert sum(count for _, count in drained(pace, NOON - HOUR, NOON - HOUR + SECOND)) >= 900


# Two wheels


def held(mark: Instant = BEGINNING) -> Shards:
    shards = Shards(1)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    shards.renew([Lease(0, 1, 1, 0, mark, 0)])
    return shards


def loading(shards: Shards) -> tuple[Any, Any]:
    found = shards.to_load(1_000, 1_000)
    assert found is not None
    return found


def test_the_first_window_is_cut_where_lateness_begins_and_the_live_part_is_loaded_first() -> None:
    shards = held(NOON + MINUTE)
    shards.age(NOON)
    shard, window = loading(shards)
    assert (window.loaded_to, window.until) == ((NOON - LATE, -1), None)
    shard.add(window, Cells(array("q", [NOON]), array("q", [1]), (NOON, 1), exhausted=True))
    shard, window = loading(shards)
    assert (window.loaded_to[0] < -HOUR, window.until) == (True, NOON - LATE)
    shard.add(window, Cells(array("q", [5]), array("q", [2]), (5, 2), exhausted=True))
    assert shards.to_load(1_000, 1_000) is None
    assert (shards.due(NOON, 9), shards.overdue(NOON, 9)) == ([(NOON, 1)], [(5, 2)])


def test_of_a_mark_that_is_raised_after_a_long_sleep_only_the_last_minute_is_live() -> None:
    shards = held(NOON)
    shard, window = loading(shards)
    shard.add(window, Cells(array("q"), array("q"), window.loaded_to, exhausted=True))
    shards.renew([Lease(0, 1, 1, 0, NOON + 2 * HOUR, 0)])
    shards.age(NOON + HOUR + LATE)
    _, window = loading(shards)
    assert (window.loaded_to, window.until) == ((NOON + HOUR, -1), None)
    shards.age(NOON + HOUR + LATE + SECOND)  # it still waits to be loaded
    [past] = shard.past
    assert (past.loaded_to, past.until) == ((NOON, -1), NOON + HOUR + SECOND)


def test_entries_that_were_live_and_became_late_are_backlog() -> None:
    shards = held()
    shards.put_back([(1, 1), (2, 2), (3, 3)])
    shard, window = loading(shards)
    shard.add(window, Cells(array("q", [1, 3]), array("q", [4, 5]), (3, 5), exhausted=True))
    shards.age(LATE + 3)
    assert shards.due(9, 9) == [(3, 3), (3, 5)]
    assert shards.overdue(9, 9) == [(1, 1), (1, 4), (2, 2)]


def test_arrivals_that_are_late_join_the_backlog() -> None:
    shards = held()
    shards.age(LATE + 10)
    shards.add_arrivals(Arrivals(array("q", [9, 10]), array("q", [1, 2]), 7))
    assert (shards.due(99, 9), shards.overdue(99, 9)) == ([(10, 2)], [(9, 1)])


# Bursts


def test_a_burst_is_set_apart_whole_and_what_falls_due_after_it_is_not() -> None:
    shards = Shards(2, burst=20)
    for shard in range(2):
        shards.hold(Lease(shard, 1, 1, 0, BEGINNING, 0))
    shards.put_back([(0, number) for number in range(21)])
    shards.put_back([(1, 100), (2, 101)])
    assert shards.due(2, 10) == [(1, 100), (2, 101)]
    assert shards.has_burst()
    assert (shards.due(2, 10), shards.burst(2, 100)) == ([], [(0, number) for number in range(21)])
    assert not shards.has_burst()


def test_what_had_to_wait_for_its_time_is_of_the_burst_too() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    shards.put_off((5, number) for number in range(21))
    assert shards.due(5, 10) == []
    assert len(shards.burst(5, 100)) == 21


def test_as_many_as_are_allowed_are_no_burst() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0))
    shards.put_back((0, number) for number in range(20))
    assert not shards.is_burst_by(0)
    assert len(shards.due(0, 10)) == 10
    assert not shards.has_burst()


def test_what_is_too_much_for_the_live_lane_is_known_before_it_is_due() -> None:
    shards = held(NOON + MINUTE)
    shards.age(NOON)
    shards.put_back((NOON + 5, number) for number in range(BURST))
    shard, window = loading(shards)
    times = array("q", [NOON + 3, NOON + 9])
    shard.add(window, Cells(times, array("q", [100_000, 100_001]), (NOON + 9, 100_001), exhausted=True))
    assert [shards.is_burst_by(NOON + moment) for moment in (2, 4, 5, 9)] == [False, False, True, True]


def test_the_rest_of_a_burst_is_loaded_after_what_falls_due_later() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0), taken_at=NOON - HOUR)
    shards.renew([Lease(0, 1, 1, 0, NOON + MINUTE, 0)])
    shards.age(NOON)
    shard, window = loading(shards)
    numbers = array("q", range(30))
    shard.add(window, Cells(array("q", [NOON]) * 30, numbers, (NOON, 29), exhausted=False))
    assert shards.due(NOON, 10) == []
    assert shard.ahead.loaded_to == (NOON + 1, -1)
    shard.add(shard.ahead, Cells(array("q", [NOON + 5]), array("q", [77]), (NOON + 5, 77), exhausted=True))
    found = shards.to_load(30, -1)
    assert found is None, "as much of the burst is in memory as may be"
    assert len(shards.burst(NOON, 10)) == 10
    found = shards.to_load(30, -1)
    assert found is not None
    assert (found[1].loaded_to, found[1].until) == ((NOON, 29), NOON + 1)
    shard.add(found[1], Cells(array("q", [NOON]), array("q", [30]), (NOON, 30), exhausted=True))
    assert (len(shards.burst(NOON, 100)), shards.due(NOON + 5, 9)) == (21, [(NOON + 5, 77)])


def test_what_is_due_and_not_loaded_yet_is_of_the_burst_too() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0), taken_at=NOON - HOUR)
    shards.renew([Lease(0, 1, 1, 0, NOON + MINUTE, 0)])
    shards.age(NOON)
    shard, window = loading(shards)
    times = array("q", range(NOON - 30, NOON))
    shard.add(window, Cells(times, array("q", range(30)), (NOON - 1, 29), exhausted=False))
    assert shards.due(NOON + SECOND, 10) == []
    assert shard.ahead.loaded_to == (NOON + SECOND + 1, -1)


def test_the_rest_of_a_burst_that_grows_late_is_backlog_loaded_or_not() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0), taken_at=NOON - HOUR)
    shards.renew([Lease(0, 1, 1, 0, NOON + HOUR, 0)])
    shards.age(NOON)
    shard, window = loading(shards)
    shard.add(window, Cells(array("q", [NOON]) * 30, array("q", range(30)), (NOON, 29), exhausted=False))
    assert shards.due(NOON, 10) == []
    shards.age(NOON + LATE + SECOND)
    assert (shards.has_burst(), len(shards.overdue(NOON + HOUR, 100))) == (False, 30)
    assert all(window.wheel is shard.backlog for window in shard.past)


def test_a_clock_that_is_set_back_makes_no_backlog_and_no_burst_of_what_is_on_time() -> None:
    shards = Shards(1, burst=20)
    shards.hold(Lease(0, 1, 1, 0, BEGINNING, 0), taken_at=NOON)
    shards.age(NOON)
    shards.put_back((NOON, number) for number in range(21))
    shards.due(NOON, 10)
    assert len(shards.burst(NOON, 100)) == 21
    now = NOON - HOUR
    shards.age(now)
    shards.put_back([(now - 3 * SECOND, 50)])
    assert shards.due(now, 10) == [(now - 3 * SECOND, 50)]


# The dispatcher


class Costly(FakeStore):
    """A store whose firings take time."""

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        fired = await super().fire(leases, due, cursor, decide, soon, kind)
        self.clock.advance(COST)
        return fired


class Aftermath:
    """A dispatcher that starts after an outage, beside a steady live load."""

    def __init__(
        self, overdue: int, *, rate: float | None = None, store: type[FakeStore] = FakeStore, **settings: Any
    ) -> None:
        self.clock = ManualClock(NOON)
        self.store = store(self.clock, catch_up_rate=rate)
        self.dispatcher = Dispatcher(self.store, self.clock, owner=1, **settings)
        self.late = {self.store.promise(NOON - HOUR + n * MILLISECOND) for n in range(overdue)}

    async def live_for(self, length: int) -> None:
        end = self.clock.now() + length
        while (wanted := await self.dispatcher.run_once()) <= end and self.clock.now() <= end:
            self.clock.set(max(wanted, self.clock.now()))
        self.clock.set(max(end, self.clock.now()))

    def drained_at(self) -> list[Instant]:
        return [at for at, _, number in self.store.fired if number in self.late]

    def lateness(self) -> list[int]:
        return [at - fire_at for at, fire_at, number in self.store.fired if number not in self.late]


class Trickling(Costly):
    """While it fires, a caller makes a promise for just after now, whenever none waits."""

    latest = 0

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        if self.latest not in self.pending() or self.latest in dict(due).values():
            self.latest = self.promise(self.clock.now() + 1)
        return await super().fire(leases, due, cursor, decide, soon, kind)


def test_what_comes_beside_a_herd_is_fired_before_it_is_over_and_the_herd_goes_on() -> None:
    async def story() -> None:
        scene = Aftermath(0, store=Trickling)
        await scene.live_for(SECOND)
        herd = {scene.store.promise(NOON + 2 * SECOND) for _ in range(5_000)}
        await scene.live_for(4 * SECOND)
        late = {number: at - due for at, due, number in scene.store.fired if number not in herd}
        assert len(late) > 20
        assert max(late.values()) <= 3 * COST
        assert {1, HERD_BATCH} <= set(scene.store.batches), "in turns, and each in a batch of its own"
        times = sorted({at for at, _, number in scene.store.fired if number in herd})
        ended = times[-1]
        rests = [after - before for before, after in pairwise(times)][3:]
        assert min(rests) >= (1 + HERD_REST) * COST, "after each batch of the herd it rests from it, by what that took"
        assert ended <= NOON + 2 * SECOND + (2 + HERD_REST) * COST * (5_000 // HERD_BATCH)

    run(story())


def test_a_herd_that_is_alone_is_fired_in_whole_batches() -> None:
    async def story() -> None:
        scene = Aftermath(0)
        await scene.live_for(SECOND)
        for _ in range(5_000):
            scene.store.promise(NOON + 2 * SECOND)
        await scene.live_for(3 * SECOND)
        assert scene.store.batches == [500] * 10

    run(story())


def test_what_is_live_is_fired_before_a_hundred_times_as_much_that_is_overdue() -> None:
    async def story() -> None:
        after = Aftermath(10_000)
        live = {after.store.promise(NOON) for _ in range(100)}
        await after.live_for(0)
        assert {number for _, _, number in after.store.fired[:100]} == live
        assert len(after.store.fired) == 10_100

    run(story())


def test_a_live_run_waits_for_no_more_than_one_batch_of_the_backlog() -> None:
    async def story() -> None:
        after = Aftermath(5_000, store=Costly)
        for n in range(40):
            after.store.promise(NOON + n * 5_300)
        await after.live_for(SECOND)
        assert len(after.store.fired) == 5_040
        # One batch that was under way when it fell due, the rest after a small batch, and its own firing.
        assert max(after.lateness()) < 2 * COST + 3 * MILLISECOND

    run(story())


def test_what_was_due_before_its_shard_was_taken_is_backlog_but_for_what_a_restart_takes() -> None:
    async def story() -> None:
        after = Aftermath(0)
        kinds = {}
        for late_by in (0, 1, 2, 3, 17, 59, 61):
            kinds[after.store.promise(NOON - late_by * SECOND)] = DueKind.LIVE if late_by <= 2 else DueKind.BACKLOG
        await after.live_for(SECOND)
        assert {number: kind for kind, number in after.store.kinds} == kinds
        live = {after.store.promise(NOON - late_by * SECOND) for late_by in (1, 0)}
        await after.live_for(30 * SECOND)
        assert {number for kind, number in after.store.kinds if kind is DueKind.LIVE} >= live

    run(story())


def test_a_live_run_waits_for_no_more_than_one_small_batch_of_a_burst() -> None:
    async def story() -> None:
        scene = Aftermath(0, store=Costly)
        await scene.live_for(SECOND)
        burst = {scene.store.promise(NOON + 2 * SECOND) for _ in range(BURST + 1)}
        live = {scene.store.promise(NOON + 2 * SECOND + n * 5_300) for n in range(1, 41)}
        await scene.live_for(5 * SECOND)
        kinds = {number: kind for kind, number in scene.store.kinds}
        assert {kinds[number] for number in burst} == {DueKind.BURST}
        assert {kinds[number] for number in live} == {DueKind.LIVE}
        late = [at - due for at, due, number in scene.store.fired if number in live]
        assert max(late) < 2 * COST + 3 * MILLISECOND
        times = sorted({at for at, _, number in scene.store.fired if number in burst and at < NOON + 3 * SECOND})
        rests = [after - before for before, after in pairwise(times)][3:]
        assert min(rests) >= (1 + HERD_REST) * COST, "after each batch of the burst it rests from it"
        assert max(rests) <= (3 + HERD_REST) * COST, "and goes on after that"
        assert max(scene.store.batches) == 500, "once nothing live was due for a while, it goes in whole batches"

    run(story())


def test_what_is_promised_beside_a_burst_is_fired_before_it_is_over() -> None:
    async def story() -> None:
        scene = Aftermath(0, store=Trickling, burst=1_000)
        await scene.live_for(SECOND)
        burst = {scene.store.promise(NOON + 2 * SECOND) for _ in range(5_000)}
        await scene.live_for(4 * SECOND)
        assert {kind for kind, number in scene.store.kinds if number in burst} == {DueKind.BURST}
        over_at = max(at for at, _, number in scene.store.fired if number in burst)
        late = [
            at - due
            for at, due, number in scene.store.fired
            if number not in burst and NOON + 2 * SECOND < due < over_at - 3 * COST
        ]
        assert len(late) >= 5
        assert max(late) <= 3 * COST

    run(story())


def test_a_burst_that_is_alone_is_fired_in_whole_batches_and_keeps_no_rate() -> None:
    async def story() -> None:
        scene = Aftermath(0, rate=10)
        await scene.live_for(SECOND)
        for _ in range(BURST + 500):
            scene.store.promise(NOON + 2 * SECOND)
        await scene.live_for(2 * SECOND)
        assert scene.store.batches == [500] * (BURST // 500 + 1)
        assert {kind for kind, _ in scene.store.kinds} == {DueKind.BURST}

    run(story())


def test_a_burst_that_is_larger_than_a_slice_keeps_nothing_that_falls_due_after_it_from_being_loaded() -> None:
    async def story() -> None:
        scene = Aftermath(0, store=Costly, slice_size=1_000, batch=100, burst=300)
        store = scene.store
        burst = {store.promise(NOON + SECOND) for _ in range(3_000)}
        live = {store.promise(NOON + SECOND + n * MILLISECOND) for n in range(50, 60)}
        await scene.live_for(2 * SECOND)
        assert {kind for kind, number in store.kinds if number in burst} == {DueKind.BURST}
        order = [number in live for _, number in store.kinds]
        assert order.index(True) < len(burst) // 2
        late = [at - due for at, due, number in store.fired if number in live]
        assert max(late) < 2 * COST + 3 * MILLISECOND

    run(story())


def test_batches_of_the_backlog_are_small() -> None:
    async def story() -> None:
        after = Aftermath(1_000)
        await after.live_for(0)
        assert after.store.batches == [LATE_BATCH] * (1_000 // LATE_BATCH)

    run(story())


@pytest.mark.parametrize(("rate", "seconds"), [(50, 30), (1_000, 10), only_in_full(1_000, 30)])
def test_the_backlog_drains_at_the_rate_within_a_twentieth(rate: int, seconds: int) -> None:
    async def story() -> None:
        after = Aftermath(rate * seconds, rate=rate)
        await after.live_for(2 * seconds * SECOND)
        drained = after.drained_at()
        assert len(drained) == rate * seconds
        assert (drained[-1] - drained[0]) / SECOND == pytest.approx(seconds, rel=0.05)
        for second in range(1, seconds - 1):
            within = sum(NOON + second * SECOND <= at < NOON + (second + 1) * SECOND for at in drained)
            assert within == pytest.approx(rate, rel=0.06)

    run(story())


def test_the_rate_can_be_changed_while_the_backlog_drains() -> None:
    async def story() -> None:
        after = Aftermath(10_000, rate=10)
        await after.live_for(10 * SECOND)
        assert len(after.store.fired) == pytest.approx(100, abs=10)
        after.store.catch_up_rate = 1_000
        await after.live_for(3 * SECOND)
        assert len(after.store.fired) > 2_000
        after.store.catch_up_rate = None
        await after.live_for(2 * SECOND)
        assert len(after.store.fired) == 10_000

    run(story())


def test_a_dispatcher_that_waits_for_the_rate_says_when_it_goes_on_and_does_not_spin() -> None:
    async def story() -> None:
        after = Aftermath(1_000, rate=10)
        await after.live_for(SECOND)
        assert after.dispatcher.next_event() is not None
        assert 0 < (after.dispatcher.next_event() or 0) - after.clock.now() <= 100 * MILLISECOND
        after.store.calls.clear()
        await after.live_for(10 * SECOND)
        assert after.store.calls.count("fire") == pytest.approx(100, abs=2)
        assert after.store.calls.count("lane_rates") == 10

    run(story())


def test_while_the_backlog_waits_for_its_rate_what_is_live_is_on_time() -> None:
    async def story() -> None:
        after = Aftermath(10_000, rate=100)
        for n in range(100):
            after.store.promise(NOON + n * 77 * MILLISECOND)
        await after.live_for(10 * SECOND)
        assert after.lateness() == [0] * 100

    run(story())


def test_the_backlog_is_loaded_as_it_drains_and_never_whole() -> None:
    async def story() -> None:
        after = Aftermath(20_000, rate=1_000)
        await after.live_for(SECOND)
        assert after.dispatcher.waiting <= 2 * LATE_PIECE
        assert sum(after.store.loaded) <= 3 * LATE_PIECE
        await after.live_for(25 * SECOND)
        assert len(after.drained_at()) == 20_000
        assert max(after.store.loaded) == LATE_PIECE

    run(story())


def test_a_process_that_slept_fires_what_is_fresh_first_and_the_rest_at_the_rate() -> None:
    async def story() -> None:
        after = Aftermath(0, rate=10)
        for n in range(2_000):
            after.store.promise(NOON + n * SECOND)
        await after.live_for(10 * SECOND)
        assert len(after.store.fired) == 11
        after.clock.advance(25 * MINUTE)  # nobody took the shard meanwhile
        await after.live_for(0)
        last_minute = [number for number in after.store.rows if 1_450 <= number - 1 <= 1_510]
        assert {number for _, _, number in after.store.fired[11:75]} > set(last_minute)
        await after.live_for(10 * MINUTE)
        assert sorted(number for _, _, number in after.store.fired) == sorted(after.store.rows)

    run(story())


def test_arrivals_are_read_before_a_window_is_opened_after_a_sleep() -> None:
    """The window is loaded as of what they told: far back, that leaves out what an engine tells only with cells."""

    async def story() -> None:
        after = Aftermath(0)
        await after.live_for(SECOND)
        after.clock.advance(HOUR)
        after.store.calls.clear()
        await after.dispatcher.run_once()
        assert after.store.calls.index("arrivals") < after.store.calls.index("renew")

    run(story())


def test_each_scheduler_takes_the_share_of_the_rate_that_it_has_of_the_shards() -> None:
    async def story() -> None:
        town = Town(2)
        town.store.catch_up_rate = 400
        for n in range(10_000):
            town.store.promise(NOON - HOUR + n)
        await town.live_until(NOON + 3 * SECOND)
        assert [len(shards) for shards in town.held()] == [SHARDS // 2] * 2
        before = [dispatcher.counters.fired for dispatcher in town.dispatchers.values()]
        await town.live_until(NOON + 13 * SECOND)
        after = [dispatcher.counters.fired for dispatcher in town.dispatchers.values()]
        assert [now - then for now, then in zip(after, before, strict=True)] == pytest.approx([2_000, 2_000], rel=0.05)

    run(story())


moments = some.integers(0, 100).map(lambda n: n * 900 * MILLISECOND)


@settings(max_examples=by_tier(15, 100, 500))
@given(
    promises=some.lists(some.tuples(moments, some.integers(-600, 1_000).map(lambda n: n * SECOND)), max_size=30),
    changes=some.lists(
        some.tuples(moments, some.sampled_from(["join", "leave", "die", "stop", "slow", "fast"])), max_size=8
    ),
    crowds=some.lists(some.tuples(moments, some.integers(-10, 60), some.integers(2, 15)), max_size=4),
    slice_size=some.integers(1, 8),
    batch=some.integers(1, 4),
    burst=some.integers(1, 12),
)
def test_whoever_sleeps_or_goes_and_whatever_the_rate_every_run_is_fired_once(
    promises: list[tuple[int, int]],
    changes: list[tuple[int, str]],
    crowds: list[tuple[int, int, int]],
    slice_size: int,
    batch: int,
    burst: int,
) -> None:
    async def story() -> None:
        town = Town(slice_size=slice_size, batch=batch, burst=burst)
        steps: list[tuple[int, str, int]] = [(at, "promise", due) for at, due in promises]
        steps += [(at, "promise", at + wait * SECOND) for at, wait, count in crowds for _ in range(count)]
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
                case "stop":  # everybody sleeps, for so long that all that is loaded is late
                    town.clock.advance(8 * MINUTE)
                case "slow" | "fast":
                    town.store.catch_up_rate = 0.1 if what == "slow" else None
            await town.settle()
        town.store.catch_up_rate = 10
        while town.store.pending():  # it sleeps, mostly
            town.clock.advance(MINUTE)
            await town.live_until(town.clock.now() + SECOND)
        assert sorted(town.fired()) == sorted(town.store.rows)
        assert all(at >= fire_at for at, fire_at, _ in town.store.fired)

    run(story())
