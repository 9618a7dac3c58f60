"""What the scheduler asks of rules: what comes, what was missed, how far jitter moves a tick."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, HOUR, LAST, MINUTE, SECOND, Instant, instant
from foliot.errors import InvalidInput
from foliot.timing import Every, Overdue, after, at, cron, every, jittered, overdue, upcoming

MOMENT = instant(datetime(2026, 4, 3, 2, tzinfo=UTC))


# -------------------------------------------------------------------------------------------------------------- coming


def test_upcoming_ticks_are_strictly_after_the_start() -> None:
    assert upcoming(every("1h"), MOMENT, 3) == [MOMENT + HOUR, MOMENT + 2 * HOUR, MOMENT + 3 * HOUR]


def test_a_rule_that_ends_has_fewer_upcoming_ticks() -> None:
    once = at(datetime(2026, 4, 3, 2, tzinfo=UTC))
    assert upcoming(once, MOMENT - 1, 5) == [MOMENT]
    assert upcoming(once, MOMENT, 5) == []
    assert upcoming(after("10m"), MOMENT, 5) == []
    assert upcoming(every("1h"), LAST - 90 * MINUTE, 5) == [LAST + SECOND - HOUR]


def test_no_upcoming_ticks_are_asked_for() -> None:
    assert upcoming(every("1h"), MOMENT, 0) == []


# ------------------------------------------------------------------------------------------------------------- overdue


def test_a_tick_that_is_due_on_time_is_alone() -> None:
    assert overdue(every("1h"), MOMENT, MOMENT) == Overdue(MOMENT, MOMENT, 1, False, MOMENT + HOUR)
    assert overdue(cron("0 * * * *"), MOMENT, MOMENT) == Overdue(MOMENT, MOMENT, 1, False, MOMENT + HOUR)


@pytest.mark.parametrize("rule", [every("1h"), cron("0 * * * *")])
def test_a_night_of_absence_leaves_the_ticks_between(rule: Every) -> None:
    now = MOMENT + 8 * HOUR + 17 * MINUTE
    assert overdue(rule, MOMENT, now) == Overdue(MOMENT, MOMENT + 8 * HOUR, 9, False, MOMENT + 9 * HOUR)


@pytest.mark.parametrize("rule", [every("1m"), cron("* * * * *")])
def test_the_count_stops_at_the_cap_and_says_so(rule: Every) -> None:
    exactly = overdue(rule, MOMENT, MOMENT + 9 * MINUTE, cap=10)
    assert (exactly.count, exactly.capped) == (10, False)
    beyond = overdue(rule, MOMENT, MOMENT + 10 * MINUTE, cap=10)
    assert (beyond.count, beyond.capped) == (10, True)
    assert beyond.latest == MOMENT + 10 * MINUTE, "the cap bounds the count, not the search"
    assert beyond.following == MOMENT + 11 * MINUTE


@given(some.integers(1, 59), some.integers(0, 20 * DAY), some.integers(1, 50))
def test_a_rate_and_its_cron_twin_are_overdue_alike(minutes: int, late: int, cap: int) -> None:
    step = next(divisor for divisor in (30, 20, 15, 12, 10, 6, 5, 4, 3, 2, 1) if divisor <= minutes)
    rate, twin = every(f"{step}m"), cron(f"*/{step} * * * *")
    assert overdue(rate, MOMENT, MOMENT + late, cap=cap) == overdue(twin, MOMENT, MOMENT + late, cap=cap)


@given(
    some.integers(SECOND, HOUR) | some.integers(HOUR, 9 * DAY), some.integers(0, 3 * DAY), some.integers(0, 30 * DAY)
)
def test_arithmetic_counts_as_listing_does(interval: int, pending: int, late: int) -> None:
    # The pending tick may lie off the grid, and before its start: its schedule may have been edited meanwhile.
    rule, first, now = Every(interval, MOMENT + DAY), MOMENT + pending, MOMENT + pending + late
    found = overdue(rule, first, now, cap=1_000)
    listed = [first, *(tick for tick in upcoming(rule, first, 1_001) if tick <= now)]
    assert found.count == min(len(listed), 1_000)
    assert found.capped == (len(listed) > 1_000)
    assert found.latest == max(first, rule.previous(now + 1) or first)
    assert found.following is not None
    assert found.following > now


def test_a_rule_without_further_ticks_has_nothing_following() -> None:
    once = at(datetime(2026, 4, 3, 2, tzinfo=UTC))
    assert overdue(once, MOMENT, MOMENT + DAY) == Overdue(MOMENT, MOMENT, 1, False, None)
    assert overdue(after("10m"), MOMENT, MOMENT + DAY) == Overdue(MOMENT, MOMENT, 1, False, None)


def test_a_tick_of_an_older_rule_still_counts() -> None:
    first = MOMENT + 7 * MINUTE
    assert overdue(every("1h"), first, first + MINUTE) == Overdue(first, first, 1, False, MOMENT + HOUR)
    assert overdue(cron("0 * * * *"), first, first + HOUR) == Overdue(first, MOMENT + HOUR, 2, False, MOMENT + 2 * HOUR)


def test_what_is_still_to_come_is_not_overdue() -> None:
    with pytest.raises(InvalidInput, match="no tick is overdue"):
        overdue(every("1h"), MOMENT, MOMENT - 1)


# -------------------------------------------------------------------------------------------------------------- jitter

spans = some.integers(0, 3 * DAY)


@given(some.text(some.characters(codec="utf-8")), some.integers(0, LAST), spans, some.none() | some.integers(1, DAY))
def test_jitter_stays_in_its_bounds(schedule: str, nominal: Instant, jitter: int, gap: int | None) -> None:
    following = None if gap is None else nominal + gap
    fire = jittered(schedule, nominal, jitter, following)
    assert nominal <= fire <= nominal + jitter
    assert following is None or fire < following
    assert fire <= max(nominal, LAST) or following is not None


def test_no_jitter_moves_nothing() -> None:
    assert jittered("feed", MOMENT, 0, None) == MOMENT


def test_jitter_spreads_schedules_and_ticks() -> None:
    by_schedule = {jittered(f"feed-{number}", MOMENT, HOUR, None) for number in range(1_000)}
    by_tick = {jittered("feed", MOMENT + number, HOUR, None) - number for number in range(1_000)}
    assert len(by_schedule) > 990
    assert len(by_tick) > 990
    mean = sum(by_schedule) / len(by_schedule) - MOMENT
    assert 0.45 * HOUR < mean < 0.55 * HOUR


def test_jitter_reaches_both_ends_of_its_room() -> None:
    moved = {jittered("feed", nominal, 3, None) - nominal for nominal in range(200)}
    assert moved == {0, 1, 2, 3}
    assert {jittered("feed", nominal, 3, nominal + 2) - nominal for nominal in range(200)} == {0, 1}


def test_jitter_is_the_same_in_every_process_and_release() -> None:
    assert jittered("feed", MOMENT, HOUR, None) - MOMENT == 3_046_964_638


def test_a_rule_that_is_slow_to_answer_is_counted_less_far() -> None:
    seconds = every("1s")
    sparse = seconds - (seconds - every("40000s"))
    first = sparse.next(instant(datetime(2026, 1, 1, tzinfo=UTC)))
    assert first is not None
    ticks = overdue(sparse, first, first + 10 * 40_000 * SECOND)
    assert ticks.capped
    assert 1 <= ticks.count < 11
    assert ticks.latest == first + 10 * 40_000 * SECOND
