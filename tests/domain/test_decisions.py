"""Decisions are pure, so their laws can be stated for everything that could ever be asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.decisions import (
    Misfire,
    Next,
    after_check,
    after_failure,
    after_loss,
    after_lost_check,
    is_lost,
    misfire,
    retry_delay,
    store_pause,
    too_late,
    unless_in_doubt,
)
from foliot.domain.instant import DAY, HOUR, LAST, MILLISECOND, MINUTE, SECOND, Duration, Instant
from foliot.domain.ledger import Facts, Traits
from foliot.domain.policy import CatchUp, OnLost, Policy
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.suspicion import APART_FROM, Suspicion
from foliot.errors import StoreError, StoreFull

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
    facts: Facts = Facts(),  # noqa: B008 - a frozen value
) -> Next:
    return after_failure(
        policy,
        outcome,
        spent=spent,
        due_at=due_at,
        now=NOW,
        chance=chance,
        not_before=not_before,
        facts=facts,
    )


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
    assert failed(Policy(backoff=10 * SECOND)) == Next(Event.RETRY_GRANTED, NOW + 5 * SECOND, Reason.FAILED)


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
        assert following.reason is (Reason.ASKED_TO_WAIT if not_before is not None else Reason(outcome))
        assert spent < policy.attempts
        assert following.retry_at >= max(now, not_before or 0)
        assert policy.give_up_after is None or following.retry_at <= due_at + policy.give_up_after
    else:
        assert following.event is Event.EXHAUSTED
        assert following.retry_at is None
        assert following.reason in (Reason.ATTEMPTS, Reason.TOO_OLD)


def test_a_lost_attempt_is_tried_again_or_asked_about() -> None:
    facts: dict[str, Any] = {"spent": 1, "due_at": NOW, "now": NOW}
    retried = after_loss(Policy(on_lost=OnLost.RETRY, attempts=1), **facts, chance=0.0)
    assert retried == Next(Event.RETRY_GRANTED, NOW, Reason.LOST, charged=False)
    asked = after_loss(Policy(on_lost=OnLost.ASK, attempts=1), **facts, chance=0.0)
    assert asked == Next(Event.MAYBE_FOUND, reason=Reason.LOST)


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


# --------------------------------------------------------------------------------------------------------------- stages

ledgers = some.builds(
    Facts,
    done=some.integers(0, 3),
    open=some.integers(0, 3),
    maybe=some.integers(0, 3),
    items=some.integers(0, 3),
    checkpoint=some.booleans(),
)
natures = some.builds(
    Traits,
    effects=some.none() | some.just(("pay",)),
    idempotent=some.booleans(),
    rewritable=some.booleans(),
    checked=some.booleans(),
    isolated=some.booleans(),
)
AGAIN = {Event.RETRY_GRANTED, Event.GIVEN_BACK}
IN_DOUBT = {Event.MAYBE_FOUND, Event.DOUBTED}


@pytest.mark.parametrize(
    ("facts", "retried"),
    [
        (Facts(), [1, 2, 3]),
        (Facts(done=1), [1]),
        (Facts(open=1), []),
        (Facts(done=1, open=1), []),
    ],
)
def test_each_stage_has_its_own_number_of_attempts(facts: Facts, retried: list[int]) -> None:
    policy = Policy(attempts=4, attempts_after_effect=2, attempts_inside_effect=0)
    events = {spent: failed(policy, spent=spent, facts=facts).event for spent in range(1, 6)}
    assert [spent for spent, event in events.items() if event is Event.RETRY_GRANTED] == retried


def test_what_nobody_chose_for_later_stages_is_as_before() -> None:
    for facts in (Facts(done=1), Facts(open=1)):
        assert failed(Policy(attempts=3), spent=2, facts=facts).event is Event.RETRY_GRANTED
        assert failed(Policy(attempts=3), spent=3, facts=facts).event is Event.EXHAUSTED


@given(some.sampled_from(list(Event)), ledgers, natures)
def test_no_verdict_hides_an_effect_that_may_have_escaped(event: Event, facts: Facts, traits: Traits) -> None:
    verdict = unless_in_doubt(Next(event), facts, traits)
    if facts.maybe or (facts.open and event not in AGAIN):
        assert verdict == Next(Event.DOUBTED if traits.checked else Event.MAYBE_FOUND, reason=Reason.EFFECT)
    else:
        assert verdict == Next(event)


suspicions = some.builds(Suspicion, losses=some.integers(0, 60), deaths=some.none() | some.integers(0, 5))


@given(
    policies, some.integers(1, 200), chances, ledgers, natures, suspicions, some.integers(1, 10_000), some.booleans()
)
def test_a_lost_run_with_a_maybe_is_never_tried_again_without_a_person_or_a_check(
    policy: Policy,
    spent: int,
    chance: float,
    facts: Facts,
    traits: Traits,
    suspicion: Suspicion,
    slots: int,
    alone: bool,
) -> None:
    verdict = after_loss(
        policy,
        spent=spent,
        due_at=NOW,
        now=NOW,
        chance=chance,
        facts=facts,
        traits=traits,
        suspicion=suspicion,
        slots=slots,
        alone=alone,
    )
    if facts.maybe:
        assert verdict.event in IN_DOUBT
    if facts.open and verdict.event not in IN_DOUBT:
        assert verdict.event is Event.RETRY_GRANTED
    if not alone:
        assert verdict.reason is not Reason.POISON, "only a process that died alone counts as poison"
    if not alone and suspicion.losses < APART_FROM and verdict.event not in IN_DOUBT:
        assert (verdict.event, verdict.charged) == (Event.RETRY_GRANTED, False)


def lost_run(policy: Policy = Policy(), **more: Any) -> Next:  # noqa: B008 - a frozen value
    given: dict[str, Any] = {"spent": 1, "due_at": NOW, "now": NOW, "chance": 0.0, "slots": 100}
    return after_loss(policy, **(given | more))


def test_the_first_loss_with_a_worker_costs_nothing_and_raises_no_suspicion() -> None:
    assert lost_run(Policy(attempts=1)) == Next(Event.RETRY_GRANTED, NOW, Reason.LOST, charged=False, deaths=None)


def test_the_second_loss_in_a_row_raises_suspicion_and_costs_nothing() -> None:
    again = Next(Event.RETRY_GRANTED, NOW, Reason.LOST, charged=False, deaths=0)
    assert lost_run(Policy(attempts=1), suspicion=Suspicion(1)) == again
    assert lost_run(Policy(attempts=1), suspicion=Suspicion(5, 0)) == again


def test_a_run_with_a_process_of_its_own_is_never_suspected() -> None:
    isolated = Traits(isolated=True)
    assert [lost_run(traits=isolated, suspicion=Suspicion(n)).deaths for n in range(6)] == [None] * 6


def test_three_losses_of_its_worker_cost_no_run_an_attempt_whatever_its_worker_has_slots() -> None:
    for slots in (1, 2, 4, 100):
        for traits in (Traits(), Traits(isolated=True)):
            lost = [lost_run(Policy(attempts=1), slots=slots, traits=traits, suspicion=Suspicion(n)) for n in range(3)]
            assert {verdict.charged for verdict in lost} == {False}


def test_a_worker_that_dies_of_the_process_of_a_run_again_and_again_costs_that_run_attempts() -> None:
    """The kernel may end a whole container when one process has no memory left."""
    apart = Suspicion(7, 0)
    assert lost_run(suspicion=apart) == Next(Event.RETRY_GRANTED, NOW, Reason.LOST, charged=True, deaths=0)
    exhausted = Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS, deaths=0)
    assert lost_run(Policy(attempts=3), spent=3, suspicion=apart) == exhausted
    isolated = lost_run(Policy(attempts=3), spent=3, suspicion=Suspicion(3), traits=Traits(isolated=True))
    assert isolated == Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS)


def test_a_run_whose_own_process_dies_is_poison() -> None:
    policy = Policy(attempts=100, poison_after=3)

    def died(deaths: int, **more: Any) -> Next:
        return lost_run(policy, suspicion=Suspicion(7, deaths), alone=True, **more)

    assert died(0) == Next(Event.RETRY_GRANTED, NOW, Reason.LOST, deaths=1)
    assert died(1) == Next(Event.RETRY_GRANTED, NOW, Reason.LOST, deaths=2)
    assert died(2) == Next(Event.GAVE_UP, reason=Reason.POISON, deaths=3)
    assert died(2, facts=Facts(open=1)).event is Event.MAYBE_FOUND


def test_a_job_whose_effects_are_in_the_ledger_goes_by_that_and_not_by_on_lost() -> None:
    asking = Policy(on_lost=OnLost.ASK)
    for traits in (Traits(effects=()), Traits(idempotent=True), Traits(rewritable=True)):
        assert lost_run(asking, traits=traits).event is Event.RETRY_GRANTED
    assert lost_run(asking, traits=Traits(checked=True)).event is Event.DOUBTED


def test_an_attempt_that_was_ended_with_its_process_is_not_held_against_the_worker() -> None:
    verdict = lost_run(outcome=Outcome.TIMED_OUT)
    assert (verdict.event, verdict.reason, verdict.deaths) == (Event.RETRY_GRANTED, Reason.TIMED_OUT, None)


# --------------------------------------------------------------------------------------------------------------- checks


def checked(spent: int = 1, **more: Any) -> Next:
    return after_check(Policy(attempts=3), **{"spent": spent, "in_doubt": False, "now": NOW, "chance": 0.0} | more)


def test_a_check_that_says_no_is_not_asked_twice() -> None:
    assert checked(refused=True) == Next(Event.CHECK_REFUSED, reason=Reason.CHECK)
    assert checked(refused=True, in_doubt=True) == Next(Event.MAYBE_FOUND, reason=Reason.CHECK)


def test_a_check_that_broke_is_made_again_while_it_has_tries_left() -> None:
    assert checked(2) == Next(Event.RETRY_GRANTED, NOW, Reason.CHECK_FAILED)
    assert checked(3) == Next(Event.CHECK_REFUSED, reason=Reason.CHECK_FAILED)
    assert checked(3, in_doubt=True) == Next(Event.MAYBE_FOUND, reason=Reason.CHECK_FAILED)


def test_a_lost_check_is_made_again_until_it_is_found_to_be_poison() -> None:
    def lost_check(losses: int, deaths: int | None) -> Next:
        suspicion = Suspicion(losses, deaths)
        return after_lost_check(Policy(poison_after=2), in_doubt=False, now=NOW, suspicion=suspicion, slots=8)

    def again(deaths: int | None) -> Next:
        return Next(Event.RETRY_GRANTED, NOW, Reason.LOST, charged=False, deaths=deaths)

    assert [lost_check(0, None), lost_check(1, None), lost_check(3, 0)] == [again(None), again(0), again(0)]
    assert lost_check(4, 0) == again(1), "it was the only suspected run of its worker"
    assert lost_check(5, 1) == Next(Event.CHECK_REFUSED, reason=Reason.POISON)


@pytest.mark.parametrize(("error", "longest"), [(StoreFull("full"), SECOND // 2), (StoreError("gone"), 5 * SECOND)])
def test_pauses_double_and_stay_below_half_a_second_while_the_disk_is_full(error: StoreError, longest: int) -> None:
    pauses = [store_pause(failures, error) for failures in range(1, 200)]
    assert pauses[:4] == [50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND, 400 * MILLISECOND]
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest
