"""Laws that hold for every rule about business days, and the ends of what is known."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, FIRST, LAST, Instant, instant, to_datetime
from foliot.timing import (
    Composable,
    Workdays,
    business_day,
    business_days,
    cron,
    decode,
    every,
    nearest_business_day,
    only_on,
    upcoming,
    workdays,
)

NEW_YORK = "America/New_York"


def moment(text: str) -> Instant:
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC))


CALENDARS: list[dict[str, Any]] = [
    {},
    {"country": "US"},
    {"country": "CN"},
    {"country": "SA"},
    {"country": "AE"},
    {"market": "XNYS"},
    {"country": "GB", "subdivision": "SCT"},
    {"weekend": "sun", "closed": [f"2026-06-{day:02}" for day in range(5, 30)], "opened": ["2026-05-31"]},
]
calendars = some.sampled_from(CALENDARS)
zones = some.sampled_from(["UTC", NEW_YORK, "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia"])
times = some.sampled_from([["00:00"], ["02:15"], ["00:00", "12:30", "23:59:59"]])
starts = some.dates(date(2010, 1, 1), date(2030, 12, 31))
months = some.none() | some.lists(some.integers(1, 12), min_size=1)


@some.composite
def rules(draw: some.DrawFn) -> Composable:
    calendar, tz, at = draw(calendars), draw(zones), draw(times)
    policy = {"gap": draw(some.sampled_from(["run_after", "skip", "shift_forward"])), "fold": "first"}
    common: dict[str, Any] = {"at": at, "tz": tz} | calendar | policy
    match draw(some.integers(0, 3)):
        case 0:
            n = draw(some.integers(1, 17)) * draw(some.sampled_from([1, -1]))
            of: Any = draw(some.sampled_from(["month", "quarter", "year", "week"]))
            few = draw(months) if of == "month" else None
            return business_day(n if of != "week" else (n % 5) + 1, of=of, months=few, **common)
        case 1:
            return business_days(**common)
        case 2:
            roll: Any = draw(some.sampled_from(["before", "after", "nearest"]))
            return nearest_business_day(draw(some.integers(1, 31)), roll=roll, months=draw(months), **common)
    inner = draw(some.sampled_from([every("7h"), cron("0 */5 * * *", tz=tz), cron("30 2 * * *", tz=tz)]))
    return only_on(inner, workdays(**calendar), tz=tz)


@given(rules(), some.integers(moment("2008-01-01"), moment("2032-01-01")))
def test_ticks_strictly_increase_and_both_directions_agree(rule: Composable, start: Instant) -> None:
    walked = upcoming(rule, start, 5)
    assert walked == sorted({*walked})
    assert len(walked) == 5
    assert all(tick > start for tick in walked)
    before = rule.previous(walked[0])
    assert before is None or before <= start
    for earlier, later in pairwise(walked):
        assert rule.previous(later) == earlier
        assert rule.next(earlier) == later
        assert rule.has(earlier)


@given(rules(), some.integers(moment("2008-01-01"), moment("2032-01-01")))
def test_every_tick_is_on_a_working_day_of_its_zone(rule: Composable, start: Instant) -> None:
    calendar: Workdays = rule.workdays  # type: ignore[attr-defined]
    for tick in upcoming(rule, start, 5):
        assert calendar.is_working(to_datetime(tick).astimezone(ZoneInfo(rule.tz)).date())


@given(rules())
def test_every_rule_comes_back_equal(rule: Composable) -> None:
    assert decode(rule.encode()) == rule


def listed(rule: Composable, first: date, last: date) -> list[date]:
    """The dates of a rule's ticks at midnight UTC, from `first` to `last`, walked backwards."""
    found, tick = [], rule.previous(moment(str(last)) + 1)
    while tick is not None and tick >= moment(str(first)):
        found.append(to_datetime(tick).date())
        tick = rule.previous(tick)
    return found[::-1]


def period(day: date, of: str, calendar: Workdays) -> tuple[int, int]:
    """A name for the period that a day lies in."""
    if of == "week":
        shifted = day - timedelta(calendar.first_weekday)
        return shifted.isocalendar()[:2]
    return day.year, (day.month - 1) // {"month": 1, "quarter": 3, "year": 12}[of]


