"""Many shards: runs are spread over them by number, each is leased apart, and one call serves all that an owner has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import DAY, HOUR, SECOND
from foliot.domain.run import Promise
from foliot.domain.store import Duty, Lease, shard_of
from foliot.errors import LostOwnership
from foliot.store.postgres import connection, promising
from tests.contract.stage import FAR, START, TTL, Stage, deciding, entries, fires
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.warm import Warm
from tests.waiting import soon

SHARDS = 16


@pytest.fixture
def stage(postgres: PostgresServer, warm: Warm, clock: ManualClock, runner: asyncio.Runner) -> Iterator[Stage]:
    store = warm.store(emptied(postgres, shards=SHARDS, by_socket=True), clock)
    runner.run(store.open())
    yield Stage(store, clock)
    runner.run(store.close())


async def taken(stage: Stage, owner: int, *shards: int) -> list[Lease]:
    leases = [await stage.store.take(shard, owner, TTL) for shard in shards]
    return await stage.store.renew([lease for lease in leases if lease is not None], TTL, FAR)


async def promised(stage: Stage, count: int, fire_at: int = START) -> list[int]:
    return [kept.number for kept in await stage.store.promise([Promise("job", b"{}", fire_at)] * count)]


async def test_the_runs_of_one_caller_are_spread_over_all_shards(stage: Stage) -> None:
    assert {shard_of(number, stage.store.shard_count) for number in await promised(stage, 64)} == set(range(SHARDS))
    single = [(await stage.promise()).number for _ in range(64)]
    assert {shard_of(number, stage.store.shard_count) for number in single} == set(range(SHARDS))
    keyed = [(await stage.promise(f"k{place}")).number for place in range(64)]
    assert len({shard_of(number, stage.store.shard_count) for number in keyed}) > SHARDS / 2


async def test_a_shard_holds_its_own_runs_and_no_others(stage: Stage) -> None:
    numbers = await promised(stage, 100)
    found: list[int] = []
    for lease in await taken(stage, await stage.scheduler(), *range(SHARDS)):
        loaded = [number for _, number in await stage.loaded(lease)]
        assert all(shard_of(number, SHARDS) == lease.shard for number in loaded)
        found += loaded
    assert sorted(found) == sorted(numbers)


async def test_arrivals_are_told_for_the_shards_that_were_asked_about(stage: Stage) -> None:
    leases = await taken(stage, await stage.scheduler(), *range(SHARDS))
    numbers = await promised(stage, 64)
    mine = [lease for lease in leases if lease.shard < 4]
    told = await stage.store.arrivals(mine, leases[-1].cursor)
    assert sorted(told.number) == sorted(number for number in numbers if shard_of(number, SHARDS) < 4)
    rest = await stage.store.arrivals([lease for lease in leases if lease.shard >= 4], leases[-1].cursor)
    assert sorted([*told.number, *rest.number]) == sorted(numbers)


async def test_each_shard_is_told_below_its_own_mark(stage: Stage) -> None:
    low, high = await taken(stage, await stage.scheduler(), 0, 1)
    low = low._replace(high_water=START + HOUR)
    numbers = await promised(stage, 64, START + 2 * HOUR)
    told = await stage.store.arrivals([low, high], low.cursor)
    assert sorted(told.number) == sorted(number for number in numbers if shard_of(number, SHARDS) == 1)


async def test_one_call_fires_what_is_due_in_all_shards_that_are_held(stage: Stage) -> None:
    await promised(stage, 100)
    leases = await taken(stage, await stage.scheduler(), *range(SHARDS))
    due = [entry for lease in leases for entry in await stage.loaded(lease)]
    fired = await stage.store.fire(leases, due, leases[0].cursor, deciding(fires))
    assert fired.handed_off == 100
    assert len(await stage.claim(200)) == 100


async def test_one_lost_shard_is_named_and_keeps_the_whole_batch_from_firing(stage: Stage) -> None:
    await promised(stage, 100)
    leases = await taken(stage, await stage.scheduler(), *range(SHARDS))
    due = [entry for lease in leases for entry in await stage.loaded(lease)]
    stage.clock.advance(TTL)
    other = await stage.register("scheduler")
    await taken(stage, other, 3, 5)
    with pytest.raises(LostOwnership) as lost:
        await stage.store.fire(leases, due, leases[0].cursor, deciding(fires))
    assert lost.value.shards == {3, 5}
    assert await stage.claim(200) == []
    left = [lease for lease in leases if lease.shard not in (3, 5)]
    mine = [entry for entry in due if shard_of(entry[1], SHARDS) not in (3, 5)]
    assert (await stage.store.fire(left, mine, leases[0].cursor, deciding(fires))).handed_off == len(mine)


async def test_renewing_tells_which_shards_are_still_held(stage: Stage) -> None:
    leases = await taken(stage, await stage.scheduler(), 0, 1, 2)
    stage.clock.advance(TTL)
    await taken(stage, await stage.register("scheduler"), 1)
    assert [lease.shard for lease in await stage.store.renew(leases, TTL, FAR)] == [0, 2]


async def test_standing_says_who_has_which_shard_and_who_could(stage: Stage) -> None:
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    await stage.register("worker")
    leases = await taken(stage, first, 0, 1)
    await taken(stage, second, 2)
    standing = await stage.store.standing(first, TTL)
    assert [one.owner for one in standing.shards] == [first, first, second] + [None] * 13
    assert standing.schedulers == [first, second]
    await stage.store.release(leases[:1])
    assert (await stage.store.standing(first, TTL)).shards[0].owner is None
    stage.clock.advance(TTL)
    later = await stage.store.standing(second, TTL)
    assert [one.owner for one in later.shards] == [None] * SHARDS
    assert later.schedulers == [second]  # the first was not heard of for a lease's time


async def test_a_scheduler_with_a_fenced_clock_is_not_counted_upon(stage: Stage) -> None:
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    await stage.store.report_clock(first, 3 * SECOND, 3 * SECOND + 5_000, True)
    assert (await stage.store.standing(second, TTL)).schedulers == [second]
    [told] = [one for one in await stage.store.instances() if one.number == first]
    assert (told.offset_low, told.offset_high, told.fenced) == (3 * SECOND, 3 * SECOND + 5_000, True)


async def test_a_duty_is_leased_like_a_shard_and_is_none(stage: Stage) -> None:
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    lease = await stage.store.take(Duty.WATCH, first, TTL)
    assert lease is not None
    assert await stage.store.take(Duty.WATCH, second, TTL) is None
    assert await stage.store.take(Duty.RETENTION, second, TTL) is not None
    assert all(one.shard >= 0 for one in (await stage.store.standing(first, TTL)).shards)
    stage.clock.advance(TTL)
    assert await stage.store.take(Duty.WATCH, second, TTL) is not None
    assert await stage.store.renew([lease], TTL, START) == []


async def test_what_a_firing_inserts_arrives_at_the_shard_that_its_number_says(stage: Stage) -> None:
    leases = await taken(stage, await stage.scheduler(), *range(SHARDS))
    await stage.promise("class:7", after=DAY)
    moved = await stage.store.move("class:7", None, START)
    told = await stage.store.arrivals(leases, leases[-1].cursor)
    assert (START, moved.number) in entries(told)


async def test_one_key_that_somebodys_transaction_holds_does_not_keep_the_others_waiting(
    stage: Stage, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SETTINGS, "lock_timeout", "300ms")
    monkeypatch.setattr(promising, "_TRIES", 1_000)  # the store does not give up before the test ends the transaction
    holder = await asyncpg.connect(postgres.dsn("contract"))
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("INSERT INTO foliot.named (name, number) VALUES ('held#1', 1)")
    tasks = [asyncio.create_task(stage.promise(key)) for key in ("a", "held", "z")]
    first, held, last = tasks
    assert [kept.id for kept in await soon(asyncio.gather(first, last))] == ["a#1", "z#1"]
    assert not held.done()
    await transaction.rollback()
    assert (await soon(held)).outcome == "made"
    await holder.close()
