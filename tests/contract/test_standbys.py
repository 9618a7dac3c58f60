"""Claims in the transaction that records endings: runs that get the freed slots, and standbys, which have no slot yet.

A store may claim nothing there. Then the runs are handed off as usual, and these tests claim them as usual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.pauses import What
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed
from foliot.domain.state import Event, State
from foliot.domain.store import Offer, PassedSlot, StandbyRequest
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
    passed: Sequence[PassedSlot] = (),
    job: str = "job",
    queues: Sequence[str] = ("default",),
    slot: str = SLOT,
) -> list[Claimed]:
    requests = [StandbyRequest(slot, job, standbys)] if standbys else []
    offer = Offer(queues, [job], limit, None, passed, requests)
    endings = [stage.succeeded(run) for run in ended]
    fenced, claimed = await stage.store.finish_and_claim(await stage.worker(), endings, offer)
    assert fenced == []
    return claimed


async def used(stage: Stage) -> tuple[int, int]:
    """How many slots are taken, and how many runs wait for one."""
    [view] = [view for view in await stage.store.limits() if view.gate.name == SLOT]
    return view.used, view.waiting


def pass_to(holder: Claimed, heir: Claimed) -> PassedSlot:
    return PassedSlot(holder.number, holder.token, heir.number, heir.token)


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


async def test_the_run_that_gets_a_freed_slot_is_claimed_with_the_ending_that_frees_it(stage: Stage) -> None:
    [first] = await limited(stage, 1, 3)
    assert first.slot == SLOT
    [second] = await exchange(stage, first, limit=1)
    assert (second.slot, second.standby, second.attempt) == (SLOT, False, 1)
    assert await used(stage) == (1, 1)
    assert await stage.state(second) is State.RUNNING


async def test_of_the_runs_that_get_slots_no_more_are_claimed_than_the_worker_offers(stage: Stage) -> None:
    first, second, third = await limited(stage, 3, 6)
    assert len(await exchange(stage, first, second, third, limit=2)) == 2
    assert len(await stage.claim()) == 1


async def test_standbys_are_the_first_waiters_and_have_no_slot(stage: Stage) -> None:
    await limited(stage, 1, 1)
    for priority in (1, 5, 3, 2):
        await stage.promise(priority=priority)
    await stage.fire()
    standbys = await exchange(stage, standbys=2)
    assert [(run.priority, run.slot, run.standby) for run in standbys] == [(5, SLOT, True), (3, SLOT, True)]
    assert await used(stage) == (1, 2)


@pytest.mark.parametrize(
    "more",
    [
        {"tenant": "acme"},
        {"queue": "reports"},
        {"options": choices_to_json(choices({"labels": ["gpu"]}))},
        {"options": choices_to_json(choices({"concurrency_key": "account:7"}))},
        {"options": choices_to_json(choices({"on_lost": "ask"}))},
    ],
    ids=["tenant", "queue", "labels", "another slot", "a person is asked if it is lost"],
)
async def test_no_run_becomes_a_standby_before_one_that_cannot(stage: Stage, more: dict[str, Any]) -> None:
    await limited(stage, 1, 1)
    for place in ({"priority": 3}, {"priority": 2, **more}, {"priority": 1}):
        await stage.promise(**place)
    await stage.fire()
    assert [run.priority for run in await exchange(stage, standbys=5)] == [3]


async def test_there_are_no_standbys_while_anything_is_paused(stage: Stage) -> None:
    await limited(stage, 1, 3)
    await stage.store.put_pause("job:else", What.CLAIMS, until=None, actor="ana", note="")
    assert await exchange(stage, standbys=5) == []


async def test_there_are_no_standbys_while_more_slots_are_taken_than_a_lowered_limit_allows(stage: Stage) -> None:
    first, second = await limited(stage, 2, 5)
    await stage.store.set_limit(Gate(SLOT, most=1), actor="ana")
    assert await exchange(stage, standbys=5) == []
    assert await exchange(stage, first, limit=1) == []
    assert await used(stage) == (1, 3)
    assert len(await exchange(stage, second, limit=1)) == 1


async def test_a_standby_that_began_has_the_slot_of_the_run_that_ended(stage: Stage) -> None:
    [holder] = await limited(stage, 1, 4)
    [heir] = await exchange(stage, standbys=1)
    assert await exchange(stage, holder, passed=[pass_to(holder, heir)], limit=1) == []
    assert (await used(stage))[0] == 1
    assert len(await exchange(stage, heir, limit=1)) == 1
    assert (await used(stage))[0] == 1


async def test_a_standby_is_not_due_after_it_began(stage: Stage) -> None:
    """It begins before the store hears that it has the slot: a due time after that would be an early start."""
    [holder] = await limited(stage, 1, 2)
    [heir] = await exchange(stage, standbys=1)
    ending = stage.succeeded(heir)
    stage.clock.advance(SECOND)
    assert await exchange(stage, holder, passed=[pass_to(holder, heir)]) == []
    assert await stage.finish(ending) == []
    assert (await stage.store.backlog()).early == 0


async def test_runs_that_began_as_standbys_were_due_when_they_were_claimed(stage: Stage) -> None:
    """As runs that are let in are due then. The second began and ended before the store heard of it."""
    [first] = await limited(stage, 1, 3)
    stage.clock.advance(MINUTE)
    second, third = await exchange(stage, standbys=2)
    assert await exchange(stage, first, second, passed=[pass_to(first, third)]) == []
    assert await exchange(stage, third) == []
    assert [(await stage.store.run(one.id)).late_by for one in (second, third)] == [0, 0]


async def test_a_slot_passes_through_many_runs_and_is_freed_once(stage: Stage) -> None:
    [first] = await limited(stage, 1, 5)
    second, third, fourth = await exchange(stage, standbys=3)
    # The second began and ended in this process before the store heard of it.
    assert await exchange(stage, first, second, passed=[pass_to(first, third)]) == []
    assert await used(stage) == (1, 1)
    assert await exchange(stage, third, passed=[pass_to(third, fourth)]) == []
    [last] = await exchange(stage, fourth, limit=1)
    assert await exchange(stage, last) == []
    assert await used(stage) == (0, 0)
    assert await stage.store.runs(states=[State.RUNNING], limit=10) == []


async def test_a_slot_that_was_passed_on_already_is_passed_on_from_there(stage: Stage) -> None:
    """The worker does not know whether an earlier call was done, and names both runs."""
    [first] = await limited(stage, 1, 4)
    second, third = await exchange(stage, standbys=2)
    assert await exchange(stage, first, passed=[pass_to(first, second)]) == []
    await exchange(stage, second, passed=[pass_to(first, third), pass_to(second, third)])
    assert (await used(stage))[0] == 1
    assert len(await exchange(stage, third, limit=1)) == 1


async def test_a_standby_that_fails_keeps_its_key_for_its_next_attempt(stage: Stage) -> None:
    key = choices_to_json(choices({"concurrency_key": "account"}))
    for _ in range(3):
        await stage.promise(options=key)
    await stage.fire()
    [holder] = await stage.claim()
    [heir] = await exchange(stage, standbys=1, slot="key:account")
    offer = Offer(["default"], ["job"], 1, passed=[pass_to(holder, heir)])
    await stage.store.finish_and_claim(await stage.worker(), [stage.succeeded(holder), stage.failed(heir)], offer)
    await stage.fire()
    assert await stage.claim() == []
    stage.clock.advance(MINUTE)
    await stage.fire()
    assert [run.number for run in await stage.claim()] == [heir.number]


async def test_a_worker_cannot_pass_on_a_slot_of_a_run_that_it_lost(stage: Stage) -> None:
    [holder] = await limited(stage, 1, 3)
    [heir] = await exchange(stage, standbys=1)
    worker = await stage.worker()
    await stage.store.lose([stage.lost(run, retry_at=stage.now) for run in (holder, heir)])
    await stage.fire()
    other = await stage.register()
    [running] = await stage.claim(worker=other)
    await stage.store.finish_and_claim(worker, [], Offer((), (), 0, passed=[pass_to(holder, heir)]))
    assert (await used(stage))[0] == 1
    assert await stage.finish(stage.succeeded(running), worker=other) == []


async def test_a_worker_cannot_pass_on_a_slot_of_another_worker(stage: Stage) -> None:
    first, second = await limited(stage, 2, 5)
    await exchange(stage, standbys=1)
    other = await stage.register()
    offer = Offer(["default"], ["job"], 0, None, (), [StandbyRequest(SLOT, "job", 1)])
    _, [heir] = await stage.store.finish_and_claim(other, [], offer)
    # It has no run that has a slot: what it says is not believed.
    await stage.store.finish_and_claim(other, [], Offer((), (), 0, passed=[pass_to(second, heir)]))
    await exchange(stage, first)
    assert await stage.finish(stage.succeeded(heir), worker=other) == []
    assert await used(stage) == (2, 0)  # the second run, and the last one, which was let in


async def test_a_standby_that_does_not_begin_returns_to_its_place(stage: Stage) -> None:
    [first] = await limited(stage, 1, 4)
    standbys = await exchange(stage, standbys=2)
    assert await stage.store.give_back(await stage.worker(), standbys) == 2
    await stage.fire()
    assert await stage.state(standbys[0]) is State.HELD
    assert await used(stage) == (1, 3)
    [again] = await exchange(stage, first, limit=1)
    assert (again.number, again.attempt) == (standbys[0].number, 1)


async def test_a_standby_that_returns_goes_where_a_slot_is_free(stage: Stage) -> None:
    [first] = await limited(stage, 1, 2)
    [heir] = await exchange(stage, standbys=1)
    await exchange(stage, first)
    assert await used(stage) == (0, 0)
    await stage.store.give_back(await stage.worker(), [heir])
    await stage.fire()
    [again] = await stage.claim()
    assert (again.number, again.standby, await used(stage)) == (heir.number, False, (1, 0))


async def test_a_standby_whose_cancellation_was_requested_ends_when_it_returns(stage: Stage) -> None:
    await limited(stage, 1, 2)
    [heir] = await exchange(stage, standbys=1)
    await stage.store.cancel(heir.id, actor="ana", note="")
    await stage.store.give_back(await stage.worker(), [heir])
    assert await stage.state(heir) is State.CANCELLED
    assert await used(stage) == (1, 0)


async def test_standbys_of_a_worker_that_died_are_lost_and_take_a_slot_again(stage: Stage) -> None:
    [holder] = await limited(stage, 1, 2)
    [heir] = await exchange(stage, standbys=1)
    await stage.store.lose([stage.lost(holder, Event.GAVE_UP), stage.lost(heir, retry_at=stage.now)])
    await stage.fire()
    [again] = await stage.claim()
    assert (again.number, again.attempt, await used(stage)) == (heir.number, 2, (1, 0))
