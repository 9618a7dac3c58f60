"""Dead letters: found page by page, and replayed in bulk, each judged as it is at that moment."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.ledger import EffectState, Settles
from foliot.domain.policy import Policy, choices
from foliot.domain.replay import DeadFilter, Fate, Replayed
from foliot.domain.run import Claimed, Lane, Promise
from foliot.domain.state import Reason, State
from foliot.timing import after, every
from tests.contract.stage import START, Stage, declared

EVERYTHING = DeadFilter()


async def died(stage: Stage, count: int = 1, **more: Any) -> list[Claimed]:
    """Runs that were tried once, and are dead."""
    promises = [Promise("job", b"{}", stage.now + place, **more) for place in range(count)]
    await stage.store.promise(promises)
    stage.clock.advance(SECOND)
    await stage.fire()
    runs = await stage.claim()
    await stage.finish(*[stage.died(run) for run in runs])
    return runs


async def replayed(stage: Stage, *runs: Claimed, **more: Any) -> list[Replayed]:
    given: dict[str, Any] = {
        "due_at": 0,
        "every": 0,
        "override": False,
        "actor": "ana",
        "note": "the bank is back",
    } | more
    return await stage.store.replay([run.number for run in runs], **given)


async def found(stage: Stage, **wanted: Any) -> list[int]:
    return [letter.view.number for letter in await stage.store.dead(DeadFilter(**wanted), limit=100)]


# -------------------------------------------------------------------------------------------------------------- looking


async def test_dead_letters_are_told_page_by_page_each_once(stage: Stage) -> None:
    numbers = sorted(run.number for run in await died(stage, 5))
    told: list[int] = []
    while page := await stage.store.dead(EVERYTHING, after=told[-1] if told else 0, limit=2):
        told += [letter.view.number for letter in page]
    assert told == numbers


async def test_dead_letters_are_found_by_what_they_are(stage: Stage) -> None:
    [first] = await died(stage, tenant="acme")
    stage.clock.advance(HOUR)
    [second] = await died(stage)
    tick = await stage.running_tick("hourly")
    await stage.finish(stage.died(tick, reason=Reason.PERMANENT))
    assert await found(stage) == [first.number, second.number, tick.number]
    assert await found(stage, tenant="acme") == [first.number]
    assert await found(stage, schedule="hourly") == [tick.number]
    assert await found(stage, why="permanent") == [tick.number]
    assert await found(stage, job="other") == []
    assert await found(stage, until=START + HOUR) == [first.number]
    assert await found(stage, since=START + HOUR, why="attempts") == [second.number]


async def test_only_the_dead_are_dead_letters(stage: Stage) -> None:
    await stage.ambiguous()
    await stage.running()
    assert await found(stage) == []


async def test_a_dead_letter_says_what_has_to_be_known_before_it_is_tried_again(stage: Stage) -> None:
    run = await stage.running(useful_until=START + HOUR)
    await stage.begin(run)
    await stage.end(run)
    await stage.finish(stage.died(run))
    [letter] = await stage.store.dead(EVERYTHING, limit=10)
    assert (letter.begun, letter.useful_until, letter.facts.done) == (True, START + HOUR, 1)


# ------------------------------------------------------------------------------------------------------------ replaying


async def test_a_replayed_run_is_due_now_with_its_attempts_renewed_in_the_lane_backfill(stage: Stage) -> None:
    [run] = await died(stage)
    assert await replayed(stage, run) == [Replayed(run.number, Fate.REPLAYED, None, stage.now)]
    view = await stage.run(run)
    assert (view.state, view.lane, view.spent, view.reason) == (State.SCHEDULED, Lane.BACKFILL, 0, None)
    await stage.fire()
    [again] = await stage.claim()
    assert (again.id, again.lane, again.attempt, again.spent) == (run.id, Lane.BACKFILL, 2, 0)
    audit = await stage.store.audit_of(run.id)
    assert [(row.actor, row.action, row.note) for row in audit] == [("ana", "replay", "the bank is back")]


async def test_replayed_runs_are_due_one_after_another_and_go_behind_live_ones(stage: Stage) -> None:
    runs = await died(stage, 3)
    told = await replayed(stage, *runs, every=MINUTE, due_at=stage.now + MINUTE)
    assert [one.fire_at for one in told] == [stage.now + place * MINUTE for place in (1, 2, 3)]
    assert (await stage.fire()).handed_off == 0
    stage.clock.advance(2 * MINUTE)
    live = await stage.promise()
    await stage.fire()
    assert [run.id for run in await stage.claim()] == [live.id, runs[0].id, runs[1].id]


async def test_the_rate_of_the_lane_bounds_what_was_replayed_and_live_runs_pass_it(stage: Stage) -> None:
    runs = await died(stage, 4)
    await stage.store.set_limit(Gate("lane:backfill", every=SECOND), actor="ana")
    await replayed(stage, *runs)
    begun = []
    for second in range(5):
        live = await stage.promise()
        await stage.fire()
        claimed = await stage.claim()
        assert claimed[0].id == live.id
        begun += [second for _ in claimed[1:]]
        await stage.finish(*map(stage.succeeded, claimed))
        stage.clock.advance(SECOND)
    assert begun == [0, 1, 2, 3]


async def test_what_is_dead_no_more_is_passed_over_and_the_rest_goes(stage: Stage) -> None:
    runs = await died(stage, 3)
    await stage.store.retry(runs[1].id, actor="bob", note="mine", override=False)
    told = await replayed(stage, *runs)
    assert [one.fate for one in told] == [Fate.REPLAYED, Fate.PASSED_OVER, Fate.REPLAYED]
    assert [one.fate for one in await replayed(stage, *runs)] == [Fate.PASSED_OVER] * 3
    assert (await stage.run(runs[1])).lane is Lane.LIVE, "a retry by itself stays live"


async def test_a_number_that_no_run_has_is_passed_over(stage: Stage) -> None:
    [run] = await died(stage)
    await replayed(stage, run)
    told = await stage.store.replay([7, run.number], due_at=0, every=0, override=False, actor="ana", note="again")
    assert [one.fate for one in told] == [Fate.PASSED_OVER, Fate.PASSED_OVER]
    assert await stage.store.replay([], due_at=0, every=0, override=False, actor="ana", note="none") == []


async def test_what_is_not_useful_any_more_stays_dead_and_what_is_keeps_its_term(stage: Stage) -> None:
    [run] = await died(stage, useful_until=START + HOUR)
    stage.clock.advance(HOUR)
    assert [one.fate for one in await replayed(stage, run, override=True)] == [Fate.TOO_LATE]
    assert await stage.state(run) is State.DEAD
    [other] = await died(stage, useful_until=stage.now + HOUR)
    await replayed(stage, other, due_at=stage.now + 2 * HOUR)
    stage.clock.advance(2 * HOUR)
    await stage.fire()
    view = await stage.run(other)
    assert (view.state, view.reason) == (State.SKIPPED, Reason.TOO_LATE), "looked at again when it fires"


@pytest.mark.parametrize("settles", [None, Settles.IDEMPOTENT])
async def test_a_run_with_an_open_effect_is_refused_unless_somebody_answers_for_it(
    stage: Stage, settles: Settles | None
) -> None:
    run = await stage.running()
    await stage.begin(run, settles=settles)
    await stage.finish(stage.died(run))
    [told] = await replayed(stage, run)
    assert (told.fate, told.problem) == (Fate.REFUSED, "an effect started and has no recorded outcome")
    assert await stage.state(run) is State.DEAD
    assert await stage.store.audit_of(run.id) == []
    assert [one.fate for one in await replayed(stage, run, override=True)] == [Fate.REPLAYED]
    state = EffectState.NOT_DONE if settles is None else EffectState.STARTED
    assert [one[2] for one in await stage.ledger(run)] == [state]


async def test_a_run_whose_lineage_is_busy_is_passed_over(stage: Stage) -> None:
    [run] = await died(stage)
    again = await stage.store.rerun(run.id, repair=False, repeat=(), override=False, actor="bob", note="again")
    await stage.fire()
    [rerun] = await stage.claim()
    await stage.finish(stage.died(rerun))
    once_more = await stage.store.rerun(again.id, repair=False, repeat=(), override=False, actor="bob", note="more")
    await stage.fire()
    assert [one.fate for one in await replayed(stage, rerun)] == [Fate.PASSED_OVER], "its rerun answered for it"
    [running] = await stage.claim()
    assert running.id == once_more.id


async def test_a_rerun_in_bulk_rides_the_lane_backfill_at_its_time(stage: Stage) -> None:
    [run] = await died(stage)
    given: dict[str, Any] = {"repair": False, "repeat": (), "override": False, "actor": "bob", "note": "again"}
    kept = await stage.store.rerun(run.id, **given, lane=Lane.BACKFILL, due_at=stage.now + MINUTE)
    assert kept.fire_at == stage.now + MINUTE
    assert (await stage.run(kept)).lane is Lane.BACKFILL


# ---------------------------------------------------------------------------------------------------- and its schedule


RULE = every("1h").encode()


async def dead_tick(stage: Stage, **settings: object) -> Claimed:
    """The first tick is dead, and an hour has passed: the second is due."""
    policy = Policy().merged(choices(settings))
    await stage.apply(declared("hourly", stage.now, rule=RULE, policy=policy))
    await stage.fire_by_policy()
    [run] = await stage.claim()
    await stage.finish(stage.died(run))
    stage.clock.advance(HOUR)
    return run


@pytest.mark.parametrize("overlap", ["skip", "queue", "coalesce", "replace"])
async def test_a_replayed_tick_waits_for_its_turn_and_takes_no_live_ticks_place(stage: Stage, overlap: str) -> None:
    dead = await dead_tick(stage, overlap=overlap)
    await stage.fire_by_policy()
    [live] = await stage.claim()
    await replayed(stage, dead)
    await stage.fire_by_policy()
    assert await stage.claim() == []
    view = await stage.run(dead)
    assert (view.state, view.reason) == (State.HELD, Reason.OVERLAP)
    await stage.finish(stage.succeeded(live))
    await stage.fire_by_policy()
    assert [run.id for run in await stage.claim()] == [dead.id]
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    [waiting] = [run for run in await stage.waiting("hourly") if run.nominal <= stage.now]
    assert waiting.state is State.HELD, "a tick that only a replay is in the way of is not skipped"


async def test_replayed_ticks_that_wait_take_no_live_ticks_place_in_the_queue(stage: Stage) -> None:
    dead = await dead_tick(stage, overlap="queue", queue_limit=1)
    await stage.fire_by_policy()
    await stage.claim()
    await replayed(stage, dead)
    await stage.fire_by_policy()
    assert await stage.state(dead) is State.HELD
    states = []
    for _ in range(2):
        stage.clock.advance(HOUR)
        await stage.fire_by_policy()
        [tick] = [run for run in await stage.store.runs(schedule="hourly") if run.nominal == stage.now]
        states.append(tick.state)
    assert states == [State.HELD, State.SKIPPED], "the first waits; the second finds the queue full"


async def test_a_replayed_tick_that_is_not_due_yet_is_in_no_live_ticks_way(stage: Stage) -> None:
    dead = await dead_tick(stage, overlap="queue")
    await replayed(stage, dead, due_at=stage.now + 3 * HOUR)
    first = await _runs_next(stage)
    stage.clock.advance(HOUR)
    await stage.fire_by_policy()
    assert await stage.claim() == []
    await stage.finish(stage.succeeded(first))
    second = await _runs_next(stage)
    assert second.nominal == stage.now


async def _runs_next(stage: Stage) -> Claimed:
    await stage.fire_by_policy()
    [run] = await stage.claim()
    return run


async def test_what_waits_for_the_success_of_a_dead_tick_waits_for_its_replay(stage: Stage) -> None:
    dead = await dead_tick(stage, overlap="queue", blocks_until="succeeded")
    await replayed(stage, dead, due_at=stage.now + MINUTE)
    await stage.fire_by_policy()
    assert await stage.claim() == []
    stage.clock.advance(MINUTE)
    again = await _runs_next(stage)
    assert again.id == dead.id
    await stage.finish(stage.succeeded(again))
    assert (await _runs_next(stage)).id != dead.id


async def test_a_replayed_run_of_a_fixed_delay_neither_stops_its_chain_nor_starts_another(stage: Stage) -> None:
    await stage.apply(declared("chain", None, rule=after("1h").encode(), delay=HOUR))
    stage.clock.advance(HOUR)
    dead = await _runs_next(stage)
    await stage.finish(stage.died(dead))
    await replayed(stage, dead, due_at=stage.now + 3 * HOUR)
    stage.clock.advance(HOUR)
    second = await _runs_next(stage)
    await stage.finish(stage.succeeded(second))
    assert len(await stage.waiting("chain")) == 2, "the replay, and the next of the chain"
    stage.clock.advance(2 * HOUR)
    for lane in (Lane.CATCH_UP, Lane.BACKFILL):  # the next of the chain is an hour late
        run = await _runs_next(stage)
        assert run.lane == lane
        await stage.finish(stage.succeeded(run))
    assert len(await stage.waiting("chain")) == 1


async def test_a_replayed_run_of_a_fixed_delay_that_is_too_late_starts_no_chain(stage: Stage) -> None:
    policy = Policy(useful_until=2 * HOUR)
    await stage.apply(declared("chain", None, rule=after("1h").encode(), delay=HOUR, policy=policy))
    stage.clock.advance(HOUR)
    dead = await _runs_next(stage)
    await stage.finish(stage.died(dead))
    await replayed(stage, dead, due_at=stage.now + 3 * HOUR)
    stage.clock.advance(3 * HOUR)
    await stage.fire_by_policy()
    assert await stage.state(dead) is State.SKIPPED
    assert len(await stage.claim()) == 1
    assert await stage.waiting("chain") == [], "the next one is made by the end of the one that runs"
