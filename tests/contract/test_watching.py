"""beat, silent, lose, and who is there: what must not be silent."""

from __future__ import annotations

import pytest

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.run import Progress
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.store import JobCard
from foliot.store import process
from tests.contract.stage import START, TTL, Stage, declared, fires_hourly, holds

# ----------------------------------------------------------------------------------------------------------------- beat


async def test_a_beat_keeps_what_attempts_said_of_themselves(stage: Stage) -> None:
    run = await stage.running()
    stage.clock.advance(SECOND)
    beat = await stage.store.beat(
        await stage.worker(), [Progress(run.number, run.token, START + 1, b'{"done":1,"of":2}', b"page 1")]
    )
    assert (beat.known, beat.cancel) == (True, [])
    view = await stage.run(run)
    assert (view.started_at, view.progress, view.state) == (START + 1, b'{"done":1,"of":2}', State.RUNNING)
    [attempt] = view.attempts
    assert attempt.started_at == START + 1
    [worker] = [one for one in await stage.store.instances() if one.number == await stage.worker()]
    assert worker.beat_at == START + SECOND


async def test_an_attempt_that_says_nothing_new_keeps_what_it_said(stage: Stage) -> None:
    run = await stage.running()
    for note, checkpoint in ((b"1", b"a"), (None, None)):
        await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, note, checkpoint)])
    assert (await stage.run(run)).progress == b"1"
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [again] = await stage.claim()
    assert again.checkpoint == b"a"


async def test_a_checkpoint_is_there_for_the_next_attempt(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, b"page 7")])
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [again] = await stage.claim()
    assert again.checkpoint == b"page 7"


async def test_progress_stays_with_the_run_that_ended(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, b"3", None)])
    await stage.finish(stage.succeeded(run))
    assert (await stage.run(run)).progress == b"3"


async def test_what_an_attempt_says_after_it_lost_its_lease_is_not_kept(stage: Stage) -> None:
    lost = await stage.running()
    await stage.running("other")  # so that the worker itself is not given up
    await stage.store.lose([stage.lost(lost)])
    await stage.fire()
    [owner] = await stage.claim(worker=await stage.register())
    await stage.store.beat(await stage.worker(), [Progress(lost.number, lost.token, START, b"old", b"old")])
    view = await stage.run(owner)
    assert (view.progress, view.started_at) == (None, None)


async def test_what_an_instance_says_that_is_no_longer_known_is_not_kept(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.retire(await stage.worker())
    beat = await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, b"1", None)])
    assert beat.known is False
    assert (await stage.run(run)).progress is None


async def test_an_unknown_or_retired_instance_is_told_that_it_is_not_known(stage: Stage) -> None:
    retired = await stage.register()
    await stage.store.retire(retired)
    assert (await stage.store.beat(retired, [])).known is False
    assert (await stage.store.beat(4711, [])).known is False
    assert (await stage.store.beat(await stage.register(), [])).known is True


# --------------------------------------------------------------------------------------------------------------- silent


async def test_attempts_of_a_worker_that_was_not_heard_of_are_silent(stage: Stage) -> None:
    await stage.worker()
    stage.clock.advance(SECOND)
    run = await stage.running("class:7", options=b'{"lease":5}')
    assert await stage.store.silent(START) == []
    [attempt] = await stage.store.silent(START + 1)
    assert (attempt.number, attempt.name, attempt.job, attempt.token) == (run.number, "class:7#1", "job", run.token)
    assert (attempt.attempt, attempt.spent, attempt.options) == (1, 0, b'{"lease":5}')
    assert (attempt.nominal, attempt.claimed_at, attempt.beat_at) == (START + SECOND, START + SECOND, START)
    assert attempt.gone is False


async def test_a_worker_that_beats_is_not_silent_and_its_neighbour_is(stage: Stage) -> None:
    quiet = await stage.running()
    talker = await stage.register()
    await stage.running(worker=talker)
    stage.clock.advance(MINUTE)
    await stage.store.beat(talker, [])
    assert [one.number for one in await stage.store.silent(stage.now)] == [quiet.number]


async def test_a_worker_without_attempts_may_be_silent(stage: Stage) -> None:
    await stage.register()
    assert await stage.store.silent(START + HOUR) == []


async def test_a_silent_attempt_tells_when_its_run_was_first_due(stage: Stage) -> None:
    run = await stage.running()
    stage.clock.advance(MINUTE)
    await stage.finish(stage.failed(run, MINUTE))
    stage.clock.advance(MINUTE)
    await stage.fire()
    await stage.claim()
    [attempt] = await stage.store.silent(stage.now + 1)
    assert (attempt.nominal, attempt.attempt, attempt.spent) == (START, 2, 1)


async def test_an_attempt_whose_worker_is_shutting_down_ends_as_interrupted(stage: Stage) -> None:
    await stage.running()
    await stage.store.beat(await stage.worker(), [], leaving=True)
    await stage.store.beat(await stage.worker(), [])
    [attempt] = await stage.store.silent(stage.now + 1)
    assert attempt.ending is Outcome.INTERRUPTED


