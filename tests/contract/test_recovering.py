"""Retries, reconciliation, reruns, and runs that kill their workers: what people decide, and what no end may hide."""

from __future__ import annotations

import re
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.ledger import EffectState, Item, ItemState, Settled, Settles
from foliot.domain.ledger import Stage as Where
from foliot.domain.run import Claimed, OnConflict, Origin, Progress, SilentAttempt
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import reading
from tests.contract.stage import START, Stage

STARTED, DONE, NOT_DONE = EffectState.STARTED, EffectState.DONE, EffectState.NOT_DONE
WHO: dict[str, Any] = {"actor": "ada", "note": "because"}
RERUN: dict[str, Any] = {"repair": False, "repeat": (), "override": False, **WHO}


# ---------------------------------------------------------------------------------------------------------------- retry


async def test_an_ambiguous_run_is_retried_on_somebodys_word_only(stage: Stage) -> None:
    run = await stage.ambiguous()
    with pytest.raises(Conflict, match="ambiguous"):
        await stage.store.retry(run.id, override=False, **WHO)
    with pytest.raises(Conflict, match="reason"):
        await stage.store.retry(run.id, override=True, actor="ada", note="")
    await stage.store.retry(run.id, override=True, **WHO)
    [effect] = (await stage.run(run)).effects
    assert (effect.state, effect.note) == (NOT_DONE, "ada overrode the advice: because")
    await stage.fire()
    [again] = await stage.claim()
    assert (await stage.begin(again)).before == effect
    assert await stage.ledger(run) == [("pay", "7", STARTED)]


async def test_an_override_leaves_to_probes_what_they_can_settle(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.begin(run, key="8", settles=Settles.PROBE)
    await stage.finish(stage.ending(run, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.EFFECT))
    await stage.store.retry(run.id, override=True, **WHO)
    assert await stage.ledger(run) == [("pay", "7", NOT_DONE), ("pay", "8", STARTED)]


async def test_a_promise_of_which_something_was_done_cannot_be_replaced(stage: Stage) -> None:
    run = await stage.running("order")
    await stage.begin(run)
    await stage.end(run)
    await stage.finish(stage.interrupted(run))
    with pytest.raises(Conflict):
        await stage.promise("order", after=MINUTE, on_conflict=OnConflict.REPLACE)


async def test_a_dead_run_with_an_open_effect_is_not_retried_blindly_either(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.finish(stage.died(run))
    with pytest.raises(Conflict, match="pay 7"):
        await stage.store.retry(run.id, override=False, **WHO)


async def test_a_retried_run_goes_on_where_its_items_ended(stage: Stage) -> None:
    run = await stage.running()
    items = (Item("", "a", ItemState.DONE),)
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, b"7", items)])
    await stage.finish(stage.died(run))
    assert (await stage.run(run)).has_checkpoint
    await stage.store.retry(run.id, override=False, **WHO)
    await stage.fire()
    [again] = await stage.claim()
    assert (again.checkpoint, await stage.store.done_items(again.number, "")) == (b"7", {"a"})


# ------------------------------------------------------------------------------------------------------------ reconcile


async def test_a_person_says_what_happened_and_the_run_ends_with_the_evidence(stage: Stage) -> None:
    run = await stage.ambiguous()
    settled = [Settled("pay", "7", DONE)]
    kept = await stage.store.reconcile(run.id, settled=settled, actor="ada", evidence="statement of April 3")
    assert (kept.outcome, kept.state) == ("reconciled", State.RECONCILED)
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail) == (State.RECONCILED, "operator", "statement of April 3")
    [effect] = view.effects
    assert (effect.state, effect.note) == (DONE, "ada: statement of April 3")
    [row] = await stage.store.audit_of(run.id)
    assert (row.action, row.note) == ("reconcile", "pay:7=done; evidence: statement of April 3")


async def test_an_effect_that_is_not_in_the_ledger_cannot_be_settled_and_nothing_changes(stage: Stage) -> None:
    run = await stage.ambiguous()
    settled = [Settled("pay", "7", DONE), Settled("pay", "8", DONE)]
    with pytest.raises(Conflict, match="pay 8"):
        await stage.store.reconcile(run.id, settled=settled, actor="ada", evidence="statement")
    assert (await stage.state(run), await stage.ledger(run)) == (State.AMBIGUOUS, [("pay", "7", STARTED)])


