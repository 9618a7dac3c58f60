"""fire: never early, nothing stale, everything that is due, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import Lane, Origin, Promise
from foliot.domain.schedule import NewTick, TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.errors import LostOwnership
from tests.contract.stage import START, Entry, Stage, deciding, declared, fires, fires_hourly, holds, skips


def nothing_to_decide(facts: Sequence[TickFacts], now: Instant) -> Sequence[TickDecision]:
    assert not facts, "runs of no schedule need no decision"
    return []


# ---------------------------------------------------------------------------------------------------------- never early


async def test_what_the_clock_has_not_reached_is_refused(stage: Stage) -> None:
    due, early = await stage.promise(), await stage.promise(after=1)
    lease = await stage.lease()
    fired = await stage.store.fire([lease], await stage.loaded(lease), lease.cursor, nothing_to_decide)
    assert (fired.at, fired.handed_off, fired.early, fired.stale) == (START, 1, 1, 0)
    assert await stage.state(due) is State.READY
    assert await stage.state(early) is State.SCHEDULED
    stage.clock.advance(1)
    assert (await stage.fire()).handed_off == 1


async def test_nothing_fires_early_when_the_clock_steps_back(stage: Stage) -> None:
    kept = await stage.promise(after=SECOND)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    stage.clock.advance(SECOND)
    stage.clock.advance(-1)
    fired = await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.early) == (0, 1)
    assert await stage.state(kept) is State.SCHEDULED


async def test_a_firing_tells_the_moment_at_which_it_was_decided(stage: Stage) -> None:
    stage.clock.advance(12_345)
    heard: list[Instant] = []
    await stage.apply(declared("hourly", START))
    lease = await stage.lease()

    def decide(facts: Sequence[TickFacts], now: Instant) -> list[TickDecision]:
        heard.append(now)
        return [fires(fact) for fact in facts]

    fired = await stage.store.fire([lease], await stage.loaded(lease), lease.cursor, decide)
    assert (fired.at, heard) == (START + 12_345, [START + 12_345])


# --------------------------------------------------------------------------------------------------------------- ahead


def hourly_unless_paused(fact: TickFacts) -> TickDecision:
    assert fact.schedule is not None
    return fires_hourly(fact) if fact.schedule.paused_at is None else holds(fact)


async def crowd(stage: Stage, due: Instant) -> list[str]:
    """Schedules whose ticks are due at one moment; and another one, which is paused."""
    names = [f"s{n}" for n in range(40)]
    await stage.apply(*(declared(name, due) for name in [*names, "paused"]))
    await stage.store.pause("paused", until=None, actor="test", note="")
    return names


async def test_what_was_made_ready_ahead_of_time_comes_out_the_same(stage: Stage) -> None:
    names = await crowd(stage, START + 500 * MILLISECOND)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    stage.store.look_ahead([lease], deciding(hourly_unless_paused))
    stage.clock.advance(500 * MILLISECOND)
    fired = await stage.store.fire([lease], due, lease.cursor, deciding(hourly_unless_paused))
    assert (fired.handed_off, fired.held, fired.created, fired.early, fired.stale) == (40, 1, 40, 0, 0)
    assert sorted(str(run.schedule) for run in await stage.claim()) == sorted(names)
    assert [len(await stage.waiting(name)) for name in names] == [1] * 40
    again = await stage.store.fire([lease], due, lease.cursor, deciding(hourly_unless_paused))
    assert (again.handed_off, again.created) == (0, 0)


async def test_what_was_made_ready_ahead_of_time_is_never_early(stage: Stage) -> None:
    await crowd(stage, START + 500 * MILLISECOND)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    stage.store.look_ahead([lease], deciding(hourly_unless_paused))
    fired = await stage.store.fire([lease], due, lease.cursor, deciding(hourly_unless_paused))
    assert (fired.handed_off, fired.early) == (0, 41)
    assert await stage.claim() == []


async def test_what_was_made_ready_by_an_owner_that_was_replaced_is_not_handed_off(stage: Stage) -> None:
    await crowd(stage, START + 500 * MILLISECOND)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    stage.store.look_ahead([lease], deciding(hourly_unless_paused))
    await stage.lease()
    stage.clock.advance(500 * MILLISECOND)
    with pytest.raises(LostOwnership):
        await stage.store.fire([lease], due, lease.cursor, deciding(hourly_unless_paused))
    assert await stage.claim() == []


# ---------------------------------------------------------------------------------------------------------------- stale


async def test_a_run_that_was_moved_is_passed_over(stage: Stage) -> None:
    kept = await stage.promise("class:7")
    lease = await stage.lease()
    due = await stage.loaded(lease)
    await stage.store.move("class:7", None, START - 1)
    fired = await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.stale, fired.early) == (0, 1, 0)
    assert await stage.state(kept) is State.SCHEDULED


async def test_cancelled_claimed_and_unknown_runs_are_passed_over(stage: Stage) -> None:
    cancelled = await stage.promise()
    await stage.store.cancel(cancelled.id, actor="test", note="")
    claimed = await stage.running()
    ended = await stage.running()
    await stage.finish(stage.succeeded(ended))
    lease = await stage.lease()
    due = [(START, cancelled.number), (START, claimed.number), (START, ended.number), (START, 7)]
    fired = await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.stale) == (0, 4)
    assert await stage.claim() == []


async def test_a_delayed_run_that_is_fired_twice_is_claimed_once(stage: Stage) -> None:
    """Its row is not written at firing, so the store cannot know; the claim compares and sets."""
    await stage.promise()
    lease = await stage.lease()
    due = await stage.loaded(lease)
    await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert len(await stage.claim()) == 1
    assert await stage.claim() == []


@pytest.mark.parametrize("count", [1, 10])
async def test_a_tick_that_was_fired_already_is_not_decided_again(stage: Stage, count: int) -> None:
    await stage.apply(*(declared(f"hourly{place}", START) for place in range(count)))
    lease = await stage.lease()
    due = await stage.loaded(lease)
    await stage.store.fire([lease], due, lease.cursor, deciding(fires_hourly))
    again = await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert (again.handed_off, again.stale) == (0, count)
    assert await stage.events() == []


async def test_the_old_and_the_new_time_of_a_moved_run_in_one_batch_fire_it_once(stage: Stage) -> None:
    """The wheel still holds the old entry when both times have passed, as after a pause of the scheduler."""
    kept = await stage.promise("class:7", after=2 * SECOND)
    lease = await stage.lease()
    due = await stage.loaded(lease)
    await stage.store.move("class:7", None, START + SECOND)
    stage.clock.advance(MINUTE)
    fired = await stage.store.fire([lease], [(START + SECOND, kept.number), *due], lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.stale, fired.early) == (1, 1, 0)
    assert await stage.state(kept) is State.READY


async def test_one_entry_twice_in_one_batch_fires_once_and_is_not_early(stage: Stage) -> None:
    await stage.promise()
    lease = await stage.lease()
    due = await stage.loaded(lease) * 2
    fired = await stage.store.fire([lease], due, lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.early) == (1, 0)
    assert len(await stage.claim()) == 1


async def test_firing_nothing_is_allowed(stage: Stage) -> None:
    lease = await stage.lease()
    fired = await stage.store.fire([lease], [], lease.cursor, nothing_to_decide)
    assert (fired.handed_off, fired.early, fired.stale, fired.skipped, fired.held, fired.created) == (0,) * 6


async def test_arrivals_up_to_the_cursor_of_a_firing_are_not_told_again_and_later_ones_are(stage: Stage) -> None:
    await stage.promise("class:7", after=DAY)
    await stage.promise("class:8", after=DAY)
    lease = await stage.lease()
    await stage.store.move("class:7", None, START + HOUR)
    told = await stage.store.arrivals([lease], lease.cursor)
    await stage.store.move("class:8", None, START + HOUR)
    await stage.store.fire([lease], [], told.cursor, nothing_to_decide)
    assert len(await stage.told(told.cursor)) == 1


# ------------------------------------------------------------------------------------------------------------- too late


async def test_a_run_past_its_usefulness_ends_as_skipped_and_says_so(stage: Stage) -> None:
    kept = await stage.promise(useful_until=START + MINUTE)
    stage.clock.advance(MINUTE + 1)
    fired = await stage.fire()
    assert (fired.handed_off, fired.skipped) == (0, 1)
    run = await stage.run(kept)
    assert (run.state, run.reason, run.finished_at, run.attempt) == (
        State.SKIPPED,
        Reason.TOO_LATE,
        START + MINUTE + 1,
        0,
    )
    assert await stage.claim() == []


async def test_a_run_is_useful_up_to_the_very_end(stage: Stage) -> None:
    await stage.promise(useful_until=START + MINUTE)
    stage.clock.advance(MINUTE)
    assert (await stage.fire()).handed_off == 1


# --------------------------------------------------------------------------------------------------------------- chunks


async def test_each_queue_lane_and_priority_is_served_by_itself(stage: Stage) -> None:
    await stage.promise(queue="mail", payload=b"mail")
    await stage.promise(priority=9, payload=b"urgent")
    await stage.promise(after=-DAY, payload=b"late")
    await stage.promise(payload=b"plain")
    assert (await stage.fire()).handed_off == 4
    claimed = await stage.claim()
    assert [(run.payload, run.lane, run.priority) for run in claimed] == [
        (b"urgent", Lane.LIVE, 9),
        (b"plain", Lane.LIVE, 0),
        (b"late", Lane.CATCH_UP, 0),
    ]
    [mail] = await stage.claim(queues=["mail"])
    assert (mail.payload, mail.queue) == (b"mail", "mail")


async def test_overdue_runs_ride_the_catch_up_lane_so_that_live_work_goes_first(stage: Stage) -> None:
    await stage.promise(after=-MINUTE - 1, payload=b"backlog")
    await stage.promise(after=-MINUTE, payload=b"live")
    await stage.fire()
    assert [(run.payload, run.lane) for run in await stage.claim()] == [
        (b"live", Lane.LIVE),
        (b"backlog", Lane.CATCH_UP),
    ]


async def test_a_large_batch_is_handed_off_whole(stage: Stage) -> None:
    kept = await stage.store.promise([Promise("job", b"", START) for _ in range(1_234)])
    assert (await stage.fire()).handed_off == 1_234
    claimed: list[int] = []
    while chunk := await stage.claim(500):
        claimed += [run.number for run in chunk]
    assert sorted(claimed) == [one.number for one in kept]


# ---------------------------------------------------------------------------------------------------- ticks are decided


async def test_a_decision_gets_the_facts_of_its_tick(stage: Stage) -> None:
    policy = Policy(useful_until=HOUR, overlap=Overlap.ALLOW)
    await stage.apply(declared("hourly", START, first_fire_at=START + SECOND, policy=policy, tenant="acme"))
    stage.clock.advance(2 * SECOND)
    seen: list[TickFacts] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact)
        return fires(fact)

    await stage.fire(judge)
    [fact] = seen
    assert (fact.id, fact.origin) == ("hourly@2026-04-03T02:00:00Z", Origin.SCHEDULED)
    assert (fact.nominal, fact.fire_at, fact.since) == (START, START + SECOND, None)
    assert (fact.useful_until, fact.attempt, fact.occupied_by) == (START + HOUR, 0, None)
    assert fact.schedule is not None
    assert (fact.schedule.id, fact.schedule.policy, fact.schedule.tenant) == ("hourly", policy, "acme")


@pytest.mark.parametrize("busy", ["ready", "running", "retrying"])
async def test_a_schedule_is_occupied_by_another_run_of_it_that_is_busy(stage: Stage, busy: str) -> None:
    await stage.apply(declared("hourly", START), declared("other", START + HOUR))
    await stage.fire(fires_hourly)
    if busy != "ready":
        [run] = await stage.claim()
        if busy == "retrying":
            await stage.finish(stage.failed(run, 10 * HOUR))
    stage.clock.advance(HOUR)
    seen: dict[str, str | None] = {}

    def judge(fact: TickFacts) -> TickDecision:
        seen[fact.id] = fact.occupied_by
        return skips(fact)

    await stage.fire(judge)
    assert seen == {
        "hourly@2026-04-03T03:00:00Z": "hourly@2026-04-03T02:00:00Z",
        "other@2026-04-03T03:00:00Z": None,
    }


@pytest.mark.parametrize("ended", ["succeeded", "died"])
async def test_a_schedule_is_not_occupied_by_what_has_ended_or_was_parked(stage: Stage, ended: str) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.succeeded(run) if ended == "succeeded" else stage.died(run))
    stage.clock.advance(HOUR)
    seen: list[str | None] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact.occupied_by)
        return fires(fact)

    await stage.fire(judge)
    assert seen == [None]


async def test_a_retry_does_not_occupy_its_schedule_for_itself(stage: Stage) -> None:
    run = await stage.running_tick("hourly")
    await stage.finish(stage.failed(run, MINUTE))
    stage.clock.advance(MINUTE)
    seen: list[TickFacts] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append(fact)
        return fires(fact)

    await stage.fire(judge)
    assert [(fact.id, fact.attempt, fact.occupied_by, fact.nominal) for fact in seen] == [(run.id, 1, None, START)]
    [again] = await stage.claim()
    assert (again.number, again.attempt) == (run.number, 2)


async def test_what_one_decision_fires_is_a_fact_for_the_next_of_the_same_schedule(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.store.trigger("hourly", actor="test", note="")
    seen: list[tuple[str, str | None]] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append((fact.id, fact.occupied_by))
        return skips(fact) if fact.occupied_by else fires(fact)

    fired = await stage.fire(judge)
    assert (fired.handed_off, fired.skipped) == (1, 1)
    [(first, _), (_, occupied_by)] = seen
    assert occupied_by == first


async def test_what_one_decision_ends_no_longer_occupies_the_schedule_for_the_next(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.failed(run, HOUR))
    stage.clock.advance(HOUR)
    occupied: dict[int, str | None] = {}

    def judge(fact: TickFacts) -> TickDecision:
        occupied[fact.attempt] = fact.occupied_by
        return TickDecision(fact.number, "skip", reason=Reason.TOO_LATE) if fact.attempt else fires(fact)

    await stage.fire(judge)
    assert occupied == {1: None, 0: None}


async def test_a_run_whose_schedule_is_gone_stands_for_itself(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + DAY))
    triggered = await stage.store.trigger("hourly", actor="test", note="")
    await stage.apply(prune=True)
    seen: list[object] = []

    def judge(fact: TickFacts) -> TickDecision:
        seen.append((fact.id, fact.schedule))
        return fires(fact)

    assert (await stage.fire(judge)).handed_off == 1
    assert seen == [(triggered.id, None)]


# ------------------------------------------------------------------------------------------------- verdicts carried out


async def test_fire_hands_the_tick_off_in_the_lane_of_the_decision(stage: Stage) -> None:
    await stage.apply(declared("hourly", START, payload=b"[1]", options=b"{}", tenant="acme", priority=2))
    await stage.fire(lambda fact: TickDecision(fact.number, "fire", Lane.CATCH_UP))
    assert (await stage.run("hourly@2026-04-03T02:00:00Z")).state is State.READY
    [run] = await stage.claim()
    assert (run.id, run.lane, run.nominal) == ("hourly@2026-04-03T02:00:00Z", Lane.CATCH_UP, START)
    assert (run.schedule, run.revision, run.origin) == ("hourly", 1, Origin.SCHEDULED)
    assert (run.payload, run.options, run.tenant, run.priority) == (b"[1]", b"{}", "acme", 2)


async def test_hold_leaves_the_tick_waiting_and_says_for_what(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    fired = await stage.fire(
        lambda fact: TickDecision(fact.number, "hold", reason=Reason.OVERLAP, detail="for the other")
    )
    assert (fired.held, fired.handed_off, fired.skipped) == (1, 0, 0)
    [run] = await stage.store.runs(schedule="hourly")
    assert (run.state, run.reason, run.detail) == (State.HELD, Reason.OVERLAP, "for the other")
    assert await stage.claim() == []


async def test_skip_leaves_a_row_that_explains_itself_and_its_span(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    stage.clock.advance(5 * HOUR)
    fired = await stage.fire(
        lambda fact: TickDecision(
            fact.number,
            "skip",
            reason=Reason.MISFIRE,
            detail="nobody was there",
            span_until=START + 4 * HOUR,
            span_count=5,
            successor=NewTick(START + 6 * HOUR, START + 5 * HOUR, START + 6 * HOUR),
            evaluated_through=START + 4 * HOUR,
        )
    )
    assert (fired.skipped, fired.created, fired.handed_off) == (1, 1, 0)
    run = await stage.run("hourly@2026-04-03T02:00:00Z")
    assert (run.state, run.reason, run.detail) == (State.SKIPPED, Reason.MISFIRE, "nobody was there")
    assert (run.span_until, run.span_count, run.finished_at) == (START + 4 * HOUR, 5, START + 5 * HOUR)
    assert [waiting.nominal for waiting in await stage.waiting("hourly")] == [START + 6 * HOUR]
    assert (await stage.store.schedule("hourly")).schedule.evaluated_through == START + 4 * HOUR


async def test_instead_fires_the_latest_tick_in_place_of_the_one_that_was_due(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    stage.clock.advance(3 * HOUR + 1)
    fired = await stage.fire(
        lambda fact: TickDecision(
            fact.number,
            "skip",
            Lane.CATCH_UP,
            Reason.COALESCED,
            instead=NewTick(START + 3 * HOUR, START, START + 3 * HOUR, START + DAY),
            successor=NewTick(START + 4 * HOUR, START + 3 * HOUR, START + 4 * HOUR),
        )
    )
    assert (fired.handed_off, fired.skipped, fired.created) == (1, 1, 1)
    [run] = await stage.claim()
    assert (run.id, run.since, run.nominal, run.lane) == (
        "hourly@2026-04-03T05:00:00Z",
        START,
        START + 3 * HOUR,
        Lane.CATCH_UP,
    )
    assert (await stage.run("hourly@2026-04-03T02:00:00Z")).reason == Reason.COALESCED


async def test_a_tick_fired_instead_is_not_told_to_the_owner_of_the_cells(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    stage.clock.advance(HOUR)
    lease = await stage.lease()
    late = NewTick(START + HOUR, START, START + HOUR)
    decide = deciding(lambda fact: TickDecision(fact.number, "skip", reason=Reason.COALESCED, instead=late))
    await stage.store.fire([lease], await stage.loaded(lease), lease.cursor, decide)
    assert await stage.told(lease.cursor) == []
    assert await stage.loaded(await stage.lease()) == []


async def test_the_successor_is_made_in_the_firing_transaction_as_the_decision_says(stage: Stage) -> None:
    await stage.apply(declared("hourly", START, payload=b"[7]", queue="mail"))
    following = NewTick(START + HOUR, START, START + HOUR + SECOND, START + 2 * HOUR)
    fired = await stage.fire(
        lambda fact: TickDecision(fact.number, "fire", successor=following, evaluated_through=fact.nominal)
    )
    assert fired.created == 1
    [run] = await stage.waiting("hourly")
    assert (run.id, run.state) == ("hourly@2026-04-03T03:00:00Z", State.SCHEDULED)
    assert (run.nominal, run.since, run.fire_at) == (START + HOUR, START, START + HOUR + SECOND)
    assert (run.payload, run.queue, run.revision, run.origin) == (b"[7]", "mail", 1, Origin.SCHEDULED)
    schedule = (await stage.store.schedule("hourly")).schedule
    assert (schedule.evaluated_through, schedule.last_created) == (START, run.id)


async def test_a_recurrence_has_one_pending_row_however_often_it_fires(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    for _ in range(5):
        assert (await stage.fire(fires_hourly)).created == 1
        assert len(await stage.waiting("hourly")) == 1
        stage.clock.advance(HOUR)
    assert len(await stage.claim()) == 5


async def test_a_tick_that_exists_is_not_made_a_second_time_and_that_is_told(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.fire(fires_hourly)
    stage.clock.advance(HOUR)
    same = NewTick(START, None, START + 2 * HOUR)
    fired = await stage.fire(lambda fact: TickDecision(fact.number, "fire", successor=same))
    assert (fired.handed_off, fired.created) == (1, 0)
    [event] = await stage.events("tick_exists")
    assert event.subject == "hourly"
    assert "hourly@2026-04-03T02:00:00Z" in event.detail


async def test_a_tick_that_has_ended_is_not_made_a_second_time_either(stage: Stage) -> None:
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.succeeded(run))
    stage.clock.advance(HOUR)
    same = NewTick(START, None, START + 2 * HOUR)
    assert (await stage.fire(lambda fact: TickDecision(fact.number, "fire", successor=same))).created == 0
    assert len(await stage.events("tick_exists")) == 1


async def test_a_fault_sets_its_schedule_aside_and_not_the_others(stage: Stage) -> None:
    await stage.apply(declared("bad", START), declared("good", START))

    def judge(fact: TickFacts) -> TickDecision:
        if fact.id.startswith("bad"):
            return TickDecision(fact.number, "fire", fault="its rule cannot be read")
        return fires_hourly(fact)

    fired = await stage.fire(judge)
    assert (fired.handed_off, fired.created, fired.faults) == (2, 1, ["bad"])
    assert (await stage.store.schedule("bad")).schedule.fault == "its rule cannot be read"
    assert (await stage.store.schedule("good")).schedule.fault is None
    [event] = await stage.events("schedule_set_aside")
    assert (event.subject, event.detail, event.at) == ("bad", "its rule cannot be read", START)


async def test_a_busy_run_that_is_skipped_when_it_fires_releases_what_was_held_for_it(stage: Stage) -> None:
    """No waiter is left without a promoter, whichever way the run before it ended."""
    run = await stage.running_tick("hourly", fires_hourly)
    await stage.finish(stage.failed(run, 2 * HOUR))
    stage.clock.advance(HOUR)
    await stage.fire(holds)
    stage.clock.advance(HOUR)
    await stage.fire(lambda fact: TickDecision(fact.number, "skip", reason=Reason.TOO_LATE))
    assert await stage.state(run) is State.SKIPPED
    assert await stage.state("hourly@2026-04-03T03:00:00Z") is State.SCHEDULED


async def test_everything_is_rolled_back_when_deciding_fails(stage: Stage) -> None:
    plain = await stage.promise()
    late = await stage.promise(useful_until=START - 1)
    await stage.apply(declared("a", START), declared("b", START))
    lease = await stage.lease()
    due: list[Entry] = await stage.loaded(lease)

    def decide(facts: Sequence[TickFacts], now: Instant) -> list[TickDecision]:
        raise ZeroDivisionError("a bug in deciding")

    with pytest.raises(ZeroDivisionError):
        await stage.store.fire([lease], due, lease.cursor, decide)
    for run in (plain.id, late.id, "a@2026-04-03T02:00:00Z", "b@2026-04-03T02:00:00Z"):
        assert await stage.state(run) is State.SCHEDULED
    assert await stage.claim() == []
    assert (await stage.store.fire([lease], due, lease.cursor, deciding(fires_hourly))).handed_off == 3


async def test_a_second_round_of_decisions_that_fails_takes_the_first_one_back(stage: Stage) -> None:
    await stage.apply(declared("hourly", START))
    await stage.store.trigger("hourly", actor="test", note="")

    def judge(fact: TickFacts) -> TickDecision:
        if fact.occupied_by:
            raise ZeroDivisionError
        return fires_hourly(fact)

    with pytest.raises(ZeroDivisionError):
        await stage.fire(judge)
    assert len(await stage.store.runs(states=[State.SCHEDULED])) == 2
    assert await stage.claim() == []
