"""Decisions are pure, so their laws can be stated for everything that could ever be asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.decisions import (
    Misfire,
    Next,
    Recovery,
    after_failure,
    after_loss,
    is_lost,
    misfire,
    recovery_class,
    retry_delay,
    too_late,
)
from foliot.domain.instant import DAY, HOUR, LAST, MINUTE, SECOND, Duration, Instant
from foliot.domain.policy import CatchUp, OnLost, Policy
from foliot.domain.state import Event, Outcome, Reason

NOW: Instant = 1_775_000_000 * SECOND

chances = some.floats(0, 1, exclude_max=True)
durations = some.integers(0, LAST)
instants = some.integers(0, LAST)
failures = some.sampled_from([Outcome.FAILED, Outcome.TIMED_OUT, Outcome.STALLED, Outcome.LOST])
policies = some.builds(
    Policy,
    attempts=some.integers(1, 100),
    backoff=durations,
    backoff_cap=durations,
    give_up_after=some.none() | durations,
)


def failed(
    policy: Policy,
    outcome: Outcome = Outcome.FAILED,
    spent: int = 1,
    due_at: Instant = NOW,
    chance: float = 0.5,
    not_before: Instant | None = None,
) -> Next:
    return after_failure(policy, outcome, spent=spent, due_at=due_at, now=NOW, chance=chance, not_before=not_before)


# -------------------------------------------------------------------------------------------------------------- backoff


@given(policies, some.integers(0, 10**6), chances)
def test_a_retry_delay_lies_between_zero_and_the_ceiling_and_the_cap(policy: Policy, spent: int, chance: float) -> None:
    delay = retry_delay(policy, spent, chance)
    assert 0 <= delay <= policy.backoff_cap
    if 1 <= spent <= 64:
        assert delay <= policy.backoff * 2 ** (spent - 1)


@given(policies, some.integers(0, 100), chances, chances)
def test_more_chance_never_means_less_delay(policy: Policy, spent: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert retry_delay(policy, spent, low) <= retry_delay(policy, spent, high)


@given(policies, some.integers(1, 100), chances)
def test_another_attempt_never_means_a_lower_ceiling(policy: Policy, spent: int, chance: float) -> None:
    assert retry_delay(policy, spent, chance) <= retry_delay(policy, spent + 1, chance)


def test_the_whole_range_is_used_so_that_a_crowd_does_not_come_back_together() -> None:
    policy = Policy(backoff=8 * SECOND, backoff_cap=HOUR)
    assert retry_delay(policy, 3, 0.0) == 0
    assert retry_delay(policy, 3, 0.5) == 16 * SECOND
    assert 32 * SECOND - 2 <= retry_delay(policy, 3, 1 - 2**-53) <= 32 * SECOND


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    policy = Policy(backoff=SECOND, backoff_cap=10 * SECOND)
    assert [retry_delay(policy, spent, 0.5) * 2 // SECOND for spent in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_a_run_that_failed_very_often_is_decided_quickly() -> None:
    assert retry_delay(Policy(), 10**9, 0.5) == Policy().backoff_cap // 2


# ------------------------------------------------------------------------------------------------------- after failures


def test_a_failure_is_tried_again_after_its_delay() -> None:
    assert failed(Policy(backoff=10 * SECOND)) == Next(Event.RETRY_GRANTED, NOW + 5 * SECOND)


def test_a_permanent_error_is_not_tried_again() -> None:
    assert failed(Policy(attempts=99), Outcome.PERMANENT) == Next(Event.GAVE_UP, reason=Reason.PERMANENT)


def test_the_last_attempt_is_the_last() -> None:
    assert failed(Policy(attempts=3), spent=2).event is Event.RETRY_GRANTED
    assert failed(Policy(attempts=3), spent=3) == Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS)


def test_what_the_destination_asked_for_is_the_earliest() -> None:
    policy = Policy(backoff=10 * SECOND)
    assert failed(policy, not_before=NOW + HOUR).retry_at == NOW + HOUR
    assert failed(policy, not_before=NOW + SECOND).retry_at == NOW + 5 * SECOND


def test_a_run_is_given_up_when_its_next_try_would_come_too_late() -> None:
    policy = Policy(backoff=10 * SECOND, give_up_after=HOUR)
    assert failed(policy, due_at=NOW - HOUR + 5 * SECOND).event is Event.RETRY_GRANTED
    assert failed(policy, due_at=NOW - HOUR + 5 * SECOND - 1) == Next(Event.EXHAUSTED, reason=Reason.TOO_OLD)
    assert failed(policy, not_before=NOW + DAY).reason is Reason.TOO_OLD


@given(policies, failures, some.integers(1, 200), instants, instants, chances, some.none() | instants)
def test_a_retry_is_never_in_the_past_never_too_early_and_never_too_old(
    policy: Policy,
    outcome: Outcome,
    spent: int,
    due_at: Instant,
    now: Instant,
    chance: float,
    not_before: Instant | None,
) -> None:
    following = after_failure(
        policy, outcome, spent=spent, due_at=due_at, now=now, chance=chance, not_before=not_before
    )
    if following.event is Event.RETRY_GRANTED:
        assert following.retry_at is not None
        assert following.reason is None
        assert spent < policy.attempts
        assert following.retry_at >= max(now, not_before or 0)
        assert policy.give_up_after is None or following.retry_at <= due_at + policy.give_up_after
    else:
        assert following.event is Event.EXHAUSTED
        assert following.retry_at is None
        assert following.reason in (Reason.ATTEMPTS, Reason.TOO_OLD)


def test_a_lost_attempt_is_tried_again_or_asked_about() -> None:
    facts = {"spent": 1, "due_at": NOW, "now": NOW}
    retried = after_loss(Policy(on_lost=OnLost.RETRY), **facts, chance=0.0)
    assert retried == Next(Event.RETRY_GRANTED, NOW)
    asked = after_loss(Policy(on_lost=OnLost.ASK, attempts=1), **facts, chance=0.0)
    assert asked == Next(Event.MAYBE_FOUND, reason=Reason.LOST)
    exhausted = after_loss(Policy(attempts=1), **facts, chance=0.0)
    assert exhausted == Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS)


# --------------------------------------------------------------------------------------------------------------- leases


def lost(beat_ago: Duration, watched_for: Duration = DAY, gone: bool = False) -> bool:
    return is_lost(beat_at=NOW - beat_ago, watched_since=NOW - watched_for, lease=30 * SECOND, gone=gone, now=NOW)


def test_a_lease_ends_only_after_its_whole_length_of_silence() -> None:
    assert not lost(30 * SECOND)
    assert lost(30 * SECOND + 1)


def test_silence_counts_only_while_somebody_listened() -> None:
    assert not lost(DAY, watched_for=30 * SECOND)
    assert lost(DAY, watched_for=30 * SECOND + 1)


def test_a_process_that_is_gone_renews_nothing() -> None:
    assert lost(0, watched_for=0, gone=True)


@given(instants, instants, durations, instants)
def test_no_living_worker_loses_a_lease_before_it_was_silent_and_listened_to_for_that_long(
    beat_at: Instant, watched_since: Instant, lease: Duration, now: Instant
) -> None:
    if is_lost(beat_at=beat_at, watched_since=watched_since, lease=lease, gone=False, now=now):
        assert now - beat_at > lease or beat_at > now  # a beat from the future says nothing
        assert now - watched_since > lease


# ----------------------------------------------------------------------------------------------------- missed, too late


@pytest.mark.parametrize(
    ("catch_up", "window", "late", "expected"),
    [
        (CatchUp.ONCE, None, MINUTE, Misfire.ON_TIME),
        (CatchUp.SKIP, None, MINUTE, Misfire.ON_TIME),
        (CatchUp.ONCE, None, MINUTE + 1, Misfire.RUN_LATEST),
        (CatchUp.ALL, None, MINUTE + 1, Misfire.RUN_EACH),
        (CatchUp.SKIP, None, MINUTE + 1, Misfire.SKIP),
        (CatchUp.ALL, HOUR, HOUR, Misfire.RUN_EACH),
        (CatchUp.ALL, HOUR, HOUR + 1, Misfire.SKIP),
        (CatchUp.ONCE, HOUR, HOUR + 1, Misfire.SKIP),
        (CatchUp.ONCE, SECOND, MINUTE, Misfire.ON_TIME),
        (CatchUp.ONCE, None, -HOUR, Misfire.ON_TIME),
    ],
)
def test_a_tick_is_missed_when_it_is_later_than_agreed(
    catch_up: CatchUp, window: Duration | None, late: Duration, expected: Misfire
) -> None:
    policy = Policy(catch_up=catch_up, catch_up_window=window, missed_after=MINUTE)
    assert misfire(policy, NOW - late, NOW) is expected


def test_a_run_is_useful_up_to_the_very_end() -> None:
    assert not too_late(None, NOW)
    assert not too_late(NOW, NOW)
    assert too_late(NOW - 1, NOW)


# ------------------------------------------------------------------------------------------------------------- recovery

facts = some.fixed_dictionaries(
    {
        "begun": some.booleans(),
        "tracked": some.booleans(),
        "effects_open": some.integers(0, 3),
        "effects_done": some.integers(0, 3),
        "checkpoint": some.booleans(),
        "rewritable": some.booleans(),
    }
)


@given(facts)
def test_an_effect_that_may_have_escaped_always_wins(known: dict[str, Any]) -> None:
    assert (recovery_class(**known) is Recovery.MAYBE) == (known["effects_open"] > 0)


@given(facts)
def test_blindness_is_never_called_clean(known: dict[str, Any]) -> None:
    if recovery_class(**known) is Recovery.CLEAN:
        assert not known["begun"] or (known["tracked"] and not known["effects_done"])


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"begun": False}, Recovery.CLEAN),
        ({}, Recovery.UNTRACKED),
        ({"tracked": True}, Recovery.CLEAN),
        ({"tracked": True, "effects_done": 1}, Recovery.RESUMABLE),
        ({"checkpoint": True}, Recovery.RESUMABLE),
        ({"rewritable": True}, Recovery.REWRITABLE),
        ({"checkpoint": True, "effects_open": 1}, Recovery.MAYBE),
        ({"begun": False, "effects_open": 1}, Recovery.MAYBE),
    ],
)
def test_each_recovery_class_has_its_facts(known: dict[str, Any], expected: Recovery) -> None:
    nothing: dict[str, Any] = {
        "begun": True,
        "tracked": False,
        "effects_open": 0,
        "effects_done": 0,
        "checkpoint": False,
        "rewritable": False,
    }
    assert recovery_class(**nothing | known) is expected