async def test_only_what_waits_for_a_person_can_be_reconciled(stage: Stage) -> None:
    run = await stage.running()
    with pytest.raises(Conflict, match="is running"):
        await stage.store.reconcile(run.id, settled=[], actor="ada", evidence="none")


async def test_what_was_held_for_a_run_is_released_when_that_is_reconciled(stage: Stage) -> None:
    run = await stage.running_tick("hourly")
    await stage.finish(stage.died(run))
    await stage.store.reconcile(run.id, settled=[], actor="ada", evidence="done by hand")
    assert await stage.state(run) is State.RECONCILED


# ---------------------------------------------------------------------------------------------------------------- rerun


async def ended(stage: Stage, key: str | None = "order") -> Claimed:
    run = await stage.running(key, payload=b'{"a":1}', tenant="acme", priority=3)
    await stage.begin(run)
    await stage.end(run, result=b"12")
    await stage.finish(stage.succeeded(run))
    return run


@pytest.mark.parametrize("key", ["order", None])
async def test_a_rerun_is_a_new_run_that_shares_the_ledger(stage: Stage, key: str | None) -> None:
    run = await ended(stage, key)
    kept = await stage.store.rerun(run.id, **{**RERUN, "repair": True})
    assert (kept.name, kept.outcome, kept.state) == (f"{run.id}#r1", "rerun", State.SCHEDULED)
    await stage.fire()
    [again] = await stage.claim()
    assert (again.id, again.payload, again.tenant, again.priority) == (kept.id, b'{"a":1}', "acme", 3)
    assert (again.lineage, again.repair, again.origin, again.nominal) == (run.number, True, Origin.RERUN, START)
    begun = await stage.begin(again)
    assert begun.before is not None
    assert (begun.before.state, begun.before.result, begun.lineage) == (DONE, b"12", run.id)
    view = await stage.run(run)
    assert (view.reruns, view.state) == ([kept.id], State.SUCCEEDED)
    assert (await stage.run(kept)).effects == view.effects
    await stage.finish(stage.succeeded(again))
    assert (await stage.run(kept)).effects == view.effects


async def test_reruns_are_counted_within_their_lineage(stage: Stage) -> None:
    run = await ended(stage)
    names = []
    for of in (run.id, f"{run.id}#r1", run.id):
        kept = await stage.store.rerun(of, **RERUN)
        names.append(kept.id)
        await stage.fire()
        [again] = await stage.claim()
        await stage.finish(stage.succeeded(again))
    assert names == [f"{run.id}#r1", f"{run.id}#r2", f"{run.id}#r3"]
    assert (await stage.run(names[1])).reruns == names


async def test_one_rerun_at_a_time(stage: Stage) -> None:
    run = await ended(stage)
    kept = await stage.store.rerun(run.id, **RERUN)
    with pytest.raises(Conflict, match=re.escape(kept.id)):
        await stage.store.rerun(run.id, **RERUN)
    with pytest.raises(Conflict, match="only ended runs can be rerun"):
        await stage.store.rerun(kept.id, **RERUN)


async def test_no_two_runs_of_a_lineage_are_busy_at_once(stage: Stage) -> None:
    run = await stage.running("order")
    await stage.finish(stage.died(run))
    await stage.store.rerun(run.id, **RERUN)
    await stage.fire()
    [first] = await stage.claim()
    await stage.finish(stage.died(first))
    await stage.store.rerun(run.id, **RERUN)
    with pytest.raises(Conflict, match="has not ended"):
        await stage.store.retry(first.id, override=False, **WHO)


async def test_doubt_about_a_rerun_is_doubt_about_its_lineage(stage: Stage) -> None:
    run = await stage.running("order")
    await stage.finish(stage.died(run))
    await stage.store.rerun(run.id, **RERUN)
    await stage.fire()
    [again] = await stage.claim()
    await stage.finish(stage.puzzled(again))
    with pytest.raises(Conflict, match="may have happened"):
        await stage.store.rerun(run.id, **RERUN)


async def test_to_repeat_what_is_done_needs_an_override(stage: Stage) -> None:
    run = await ended(stage)
    repeating = {**RERUN, "repeat": ["pay"]}
    with pytest.raises(Conflict, match="done again"):
        await stage.store.rerun(run.id, **repeating)
    with pytest.raises(Conflict, match="'mail'"):
        await stage.store.rerun(run.id, **{**RERUN, "repeat": ["mail"], "override": True})
    await stage.store.rerun(run.id, **{**repeating, "override": True})
    [effect] = (await stage.run(run)).effects
    assert (effect.state, effect.note) == (NOT_DONE, "ada requested the repetition: because")


