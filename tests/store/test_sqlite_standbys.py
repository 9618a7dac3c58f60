"""Slots that pass on within a worker, on SQLite: there a slot is in the row of its run."""

from __future__ import annotations

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND
from foliot.store.sqlite import SqliteStore
from tests.contract.stage import Stage
from tests.contract.test_standbys import exchange, limited, pass_to, used


async def test_a_slot_that_passes_before_its_run_ends_is_not_used_twice() -> None:
    store = SqliteStore(":memory:", clock := ManualClock(1_800_000_000 * SECOND))
    await store.open()
    stage = Stage(store, clock)
    [holder] = await limited(stage, 1, 4)
    heir, other = await exchange(stage, standbys=2)
    assert await exchange(stage, passed=[pass_to(holder, heir)], limit=1) == []
    assert await exchange(stage, passed=[pass_to(holder, other)], limit=1) == []
    assert await used(stage) == (1, 1)
    assert await exchange(stage, holder, limit=1) == []
    assert len(await exchange(stage, heir, limit=1)) == 1
    await store.close()


async def test_a_claim_names_slots_only_while_runs_wait_for_any() -> None:
    """A worker counts the slots of its runs, which costs time: without waiters there is nobody to pass one on to."""
    store = SqliteStore(":memory:", clock := ManualClock(1_800_000_000 * SECOND))
    await store.open()
    stage = Stage(store, clock)
    [first, second] = await limited(stage, 2, 2)
    assert [first.slot, second.slot] == [None, None]
    await stage.promise()
    await stage.promise()
    await stage.fire()
    [third] = await exchange(stage, first, limit=1)
    assert third.slot == "job:job"
    await store.close()
