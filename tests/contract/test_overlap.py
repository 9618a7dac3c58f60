"""What the store does with decisions about overlap: who waits, who is merged, who is stopped, and who comes next."""

from __future__ import annotations

import pytest

from foliot.domain.backfill import FillTick, NewBackfill, Pace
from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.ledger import EffectState, Settled
from foliot.domain.overlap import foreseen
from foliot.domain.policy import Policy, choices
from foliot.domain.run import Claimed, Lane, Origin
from foliot.domain.schedule import TickFacts
from foliot.domain.state import Event, Reason, State
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from tests.contract.stage import Stage, declared

RULE = every("1h").encode()


async def hourly(stage: Stage, **settings: object) -> None:
    policy = Policy().merged(choices(settings))
    await stage.apply(declared("hourly", stage.now, rule=RULE, policy=policy))


async def busy(stage: Stage, **settings: object) -> Claimed:
    """The first tick runs, and an hour has passed: the second is due."""
    await hourly(stage, **settings)
    await stage.fire_by_policy()
    [run] = await stage.claim()
    stage.clock.advance(HOUR)
    return run


async def story(stage: Stage) -> list[tuple[str, State, str | None]]:
    runs = sorted(await stage.store.runs(schedule="hourly"), key=lambda run: run.nominal)
    return [((run.name or "")[-10:-4], run.state, run.reason) for run in runs]


async def test_ticks_queue_up_and_run_one_after_another(stage: Stage) -> None:
    run = await busy(stage, overlap="queue")
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert [state for _, state, _ in await story(stage)] == [
        State.RUNNING,
        State.HELD,
        State.HELD,
        State.SCHEDULED,
    ]
    order = [run.id]
    for _ in range(2):
        await stage.finish(stage.succeeded(run))
        await stage.fire_by_policy()
        [run] = await stage.claim()
        order.append(run.id)
    assert order == sorted(order)


async def test_only_the_first_that_waits_is_let_go_when_a_run_ends(stage: Stage) -> None:
    run = await busy(stage, overlap="queue")
    for _ in range(3):
        await stage.fire_by_policy()
        stage.clock.advance(HOUR)
    await stage.finish(stage.succeeded(run))
    states = [state for _, state, _ in await story(stage)]
    assert states.count(State.HELD) == 2


async def test_a_queue_that_is_full_skips_and_says_so(stage: Stage) -> None:
    await busy(stage, overlap="queue", queue_limit=1)
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    [skipped] = [run for run in await stage.store.runs(schedule="hourly") if run.state is State.SKIPPED]
    assert skipped.reason == Reason.OVERLAP
    assert "the overlap queue is full" in (skipped.detail or "")


async def test_ticks_that_wait_become_one_which_stands_for_all_of_them(stage: Stage) -> None:
    run = await busy(stage, overlap="coalesce")
    for _ in range(3):
        await stage.fire_by_policy()
        stage.clock.advance(HOUR)
    runs = {one.state: one for one in await stage.store.runs(schedule="hourly")}
    assert (runs[State.HELD].since, runs[State.HELD].nominal) == (run.nominal, (run.nominal or 0) + 3 * HOUR)
    merged = [one for one in await stage.store.runs(schedule="hourly") if one.state is State.SKIPPED]
    assert [one.reason for one in merged] == [Reason.COALESCED] * 2
    assert all((one.detail or "").startswith("into hourly@") for one in merged)
    await stage.finish(stage.succeeded(run))
    await stage.fire_by_policy()
    [late] = await stage.claim()
    assert late.number == runs[State.HELD].number


async def test_a_running_one_is_asked_to_stop_for_its_replacement_which_waits_until_it_has(stage: Stage) -> None:
    run = await busy(stage, overlap="replace")
    await stage.fire_by_policy()
    assert (await stage.store.beat(await stage.worker(), [])).cancel == [run.number]
    assert await stage.claim() == []
    await stage.finish(stage.stopped(run))
    ended = await stage.store.run(run.id)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.REPLACED)
    assert (ended.detail or "").startswith("by hourly@")
    await stage.fire_by_policy()
    [new] = await stage.claim()
    assert new.nominal == (run.nominal or 0) + HOUR


async def test_one_that_nobody_has_begun_ends_at_once_for_its_replacement(stage: Stage) -> None:
    await hourly(stage, overlap="replace")
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    await stage.fire_by_policy()
    [run] = await stage.claim()
    assert run.nominal == stage.now
    assert [state for _, state, _ in await story(stage)] == [State.CANCELLED, State.RUNNING, State.SCHEDULED]


async def test_one_that_waits_to_be_tried_again_ends_at_once_for_its_replacement(stage: Stage) -> None:
    run = await busy(stage, overlap="replace")
    await stage.finish(stage.failed(run, 10 * HOUR))
    await stage.fire_by_policy()
    await stage.fire_by_policy()
    [new] = await stage.claim()
    assert new.number != run.number
    assert (await stage.store.run(run.id)).reason == Reason.REPLACED


