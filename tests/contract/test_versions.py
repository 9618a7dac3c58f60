"""A chunk names runs as they were handed off: a claim takes no run that was changed since."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Kept, OnConflict
from foliot.domain.state import State
from tests.contract.stage import Stage, deciding, fires


def wishes(**given: Any) -> bytes:
    stored = choices_to_json(choices(given))
    assert stored is not None
    return stored


KEYED = wishes(concurrency_key="account:7")


async def replaced(stage: Stage, key: str, **more: Any) -> Kept:
    return await stage.promise(key, on_conflict=OnConflict.REPLACE, **more)


async def one_at_a_time(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")


async def claimed(stage: Stage, **more: Any) -> list[str]:
    return [run.id for run in await stage.claim(**more)]


@pytest.mark.parametrize("by", ["move", "replace"])
@pytest.mark.parametrize("later", [0, MINUTE])
async def test_a_run_that_was_changed_after_its_hand_off_does_not_exceed_a_limit(
    stage: Stage, by: str, later: int
) -> None:
    await one_at_a_time(stage)
    kept = await stage.promise("a")
    await stage.fire()
    if by == "move":
        await stage.store.move("a", None, stage.now + later)
    else:
        await replaced(stage, "a", after=later)
    other = await stage.promise("b")
    await stage.fire()
    stage.clock.advance(later)
    running = await stage.claim()
    assert len(running) == 1
    await stage.fire()
    assert await stage.claim() == []
    await stage.finish(*map(stage.succeeded, running))
    await stage.fire()
    running += await stage.claim()
    assert {run.id for run in running} == {kept.id, other.id}
    await stage.finish(stage.succeeded(running[-1]))
    assert [(view.used, view.waiting) for view in await stage.store.limits()] == [(0, 0)]


async def test_a_moved_run_that_is_due_again_is_claimed_once_it_was_fired_again(stage: Stage) -> None:
    kept = await stage.promise("a")
    await stage.fire()
    await stage.store.move("a", None, stage.now)
    assert await claimed(stage) == []
    await stage.fire()
    assert await claimed(stage) == [kept.id]


async def test_a_replaced_run_waits_for_its_new_key(stage: Stage) -> None:
    busy = await stage.running("busy", options=KEYED)
    kept = await stage.promise("a")
    await stage.fire()
    await replaced(stage, "a", options=KEYED)
    assert await claimed(stage) == []
    await stage.fire()
    assert await claimed(stage) == []
    assert await stage.state(kept) is State.HELD
    await stage.finish(stage.succeeded(busy))
    await stage.fire()
    assert await claimed(stage) == [kept.id]


async def test_a_run_that_is_replaced_at_the_same_time_lets_its_old_key_go(stage: Stage) -> None:
    await stage.promise("a", options=KEYED)
    await stage.fire()
    await replaced(stage, "a")
    other = await stage.promise("b", options=KEYED)
    await stage.fire()
    assert other.id in await claimed(stage)


async def test_a_run_that_is_replaced_by_one_with_labels_waits_for_a_worker_that_has_them(stage: Stage) -> None:
    kept = await stage.promise("a")
    await stage.fire()
    await replaced(stage, "a", options=wishes(labels=["gpu"]))
    await stage.fire()
    assert await claimed(stage) == []
    worker = await stage.register(labels=["gpu"])
    found = await stage.store.claim(worker, ["default"], ["job"], 10, labels=["gpu"])
    assert [run.id for run in found] == [kept.id]


async def test_a_scheduler_that_takes_over_fires_a_run_that_was_changed_after_its_hand_off(stage: Stage) -> None:
    kept = await stage.promise("a")
    await stage.fire()
    await replaced(stage, "a", queue="slow")
    owner = await stage.register("scheduler")
    stage.clock.advance(HOUR)
    lease = await stage.lease(owner)
    assert kept.number in [number for _, number in await stage.loaded(lease)]


async def test_a_chunk_from_before_an_attempt_claims_no_retry(stage: Stage) -> None:
    """Two chunks name a run where a shard was taken over in the middle of its hand-off."""
    await stage.promise("a", options=KEYED)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    for _ in range(2):
        await stage.store.fire([lease], due, lease.cursor, deciding(fires))
    [run] = await stage.claim(1)
    await stage.finish(stage.failed(run, retry_in=MINUTE))
    stage.clock.advance(MINUTE)
    assert await claimed(stage) == []
    await stage.fire()
    assert await claimed(stage) == ["a#1"]


async def test_a_run_that_was_given_back_is_claimed_again_unless_it_was_changed(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.promise("a")
    await stage.promise("b")
    await stage.fire()
    await stage.store.give_back(worker, await stage.claim())
    await replaced(stage, "b", after=MINUTE)
    stage.clock.advance(MINUTE)
    assert await claimed(stage) == ["a#1"]
    await stage.fire()
    assert await claimed(stage) == ["b#1"]
