"""claim and give_back: handed-off work finds one worker, in order."""

from __future__ import annotations

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import Lane, OnConflict, Origin, Promise
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, LostOwnership
from tests.contract.stage import START, Stage, declared, fires_hourly, holds


async def payloads(stage: Stage, limit: int = 100) -> list[bytes]:
    return [run.payload for run in await stage.claim(limit)]


async def test_a_claim_holds_everything_that_executing_it_needs(stage: Stage) -> None:
    await stage.promise(
        "class:7", tenant="acme", priority=3, payload=b"[1]", options=b'{"attempts":2}', useful_until=START + DAY
    )
    await stage.fire()
    [run] = await stage.claim()
    assert (run.id, run.name, run.job, run.payload) == ("class:7[acme]#1", "class:7[acme]#1", "job", b"[1]")
    assert (run.attempt, run.spent, run.fire_at, run.checkpoint) == (1, 0, START, None)
    assert (run.tenant, run.priority, run.options) == ("acme", 3, b'{"attempts":2}')
    assert (run.origin, run.lane, run.schedule, run.revision) == (Origin.DELAYED, Lane.LIVE, None, None)
    assert run.token > 0


async def test_a_claimed_run_is_owned_by_an_attempt_of_that_worker(stage: Stage) -> None:
    kept = await stage.promise()
    await stage.fire()
    stage.clock.advance(SECOND)
    await stage.claim()
    view = await stage.run(kept)
    assert (view.state, view.worker, view.attempt) == (State.RUNNING, await stage.worker(), 1)
    assert (view.fired_at, view.claimed_at, view.started_at) == (START, START + SECOND, None)
    assert [(one.attempt, one.outcome, one.worker) for one in view.attempts] == [(1, None, await stage.worker())]


async def test_work_is_taken_by_lane_then_priority_then_time(stage: Stage) -> None:
    stage.clock.advance(HOUR)
    for payload, after, priority in [
        (b"6", -2 * MINUTE, 0),
        (b"5", -2 * MINUTE, 5),
        (b"4", 0, -1),
        (b"3", 0, 0),
        (b"2", -SECOND, 0),
        (b"1", -SECOND, 5),
    ]:
        await stage.promise(after=after, payload=payload, priority=priority)
    await stage.fire()
    assert await payloads(stage) == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_the_order_also_holds_when_work_is_taken_one_by_one(stage: Stage) -> None:
    for payload, after, priority in [(b"4", -HOUR, 9), (b"3", 0, 0), (b"2", -1, 0), (b"1", 0, 1)]:
        await stage.promise(after=after, payload=payload, priority=priority)
    await stage.fire()
    assert [await payloads(stage, 1) for _ in range(5)] == [[b"1"], [b"2"], [b"3"], [b"4"], []]


async def test_what_was_fired_first_is_taken_first(stage: Stage) -> None:
    for payload in (b"1", b"2"):
        await stage.promise(payload=payload)
        await stage.fire()
    assert await payloads(stage) == [b"1", b"2"]


async def test_no_more_than_the_limit_is_taken_and_the_rest_stays(stage: Stage) -> None:
    await stage.store.promise([Promise("job", b"%d" % place, START + place) for place in range(5)])
    stage.clock.advance(5)
    await stage.fire()
    assert await payloads(stage, 2) == [b"0", b"1"]
    assert (await stage.store.counts())["ready"] == 3
    assert await payloads(stage, 2) == [b"2", b"3"]
    assert await payloads(stage, 0) == []
    assert await payloads(stage, 2) == [b"4"]


