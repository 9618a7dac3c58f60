"""Pauses: what is held, what goes on, by whose word, and what becomes of it when the pause ends."""

from __future__ import annotations

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, Instant
from foliot.domain.pauses import Pause, What
from foliot.domain.run import Claimed
from foliot.domain.state import Reason, State
from foliot.domain.store import Wish
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from tests.contract.stage import START, Stage, declared, fires_hourly

HOURLY = every("1h").encode()
EACH = pytest.mark.parametrize("name", ["job:job", "queue:default", "tenant:acme"])


async def pause(stage: Stage, name: str, what: What = What.CLAIMS, until: Instant | None = None) -> Pause:
    return await stage.store.put_pause(name, what, until=until, actor="ada", note="the disk is full")


async def resume(stage: Stage, name: str, what: What = What.CLAIMS, *, catch_up: bool = False) -> Pause | None:
    return await stage.store.end_pause(name, what, actor="bob", note="it is not", catch_up=catch_up)


async def goes_on(stage: Stage) -> list[Claimed]:
    await stage.fire_by_policy()
    return await stage.claim()


# Claims


@EACH
async def test_nothing_that_is_paused_is_handed_to_a_worker_until_it_is_resumed(stage: Stage, name: str) -> None:
    await pause(stage, name)
    kept = await stage.promise(tenant="acme")
    assert (await stage.fire()).held == 1
    run = await stage.run(kept)
    assert (run.state, run.reason, run.detail) == (
        State.HELD,
        Reason.PAUSED,
        f"{name} is paused by ada: the disk is full",
    )
    assert await goes_on(stage) == []
    assert await resume(stage, name) is not None
    assert [one.id for one in await goes_on(stage)] == [kept.id]


async def test_the_runs_of_others_go_on(stage: Stage) -> None:
    for name in ("job:other", "queue:other", "tenant:other", "schedule:hourly"):
        if name == "schedule:hourly":
            await stage.apply(declared("hourly", None))
        await pause(stage, name)
    await stage.promise(tenant="acme")
    assert len(await goes_on(stage)) == 1


@EACH
async def test_what_was_handed_off_before_comes_back_and_is_held(stage: Stage, name: str) -> None:
    kept = await stage.promise(tenant="acme")
    await stage.fire()
    await pause(stage, name)
    assert await stage.claim() == []
    await stage.fire()
    assert ((await stage.run(kept)).state, (await stage.run(kept)).reason) == (State.HELD, Reason.PAUSED)
    await resume(stage, name)
    assert [one.id for one in await goes_on(stage)] == [kept.id]


async def test_what_runs_goes_on_to_its_end(stage: Stage) -> None:
    run = await stage.running()
    await pause(stage, "job:job")
    assert await stage.finish(stage.succeeded(run)) == []
    assert await stage.state(run) is State.SUCCEEDED


async def test_a_schedule_s_own_claims_can_be_paused_and_its_ticks_are_made_all_the_same(stage: Stage) -> None:
    await stage.apply(declared("hourly", START), declared("other", START))
    await pause(stage, "schedule:hourly")
    await stage.fire(fires_hourly)
    assert [one.schedule for one in await stage.claim()] == ["other"]
    assert [run.state for run in await stage.waiting("hourly")] == [State.HELD, State.SCHEDULED]


async def test_a_check_is_not_paused(stage: Stage) -> None:
    run = await stage.running()
    await pause(stage, "job:job")
    await stage.finish(stage.checkable(run))
    assert [one.number for one in await stage.claim()] == [run.number]


async def test_what_an_operator_releases_goes_against_the_pause(stage: Stage) -> None:
    await pause(stage, "job:job")
    kept = await stage.promise()
    await stage.fire()
    await stage.store.release_run(kept.id, actor="bob", note="this one")
    assert [one.id for one in await goes_on(stage)] == [kept.id]


