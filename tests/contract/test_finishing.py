"""finish: a recorded outcome, and everything that follows from it."""

from __future__ import annotations

import pytest

from foliot import Foliot
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.ledger import Item, ItemState
from foliot.domain.run import Claimed, Progress
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.operate.story import lineage_shape, story
from tests.contract.stage import START, Stage, declared, fires_hourly, holds


async def attempts(stage: Stage, run: Claimed) -> list[tuple[int, str | None]]:
    return [(one.attempt, one.outcome) for one in (await stage.run(run)).attempts]


async def nobody_silent(stage: Stage) -> bool:
    """Whether no claim is left open: what `silent` looks through."""
    return await stage.store.silent(stage.now + HOUR) == []


async def test_a_success_goes_to_history_with_its_times_and_its_result(stage: Stage) -> None:
    run = await stage.running("class:7", tenant="acme", queue=None, priority=2)
    stage.clock.advance(SECOND)
    ending = stage.succeeded(run, started_at=START + 1, result=b'{"sent":[1,"\\u0000",null]}')
    assert await stage.finish(ending) == []
    view = await stage.run(run)
    assert (view.state, view.attempt, view.spent) == (State.SUCCEEDED, 1, 1)
    assert (view.fire_at, view.fired_at, view.claimed_at) == (START, START, START)
    assert (view.started_at, view.finished_at) == (START + 1, START + SECOND)
    assert view.result == b'{"sent":[1,"\\u0000",null]}'
    assert (view.tenant, view.priority, view.name) == ("acme", 2, "class:7[acme]#1")
    [attempt] = view.attempts
    assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, Outcome.SUCCEEDED, await stage.worker())
    assert (attempt.started_at, attempt.finished_at) == (START + 1, START + SECOND)


async def test_the_happy_path_writes_no_events(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.succeeded(run))
    assert await stage.events() == []


async def test_a_failure_is_tried_again_when_it_was_decided_to_be(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run, MINUTE, error="ValueError: no\nTraceback"))
    view = await stage.run(run)
    assert (view.state, view.fire_at, view.nominal) == (State.RETRYING, START + MINUTE, START)
    assert (view.spent, view.attempt, view.worker, view.detail) == (1, 1, None, "ValueError: no")
    [attempt] = view.attempts
    assert (attempt.outcome, attempt.error, attempt.worker) == (
        Outcome.FAILED,
        "ValueError: no\nTraceback",
        await stage.worker(),
    )
    assert (await stage.fire()).handed_off == 0
    stage.clock.advance(MINUTE)
    assert (await stage.fire()).handed_off == 1
    [again] = await stage.claim()
    assert (again.number, again.attempt, again.spent, again.nominal) == (run.number, 2, 1, START)


async def test_a_run_keeps_all_of_its_attempts(stage: Stage) -> None:
    run = await stage.running()
    for outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.STALLED):
        await stage.finish(stage.failed(run, 0)._replace(outcome=outcome))
        await stage.fire()
        [run] = await stage.claim()
    await stage.finish(stage.succeeded(run))
    assert await attempts(stage, run) == [(1, "failed"), (2, "timed_out"), (3, "stalled"), (4, "succeeded")]
    assert (await stage.run(run)).spent == 4


async def test_a_run_out_of_attempts_is_parked_among_the_dead(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.died(run))
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail, view.spent) == (
        State.DEAD,
        Reason.ATTEMPTS,
        "ValueError: no",
        1,
    )
    assert await attempts(stage, run) == [(1, "failed")]
    assert (await stage.store.counts())["dead"] == 1
    assert await stage.loaded(await stage.lease()) == []
    assert await stage.store.ended_since(0, 10) == []


async def test_a_permanent_error_is_parked_too(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.ending(run, Event.GAVE_UP, Outcome.PERMANENT, reason=Reason.PERMANENT, error="gone"))
    assert (await stage.run(run)).reason == Reason.PERMANENT
    assert await attempts(stage, run) == [(1, "permanent")]


async def test_an_effect_that_may_have_happened_is_parked_as_ambiguous(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.puzzled(run))
    assert await stage.state(run) is State.AMBIGUOUS