async def test_an_ambiguous_run_is_rerun_on_somebodys_word_and_is_answered_for(stage: Stage) -> None:
    run = await stage.ambiguous()
    with pytest.raises(Conflict, match="may have happened"):
        await stage.store.rerun(run.id, **RERUN)
    kept = await stage.store.rerun(run.id, **{**RERUN, "override": True})
    view = await stage.run(run)
    assert (view.state, view.detail) == (State.RECONCILED, f"replaced by rerun {kept.id}")
    assert [row.action for row in await stage.store.audit_of(run.id)] == ["rerun"]
    assert [row.note for row in await stage.store.audit_of(kept.id)] == [f"rerun of {run.id}: because"]


async def test_a_rerun_of_a_tick_belongs_to_its_schedule(stage: Stage) -> None:
    run = await stage.running_tick("daily")
    await stage.finish(stage.succeeded(run))
    kept = await stage.store.rerun(run.id, **RERUN)
    await stage.fire()
    [again] = await stage.claim()
    assert (again.id, again.schedule, again.nominal) == (kept.id, "daily", run.nominal)
    found = await stage.store.runs_between("daily", START, START + HOUR, 10)
    assert [one.id for one in found] == [run.id, kept.id]
    assert [one.id for one in await stage.store.runs_between("job", START, START + HOUR, 10)] == [run.id, kept.id]
    assert await stage.store.runs_between("daily", START + 1, START + HOUR, 10) == []


async def test_a_run_that_never_was_cannot_be_rerun(stage: Stage) -> None:
    with pytest.raises(UnknownName):
        await stage.store.rerun("nobody", **RERUN)


# --------------------------------------------------------------------------------------------------------------- poison


async def test_runs_of_a_lost_claim_are_handed_off_again_one_per_claim(stage: Stage) -> None:
    for key in "abc":
        await stage.promise(key)
    await stage.fire()
    runs = await stage.claim()
    await stage.store.lose([stage.lost(run, retry_at=stage.now, charged=False, deaths=0) for run in runs])
    await stage.fire()
    seen = []
    for _ in runs:
        [alone] = await stage.claim()
        seen.append((alone.id, alone.deaths, alone.spent))
        assert await stage.claim(suspects=False) == []
        await stage.finish(stage.succeeded(alone))
    assert sorted(seen) == [("a#1", 0, 0), ("b#1", 0, 0), ("c#1", 0, 0)]


async def test_a_run_under_suspicion_is_claimed_beside_others_under_its_own_token(stage: Stage) -> None:
    poison = await stage.running("a")
    await stage.store.lose([stage.lost(poison, retry_at=stage.now, deaths=1)])
    await stage.promise("b")
    await stage.fire()
    first, second = sorted(await stage.claim(), key=lambda run: run.id)
    assert (first.deaths, second.deaths) == (1, None)
    assert first.token != second.token


async def test_a_worker_that_tries_one_already_is_given_the_others_only(stage: Stage) -> None:
    poison = await stage.running("a")
    await stage.store.lose([stage.lost(poison, retry_at=stage.now, deaths=1)])
    await stage.promise("b")
    await stage.fire()
    assert [run.id for run in await stage.claim(suspects=False)] == ["b#1"]
    assert [run.id for run in await stage.claim()] == ["a#1"]


async def test_a_crowd_under_suspicion_does_not_hide_what_waits_behind_it(stage: Stage) -> None:
    for number in range(100):
        await stage.promise(f"crowd-{number}")
    await stage.fire()
    crowd = await stage.claim(limit=100)
    await stage.store.lose([stage.lost(run, retry_at=stage.now, charged=False, deaths=0) for run in crowd])
    await stage.promise("behind")
    await stage.fire()
    [alone] = await stage.claim(limit=1)
    assert alone.deaths == 0
    assert [run.id for run in await stage.claim(suspects=False)] == ["behind#1"]


async def test_suspicion_stays_when_a_claim_is_given_back_and_goes_when_the_run_comes_back_alive(stage: Stage) -> None:
    run = await stage.running("a")
    await stage.store.lose([stage.lost(run, retry_at=stage.now, deaths=1)])
    await stage.fire()
    [alone] = await stage.claim()
    await stage.store.give_back(await stage.worker(), [alone])
    assert await stage.claim(suspects=False) == []
    [alone] = await stage.claim()
    assert alone.deaths == 1
    await stage.finish(stage.failed(alone, 0))
    assert (await stage.run(run)).deaths is None