async def test_an_attempt_that_is_past_its_time_ends_so_although_its_worker_is_shutting_down(stage: Stage) -> None:
    run = await stage.running()
    said = Progress(run.number, run.token, START, None, None, ending=Outcome.TIMED_OUT)
    await stage.store.beat(await stage.worker(), [said], leaving=True)
    [attempt] = await stage.store.silent(stage.now + 1)
    assert attempt.ending is Outcome.TIMED_OUT


async def test_the_watch_learns_from_a_process_that_starts_on_the_same_host_that_a_worker_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.running()
    [attempt] = await stage.store.silent(stage.now + 1)
    assert attempt.gone is False
    with monkeypatch.context() as same_host:
        same_host.setattr(process, "is_gone", lambda *_: True)
        await stage.register()
    [attempt] = await stage.store.silent(START)
    assert attempt.gone is True, "this process itself cannot see that"


# ----------------------------------------------------------------------------------------------------------------- lose


async def test_a_lost_attempt_leaves_an_attempt_row_and_an_event(stage: Stage) -> None:
    run = await stage.running("class:7")
    stage.clock.advance(MINUTE)
    assert await stage.store.lose([stage.lost(run, retry_at=stage.now + SECOND)]) == 1
    view = await stage.run(run)
    assert (view.state, view.fire_at, view.nominal, view.spent, view.worker) == (
        State.RETRYING,
        stage.now + SECOND,
        START,
        1,
        None,
    )
    [attempt] = view.attempts
    assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, Outcome.LOST, await stage.worker())
    assert (attempt.finished_at, attempt.error) == (stage.now, "not heard of")
    [event] = await stage.events("lost")
    assert event.subject == "class:7#1"
    assert "class:7#1/1" in event.detail


async def test_a_lost_attempt_keeps_when_it_began(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START + 1, None, None)])
    stage.clock.advance(MINUTE)
    await stage.store.lose([stage.lost(run)])
    [attempt] = (await stage.run(run)).attempts
    assert attempt.started_at == START + 1


