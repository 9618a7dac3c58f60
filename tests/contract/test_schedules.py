"""apply, pause, resume, trigger: standing rules, each with exactly one next run."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.policy import CatchUp, Policy
from foliot.domain.run import Kept, Origin
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from tests.contract.stage import START, Stage, declared, fires_hourly, holds, skips

# ---------------------------------------------------------------------------------------------------------------- apply


async def test_a_new_schedule_is_remembered_as_declared(stage: Stage) -> None:
    policy = Policy(attempts=2, catch_up=CatchUp.ALL, useful_until=HOUR)
    declaration = declared(
        "hourly",
        START + HOUR,
        job="bill",
        rule='{"every":1}',
        payload=b"[1]",
        policy=policy,
        options=b'{"attempts":2}',
        queue="mail",
        priority=3,
        tenant="acme",
        owner="ada",
        runbook="http://x",
        changes="invoices",
        fingerprint="f1",
    )
    applied = await stage.apply(declaration)
    assert (applied.created, applied.changed, applied.unchanged, applied.vanished) == (["hourly"], [], [], [])
    view = await stage.store.schedule("hourly")
    schedule = view.schedule
    assert (schedule.id, schedule.job, schedule.rule, schedule.payload) == ("hourly", "bill", '{"every":1}', b"[1]")
    assert (schedule.policy, schedule.options, schedule.delay) == (policy, b'{"attempts":2}', None)
    assert (schedule.queue, schedule.priority, schedule.tenant) == ("mail", 3, "acme")
    assert (schedule.owner, schedule.runbook, schedule.changes) == ("ada", "http://x", "invoices")
    assert (schedule.revision, schedule.fingerprint, schedule.made_at) == (1, "f1", START)
    assert (schedule.paused_at, schedule.fault, schedule.evaluated_through) == (None, None, None)


async def test_a_new_schedule_gets_exactly_one_waiting_run_at_its_first_time(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR, first_fire_at=START + HOUR + SECOND, payload=b"[1]"))
    [run] = await stage.store.runs()
    assert (run.id, run.state, run.origin) == ("hourly@2026-04-03T03:00:00Z", State.SCHEDULED, Origin.SCHEDULED)
    assert (run.nominal, run.fire_at, run.payload) == (START + HOUR, START + HOUR + SECOND, b"[1]")
    assert (run.schedule, run.revision) == ("hourly", 1)
    view = await stage.store.schedule("hourly")
    assert (view.next_id, view.next_nominal, view.next_fire_at) == (run.id, START + HOUR, START + HOUR + SECOND)
    assert view.schedule.last_created == run.id


async def test_the_first_run_of_a_schedule_is_useful_as_long_as_its_policy_says(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR, policy=Policy(useful_until=MINUTE)))
    stage.clock.set(START + HOUR)
    seen: list[TickFacts] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact)
        return fires_hourly(fact)

    await stage.fire(judge)
    assert seen[0].useful_until == START + HOUR + MINUTE


async def test_the_first_tick_stands_for_the_interval_that_was_declared_with_it(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR, first_since=START))
    assert (await stage.run("hourly@2026-04-03T03:00:00Z")).since == START


async def test_a_fixed_delay_run_is_useful_as_long_as_its_policy_says(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR, policy=Policy(useful_until=MINUTE)))
    seen: list[TickFacts] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact)
        return TickDecision(fact.number, "fire")

    for _ in range(2):
        stage.clock.advance(HOUR)
        await stage.fire(judge)
        [run] = await stage.claim()
        await stage.finish(stage.succeeded(run))
    assert [fact.useful_until for fact in seen] == [START + HOUR + MINUTE, START + 2 * HOUR + MINUTE]


async def test_a_rule_without_a_first_time_has_no_waiting_run(stage: Stage) -> None:
    await stage.apply(declared("never", None))
    assert await stage.store.runs() == []
    assert (await stage.store.schedule("never")).next_id is None


async def test_what_was_applied_already_is_left_alone(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    before = await stage.store.schedule("hourly")
    applied = await stage.apply(declared("hourly", START + 2 * HOUR, payload=b"[2]"))
    assert (applied.created, applied.changed, applied.unchanged) == ([], [], ["hourly"])
    assert await stage.store.schedule("hourly") == before


async def test_an_edit_raises_the_revision_and_leaves_exactly_one_waiting_run(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    applied = await stage.apply(declared("hourly", START + 2 * HOUR, payload=b"[2]", fingerprint="v2"))
    assert (applied.created, applied.changed) == ([], ["hourly"])
    schedule = (await stage.store.schedule("hourly")).schedule
    assert (schedule.revision, schedule.fingerprint, schedule.payload, schedule.made_at) == (2, "v2", b"[2]", START)
    [run] = await stage.store.runs()
    assert (run.nominal, run.revision, run.payload) == (START + 2 * HOUR, 2, b"[2]")


async def test_an_edit_that_keeps_the_time_of_the_next_tick_keeps_that_tick(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    await stage.apply(declared("hourly", START + HOUR, payload=b"[2]", fingerprint="v2"))
    [run] = await stage.store.runs()
    assert (run.id, run.revision, run.payload) == ("hourly@2026-04-03T03:00:00Z", 2, b"[2]")
    assert await stage.events() == []


async def test_a_tick_that_was_due_when_its_schedule_was_edited_is_kept_and_runs_under_the_new_template(
    stage: Stage,
) -> None:
    """It was promised; the new rule says what follows it, and nothing that was missed goes without a row."""
    await stage.apply(declared("hourly", START + HOUR))
    stage.clock.advance(3 * HOUR)
    await stage.apply(declared("hourly", START + 4 * HOUR, fingerprint="v2", payload=b'{"new":1}'))
    [run] = await stage.waiting("hourly")
    assert (run.nominal, run.payload, run.revision) == (START + HOUR, b'{"new":1}', 2)


async def test_a_held_tick_of_an_edited_schedule_is_decided_anew(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(holds)
    await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"))
    [run] = await stage.waiting("hourly")
    assert (run.nominal, run.state) == (START, State.SCHEDULED)


async def test_a_schedule_that_lost_its_next_run_gets_one_when_it_is_applied_again_unchanged(stage: Stage) -> None:
    """As after a release that could not read its rule: it fired the tick, and could not say what comes next."""
    await stage.apply(declared("hourly", START))
    await stage.fire(lambda fact: TickDecision(fact.number, "fire", fault="unreadable"))
    assert await stage.waiting("hourly") == []
    applied = await stage.apply(declared("hourly", START + HOUR))
    assert applied.unchanged == ["hourly"]
    assert [run.nominal for run in await stage.waiting("hourly")] == [START + HOUR]
    assert (await stage.store.schedule("hourly")).schedule.fault is None


async def test_a_pruned_schedule_can_be_declared_again(stage: Stage) -> None:
    await stage.apply(declared("yearly", START + HOUR))
    await stage.apply(prune=True)
    await stage.apply(declared("yearly", START + HOUR))
    assert [run.nominal for run in await stage.waiting("yearly")] == [START + HOUR]


async def test_an_edit_does_not_touch_runs_that_were_handed_off(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    stage.clock.advance(HOUR)
    await stage.fire(fires_hourly)
    await stage.apply(declared("hourly", START + DAY, fingerprint="v2"))
    assert await stage.state(run) is State.RUNNING
    assert await stage.state("hourly@2026-04-03T03:00:00Z") is State.READY
    assert [one.nominal for one in await stage.waiting("hourly")] == [START + DAY]


async def test_an_edit_whose_first_tick_came_due_on_the_way_still_leaves_one_waiting_run(stage: Stage) -> None:
    """Code counted the first tick from its own clock; a moment later, in the store, that tick is due already."""
    await stage.apply(declared("hourly", START + HOUR))
    stage.clock.advance(HOUR)
    await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"))
    assert len(await stage.waiting("hourly")) == 1


async def test_an_edit_whose_first_tick_was_fired_on_the_way_does_not_end_the_schedule(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    stage.clock.advance(HOUR)
    await stage.fire(fires_hourly)
    with suppress(Conflict):  # asking the caller to count again would be an answer too
        await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"))
    assert len(await stage.waiting("hourly")) == 1


async def test_an_edit_clears_a_fault(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(lambda fact: TickDecision(fact.number, "fire", fault="unreadable"))
    await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"))
    assert (await stage.store.schedule("hourly")).schedule.fault is None


async def test_an_operators_pause_survives_an_edit(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    await stage.store.pause("hourly", until=START + DAY, actor="ada", note="migration")
    await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"))
    schedule = (await stage.store.schedule("hourly")).schedule
    assert (schedule.paused_at, schedule.paused_until, schedule.paused_note) == (START, START + DAY, "migration")


async def test_schedules_that_are_no_longer_declared_are_reported_and_kept(stage: Stage) -> None:
    await stage.apply(declared("a", START + HOUR), declared("b", START + HOUR), declared("c", START + HOUR))
    applied = await stage.apply(declared("b", START + HOUR))
    assert (applied.vanished, applied.pruned, applied.unchanged) == (["a", "c"], [], ["b"])
    assert len(await stage.store.schedules()) == 3
    assert len(await stage.store.runs()) == 3


async def test_pruning_removes_them_and_a_waiting_run_that_was_due_ends_as_skipped(stage: Stage) -> None:
    await stage.apply(declared("a", START + HOUR), declared("b", START + HOUR))
    stage.clock.advance(HOUR)
    applied = await stage.apply(declared("b", START + HOUR), prune=True)
    assert (applied.vanished, applied.pruned) == (["a"], ["a"])
    assert [view.schedule.id for view in await stage.store.schedules()] == ["b"]
    run = await stage.run("a@2026-04-03T03:00:00Z")
    assert (run.state, run.reason) == (State.SKIPPED, Reason.REVISED)
    assert len(await stage.waiting("b")) == 1


async def test_schedules_that_code_never_declared_do_not_vanish(stage: Stage) -> None:
    await stage.apply(declared("made at run time", START + HOUR, fingerprint=""))
    applied = await stage.apply(prune=True)
    assert (applied.vanished, applied.pruned) == ([], [])
    assert len(await stage.store.schedules()) == 1


async def test_applying_is_all_or_nothing(stage: Stage) -> None:
    bad = declared("b", START + HOUR, payload="not bytes at all: a mistake of the caller")
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the engine says to it
        await stage.apply(declared("a", START + HOUR), bad)
    assert await stage.store.schedules() == []
    assert await stage.store.runs() == []


async def test_a_schedule_can_be_declared_again_after_it_was_pruned(stage: Stage) -> None:
    await stage.apply(declared("a", START + HOUR))
    await stage.apply(prune=True)
    applied = await stage.apply(declared("a", START + 2 * HOUR))
    assert applied.created == ["a"]
    assert len(await stage.waiting("a")) == 1


async def test_a_fixed_delay_begins_one_delay_after_it_was_declared(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=10 * MINUTE))
    [run] = await stage.store.runs()
    assert (run.fire_at, run.nominal) == (START + 10 * MINUTE, START + 10 * MINUTE)


async def test_an_edited_fixed_delay_waits_for_the_run_that_is_busy(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    await stage.apply(declared("poll", None, delay=MINUTE, fingerprint="v2"))
    assert await stage.waiting("poll") == []
    await stage.finish(stage.succeeded(run))
    assert [one.fire_at for one in await stage.waiting("poll")] == [stage.now + MINUTE]


async def test_an_edited_fixed_delay_that_is_idle_waits_its_new_delay(stage: Stage) -> None:
    await stage.apply(declared("poll", None, delay=HOUR))
    stage.clock.advance(MINUTE)
    await stage.apply(declared("poll", None, delay=2 * HOUR, fingerprint="v2"))
    assert [one.fire_at for one in await stage.waiting("poll")] == [START + MINUTE + 2 * HOUR]


# ----------------------------------------------------------------------------------------------------- pause and resume


async def test_a_paused_schedule_says_since_when_until_when_and_why(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    stage.clock.advance(MINUTE)
    await stage.store.pause("hourly", until=START + DAY, actor="ada", note="migration")
    schedule = (await stage.store.schedule("hourly")).schedule
    assert (schedule.paused_at, schedule.paused_until, schedule.paused_note) == (
        START + MINUTE,
        START + DAY,
        "migration",
    )
    assert schedule.paused(START + HOUR)
    assert not schedule.paused(START + DAY)
    assert schedule.revision == 1


async def test_a_decision_sees_that_its_schedule_is_paused(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.store.pause("hourly", until=None, actor="ada", note="")
    seen: list[bool] = []

    def judge(fact: TickFacts) -> TickDecision:
        assert fact.schedule is not None
        seen.append(fact.schedule.paused(START))
        return skips(fact)

    await stage.fire(judge)
    assert seen == [True]


@pytest.mark.parametrize("catch_up", [False, True])
async def test_resuming_ends_the_pause_and_has_the_tick_that_it_held_decided_upon_anew(
    stage: Stage, catch_up: bool
) -> None:
    await stage.apply(declared("hourly", START, rule=every("1h").encode()))
    await stage.store.pause("hourly", until=None, actor="ada", note="migration")
    await stage.fire_by_policy()
    held = await stage.run("hourly@2026-04-03T02:00:00Z")
    assert (held.state, held.reason, held.detail) == (State.HELD, Reason.PAUSED, "paused by ada: migration")
    stage.clock.advance(2 * HOUR)
    await stage.store.resume("hourly", actor="ada", note="done", catch_up=catch_up)
    schedule = (await stage.store.schedule("hourly")).schedule
    assert (schedule.paused_at, schedule.paused_until) == (None, None)
    assert schedule.skip_through == (None if catch_up else START + 2 * HOUR)
    await stage.fire_by_policy()
    skipped = await stage.run("hourly@2026-04-03T02:00:00Z")
    assert skipped.reason == (Reason.COALESCED if catch_up else Reason.PAUSED)
    assert [one.nominal for one in await stage.waiting("hourly")] == [START + 3 * HOUR]
    assert len(await stage.claim()) == catch_up


@pytest.mark.parametrize("until", [HOUR, 5 * HOUR])
async def test_a_pause_that_is_given_another_end_ends_then(stage: Stage, until: int) -> None:
    await stage.apply(declared("hourly", START, rule=every("1h").encode()))
    await stage.store.pause("hourly", until=None if until == HOUR else START + HOUR, actor="ada", note="migration")
    await stage.fire_by_policy()
    await stage.store.pause("hourly", until=START + until, actor="ada", note="longer, or shorter")
    await stage.fire_by_policy()
    stage.clock.advance(until - 1)
    await stage.fire_by_policy()
    assert (await stage.run("hourly@2026-04-03T02:00:00Z")).state is State.HELD
    stage.clock.advance(2)
    await stage.fire_by_policy()
    assert (await stage.run("hourly@2026-04-03T02:00:00Z")).reason == Reason.PAUSED
    assert [one.nominal for one in await stage.waiting("hourly")] == [START + until + HOUR]


async def test_only_schedules_that_exist_can_be_seen_paused_resumed_or_triggered(stage: Stage) -> None:
    for attempt in (
        stage.store.schedule("nobody"),
        stage.store.pause("nobody", until=None, actor="ada", note=""),
        stage.store.resume("nobody", actor="ada", note=""),
        stage.store.trigger("nobody", actor="ada", note=""),
    ):
        with pytest.raises(UnknownName, match="nobody"):
            await attempt
    assert await stage.store.runs() == []


# -------------------------------------------------------------------------------------------------------------- trigger


async def test_a_trigger_makes_one_run_due_now_beside_the_ticks(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR, payload=b"[1]", tenant="acme"))
    stage.clock.advance(MINUTE)
    kept = await stage.store.trigger("hourly", actor="ada", note="now please")
    assert (kept.outcome, kept.state, kept.fire_at) == ("made", State.SCHEDULED, START + MINUTE)
    run = await stage.run(kept)
    assert (run.id, run.origin, run.schedule) == ("hourly@2026-04-03T02:01:00Z#m", Origin.MANUAL, "hourly")
    assert (run.payload, run.tenant, run.revision) == (b"[1]", "acme", 1)
    assert len(await stage.waiting("hourly")) == 2
    assert (await stage.store.schedule("hourly")).next_nominal == START + HOUR


async def test_a_trigger_that_is_said_twice_under_one_key_makes_one_run_for_a_day(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + DAY), declared("other", START + DAY))

    async def trigger(schedule: str, key: str | None) -> Kept:
        return await stage.store.trigger(schedule, actor="ada", note="", key=key)

    first, *again = await asyncio.gather(*(trigger("hourly", "deploy 7") for _ in range(3)))
    assert {one.id for one in again} == {first.id}
    assert sorted(one.outcome for one in (first, *again)) == ["kept", "kept", "made"]
    await stage.fire()
    [claimed] = await stage.claim()
    await stage.finish(stage.succeeded(claimed))
    stage.clock.advance(HOUR)
    kept = await trigger("hourly", "deploy 7")
    assert (kept.id, kept.outcome, kept.state) == (claimed.id, "kept", State.SUCCEEDED)
    with pytest.raises(Conflict, match="another schedule"):
        await trigger("other", "deploy 7")
    assert {(await trigger("hourly", key)).outcome for key in ("deploy 8", None, None)} == {"made"}
    stage.clock.advance(DAY)
    assert (await trigger("hourly", "deploy 7")).outcome == "made"


async def test_a_triggered_run_is_decided_like_others(stage: Stage) -> None:
    await stage.running_tick("hourly")
    kept = await stage.store.trigger("hourly", actor="ada", note="")
    seen: list[TickFacts] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact)
        return skips(fact)

    await stage.fire(judge)
    [fact] = seen
    assert (fact.origin, fact.occupied_by) == (Origin.MANUAL, "hourly@2026-04-03T02:00:00Z")
    assert (await stage.run(kept)).reason == Reason.OVERLAP


async def test_two_triggers_at_one_moment_are_both_answered(stage: Stage) -> None:
    """Two operators press the button at once, and their requests share one transaction and its one moment."""
    await stage.apply(declared("hourly", START + HOUR))
    for _ in range(2):
        kept = await stage.store.trigger("hourly", actor="ada", note="")
        assert await stage.state(kept) is State.SCHEDULED


async def test_a_trigger_at_the_moment_of_one_that_has_ended_can_end_too(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    for _ in range(2):
        kept = await stage.store.trigger("hourly", actor="ada", note="")
        await stage.fire()
        for run in await stage.claim():
            await stage.finish(stage.succeeded(run))
        assert await stage.state(kept) is State.SUCCEEDED


# ---------------------------------------------------------------------------------------------------------------- views


async def test_schedules_are_listed_by_name(stage: Stage) -> None:
    await stage.apply(*(declared(name, START + HOUR) for name in ("c", "a", "b")))
    assert [view.schedule.id for view in await stage.store.schedules()] == ["a", "b", "c"]


async def test_a_view_tells_what_the_runs_of_a_schedule_say(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    view = await stage.store.schedule("hourly")
    assert (view.active, view.next_nominal, view.last_run_id, view.last_success_at) == (1, START + HOUR, None, None)
    stage.clock.advance(MINUTE)
    await stage.finish(stage.succeeded(run))
    stage.clock.set(START + HOUR)
    await stage.fire(skips)
    view = await stage.store.schedule("hourly")
    assert (view.active, view.last_success_at) == (0, START + MINUTE)
    assert (view.last_run_id, view.last_run_state) == ("hourly@2026-04-03T03:00:00Z", "skipped")
    assert view in await stage.store.schedules()


@pytest.mark.parametrize("state", ["ready", "running", "retrying"])
async def test_busy_runs_are_active_and_are_not_the_next(stage: Stage, state: str) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(fires_hourly)
    if state != "ready":
        [run] = await stage.claim()
        if state == "retrying":
            await stage.finish(stage.failed(run))
    view = await stage.store.schedule("hourly")
    assert (view.active, view.next_id) == (1, "hourly@2026-04-03T03:00:00Z")