async def lose(stage: Stage, run: Claimed, deaths: int | None = 0) -> Claimed:
    """The next attempt of a run whose worker vanished."""
    await stage.store.lose([stage.lost(run, retry_at=stage.now, charged=False, deaths=deaths)])
    await stage.fire()
    [again] = await stage.claim()
    return again


async def silent(stage: Stage) -> SilentAttempt:
    stage.clock.advance(2 * SECOND)
    [attempt] = await stage.store.silent(stage.now)
    return attempt


async def test_losses_in_a_row_are_counted_for_the_watch_and_for_the_worker(stage: Stage) -> None:
    run = await stage.running()
    assert (await silent(stage)).losses == 0
    run = await lose(stage, run, deaths=None)
    assert (run.deaths, run.losses) == (None, 0), "the number is read only under suspicion"
    assert (await silent(stage)).losses == 1
    run = await lose(stage, run)
    run = await lose(stage, run)
    assert (run.deaths, run.losses) == (0, 3)
    seen = await silent(stage)
    assert (seen.losses, seen.deaths, seen.slots) == (3, 0, 10)


async def test_an_interruption_keeps_the_count_of_losses_and_any_other_end_clears_it(stage: Stage) -> None:
    run = await lose(stage, await lose(stage, await stage.running()))
    await stage.finish(stage.ending(run, Event.GIVEN_BACK, Outcome.INTERRUPTED, deaths=run.deaths))
    await stage.fire()
    [run] = await stage.claim()
    assert (run.deaths, run.losses) == (0, 2)
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [run] = await stage.claim()
    assert (run.deaths, (await silent(stage)).losses) == (None, 0)
    run = await lose(stage, run, deaths=None)
    assert (await silent(stage)).losses == 1


async def test_the_refused_report_of_a_lost_attempt_clears_no_suspicion(stage: Stage) -> None:
    first = await stage.running()
    run = await lose(stage, first)
    await stage.finish(stage.failed(first, 0))
    assert (await lose(stage, run)).losses == 2


async def test_runs_that_wait_under_suspicion_are_counted_until_a_worker_has_them(stage: Stage) -> None:
    for key in "abc":
        await stage.promise(key)
    await stage.fire()
    runs = await stage.claim()
    await stage.store.lose([stage.lost(run, retry_at=stage.now, charged=False, deaths=0) for run in runs[:2]])
    await stage.store.lose([stage.lost(run, retry_at=stage.now, charged=False) for run in runs[2:]])
    await stage.fire()
    assert (await stage.store.counts())["suspected"] == 2
    assert len(await stage.claim()) == 2, "one of them, and the one without suspicion"
    assert (await stage.store.counts())["suspected"] == 1


async def test_a_process_that_died_alone_is_kept_with_its_run(stage: Stage) -> None:
    run = await lose(stage, await lose(stage, await stage.running()))
    retry = {"retry_at": stage.now, "reason": Reason.LOST}
    await stage.finish(stage.ending(run, Event.RETRY_GRANTED, Outcome.LOST, deaths=1, **retry))
    await stage.fire()
    assert await stage.claim(suspects=False) == []
    [run] = await stage.claim()
    assert (run.deaths, run.losses, run.spent) == (1, 3, 1)
    await stage.finish(stage.ending(run, Event.GAVE_UP, Outcome.LOST, deaths=2, reason=Reason.POISON))
    view = await stage.run(run)
    assert (view.state, view.reason, view.deaths) == (State.DEAD, Reason.POISON, 2)


