"""Claims in the transaction that records endings: runs that get the freed slots, and standbys, which have no slot yet.

A store may claim nothing there. Then the runs are handed off as usual, and these tests claim them as usual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.run import Claimed
from foliot.domain.store import Offer, StandbyRequest
from tests.contract.stage import Stage

SLOT = "job:job"


async def limited(stage: Stage, most: int, promised: int, **more: Any) -> list[Claimed]:
    """Runs of a limited job: answers those that are running. The others wait."""
    await stage.store.set_limit(Gate(SLOT, most=most), actor="ana")
    for _ in range(promised):
        await stage.promise(**more)
    await stage.fire()
    claimed = await stage.claim()
    assert len(claimed) == min(most, promised)
    return claimed


async def exchange(
    stage: Stage,
    *ended: Claimed,
    limit: int = 0,
    standbys: int = 0,
    job: str = "job",
    queues: Sequence[str] = ("default",),
) -> list[Claimed]:
    requests = [StandbyRequest(SLOT, job, standbys)] if standbys else []
    offer = Offer(queues, [job], limit, None, (), requests)
    endings = [stage.succeeded(run) for run in ended]
    fenced, claimed = await stage.store.finish_and_claim(await stage.worker(), endings, offer)
    assert fenced == []
    return claimed


async def used(stage: Stage) -> tuple[int, int]:
    """How many slots are taken, and how many runs wait for one."""
    [view] = [view for view in await stage.store.limits() if view.gate.name == SLOT]
    return view.used, view.waiting


async def test_a_slot_that_an_ending_frees_is_claimed_once_then_or_later(stage: Stage) -> None:
    first, second = await limited(stage, 2, 5)
    claimed = await exchange(stage, first, second, limit=2)
    await stage.fire()
    claimed += await stage.claim()
    assert len({run.number for run in claimed}) == len(claimed) == 2
    assert await used(stage) == (2, 1)


async def test_runs_are_let_in_by_their_order_also_by_a_claim_at_the_end(stage: Stage) -> None:
    [running] = await limited(stage, 1, 1)
    low = await stage.promise()
    stage.clock.advance(SECOND)
    high = await stage.promise(priority=5)
    await stage.fire()
    done: list[str] = []
    for _ in range(2):
        claimed = await exchange(stage, running, limit=1)
        await stage.fire()
        [running] = claimed + await stage.claim()
        done.append(running.id)
    assert done == [high.id, low.id]


async def test_without_an_offer_all_workers_may_claim(stage: Stage) -> None:
    [first] = await limited(stage, 1, 2)
    assert await exchange(stage, first) == []
    await stage.fire()
    other = await stage.register()
    [second] = await stage.claim(worker=other)
    assert second.number != first.number


@pytest.mark.parametrize("offer", [{"job": "another"}, {"queues": ["reports"]}])
async def test_a_run_that_the_worker_did_not_offer_to_take_goes_to_the_others(
    stage: Stage, offer: dict[str, Any]
) -> None:
    [first] = await limited(stage, 1, 3)
    assert await exchange(stage, first, limit=1, standbys=1, **offer) == []
    await stage.fire()
    assert len(await stage.claim()) == 1


async def test_a_worker_that_was_declared_dead_claims_nothing_when_it_reports_an_ending(stage: Stage) -> None:
    [first] = await limited(stage, 1, 2)
    dead = await stage.worker()
    await stage.store.lose([stage.lost(first, retry_at=stage.now + MINUTE)])
    offer = Offer(["default"], ["job"], 1, None, (), [StandbyRequest(SLOT, "job", 5)])
    fenced, claimed = await stage.store.finish_and_claim(dead, [stage.succeeded(first)], offer)
    assert ([one.number for one in fenced], claimed) == ([first.number], [])