async def test_a_claim_may_take_from_several_chunks(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise()
        await stage.fire()
    assert len(await stage.claim(2)) == 2
    assert len(await stage.claim(2)) == 1


async def test_other_queues_are_left_alone(stage: Stage) -> None:
    await stage.promise(queue="mail")
    await stage.promise(queue="reports")
    await stage.promise()
    await stage.fire()
    assert [run.queue for run in await stage.claim(queues=["mail"])] == ["mail"]
    assert await stage.claim(queues=["nothing"]) == []
    assert len(await stage.claim(queues=["default", "reports"])) == 2


async def test_what_one_worker_took_no_other_can_take(stage: Stage) -> None:
    await stage.store.promise([Promise("job", b"", START) for _ in range(6)])
    await stage.fire()
    first = await stage.claim(4)
    second = await stage.claim(worker=await stage.register())
    assert len({run.number for run in first + second}) == len(first) + len(second) == 6


async def test_tokens_rise_with_every_claim(stage: Stage) -> None:
    run = await stage.running()
    tokens = [run.token]
    for _ in range(3):
        await stage.finish(stage.failed(run, 0))
        await stage.fire()
        [run] = await stage.claim()
        tokens.append(run.token)
    assert sorted(set(tokens)) == tokens


# ------------------------------------------------------------------------------------------------------------- re-check


async def test_what_was_cancelled_since_it_was_handed_off_is_passed_over(stage: Stage) -> None:
    gone, stays = await stage.promise(), await stage.promise()
    await stage.fire()
    await stage.store.cancel(gone.id, actor="test", note="")
    assert [run.number for run in await stage.claim()] == [stays.number]


async def test_what_was_moved_since_it_was_handed_off_is_passed_over_until_its_time(stage: Stage) -> None:
    await stage.promise("class:7")
    await stage.fire()
    await stage.store.move("class:7", None, START + SECOND)
    assert await stage.claim() == []
    stage.clock.advance(SECOND)
    await stage.fire()
    assert len(await stage.claim()) == 1


async def test_a_run_in_two_chunks_is_claimed_once(stage: Stage) -> None:
    kept = await stage.promise("class:7")
    lease = await stage.lease()
    await stage.store.fire([lease], [(START, kept.number)], lease.cursor, lambda facts, now: [])
    await stage.store.move("class:7", None, START + SECOND)
    stage.clock.advance(SECOND)
    await stage.store.fire([lease], [(START + SECOND, kept.number)], lease.cursor, lambda facts, now: [])
    assert [run.number for run in await stage.claim()] == [kept.number]
    assert await stage.claim(worker=await stage.register()) == []
    assert (await stage.run(kept)).attempt == 1


async def test_a_run_in_two_chunks_is_also_claimed_once_one_by_one(stage: Stage) -> None:
    kept = await stage.promise("class:7")
    lease = await stage.lease()
    await stage.store.fire([lease], [(START, kept.number)], lease.cursor, lambda facts, now: [])
    await stage.store.move("class:7", None, START + SECOND)
    stage.clock.advance(SECOND)
    await stage.store.fire([lease], [(START + SECOND, kept.number)], lease.cursor, lambda facts, now: [])
    assert [len(await stage.claim(1)), len(await stage.claim(1))] == [1, 0]


async def test_what_became_too_late_while_it_waited_for_a_worker_ends_as_skipped(stage: Stage) -> None:
    late = await stage.promise(useful_until=START + SECOND)
    useful = await stage.promise(useful_until=START + SECOND + 1)
    await stage.fire()
    stage.clock.advance(SECOND + 1)
    assert [run.number for run in await stage.claim()] == [useful.number]
    view = await stage.run(late)
    assert (view.state, view.reason, view.attempt) == (State.SKIPPED, Reason.TOO_LATE, 0)
    assert view.detail == "its useful time has passed, while it waited for a worker"


async def test_a_tick_that_became_too_late_at_the_claim_releases_what_was_held_for_it(stage: Stage) -> None:
    await stage.apply(declared("hourly", START, policy=Policy(useful_until=90 * MINUTE)))
    await stage.fire(fires_hourly)
    stage.clock.advance(HOUR)
    await stage.fire(holds)
    stage.clock.advance(HOUR)
    assert await stage.claim() == []
    assert await stage.state("hourly@2026-04-03T02:00:00Z") is State.SKIPPED
    assert await stage.state("hourly@2026-04-03T03:00:00Z") is State.SCHEDULED


async def test_nothing_is_claimed_before_its_time_when_the_clock_steps_back(stage: Stage) -> None:
    await stage.promise()
    await stage.fire()
    stage.clock.advance(-SECOND)
    assert await stage.claim() == []


async def test_what_a_claim_refused_because_the_clock_stepped_back_is_not_forgotten(stage: Stage) -> None:
    """It was handed off, so the wheel holds it no more: the chunk must keep it, or the owner must be told."""
    kept = await stage.promise()
    lease = await stage.lease()
    await stage.store.fire([lease], await stage.loaded(lease), lease.cursor, lambda facts, now: [])
    stage.clock.advance(-SECOND)
    await stage.claim()
    stage.clock.advance(SECOND)
    told = await stage.told(lease.cursor)
    await stage.store.fire([lease], told, lease.cursor, lambda facts, now: [])
    assert [run.number for run in await stage.claim()] == [kept.number]


# --------------------------------------------------------------------------------------------------------- unknown jobs


async def test_runs_of_unknown_jobs_are_left_for_a_worker_that_knows_them(stage: Stage) -> None:
    await stage.promise(job="strange", payload=b"strange")
    await stage.promise(payload=b"known")
    await stage.fire()
    assert await payloads(stage) == [b"known"]
    other = await stage.register(jobs=["strange"])
    [run] = await stage.claim(worker=other, jobs=["strange"])
    assert (run.payload, run.attempt) == (b"strange", 1)


async def test_unknown_jobs_do_not_keep_known_ones_from_a_worker(stage: Stage) -> None:
    for place in range(6):
        await stage.promise(job="strange" if place < 5 else "job", payload=b"%d" % place)
    await stage.fire()
    found: list[bytes] = []
    for _ in range(6):
        found += await payloads(stage, 1)
    assert found == [b"5"]
    assert len(await stage.claim(jobs=["strange"])) == 5


async def test_a_job_that_no_live_worker_knows_is_reported_once(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise(job="strange")
        await stage.fire()
        assert await stage.claim() == []
    [event] = await stage.events("unknown_job")
    assert event.subject == "strange"


async def test_a_job_that_another_live_worker_knows_is_not_reported(stage: Stage) -> None:
    await stage.register(jobs=["strange"])
    await stage.promise(job="strange")
    await stage.fire()
    assert await stage.claim() == []
    assert await stage.events("unknown_job") == []


async def test_a_job_that_only_a_retired_or_silent_worker_knew_is_reported(stage: Stage) -> None:
    await stage.store.retire(await stage.register(jobs=["strange"]))
    await stage.register(jobs=["silent"])
    stage.clock.advance(DAY)
    for job in ("strange", "silent"):
        await stage.promise(job=job)
    await stage.fire()
    assert await stage.claim() == []
    assert sorted(event.subject for event in await stage.events("unknown_job")) == ["silent", "strange"]


async def test_what_waits_for_a_worker_that_knows_it_is_still_ready(stage: Stage) -> None:
    kept = await stage.promise(job="strange")
    await stage.fire()
    await stage.claim()
    assert await stage.state(kept) is State.READY
    assert await stage.loaded(await stage.lease()) == []


# ------------------------------------------------------------------------------------------------------------ give back


async def test_what_never_began_is_given_back_without_a_trace(stage: Stage) -> None:
    run = await stage.running()
    assert await stage.store.give_back(await stage.worker(), [run]) == 1
    view = await stage.run(run)
    assert (view.state, view.attempt, view.spent, view.worker) == (State.READY, 0, 0, None)
    assert view.attempts == []
    assert await stage.events() == []
    [again] = await stage.claim(worker=await stage.register())
    assert (again.number, again.attempt) == (run.number, 1)
    assert again.token > run.token


async def test_a_retry_that_is_given_back_is_still_a_retry(stage: Stage) -> None:
    run = await stage.running("class:7")
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [second] = await stage.claim()
    await stage.store.give_back(await stage.worker(), [second])
    view = await stage.run(run)
    assert (view.state, view.attempt, view.spent) == (State.READY, 1, 1)
    with pytest.raises(Conflict):
        await stage.store.move("class:7", None, START + HOUR)
    [third] = await stage.claim()
    assert (third.attempt, third.spent) == (2, 1)


async def test_a_run_that_is_given_back_keeps_its_queue_lane_and_priority(stage: Stage) -> None:
    await stage.promise(after=-HOUR, queue="mail", priority=4)
    await stage.fire()
    [run] = await stage.claim(queues=["mail"])
    await stage.store.give_back(await stage.worker(), [run])
    assert await stage.claim() == []
    [again] = await stage.claim(queues=["mail"])
    assert (again.queue, again.lane, again.priority) == ("mail", Lane.CATCH_UP, 4)


async def test_a_tick_that_is_given_back_is_not_decided_again_and_occupies_its_schedule(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.store.give_back(await stage.worker(), [run])
    stage.clock.advance(HOUR)
    seen: list[tuple[str, str | None]] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append((fact.id, fact.occupied_by))
        return holds(fact)

    await stage.fire(judge)
    assert seen == [("hourly@2026-04-03T03:00:00Z", run.id)]


async def test_what_was_given_back_can_be_moved_and_cancelled(stage: Stage) -> None:
    moved, cancelled = await stage.running("class:7"), await stage.running("class:8")
    await stage.store.give_back(await stage.worker(), [moved, cancelled])
    await stage.store.move("class:7", None, START + HOUR)
    await stage.store.cancel(cancelled.id, actor="ada", note="")
    assert await stage.claim() == []
    stage.clock.advance(HOUR)
    await stage.fire()
    assert [run.number for run in await stage.claim()] == [moved.number]


async def test_claims_that_were_lost_cannot_be_given_back(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.lose([stage.lost(run)])
    await stage.fire()
    [second] = await stage.claim(worker=await stage.register())
    assert await stage.store.give_back(await stage.worker(), [run]) == 0
    view = await stage.run(run)
    assert (view.state, view.worker) == (State.RUNNING, (await stage.store.instances())[-1].number)
    assert await stage.finish(stage.succeeded(second)) == []


async def test_finished_claims_cannot_be_given_back(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.succeeded(run))
    assert await stage.store.give_back(await stage.worker(), [run]) == 0
    assert await stage.state(run) is State.SUCCEEDED


async def test_a_part_of_a_claim_can_be_given_back(stage: Stage) -> None:
    for _ in range(3):
        await stage.promise()
    await stage.fire()
    first, second, third = await stage.claim()
    assert await stage.store.give_back(await stage.worker(), [first, third]) == 2
    assert await stage.finish(stage.succeeded(second)) == []
    assert {run.number for run in await stage.claim()} == {first.number, third.number}


async def test_a_run_that_was_asked_to_stop_and_given_back_can_be_stopped_at_its_next_worker(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.cancel(run.id, actor="ada", note="")
    await stage.store.give_back(await stage.worker(), [run])
    if await stage.state(run) is State.CANCELLED:
        return  # keeping the wish would be better still
    other = await stage.register()
    [again] = await stage.claim(worker=other)
    await stage.store.cancel(run.id, actor="ada", note="I said stop")
    assert (await stage.store.beat(other, [])).cancel == [again.number]


async def test_a_worker_that_was_declared_dead_claims_nothing_until_it_registers_anew(stage: Stage) -> None:
    worker = await stage.register()
    await stage.promise()
    await stage.fire()
    await stage.store.retire(worker)
    with pytest.raises(LostOwnership):
        await stage.claim(worker=worker)
    assert len(await stage.claim(worker=await stage.register())) == 1


async def test_what_was_fired_by_a_clock_that_ran_ahead_is_claimed_when_it_is_due_and_not_before(stage: Stage) -> None:
    soon = await stage.promise(after=10 * MINUTE)
    later = await stage.promise(after=20 * HOUR)
    stage.clock.advance(DAY)
    await stage.fire()
    stage.clock.set(START)
    assert await stage.claim() == []
    stage.clock.advance(10 * MINUTE)
    assert [run.number for run in await stage.claim()] == [soon.number]
    stage.clock.advance(DAY)
    assert [run.number for run in await stage.claim()] == [later.number]


async def test_a_run_that_was_replaced_into_another_queue_is_not_claimed_from_the_old_one(stage: Stage) -> None:
    await stage.promise("render")
    await stage.fire()
    await stage.promise("render", queue="gpu", on_conflict=OnConflict.REPLACE)
    assert await stage.claim() == []
    await stage.fire()
    assert len(await stage.claim(queues=["gpu"])) == 1