async def test_of_two_pauses_both_have_to_end(stage: Stage) -> None:
    await pause(stage, "job:job")
    await pause(stage, "queue:default", until=START + HOUR)
    kept = await stage.promise()
    await stage.fire()
    await resume(stage, "job:job")
    assert await goes_on(stage) == []
    assert "queue:default is paused by ada until" in ((await stage.run(kept)).detail or "")
    stage.clock.advance(HOUR)
    assert [one.id for one in await goes_on(stage)] == [kept.id]


# Retries


async def test_paused_retries_wait_while_what_is_new_goes_on(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run))
    await pause(stage, "job:job", What.RETRIES)
    stage.clock.advance(2 * MINUTE)
    fresh = await stage.promise()
    assert [one.id for one in await goes_on(stage)] == [fresh.id]
    assert ((await stage.run(run)).state, (await stage.run(run)).reason) == (State.HELD, Reason.PAUSED)
    await resume(stage, "job:job", What.RETRIES)
    [again] = await goes_on(stage)
    assert (again.number, again.attempt) == (run.number, 2)


async def test_a_retry_that_was_handed_off_before_its_pause_comes_back(stage: Stage) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run))
    stage.clock.advance(2 * MINUTE)
    await stage.fire()
    await pause(stage, "job:job", What.RETRIES)
    assert await goes_on(stage) == []


# Its end


@pytest.mark.parametrize("what", [What.CLAIMS, What.RETRIES])
async def test_a_pause_with_an_end_ends_by_itself(stage: Stage, what: What) -> None:
    run = await stage.running()
    await stage.finish(stage.failed(run))
    stage.clock.advance(2 * MINUTE)
    await pause(stage, "job:job", what, until=stage.now + HOUR)
    await stage.fire()
    assert await stage.state(run) is State.HELD
    stage.clock.advance(HOUR - 1)
    assert await goes_on(stage) == []
    stage.clock.advance(1)
    assert [one.number for one in await goes_on(stage)] == [run.number]
    assert await stage.store.pauses() == []


async def test_another_end_is_heard_of_by_what_is_held_already(stage: Stage) -> None:
    await pause(stage, "job:job", until=START + 10 * HOUR)
    kept = await stage.promise()
    await stage.fire()
    await pause(stage, "job:job", until=START + HOUR)
    await stage.fire()
    stage.clock.advance(HOUR)
    assert [one.id for one in await goes_on(stage)] == [kept.id]


async def test_it_says_since_when_by_whom_and_why_and_keeps_its_beginning(stage: Stage) -> None:
    await pause(stage, "job:job")
    stage.clock.advance(HOUR)
    told = await stage.store.put_pause("job:job", What.CLAIMS, until=START + 9 * HOUR, actor="bob", note="still")
    assert told == Pause("job:job", What.CLAIMS, START, START + 9 * HOUR, "bob", "still")
    assert await stage.store.pauses() == [told]
    actions = [(row.actor, row.action, row.note) for row in await stage.store.audit_of("job:job")]
    assert actions == [("ada", "pause", "claims: the disk is full"), ("bob", "pause", "claims: still")]


async def test_what_is_not_paused_is_resumed_in_vain_and_nothing_is_written(stage: Stage) -> None:
    assert await resume(stage, "job:job") is None
    await pause(stage, "job:job", until=START + HOUR)
    stage.clock.advance(2 * HOUR)
    assert await resume(stage, "job:job") is None
    assert [row.action for row in await stage.store.audit_of("job:job")] == ["pause"]


async def test_a_schedule_that_is_not_there_cannot_be_paused(stage: Stage) -> None:
    for what in What:
        with pytest.raises(UnknownName):
            await pause(stage, "schedule:nobody", what)


