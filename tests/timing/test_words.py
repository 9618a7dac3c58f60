"""Rules in plain words: what a person reads is what the rule does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, to_datetime
from foliot.timing import cron, upcoming
from foliot.timing.words import ordinal


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 */8 * * *", "at 00:00, 08:00 and 16:00 UTC every day"),
        ("30 9-17 * * 1-5", "every hour from 09:30 to 17:30 UTC on Monday to Friday"),
        ("* 2 * * *", "every minute from 02:00 to 02:59 UTC every day"),
        ("*/25 1,5,9 * * *", "at minutes 0, 25 and 50 of hours 1, 5 and 9 UTC every day"),
        ("*/25 9-17 * * *", "at minutes 0, 25 and 50 of every hour from 09:00 to 17:59 UTC every day"),
        ("1-59/2 * * * *", "at every 2nd minute from 1 to 59 of every hour, UTC"),
        ("0 1-23/2 * * *", "at minute 0 of every 2nd hour from 1 to 23 UTC every day"),
        ("0 0 */2 * *", "at 00:00 UTC on every 2nd day from 1 to 31 of the month"),
    ],
)
def test_times_are_listed_while_they_are_few_and_told_as_a_pace_beyond(expression: str, words: str) -> None:
    assert cron(expression).explain() == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 L * *", "at 00:00 UTC on the last day of the month"),
        ("0 0 L-1 * *", "at 00:00 UTC on the day before the last day of the month"),
        ("0 0 L-3 2 *", "at 00:00 UTC on the 3rd day before the last day of February"),
        ("0 0 15W * *", "at 00:00 UTC on the working day (Monday to Friday) nearest to day 15 of the month"),
        (
            "0 0 15W,L * *",
            "at 00:00 UTC on the last day and the working day (Monday to Friday) nearest to day 15 of the month",
        ),
        (
            "0 0 1,15W,LW * *",
            "at 00:00 UTC on day 1, the last working day (Monday to Friday) "
            "and the working day (Monday to Friday) nearest to day 15 of the month",
        ),
        ("0 0 LW * *", "at 00:00 UTC on the last working day (Monday to Friday) of the month"),
        ("0 0 1,15,L * *", "at 00:00 UTC on days 1 and 15 and the last day of the month"),
        ("0 0 * * 5#3", "at 00:00 UTC on the 3rd Friday of the month"),
        ("0 0 * 2 5L", "at 00:00 UTC on the last Friday of February"),
        ("0 0 * * 1,5#1,0L", "at 00:00 UTC on Monday, the 1st Friday and the last Sunday of the month"),
    ],
)
def test_days_that_depend_on_their_month_are_named(expression: str, words: str) -> None:
    assert cron(expression).explain() == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 13 * 5", "at 00:00 UTC on day 13 of the month or on Friday"),
        ("0 0 L 1 5#2", "at 00:00 UTC on the last day of January or on the 2nd Friday of January"),
        ("0 0 13 * */3", "at 00:00 UTC on day 13 of the month, only when it falls on Wednesday, Saturday or Sunday"),
        ("0 0 */9 * 5#2,1", "at 00:00 UTC on days 1, 10, 19 and 28 of the month, "
         "only when it falls on Monday or the 2nd Friday"),
        ("0 0 ? * 5", "at 00:00 UTC on Friday"),
    ],
)  # fmt: skip
def test_one_of_two_days_is_enough_unless_one_starts_with_a_star(expression: str, words: str) -> None:
    assert cron(expression).explain() == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * * *", "every second, UTC"),
        ("*/10 * * * * *", "every 10 seconds, UTC"),
        ("30 * * * * *", "every minute at second 30, UTC"),
        ("30 0 2 * * *", "at 02:00:30 UTC every day"),
        ("30 */15 * * * *", "every 15 minutes at second 30, UTC"),
        ("30 */25 * * * *", "at second 30 of minutes 0, 25 and 50 of every hour, UTC"),
        ("30 5 * * * *", "every hour at minute 5 and second 30, UTC"),
        ("15 30 9-17 * * *", "every hour from 09:30:15 to 17:30:15 UTC every day"),
        ("0,7,9 * * * * *", "at seconds 0, 7 and 9 of every minute, UTC"),
        ("*/10 0,30 1,5 * * 1", "every 10 seconds in minutes 0 and 30 of hours 1 and 5 UTC on Monday"),
    ],
)
def test_seconds_are_told_where_they_are_not_zero(expression: str, words: str) -> None:
    assert cron(expression, seconds=True).explain() == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 1 1 * 2027", "at 00:00 UTC on day 1 of January, only in 2027"),
        ("* * * * * 2027-2030", "every minute, only in 2027 to 2030, UTC"),
        ("* * * * 1 2027,2029", "every minute on Monday, only in 2027 and 2029, UTC"),
        ("0 0 1 1 * 2026-2199/2", "at 00:00 UTC on day 1 of January, only in every 2nd year from 2026 to 2198"),
        (
            "0 0 1 1 * 2020,2026-2199/3,2102",
            "at 00:00 UTC on day 1 of January, "
            "only in 2020, every 3rd year from 2026 to 2101, 2102 and every 3rd year from 2104 to 2197",
        ),
        ("0 0 1 1 * 2026-2044/2", "at 00:00 UTC on day 1 of January, only in every 2nd year from 2026 to 2044"),
        ("0 0 1 1 * 2026-2032/2", "at 00:00 UTC on day 1 of January, only in 2026, 2028, 2030 and 2032"),
    ],
)
def test_years_are_told(expression: str, words: str) -> None:
    assert cron(expression, year=True).explain() == words


def test_a_slot_that_was_chosen_by_hash_is_told() -> None:
    words = cron("H 2 * * *").named("nightly").explain()
    assert words == "at 02:25 UTC every day (chosen by H for this schedule)"
    assert cron("H 2 * * *").named("weekly").explain() != words
    assert cron("H 2 * * *").explain() == "at 02:59 UTC every day (an example: H depends on the name of the schedule)"


def test_the_zone_stands_where_times_of_day_are_told() -> None:
    assert cron("0 2 * * *", tz="America/New_York").explain() == "at 02:00 America/New_York every day"
    assert cron("*/15 * * * 1", tz="Europe/Paris").explain() == "every 15 minutes on Monday, Europe/Paris"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (22, "22nd")]
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


values = some.lists(some.integers(0, 23), min_size=1, max_size=3, unique=True).map(sorted)


@given(values, values, values)
def test_times_that_are_listed_are_the_times_that_come(
    hours: list[int], minutes: list[int], seconds: list[int]
) -> None:
    second, minute, hour = (",".join(map(str, places)) for places in (seconds, minutes, hours))
    rule = cron(f"{second} {minute} {hour} * * *", seconds=True)
    ticks = [tick for tick in upcoming(rule, -1, 28) if tick < DAY]
    times = [f"{to_datetime(tick):%H:%M:%S}".removesuffix(":00") for tick in ticks]
    told = " and ".join([", ".join(times[:-1]), times[-1]] if len(times) > 1 else times)
    assert (rule.explain() == f"at {told} UTC every day") == (len(ticks) <= 6)