async def test_a_lost_attempt_that_may_have_done_something_is_parked(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.lose([stage.lost(run, Event.MAYBE_FOUND)])
    view = await stage.run(run)
    assert (view.state, view.reason) == (State.AMBIGUOUS, Reason.LOST)


async def test_a_lost_attempt_is_tried_again_no_sooner_than_decided(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.lose([stage.lost(run, retry_at=START + MINUTE)])
    stage.clock.advance(MINUTE - 1)
    assert (await stage.fire()).handed_off == 0
    stage.clock.advance(1)
    assert (await stage.fire()).handed_off == 1
    [again] = await stage.claim(worker=await stage.register())
    assert (again.attempt, again.spent) == (2, 1)
    assert again.token > run.token


async def test_an_interrupted_attempt_is_due_again_at_once_and_costs_nothing(stage: Stage) -> None:
    run = await stage.running()
    stage.clock.advance(SECOND)
    given_back = stage.lost(run, Event.GIVEN_BACK, outcome=Outcome.INTERRUPTED, charged=False)
    assert await stage.store.lose([given_back]) == 1
    view = await stage.run(run)
    assert (view.state, view.spent, view.deaths) == (State.SCHEDULED, 0, None)
    assert [attempt.outcome for attempt in view.attempts] == [Outcome.INTERRUPTED]
    await stage.fire()
    [again] = await stage.claim(worker=await stage.register())
    assert (again.attempt, again.spent) == (2, 0)


async def test_an_attempt_that_finished_meanwhile_keeps_its_verdict(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.succeeded(run))
    assert await stage.store.lose([stage.lost(run)]) == 0
    assert await stage.state(run) is State.SUCCEEDED
    assert await stage.events() == []


async def test_an_attempt_is_lost_once(stage: Stage) -> None:
    run = await stage.running()
    assert await stage.store.lose([stage.lost(run, retry_at=START)]) == 1
    assert await stage.store.lose([stage.lost(run, retry_at=START)]) == 0
    await stage.fire()
    [again] = await stage.claim(worker=await stage.register())
    assert await stage.store.lose([stage.lost(run, retry_at=START)]) == 0
    assert (await stage.run(again)).state is State.RUNNING
    assert len(await stage.events("lost")) == 1


async def test_one_loss_that_came_too_late_does_not_keep_the_others_from_being_lost(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise()
    await stage.fire()
    first, second, third = await stage.claim()
    await stage.finish(stage.succeeded(second))
    assert await stage.store.lose([stage.lost(run, retry_at=START) for run in (first, second, third)]) == 2
    assert await stage.store.silent(START + HOUR) == []


async def test_an_instance_whose_attempts_were_all_lost_is_told_so_by_its_next_beat(stage: Stage) -> None:
    first = await stage.running()
    second = await stage.running()
    await stage.store.lose([stage.lost(first)])
    assert (await stage.store.beat(await stage.worker(), [])).known is True
    await stage.store.lose([stage.lost(second)])
    assert (await stage.store.beat(await stage.worker(), [])).known is False
    assert await stage.worker() not in [one.number for one in await stage.store.instances()]


async def test_a_loss_drops_the_wish_to_stop(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.cancel(run.id, actor="ada", note="")
    await stage.store.lose([stage.lost(run, retry_at=START)])
    assert (await stage.run(run)).cancel_requested is False


async def test_a_loss_that_came_too_late_does_not_drop_the_wish_to_stop_the_new_attempt(stage: Stage) -> None:
    old = await stage.running()
    await stage.finish(stage.failed(old, 0))
    await stage.fire()
    [owner] = await stage.claim()
    await stage.store.cancel(owner.id, actor="ada", note="")
    await stage.store.lose([stage.lost(old)])
    assert (await stage.store.beat(await stage.worker(), [])).cancel == [owner.number]


async def test_a_lost_run_that_is_parked_releases_what_was_held_for_it(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    stage.clock.advance(HOUR)
    await stage.fire(holds)
    await stage.store.lose([stage.lost(run, Event.EXHAUSTED)])
    assert await stage.state(run) is State.DEAD
    assert await stage.state("hourly@2026-04-03T03:00:00Z") is State.SCHEDULED


async def test_a_lost_fixed_delay_run_that_is_parked_makes_the_next(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    await stage.store.lose([stage.lost(run, Event.MAYBE_FOUND)])
    assert [one.fire_at for one in await stage.waiting("poll")] == [stage.now + HOUR]


# ---------------------------------------------------------------------------------------------------------------- fleet


async def test_every_start_of_a_process_gets_a_number_of_its_own(stage: Stage) -> None:
    first, second = await stage.register(), await stage.register()
    await stage.store.retire(second)
    assert len({first, second, await stage.register()}) == 3


async def test_an_instance_is_remembered_as_it_registered(stage: Stage) -> None:
    made = await stage.store.register("worker", version="1.2", queues=["mail", "default"], slots=7, jobs=[])
    [found] = await stage.store.instances()
    assert found == made
    assert (found.role, found.version, found.queues, found.slots) == ("worker", "1.2", ("mail", "default"), 7)
    assert (found.started_at, found.beat_at, found.ended_at) == (START, START, None)


async def test_instances_are_those_that_have_not_ended(stage: Stage) -> None:
    first, second = await stage.register(), await stage.register("scheduler")
    await stage.store.retire(first)
    assert [one.number for one in await stage.store.instances()] == [second]


async def test_what_an_instance_measured_of_its_clock_is_remembered(stage: Stage) -> None:
    number = await stage.register()
    [fresh] = await stage.store.instances()
    assert (fresh.offset_low, fresh.offset_high, fresh.fenced) == (None, None, False)
    await stage.store.report_clock(number, -2 * SECOND, -SECOND, True)
    [found] = await stage.store.instances()
    assert (found.offset_low, found.offset_high, found.fenced) == (-2 * SECOND, -SECOND, True)


async def test_a_scheduler_with_a_wrong_clock_does_not_count_until_it_is_right_again(stage: Stage) -> None:
    first, second = await stage.register("scheduler"), await stage.register("scheduler")
    await stage.store.report_clock(first, HOUR, HOUR, True)
    assert (await stage.store.standing(second, TTL)).schedulers == [second]
    await stage.store.report_clock(first, 0, 0, False)
    assert (await stage.store.standing(second, TTL)).schedulers == [first, second]


async def test_tidying_up_takes_nothing_away_that_is_fresh(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running()))
    waiting = await stage.promise(after=HOUR)
    await stage.store.tidy()
    assert {run.state for run in await stage.store.runs()} == {State.SUCCEEDED, State.SCHEDULED}
    assert await stage.state(waiting) is State.SCHEDULED


async def test_renewing_a_lease_is_a_sign_of_life(stage: Stage) -> None:
    lease = await stage.lease()
    stage.clock.advance(SECOND)
    assert await stage.store.renew([lease], TTL, START) != []
    [scheduler] = await stage.store.instances()
    assert scheduler.beat_at == START + SECOND


async def test_the_store_knows_jobs_as_they_were_last_registered(stage: Stage) -> None:
    assert await stage.store.jobs() == {}
    old = JobCard("remind", b'{"attempts":1}', "mail", owner="ada")
    new = JobCard("remind", b'{"attempts":2}', "default", owner="bob", runbook="http://x", changes="mails")
    other = JobCard("bill", b"{}", "default")
    await stage.store.register("worker", version="1", queues=[], slots=1, jobs=[old])
    await stage.store.register("worker", version="2", queues=[], slots=1, jobs=[new, other])
    assert await stage.store.jobs() == {"remind": new, "bill": other}


async def test_a_note_is_an_event(stage: Stage) -> None:
    await stage.store.note("bad_policy", "remind", "cannot be read")
    [event] = await stage.events()
    assert (event.kind, event.subject, event.detail, event.at) == ("bad_policy", "remind", "cannot be read", START)
