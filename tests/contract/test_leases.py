"""take, renew, release: who owns a shard, and that nobody else can act as if."""

from __future__ import annotations

import pytest

from foliot.domain.instant import DAY, HOUR, SECOND
from foliot.domain.state import State
from foliot.domain.store import Lease
from foliot.errors import LostOwnership
from tests.contract.stage import START, TTL, Stage, deciding, fires


async def taken(stage: Stage, owner: int) -> Lease:
    lease = await stage.store.take(0, owner, TTL)
    assert lease is not None
    return lease


async def test_a_free_shard_is_leased_and_nothing_of_it_is_loaded(stage: Stage) -> None:
    owner = await stage.scheduler()
    lease = await taken(stage, owner)
    assert (lease.shard, lease.owner, lease.until) == (0, owner, START + TTL)
    assert lease.epoch > 0
    assert lease.high_water < START - 100_000 * DAY
    await stage.promise(after=-365 * DAY)
    assert (await stage.store.load(lease, (lease.high_water, -1), 10)).exhausted


async def test_the_new_lease_begins_where_everything_promised_so_far_is_visible(stage: Stage) -> None:
    before = await stage.promise(after=DAY)
    lease = await stage.lease()
    after = await stage.promise(after=DAY)
    assert await stage.loaded(lease) == [(START + DAY, before.number)]
    assert await stage.told(lease.cursor) == [(START + DAY, after.number)]


async def test_a_second_owner_is_refused_while_the_shard_is_held(stage: Stage) -> None:
    first, second = await stage.scheduler(), await stage.register("scheduler")
    lease = await taken(stage, first)
    stage.clock.set(lease.until - 1)
    assert await stage.store.take(0, second, TTL) is None
    assert await stage.store.renew([lease], TTL, START) != []


async def test_a_lease_that_has_ended_is_taken_with_a_higher_epoch(stage: Stage) -> None:
    first, second = await stage.scheduler(), await stage.register("scheduler")
    lease = await taken(stage, first)
    stage.clock.set(lease.until)
    again = await taken(stage, second)
    assert again.epoch > lease.epoch
    assert again.owner == second


async def test_a_renewed_lease_lasts_longer(stage: Stage) -> None:
    first, second = await stage.scheduler(), await stage.register("scheduler")
    lease = await taken(stage, first)
    stage.clock.advance(4 * SECOND)
    [renewed] = await stage.store.renew([lease], TTL, START)
    assert renewed.until == START + 4 * SECOND + TTL
    assert renewed.epoch == lease.epoch
    stage.clock.set(lease.until)
    assert await stage.store.take(0, second, TTL) is None


async def test_the_same_owner_may_take_its_shard_again_and_the_epoch_rises(stage: Stage) -> None:
    lease = await taken(stage, await stage.scheduler())
    again = await taken(stage, await stage.scheduler())
    assert again.epoch > lease.epoch
    assert await stage.store.renew([lease], TTL, START) == []
    with pytest.raises(LostOwnership):
        await stage.store.fire([lease], [], lease.cursor, deciding(fires))


async def test_an_owner_may_renew_late_as_long_as_nobody_took_its_shard(stage: Stage) -> None:
    lease = await taken(stage, await stage.scheduler())
    stage.clock.advance(DAY)
    assert (await stage.store.renew([lease], TTL, START))[0].until == START + DAY + TTL


async def test_renewing_never_lowers_the_high_water_mark(stage: Stage) -> None:
    lease = await stage.lease(high_water=START + DAY)
    assert (await stage.store.renew([lease], TTL, START))[0].high_water == START + DAY


async def test_an_old_epoch_can_neither_renew_nor_fire(stage: Stage) -> None:
    kept = await stage.promise()
    old = await stage.lease()
    due = await stage.loaded(old)
    stage.clock.set(old.until)
    new = await stage.lease(await stage.register("scheduler"))
    assert await stage.store.renew([old], TTL, START) == []
    with pytest.raises(LostOwnership):
        await stage.store.fire([old], due, old.cursor, deciding(fires))
    assert await stage.state(kept) is State.SCHEDULED
    assert await stage.claim() == []
    assert (await stage.store.fire([new], due, new.cursor, deciding(fires))).handed_off == 1


async def test_a_lease_of_the_right_epoch_in_a_wrong_hand_is_refused(stage: Stage) -> None:
    lease = await stage.lease()
    forged = lease._replace(owner=await stage.register("scheduler"))
    assert await stage.store.renew([forged], TTL, START) == []
    with pytest.raises(LostOwnership):
        await stage.store.fire([forged], [], 0, deciding(fires))


async def test_a_released_shard_is_free_at_once(stage: Stage) -> None:
    lease = await stage.lease()
    await stage.store.release([lease])
    again = await taken(stage, await stage.register("scheduler"))
    assert again.epoch > lease.epoch


async def test_after_a_release_the_old_lease_is_worth_nothing(stage: Stage) -> None:
    lease = await stage.lease()
    await stage.store.release([lease])
    assert await stage.store.renew([lease], TTL, START) == []
    with pytest.raises(LostOwnership):
        await stage.store.fire([lease], [], 0, deciding(fires))


async def test_releasing_what_was_lost_harms_nobody(stage: Stage) -> None:
    lost = await stage.lease()
    stage.clock.set(lost.until)
    held = await stage.lease(await stage.register("scheduler"))
    await stage.store.release([lost])
    assert await stage.store.renew([held], TTL, START) != []
    assert await stage.store.take(0, await stage.register("scheduler"), TTL) is None


async def test_the_shard_of_a_scheduler_that_retired_is_free_at_once(stage: Stage) -> None:
    lease = await stage.lease()
    await stage.store.retire(lease.owner)
    assert (await taken(stage, await stage.register("scheduler"))).epoch > lease.epoch


async def test_a_lease_from_a_clock_that_ran_ahead_is_not_believed(stage: Stage) -> None:
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    stage.clock.advance(HOUR)
    assert await stage.store.take(0, first, TTL) is not None
    stage.clock.set(START)
    assert await stage.store.take(0, second, TTL) is not None


async def test_a_lease_that_a_later_transaction_gave_first_is_respected(stage: Stage) -> None:
    """A transaction knows the moment when it began. Another one that began later may have committed before it reads."""
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    stage.clock.advance(SECOND)
    lease = await taken(stage, first)
    stage.clock.set(START)
    assert await stage.store.take(0, second, TTL) is None
    assert [shard.owner for shard in (await stage.store.standing(second, TTL)).shards] == [first]
    assert await stage.store.renew([lease], TTL, START) != []
