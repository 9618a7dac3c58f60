"""move, cancel, retry: changing a promise before it is kept, and a run after it was parked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.run import Claimed, Ending
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, UnknownName
from tests.contract.stage import START, Stage, declared, fires_hourly, holds

# ----------------------------------------------------------------------------------------------------------------- move


async def test_move_changes_when_a_promise_is_due(stage: Stage) -> None:
    await stage.promise("class:7", after=HOUR)
    moved = await stage.store.move("class:7", None, START + DAY)
    assert (moved.id, moved.outcome, moved.state, moved.fire_at) == (
        "class:7#1",
        "moved",
        State.SCHEDULED,
        START + DAY,
    )
    run = await stage.run("class:7#1")
    assert (run.fire_at, run.nominal) == (START + DAY, START + DAY)


async def test_a_moved_promise_fires_at_its_new_time_and_not_at_the_old(stage: Stage) -> None:
    await stage.promise("class:7", after=HOUR)
    await stage.store.move("class:7", None, START + 2 * HOUR)
    stage.clock.advance(HOUR)
    assert (await stage.fire()).handed_off == 0
    stage.clock.advance(HOUR)
    assert (await stage.fire()).handed_off == 1


async def test_move_names_one_tenant(stage: Stage) -> None:
    await stage.promise("class:7", after=HOUR)
    await stage.promise("class:7", after=HOUR, tenant="acme")
    await stage.store.move("class:7", "acme", START + DAY)
    assert (await stage.run("class:7#1")).fire_at == START + HOUR
    assert (await stage.run("class:7[acme]#1")).fire_at == START + DAY


async def test_move_takes_back_one_that_was_handed_off(stage: Stage) -> None:
    await stage.promise("class:7")
    await stage.fire()
    await stage.store.move("class:7", None, START + HOUR)
    assert await stage.claim() == []
    assert await stage.state("class:7#1") is State.SCHEDULED


async def test_a_move_takes_the_end_of_usefulness_along(stage: Stage) -> None:
    for key in ("in time", "too late"):
        await stage.promise(key, after=HOUR, useful_until=START + HOUR + MINUTE)
    await stage.store.move("in time", None, START + DAY)
    await stage.store.move("too late", None, START + DAY - 1)
    stage.clock.set(START + DAY + MINUTE)
    fired = await stage.fire()
    assert (fired.handed_off, fired.skipped) == (1, 1)
    assert [run.name for run in await stage.claim()] == ["in time#1"]


async def test_move_refuses_what_an_attempt_owns(stage: Stage) -> None:
    await stage.running("class:7")
    with pytest.raises(Conflict, match=r"class:7#1 is running"):
        await stage.store.move("class:7", None, START + DAY)


async def test_move_refuses_what_has_ended(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    with pytest.raises(Conflict, match=r"class:7#1 is succeeded"):
        await stage.store.move("class:7", None, START + DAY)


async def test_move_knows_only_keys_that_exist(stage: Stage) -> None:
    await stage.promise("class:7", tenant="acme")
    with pytest.raises(UnknownName, match="class:7"):
        await stage.store.move("class:7", None, START + DAY)


# --------------------------------------------------------------------------------------------------------------- cancel


async def test_cancel_ends_a_run_that_waits(stage: Stage) -> None:
    kept = await stage.promise(after=HOUR)
    cancelled = await stage.store.cancel(kept.id, actor="ada", note="not needed")
    assert (cancelled.id, cancelled.outcome, cancelled.state) == (kept.id, "cancelled", State.CANCELLED)
    run = await stage.run(kept)
    assert (run.state, run.reason, run.detail, run.finished_at) == (
        State.CANCELLED,
        Reason.OPERATOR,
        "not needed",
        START,
    )
    stage.clock.advance(HOUR)
    assert (await stage.fire()).handed_off == 0


async def test_cancel_ends_a_run_that_was_handed_off(stage: Stage) -> None:
    kept = await stage.promise()
    await stage.fire()
    await stage.store.cancel(kept.id, actor="ada", note="")
    assert await stage.state(kept) is State.CANCELLED
    assert await stage.claim() == []


async def test_cancel_ends_a_run_that_is_held(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + DAY))
    kept = await stage.store.trigger("hourly", actor="ada", note="")
    await stage.fire(holds)
    assert await stage.state(kept) is State.HELD
    assert (await stage.store.cancel(kept.id, actor="ada", note="")).outcome == "cancelled"
    assert await stage.state(kept) is State.CANCELLED


async def test_cancel_ends_a_run_that_waits_to_try_again(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run))
    await stage.store.cancel(run.id, actor="ada", note="")
    view = await stage.run(run)
    assert view.state is State.CANCELLED
    assert [attempt.outcome for attempt in view.attempts] == ["failed"]


async def test_cancel_asks_a_running_one_to_stop_and_its_worker_hears_it(stage: Stage) -> None:
    run = await stage.running()
    asked = await stage.store.cancel(run.id, actor="ada", note="stop")
    assert (asked.outcome, asked.state) == ("asked", State.RUNNING)
    view = await stage.run(run)
    assert (view.state, view.cancel_requested) == (State.RUNNING, True)
    assert (await stage.store.beat(await stage.worker(), [])).cancel == [run.number]
    assert (await stage.store.beat(await stage.register(), [])).cancel == []


async def test_asking_twice_to_stop_is_asking_once(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.cancel(run.id, actor="ada", note="")
    await stage.store.cancel(run.id, actor="bob", note="")
    assert (await stage.store.beat(await stage.worker(), [])).cancel == [run.number]


async def test_cancel_refuses_what_has_ended(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.succeeded(run))
    with pytest.raises(Conflict, match=r"succeeded already"):
        await stage.store.cancel(run.id, actor="ada", note="")
    assert await stage.state(run) is State.SUCCEEDED


async def test_cancelling_twice_is_refused(stage: Stage) -> None:
    kept = await stage.promise("class:7")
    await stage.store.cancel(kept.id, actor="ada", note="")
    with pytest.raises(Conflict, match=r"cancelled already"):
        await stage.store.cancel(kept.id, actor="ada", note="")


@pytest.mark.parametrize("identifier", ["nobody#1", "0E5C3N8QZJ3RT", "", "hourly@2026-04-03T02:00:00Z"])
async def test_cancel_and_retry_know_only_runs_that_exist(stage: Stage, identifier: str) -> None:
    with pytest.raises(UnknownName):
        await stage.store.cancel(identifier, actor="ada", note="")
    with pytest.raises(UnknownName):
        await stage.store.retry(identifier, actor="ada", note="", override=False)


async def test_cancel_by_key_ends_the_latest_generation(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    await stage.promise("class:7", after=HOUR, on_conflict="renew")
    cancelled = await stage.store.cancel_promise("class:7", None, actor="app", note="class is off")
    assert (cancelled.id, cancelled.outcome) == ("class:7#2", "cancelled")
    run = await stage.run("class:7#2")
    assert (run.state, run.reason, run.detail) == (State.CANCELLED, Reason.REQUESTED, "class is off")


async def test_cancel_by_key_asks_a_running_one(stage: Stage) -> None:
    run = await stage.running("class:7")
    asked = await stage.store.cancel_promise("class:7", None, actor="app", note="")
    assert (asked.outcome, asked.state) == ("asked", State.RUNNING)
    assert (await stage.store.beat(await stage.worker(), [])).cancel == [run.number]


async def test_cancel_by_key_refuses_what_has_ended_and_what_is_unknown(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    with pytest.raises(Conflict):
        await stage.store.cancel_promise("class:7", None, actor="app", note="")
    with pytest.raises(UnknownName):
        await stage.store.cancel_promise("class:7", "acme", actor="app", note="")


async def test_cancelling_the_next_tick_withdraws_it_and_does_not_end_its_schedule(stage: Stage) -> None:
    """Exactly one materialised next run: an operator who cancels it wants one tick gone, not all that would follow."""
    await stage.apply(declared("hourly", START + HOUR))
    [waiting] = await stage.waiting("hourly")
    withdrawn = await stage.store.cancel(waiting.id, actor="ada", note="not today")
    assert (withdrawn.id, withdrawn.outcome, withdrawn.state) == (waiting.id, "withdrawn", State.SCHEDULED)
    view = await stage.run(waiting.id)
    assert (view.state, view.cancel_requested, view.detail) == (State.SCHEDULED, True, "not today")
    stage.clock.advance(HOUR)
    seen: list[str | None] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact.withdrawn)
        return replace(fires_hourly(fact), verdict="skip", reason=Reason.OPERATOR, detail=fact.withdrawn)

    await stage.fire(judge)
    assert seen == ["not today"]
    view = await stage.run(waiting.id)
    assert (view.state, view.reason, view.detail) == (State.SKIPPED, Reason.OPERATOR, "not today")
    [following] = await stage.waiting("hourly")
    assert (following.nominal, following.cancel_requested) == (START + 2 * HOUR, False)


async def test_a_tick_that_is_withdrawn_without_a_word_is_withdrawn_too(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    [waiting] = await stage.waiting("hourly")
    await stage.store.cancel(waiting.id, actor="ada", note="")
    seen: list[str | None] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact.withdrawn)
        return fires_hourly(fact)

    await stage.fire(judge)
    assert seen[0] is not None


async def test_a_held_tick_carries_its_schedule_on_so_it_is_withdrawn_and_decided_anew(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(holds)
    [held] = await stage.store.runs(states=[State.HELD])
    assert (await stage.store.cancel(held.id, actor="ada", note="")).outcome == "withdrawn"
    assert await stage.state(held.id) is State.SCHEDULED


async def test_a_tick_that_was_handed_off_carries_nothing_on_so_it_is_cancelled(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(fires_hourly)
    ended = await stage.store.cancel("hourly@2026-04-03T02:00:00Z", actor="ada", note="")
    assert ended.outcome == "cancelled"
    assert [run.nominal for run in await stage.waiting("hourly")] == [START + HOUR]


async def test_cancelling_the_waiting_run_of_a_fixed_delay_makes_the_next(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    [waiting] = await stage.waiting("poll")
    stage.clock.advance(MINUTE)
    await stage.store.cancel(waiting.id, actor="ada", note="")
    assert [run.fire_at for run in await stage.waiting("poll")] == [START + MINUTE + HOUR]


async def test_a_fixed_delay_goes_on_also_when_its_run_is_cancelled_at_the_moment_it_was_made(stage: Stage) -> None:
    """Virtual time stands still between two steps; the next run must not take the name of the one before."""
    await stage.apply(declared("poll", None, delay=HOUR))
    [waiting] = await stage.waiting("poll")
    await stage.store.cancel(waiting.id, actor="ada", note="")
    assert len(await stage.waiting("poll")) == 1


# ---------------------------------------------------------------------------------------------------------------- retry


async def test_retry_makes_a_dead_run_due_now_with_its_attempts_renewed(stage: Stage) -> None:
    run = await stage.running("class:7")
    await stage.finish(stage.died(run))
    stage.clock.advance(DAY)
    kept = await stage.store.retry(run.id, actor="ada", note="fixed", override=False)
    assert (kept.id, kept.outcome, kept.state, kept.fire_at) == (
        "class:7#1",
        "retried",
        State.SCHEDULED,
        START + DAY,
    )
    view = await stage.run(run)
    assert (view.state, view.spent, view.reason, view.fire_at, view.nominal) == (
        State.SCHEDULED,
        0,
        None,
        START + DAY,
        START,
    )
    await stage.fire()
    [again] = await stage.claim()
    assert (again.id, again.spent, again.attempt) == (run.id, 0, 2)
    assert again.token > run.token


async def test_a_retried_run_is_told_to_whoever_holds_the_cells(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.died(run))
    lease = await stage.lease()
    await stage.store.retry(run.id, actor="ada", note="", override=False)
    assert await stage.told(lease.cursor) == [(START, run.number)]


async def test_a_retried_run_is_no_longer_bound_by_its_old_usefulness(stage: Stage) -> None:
    run = await stage.running(useful_until=START + MINUTE)
    await stage.finish(stage.died(run))
    stage.clock.advance(DAY)
    await stage.store.retry(run.id, actor="ada", note="", override=False)
    assert (await stage.fire()).handed_off == 1
    assert len(await stage.claim()) == 1


@pytest.mark.parametrize(("override", "note"), [(False, ""), (False, "I am sure"), (True, "")])
async def test_an_ambiguous_run_is_not_retried_without_override_and_reason(
    stage: Stage, override: bool, note: str
) -> None:
    run = await stage.running()
    await stage.finish(stage.puzzled(run))
    with pytest.raises(Conflict, match="ambiguous"):
        await stage.store.retry(run.id, actor="ada", note=note, override=override)
    assert await stage.state(run) is State.AMBIGUOUS


async def test_an_ambiguous_run_is_retried_with_override_and_reason(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.puzzled(run))
    await stage.store.retry(run.id, actor="ada", note="the bank says no", override=True)
    assert await stage.state(run) is State.SCHEDULED


@pytest.mark.parametrize(
    "ending",
    [None, Stage.failed, Stage.succeeded, Stage.interrupted, Stage.stopped],
    ids=["running", "retrying", "succeeded", "scheduled", "cancelled"],
)
async def test_only_parked_runs_can_be_retried(stage: Stage, ending: Callable[[Stage, Claimed], Ending] | None) -> None:
    run = await stage.running()
    if ending is not None:
        await stage.finish(ending(stage, run))
    before = await stage.run(run)
    with pytest.raises(Conflict, match=str(before.state)):
        await stage.store.retry(run.id, actor="ada", note="please", override=True)
    assert await stage.run(run) == before


async def test_a_refused_change_leaves_no_trace(stage: Stage) -> None:
    run = await stage.running("class:7")
    lease = await stage.lease()
    with pytest.raises(Conflict):
        await stage.store.move("class:7", None, START + SECOND)
    assert await stage.told(lease.cursor) == []
    assert await stage.events() == []
    assert await stage.state(run) is State.RUNNING
