"""load, renew and arrivals: every pending run is told, once where that is possible."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Instant
from foliot.domain.run import Promise
from foliot.domain.state import State
from tests.contract.stage import (
    BEGINNING,
    FAR,
    START,
    TTL,
    Entry,
    Stage,
    deciding,
    declared,
    entries,
    fires,
    fires_hourly,
    holds,
)
from tests.tiers import by_tier

# ----------------------------------------------------------------------------------------------------------------- load


async def test_a_window_is_told_in_the_order_of_its_fire_times_then_of_its_numbers(stage: Stage) -> None:
    times = [5, 1, 3, 1, 2, 5, 1]
    kept = await stage.store.promise([Promise("job", b"", START + HOUR + time) for time in times])
    told = await stage.loaded(await stage.lease())
    assert told == sorted((one.fire_at, one.number) for one in kept)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_slices_join_without_a_gap_and_without_a_repetition(stage: Stage, limit: int) -> None:
    kept = await stage.store.promise([Promise("job", b"", START + HOUR + place // 3) for place in range(7)])
    lease = await stage.lease()
    assert await stage.loaded(lease, limit=limit) == sorted((one.fire_at, one.number) for one in kept)
    first = await stage.store.load(lease, BEGINNING, limit)
    assert len(first.number) == min(limit, 7)
    assert first.last == entries(first)[-1]


async def test_a_window_ends_below_the_high_water_mark(stage: Stage) -> None:
    for after in (-DAY, HOUR - 1, HOUR, HOUR + 1):
        await stage.promise(after=after)
    lease = await stage.lease(high_water=START + HOUR)
    assert [fire_at for fire_at, _ in await stage.loaded(lease)] == [START - DAY, START + HOUR - 1]


async def test_the_next_window_begins_where_the_last_one_ended(stage: Stage) -> None:
    for after in (HOUR - 1, HOUR, HOUR + 1):
        await stage.promise(after=after)
    lease = await stage.lease(high_water=START + HOUR)
    [raised] = await stage.store.renew([lease], TTL, FAR)
    told = await stage.loaded(raised, (lease.high_water, -1))
    assert [fire_at for fire_at, _ in told] == [START + HOUR, START + HOUR + 1]


async def test_an_empty_window_is_exhausted_at_once(stage: Stage) -> None:
    cells = await stage.store.load(await stage.lease(), BEGINNING, 10)
    assert (entries(cells), cells.exhausted, cells.last) == ([], True, BEGINNING)


async def test_a_window_has_only_what_is_pending(stage: Stage) -> None:
    waiting = await stage.promise(after=HOUR)
    cancelled = await stage.promise(after=HOUR)
    await stage.store.cancel(cancelled.id, actor="test", note="")
    await stage.running()
    retrying = await stage.running()
    await stage.finish(stage.failed(retrying, 2 * HOUR))
    await stage.finish(stage.died(await stage.running()))
    await stage.finish(stage.succeeded(await stage.running()))
    await stage.apply(declared("held", START))
    await stage.fire(holds)
    told = await stage.loaded(await stage.lease())
    assert told == [(START + HOUR, waiting.number), (START + 2 * HOUR, retrying.number)]


async def test_what_was_handed_off_is_left_out_after_a_takeover(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise()
    await stage.fire()
    later = await stage.promise(after=HOUR)
    assert await stage.loaded(await stage.lease(), limit=1) == [(START + HOUR, later.number)]
    assert len(await stage.claim()) == 3


async def test_a_slice_of_nothing_but_handed_off_runs_is_not_the_end(stage: Stage) -> None:
    for _ in range(4):
        await stage.promise()
    await stage.fire()
    last = await stage.promise(after=HOUR)
    lease = await stage.lease()
    cells = await stage.store.load(lease, BEGINNING, 2)
    assert entries(cells) == []
    assert not cells.exhausted
    assert cells.last > BEGINNING
    assert await stage.loaded(lease, limit=2) == [(START + HOUR, last.number)]


async def test_a_run_that_was_handed_off_and_moved_is_not_left_out_after_a_takeover(stage: Stage) -> None:
    """The chunk that still names it is dropped by the next claim: from then on only the cells know of it."""
    kept = await stage.promise("class:7")
    await stage.fire()
    await stage.store.move("class:7", None, START + HOUR)
    lease = await stage.lease()
    assert await stage.claim() == []
    assert await stage.loaded(lease) == [(START + HOUR, kept.number)]


async def test_a_window_leaves_out_what_came_after_its_cursor(stage: Stage) -> None:
    before = await stage.promise(after=HOUR)
    lease = await stage.lease()
    await stage.promise(after=HOUR)
    assert await stage.loaded(lease) == [(START + HOUR, before.number)]


# ------------------------------------------------------------------------------------------------------------- arrivals


async def test_new_promises_below_the_mark_arrive(stage: Stage) -> None:
    lease = await stage.lease(high_water=START + HOUR)
    past = await stage.promise(after=-DAY)
    near = await stage.promise(after=MINUTE)
    await stage.promise(after=HOUR)
    arrivals = await stage.store.arrivals([lease], lease.cursor)
    assert sorted(entries(arrivals)) == [(START - DAY, past.number), (START + MINUTE, near.number)]
    assert arrivals.cursor > lease.cursor


async def test_what_was_told_once_is_not_told_again(stage: Stage) -> None:
    lease = await stage.lease()
    await stage.promise()
    arrivals = await stage.store.arrivals([lease], lease.cursor)
    again = await stage.store.arrivals([lease], arrivals.cursor)
    assert entries(again) == []
    kept = await stage.promise()
    assert entries(await stage.store.arrivals([lease], again.cursor)) == [(START, kept.number)]


async def test_a_moved_promise_arrives_at_its_new_time(stage: Stage) -> None:
    kept = await stage.promise("class:7", after=DAY)
    lease = await stage.lease(high_water=START + HOUR)
    await stage.store.move("class:7", None, START + MINUTE)
    assert entries(await stage.store.arrivals([lease], lease.cursor)) == [(START + MINUTE, kept.number)]


async def test_a_replaced_promise_arrives_at_its_new_time(stage: Stage) -> None:
    kept = await stage.promise("class:7", after=DAY)
    lease = await stage.lease(high_water=START + HOUR)
    await stage.promise("class:7", after=MINUTE, on_conflict="replace")
    assert entries(await stage.store.arrivals([lease], lease.cursor)) == [(START + MINUTE, kept.number)]


async def test_a_promise_moved_beyond_the_mark_does_not_arrive(stage: Stage) -> None:
    await stage.promise("class:7", after=MINUTE)
    lease = await stage.lease(high_water=START + HOUR)
    await stage.store.move("class:7", None, START + DAY)
    assert entries(await stage.store.arrivals([lease], lease.cursor)) == []


async def test_retries_arrive(stage: Stage) -> None:
    run = await stage.running()
    lease = await stage.lease()
    await stage.finish(stage.failed(run, MINUTE))
    assert await stage.told(lease.cursor) == [(START + MINUTE, run.number)]


async def test_given_back_runs_do_not_arrive_because_they_are_handed_off_already(stage: Stage) -> None:
    run = await stage.running()
    lease = await stage.lease()
    await stage.store.give_back(await stage.worker(), [run])
    assert await stage.told(lease.cursor) == []
    assert await stage.loaded(await stage.lease()) == []


async def test_interrupted_runs_arrive(stage: Stage) -> None:
    run = await stage.running()
    lease = await stage.lease()
    await stage.finish(stage.interrupted(run))
    assert await stage.told(lease.cursor) == [(START, run.number)]


async def test_lost_runs_that_are_tried_again_arrive(stage: Stage) -> None:
    run = await stage.running()
    lease = await stage.lease()
    await stage.store.lose([stage.lost(run, retry_at=START + SECOND)])
    assert await stage.told(lease.cursor) == [(START + SECOND, run.number)]


async def test_released_runs_arrive(stage: Stage) -> None:
    first = await stage.running_tick("hourly")
    await stage.apply(declared("hourly", START + 1, fingerprint="v2"))
    stage.clock.advance(1)
    await stage.fire(holds)
    [held] = await stage.store.runs(states=[State.HELD])
    lease = await stage.lease()
    await stage.finish(stage.succeeded(first))
    assert await stage.told(lease.cursor) == [(START + 1, held.number)]


async def test_triggered_runs_and_new_schedules_arrive(stage: Stage) -> None:
    lease = await stage.lease()
    await stage.apply(declared("hourly", START + HOUR))
    await stage.store.trigger("hourly", actor="test", note="")
    assert [fire_at for fire_at, _ in sorted(await stage.told(lease.cursor))] == [START, START + HOUR]


async def test_what_ended_meanwhile_does_not_arrive(stage: Stage) -> None:
    lease = await stage.lease()
    kept = await stage.promise()
    await stage.store.cancel(kept.id, actor="test", note="")
    assert await stage.told(lease.cursor) == []


async def test_what_was_claimed_meanwhile_does_not_arrive(stage: Stage) -> None:
    run = await stage.running()
    lease = await stage.lease()
    await stage.finish(stage.failed(run, 0))
    assert await stage.told(lease.cursor) == [(START, run.number)]
    await stage.store.fire([lease], [(START, run.number)], lease.cursor, deciding(fires))
    assert len(await stage.claim()) == 1
    assert await stage.told(lease.cursor) == []


async def test_successors_of_a_firing_arrive_and_what_it_handed_off_does_not(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    lease = await stage.lease()
    await stage.store.fire([lease], await stage.loaded(lease), lease.cursor, deciding(fires_hourly))
    assert [fire_at for fire_at, _ in await stage.told(lease.cursor)] == [START + HOUR]


# ----------------------------------------------------------------------------------------------------------- everything


class Shadow:
    """Walks the way of a dispatcher through windows and arrivals, beside a model of what must be pending."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.store, self.chance = stage, stage.store, random.Random(seed)
        self.pending: dict[int, Instant] = {}
        self.ready: set[int] = set()
        self.changed: set[int] = set()
        """Moved or tried before, since the takeover: may be told more than once."""
        self.told: Counter[Entry] = Counter()
        self.keys: dict[int, str] = {}

    def soon(self) -> Instant:
        return self.stage.now + self.chance.choice([-DAY, -1, 0, 1, SECOND, MINUTE, 4 * MINUTE, 9 * MINUTE, HOUR])

    async def take(self) -> None:
        lease = await self.store.take(0, await self.stage.scheduler(), TTL)
        assert lease is not None
        self.lease, self.cursor = lease, lease.cursor
        self.place, self.open = BEGINNING, True
        self.told.clear()
        self.changed.clear()
        await self.raise_mark()

    async def raise_mark(self) -> None:
        """Only once the window before it is exhausted: then nothing is told twice."""
        fresh = self.lease.high_water < START - 10_000 * DAY
        if self.open and not fresh:
            return
        mark = max(self.lease.high_water, self.stage.now + self.chance.choice([0, MINUTE, 5 * MINUTE, 10 * MINUTE]))
        [renewed] = await self.store.renew([self.lease], TTL, mark)
        if not fresh:
            self.place = (self.lease.high_water, -1)
        self.lease, self.open = renewed._replace(cursor=self.cursor), True

    async def load(self) -> None:
        if self.open:
            cells = await self.store.load(self.lease, self.place, self.chance.randint(1, 4))
            assert entries(cells) == sorted(entries(cells))
            assert all(self.place < entry <= cells.last for entry in entries(cells))
            self.told.update(entries(cells))
            self.place, self.open = cells.last, not cells.exhausted

    async def look(self) -> None:
        arrivals = await self.store.arrivals([self.lease], self.cursor)
        self.told.update(entries(arrivals))
        self.cursor = arrivals.cursor

    async def promise(self) -> None:
        wanted = [
            Promise("job", b"", self.soon(), key=f"k{self.chance.random()}") for _ in range(self.chance.randint(1, 3))
        ]
        for kept, one in zip(await self.store.promise(wanted), wanted, strict=True):
            assert one.key is not None
            self.pending[kept.number], self.keys[kept.number] = kept.fire_at, one.key

    async def move(self) -> None:
        fresh = [number for number in (*self.pending, *self.ready) if number in self.keys]
        if fresh:
            number = self.chance.choice(fresh)
            self.pending[number] = (await self.store.move(self.keys[number], None, self.soon())).fire_at
            self.ready.discard(number)
            self.changed.add(number)

    async def cancel(self) -> None:
        if self.pending:
            number = self.chance.choice(list(self.pending))
            del self.pending[number]
            run = next(run for run in await self.store.runs(limit=10_000) if run.number == number)
            await self.store.cancel(run.id, actor="test", note="")

    async def fire(self) -> None:
        due = sorted(
            entry for entry in self.told if entry[0] <= self.stage.now and self.pending.get(entry[1]) == entry[0]
        )
        fired = await self.store.fire([self.lease], due, self.cursor, deciding(fires))
        assert (fired.handed_off, fired.early, fired.stale) == (len(due), 0, 0)
        for _, number in due:
            del self.pending[number]
            self.ready.add(number)

    async def work(self) -> None:
        for run in await self.stage.claim(self.chance.randint(1, 5)):
            self.ready.discard(run.number)
            self.pending.pop(run.number, None)
            self.keys.pop(run.number, None)
            self.changed.add(run.number)
            match self.chance.randint(0, 3):
                case 0:
                    await self.stage.finish(self.stage.succeeded(run))
                case 1:
                    retry_at = max(self.soon(), self.stage.now)
                    await self.stage.finish(self.stage.failed(run, retry_at - self.stage.now))
                    self.pending[run.number] = retry_at
                case 2:
                    await self.store.give_back(await self.stage.worker(), [run])
                    self.ready.add(run.number)
                case 3:
                    await self.store.lose([self.stage.lost(run, retry_at=self.stage.now + SECOND)])
                    self.pending[run.number] = self.stage.now + SECOND

    async def wait(self) -> None:
        self.stage.clock.advance(self.chance.choice([1, SECOND, MINUTE, 5 * MINUTE]))

    async def check(self) -> None:
        while self.open:
            await self.load()
        await self.look()
        # One that was moved while it was handed off, to a time that has come too: its chunk will serve.
        served = {run.number for run in await self.store.runs(states=[State.READY], limit=10_000)}
        for number, fire_at in self.pending.items():
            if fire_at < self.lease.high_water and number not in served:
                assert self.told[fire_at, number] >= 1, f"run {number} was told by nobody"
        for (_, number), times in self.told.items():
            assert times == 1 or number in self.changed, f"run {number} was told {times} times"


@pytest.mark.parametrize("seed", range(by_tier(3, 8, 80)))
async def test_every_pending_run_is_told_and_once_unless_it_was_changed(stage: Stage, seed: int) -> None:
    shadow = Shadow(stage, seed)
    steps = [shadow.promise] * 5 + [shadow.load] * 4 + [shadow.look] * 3 + [shadow.raise_mark] * 3
    steps += [shadow.move, shadow.cancel, shadow.fire, shadow.fire, shadow.work, shadow.wait, shadow.wait]
    for _ in range(20):
        await shadow.promise()
    await shadow.take()
    for place in range(120):
        await shadow.chance.choice(steps)()
        if place % 40 == 39:
            await shadow.check()
            await shadow.take()
    await shadow.check()
