"""The classic mistakes: pointed out with their fix, and never where there is none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from foliot.domain.instant import instant, to_datetime
from foliot.domain.rule import Rule
from foliot.timing import Every, cron, every, parse, upcoming
from foliot.timing.mistakes import classic_mistakes


def only(rule: Rule) -> str:
    (mistake,) = classic_mistakes(rule)
    return mistake


@pytest.mark.parametrize(
    "rule",
    [
        cron("* * * * *"),
        cron("*/15 * * * *"),
        cron("5 */6 * * *"),
        cron("5 2 * * *"),
        cron("30 9-17 * * 1-5"),
        cron("* 9-17 * * 1-5"),
        cron("*/7 1,5,9 * * *"),
        cron("5 */5 * * 1"),
        cron("5 0 1-31 * 1"),
        cron("5 0 28 * *"),
        cron("5 0 30 4,6 *"),
        cron("5 0 L * *"),
        cron("H 0 * * *"),
        cron("30 2 * * *", tz="Asia/Tokyo"),
        cron("30 4 * * *", tz="America/New_York"),
        cron("5 * * * *", tz="America/New_York"),
        cron("5 0-23 * * *", tz="America/New_York"),
        cron("* * * * * *", seconds=True),
        cron("*/7 5 2 * * *", seconds=True),
        every("15m"),
        every("7s"),
        every("8h"),
        parse("after 7m"),
        parse("at 2026-04-03T02:00:00Z"),
    ],
)
def test_an_honest_rule_is_left_in_peace(rule: Rule) -> None:
    assert classic_mistakes(rule) == []


def test_days_of_month_and_week_that_are_both_set_mean_either() -> None:
    mistake = only(cron("5 0 13 * 5"))
    assert "the rule fires on each day that matches one of them: day 13, or Friday" in mistake
    assert '"5 0 13 * *"' in mistake
    assert '"5 0 * * 5"' in mistake
    tick = parse('cron("5 0 13 * *") & cron("5 0 * * 5")').next(0)
    assert tick is not None
    assert f"{to_datetime(tick):%a %d}" == "Fri 13"


def test_a_day_field_that_starts_with_a_star_means_both() -> None:
    mistake = only(cron("5 0 */2 * 1"))
    assert "the day of month starts with *, so a day must match both" in mistake
    assert "write 1-31/2 instead of */2" in mistake
    assert "write 0-6/3 instead of */3" in only(cron("5 0 13 * */3"))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("*/7 * * * *", 'its last interval is 4 minutes, not 7. For equal intervals, use every("7m")'),
        ("*/40 * * * *", 'its last interval is 20 minutes, not 40. For equal intervals, use every("40m")'),
        ("5 */5 * * *", 'its last interval is 4 hours, not 5. For equal intervals, use every("5h")'),
        ("5 0 */2 * *", '*/2 restarts on day 1 of each month, so the last interval of a month can be shorter. '
         'For every 2 days, use rrule("FREQ=DAILY;INTERVAL=2", start=...)'),
    ],
)  # fmt: skip
def test_a_step_that_does_not_fit_is_uneven(expression: str, text: str) -> None:
    assert only(cron(expression)).endswith(text)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("*/90 * * * *", '*/90 matches only minute 0, because a step ends with the hour. '
         'For every 90 minutes, use every("90m")'),
        ("*/60 2 * * *", '*/60 matches only minute 0, because a step ends with the hour. '
         'For every 60 minutes, use every("60m")'),
        ("5 */48 * * *", '*/48 matches only hour 0, because a step ends with the day. '
         'For every 48 hours, use every("48h")'),
        ("5 0 */45 * *", '*/45 matches only day 1, because a step ends with the month. '
         'For every 45 days, use rrule("FREQ=DAILY;INTERVAL=45", start=...)'),
        ("5 0 1 */18 *", '*/18 matches only month 1, because a step ends with the year. '
         'For every 18 months, use rrule("FREQ=MONTHLY;INTERVAL=18", start=...)'),
        ("10-50/60 2 * * *", "10-50/60 matches only minute 10, because a step ends with its range"),
    ],
)  # fmt: skip
def test_a_step_that_reaches_no_second_value_is_told(expression: str, text: str) -> None:
    assert any(mistake.startswith(text) for mistake in classic_mistakes(cron(expression)))


def test_a_step_of_one_value_is_no_mistake() -> None:
    assert classic_mistakes(cron("5-5/2 2 * * *")) == []


def test_a_step_of_seconds_can_be_uneven_too() -> None:
    assert only(cron("*/7 * * * * *", seconds=True)).endswith('its last interval is 4 seconds, not 7. '
                                                               'For equal intervals, use every("7s")')  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("5 0 31 * *", "February, April, June, September and November have no day 31"),
        ("5 0 15,30 * *", "February has no day 30"),
        ("5 0 31 4,5 *", "April has no day 31"),
        ("5 0 29 * *", "February has a day 29 only in leap years"),
        ("5 0 29 2 *", "29 February exists only in leap years"),
    ],
)
def test_a_day_that_some_months_do_not_have_is_told_with_the_fix(expression: str, text: str) -> None:
    assert only(cron(expression)).startswith(text)
    assert only(cron(expression)).endswith("write L")


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("* 2 * * *", '60 times; to fire once, write "0 2 * * *"'),
        ("* * 1 * *", '1,440 times; to fire once, write "0 0 1 * *"'),
    ],
)
def test_a_star_where_a_zero_was_meant_is_told(expression: str, fix: str) -> None:
    assert only(cron(expression)).endswith(fix)


def test_a_star_among_the_seconds_where_a_zero_was_meant_is_told() -> None:
    assert "60 times" in only(cron("* 5 2 * * *", seconds=True))


def test_the_time_at_which_everybody_comes_is_told() -> None:
    assert only(cron("0 7 * * *")).startswith("the rule fires at minute 0, like many others")
    assert '"H 7 * * *"' in only(cron("0 7 * * *"))
    assert only(cron("@daily")).startswith("the rule fires at midnight")


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        (every("1d"), 'cron("0 2 * * *", tz="Europe/Paris")'),
        (every("7d"), 'cron("0 2 * * thu", tz="Europe/Paris")'),
        (every("7d", start=datetime(2026, 1, 5, tzinfo=UTC)), 'cron("0 2 * * mon", tz="Europe/Paris")'),
        (every("3d"), 'rrule("FREQ=DAILY;INTERVAL=3", start="2026-01-01T02:00", tz="Europe/Paris")'),
        (every("14d"), 'rrule("FREQ=DAILY;INTERVAL=14", start="2026-01-01T02:00", tz="Europe/Paris")'),
    ],
)
def test_the_fix_of_a_rate_of_days_has_the_same_pace(rule: Every, fix: str) -> None:
    assert only(rule).endswith(f"For a fixed time of day, use {fix}")
    coming = list(upcoming(parse(fix), instant(datetime(2026, 3, 1, tzinfo=UTC)), 2))
    assert round((coming[1] - coming[0]) / rule.interval) == 1


def test_a_time_at_which_the_clocks_change_is_told_with_those_that_are_safe() -> None:
    assert only(cron("30 2 * * *", tz="America/New_York")).endswith("times outside 01:00 to 03:00 are not affected")
    assert only(cron("30 23 * * *", tz="Africa/Cairo")).endswith(
        "times outside 00:00 to 01:00 and 23:00 to 24:00 are not affected"
    )
    assert "02:00 to 03:00" in only(parse("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", tz="Europe/Paris"))


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ("7m", "every 7 minutes does not divide a day"),
        ("5h", "every 5 hours does not divide a day"),
        ("24h", "every 24 hours, at 00:00 UTC, counts elapsed time"),
        ("7d", "every 168 hours, on Thursday at 00:00 UTC, counts elapsed time"),
    ],
)
def test_a_rate_that_drifts_over_the_day_is_told(interval: str, text: str) -> None:
    assert only(every(interval)).startswith(text)


def test_the_parts_of_a_rule_are_looked_at_once_each() -> None:
    rule = parse('(cron("0 7 * * *") | every("7m")) - cron("0 7 * * *", tz="Asia/Tokyo")')
    assert len(classic_mistakes(rule)) == 2


def test_what_is_only_left_out_is_not_judged() -> None:
    nights = cron("0 22 * * *", tz="Europe/Paris")
    assert classic_mistakes(cron("7 * * * *").outside(nights, "8h")) == []
    assert classic_mistakes(cron("7 * * * *") - nights) == []
    assert classic_mistakes(cron("7 * * * *") | nights) != []