async def test_an_unreadable_payload_is_set_aside_and_told(stage: Stage) -> None:
    run = await stage.running("class:7")
    await stage.finish(stage.ending(run, Event.GAVE_UP, Outcome.PERMANENT, reason=Reason.BAD_PAYLOAD, error="not JSON"))
    [event] = await stage.events("run_set_aside")
    assert (event.subject, event.detail) == ("class:7#1", "not JSON")


OUTCOMES = {
    Outcome.FAILED: Event.RETRY_GRANTED,
    Outcome.TIMED_OUT: Event.RETRY_GRANTED,
    Outcome.STALLED: Event.EXHAUSTED,
    Outcome.PERMANENT: Event.GAVE_UP,
    Outcome.INTERRUPTED: Event.GIVEN_BACK,
    Outcome.CANCELLED: Event.CANCEL,
    Outcome.SUCCEEDED: Event.COMPLETED,
}
"""Every outcome that a worker records, with an event that may follow."""


def reported(run: Claimed, *items: Item, checkpoint: bytes | None = None, note: bytes | None = None) -> Progress:
    return Progress(run.number, run.token, START, note, checkpoint, items)


async def next_attempt(stage: Stage, run: Claimed) -> Claimed:
    if await stage.state(run) is State.DEAD:
        await stage.store.retry((await stage.run(run)).id, override=False, actor="ann", note="")
    stage.clock.advance(MINUTE)
    await stage.fire()
    [again] = await stage.claim()
    return again


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
async def test_an_ending_keeps_what_its_attempt_reported(stage: Stage, outcome: Outcome) -> None:
    run = await stage.running()
    await stage.store.beat(await stage.worker(), [reported(run, Item("", "a", ItemState.DONE), checkpoint=b"1")])
    report = reported(
        run,
        Item("", "b", ItemState.DONE, None, 3),
        Item("", "c", ItemState.FAILED, "no", 3),
        Item("pages", "1", ItemState.DONE),
        checkpoint=b"2",
        note=b'{"done":2}',
    )
    retry_at = START + MINUTE if OUTCOMES[outcome] is Event.RETRY_GRANTED else None
    ending = stage.ending(run, OUTCOMES[outcome], outcome, retry_at=retry_at, report=report)
    assert await stage.finish(ending) == []
    assert await stage.finish(ending) == [], "sent again, it changes nothing"
    assert await stage.store.done_items(run.number, "") == {"a", "b"}
    assert await stage.store.done_items(run.number, "pages") == {"1"}
    view = await stage.run(run)
    assert [(one.name, one.of, one.done, one.failed) for one in view.batches] == [("", 3, 2, 1), ("pages", None, 1, 0)]
    assert (view.progress or view.attempts[0].progress) == b'{"done":2}'
    if view.state not in (State.SUCCEEDED, State.CANCELLED):
        assert (await next_attempt(stage, run)).checkpoint == b"2"


async def test_a_heartbeat_that_comes_after_the_ending_changes_nothing(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run, report=reported(run, Item("", "a", ItemState.DONE), checkpoint=b"2")))
    late = reported(run, Item("", "b", ItemState.DONE), checkpoint=b"1")
    assert (await stage.store.beat(await stage.worker(), [late])).unheard == {run.number}
    assert await stage.store.done_items(run.number, "") == {"a"}
    view = await stage.run(run)
    assert (view.state, view.spent) == (State.RETRYING, 1)
    assert (await next_attempt(stage, run)).checkpoint == b"2"


async def test_a_fenced_ending_keeps_nothing_of_its_report(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.interrupted(run))
    again = await next_attempt(stage, run)
    late = stage.failed(run, report=reported(run, Item("", "a", ItemState.DONE), checkpoint=b"1"))
    assert await stage.finish(late) == [late]
    assert await stage.store.done_items(run.number, "") == set()
    await stage.finish(stage.interrupted(again))
    assert (await next_attempt(stage, run)).checkpoint is None


async def test_an_interruption_costs_no_attempt(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.interrupted(run))
    view = await stage.run(run)
    assert (view.state, view.spent, view.fire_at) == (State.SCHEDULED, 0, START)
    assert await attempts(stage, run) == [(1, "interrupted")]
    await stage.fire()
    [again] = await stage.claim()
    assert (again.number, again.spent) == (run.number, 0)