async def test_a_run_that_is_being_checked_is_not_stopped(stage: Stage) -> None:
    run = await busy(stage, overlap="replace")
    await stage.finish(stage.succeeded(run)._replace(event=Event.CHECK_DUE))
    await stage.fire_by_policy()
    assert (await stage.store.run(run.id)).state is State.VERIFYING
    [check] = await stage.claim()
    await stage.finish(stage.succeeded(check)._replace(event=Event.CHECK_PASSED))
    await stage.fire_by_policy()
    assert len(await stage.claim()) == 1


@pytest.mark.parametrize("blocks_until", ["ended", "succeeded", "verified"])
async def test_a_dead_run_is_in_the_way_where_it_blocks_until_it_succeeded(stage: Stage, blocks_until: str) -> None:
    run = await busy(stage, overlap="queue", blocks_until=blocks_until)
    await stage.finish(stage.died(run))
    await stage.fire_by_policy()
    assert len(await stage.claim()) == (blocks_until == "ended")
    if blocks_until != "ended":
        await stage.store.reconcile(run.id, settled=(), actor="ana", evidence="looked")
        await stage.fire_by_policy()
        assert len(await stage.claim()) == 1


async def test_a_rerun_waits_where_a_tick_would_be_skipped(stage: Stage) -> None:
    await hourly(stage, overlap="skip")
    await stage.fire_by_policy()
    [first] = await stage.claim()
    await stage.finish(stage.succeeded(first))
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    [second] = await stage.claim()
    again = await stage.store.rerun(first.id, repair=False, repeat=(), override=False, actor="ana", note="again")
    await stage.fire_by_policy()
    assert (await stage.store.run(again.id)).state is State.HELD
    await stage.finish(stage.succeeded(second))
    await stage.fire_by_policy()
    assert [run.id for run in await stage.claim()] == [again.id]


async def test_a_rerun_is_not_replaced_by_a_tick_neither_while_it_waits_nor_while_it_runs(stage: Stage) -> None:
    first = await busy(stage, overlap="replace")
    await stage.finish(stage.succeeded(first))
    await stage.fire_by_policy()
    [second] = await stage.claim()
    again = await stage.store.rerun(first.id, repair=False, repeat=(), override=False, actor="ana", note="again")
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert await stage.state(again) is State.HELD
    await stage.finish(stage.stopped(second))
    await stage.fire_by_policy()
    [running] = await stage.claim()
    assert running.id == again.id
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert not (await stage.run(again)).cancel_requested
    await stage.finish(stage.succeeded(running))
    await stage.fire_by_policy()
    [last] = await stage.claim()
    assert [state for _, state, _ in await story(stage)] == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.CANCELLED,
        State.SKIPPED,
        State.RUNNING,
        State.SCHEDULED,
    ]
    assert last.nominal == stage.now


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_of_a_run_that_blocks_and_is_at_work_no_more_it_is_said_that_it_waits_for_a_person(
    stage: Stage, overlap: str
) -> None:
    run = await busy(stage, overlap=overlap, blocks_until="succeeded")
    await stage.finish(stage.died(run))
    await stage.fire_by_policy()
    [tick] = [one for one in await stage.store.runs(schedule="hourly") if one.reason == Reason.OVERLAP]
    assert (tick.detail or "").endswith(f"{run.id} is dead and needs attention")


async def test_a_settled_run_goes_on_blocking_and_is_called_that(stage: Stage) -> None:
    run = await busy(stage, overlap="queue", blocks_until="succeeded")
    await stage.begin(run)
    await stage.finish(stage.puzzled(run))
    answers = [Settled("pay", "7", EffectState.NOT_DONE)]
    kept = await stage.store.reconcile(run.id, settled=answers, actor="ada", evidence="statement 17")
    assert kept.outcome == "settled"
    await stage.fire_by_policy()
    [tick] = [one for one in await stage.store.runs(schedule="hourly") if one.reason == Reason.OVERLAP]
    assert (tick.detail or "").endswith(f"{run.id} is settled and needs attention")
    facts = await stage.store.schedule_facts("hourly")
    assert (facts.counts[State.SETTLED, Lane.LIVE], [one.state for one in facts.parked]) == (1, [State.SETTLED])


async def test_a_tick_that_waits_for_its_turn_can_be_cancelled_and_the_one_behind_it_comes(stage: Stage) -> None:
    run = await busy(stage, overlap="queue")
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    first, second = sorted(
        (one for one in await stage.store.runs(schedule="hourly") if one.state is State.HELD),
        key=lambda one: one.nominal,
    )
    await stage.store.cancel(first.id, actor="ana", note="")
    await stage.finish(stage.succeeded(run))
    await stage.fire_by_policy()
    assert [one.id for one in await stage.claim()] == [second.id]


