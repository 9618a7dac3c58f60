"""Cron on a clock that never jumps: which minutes match, both ways in time, and the rule in words."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, LAST, MINUTE, Instant, instant, to_datetime
from foliot.errors import InvalidRule
from foliot.timing import cron, upcoming
from foliot.timing.expression import read
from tests.tiers import by_tier
from tests.timing.oracles import MONTHS, WEEKDAYS, Line

FIRST = instant(datetime(1, 1, 1, tzinfo=UTC))


def utc(year: int, month: int = 1, day: int = 1, hour: int = 0, minute: int = 0) -> Instant:
    return instant(datetime(year, month, day, hour, minute, tzinfo=UTC))


def following(expression: str, *start: int) -> str:
    """The next tick after `start`, as people write it."""
    tick = cron(expression).next(utc(*start))
    assert tick is not None
    return to_datetime(tick).strftime("%Y-%m-%d %H:%M")


def matches(expression: str, moment: Instant) -> bool:
    """Whether cron would fire at this instant, by definition."""
    return moment % MINUTE == 0 and Line(expression).has_minute(to_datetime(moment))


@some.composite
def items(draw: some.DrawFn, low: int, high: int, names: list[str], base: int) -> str:
    def spelt(value: int) -> str:
        name = names[value - base] if value - base < len(names) else str(value)
        return draw(some.sampled_from([str(value), f"{value:02}", name, name.upper()]))

    first = draw(some.integers(low, high))
    last = draw(some.integers(first, high))
    step = draw(some.integers(1, high + 5))
    span = f"{spelt(first)}-{spelt(last)}"
    return draw(some.sampled_from(["*", f"*/{step}", spelt(first), spelt(first), span, f"{span}/{step}"]))


def fields(low: int, high: int, names: list[str] | None = None, base: int = 0) -> some.SearchStrategy[str]:
    return some.lists(items(low, high, names or [], base), min_size=1, max_size=3).map(",".join)


# Days up to 28 exist in every month, so every one of these expressions fires.
expressions = some.tuples(
    fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12, MONTHS, 1), fields(0, 7, WEEKDAYS)
).map(" ".join)
instants = some.integers(utc(1900), utc(2300))


# ---------------------------------------------------------------------------------------------------------- properties


@given(expressions, instants)
def test_next_is_strictly_after_and_previous_strictly_before(expression: str, moment: Instant) -> None:
    rule = cron(expression)
    coming, gone = rule.next(moment), rule.previous(moment)
    assert coming is not None
    assert gone is not None
    assert gone < moment < coming


@given(expressions, instants)
def test_the_tick_before_the_next_one_is_not_after_the_start(expression: str, moment: Instant) -> None:
    rule = cron(expression)
    coming = rule.next(moment)
    assert coming is not None
    gone = rule.previous(coming)
    assert gone is not None
    assert gone <= moment
    assert rule.next(gone) == coming


@given(expressions, instants)
def test_every_tick_matches_the_oracle(expression: str, moment: Instant) -> None:
    ticks = upcoming(cron(expression), moment, 5)
    assert ticks == sorted(set(ticks))
    assert all(matches(expression, tick) for tick in ticks)


@given(expressions, instants, some.integers(-3 * 24 * 60, 3 * 24 * 60))
def test_no_minute_that_the_oracle_matches_is_passed_over(expression: str, moment: Instant, away: int) -> None:
    rule = cron(expression)
    minute = moment // MINUTE * MINUTE + away * MINUTE
    if matches(expression, minute):
        assert rule.next(minute - 1) == minute
        assert rule.previous(minute + 1) == minute
    else:
        assert rule.next(minute - 1) != minute
        assert rule.previous(minute + 1) != minute


@given(some.integers(0, 59), some.integers(1, 28), some.integers(0, 6), some.booleans(), instants)
def test_sparse_rules_agree_with_a_walk_over_every_day(
    minute: int, day: int, weekday: int, both: bool, moment: Instant
) -> None:
    # `*/40` covers only day 1, and starts with a star: then both the day and the weekday must hold.
    expression = f"{minute} 5 {'*/40' if both else day} * {weekday}"
    start = to_datetime(moment).replace(hour=5, minute=minute, second=0, microsecond=0)
    days = (instant(start + timedelta(days=count)) for count in range(4_000))
    walked = next(tick for tick in days if tick > moment and matches(expression, tick))
    assert cron(expression).next(moment) == walked


@given(expressions)
def test_every_rule_can_be_explained_and_the_zone_is_named(expression: str) -> None:
    words = cron(expression).explain()
    assert "UTC" in words
    assert "  " not in words
    assert not words.startswith((" ", ","))


@given(some.text(max_size=60) | some.text("0123456789*/-,@ \tLWH#?monjaMON\n", max_size=60))
def test_any_text_is_either_a_rule_or_refused_as_one(text: str) -> None:
    try:
        rule = cron(text)
    except InvalidRule:
        return
    assert rule.next(0) is not None


# ------------------------------------------------------------------------------------------------------------- meaning


def test_either_day_suffices_when_both_are_restricted() -> None:
    assert following("0 0 13 * fri", 2026, 4, 3) == "2026-04-10 00:00"
    assert following("0 0 13 * fri", 2026, 4, 10) == "2026-04-13 00:00"


def test_both_days_are_needed_when_either_starts_with_a_star() -> None:
    assert following("0 0 */2 * 1", 2026, 4, 1) == "2026-04-13 00:00"
    assert following("0 0 13 * */5", 2026, 4, 1) == "2026-09-13 00:00"


def test_a_full_range_is_not_a_star() -> None:
    assert following("0 0 1-31 * 1", 2026, 4, 7) == "2026-04-08 00:00"


def test_a_star_later_in_the_list_is_not_a_start() -> None:
    assert read("0 0 1,* * 1").either
    assert not read("0 0 *,1 * 1").either


def test_a_leap_day_is_found_across_the_year_2100() -> None:
    assert following("0 0 29 2 *", 2096, 2, 29) == "2104-02-29 00:00"
    assert cron("0 0 29 2 *").previous(utc(2104, 2, 29)) == utc(2096, 2, 29)


def test_a_leap_day_on_a_sunday_is_found_forty_years_away() -> None:
    assert following("0 0 29 2 */7", 2088, 3, 1) == "2128-02-29 00:00"


def test_a_day_that_some_month_has_is_not_refused() -> None:
    assert following("0 0 31 2,3 *", 2026, 4, 1) == "2027-03-31 00:00"
    assert following("0 0 30 2 1", 2026, 2, 3) == "2026-02-09 00:00", "a Monday suffices"


def test_a_tick_itself_is_not_its_own_next_or_previous() -> None:
    rule, tick = cron("0 2 * * *"), utc(2026, 4, 3, 2)
    assert rule.next(tick) == tick + DAY
    assert rule.previous(tick) == tick - DAY
    assert rule.next(tick - 1) == tick
    assert rule.previous(tick + 1) == tick


def test_ticks_before_1970_are_found_too() -> None:
    assert cron("0 2 * * *").previous(utc(1969, 12, 31, 2)) == utc(1969, 12, 30, 2)
    assert cron("0 2 * * *").next(utc(1969, 12, 31, 2)) == utc(1970, 1, 1, 2)


def test_there_is_no_tick_after_the_year_9999() -> None:
    rule = cron("59 23 31 12 *")
    assert rule.next(utc(9999, 12, 31, 23, 58)) == utc(9999, 12, 31, 23, 59)
    assert rule.next(utc(9999, 12, 31, 23, 59)) is None
    assert rule.next(LAST) is None
    assert rule.next(10**30) is None
    assert rule.previous(10**30) == utc(9999, 12, 31, 23, 59)
    assert cron("0 0 29 2 *").next(utc(9996, 3, 1)) is None


def test_there_is_no_tick_before_the_year_1() -> None:
    rule = cron("0 0 1 1 *")
    assert rule.previous(FIRST) is None
    assert rule.previous(-(10**30)) is None
    assert rule.next(-(10**30)) == FIRST


# --------------------------------------------------------------------------------------------------- what never happens

DATES = [date(2000, 1, 1) + timedelta(days=count) for count in range(146_097)]
"""Every date there is: after 400 years they fall on the same weekdays again."""


def rare_line(random: Random) -> str:
    """A line that has few days, or none."""
    day = random.choice(
        [
            "29",
            "30",
            "31",
            "30-31",
            "29W",
            "30W",
            "31W",
            "L",
            "LW",
            "L-27",
            "L-28",
            "L-29",
            "L-30",
            "*/29",
            "*/30",
            "*/31,31",
        ]
    )
    month = random.choice(["2", "2", "4", "4,6,9,11", "2,4", "1", "feb", "*/13"])
    weekday = random.choice(["*", "*", "*/7", "*/6", "1#5", "0#5", "3#1", "6L", "1-5", "*/4,2#5", "sun"])
    return f"0 0 {day} {month} {weekday}"


@pytest.mark.timeout(by_tier(600, 900))
def test_a_line_is_refused_exactly_when_none_of_all_dates_has_it() -> None:
    random = Random(400)
    lines = {rare_line(random) for _ in range(by_tier(40, 120, 2_000))}
    outcomes = set()
    for text in sorted(lines):
        line = Line(text)
        fires = next((day for day in DATES if line.has_day(day)), None)
        outcomes.add(fires is None)
        if fires is None:
            with pytest.raises(InvalidRule, match="this rule can never fire"):
                cron(text)
        else:
            tick = cron(text).next(instant(datetime(1999, 12, 31, 23, tzinfo=UTC)))
            assert tick is not None
            assert to_datetime(tick).date() == fires, text
    assert outcomes == {True, False}, "both kinds were among them"


def test_years_are_part_of_the_question() -> None:
    for line in ("0 0 0 29 2 * 2025-2027", "0 0 0 29 2 * 2100", "0 0 0 * 2 1#5 2025-2043"):
        with pytest.raises(InvalidRule, match="this rule can never fire"):
            cron(line)
    assert cron("0 0 0 29 2 * 2025-2028").next(0) == instant(datetime(2028, 2, 29, tzinfo=UTC))
    assert cron("0 0 0 * 2 1#5 2025-2044").next(0) == instant(datetime(2044, 2, 29, tzinfo=UTC))


# --------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute, UTC"),
        ("*/15 * * * *", "every 15 minutes, UTC"),
        ("0,30 * * * *", "every 30 minutes, UTC"),
        ("*/25 * * * *", "at minutes 0, 25 and 50 of every hour, UTC"),
        ("@hourly", "every hour at minute 0, UTC"),
        ("5 */6 * * *", "every 6 hours at minute 5, UTC"),
        ("0 2 * * *", "at 02:00 UTC every day"),
        ("0 2,14 * * *", "at 02:00 and 14:00 UTC every day"),
        ("0 9 * * 1-5", "at 09:00 UTC on Monday to Friday"),
        ("0 9 * * sat,sun", "at 09:00 UTC on Saturday and Sunday"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59 UTC on Monday to Friday"),
        ("*/15 1,5 * * *", "every 15 minutes in hours 1 and 5 UTC every day"),
        ("*/15 * * * 1", "every 15 minutes on Monday, UTC"),
        ("0 0 1,15 * *", "at 00:00 UTC on days 1 and 15 of the month"),
        ("@yearly", "at 00:00 UTC on day 1 of January"),
        ("0 0 * jan,mar-jun *", "at 00:00 UTC every day in January and March to June"),
        ("0 0 13 * 5", "at 00:00 UTC on day 13 of the month or on Friday"),
        ("0 0 13 1 5", "at 00:00 UTC on day 13 of January or on Friday in January"),
        ("0 0 13 * */7", "at 00:00 UTC on day 13 of the month, only when it falls on Sunday"),
        ("0 0 1-31 * 1", "at 00:00 UTC every day"),
    ],
)
def test_a_rule_is_explained_in_plain_words(expression: str, words: str) -> None:
    assert cron(expression).explain() == words