async def test_a_run_that_stopped_on_request_ends_as_cancelled_for_the_reason_of_whoever_asked(stage: Stage) -> None:
    by_operator, by_key = await stage.running("class:7"), await stage.running("class:8")
    await stage.store.cancel(by_operator.id, actor="ada", note="wrong class")
    await stage.store.cancel_promise("class:8", None, actor="app", note="class is off")
    await stage.finish(stage.stopped(by_operator), stage.stopped(by_key))
    for run, reason, detail in (
        (by_operator, Reason.OPERATOR, "wrong class"),
        (by_key, Reason.REQUESTED, "class is off"),
    ):
        view = await stage.run(run)
        assert (view.state, view.reason, view.detail, view.cancel_requested) == (
            State.CANCELLED,
            reason,
            detail,
            False,
        )
        assert await attempts(stage, run) == [(1, "cancelled")]


async def test_the_wish_to_stop_is_dropped_when_the_attempt_ended(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.cancel(run.id, actor="ada", note="")
    await stage.finish(stage.succeeded(run))
    assert (await stage.store.beat(await stage.worker(), [])).cancel == []
    assert await stage.state(run) is State.SUCCEEDED


async def test_many_endings_are_recorded_together_each_in_its_own_way(stage: Stage) -> None:
    for _ in range(5):
        await stage.promise()
    await stage.fire()
    a, b, c, d, e = await stage.claim()
    refused = await stage.finish(
        stage.succeeded(a), stage.failed(b), stage.died(c), stage.interrupted(d), stage.stopped(e)
    )
    assert refused == []
    assert [await stage.state(run) for run in (a, b, c, d, e)] == [
        State.SUCCEEDED,
        State.RETRYING,
        State.DEAD,
        State.SCHEDULED,
        State.CANCELLED,
    ]
    assert await nobody_silent(stage)


async def test_finishing_nothing_is_allowed(stage: Stage) -> None:
    assert await stage.finish() == []


async def test_any_text_can_be_an_error(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.died(run, error="Grüße \x00 🙂 \"'; DROP TABLE run"))
    [attempt] = (await stage.run(run)).attempts
    assert attempt.error == "Grüße ␀ 🙂 \"'; DROP TABLE run"  # a NUL is shown: no engine's text can hold it safely


# --------------------------------------------------------------------------------------------------------------- fenced


async def lost_and_taken_again(stage: Stage) -> tuple[Claimed, Claimed, int]:
    """An attempt that lost its lease, the one that owns the run now, and the worker of that one."""
    lost = await stage.running("class:7")
    await stage.store.lose([stage.lost(lost)])
    await stage.fire()
    other = await stage.register()
    [owner] = await stage.claim(worker=other)
    return lost, owner, other


async def test_an_attempt_that_lost_its_lease_cannot_finish(stage: Stage) -> None:
    lost, owner, other = await lost_and_taken_again(stage)
    ending = stage.succeeded(lost, result=b"1")
    assert await stage.finish(ending) == [ending]
    view = await stage.run(lost)
    assert (view.state, view.worker, view.attempt, view.result) == (State.RUNNING, other, 2, None)
    assert await stage.finish(stage.succeeded(owner, result=b"2"), worker=other) == []
    assert (await stage.run(lost)).result == b"2"


async def test_a_refused_ending_is_recorded_as_fenced_beside_the_loss(stage: Stage) -> None:
    lost, _, _ = await lost_and_taken_again(stage)
    await stage.finish(stage.failed(lost))
    assert sorted(await attempts(stage, lost), key=str) == [(1, "fenced"), (1, "lost"), (2, None)]
    [event] = await stage.events("fenced")
    assert event.subject == "class:7#1"
    assert "class:7#1/1" in event.detail
    lineage = await Foliot(stage.store, clock=stage.clock).operate.lineage_async("class:7#1")
    shown = [(one["attempt"], one["outcome"]) for one in lineage_shape(lineage)["attempts"]]
    assert sorted(shown, key=str) == [(1, "lost"), (2, None)], "people see each attempt once"
    assert any(line.text.startswith("fenced: ") for line in story(lineage))


@pytest.mark.parametrize("ending", [Stage.succeeded, Stage.died], ids=["in history", "parked"])
async def test_a_late_ending_does_not_change_the_verdict_that_stands(stage: Stage, ending) -> None:
    lost, owner, other = await lost_and_taken_again(stage)
    await stage.finish(ending(stage, owner), worker=other)
    verdict = await stage.run(lost)
    assert len(await stage.finish(stage.stopped(lost))) == 1
    after = await stage.run(lost)
    assert (after.state, after.finished_at, after.spent) == (verdict.state, verdict.finished_at, verdict.spent)
    assert len(await stage.events("fenced")) == 1


async def test_a_refused_ending_does_not_hide_the_attempt_that_counts(stage: Stage) -> None:
    """A claim that was given back leaves its number to the next: both attempts are the first."""
    given_back = await stage.running()
    await stage.store.give_back(await stage.worker(), [given_back])
    other = await stage.register()
    [owner] = await stage.claim(worker=other)
    assert len(await stage.finish(stage.succeeded(given_back))) == 1
    assert sorted(await attempts(stage, owner), key=str) == [(1, "fenced"), (1, None)]
    await stage.finish(stage.succeeded(owner), worker=other)
    assert sorted(await attempts(stage, owner), key=str) == [(1, "fenced"), (1, "succeeded")]


async def test_a_fenced_ending_does_not_harm_the_others_of_its_batch(stage: Stage) -> None:
    lost, owner, _ = await lost_and_taken_again(stage)
    fresh = await stage.running("class:8")
    assert await stage.finish(stage.succeeded(lost), stage.succeeded(fresh)) == [stage.succeeded(lost)]
    assert await stage.state(fresh) is State.SUCCEEDED
    assert await stage.state(owner) is State.RUNNING


async def test_a_fenced_ending_leaves_the_claim_of_the_new_owner_open(stage: Stage) -> None:
    lost, owner, _ = await lost_and_taken_again(stage)
    await stage.finish(stage.succeeded(lost))
    stage.clock.advance(HOUR)
    assert [one.token for one in await stage.store.silent(stage.now)] == [owner.token]


async def test_a_fenced_ending_does_not_drop_the_wish_to_stop_the_new_attempt(stage: Stage) -> None:
    lost, owner, other = await lost_and_taken_again(stage)
    await stage.store.cancel(owner.id, actor="ada", note="")
    await stage.finish(stage.succeeded(lost))
    assert (await stage.store.beat(other, [])).cancel == [owner.number]


async def test_a_fenced_ending_makes_no_successor_and_releases_nobody(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(HOUR)
    await stage.fire()
    [lost] = await stage.claim()
    await stage.store.lose([stage.lost(lost)])
    await stage.finish(stage.succeeded(lost))
    assert [run.id for run in await stage.store.runs(schedule="poll")] == [lost.id]


@pytest.mark.parametrize(
    "ending",
    [Stage.succeeded, Stage.failed, Stage.died, Stage.interrupted, Stage.stopped],
    ids=["succeeded", "failed", "died", "interrupted", "stopped"],
)
async def test_the_same_ending_told_twice_is_told_once(stage: Stage, ending) -> None:
    """A worker that never got its answer says it again."""
    run = await stage.running()
    told = ending(stage, run)
    assert await stage.finish(told) == []
    before = await stage.run(run)
    assert await stage.finish(told) == []
    assert await stage.run(run) == before
    assert await stage.events() == []


async def test_the_same_ending_told_twice_is_not_fenced_when_the_run_has_moved_on(stage: Stage) -> None:
    run = await stage.running()
    told = stage.failed(run, 0)
    await stage.finish(told)
    await stage.fire()
    [again] = await stage.claim()
    assert await stage.finish(told) == []
    assert await stage.state(run) is State.RUNNING
    assert await stage.finish(stage.succeeded(again)) == []
    assert await attempts(stage, run) == [(1, "failed"), (2, "succeeded")]


async def test_the_same_ending_twice_in_one_call_counts_once(stage: Stage) -> None:
    """A batch that was put together twice over must neither charge twice nor close the claim of its neighbour."""
    for _ in range(2):
        await stage.promise()
    await stage.fire()
    run, neighbour = await stage.claim()
    await stage.finish(stage.failed(run), stage.failed(run))
    assert (await stage.run(run)).spent == 1
    stage.clock.advance(HOUR)
    assert [one.number for one in await stage.store.silent(stage.now)] == [neighbour.number]


# --------------------------------------------------------------------------------------------------------- what follows


async def test_a_claim_is_closed_when_all_of_it_has_ended(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise()
    await stage.fire()
    first, second, third = await stage.claim()
    stage.clock.advance(HOUR)
    await stage.finish(stage.succeeded(first))
    assert {one.number for one in await stage.store.silent(stage.now)} == {second.number, third.number}
    await stage.store.give_back(await stage.worker(), [second])
    assert {one.number for one in await stage.store.silent(stage.now)} == {third.number}
    await stage.finish(stage.failed(third))
    assert await nobody_silent(stage)


@pytest.mark.parametrize("ending", [Stage.succeeded, Stage.died, Stage.puzzled, Stage.stopped])
async def test_the_end_of_a_fixed_delay_run_makes_the_next_counted_from_the_stores_clock(stage: Stage, ending) -> None:
    await stage.apply(declared("poll", None, delay=HOUR, payload=b"[1]"))
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    stage.clock.advance(7 * MINUTE)
    await stage.finish(ending(stage, run)._replace(finished_at=START))
    [following] = await stage.waiting("poll")
    assert (following.fire_at, following.nominal, following.payload) == (stage.now + HOUR, stage.now + HOUR, b"[1]")
    assert (await stage.store.schedule("poll")).schedule.last_created == following.id


@pytest.mark.parametrize("ending", [Stage.failed, Stage.interrupted])
async def test_a_fixed_delay_run_that_goes_on_makes_no_successor_yet(stage: Stage, ending) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    await stage.finish(ending(stage, run))
    assert [one.id for one in await stage.store.runs(schedule="poll")] == [run.id]


async def test_a_fixed_delay_has_one_chain_also_when_runs_are_triggered_beside_it(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    await stage.store.trigger("poll", actor="ada", note="")
    await stage.fire()
    [manual] = await stage.claim()
    stage.clock.advance(MINUTE)
    await stage.finish(stage.succeeded(manual))
    assert [run.fire_at for run in await stage.waiting("poll")] == [START + HOUR]
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    told = stage.succeeded(run)
    await stage.finish(told)
    stage.clock.advance(MINUTE)
    await stage.finish(told)
    assert len(await stage.waiting("poll")) == 1


async def test_a_fixed_delay_is_not_continued_for_a_schedule_that_was_removed(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    await stage.apply(prune=True)
    assert await stage.finish(stage.succeeded(run)) == []
    assert await stage.waiting("poll") == []


@pytest.mark.parametrize("ending", [Stage.succeeded, Stage.died, Stage.stopped])
async def test_what_was_held_is_released_when_the_run_before_it_ended(stage: Stage, ending) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    stage.clock.advance(HOUR)
    await stage.fire(holds)
    held = "hourly@2026-04-03T03:00:00Z"
    assert await stage.state(held) is State.HELD
    await stage.finish(ending(stage, run))
    view = await stage.run(held)
    assert (view.state, view.reason, view.detail) == (State.SCHEDULED, None, None)
    assert (await stage.fire()).handed_off == 1


async def test_what_was_held_stays_held_while_the_run_before_it_is_tried_again(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    stage.clock.advance(HOUR)
    await stage.fire(holds)
    await stage.finish(stage.failed(run))
    assert await stage.state("hourly@2026-04-03T03:00:00Z") is State.HELD


async def test_the_end_of_one_schedules_run_releases_nothing_of_another(stage: Stage) -> None:
    await stage.apply(declared("other", START))
    await stage.fire(holds)
    run = await stage.running_tick("hourly")
    await stage.finish(stage.succeeded(run))
    assert await stage.state("other@2026-04-03T02:00:00Z") is State.HELD