async def test_a_run_that_was_poison_is_tried_alone_when_somebody_has_it_tried_again(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.lose([stage.lost(run, Event.GAVE_UP, deaths=3)._replace(reason=Reason.POISON)])
    await stage.store.retry(run.id, override=False, **WHO)
    await stage.fire()
    assert await stage.claim(suspects=False) == []
    [again] = await stage.claim()
    assert again.deaths == 0


async def test_a_success_that_comes_after_the_attempt_was_ended_is_fenced(stage: Stage) -> None:
    run = await stage.running()
    await stage.running("other")  # so that the worker itself is not given up
    await stage.store.lose([stage.lost(run, retry_at=stage.now, outcome=Outcome.TIMED_OUT)])
    assert await stage.finish(stage.succeeded(run)) == [stage.succeeded(run)]


async def test_a_lost_attempt_whose_end_was_foretold_is_told_as_that(stage: Stage) -> None:
    run = await stage.running()
    told = Progress(run.number, run.token, START, None, None, ending=Outcome.TIMED_OUT)
    await stage.store.beat(await stage.worker(), [told])
    stage.clock.advance(HOUR)
    [silent] = await stage.store.silent(stage.now)
    assert silent.ending is Outcome.TIMED_OUT
    await stage.store.lose([stage.lost(run, outcome=Outcome.TIMED_OUT, stage=Where.BEFORE_EFFECT)])
    [attempt] = (await stage.run(run)).attempts
    assert (attempt.outcome, attempt.stage) == (Outcome.TIMED_OUT, Where.BEFORE_EFFECT)
    assert [event.kind for event in await stage.events()] == ["timed_out"]


async def test_durations_of_the_latest_runs_are_told(stage: Stage) -> None:
    for seconds in (1, 2, 3):
        run = await stage.running()
        stage.clock.advance(seconds * SECOND)
        await stage.finish(stage.succeeded(run, started_at=stage.now - seconds * SECOND))
    assert await stage.store.durations("job", 2) == [3 * SECOND, 2 * SECOND]
    assert await stage.store.durations("other", 2) == []


async def test_durations_of_a_job_that_seldom_runs_are_those_of_its_ticks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stage.running_tick("nightly")
    stage.clock.advance(7 * SECOND)
    await stage.finish(stage.succeeded(run, started_at=stage.now - 7 * SECOND))
    await stage.store.cancel((await stage.promise("later")).id, actor="ana", note="")
    monkeypatch.setattr(reading, "BUDGET", 1)
    assert await stage.store.durations("job", 5) == [7 * SECOND]


# ----------------------------------------------------------------------------------------------- no end hides an effect


async def left_open(stage: Stage, **more: Any) -> Claimed:
    """A run that is to be retried, and of which an effect is open that the next attempt could settle."""
    run = await stage.running("order", **more)
    await stage.begin(run, settles=Settles.PROBE)
    await stage.finish(stage.failed(run, MINUTE))
    return run


async def test_a_run_with_an_open_effect_is_parked_and_not_cancelled(stage: Stage) -> None:
    run = await left_open(stage)
    kept = await stage.store.cancel(run.id, **WHO)
    assert (kept.outcome, kept.state) == ("parked", State.AMBIGUOUS)
    view = await stage.run(run)
    assert (view.state, view.reason) == (State.AMBIGUOUS, "effect")
    assert view.detail == "the run was about to end (operator), and one of its effects has no recorded outcome: because"


async def test_a_run_with_an_open_effect_that_is_too_late_is_parked_and_not_skipped(stage: Stage) -> None:
    run = await left_open(stage, useful_until=START + SECOND)
    stage.clock.advance(HOUR)
    await stage.fire()
    assert await stage.state(run) is State.AMBIGUOUS


async def test_a_run_with_an_open_effect_that_was_claimed_too_late_is_parked_and_not_skipped(stage: Stage) -> None:
    run = await left_open(stage, useful_until=START + 2 * MINUTE)
    stage.clock.advance(MINUTE)
    await stage.fire()
    stage.clock.advance(HOUR)
    assert await stage.claim() == []
    assert await stage.state(run) is State.AMBIGUOUS


async def test_a_run_that_was_asked_to_stop_and_left_an_effect_open_is_parked(stage: Stage) -> None:
    run = await stage.running("order")
    await stage.begin(run, settles=Settles.PROBE)
    await stage.store.cancel(run.id, **WHO)
    await stage.finish(stage.failed(run, MINUTE))
    assert await stage.state(run) is State.AMBIGUOUS
    assert (await stage.store.beat(await stage.worker(), [])).cancel == []


async def test_the_ledger_of_a_rerun_is_found_by_its_own_number_after_it_ended(stage: Stage) -> None:
    run = await ended(stage)
    kept = await stage.store.rerun(run.id, **{**RERUN, "repair": True})
    await stage.fire()
    [again] = await stage.claim()
    await stage.finish(stage.succeeded(again))
    assert [one.key for one in await stage.store.ledger_of(again.number)] == ["7"]
    assert (await stage.run(kept)).repair
