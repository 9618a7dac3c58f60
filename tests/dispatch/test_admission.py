"""What happens to a due run of a schedule, branch by branch. What holds for all is in test_admission_properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foliot.dispatch.admission import COUNTED_PER_BATCH, decide_tick, decide_ticks
from foliot.domain.identity import tick_name
from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, rfc3339, to_datetime
from foliot.domain.policy import CatchUp, Overlap, Policy
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import NewTick, TickDecision
from foliot.domain.state import Reason
from foliot.timing import after, at, cron, every, jittered
from tests.dispatch.schedules import a_schedule, a_tick

NOON: Instant = 1_800_000_000 * SECOND
HOURLY = every("1h", start=to_datetime(NOON))


def decided(now: Instant, policy: Policy | None = None, *, rule: Any = HOURLY, **facts: Any) -> TickDecision:
    """About the tick at noon of an hourly schedule."""
    return decide_tick(a_tick(a_schedule(rule, policy), NOON, **facts), now)


def tick(nominal: Instant, since: Instant | None) -> NewTick:
    return NewTick(nominal, since, fire_at=nominal)


# On time


def test_a_tick_on_time_fires_and_its_successor_is_made() -> None:
    assert decided(NOON) == TickDecision(7, "fire", successor=tick(NOON + HOUR, NOON), evaluated_through=NOON)


def test_a_tick_that_is_a_little_late_is_live_all_the_same() -> None:
    decision = decided(NOON + MINUTE)
    assert (decision.verdict, decision.lane) == ("fire", Lane.LIVE)


def test_a_successor_is_useful_for_as_long_as_the_policy_says() -> None:
    decision = decided(NOON, Policy(useful_until=10 * MINUTE))
    assert decision.successor == NewTick(NOON + HOUR, NOON, NOON + HOUR, NOON + HOUR + 10 * MINUTE)


def test_a_successor_fires_at_its_jittered_time_and_keeps_its_nominal_one() -> None:
    decision = decided(NOON, Policy(jitter=20 * MINUTE))
    fire_at = jittered("report", NOON + HOUR, 20 * MINUTE, NOON + 2 * HOUR)
    assert fire_at != NOON + HOUR
    assert decision.successor == NewTick(NOON + HOUR, NOON, fire_at)


def test_a_jittered_tick_is_on_time_at_its_jittered_time() -> None:
    fire_at = jittered("report", NOON, 50 * MINUTE, NOON + HOUR)
    assert fire_at - NOON > 2 * MINUTE  # by its nominal time it would be missed
    policy = Policy(jitter=50 * MINUTE, catch_up=CatchUp.SKIP)
    assert decided(fire_at, policy, fire_at=fire_at).verdict == "fire"
    assert decided(fire_at + MINUTE + 1, policy, fire_at=fire_at).reason is Reason.MISFIRE


def test_the_last_tick_of_a_rule_has_no_successor() -> None:
    decision = decided(NOON, rule=at(to_datetime(NOON)))
    assert (decision.verdict, decision.successor, decision.fault) == ("fire", None, None)


def test_a_live_tick_is_skipped_while_another_run_is_active_and_says_which() -> None:
    decision = decided(NOON, occupied_by="report@before")
    assert (decision.verdict, decision.reason) == ("skip", Reason.OVERLAP)
    assert "report@before" in (decision.detail or "")
    assert decision.successor == tick(NOON + HOUR, NOON)


def test_a_live_tick_fires_beside_another_run_where_overlap_is_allowed() -> None:
    assert decided(NOON, Policy(overlap=Overlap.ALLOW), occupied_by="report@before").verdict == "fire"


def test_a_tick_that_helps_nobody_any_more_is_skipped_together_with_those_after_it() -> None:
    policy = Policy(useful_until=10 * SECOND)
    decision = decided(NOON + 30 * SECOND, policy, rule=every("1s"))
    # At half past, a tick of second 20 may still start; those of 0 to 19 may not.
    assert (decision.verdict, decision.reason) == ("skip", Reason.TOO_LATE)
    assert (decision.span_until, decision.span_count) == (NOON + 19 * SECOND, 20)
    assert decision.successor is not None
    assert decision.successor.nominal == NOON + 20 * SECOND


# Missed: once


ONCE = Policy(catch_up=CatchUp.ONCE)


def test_one_missed_tick_is_run_late_in_the_catch_up_lane() -> None:
    assert decided(NOON + 2 * MINUTE, ONCE) == TickDecision(
        7, "fire", Lane.CATCH_UP, successor=tick(NOON + HOUR, NOON), evaluated_through=NOON
    )


def test_many_missed_ticks_become_the_latest_which_spans_them_all() -> None:
    decision = decided(NOON + 5 * HOUR + 2 * MINUTE, ONCE, since=NOON - HOUR)
    assert decision == TickDecision(
        7,
        "skip",
        Lane.CATCH_UP,
        Reason.COALESCED,
        f"into {tick_name('report', NOON + 5 * HOUR)}",
        span_until=NOON + 4 * HOUR,
        span_count=5,
        instead=tick(NOON + 5 * HOUR, since=NOON - HOUR),
        successor=tick(NOON + 6 * HOUR, since=NOON + 5 * HOUR),
        evaluated_through=NOON + 5 * HOUR,
    )


def test_a_tick_that_is_merged_alone_is_no_span() -> None:
    decision = decided(NOON + HOUR + 2 * MINUTE, ONCE)
    assert (decision.reason, decision.span_until, decision.span_count) == (Reason.COALESCED, None, 1)


def test_the_merged_run_begins_where_the_first_tick_did_when_its_row_does_not_say() -> None:
    decision = decided(NOON + 5 * HOUR, Policy(catch_up=CatchUp.ONCE), rule=every("1h"))
    assert decision.instead is not None
    assert decision.instead.since == NOON - HOUR


def test_ticks_that_are_caught_up_wait_for_the_active_run_and_make_no_successor() -> None:
    decision = decided(NOON + 5 * HOUR, ONCE, occupied_by="report@before")
    assert (decision.verdict, decision.reason) == ("hold", Reason.OVERLAP)
    assert "report@before" in (decision.detail or "")
    assert (decision.successor, decision.instead, decision.evaluated_through) == (None, None, None)


def test_nothing_waits_where_overlap_is_allowed() -> None:
    policy = Policy(catch_up=CatchUp.ONCE, overlap=Overlap.ALLOW)
    assert decided(NOON + 5 * HOUR, policy, occupied_by="report@before").instead is not None


def test_everything_is_too_late_when_the_latest_missed_tick_is() -> None:
    policy = Policy(catch_up=CatchUp.ONCE, useful_until=10 * MINUTE)
    decision = decided(NOON + 5 * HOUR + 11 * MINUTE, policy)
    assert (decision.reason, decision.instead) == (Reason.TOO_LATE, None)
    assert (decision.span_until, decision.span_count) == (NOON + 5 * HOUR, 6)
    assert decision.successor is not None
    assert decision.successor.nominal == NOON + 6 * HOUR


def test_the_latest_may_be_useful_when_the_first_is_not() -> None:
    policy = Policy(catch_up=CatchUp.ONCE, useful_until=10 * MINUTE)
    decision = decided(NOON + 5 * HOUR + 9 * MINUTE, policy)
    assert decision.instead is not None
    assert decision.instead.useful_until == NOON + 5 * HOUR + 10 * MINUTE


def test_ticks_outside_the_catch_up_window_are_missed_and_those_inside_are_caught_up() -> None:
    policy = Policy(catch_up=CatchUp.ONCE, catch_up_window=2 * HOUR)
    now = NOON + 5 * HOUR + 2 * MINUTE
    decision = decided(now, policy)
    assert (decision.reason, decision.span_until, decision.span_count) == (Reason.MISFIRE, NOON + 3 * HOUR, 4)
    assert decision.successor == tick(NOON + 4 * HOUR, since=NOON + 3 * HOUR)
    then = decide_tick(a_tick(a_schedule(HOURLY, policy), NOON + 4 * HOUR, since=NOON + 3 * HOUR), now)
    assert then.instead == tick(NOON + 5 * HOUR, since=NOON + 3 * HOUR)


def test_a_latest_tick_whose_jittered_time_is_still_to_come_is_left_to_come() -> None:
    policy = Policy(catch_up=CatchUp.ONCE, jitter=50 * MINUTE)
    latest = NOON + 5 * HOUR
    fire_at = jittered("report", latest, 50 * MINUTE, latest + HOUR)
    decision = decided(fire_at - 1, policy)
    assert decision.instead is not None
    assert decision.instead.nominal == NOON + 4 * HOUR
    assert (decision.span_until, decision.span_count) == (NOON + 3 * HOUR, 4)
    assert decision.successor == NewTick(latest, NOON + 4 * HOUR, fire_at)
    assert decided(fire_at, policy).evaluated_through == latest


# Missed: all


ALL = Policy(catch_up=CatchUp.ALL)


def test_every_missed_tick_is_run_oldest_first() -> None:
    assert decided(NOON + 5 * HOUR, ALL) == TickDecision(
        7, "fire", Lane.CATCH_UP, successor=tick(NOON + HOUR, NOON), evaluated_through=NOON
    )


@pytest.mark.parametrize("overlap", Overlap)
def test_ticks_caught_up_one_by_one_wait_for_one_another(overlap: Overlap) -> None:
    decision = decided(NOON + 5 * HOUR, replace(ALL, overlap=overlap), occupied_by="report@before")
    assert (decision.verdict, decision.reason, decision.successor) == ("hold", Reason.OVERLAP, None)


def test_a_tick_that_was_held_and_released_is_still_caught_up_and_not_live() -> None:
    now = NOON + 5 * HOUR
    assert decided(now, ALL, fire_at=now).lane is Lane.CATCH_UP


def test_ticks_older_than_the_window_share_one_row_and_the_first_inside_is_next() -> None:
    decision = decided(NOON + 5 * HOUR, replace(ALL, catch_up_window=2 * HOUR))
    assert (decision.verdict, decision.reason) == ("skip", Reason.MISFIRE)
    assert (decision.span_until, decision.span_count) == (NOON + 2 * HOUR, 3)
    assert decision.successor == tick(NOON + 3 * HOUR, since=NOON + 2 * HOUR)


def test_a_window_shorter_than_missed_after_does_not_skip_ticks_that_are_on_time() -> None:
    decision = decided(NOON + 90 * SECOND, replace(ALL, catch_up_window=10 * SECOND), rule=every("15s"))
    assert decision.reason is Reason.MISFIRE
    assert decision.successor is not None
    assert decision.successor.nominal == NOON + 30 * SECOND  # one minute late: not missed


# Missed: skip


def test_missed_ticks_that_nobody_wants_share_one_row_and_the_first_on_time_is_next() -> None:
    decision = decided(NOON + 5 * HOUR + 30 * SECOND, Policy(catch_up=CatchUp.SKIP))
    assert (decision.verdict, decision.reason) == ("skip", Reason.MISFIRE)
    assert (decision.span_until, decision.span_count) == (NOON + 4 * HOUR, 5)
    assert decision.successor == tick(NOON + 5 * HOUR, since=NOON + 4 * HOUR)
    assert decision.evaluated_through == NOON + 4 * HOUR


# Paused


@pytest.mark.parametrize("until", [None, NOON + DAY])
def test_a_tick_of_a_paused_schedule_is_held_and_nothing_is_evaluated(until: int | None) -> None:
    schedule = a_schedule(HOURLY, paused_at=NOON - DAY, paused_until=until, paused_note="month end")
    decision = decide_tick(a_tick(schedule, NOON), NOON + 5 * HOUR)
    assert (decision.verdict, decision.reason) == ("hold", Reason.PAUSED)
    assert decision.detail == ("paused: month end" if until is None else f"paused until {rfc3339(until)}: month end")
    assert (decision.until, decision.successor, decision.evaluated_through) == (until, None, None)


def test_ticks_of_a_pause_that_nobody_wants_made_up_for_are_skipped_in_one_row() -> None:
    schedule = a_schedule(HOURLY, skip_through=NOON + 5 * HOUR, paused_note="month end")
    decision = decide_tick(a_tick(schedule, NOON), NOON + 5 * HOUR)
    assert (decision.verdict, decision.reason, decision.detail) == ("skip", Reason.PAUSED, "month end")
    assert (decision.span_until, decision.span_count) == (NOON + 5 * HOUR, 6)
    assert decision.successor == tick(NOON + 6 * HOUR, since=NOON + 5 * HOUR)


def test_a_pause_that_has_ended_holds_nothing_up() -> None:
    schedule = a_schedule(HOURLY, paused_at=NOON - DAY, paused_until=NOON)
    assert decide_tick(a_tick(schedule, NOON), NOON).verdict == "fire"


def test_a_paused_schedule_can_be_triggered_and_its_retries_go_on() -> None:
    schedule = a_schedule(HOURLY, paused_at=NOON - DAY)
    assert decide_tick(a_tick(schedule, NOON, origin=Origin.MANUAL), NOON).verdict == "fire"
    assert decide_tick(a_tick(schedule, NOON, attempt=1), NOON).verdict == "fire"


# Runs that are not fresh ticks


def test_a_run_whose_template_is_gone_stands_for_itself() -> None:
    assert decide_tick(a_tick(None, NOON), NOON + DAY) == TickDecision(7, "fire")


@pytest.mark.parametrize("policy", [Policy(), Policy(catch_up=CatchUp.SKIP), Policy(catch_up=CatchUp.ALL)])
def test_a_retry_fires_whatever_is_active_and_makes_no_second_successor(policy: Policy) -> None:
    assert decided(NOON + DAY, policy, attempt=1, occupied_by="report@later") == TickDecision(7, "fire")


def test_a_retry_that_helps_nobody_any_more_is_skipped() -> None:
    decision = decided(NOON + HOUR, Policy(useful_until=MINUTE), attempt=2)
    assert (decision.verdict, decision.reason, decision.successor) == ("skip", Reason.TOO_LATE, None)


def test_a_triggered_run_fires_without_a_successor() -> None:
    assert decided(NOON, origin=Origin.MANUAL) == TickDecision(7, "fire")


def test_a_triggered_run_that_is_too_late_is_skipped_alone() -> None:
    decision = decided(NOON + 3 * HOUR, origin=Origin.MANUAL, useful_until=NOON + HOUR)
    assert (decision.verdict, decision.reason, decision.successor) == ("skip", Reason.TOO_LATE, None)


def test_a_triggered_run_obeys_overlap() -> None:
    decision = decided(NOON, origin=Origin.MANUAL, occupied_by="report@before")
    assert (decision.verdict, decision.reason, decision.successor) == ("skip", Reason.OVERLAP, None)
    assert "report@before" in (decision.detail or "")
    assert decided(NOON, Policy(overlap=Overlap.ALLOW), origin=Origin.MANUAL, occupied_by="x").verdict == "fire"


# Fixed delay


TEN = after("10m")


@pytest.mark.parametrize("late", [0, DAY])
def test_a_run_of_a_fixed_delay_fires_however_late_and_its_end_makes_the_next(late: int) -> None:
    assert decided(NOON + late, rule=TEN) == TickDecision(7, "fire", evaluated_through=NOON)


@pytest.mark.parametrize(
    ("settings", "facts", "reason"),
    [
        ({"skip_through": NOON + HOUR}, {}, Reason.PAUSED),
        ({}, {"occupied_by": "report@before#m"}, Reason.OVERLAP),
        ({}, {"useful_until": NOON + SECOND}, Reason.TOO_LATE),
        ({}, {"useful_until": NOON + SECOND, "attempt": 1}, Reason.TOO_LATE),
    ],
)
def test_a_run_of_a_fixed_delay_that_is_skipped_still_has_a_next(
    settings: dict[str, Any], facts: dict[str, Any], reason: Reason
) -> None:
    now = NOON + HOUR
    decision = decide_tick(a_tick(a_schedule(TEN, **settings), NOON, **facts), now)
    assert (decision.verdict, decision.reason) == ("skip", reason)
    assert decision.successor == tick(now + 10 * MINUTE, since=NOON)
    assert decision.evaluated_through == NOON


def test_a_paused_delay_of_a_millisecond_does_not_fill_the_history() -> None:
    decision = decide_tick(a_tick(a_schedule(after(0.001), paused_at=0), NOON), NOON)
    assert (decision.verdict, decision.successor) == ("hold", None)


# Faults


@pytest.mark.parametrize("rule", ["", "{", '{"sundial": "noon"}', '{"cron": "61 * * * *", "tz": "UTC"}', "\x00"])
def test_a_tick_of_an_unreadable_rule_fires_because_it_was_promised(rule: str) -> None:
    decision = decided(NOON + DAY, rule=rule)
    assert (decision.verdict, decision.successor, decision.evaluated_through) == ("fire", None, NOON)
    assert decision.fault is not None
    assert decision.fault.startswith("InvalidRule: ")


def test_an_unreadable_rule_does_not_undo_a_pause_or_the_overlap_policy() -> None:
    paused = decide_tick(a_tick(a_schedule("?", paused_at=0), NOON), NOON)
    assert (paused.verdict, paused.reason, paused.fault is None) == ("skip", Reason.PAUSED, False)
    busy = decided(NOON, rule="?", occupied_by="report@before")
    assert (busy.verdict, busy.reason, busy.fault is None) == ("skip", Reason.OVERLAP, False)


def test_one_bad_schedule_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Treacherous:
        delay = None

        def next(self, after: Instant) -> Instant | None:
            raise OverflowError("no such year")

        previous = next

    monkeypatch.setattr("foliot.dispatch.admission._rule", lambda text: Treacherous() if text == "bad" else HOURLY)
    good, bad = a_schedule(HOURLY, id="good"), a_schedule("bad", id="bad")
    first, second, third = decide_ticks([a_tick(good, NOON), a_tick(bad, NOON), a_tick(good, NOON, attempt=1)], NOON)
    assert (first.verdict, first.fault) == ("fire", None)
    assert (second.verdict, second.fault, second.successor) == ("fire", "OverflowError: no such year", None)
    assert (third.verdict, third.fault) == ("fire", None)


# Batches


def test_two_runs_of_one_schedule_in_one_batch_do_not_overlap() -> None:
    schedule = a_schedule(HOURLY)
    by_hand = a_tick(schedule, NOON, origin=Origin.MANUAL, number=8, id="report@by-hand#m")
    first, second = decide_ticks([a_tick(schedule, NOON), by_hand], NOON)
    assert (first.verdict, second.verdict, second.reason) == ("fire", "skip", Reason.OVERLAP)
    assert tick_name("report", NOON) in (second.detail or "")


def test_a_merged_run_makes_its_schedule_busy_for_the_rest_of_the_batch() -> None:
    schedule = a_schedule(HOURLY, ONCE)
    by_hand = a_tick(schedule, NOON, origin=Origin.MANUAL, number=8, id="report@by-hand#m")
    _, second = decide_ticks([a_tick(schedule, NOON), by_hand], NOON + 5 * HOUR)
    assert (second.verdict, second.reason) == ("skip", Reason.OVERLAP)
    assert tick_name("report", NOON + 5 * HOUR) in (second.detail or "")


def test_runs_of_different_schedules_do_not_hinder_one_another() -> None:
    facts = [a_tick(a_schedule(HOURLY, id=f"report-{n}"), NOON, number=n) for n in range(3)]
    assert [(d.number, d.verdict) for d in decide_ticks(facts, NOON)] == [(0, "fire"), (1, "fire"), (2, "fire")]


# Caps


def test_ticks_are_counted_up_to_a_cap_and_the_row_says_so() -> None:
    years = 30 * 365 * DAY
    decision = decided(NOON + years, Policy(catch_up=CatchUp.SKIP), rule=cron("* * * * *"))
    assert decision.span_count == 10_000
    assert "at least 10000 ticks" in (decision.detail or "")
    assert decision.successor is not None
    assert decision.successor.nominal == NOON + years - MINUTE  # exact all the same: only the count is a lower bound


def test_a_batch_of_long_silent_schedules_shares_one_budget_of_counting() -> None:
    month = 30 * DAY
    facts = [a_tick(a_schedule(cron("* * * * *"), ONCE, id=f"report-{n}"), NOON, number=n) for n in range(100)]
    decisions = decide_ticks(facts, NOON + month)
    assert sum(decision.span_count for decision in decisions) <= COUNTED_PER_BATCH + 10_000 + 100 * 10
    assert all(decision.instead is not None for decision in decisions)
    assert {decision.successor.nominal for decision in decisions if decision.successor} == {NOON + month + MINUTE}


def test_what_is_rare_stays_cheap() -> None:
    """A rule that is as fast as rules can be, after a year: arithmetic, not a walk."""
    decision = decided(NOON + 365 * DAY, ONCE, rule=every(100 * MILLISECOND / SECOND))
    assert decision.instead is not None
    assert decision.instead.nominal == NOON + 365 * DAY
