"""Slots: who takes one, who waits for it, and who is let in. Nothing is held for ever, whatever becomes of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from foliot.domain.breaker import Contact
from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.pauses import What
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed, Kept, Promise
from foliot.domain.state import Event, Reason, State
from foliot.errors import Conflict, UnknownName
from tests.contract.stage import Stage


def keyed(key: str = "account:7", **more: object) -> bytes | None:
    return choices_to_json(choices({"concurrency_key": key, **more}))


async def promised(stage: Stage, count: int = 1, **more: Any) -> list[Kept]:
    given = {"options": keyed()} | more
    return [await stage.promise(**given) for _ in range(count)]


async def states(stage: Stage, kept: list[Kept]) -> list[State]:
    return [(await stage.store.run(one.id)).state for one in kept]


async def test_runs_with_one_key_run_one_after_another(stage: Stage) -> None:
    kept = await promised(stage, 3)
    done = []
    for _ in range(3):
        await stage.fire()
        [run] = await stage.claim()
        done.append(run.id)
        await stage.finish(stage.succeeded(run))
        stage.clock.advance(SECOND)
    assert done == [one.id for one in kept]


async def test_a_run_that_waits_for_a_key_says_so(stage: Stage) -> None:
    _, second = await promised(stage, 2)
    fired = await stage.fire()
    assert (fired.handed_off, fired.held) == (1, 1)
    waiting = await stage.store.run(second.id)
    assert (waiting.state, waiting.reason) == (State.HELD, Reason.KEY)
    assert "account:7" in (waiting.detail or "")


async def test_a_key_may_have_a_limit_above_one(stage: Stage) -> None:
    await promised(stage, 3, options=keyed(key_limit=2))
    await stage.fire()
    assert len(await stage.claim()) == 2


async def test_keys_belong_to_tenants(stage: Stage) -> None:
    for tenant in ("acme", "bolt", None):
        await stage.promise(tenant=tenant, options=keyed())
    await stage.fire()
    assert len(await stage.claim()) == 3


End = Callable[[Stage, Claimed], Awaitable[object]]


async def _succeeds(stage: Stage, run: Claimed) -> None:
    await stage.finish(stage.succeeded(run))


async def _dies(stage: Stage, run: Claimed) -> None:
    await stage.finish(stage.died(run))


async def _is_cancelled(stage: Stage, run: Claimed) -> None:
    await stage.store.cancel(run.id, actor="ana", note="")
    await stage.finish(stage.stopped(run))


async def _is_lost_for_good(stage: Stage, run: Claimed) -> None:
    await stage.store.lose([stage.lost(run, Event.GAVE_UP)])


async def _is_doubted(stage: Stage, run: Claimed) -> None:
    await stage.finish(stage.puzzled(run))


@pytest.mark.parametrize("ends", [_succeeds, _dies, _is_cancelled, _is_lost_for_good, _is_doubted])
async def test_whatever_ends_a_run_lets_the_next_one_in(stage: Stage, ends: End) -> None:
    await promised(stage, 2)
    await stage.fire()
    [first] = await stage.claim()
    await ends(stage, first)
    await stage.fire()
    [second] = await stage.claim()
    assert second.number != first.number


async def test_a_run_that_was_handed_off_and_is_cancelled_lets_the_next_one_in(stage: Stage) -> None:
    first, second = await promised(stage, 2)
    await stage.fire()
    await stage.store.cancel(first.id, actor="ana", note="")
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


async def test_a_run_that_was_handed_off_and_is_moved_lets_the_next_one_in(stage: Stage) -> None:
    await stage.promise("first", options=keyed())
    await stage.fire()
    second = await stage.promise(options=keyed())
    await stage.fire()
    await stage.store.move("first", None, stage.now + HOUR)
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


async def test_what_a_run_holds_that_was_handed_off_is_counted_until_it_ends(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=3), actor="ana")
    await promised(stage, 2, options=keyed(key_limit=2))
    await stage.fire()
    runs = await stage.claim()
    assert {view.gate.name: view.used for view in await stage.store.limits()} == {"job:job": 2, "key:account:7": 2}
    await stage.finish(*map(stage.succeeded, runs))
    assert all(view.used == 0 for view in await stage.store.limits())


async def test_a_batch_lets_in_by_priority_and_no_more_than_fit(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=3), actor="ana")
    for priority in (0, 0, 0, 0, 1, 0, 2, 3):
        await stage.promise(priority=priority, after=0)
    await stage.fire()
    first = await stage.claim()
    await stage.finish(*map(stage.succeeded, first))
    await stage.fire()
    second = await stage.claim()
    assert len(first) == len(second) == 3
    waiting = await stage.store.runs(states=[State.HELD])
    assert len(waiting) == 2
    lowest = min(run.priority for run in second)
    assert all(view.priority <= lowest for view in waiting)


async def test_the_transaction_that_ends_runs_hands_the_next_ones_off(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
    kept = await promised(stage, 5, options=None)
    await stage.fire()
    await stage.finish(*map(stage.succeeded, await stage.claim()))
    assert [run.number for run in await stage.claim()] == [one.number for one in kept[2:4]]
    assert await stage.state(kept[4]) is State.HELD


async def test_runs_of_tenants_go_by_the_scheduler_which_ranks_them(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    _, second = await promised(stage, 2, options=None, tenant="acme")
    await stage.fire()
    await stage.finish(*map(stage.succeeded, await stage.claim()))
    assert await stage.claim() == []
    await stage.fire()
    assert [run.number for run in await stage.claim()] == [second.number]


async def test_a_run_that_is_let_in_at_one_slot_and_needs_another_is_not_handed_off(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    _, second = [await stage.promise(options=keyed(key)) for key in ("account:1", "account:2")]
    await stage.fire()
    [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    assert await stage.claim() == []
    await stage.fire()
    assert [run.number for run in await stage.claim()] == [second.number]


async def test_a_run_that_its_handler_completes_lets_the_next_one_in(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    _, second = await promised(stage, 2, options=None)
    await stage.fire()
    [run] = await stage.claim()
    transaction = stage.store.transaction()
    await transaction.begin()
    assert await transaction.finish(await stage.worker(), stage.succeeded(run))
    await transaction.commit()
    await stage.fire()
    assert [run.number for run in await stage.claim()] == [second.number]
    [limit] = await stage.store.limits()
    assert (limit.used, limit.waiting) == (1, 0)


async def test_a_run_that_is_let_in_obeys_a_limit_that_is_newer_than_its_wait(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await promised(stage, 2, options=None)
    await stage.fire()
    [run] = await stage.claim()
    await stage.store.set_limit(Gate("queue:default", most=0), actor="ana")
    await stage.finish(stage.succeeded(run))
    assert await stage.claim() == []
    await stage.fire()
    assert await stage.claim() == []


async def test_a_run_that_is_let_in_obeys_a_pause_that_is_newer_than_its_wait(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    _, second = await promised(stage, 2, options=None)
    await stage.fire()
    [run] = await stage.claim()
    await stage.store.put_pause("job:job", What.CLAIMS, until=None, actor="ana", note="")
    await stage.finish(stage.succeeded(run))
    assert await stage.state(second) is not State.READY
    assert await stage.claim() == []
    await stage.fire()
    assert await stage.claim() == []


async def test_a_run_that_is_let_in_waits_for_a_destination_that_has_failed_since(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
    await promised(stage, 4, options=choices_to_json(choices({"destination": "bank"})))
    await stage.fire()
    first, second = await stage.claim()
    await stage.finish(stage.died(first, contact=Contact("bank", False, 1, MINUTE, HOUR)))
    await stage.finish(stage.succeeded(second))
    assert await stage.claim() == []


async def test_a_run_that_was_let_in_a_while_ago_is_not_started_after_its_time(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await stage.promise()
    late = await stage.promise(useful_until=stage.now + SECOND)
    await stage.fire()
    [run] = await stage.claim()
    stage.clock.advance(MINUTE)
    await stage.finish(stage.succeeded(run))
    await stage.fire()
    assert await stage.claim() == []
    assert await stage.state(late) is State.SKIPPED


async def test_a_run_that_was_let_in_and_is_cancelled_before_it_fires_lets_the_next_one_in(stage: Stage) -> None:
    _, second, third = await promised(stage, 3)
    await stage.fire()
    [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    await stage.store.cancel(second.id, actor="ana", note="")
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [third.id]


async def test_one_that_waits_can_be_cancelled_without_being_let_in(stage: Stage) -> None:
    _, second, third = await promised(stage, 3)
    await stage.fire()
    await stage.store.cancel(second.id, actor="ana", note="")
    [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [third.id]


async def test_a_run_keeps_its_key_between_two_attempts(stage: Stage) -> None:
    _, second = await promised(stage, 2)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.failed(first, MINUTE))
    stage.clock.advance(30 * SECOND)
    await stage.fire()
    assert await stage.claim() == []
    stage.clock.advance(MINUTE)
    await stage.fire()
    [again] = await stage.claim()
    assert again.number == first.number
    await stage.finish(stage.succeeded(again))
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


async def test_a_run_that_was_fired_alone_keeps_its_key_between_two_attempts(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await promised(stage)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.failed(first, MINUTE))
    assert {view.gate.name: view.used for view in await stage.store.limits()} == {"job:job": 0, "key:account:7": 1}
    [second] = await promised(stage)
    await stage.fire()
    assert await stage.claim() == []
    stage.clock.advance(2 * MINUTE)
    await stage.fire()
    [again] = await stage.claim()
    assert again.number == first.number
    await stage.finish(stage.succeeded(again))
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


async def test_a_run_that_is_given_back_keeps_its_slots(stage: Stage) -> None:
    await promised(stage)
    await stage.fire()
    [first] = await stage.claim()
    await promised(stage)
    await stage.fire()
    await stage.store.give_back(await stage.worker(), [first])
    [again] = await stage.claim()
    assert again.number == first.number
    await stage.finish(stage.succeeded(again))
    await stage.fire()
    assert len(await stage.claim()) == 1


async def test_a_run_gives_a_slot_of_its_job_back_between_two_attempts(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    _, second = await promised(stage, 2, options=None)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.failed(first, HOUR))
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


@pytest.mark.parametrize(
    ("blocks_until", "goes"), [("ended", True), ("succeeded", False), ("verified", False)], ids=str
)
async def test_a_dead_run_keeps_its_key_where_it_blocks_until_it_succeeded(
    stage: Stage, blocks_until: str, goes: bool
) -> None:
    await promised(stage, 2, options=keyed(blocks_until=blocks_until))
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.died(first))
    await stage.fire()
    assert len(await stage.claim()) == goes
    if not goes:
        await stage.store.reconcile(first.id, settled=(), actor="ana", evidence="looked")
        await stage.fire()
        assert len(await stage.claim()) == 1


async def test_priority_goes_first_among_those_that_wait(stage: Stage) -> None:
    await promised(stage, 2)
    urgent = await stage.promise(options=keyed(), priority=5)
    stage.clock.advance(SECOND)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.succeeded(first))
    await stage.fire()
    [second] = await stage.claim()
    assert urgent.id in (first.id, second.id)


@pytest.mark.parametrize("name", ["job:job", "tenant:acme", "tenant:*", "queue:default", "to:bank"])
async def test_a_limit_holds_what_it_is_about_and_nothing_else(stage: Stage, name: str) -> None:
    await stage.store.set_limit(Gate(name, most=2), actor="ana")
    options = choices_to_json(choices({"destination": "bank"}))
    for _ in range(3):
        await stage.promise(tenant="acme", options=options)
    other = await stage.promise(job="other", queue="other")
    await stage.fire()
    claimed = await stage.claim(queues=["default", "other"], jobs=["job", "other"])
    assert len(claimed) == 3
    assert other.id in [run.id for run in claimed]
    [view] = [one for one in await stage.store.limits() if one.gate.name == name]
    assert name == "tenant:*" or (view.used, view.waiting) == (2, 1)


async def test_a_limit_that_is_raised_lets_in_whoever_waits(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await promised(stage, 4, options=None)
    await stage.fire()
    await stage.store.set_limit(Gate("job:job", most=3), actor="ana")
    await stage.fire()
    assert len(await stage.claim()) == 3


async def test_a_limit_that_is_dropped_lets_everybody_go(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await promised(stage, 4, options=None)
    await stage.fire()
    await stage.store.drop_limit("job:job", actor="ana", note="")
    await stage.fire()
    assert len(await stage.claim()) == 4
    with pytest.raises(UnknownName):
        await stage.store.drop_limit("job:job", actor="ana", note="")


async def test_a_limit_of_each_tenant_that_is_raised_lets_in_whoever_waits(stage: Stage) -> None:
    await stage.store.set_limit(Gate("tenant:*", most=1), actor="ana")
    for tenant in ("acme", "bolt"):
        await promised(stage, 3, options=None, tenant=tenant)
    await stage.fire()
    assert len(await stage.claim()) == 2
    await stage.store.set_limit(Gate("tenant:*", most=2), actor="ana")
    await stage.fire()
    assert len(await stage.claim()) == 2


async def test_what_an_operator_said_stays_when_code_says_otherwise(stage: Stage) -> None:
    await stage.store.declare_limits([Gate("job:job", most=5, source="code")])
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await stage.store.declare_limits([Gate("job:job", most=7, source="code")])
    [view] = await stage.store.limits()
    assert (view.gate.most, view.gate.source) == (1, "operator")


async def test_a_run_that_waits_for_two_slots_holds_back_nobody_at_either(stage: Stage) -> None:
    """It needs a slot of its job, which is there, and a key, which is not: the slot goes to another."""
    await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
    both, _ = await promised(stage, 2)
    plain = await stage.promise()
    await stage.fire()
    assert {run.id for run in await stage.claim()} == {both.id, plain.id}


async def test_a_run_is_let_in_where_it_waits_and_then_waits_for_the_other(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    first, second = await promised(stage, 2)
    third = await stage.promise()
    done = []
    for _ in range(3):
        await stage.fire()
        [run] = await stage.claim()
        done.append(run.id)
        await stage.finish(stage.succeeded(run))
        stage.clock.advance(SECOND)
    assert sorted(done) == sorted([first.id, second.id, third.id])
    assert await stage.claim() == []


async def test_a_rate_gives_each_run_its_time(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=10 * SECOND), actor="ana")
    kept = await promised(stage, 4, options=None)
    started = []
    for second in range(45):
        await stage.fire()
        for run in await stage.claim():
            started.append(second)
            await stage.finish(stage.succeeded(run))
        stage.clock.advance(SECOND)
    assert started == [0, 10, 20, 30]
    assert await states(stage, kept) == [State.SUCCEEDED] * 4


async def test_starts_by_a_fine_rate_come_in_batches(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=SECOND // 1_000), actor="ana")
    await stage.store.promise([Promise("job", b"{}", stage.now)] * 560)
    assert (await stage.fire()).handed_off == 5
    stage.clock.advance(SECOND // 10)
    assert 96 <= (await stage.fire()).handed_off <= 100  # those that had their times, and 55 more runs get theirs
    due = {view.fire_at for view in await stage.store.runs(limit=560) if view.fire_at > stage.now}
    assert len(due) <= 460 // 4 + 2
    assert max(due) < stage.now + 460 * SECOND // 1_000


async def test_a_rate_may_allow_some_at_once(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=10 * SECOND, burst=3), actor="ana")
    stage.clock.advance(HOUR)
    await promised(stage, 6, options=None)
    started = []
    for second in range(45):
        await stage.fire()
        started += [second for _ in await stage.claim()]
        stage.clock.advance(SECOND)
    assert started == [0, 0, 0, 10, 20, 30]


async def test_what_waits_for_a_rate_is_held_and_says_until_when(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=HOUR), actor="ana")
    _, second, third = await promised(stage, 3, options=None)
    await stage.fire()
    next_one, later = await stage.store.run(second.id), await stage.store.run(third.id)
    assert (next_one.state, next_one.reason) == (State.HELD, Reason.RATE)
    assert "2026-04-03T03:00:00Z" in (next_one.detail or "")
    assert (later.state, later.reason) == (State.HELD, Reason.RATE)


async def test_a_rate_that_is_raised_is_felt_at_once(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=HOUR), actor="ana")
    await promised(stage, 5, options=None)
    await stage.fire()
    await stage.claim()
    await stage.store.set_limit(Gate("job:job", every=SECOND), actor="ana")
    taken = 0
    for _ in range(10):
        stage.clock.advance(SECOND)
        await stage.fire()
        taken += len(await stage.claim())
    assert taken == 4


async def test_one_that_has_its_time_by_a_rate_and_is_cancelled_gives_it_to_the_next(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=10 * SECOND), actor="ana")
    _, second, third = await promised(stage, 3, options=None)
    await stage.fire()
    await stage.claim()
    await stage.store.cancel(second.id, actor="ana", note="")
    stage.clock.advance(MINUTE)
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [third.id]


async def test_an_operator_releases_one_run_against_its_limit(stage: Stage) -> None:
    _, second, third = await promised(stage, 3)
    await stage.fire()
    kept = await stage.store.release_run(third.id, actor="ana", note="the auditor waits")
    assert kept.outcome == "released"
    await stage.fire()
    claimed = {run.id: run for run in await stage.claim()}
    assert third.id in claimed
    assert second.id not in claimed
    assert [row.action for row in await stage.store.audit_of(third.id)] == ["release"]
    for run in claimed.values():
        await stage.finish(stage.succeeded(run))
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]
    with pytest.raises(Conflict):
        await stage.store.release_run(second.id, actor="ana", note="")


async def test_a_promise_that_waits_for_a_key_can_be_moved_and_lets_nobody_down(stage: Stage) -> None:
    first, _ = await promised(stage, 2)
    moved = await stage.promise("reminder", options=keyed())
    await stage.fire()
    await stage.store.move("reminder", None, stage.now + HOUR)
    assert (await stage.store.run(moved.id)).state is State.SCHEDULED
    await stage.store.cancel(first.id, actor="ana", note="")
    await stage.fire()
    assert len(await stage.claim()) == 1


async def test_a_check_takes_no_slot_of_its_own_and_its_run_keeps_its_key(stage: Stage) -> None:
    await promised(stage, 2)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.succeeded(first)._replace(event=Event.CHECK_DUE))
    [check] = await stage.claim()
    assert check.number == first.number
    await stage.fire()
    assert await stage.claim() == []
    await stage.finish(stage.succeeded(check)._replace(event=Event.CHECK_PASSED))
    await stage.fire()
    assert len(await stage.claim()) == 1


# ------------------------------------------------------------------------------------------------ nobody waits for ever


async def test_one_that_begins_to_wait_while_another_uses_its_time_up_gets_one_of_its_own(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", every=SECOND), actor="ana")
    kept = [await stage.promise(after=after) for after in (0, 0, SECOND)]
    for _ in range(10):
        await stage.fire()
        await stage.finish(*[stage.succeeded(run) for run in await stage.claim()])
        stage.clock.advance(SECOND)
    assert await states(stage, kept) == [State.SUCCEEDED] * 3


async def test_one_that_begins_to_wait_while_another_gives_its_slot_back_is_let_in(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await stage.store.set_limit(Gate("tenant:acme", most=1), actor="ana")
    first = await stage.running()
    await stage.promise(job="other", tenant="acme")
    await stage.fire()
    await stage.claim(jobs=["other"])
    torn = await stage.promise(tenant="acme")
    await stage.fire()
    stage.clock.advance(SECOND)
    second = await stage.promise()
    await stage.finish(stage.succeeded(first))
    await stage.fire()
    await stage.store.cancel(torn.id, actor="ana", note="")
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [second.id]


async def test_what_was_released_and_is_moved_obeys_its_limits_at_its_new_time(stage: Stage) -> None:
    await stage.running(options=keyed())
    moved = await stage.promise("reminder", options=keyed())
    await stage.fire()
    await stage.store.release_run(moved.id, actor="ana", note="")
    await stage.store.move("reminder", None, stage.now + HOUR)
    stage.clock.advance(HOUR)
    await stage.fire()
    assert (await stage.store.run(moved.id)).state is State.HELD


async def test_a_retry_that_waits_for_a_slot_and_is_let_go_is_a_retry_still(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    first, _ = await promised(stage, 2, options=None)
    await stage.fire()
    [run] = await stage.claim()
    await stage.finish(stage.failed(run, SECOND))
    await stage.fire()
    assert len(await stage.claim()) == 1
    stage.clock.advance(SECOND)
    await stage.fire()
    assert (await stage.store.run(first.id)).state is State.HELD
    kept = await stage.store.release_run(first.id, actor="ana", note="")
    assert (kept.state, (await stage.store.run(first.id)).state) == (State.RETRYING, State.RETRYING)
    await stage.fire()
    assert [(one.id, one.attempt) for one in await stage.claim()] == [(first.id, 2)]


async def test_two_runs_that_were_let_in_at_one_slot_each_do_not_swap_them_for_ever(stage: Stage) -> None:
    queues = ["default", "mail"]
    for name in ("queue:default", "to:bank"):
        await stage.store.set_limit(Gate(name, most=1), actor="ana")
    bank = choices_to_json(choices({"destination": "bank"}))
    busy = [await stage.promise(options=bank, queue="mail")]
    await stage.fire()
    both = [await stage.promise(options=bank)]  # it waits for the destination
    await stage.fire()
    busy.append(await stage.promise())
    await stage.fire()
    both.append(await stage.promise(options=bank))  # it waits for the queue
    await stage.fire()
    running = await stage.store.claim(await stage.worker(), queues, ["job"], 10)
    assert {run.number for run in running} == {one.number for one in busy}
    await stage.finish(*map(stage.succeeded, running))
    for _ in both:
        await stage.fire()
        await stage.fire()
        [run] = await stage.store.claim(await stage.worker(), queues, ["job"], 10)
        await stage.finish(stage.succeeded(run))
    assert [await stage.state(one) for one in both] == [State.SUCCEEDED] * 2
