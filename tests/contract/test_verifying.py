"""Checks of business results: handed off when the work is committed, and asked first when nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.ledger import EffectState, Traits, traits_to_json
from foliot.domain.ledger import Stage as Where
from foliot.domain.run import Phase
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.store import JobCard
from foliot.errors import Conflict, UnknownName
from tests.contract.stage import START, Stage, declared, fires

STARTED, DONE, NOT_DONE = EffectState.STARTED, EffectState.DONE, EffectState.NOT_DONE
WHO: dict[str, Any] = {"actor": "ada", "note": "because"}


# ------------------------------------------------------------------------------------------------------------ verifying


async def test_a_success_is_committed_before_its_check_and_the_check_is_claimed_at_once(stage: Stage) -> None:
    run = await stage.running("books")
    await stage.finish(stage.checkable(run, result=b"412"))
    view = await stage.run(run)
    assert (view.state, view.result, view.phase) == (State.VERIFYING, b"412", Phase.CHECK)
    [attempt] = view.attempts
    assert (attempt.outcome, attempt.attempt) == (Outcome.SUCCEEDED, 1)
    [check] = await stage.claim()
    assert (check.number, check.phase, check.attempt, check.spent) == (run.number, Phase.CHECK, 2, 0)
    assert await stage.state(run) is State.VERIFYING


async def test_a_worker_without_the_check_is_not_given_it(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.checkable(run))
    assert await stage.claim(jobs=["job"]) == []
    assert len(await stage.claim()) == 1


async def test_a_worker_with_room_for_the_check_alone_is_given_it(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.checkable(run))
    assert len(await stage.claim(jobs=["job?"])) == 1


async def test_a_run_that_waits_for_its_check_can_be_reconciled(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.checkable(run))
    await stage.store.reconcile(run.id, settled=[], actor="ada", evidence="looked it up")
    assert await stage.state(run) is State.RECONCILED


async def test_a_check_that_passes_ends_the_run_with_its_scope(stage: Stage) -> None:
    run = await stage.running()
    began = stage.now
    await stage.finish(stage.checkable(run, result=b"412"))
    stage.clock.advance(MINUTE)
    [check] = await stage.claim()
    scope = "412 of 412 accounts"
    await stage.finish(stage.ending(check, Event.CHECK_PASSED, Outcome.SUCCEEDED, scope=scope, stage=Where.CHECK))
    view = await stage.run(run)
    assert (view.state, view.detail, view.result) == (State.VERIFIED, scope, b"412")
    assert (view.started_at, view.finished_at) == (began, began + MINUTE)
    assert [(one.attempt, one.outcome, one.stage) for one in view.attempts] == [
        (1, Outcome.SUCCEEDED, None),
        (2, Outcome.SUCCEEDED, Where.CHECK),
    ]


async def test_a_check_that_says_no_parks_the_run(stage: Stage) -> None:
    check = await stage.checking()
    ending = stage.ending(check, Event.CHECK_REFUSED, Outcome.FAILED, reason=Reason.CHECK, scope="397 of 412")
    await stage.finish(ending)
    view = await stage.run(check)
    assert (view.state, view.reason, view.detail, view.phase) == (State.UNVERIFIED, "check", "397 of 412", None)


async def test_a_check_that_broke_is_made_again_and_only_the_check(stage: Stage) -> None:
    check = await stage.checking(result=b"1")
    await stage.finish(stage.failed(check, MINUTE, reason=Reason.CHECK_FAILED, stage=Where.CHECK))
    view = await stage.run(check)
    assert (view.state, view.spent, view.fire_at) == (State.VERIFYING, 1, START + MINUTE)
    stage.clock.advance(MINUTE)
    await stage.fire()
    assert await stage.claim(jobs=["job"]) == []
    [again] = await stage.claim()
    assert (again.phase, again.attempt) == (Phase.CHECK, 3)
    assert (await stage.run(check)).result == b"1"


async def test_a_lost_check_is_made_again_and_only_the_check(stage: Stage) -> None:
    check = await stage.checking()
    await stage.store.lose([stage.lost(check, retry_at=stage.now, charged=False, deaths=0)])
    assert await stage.state(check) is State.VERIFYING
    await stage.fire()
    [again] = await stage.claim()
    assert (again.phase, again.spent) == (Phase.CHECK, 0)


async def test_a_check_that_a_worker_gave_back_is_a_check_again(stage: Stage) -> None:
    check = await stage.checking()
    await stage.store.give_back(await stage.worker(), [check])
    assert await stage.state(check) is State.VERIFYING
    assert await stage.claim(jobs=["job"]) == []
    [again] = await stage.claim()
    assert (again.phase, again.attempt) == (Phase.CHECK, 2)


async def test_a_check_that_no_live_worker_has_is_told(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.checkable(run))
    await stage.store.tidy()
    assert await stage.events("unknown_job") == []
    stage.clock.advance(2 * MINUTE)
    await stage.store.tidy()
    await stage.store.tidy()
    [told] = await stage.events("unknown_job")
    assert (told.subject, told.detail) == (
        "job",
        "no live worker has registered the check of job 'job'; its verifying runs wait",
    )


async def test_a_check_that_no_live_worker_has_for_long_is_given_up_and_its_schedule_goes_on(stage: Stage) -> None:
    run = await stage.running_tick("hourly")
    await stage.finish(stage.checkable(run))
    stage.clock.advance(6 * MINUTE)
    await stage.store.tidy()
    view = await stage.run(run)
    assert (view.state, view.reason) == (State.UNVERIFIED, "check_failed")
    assert view.detail == "no live worker has registered the check of job for a long time"
    seen = []
    await stage.store.trigger("hourly", actor="ada", note="now")
    await stage.fire(lambda fact: seen.append(fact.occupied_by) or fires(fact))  # type: ignore[func-returns-value]
    assert seen == [None]


async def test_a_check_that_a_live_worker_has_is_not_told(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.checkable(run))
    stage.clock.advance(2 * MINUTE)
    card = JobCard("job", b"{}", "default", traits=traits_to_json(Traits(checked=True)))
    await stage.store.register("worker", version="", queues=["default"], slots=1, jobs=[card])
    await stage.store.tidy()
    assert await stage.events("unknown_job") == []


async def test_it_is_never_too_late_to_check(stage: Stage) -> None:
    run = await stage.running(useful_until=START + SECOND)
    await stage.finish(stage.checkable(run))
    stage.clock.advance(HOUR)
    assert len(await stage.claim()) == 1


async def test_a_run_that_is_being_checked_cannot_be_cancelled(stage: Stage) -> None:
    check = await stage.checking()
    with pytest.raises(Conflict, match="only its check"):
        await stage.store.cancel(check.id, **WHO)


async def test_a_schedule_is_busy_until_its_run_is_checked(stage: Stage) -> None:
    await stage.apply(declared("daily", START))
    await stage.fire()
    [run] = await stage.claim()
    await stage.finish(stage.checkable(run))
    kept = await stage.store.trigger("daily", actor="ada", note="now")
    seen = []
    await stage.fire(lambda fact: seen.append(fact.occupied_by) or fires(fact))  # type: ignore[func-returns-value]
    assert seen == [run.id]
    assert kept.state is State.SCHEDULED


async def test_runs_that_are_being_checked_are_listed_and_counted_as_such(stage: Stage) -> None:
    waiting, running, check = await stage.running("a"), await stage.running("b"), await stage.checking("c")
    await stage.finish(stage.checkable(waiting))
    found = await stage.store.runs(states=[State.VERIFYING])
    assert {one.id for one in found} == {waiting.id, check.id}
    assert [one.id for one in await stage.store.runs(states=[State.RUNNING])] == [running.id]
    assert await stage.store.runs(states=[State.RETRYING, State.READY]) == []
    counts = await stage.store.counts()
    assert (counts["verifying"], counts["running"], counts["retrying"], counts["ready"]) == (2, 1, 0, 0)


# ---------------------------------------------------------------------------------------------------------------- doubt


async def test_a_check_is_asked_first_when_nobody_knows_whether_work_was_done(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.finish(stage.ending(run, Event.DOUBTED, Outcome.TIMED_OUT, reason=Reason.EFFECT, error="cut off"))
    [check] = await stage.claim()
    assert (check.phase, await stage.state(run)) == (Phase.DOUBT, State.VERIFYING)
    await stage.finish(stage.ending(check, Event.CHECK_PASSED, Outcome.SUCCEEDED, scope="all paid"))
    view = await stage.run(run)
    assert (view.state, view.detail) == (State.VERIFIED, "all paid")
    [effect] = view.effects
    assert (effect.state, effect.note) == (DONE, "the check of the whole run passed")


async def test_a_run_that_was_lost_in_doubt_is_put_to_its_check(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.lose([stage.lost(run, Event.DOUBTED)])
    [check] = await stage.claim()
    assert check.phase == Phase.DOUBT
    await stage.finish(stage.ending(check, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.CHECK))
    assert await stage.state(run) is State.AMBIGUOUS


async def test_an_operator_has_a_run_verified_again(stage: Stage) -> None:
    check = await stage.checking(result=b"1")
    await stage.finish(stage.ending(check, Event.CHECK_REFUSED, Outcome.FAILED, reason=Reason.CHECK))
    kept = await stage.store.recheck(check.id, **WHO)
    assert (kept.outcome, kept.state) == ("rechecked", State.VERIFYING)
    [again] = await stage.claim()
    assert again.phase == Phase.CHECK
    await stage.finish(stage.ending(again, Event.CHECK_PASSED, Outcome.SUCCEEDED))
    view = await stage.run(check)
    assert (view.state, view.result) == (State.VERIFIED, b"1")
    assert [(row.actor, row.action, row.note) for row in await stage.store.audit_of(check.id)] == [
        ("ada", "verify", "because")
    ]


async def test_a_check_that_was_poison_is_made_alone_when_somebody_has_it_made_again(stage: Stage) -> None:
    check = await stage.checking()
    await stage.store.lose([stage.lost(check, Event.CHECK_REFUSED)._replace(reason=Reason.POISON)])
    await stage.store.recheck(check.id, **WHO)
    assert await stage.claim(suspects=False) == []
    assert len(await stage.claim()) == 1


async def test_an_ambiguous_run_is_checked_in_doubt(stage: Stage) -> None:
    run = await stage.ambiguous()
    await stage.store.recheck(run.id, **WHO)
    [check] = await stage.claim()
    assert check.phase == Phase.DOUBT


async def test_a_dead_run_has_nothing_to_check(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.died(run))
    with pytest.raises(Conflict, match="no result"):
        await stage.store.recheck(run.id, **WHO)
    with pytest.raises(UnknownName):
        await stage.store.recheck("nobody", **WHO)