@given(calendars, starts, some.integers(-23, 23).filter(bool), some.sampled_from(["week", "month", "quarter", "year"]))
def test_the_nth_is_the_nth_by_counting(calendar: dict[str, Any], start: date, n: int, of: Any) -> None:
    n = n if of != "week" else (n % 4) + 1
    rule, known = business_day(n, of=of, **calendar), workdays(**calendar)
    first, last = date(start.year - 1, 1, 1), date(start.year + 1, 12, 31)
    grouped: dict[tuple[int, int], list[date]] = {}
    for offset in range((last - first).days + 1):
        day = first + timedelta(offset)
        if known.is_working(day):
            grouped.setdefault(period(day, of, known), []).append(day)
    place = n - 1 if n > 0 else n
    expected = [found[place] for found in grouped.values() if -len(found) <= place < len(found)]
    # Weeks at both ends may be cut off, so the year in the middle is compared.
    middle = [day for day in expected if day.year == start.year]
    assert listed(rule, date(start.year, 1, 1), date(start.year, 12, 31)) == middle


@given(calendars, starts, some.integers(1, 31), some.sampled_from(["before", "after", "nearest"]), months)
def test_each_date_moves_as_its_rule_says(
    calendar: dict[str, Any], start: date, number: int, roll: Any, chosen: list[int] | None
) -> None:
    rule, known = nearest_business_day(number, roll=roll, months=chosen, **calendar), workdays(**calendar)
    expected = set()
    for year in (start.year - 1, start.year, start.year + 1):
        for month in chosen or range(1, 13):
            following = date(year + month // 12, month % 12 + 1, 1)
            nominal = min(date(year, month, 1) + timedelta(number - 1), following - timedelta(1))
            near = sorted((nominal + timedelta(step) for step in range(-60, 61)), key=lambda day: abs(day - nominal))
            allowed = {
                "before": [day for day in near if day <= nominal],
                "after": [day for day in near if day >= nominal],
                "nearest": near,  # the earlier of two comes first, because sorting keeps their order
            }[roll]
            expected.add(next(day for day in allowed if known.is_working(day)))
    middle = sorted(day for day in expected if day.year == start.year)
    assert listed(rule, date(start.year, 1, 1), date(start.year, 12, 31)) == middle


@given(calendars, starts, zones)
def test_what_is_kept_is_what_falls_on_working_days(calendar: dict[str, Any], start: date, tz: str) -> None:
    inner, known = every("5h"), workdays(**calendar)
    begin = instant(datetime(start.year, start.month, start.day, tzinfo=UTC))
    local = {tick: to_datetime(tick).astimezone(ZoneInfo(tz)).date() for tick in upcoming(inner, begin, 200)}
    expected = [tick for tick, day in local.items() if known.is_working(day)]
    rule = only_on(inner, known, tz=tz)
    assert upcoming(rule, begin, len(expected)) == expected
    backwards, tick = [], rule.previous(max(local) + 1)
    while tick is not None and tick > begin:
        backwards.append(tick)
        tick = rule.previous(tick)
    assert backwards[::-1] == expected


# ---------------------------------------------------------------------------------------------- where the calendar ends


@pytest.mark.parametrize(
    "rule",
    [
        business_day(1, country="LK", tz="Asia/Colombo"),
        business_day(-1, of="week", country="US", tz=NEW_YORK),
        business_days(market="XNYS", tz=NEW_YORK),
        nearest_business_day("last", roll="after", country="US"),
        nearest_business_day(1, roll="before", country="IN"),
        nearest_business_day(1, country="IN"),
        business_day(1),
        only_on(cron("0 9 * * *", tz=NEW_YORK), workdays("IN")),
    ],
)
def test_a_rule_has_no_ticks_in_years_that_are_not_known(rule: Composable) -> None:
    known: range = rule.workdays.known  # type: ignore[attr-defined]
    last, first = rule.previous(LAST), rule.next(FIRST)
    assert last is not None
    assert first is not None
    assert first < last
    assert to_datetime(first - 40 * DAY).year < known[0] <= to_datetime(first + DAY).year
    assert to_datetime(last - DAY).year <= known[-1] < to_datetime(last + 40 * DAY).year
    assert rule.next(last) is None
    assert rule.previous(first) is None
    assert rule.next(LAST) is None
    assert rule.previous(FIRST) is None