async def test_an_operator_lets_a_tick_go_against_overlap(stage: Stage) -> None:
    await busy(stage, overlap="queue")
    await stage.fire_by_policy()
    [held] = [one for one in await stage.store.runs(schedule="hourly") if one.state is State.HELD]
    await stage.store.release_run(held.id, actor="ana", note="now")
    await stage.fire_by_policy()
    assert [one.id for one in await stage.claim()] == [held.id]


async def test_what_waits_for_a_schedule_that_is_removed_runs_all_the_same(stage: Stage) -> None:
    run = await busy(stage, overlap="queue")
    await stage.fire_by_policy()
    await stage.store.delete("hourly", actor="ana", note="")
    await stage.finish(stage.succeeded(run))
    await stage.fire_by_policy()
    assert len(await stage.claim()) == 1


async def test_a_tick_that_waits_for_a_slot_is_decided_once(stage: Stage) -> None:
    """Its successor was made when it was first decided upon."""
    keyed = b'{"concurrency_key":"account:7"}'
    blocker = await stage.running(options=keyed)
    await stage.apply(declared("hourly", stage.now, rule=RULE, options=keyed))
    await stage.fire_by_policy()
    assert await story(stage) == [("T02:00", State.HELD, Reason.KEY), ("T03:00", State.SCHEDULED, None)]
    await stage.finish(stage.succeeded(blocker))
    await stage.fire_by_policy()
    [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    assert await story(stage) == [("T02:00", State.SUCCEEDED, None), ("T03:00", State.SCHEDULED, None)]
    assert await stage.store.events_since(0, 100) == []


async def test_the_next_tick_is_skipped_while_the_one_before_waits_for_a_slot(stage: Stage) -> None:
    keyed = b'{"concurrency_key":"account:7"}'
    await stage.running(options=keyed)
    await stage.apply(declared("hourly", stage.now, rule=RULE, options=keyed))
    await stage.fire_by_policy()
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert [state for _, state, _ in await story(stage)] == [State.HELD, State.SKIPPED, State.SCHEDULED]


@pytest.mark.parametrize("overlap", ["skip", "queue", "coalesce", "replace"])
async def test_a_tick_waits_for_a_backfill_that_is_busy_and_goes_before_those_that_wait(
    stage: Stage, overlap: str
) -> None:
    await hourly(stage, overlap=overlap)
    await stage.fire_by_policy()
    [first] = await stage.claim()
    await stage.finish(stage.succeeded(first))
    ticks = [FillTick(stage.now - hours * HOUR, None) for hours in (5, 4, 3)]
    wanted = NewBackfill("hourly", 1, ticks[0].nominal, stage.now - HOUR, 3, pace=Pace(at_once=3))
    backfill = await stage.store.start_backfill(wanted, actor="ana", note="again")
    await stage.store.make_backfill(backfill.number, backfill.version, ticks, 3)
    await stage.fire_by_policy()
    [filling] = await stage.claim()
    assert (filling.origin, filling.nominal) == (Origin.BACKFILL, ticks[0].nominal)
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert await stage.claim() == []
    assert (await stage.store.beat(await stage.worker(), [])).cancel == []
    order = []
    for _ in range(3):
        await stage.finish(stage.succeeded(filling))
        await stage.fire_by_policy()
        [filling] = await stage.claim()
        order.append(filling.origin)
    assert order == [Origin.SCHEDULED, Origin.BACKFILL, Origin.BACKFILL]


# ------------------------------------------------------------------------------------------------ nobody waits for ever


async def queue_of_three(stage: Stage) -> tuple[Claimed, list[str]]:
    run = await busy(stage, overlap="queue")
    for _ in range(3):
        await stage.fire_by_policy()
        stage.clock.advance(HOUR)
    held = [one for one in await stage.store.runs(schedule="hourly") if one.state is State.HELD]
    return run, [one.id for one in sorted(held, key=lambda one: one.nominal)]


async def goes_on(stage: Stage) -> int:
    ended = 0
    for _ in range(5):
        await stage.fire_by_policy()
        for run in await stage.claim():
            await stage.finish(stage.succeeded(run))
            ended += 1
        stage.clock.advance(HOUR)
    return ended


async def test_one_that_waits_may_be_cancelled_before_the_one_that_was_let_go_has_fired(stage: Stage) -> None:
    run, held = await queue_of_three(stage)
    await stage.finish(stage.succeeded(run))
    await stage.store.cancel(held[-1], actor="ana", note="")
    assert await goes_on(stage) > 2


async def test_two_runs_may_end_before_anything_fires(stage: Stage) -> None:
    run, held = await queue_of_three(stage)
    await stage.store.release_run(held[-1], actor="ana", note="")
    await stage.fire_by_policy()
    [other] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    await stage.finish(stage.succeeded(other))
    assert await goes_on(stage) > 2


async def test_it_may_be_resumed_before_the_one_that_was_let_go_has_fired(stage: Stage) -> None:
    run, _ = await queue_of_three(stage)
    await stage.finish(stage.succeeded(run))
    await stage.store.resume("hourly", actor="ana", note="")
    assert await goes_on(stage) > 2


async def test_a_limit_of_a_schedule_is_another_thing_than_its_turns(stage: Stage) -> None:
    await stage.store.set_limit(Gate("schedule:hourly", most=1), actor="ana")
    run, _ = await queue_of_three(stage)
    await stage.finish(stage.failed(run, SECOND))
    assert await goes_on(stage) > 2


async def test_a_run_that_its_schedule_holds_keeps_nobody_from_a_slot(stage: Stage) -> None:
    """It was let in, and before it could fire its schedule was paused."""
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    first = await stage.running()
    await hourly(stage, overlap="queue")
    await stage.fire_by_policy()
    other = await stage.promise()
    await stage.fire_by_policy()
    await stage.store.pause("hourly", until=None, actor="ana", note="")
    await stage.finish(stage.succeeded(first))
    await stage.fire_by_policy()
    await stage.fire_by_policy()
    assert [run.id for run in await stage.claim()] == [other.id]


async def test_a_run_that_somebody_ordered_does_not_wait_behind_a_tick_that_a_pause_holds(stage: Stage) -> None:
    run = await busy(stage, overlap="queue")
    await stage.store.pause("hourly", until=None, actor="ana", note="")
    await stage.fire_by_policy()
    stage.clock.advance(SECOND)
    ordered = await stage.store.trigger("hourly", actor="ana", note="")
    await stage.fire_by_policy()
    await stage.finish(stage.succeeded(run))
    await stage.fire_by_policy()
    assert [one.id for one in await stage.claim()] == [ordered.id]


async def test_a_tick_that_a_pause_with_an_end_holds_runs_when_an_operator_lets_it_go(stage: Stage) -> None:
    await hourly(stage)
    await stage.store.pause("hourly", until=stage.now + 2 * HOUR, actor="ana", note="")
    await stage.fire_by_policy()
    [held] = await stage.store.runs(schedule="hourly")
    await stage.store.release_run(held.id, actor="ana", note="")
    await stage.fire_by_policy()
    assert [one.id for one in await stage.claim()] == [held.id]


@pytest.mark.parametrize(
    ("overlap", "verdict"), [("skip", "skip"), ("queue", "hold"), ("allow", "fire"), ("replace", "hold")]
)
async def test_the_facts_of_a_trigger_foretell_the_decision(stage: Stage, overlap: str, verdict: str) -> None:
    await hourly(stage, overlap=overlap)
    await stage.fire_by_policy()
    [run] = await stage.claim()
    stage.clock.advance(SECOND)
    decision = foreseen(await stage.store.trigger_facts("hourly"))
    assert (decision.verdict, decision.verdict == "fire" or run.id in str(decision.detail)) == (verdict, True)
    kept = await stage.store.trigger("hourly", actor="ana", note="")
    await stage.fire_by_policy()
    state = {"skip": State.SKIPPED, "hold": State.HELD, "fire": State.READY}[verdict]
    assert (await stage.run(kept)).state is state
    with pytest.raises(UnknownName, match="nobody"):
        await stage.store.trigger_facts("nobody")


async def test_a_check_that_refuses_a_trigger_leaves_no_run_and_no_key(stage: Stage) -> None:
    await busy(stage, overlap="skip")

    def refuse(fact: TickFacts) -> None:
        raise Conflict(f"{fact.occupied_by} is active")

    before = [run.id for run in await stage.store.runs()]
    with pytest.raises(Conflict, match="is active"):
        await stage.store.trigger("hourly", actor="ana", note="", key="deploy-7", check=refuse)
    assert [run.id for run in await stage.store.runs()] == before
    kept = await stage.store.trigger("hourly", actor="ana", note="", key="deploy-7")
    again = await stage.store.trigger("hourly", actor="ana", note="", key="deploy-7", check=refuse)
    assert (kept.outcome, again.outcome, again.id) == ("made", "kept", kept.id)


async def test_a_trigger_that_overrides_overlap_runs_beside_the_active_run(stage: Stage) -> None:
    await busy(stage, overlap="skip")
    kept = await stage.store.trigger("hourly", actor="ana", note="the board asked", override=True)
    await stage.fire_by_policy()
    assert kept.id in [one.id for one in await stage.claim()]
    [row] = [row for row in await stage.store.audit_of("hourly") if row.action == "trigger"]
    assert (row.actor, row.note) == ("ana", "overrides overlap: the board asked")
