"""Working days: what countries and markets really do, and what is said where nobody knows."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import holidays
import pytest
from holidays.registry import COUNTRIES, FINANCIAL
from hypothesis import given
from hypothesis import strategies as some

from foliot.errors import InvalidInput, InvalidRule
from foliot.timing import Workdays, workdays
from foliot.timing.workdays import MOST_DATES

EPOCH = date(1970, 1, 1)


def working(days: Workdays, *dates: str) -> list[bool]:
    return [days.is_working(date.fromisoformat(day)) for day in dates]


# ------------------------------------------------------------------------------------------------- what is really done


def test_the_exchange_closes_on_good_friday_and_opens_on_columbus_day() -> None:
    assert working(workdays(market="XNYS"), "2026-04-03", "2026-10-12") == [False, True]
    assert working(workdays("US"), "2026-04-03", "2026-10-12") == [True, False]


def test_a_holiday_on_a_weekend_closes_the_day_on_which_it_is_observed() -> None:
    # Christmas 2027 is a Saturday, and so is New Year 2028, whose eve is in another year; the exchange keeps that open.
    assert working(workdays("US"), "2027-12-24", "2027-12-31") == [False, False]
    assert working(workdays(market="XNYS"), "2027-12-24", "2027-12-31") == [False, True]


def test_the_euro_payment_system_keeps_its_own_six_days() -> None:
    closed = ["2026-01-01", "2026-04-03", "2026-04-06", "2026-05-01", "2026-12-25"]
    assert working(workdays(market="XECB"), *closed) == [False] * 5
    assert working(workdays(market="XECB"), "2026-05-14", "2026-11-11", "2026-12-24") == [True] * 3


def test_bank_holidays_differ_within_the_united_kingdom() -> None:
    england, scotland = workdays("GB", subdivision="ENG"), workdays("GB", subdivision="SCT")
    assert working(england, "2026-08-31", "2026-08-03", "2026-01-02") == [False, True, True]
    assert working(scotland, "2026-08-31", "2026-08-03", "2026-01-02") == [True, False, False]


def test_a_weekend_is_what_the_country_has() -> None:
    friday, saturday, sunday = "2026-11-06", "2026-11-07", "2026-11-08"
    assert working(workdays("SA"), friday, saturday, sunday) == [False, False, True]
    assert working(workdays("AE"), friday, saturday, sunday) == [True, False, False]
    assert working(workdays("MY"), "2026-11-13", "2026-11-15") == [True, False]
    assert working(workdays("MY", subdivision="TRG"), "2026-11-13", "2026-11-15") == [False, True]


def test_a_weekend_that_was_moved_is_told_as_it_was() -> None:
    friday, sunday = "2021-11-05", "2021-11-07"
    assert working(workdays("AE"), friday, sunday) == [False, True]


def test_a_day_that_work_was_moved_to_is_worked() -> None:
    moved = ["2026-01-04", "2026-02-14", "2026-02-28", "2026-05-09", "2026-09-20", "2026-10-10"]
    assert working(workdays("CN"), *moved) == [True] * 6
    assert working(workdays("CN"), "2026-02-21", "2026-02-17", "2026-10-07") == [False] * 3
    assert working(workdays("HU"), "2026-01-10", "2026-08-08", "2026-12-12") == [True] * 3
    assert working(workdays(market="XSHG"), "2026-02-14") == [False]


def test_a_working_day_may_have_been_moved_across_the_new_year() -> None:
    assert working(workdays("CN"), "2006-12-30", "2006-12-31", "2007-01-02") == [True, True, False]


def test_a_half_day_is_worked() -> None:
    assert working(workdays(market="XNYS"), "2026-11-27", "2026-12-24") == [True, True]


def test_without_country_and_market_only_weekends_are_free() -> None:
    assert working(workdays(), "2026-12-25", "2026-12-26", "2026-12-27", "2027-01-01") == [True, False, False, True]


@pytest.mark.parametrize("is_market", [False, True])
def test_whatever_the_package_has_can_be_asked(is_market: bool) -> None:
    for _, code, *others in (FINANCIAL if is_market else COUNTRIES).values():
        days = workdays(market=code) if is_market else workdays(code)
        assert 180 < sum(days.is_working(date(2026, 1, 1) + timedelta(day)) for day in range(365)) < 320
        for other in others:
            assert (workdays(market=other) if is_market else workdays(other)) == days


# ------------------------------------------------------------------------------------------------------------ own dates


def test_own_dates_come_before_everything_else() -> None:
    days = workdays("US", closed=["2026-12-24"], opened=[date(2026, 12, 25), "2026-12-26"])
    assert working(days, "2026-12-23", "2026-12-24", "2026-12-25", "2026-12-26") == [True, False, True, True]
    assert working(days, "2025-12-24", "2025-12-25", "2027-12-23") == [True, False, True]


def test_an_own_weekend_replaces_the_country_s() -> None:
    friday, saturday, sunday = "2026-11-06", "2026-11-07", "2026-11-08"
    assert working(workdays("US", weekend=["fri", "Saturday"]), friday, saturday, sunday) == [False, False, True]
    assert working(workdays("US", weekend="sun"), friday, saturday, sunday) == [True, True, False]
    assert working(workdays("US", weekend=()), "2026-11-07", "2026-11-08", "2026-11-26") == [True, True, False]


def test_with_an_own_weekend_the_days_that_a_country_moved_work_to_still_count() -> None:
    assert working(workdays("CN", weekend=["fri", "sat"]), "2026-02-14", "2026-03-07", "2026-03-08") == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("weekend", "first"),
    [("sat sun", 0), ("sun", 0), ("fri, sat", 6), ("fri", 5), ("fri sun", 0), ((), 0), ("mon tue wed thu fri sat", 6)],
)
def test_a_week_begins_behind_the_weekend(weekend: str | tuple[str, ...], first: int) -> None:
    assert workdays(weekend=weekend).first_weekday == first


def test_a_country_s_week_begins_behind_its_weekend() -> None:
    assert [workdays(code).first_weekday for code in ("US", "SA", "AE", "HK")] == [0, 6, 0, 0]


def test_equal_calendars_are_equal_however_they_were_written() -> None:
    first = workdays("US", subdivision="California", closed=["2026-12-24", date(2026, 1, 2)], weekend=["sun", "sat"])
    same = workdays("USA", subdivision="CA", closed=["2026-01-02", "2026-12-24", "2026-12-24"], weekend="sat sun")
    assert first == same
    assert hash(first) == hash(same)
    assert first != workdays("US", subdivision="CA")
    assert workdays(market="NYSE") == workdays(market="XNYS")


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (workdays(), "no holidays"),
        (workdays("US"), "US holidays"),
        (workdays("GB", subdivision="SCT", closed=["2026-12-24"]), "GB-SCT holidays, 1 day closed"),
        (workdays(market="NYSE", weekend=()), "XNYS holidays, no weekend"),
        (
            workdays(weekend="sat fri", opened=["2026-01-02", "2026-01-03"]),
            "no holidays, weekend fri sat, 2 days opened",
        ),
        (workdays("IN"), "IN holidays, known to 2035"),
    ],
)
def test_a_calendar_is_told_in_words(days: Workdays, words: str) -> None:
    assert days.words() == words


# ------------------------------------------------------------------------------------------------------------- searches

CALENDARS = [
    workdays(),
    workdays("US"),
    workdays("CN"),
    workdays("SA"),
    workdays(market="XNYS"),
    workdays("GB", subdivision="SCT"),
    workdays("IN", subdivision="MH"),
    workdays(weekend="sun", closed=["2026-01-01", "2026-12-31", "2027-01-01"], opened=["2026-11-01"]),
]
dates = some.dates(date(2003, 1, 1), date(2034, 12, 31))


@given(some.sampled_from(CALENDARS), dates, some.integers(0, 100), some.integers(-30, 30).filter(bool))
def test_the_nth_working_day_of_a_span_is_the_nth(days: Workdays, first: date, length: int, n: int) -> None:
    span = [first + timedelta(day) for day in range(length + 1)]
    expected = [day for day in span if days.is_working(day)]
    place = n - 1 if n > 0 else n
    found = days.nth((first - EPOCH).days, (span[-1] - EPOCH).days, n)
    assert found == ((expected[place] - EPOCH).days if -len(expected) <= place < len(expected) else None)


@given(some.sampled_from(CALENDARS), dates, some.sampled_from([1, -1]))
def test_the_search_finds_the_nearest_working_day(days: Workdays, start: date, step: int) -> None:
    expected = start
    while not days.is_working(expected):
        expected += timedelta(step)
    assert days.onward((start - EPOCH).days, 1 if step > 0 else -1) == (expected - EPOCH).days


@given(dates, some.sampled_from(["US", "CN", "SA", "AE", "GB", "HU", "JP", "TW"]))
def test_it_agrees_with_the_package(day: date, country: str) -> None:
    assert workdays(country).is_working(day) == holidays.country_holidays(country).is_working_day(day)


# ----------------------------------------------------------------------------------------------- where nothing is known


@pytest.mark.parametrize(
    ("days", "day", "known"),
    [
        (workdays("US"), date(2101, 1, 1), "1777 to 2100"),
        (workdays(market="XNYS"), date(1862, 12, 31), "1863 to 2100"),
        (workdays("IN"), date(2036, 1, 1), "2001 to 2035"),
        (workdays(), date(9999, 12, 31), "1900 to 2199"),
    ],
)
def test_a_day_of_which_nothing_is_known_is_not_guessed(days: Workdays, day: date, known: str) -> None:
    with pytest.raises(InvalidInput, match=known):
        days.is_working(day)
    number = (day - EPOCH).days
    assert days.nth(number, number, 1) is None
    assert days.onward(number, 1 if day.year > 2000 else -1) is None
    beside = days.onward(number, -1 if day.year > 2000 else 1)
    assert beside is not None
    assert (EPOCH + timedelta(beside)).year in (days.known[0], days.known[-1])


def test_a_span_that_reaches_into_the_unknown_is_not_counted() -> None:
    days = workdays("US")
    last = (date(2100, 12, 31) - EPOCH).days
    assert days.nth(last - 3, last, 1) is not None
    assert days.nth(last - 3, last + 3, 1) is None


@pytest.mark.filterwarnings("ignore:Requested Holidays")
@pytest.mark.parametrize("code", ["IN", "NP", "XBOM", "XNSE"])
def test_the_package_still_lacks_the_years_that_are_not_trusted(code: str) -> None:
    entity = getattr(holidays, code)
    assert len(entity(years=2036)) < 0.6 * len(entity(years=2035))


@pytest.mark.filterwarnings("error")
def test_asking_for_any_year_of_india_warns_of_nothing() -> None:
    days = workdays("IN")
    assert days.onward((date(1950, 1, 1) - EPOCH).days, 1) == (date(2001, 1, 1) - EPOCH).days
    assert days.onward((date(2050, 1, 1) - EPOCH).days, -1) == (date(2035, 12, 31) - EPOCH).days


def test_a_search_from_outside_of_the_calendar_ends() -> None:
    assert workdays("US").onward(10**9, 1) is None
    assert workdays("US").onward(-(10**9), -1) is None


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("calendar", "advice"),
    [
        ({"country": "XX"}, r"such as 'US'"),
        ({"country": "us"}, r"write 'US'"),
        ({"country": "Germny"}, r"did you mean 'DE' \(Germany\)"),
        ({"country": "united states"}, r"did you mean 'US'"),
        ({"country": "XNYS"}, r"that is a market: write market='XNYS'"),
        ({"market": "US"}, r"that is a country: write country='US'"),
        ({"market": "XNOP"}, r"such as 'XNYS'"),
        ({"market": "new york stock exchange"}, r"did you mean 'XNYS'"),
        ({"country": "HolidayBase"}, r"no country"),
        ({"country": "__doc__"}, r"no country"),
        ({"country": "X" * 1_000_000}, r"no country"),
        ({"country": 7}, r"no country 7"),
        ({"country": ""}, r"no country ''"),
        ({"country": "US", "subdivision": "Californa"}, r"did you mean 'California'"),
        ({"country": "GB", "subdivision": "XYZ"}, r"give one of ENG, NIR, SCT, WLS"),
        ({"country": "GB", "subdivision": ["ENG"]}, r"no subdivision"),
        ({"country": "CN", "subdivision": "11"}, r"leave subdivision= out"),
        ({"subdivision": "CA"}, r"add country="),
        ({"country": "US", "market": "XNYS"}, r"choose one"),
        ({"closed": "2026-12-24"}, r'write closed=\["2026-12-24"\]'),
        ({"closed": date(2026, 12, 24)}, r'write closed=\["2026-12-24"\]'),
        ({"opened": ["24.12.2026"]}, r"opened= has '24.12.2026'"),
        ({"opened": ["2026-02-30"]}, r"opened= has '2026-02-30'"),
        ({"opened": ["٢٠٢٦-01-02"]}, r"is not a date"),
        ({"closed": [datetime(2026, 12, 24)]}, r"is not a date"),
        ({"closed": [None]}, r"is not a date"),
        ({"closed": ["2026-01-01"] * (MOST_DATES + 1)}, r"more than 500"),
        ({"closed": ["2026-01-01"], "opened": ["2026-01-01"]}, r"both in closed= and in opened="),
        ({"weekend": "caturday"}, r"give one of mon, tue"),
        ({"weekend": "sa"}, r"give one of mon, tue"),
        ({"weekend": [6]}, r"6 is not a weekday"),
        ({"weekend": 6}, r'write weekend=\["fri", "sat"\]'),
        ({"weekend": "mon tue wed thu fri sat sun"}, r"leaves no working day"),
    ],
)
def test_a_refusal_says_what_to_write(calendar: dict[str, Any], advice: str) -> None:
    with pytest.raises(InvalidRule, match=advice) as refusal:
        workdays(**calendar)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("day", [datetime(2026, 1, 2), "2026-01-02", 5, None])
def test_only_a_date_can_be_a_working_day(day: object) -> None:
    with pytest.raises(InvalidInput, match="is not a date"):
        workdays().is_working(day)  # type: ignore[arg-type]