async def test_a_schedule_that_goes_takes_its_pauses_with_it(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await pause(stage, "schedule:hourly")
    await stage.fire(fires_hourly)
    [held] = [run for run in await stage.waiting("hourly") if run.state is State.HELD]
    await stage.store.delete("hourly", actor="bob", note="no longer")
    assert await stage.store.pauses() == []
    assert [one.id for one in await goes_on(stage)] == [held.id]


# Creation


@pytest.mark.parametrize(
    ("name", "catch_up"), [("job:job", False), ("queue:default", True), ("tenant:acme", False), ("tenant:acme", True)]
)
async def test_ticks_that_fall_into_a_pause_of_what_they_are_about_are_made_up_for_only_if_asked(
    stage: Stage, name: str, catch_up: bool
) -> None:
    await stage.apply(
        declared("hourly", START, rule=HOURLY, tenant="acme"),
        declared("other", START, rule=HOURLY, job="another", queue="elsewhere"),
    )
    await pause(stage, name, What.CREATION)
    await stage.fire_by_policy()
    [held] = await stage.waiting("hourly")
    assert (held.state, held.detail) == (State.HELD, f"paused by ada: {name}: the disk is full")
    assert await stage.state("other@2026-04-03T02:00:00Z") is State.READY
    await stage.promise(tenant="acme")
    assert len(await goes_on(stage)) == 1, "what code promises is kept"
    stage.clock.advance(2 * HOUR)
    assert (await resume(stage, name, What.CREATION, catch_up=catch_up)) is not None
    await stage.fire_by_policy()
    first = await stage.run("hourly@2026-04-03T02:00:00Z")
    if catch_up:
        assert (first.state, first.reason) == (State.SKIPPED, Reason.COALESCED)
        assert await stage.state("hourly@2026-04-03T04:00:00Z") is State.READY
    else:
        assert (first.state, first.reason, first.span_count) == (State.SKIPPED, Reason.PAUSED, 3)
        assert first.detail == f"{name}: the disk is full"
        assert [run.nominal for run in await stage.waiting("hourly")] == [START + 3 * HOUR]


@pytest.mark.parametrize("tidied", [False, True])
async def test_a_pause_of_creation_ends_by_itself_and_its_ticks_are_not_made_up_for(stage: Stage, tidied: bool) -> None:
    await stage.apply(declared("hourly", START, rule=HOURLY))
    await pause(stage, "job:job", What.CREATION, until=START + 90 * MINUTE)
    await stage.fire_by_policy()
    stage.clock.advance(3 * HOUR)
    if tidied:
        await stage.store.tidy()
    await stage.fire_by_policy()
    first = await stage.run("hourly@2026-04-03T02:00:00Z")
    assert (first.state, first.reason, first.span_count) == (State.SKIPPED, Reason.PAUSED, 2)
    await stage.fire_by_policy()
    third = await stage.run("hourly@2026-04-03T04:00:00Z")
    assert (third.state, third.reason) == (State.SKIPPED, Reason.COALESCED)
    assert await stage.state("hourly@2026-04-03T05:00:00Z") is State.READY


async def test_a_schedule_s_own_pause_and_that_of_its_job_both_have_to_end(stage: Stage) -> None:
    await stage.apply(declared("hourly", START, rule=HOURLY))
    await pause(stage, "schedule:hourly", What.CREATION)
    await pause(stage, "job:job", What.CREATION)
    await stage.fire_by_policy()
    assert [one.name for one in await stage.store.pauses()] == ["job:job", "schedule:hourly"]
    stage.clock.advance(MINUTE)
    assert await resume(stage, "schedule:hourly", What.CREATION, catch_up=True) is not None
    assert await goes_on(stage) == []
    assert await resume(stage, "job:job", What.CREATION, catch_up=True) is not None
    assert len(await goes_on(stage)) == 1
    assert await resume(stage, "schedule:hourly", What.CREATION) is None


# Workers


async def test_a_worker_hears_with_its_heartbeat_what_a_person_wants_of_it(stage: Stage) -> None:
    worker = await stage.worker()
    assert (await stage.store.beat(worker, [])).wish is None
    assert await stage.store.wish(worker, Wish.QUARANTINE, actor="ada", note="it leaks")
    assert (await stage.store.beat(worker, [])).wish is Wish.QUARANTINE
    [shown] = [one for one in await stage.store.instances() if one.number == worker]
    assert (shown.wish, shown.wish_note) == (Wish.QUARANTINE, "ada: it leaks")
    assert not await stage.store.wish(worker, Wish.QUARANTINE, actor="ada", note="it leaks"), "it was told already"
    assert await stage.store.wish(worker, Wish.DRAIN, actor="ada", note="away with it")
    assert await stage.store.wish(worker, None, actor="ada", note="it was the other one")
    assert (await stage.store.beat(worker, [])).wish is None
    actions = [row.action for row in await stage.store.audit_of(f"worker:{worker}")]
    assert actions == ["quarantine", "drain", "resume"]


async def test_only_a_worker_that_is_there_can_be_told_anything(stage: Stage) -> None:
    gone, scheduler = await stage.register(), await stage.scheduler()
    await stage.store.retire(gone)
    for number in (gone, scheduler, 10_000):
        with pytest.raises(UnknownName, match="does not exist or has ended"):
            await stage.store.wish(number, Wish.DRAIN, actor="ada", note="out")


# Skipping


async def test_a_run_that_nobody_has_begun_is_skipped_by_an_operator(stage: Stage) -> None:
    ahead, ready = await stage.promise(after=HOUR), await stage.promise()
    await stage.fire()
    await pause(stage, "job:job")
    held = await stage.promise()
    await stage.fire()
    for kept in (ahead, ready, held):
        assert (await stage.store.skip(kept.id, actor="ada", note="not today")).outcome == "skipped"
        run = await stage.run(kept)
        assert (run.state, run.reason, run.detail) == (State.SKIPPED, Reason.OPERATOR, "not today")
        assert [row.action for row in await stage.store.audit_of(kept.id)] == ["skip"]
        with pytest.raises(Conflict, match="is skipped already"):
            await stage.store.skip(kept.id, actor="ada", note="not today")
    await resume(stage, "job:job")
    assert await goes_on(stage) == []


async def test_the_next_tick_of_a_schedule_is_withdrawn_and_the_one_after_it_comes(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR, rule=HOURLY))
    name = "hourly@2026-04-03T03:00:00Z"
    for _ in range(2):
        assert (await stage.store.skip(name, actor="ada", note="not today")).outcome == "withdrawn"
    assert [row.action for row in await stage.store.audit_of(name)] == ["skip"], "said twice, done once"
    stage.clock.advance(HOUR)
    assert await goes_on(stage) == []
    assert ((await stage.run(name)).state, (await stage.run(name)).reason) == (State.SKIPPED, Reason.OPERATOR)
    assert [run.nominal for run in await stage.waiting("hourly")] == [START + 2 * HOUR]


@pytest.mark.parametrize("until", [None, START + DAY])
async def test_a_tick_that_a_pause_holds_is_skipped_at_once(stage: Stage, until: Instant | None) -> None:
    await stage.apply(declared("hourly", START, rule=HOURLY))
    await stage.store.pause("hourly", until=until, actor="ada", note="month end")
    await stage.fire_by_policy()
    [held] = await stage.store.runs(states=[State.HELD])
    kept = await stage.store.skip(held.id, actor="ada", note="not today")
    assert (kept.outcome, kept.state) == ("withdrawn", State.SCHEDULED)
    await stage.fire_by_policy()
    run = await stage.run(held.id)
    assert (run.state, run.reason, run.detail) == (State.SKIPPED, Reason.OPERATOR, "not today")
    assert [one.nominal for one in await stage.waiting("hourly")] == [START + HOUR]


async def test_what_was_begun_is_not_skipped(stage: Stage) -> None:
    run = await stage.running()
    with pytest.raises(Conflict, match="cancel it instead"):
        await stage.store.skip(run.id, actor="ada", note="not today")
    await stage.finish(stage.failed(run))
    with pytest.raises(Conflict, match="has started"):
        await stage.store.skip(run.id, actor="ada", note="not today")
