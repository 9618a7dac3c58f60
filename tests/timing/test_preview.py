"""A rule, day by day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, FIRST, HOUR, LAST, MINUTE, Instant, instant
from foliot.domain.rule import Rule
from foliot.timing import after, cron, every, upcoming
from foliot.timing.preview import MOST_COUNTED, MOST_TIMES, by_hour, preview

NEW_YORK = "America/New_York"


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> Instant:
    return instant(datetime(year, month, day, hour, minute, tzinfo=UTC))


def test_days_are_those_of_the_rules_zone_and_whole() -> None:
    days = preview(cron("30 2 * * *", tz=NEW_YORK), at(2026, 3, 5, 3), 2)
    assert [(day.date, day.count) for day in days] == [(date(2026, 3, 4), 1), (date(2026, 3, 5), 1)]
    assert days[0].times == (at(2026, 3, 4, 7, 30),)
    assert (days[0].start, days[0].end) == (at(2026, 3, 4, 5), at(2026, 3, 5, 5))


def test_days_can_be_those_of_another_zone() -> None:
    (day,) = preview(every("12h"), at(2026, 7, 1, 23), 1, "Europe/Paris")
    assert day.date == date(2026, 7, 2)
    assert day.times == (at(2026, 7, 2), at(2026, 7, 2, 12))


def test_a_day_on_which_the_clocks_change_says_what_that_does_to_the_rule() -> None:
    days = preview(cron("30 2 * * *", tz=NEW_YORK), at(2026, 3, 8, 12), 2)
    assert days[0].change == "on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00"
    assert days[0].times == (at(2026, 3, 8, 7),)
    assert days[0].end - days[0].start == 23 * HOUR
    assert days[1].change is None


def test_a_day_on_which_the_clocks_change_elsewhere_says_that_the_rule_is_not_touched() -> None:
    (day,) = preview(cron("0 12 * * *", tz=NEW_YORK), at(2026, 3, 8, 12), 1)
    assert day.change == "on 8 March 2026 the clocks are set forward 1 hour at 02:00; this does not affect the rule"
    (day,) = preview(cron("0 12 * * *", tz="Africa/Cairo"), at(2026, 10, 29, 12), 1)
    assert day.change == "on 29 October 2026 the clocks are set back 1 hour at 24:00; this does not affect the rule"
    assert day.end - day.start == 25 * HOUR


def test_a_day_that_never_was_is_empty() -> None:
    days = preview(cron("0 * * * *", tz="Pacific/Apia"), at(2011, 12, 29, 20), 3)
    assert [(day.date.day, day.count) for day in days] == [(29, 24), (30, 0), (31, 24)]


@pytest.mark.parametrize(
    ("rule", "usual", "changed"),
    [
        (cron("* * * * *", tz=NEW_YORK), 1_440, 1_380),
        (cron("* * * * * *", tz=NEW_YORK, seconds=True), 86_400, 82_800),
        (every("100ms"), 864_000, 864_000),
        (cron("*/10 * * * * *", tz=NEW_YORK, seconds=True, interval_like="never"), 8_640, 8_280),
    ],
)
def test_many_ticks_are_counted_and_only_the_first_are_kept(rule: Rule, usual: int, changed: int) -> None:
    days = preview(rule, at(2026, 3, 7, 12), 3)
    assert [day.count for day in days] == [usual, changed, usual]
    assert all(len(day.times) == MOST_TIMES and not day.is_capped for day in days)
    assert [by_hour(rule, day) for day in days[2:]] == [[usual // 24] * 24]


def test_ticks_that_a_gap_moves_into_the_day_before_are_counted_there() -> None:
    rule = cron("*/5 0-22 * * *", tz="Africa/Cairo", gap="shift_backward", interval_like="never")
    assert [day.count for day in preview(rule, at(2026, 4, 22, 12), 3)] == [276, 288, 264]


def test_ticks_that_no_arithmetic_counts_are_counted_up_to_a_limit() -> None:
    (day,) = preview(every("1s") - every("1m"), at(2026, 3, 7), 1)
    assert (day.count, day.is_capped) == (MOST_COUNTED, True)
    (day,) = preview(every("1m") - every("1h"), at(2026, 3, 7), 1)
    assert (day.count, day.is_capped) == (1_416, False)


def test_a_rule_without_a_calendar_has_empty_days() -> None:
    assert [day.count for day in preview(after("10m"), 0, 3)] == [0, 0, 0]


@pytest.mark.parametrize("tz", ["UTC", "Pacific/Apia", NEW_YORK])
def test_the_ends_of_the_calendar_are_no_trouble(tz: str) -> None:
    for first in (FIRST, LAST):
        assert preview(cron("0 2 * * *", tz=tz), first, 7)


@given(
    some.sampled_from(["UTC", NEW_YORK, "Africa/Cairo", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe"]),
    some.sampled_from(["0 0 * * *", "30 23 * * *", "*/10 * * * *", "*/5 0,1,23 * * *", "30 0 * * *"]),
    some.sampled_from(["run_after", "shift_forward", "shift_backward"]),
    some.integers(at(2010, 1, 1), at(2030, 1, 1)),
)
def test_days_share_all_ticks_between_them(tz: str, expression: str, gap: str, first: Instant) -> None:
    rule = cron(expression, tz=tz, gap=gap)
    days = preview(rule, first, 7)
    assert days[0].start <= first < days[0].end
    for day, following in pairwise(days):
        assert (day.end, day.date + timedelta(days=1)) == (following.start, following.date)
    assert all(abs(day.end - day.start - DAY) <= HOUR for day in days)
    ticks = upcoming(rule, days[0].start - 1, sum(day.count for day in days) + 1)
    assert ticks[-2] < days[-1].end <= ticks[-1]
    assert all(sum(by_hour(rule, day)) == day.count for day in days)
    assert rule.next(days[0].start - MINUTE) is not None
