"""Backfills: started once, made tick by tick, halted, changed, counted. A stale maker changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from foliot.domain.backfill import (
    Backfill,
    BackfillState,
    FillTick,
    NewBackfill,
    Pace,
    Taken,
    UnderWay,
    window,
)
from foliot.domain.gates import Rate
from foliot.domain.instant import DAY, HOUR, SECOND, Instant
from foliot.domain.run import Claimed, Lane, Origin
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, UnknownName
from tests.contract.stage import START, Stage, declared, fires, fires_hourly

WHO: dict[str, Any] = {"actor": "ada", "note": "the disk was full"}
BEGIN: Instant = START - DAY
NIGHT = window("22:00-06:00", "Europe/Paris")


def ticks(*hours: int) -> list[FillTick]:
    return [FillTick(BEGIN + hour * HOUR, BEGIN + (hour - 1) * HOUR) for hour in hours]


def wanted(**more: Any) -> NewBackfill:
    given: dict[str, Any] = {
        "schedule": "hourly",
        "revision": 1,
        "start": BEGIN,
        "end": BEGIN + 10 * HOUR,
        "total": 10,
        "pace": Pace(at_once=100),
    }
    return NewBackfill(**given | more)


async def started(stage: Stage, **more: Any) -> Backfill:
    given = {"payload": b'{"a":1}', "options": b'{"attempts":2}', "queue": "default", "priority": 3, "tenant": "acme"}
    await stage.apply(declared("hourly", START + HOUR, rule='{"every":1}', **given))
    return await stage.store.start_backfill(wanted(**more), **WHO)


async def made(stage: Stage, backfill: Backfill, given: Sequence[FillTick], most: int = 100) -> Backfill:
    """What the maker does, who has just looked."""
    now = await stage.store.backfill(backfill.number)
    following = await stage.store.make_backfill(backfill.number, now.version, given, most)
    assert following is not None
    return following


async def seen(stage: Stage) -> UnderWay:
    [one] = await stage.store.backfills_under_way()
    return one


async def claimed(stage: Stage) -> list[Claimed]:
    """Fires and claims all runs of the backfill that are due, oldest tick first."""
    await stage.fire(lambda fact: fires(fact) if fact.origin is Origin.BACKFILL else _later(fact))
    return sorted(await stage.claim(), key=lambda run: run.nominal or 0)


def _later(fact: TickFacts) -> TickDecision:
    return TickDecision(fact.number, "hold", reason=Reason.OVERLAP)


# ------------------------------------------------------------------------------------------------------------- starting


async def test_a_backfill_is_remembered_as_it_was_asked_for(stage: Stage) -> None:
    pace = Pace(Rate.parse("10/m"), 5, NIGHT)
    backfill = await started(stage, pace=pace, stop_after=3)
    assert await stage.store.backfill(backfill.number) == backfill
    assert (backfill.schedule, backfill.state, backfill.pace) == ("hourly", BackfillState.RUNNING, pace)
    assert (backfill.start, backfill.end, backfill.total) == (BEGIN, BEGIN + 10 * HOUR, 10)
    assert (backfill.made, backfill.existed, backfill.cursor) == (0, 0, BEGIN - 1)
    assert (backfill.job, backfill.rule, backfill.revision) == ("job", '{"every":1}', 1)
    assert (backfill.actor, backfill.note, backfill.made_at, backfill.ended_at) == ("ada", WHO["note"], START, None)
    assert (backfill.stop_after, backfill.pace_at) == (3, START)
    assert await stage.store.runs(states=[State.HELD, State.READY]) == []


async def test_who_started_it_and_why_is_kept(stage: Stage) -> None:
    backfill = await started(stage)
    assert [row[1:4] for row in await stage.store.audit_of(backfill.subject)] == [("ada", "backfill", WHO["note"])]
    assert [row.action for row in await stage.store.audit_of("hourly")] == ["apply", "backfill"]


async def test_newest_first_begins_at_the_end(stage: Stage) -> None:
    assert (await started(stage, newest_first=True)).cursor == BEGIN + 10 * HOUR


async def test_a_schedule_that_was_changed_since_the_preview_is_looked_at_again(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR))
    with pytest.raises(Conflict, match="preview"):
        await stage.store.start_backfill(wanted(revision=7), **WHO)
    with pytest.raises(UnknownName):
        await stage.store.start_backfill(wanted(schedule="nobody"), **WHO)
    assert await stage.store.backfills() == []


async def test_two_at_once_share_no_tick(stage: Stage) -> None:
    first = await started(stage)
    with pytest.raises(Conflict, match=f"backfill {first.number}"):
        await stage.store.start_backfill(wanted(start=BEGIN + 9 * HOUR, end=BEGIN + 12 * HOUR), **WHO)
    beside = await stage.store.start_backfill(wanted(start=BEGIN + 10 * HOUR, end=BEGIN + 12 * HOUR), **WHO)
    await stage.store.change_backfill(first.number, state=BackfillState.CANCELLED, **WHO)
    again = await stage.store.start_backfill(wanted(), **WHO)
    assert [one.number for one in await stage.store.backfills()] == [again.number, beside.number, first.number]
    assert [one.number for one in await stage.store.backfills(schedule="hourly", limit=1)] == [again.number]
    assert await stage.store.backfills(schedule="nobody") == []


async def test_a_backfill_that_is_not_there_is_unknown(stage: Stage) -> None:
    store = stage.store
    for asked in (
        store.backfill(7),
        store.backfill_progress(7),
        store.make_backfill(7, 1, [], 1),
        store.change_backfill(7, state=BackfillState.PAUSED, **WHO),
    ):
        with pytest.raises(UnknownName, match="no backfill 7"):
            await asked


# --------------------------------------------------------------------------------------------------------------- making


async def test_a_tick_becomes_a_run_that_is_named_as_it_is_and_due_now(stage: Stage) -> None:
    backfill = await started(stage)
    stage.clock.advance(SECOND)
    following = await made(stage, backfill, ticks(2))
    assert (following.made, following.existed, following.cursor) == (1, 0, BEGIN + 2 * HOUR)
    run = await stage.run("hourly@2026-04-02T04:00:00Z")
    assert (run.origin, run.lane, run.state) == (Origin.BACKFILL, Lane.BACKFILL, State.SCHEDULED)
    assert (run.nominal, run.since, run.fire_at) == (BEGIN + 2 * HOUR, BEGIN + HOUR, START + SECOND)
    assert (run.schedule, run.revision, run.job, run.payload) == ("hourly", 1, "job", b'{"a":1}')
    assert (run.options, run.priority, run.tenant) == (b'{"attempts":2}', 3, "acme")


async def test_whoever_holds_the_shard_hears_of_what_is_made(stage: Stage) -> None:
    backfill = await started(stage)
    lease = await stage.lease()
    following = await made(stage, backfill, ticks(1, 2))
    told = await stage.told(lease.cursor)
    assert [number for _, number in told] == [following.first_number, following.last_number]


async def test_the_schedules_own_next_run_and_cursor_stay_as_they_are(stage: Stage) -> None:
    backfill = await started(stage)
    before = await stage.store.schedule("hourly")
    await made(stage, backfill, ticks(1, 2))
    after = await stage.store.schedule("hourly")
    assert (after.next_id, after.schedule) == (before.next_id, before.schedule)


async def test_no_more_are_made_than_is_allowed(stage: Stage) -> None:
    backfill = await made(stage, await started(stage), ticks(0, 1, 2, 3), most=2)
    assert (backfill.made, backfill.cursor) == (2, BEGIN + HOUR)
    assert (await seen(stage)).unfinished == 2
    backfill = await made(stage, backfill, ticks(2, 3), most=0)
    assert (backfill.made, backfill.cursor) == (2, BEGIN + HOUR)


async def test_a_tick_that_exists_is_counted_and_never_made_twice(stage: Stage) -> None:
    backfill = await started(stage)
    await made(stage, backfill, ticks(1, 2))
    for run in await claimed(stage):
        await stage.finish(stage.succeeded(run))
    await stage.store.change_backfill(backfill.number, state=BackfillState.CANCELLED, **WHO)
    again = await stage.store.start_backfill(wanted(), **WHO)
    following = await made(stage, again, ticks(0, 1, 2, 3), most=1)
    assert (following.made, following.existed, following.cursor) == (1, 2, BEGIN + 2 * HOUR), (
        "what exists costs nothing"
    )
    following = await made(stage, again, ticks(3), most=1)
    assert (following.made, following.existed, following.cursor) == (2, 2, BEGIN + 3 * HOUR)
    assert (await stage.store.backfill_progress(backfill.number)).states == {State.SUCCEEDED: 2}, "each counts its own"
    assert (await stage.store.backfill_progress(again.number)).states == {State.SCHEDULED: 2}


async def test_a_tick_that_another_run_answered_for_is_not_made(stage: Stage) -> None:
    """After an outage one run stands for several ticks; only the first of those that it merged has a row."""
    await stage.apply(declared("hourly", BEGIN + HOUR, rule='{"every":1}'))

    def merges(fact: TickFacts) -> TickDecision:
        until = BEGIN + 3 * HOUR
        return TickDecision(
            fact.number, "skip", reason=Reason.COALESCED, detail="into x", span_until=until, span_count=3
        )

    await stage.fire(merges)
    assert [
        (one.nominal, one.run, one.state, one.reason)
        for one in await stage.store.taken_ticks("hourly", [tick.nominal for tick in ticks(0, 1, 2, 3, 4)])
    ] == [(BEGIN + hour * HOUR, "hourly@2026-04-02T03:00:00Z", State.SKIPPED, Reason.COALESCED) for hour in (1, 2, 3)]
    backfill = await stage.store.start_backfill(wanted(), **WHO)
    following = await made(stage, backfill, ticks(0, 1, 2, 3, 4))
    assert (following.made, following.existed) == (2, 3)


async def test_taken_ticks_are_told_with_their_states(stage: Stage) -> None:
    backfill = await started(stage)
    await made(stage, backfill, ticks(1, 2, 3))
    done, dead, _ = await claimed(stage)
    await stage.finish(stage.succeeded(done), stage.died(dead))
    asked = [tick.nominal for tick in ticks(3, 0, 2, 1)]
    assert await stage.store.taken_ticks("hourly", asked) == [
        Taken(BEGIN + 3 * HOUR, "hourly@2026-04-02T05:00:00Z", State.RUNNING, None),
        Taken(BEGIN + 2 * HOUR, "hourly@2026-04-02T04:00:00Z", State.DEAD, Reason.ATTEMPTS),
        Taken(BEGIN + HOUR, "hourly@2026-04-02T03:00:00Z", State.SUCCEEDED, None),
    ]
    assert await stage.store.taken_ticks("hourly", []) == []


async def test_a_stale_maker_changes_nothing(stage: Stage) -> None:
    backfill = await started(stage)
    following = await made(stage, backfill, ticks(1))
    assert await stage.store.make_backfill(backfill.number, backfill.version, ticks(1, 2), 9) is None
    assert not await stage.store.halt_backfill(backfill.number, backfill.version, BackfillState.DONE, None)
    assert await stage.store.backfill(backfill.number) == following


async def test_of_two_makers_at_one_moment_one_makes_each_tick(stage: Stage) -> None:
    backfill = await started(stage)
    answers = await asyncio.gather(
        *(stage.store.make_backfill(backfill.number, backfill.version, ticks(1, 2), 9) for _ in range(4))
    )
    assert sum(answer is not None for answer in answers) == 1
    assert (await stage.store.backfill(backfill.number)).made == 2


async def test_nothing_is_made_of_one_that_is_not_running(stage: Stage) -> None:
    backfill = await started(stage)
    paused = await stage.store.change_backfill(backfill.number, state=BackfillState.PAUSED, **WHO)
    assert await stage.store.make_backfill(backfill.number, paused.version, ticks(1), 9) is None
    assert await stage.store.backfills_under_way() == []


async def test_it_goes_on_with_what_it_was_started_with_whatever_becomes_of_the_schedule(stage: Stage) -> None:
    backfill = await started(stage)
    await stage.apply(declared("hourly", START + 2 * HOUR, payload=b'{"a":2}', fingerprint="v2"))
    await made(stage, backfill, ticks(1))
    await stage.store.delete("hourly", **WHO)
    await made(stage, backfill, ticks(2))
    runs = await stage.store.runs(schedule="hourly", states=[State.SCHEDULED])
    assert [(run.nominal, run.payload, run.revision) for run in runs] == [
        (BEGIN + 2 * HOUR, b'{"a":1}', 1),
        (BEGIN + HOUR, b'{"a":1}', 1),
    ]


async def test_the_next_one_is_due_by_the_rate(stage: Stage) -> None:
    backfill = await started(stage, pace=Pace(Rate.parse("10/m"), 9))
    stage.clock.advance(SECOND // 2)
    assert (await made(stage, backfill, ticks(1))).pace_at == START + 6 * SECOND
    stage.clock.set(START + 6 * SECOND)
    assert (await made(stage, backfill, ticks(2))).pace_at == START + 12 * SECOND
    stage.clock.set(START + HOUR)
    assert (await made(stage, backfill, ticks(3))).pace_at == START + HOUR + 5 * SECOND, "the past is not made up for"


# -------------------------------------------------------------------------------------------------------------- halting


async def test_a_fault_pauses_it_and_says_why(stage: Stage) -> None:
    backfill = await started(stage)
    assert await stage.store.halt_backfill(backfill.number, backfill.version, BackfillState.PAUSED, "no such zone")
    paused = await stage.store.backfill(backfill.number)
    assert (paused.state, paused.reason, paused.ended_at) == (BackfillState.PAUSED, "no such zone", None)
    [event] = await stage.events("backfill_paused")
    assert (event.subject, event.detail) == ("hourly", f"backfill {backfill.number}: no such zone")


async def test_one_that_is_done_has_ended(stage: Stage) -> None:
    backfill = await started(stage)
    stage.clock.advance(HOUR)
    assert await stage.store.halt_backfill(backfill.number, backfill.version, BackfillState.DONE, None)
    done = await stage.store.backfill(backfill.number)
    assert (done.state, done.reason, done.ended_at) == (BackfillState.DONE, None, START + HOUR)
    assert await stage.store.backfills_under_way() == []
    assert await stage.events() == []


# ------------------------------------------------------------------------------------------------------------- changing


async def test_a_person_pauses_and_resumes_it(stage: Stage) -> None:
    backfill = await made(stage, await started(stage), ticks(1))
    paused = await stage.store.change_backfill(backfill.number, state=BackfillState.PAUSED, **WHO)
    assert (paused.state, paused.reason, paused.version > backfill.version) == (
        BackfillState.PAUSED,
        WHO["note"],
        True,
    )
    with pytest.raises(Conflict, match="is paused"):
        await stage.store.change_backfill(backfill.number, state=BackfillState.PAUSED, **WHO)
    resumed = await stage.store.change_backfill(backfill.number, state=BackfillState.RUNNING, **WHO)
    assert (resumed.state, resumed.reason, resumed.forgiven) == (BackfillState.RUNNING, None, BEGIN + HOUR)
    assert [row.action for row in await stage.store.audit_of(backfill.subject)] == ["backfill", "pause", "resume"]


async def test_its_pace_can_be_changed_until_it_has_ended(stage: Stage) -> None:
    backfill = await started(stage, pace=Pace(Rate.parse("1/h")))
    await made(stage, backfill, ticks(1))
    changed = await stage.store.change_backfill(
        backfill.number, pace={"rate": Rate.parse("10/s"), "window": NIGHT}, **WHO
    )
    assert changed.pace == Pace(Rate.parse("10/s"), 1, NIGHT)
    assert changed.pace_at == START + SECOND // 10
    changed = await stage.store.change_backfill(backfill.number, pace={"rate": None, "at_once": 4}, **WHO)
    assert changed.pace == Pace(None, 4, NIGHT)
    notes = [row.note for row in await stage.store.audit_of(backfill.subject)]
    assert notes[1:] == [
        "rate 10/s, window 22:00-06:00 Europe/Paris: the disk was full",
        "rate any, at once 4: the disk was full",
    ]
    await stage.store.change_backfill(backfill.number, state=BackfillState.CANCELLED, **WHO)
    with pytest.raises(Conflict, match="cancelled"):
        await stage.store.change_backfill(backfill.number, pace={"at_once": 5}, **WHO)


async def test_cancelling_ends_what_was_not_begun_and_lets_the_rest_go_on(stage: Stage) -> None:
    backfill = await started(stage)
    await made(stage, backfill, ticks(1, 2))
    begun, tried = await claimed(stage)
    await stage.finish(stage.failed(tried))
    await made(stage, backfill, ticks(3, 4))
    await stage.fire(lambda fact: fires(fact) if fact.nominal == BEGIN + 3 * HOUR else _later(fact))
    await made(stage, backfill, ticks(5))
    stage.clock.advance(SECOND)
    cancelled = await stage.store.change_backfill(backfill.number, state=BackfillState.CANCELLED, **WHO)
    assert (cancelled.state, cancelled.ended_at) == (BackfillState.CANCELLED, START + SECOND)
    assert await stage.state(begun) is State.RUNNING
    assert await stage.state(tried) is State.RETRYING
    for hour in ("05", "06", "07"):
        run = await stage.run(f"hourly@2026-04-02T{hour}:00:00Z")
        assert (run.state, run.reason, run.detail) == (State.CANCELLED, Reason.OPERATOR, WHO["note"])
    assert await stage.claim() == []
    assert await stage.finish(stage.succeeded(begun)) == []


async def test_cancelling_touches_no_run_of_anybody_else(stage: Stage) -> None:
    backfill = await started(stage)
    await made(stage, backfill, ticks(1))
    by_hand = await stage.store.trigger("hourly", **WHO)
    await stage.store.change_backfill(backfill.number, state=BackfillState.CANCELLED, **WHO)
    assert await stage.state(by_hand) is State.SCHEDULED
    assert len(await stage.waiting("hourly")) == 2


# ------------------------------------------------------------------------------------------------------------- counting


async def test_progress_counts_its_runs_by_state(stage: Stage) -> None:
    backfill = await started(stage)
    await made(stage, backfill, ticks(1, 2, 3, 4))
    done, dead, _, _ = await claimed(stage)
    await stage.finish(stage.succeeded(done), stage.died(dead))
    await stage.store.trigger("hourly", **WHO)
    progress = await stage.store.backfill_progress(backfill.number)
    assert progress.states == {State.SUCCEEDED: 1, State.DEAD: 1, State.RUNNING: 2}
    assert (progress.unfinished, progress.settled, progress.at) == (2, 2, START)
    assert (await seen(stage)).unfinished == 2


@pytest.mark.parametrize("newest_first", [False, True])
async def test_failures_are_counted_since_the_last_good_one_in_the_order_of_making(
    stage: Stage, newest_first: bool
) -> None:
    order = (9, 8, 7, 6, 5) if newest_first else (1, 2, 3, 4, 5)
    backfill = await started(stage, newest_first=newest_first, stop_after=2)
    await made(stage, backfill, ticks(*order))
    runs = {run.nominal: run for run in await claimed(stage)}
    first, second, third, fourth, fifth = (runs[BEGIN + hour * HOUR] for hour in order)
    await stage.finish(stage.died(second))
    assert (await seen(stage)).failures == 1
    await stage.finish(stage.died(fourth))
    assert (await seen(stage)).failures == 2
    await stage.finish(stage.succeeded(first), stage.succeeded(third))
    assert (await seen(stage)).failures == 1
    await stage.finish(stage.died(fifth))
    assert (await seen(stage)).failures == 2


async def test_failures_from_before_it_was_resumed_are_forgiven(stage: Stage) -> None:
    backfill = await started(stage, stop_after=1)
    await made(stage, backfill, ticks(1))
    [run] = await claimed(stage)
    await stage.finish(stage.died(run))
    assert (await seen(stage)).failures == 1
    for state in (BackfillState.PAUSED, BackfillState.RUNNING):
        await stage.store.change_backfill(backfill.number, state=state, **WHO)
    assert (await seen(stage)).failures == 0
    await made(stage, backfill, ticks(2))
    [run] = await claimed(stage)
    await stage.finish(stage.died(run))
    assert (await seen(stage)).failures == 1


async def test_those_under_way_are_seen_with_the_stores_clock(stage: Stage) -> None:
    backfill = await started(stage)
    stage.clock.advance(HOUR)
    assert await stage.store.backfills_under_way() == [UnderWay(backfill, 0, 0, START + HOUR)]
    await stage.fire(fires_hourly)
    assert (await seen(stage)).unfinished == 0, "its schedule's own runs are none of its"
