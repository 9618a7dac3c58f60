"""RRULE: the examples of RFC 5545, dateutil as an oracle, and what other engines get wrong or never come back from."""

from __future__ import annotations

import copy
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import cast
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.domain.instant import FIRST, LAST, MINUTE, SECOND, Instant, instant, rfc3339, to_datetime
from foliot.domain.rule import Rule
from foliot.domain.schedule import Schedule
from foliot.errors import InvalidRule
from foliot.timing import Recurrence, cron, decode, rrule, upcoming
from foliot.timing.tables import is_newer, stamp_of, stamps
from foliot.watch.schedules import _is_current
from tests.tiers import by_tier
from tests.timing.calls import A_DIRECT_ANSWER, A_SHORT_SEARCH, at_most

NEW_YORK = "America/New_York"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEKDAYS = "MO TU WE TH FR SA SU".split()


def walls(rule: Recurrence, count: int = 200) -> list[str]:
    """The first ticks, as the clocks on the wall of its zone show them."""
    return [str(rule.wall(tick)).removesuffix(":00") for tick in upcoming(rule, FIRST, count)]


def days(text: str) -> list[str]:
    """`1997-09-02 04 10-14` is the 2nd and the 4th of September and the 14th of October, at 09:00."""
    found: list[str] = []
    for word in text.split():
        found.append((found[-1][: -len(word)] if found else "") + word)
    return [f"{day}T09:00" for day in found]


def utc(text: str) -> Instant:
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC))


def ticks(rule: Rule, after: str, count: int) -> list[str]:
    return [rfc3339(tick) for tick in upcoming(rule, utc(after), count)]


# -------------------------------------------------------------------------------------------- the examples of RFC 5545

EXAMPLES = [
    ("FREQ=DAILY;COUNT=10", "1997-09-02 03 04 05 06 07 08 09 10 11"),
    ("FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02 12 22 10-02 12"),
    ("FREQ=WEEKLY;COUNT=10", "1997-09-02 09 16 23 30 10-07 14 21 28 11-04"),
    ("FREQ=WEEKLY;INTERVAL=2;WKST=SU", "1997-09-02 16 30 10-14 28 11-11 25 12-09 23 1998-01-06 20 02-03 17"),
    ("FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH", "1997-09-02 04 09 11 16 18 23 25 30 10-02"),
    ("FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH", "1997-09-02 04 09 11 16 18 23 25 30 10-02"),
    (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        "1997-09-01 03 05 15 17 19 29 10-01 03 13 15 17 27 29 31 11-10 12 14 24 26 28 12-08 10 12 22",
    ),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH", "1997-09-02 04 16 18 30 10-02 14 16"),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08-05 10 19 24"),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08-05 17 19 31"),
    ("FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "1997-09-05 10-03 11-07 12-05 1998-01-02 02-06 03-06 04-03 05-01 06-05"),
    ("FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", "1997-09-05 10-03 11-07 12-05"),
    (
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "1997-09-07 28 11-02 30 1998-01-04 25 03-01 29 05-03 31",
    ),
    ("FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "1997-09-22 10-20 11-17 12-22 1998-01-19 02-16"),
    ("FREQ=MONTHLY;BYMONTHDAY=-3", "1997-09-28 10-29 11-28 12-29 1998-01-29 02-26"),
    ("FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15", "1997-09-02 15 10-02 15 11-02 15 12-02 15 1998-01-02 15"),
    ("FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "1997-09-30 10-01 31 11-01 30 12-01 31 1998-01-01 31 02-01"),
    (
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        "1997-09-10 11 12 13 14 15 1999-03-10 11 12 13",
    ),
    ("FREQ=MONTHLY;INTERVAL=2;BYDAY=TU", "1997-09-02 09 16 23 30 11-04 11 18 25 1998-01-06 13 20 27 03-03 10"),
    (
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        "1997-06-10 07-10 1998-06-10 07-10 1999-06-10 07-10 2000-06-10 07-10 2001-06-10 07-10",
    ),
    (
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "1997-03-10 1999-01-10 02-10 03-10 2001-01-10 02-10 03-10 2003-01-10 02-10 03-10",
    ),
    (
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "1997-01-01 04-10 07-19 2000-01-01 04-09 07-18 2003-01-01 04-10 07-19 2006-01-01",
    ),
    ("FREQ=YEARLY;BYDAY=20MO", "1997-05-19 1998-05-18 1999-05-17"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997-05-12 1998-05-11 1999-05-17"),
    ("FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "1997-03-13 20 27 1998-03-05 12 19 26 1999-03-04 11 18 25"),
    (
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        "1997-06-05 12 19 26 07-03 10 17 24 31 08-07 14 21 28 1998-06-04 11 18 25 07-02",
    ),
    ("FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13", "1997-09-13 10-11 11-08 12-13 1998-01-10 02-07 03-07"),
    ("FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8", "1996-11-05 2000-11-07 2004-11-02"),
    ("FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997-09-04 10-07 11-06"),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", "1997-09-29 10-30 11-27 12-30 1998-01-29 02-26 03-30"),
    ("FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5", "2007-01-15 30 02-15 03-15 30"),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_the_examples_of_the_standard_come_out(text: str, expected: str) -> None:
    wanted = days(expected)
    found = walls(rrule(text, start=wanted[0], tz=NEW_YORK))
    assert found[: len(wanted)] == wanted
    assert ("COUNT" in text or "UNTIL" in text) == (len(found) == len(wanted))


def test_friday_the_13th_with_the_start_taken_out() -> None:
    text = """
        DTSTART;TZID=America/New_York:19970902T090000
        EXDATE;TZID=America/New_York:19970902T090000
        RRULE:FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13
    """
    rule = rrule(text)
    assert walls(rule, 5) == days("1998-02-13 03-13 11-13 1999-08-13 2000-10-13")
    assert rule.tz == NEW_YORK


def test_every_day_of_january_has_two_spellings() -> None:
    by_year = rrule(
        "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=" + ",".join(WEEKDAYS), start="1998-01-01T09:00"
    )
    by_day = rrule("FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", start="1998-01-01T09:00")
    assert walls(by_year) == walls(by_day)
    assert len(walls(by_day)) == 93


def test_parts_of_a_day_come_out() -> None:
    start = "1997-09-02T09:00"
    clocks = {
        "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000": "09:00 12:00 15:00",
        "FREQ=MINUTELY;INTERVAL=15;COUNT=6": "09:00 09:15 09:30 09:45 10:00 10:15",
        "FREQ=MINUTELY;INTERVAL=90;COUNT=4": "09:00 10:30 12:00 13:30",
    }
    for text, expected in clocks.items():
        rule = rrule(text, start=start, tz=NEW_YORK)
        shown = [(to_datetime(tick) - 4 * HOUR).strftime("%H:%M") for tick in upcoming(rule, FIRST, 50)]
        assert shown == expected.split()
    by_day = rrule("FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", start=start, tz=NEW_YORK)
    by_minute = rrule("FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", start=start, tz=NEW_YORK)
    assert upcoming(by_day, 0, 100) == upcoming(by_minute, 0, 100)
    assert walls(by_day)[23:25] == ["1997-09-02T16:40", "1997-09-03T09:00"]


# --------------------------------------------------------------------------------------------------- dateutil as oracle


def lists(values: some.SearchStrategy[int] | some.SearchStrategy[str], low: int, high: int) -> some.SearchStrategy[str]:
    """Values with commas between them."""
    return some.lists(values.map(str), min_size=low, max_size=high, unique=True).map(",".join)


@some.composite
def texts(draw: some.DrawFn) -> str:
    """Rules that fire often enough for an engine that counts up from the start, and whose meaning is not disputed."""
    frequency = draw(some.sampled_from("YEARLY MONTHLY WEEKLY DAILY HOURLY MINUTELY SECONDLY".split()))
    parts = {
        "BYMONTH": lists(some.integers(1, 12), 4, 9),
        "BYDAY": lists(some.sampled_from(WEEKDAYS), 2, 5),
        "BYHOUR": lists(some.integers(0, 23), 1, 5),
        "BYMINUTE": lists(some.integers(0, 59), 1, 5),
        "BYSECOND": lists(some.integers(0, 59), 1, 5),
    }
    if frequency in ("YEARLY", "MONTHLY") and draw(some.booleans()):
        # Without days of the month: the 4th Monday is never the 1st.
        parts["BYDAY"] = lists(some.sampled_from([f"{nth}{day}" for nth in (1, 4, -1, -3) for day in WEEKDAYS]), 1, 3)
    elif frequency != "WEEKLY":
        parts["BYMONTHDAY"] = lists(some.integers(-28, 28).filter(bool), 8, 12)
    chosen = draw(some.lists(some.sampled_from(sorted(parts)), max_size=3, unique=True))
    written = [f"FREQ={frequency}", *(f"{name}={draw(parts[name])}" for name in chosen)]
    # Every other month may never be one of BYMONTH, and dateutil would look for it to the end of the calendar.
    interval = draw(some.sampled_from([1, 5, 7] if frequency == "MONTHLY" else [1, 2, 3, 4, 5]))
    written += [f"INTERVAL={interval}", f"WKST={draw(some.sampled_from(WEEKDAYS))}"]
    is_picky = draw(some.booleans())
    if chosen and is_picky:
        written.append(f"BYSETPOS={draw(some.sampled_from(['1', '-1', '1,-1', '-1,2', '1,-3']))}")
    return ";".join(draw(some.permutations(written)))


starts = some.datetimes(datetime(1995, 1, 1), datetime(2030, 1, 1)).map(lambda when: when.replace(microsecond=0))


@settings(max_examples=by_tier(40, 150, 1_500))
@given(texts(), starts)
def test_it_agrees_with_counting_up_from_the_start_in_both_directions(text: str, start: datetime) -> None:
    try:
        counted = rrulestr(text, dtstart=start)
    except ValueError:  # dateutil, too, sees that INTERVAL and BYSECOND never meet
        with pytest.raises(InvalidRule, match="never fires"):
            rrule(text, start=start)
        return
    # dateutil cuts the first week off at the start, and then counts BYSETPOS in what is left of it.
    begin = start + 7 * DAY if "WEEKLY" in text and "BYSETPOS" in text else start
    expected = [instant(when.replace(tzinfo=UTC)) for when in islice(counted.xafter(begin, inc=True), 15)]
    rule = rrule(text, start=start)
    first, last = instant(begin.replace(tzinfo=UTC)), expected[-1]
    assert upcoming(rule, first - 1, 15) == expected
    back = [last]
    while (tick := rule.previous(back[-1])) is not None and tick >= first:
        back.append(tick)
    assert back[::-1] == expected


@given(texts(), starts, some.integers(FIRST, LAST))
def test_next_is_after_and_previous_before_and_nothing_lies_between(
    text: str, start: datetime, moment: Instant
) -> None:
    try:
        rule = rrule(text, start=start, tz="Australia/Lord_Howe")
    except InvalidRule:
        return
    coming, gone = rule.next(moment), rule.previous(moment)
    assert gone is None or gone < moment
    if coming is not None:
        assert coming > moment
        assert rule.previous(coming) in (gone, moment)


# ---------------------------------------------------------------------------------------- where other engines differ


def test_plain_and_numbered_weekdays_are_either() -> None:
    rule = rrule("FREQ=MONTHLY;BYDAY=MO,1FR", start="2026-01-01T09:00")
    assert walls(rule, 6) == days("2026-01-02 05 12 19 26 02-02")


def test_the_first_week_is_counted_whole() -> None:
    # The week begins on Wednesday, so Monday is the second of its three days, and DTSTART lies in the middle of it.
    rule = rrule("FREQ=WEEKLY;WKST=WE;BYSETPOS=1;BYDAY=MO,TU,WE", start="2024-11-10T09:00")
    assert walls(rule, 3) == days("2024-11-13 20 27")


@pytest.mark.parametrize("week", [1, 2, 20, 52, 53])
def test_week_numbers_are_those_of_iso_8601_also_at_the_ends_of_years(week: int) -> None:
    rule = rrule(f"FREQ=YEARLY;BYWEEKNO={week};BYDAY={','.join(WEEKDAYS)};UNTIL=20501231", start="1995-06-01T09:00")
    every_day = (date(1995, 6, 1) + number * DAY for number in range(56 * 366))
    expected = [str(day) for day in every_day if day.year <= 2050 and day.isocalendar().week == week]
    assert [wall[:10] for wall in walls(rule, 1_000)] == expected


def test_days_and_weeks_of_the_year_are_counted_right_for_four_centuries() -> None:
    rule = rrule("FREQ=YEARLY;BYWEEKNO=1,53;BYYEARDAY=-366,-365,3,366;UNTIL=24001231", start="2000-01-01T09:00")
    every_day = (date(2000, 1, 1) + number * DAY for number in range(146_097 + 366))
    near = [day for day in every_day if day.isocalendar().week in (1, 53)]
    lengths = {year: date(year, 12, 31).timetuple().tm_yday for year in range(2000, 2401)}
    expected = []
    for day in near:
        nth = day.timetuple().tm_yday
        if nth in (3, 366) or nth - lengths[day.year] - 1 in (-366, -365):
            expected.append(str(day))
    assert [wall[:10] for wall in walls(rule, 2_000)] == expected


def test_the_last_week_is_52_or_53() -> None:
    rule = rrule("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=MO", start="2019-06-01T09:00")
    assert walls(rule, 4) == days("2019-12-23 2020-12-28 2021-12-27 2022-12-26")


def test_a_week_belongs_to_the_year_it_is_numbered_in() -> None:
    rule = rrule("FREQ=YEARLY;INTERVAL=2;BYWEEKNO=1;BYDAY=MO", start="2024-12-30T09:00")
    assert walls(rule, 3) == days("2024-12-30 2027-01-04 2029-01-01")


def test_a_week_number_alone_means_the_weekday_of_the_start() -> None:
    rule = rrule("FREQ=YEARLY;BYWEEKNO=20", start="2026-01-06T09:00")
    assert walls(rule, 2) == days("2026-05-12 2027-05-18")


def test_months_without_a_31st_are_left_out() -> None:
    assert walls(rrule("FREQ=MONTHLY", start="2026-01-31T09:00"), 4) == days("2026-01-31 03-31 05-31 07-31")
    assert walls(rrule("FREQ=YEARLY", start="2096-02-29T09:00"), 2) == days("2096-02-29 2104-02-29")


def test_a_start_that_does_not_match_is_no_tick() -> None:
    assert walls(rrule("FREQ=WEEKLY;BYDAY=MO;COUNT=2", start="2026-01-01T09:00")) == days("2026-01-05 12")


# ---------------------------------------------------------------------------------------------------- gaps and folds


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, ["2026-03-07T07:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"]),
        ({"preset": "vixie"}, ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
        ({"gap": "skip"}, ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]),
        ({"gap": "shift_forward"}, ["2026-03-07T07:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"]),
        ({"preset": "systemd"}, ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]),
        ({"gap": "shift_backward"}, ["2026-03-07T07:30:00Z", "2026-03-08T06:30:00Z", "2026-03-09T06:30:00Z"]),
    ],
)
def test_a_wall_time_in_a_gap_follows_the_policy_and_count_counts_what_runs(
    policy: dict[str, str], expected: list[str]
) -> None:
    rule = rrule("FREQ=DAILY;COUNT=3", start="2026-03-07T02:30", tz=NEW_YORK, **policy)
    assert ticks(rule, "2026-01-01", 9) == expected
    assert rule.previous(LAST) == utc(expected[-1][:-1])


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]),
        ("second", ["2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]),
        ("both", ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]),
    ],
)
def test_a_wall_time_in_a_fold_follows_the_policy(fold: str, expected: list[str]) -> None:
    rule = rrule("FREQ=DAILY;BYHOUR=1;BYMINUTE=30", tz=NEW_YORK, fold=fold)
    assert ticks(rule, "2026-11-01", 2) == expected


def test_a_new_rule_moves_a_missing_time_as_rfc_5545_does() -> None:
    text, gap = "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "2026-03-08"
    half_past_three, three = ["2026-03-08T07:30:00Z"], ["2026-03-08T07:00:00Z"]
    rule = rrule(text, tz=NEW_YORK)
    assert rule == rrule(text, tz=NEW_YORK, preset="rfc5545") == rrule(text, tz=NEW_YORK, gap="shift_forward")
    assert ticks(rule, gap, 1) == half_past_three
    assert ticks(rrule(text, tz=NEW_YORK, fold="second"), gap, 1) == half_past_three
    assert ticks(rrule(text, tz=NEW_YORK, preset="vixie"), gap, 1) == three
    assert ticks(decode(rule.encode()), gap, 1) == half_past_three
    stored_before = '{"rrule":"FREQ=DAILY;BYHOUR=2;BYMINUTE=30","tz":"America/New_York","start":"1970-01-01T00:00:00"}'
    assert ticks(decode(stored_before), gap, 1) == three, "a stored rule keeps its policy"
    assert decode(stored_before).encode() == stored_before
    assert decode(stored_before).explain() == "every day at 02:30 America/New_York (gap=run_after)"
    assert rule.explain() == "every day at 02:30 America/New_York"
    assert cron("30 2 * * *", tz=NEW_YORK, preset="rfc5545").next(utc(gap)) == utc("2026-03-08T07:30")


def test_half_an_hour_is_missing_and_doubled_on_lord_howe() -> None:
    rule = rrule("FREQ=DAILY;BYHOUR=2;BYMINUTE=15", tz="Australia/Lord_Howe")
    assert ticks(rule, "2026-10-03T00:00", 2) == ["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"]
    rule = rrule("FREQ=DAILY;BYHOUR=1;BYMINUTE=45", tz="Australia/Lord_Howe", fold="both")
    assert ticks(rule, "2026-04-04T12:00", 2) == ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"]


def test_hourly_runs_on_through_gap_and_fold_unless_told_otherwise() -> None:
    day = utc("2026-11-01T04:00"), utc("2026-11-02T05:00")
    counts = {"auto": 25, "never": 24}
    for interval_like, count in counts.items():
        rule = rrule("FREQ=HOURLY", tz=NEW_YORK, interval_like=interval_like)
        assert len([tick for tick in upcoming(rule, day[0] - 1, 30) if tick < day[1]]) == count
    assert rrule("FREQ=HOURLY", tz=NEW_YORK).wall(day[0]) is None
    assert rrule("FREQ=HOURLY;BYHOUR=1", tz=NEW_YORK).wall(day[0]) == "2026-11-01T00:00:00"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("FREQ=MINUTELY;INTERVAL=90", 90),
        ("FREQ=MINUTELY;INTERVAL=7", 7),
        ("FREQ=HOURLY", 60),
        ("FREQ=HOURLY;INTERVAL=5", 300),
        ("FREQ=HOURLY;INTERVAL=24", 24 * 60),
        ("FREQ=SECONDLY;INTERVAL=5400", 90),
    ],
)
@pytest.mark.parametrize("tz", ["Europe/Paris", NEW_YORK, "Australia/Lord_Howe"])
def test_parts_of_a_day_are_counted_in_elapsed_time(text: str, minutes: int, tz: str) -> None:
    rule = rrule(text, start="2026-01-05T09:00", tz=tz)
    first = rule.next(0)
    assert first is not None
    for near in ("2026-03-08T05:00", "2026-03-29T00:00", "2026-10-03T12:00", "2026-10-24T20:00", "2026-11-01T04:00"):
        found = upcoming(rule, utc(near), 40)
        assert {(tick - first) % (minutes * MINUTE) for tick in found} == {0}, near
        assert {later - earlier for earlier, later in pairwise(found)} == {minutes * MINUTE}, near
        for earlier, later in pairwise(found):
            assert rule.previous(later) == earlier


def test_a_wall_clock_counts_where_elapsed_time_is_turned_off() -> None:
    rule = rrule("FREQ=HOURLY;INTERVAL=5", start="2026-01-05T00:00", tz=NEW_YORK, interval_like="never", gap="skip")
    assert [rfc3339(tick)[11:16] for tick in upcoming(rule, utc("2026-11-01"), 3)] == ["04:00", "10:00", "15:00"]


def test_what_else_a_rule_of_elapsed_time_says_is_about_local_time() -> None:
    rule = rrule("FREQ=MINUTELY;INTERVAL=90;BYDAY=SU\nEXDATE:20261101T000000", start="2026-10-31T00:00", tz=NEW_YORK)
    local = [f"{rule._zone.local(tick // SECOND)[0]:%a %H:%M}" for tick in upcoming(rule, utc("2026-11-01"), 17)]
    assert local[:4] == ["Sun 01:30", "Sun 02:00", "Sun 03:30", "Sun 05:00"]
    assert local[-2:] == ["Sun 23:00", "Sun 00:30"], "and next Sunday it goes on"


def test_count_and_until_of_a_rule_of_elapsed_time() -> None:
    start, expected = "2026-11-01T00:00", ["2026-11-01T04:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z"]
    for end in ("COUNT=3", "UNTIL=20261101T020000", "UNTIL=20261101T070000Z"):
        rule = rrule(f"FREQ=MINUTELY;INTERVAL=90;{end}", start=start, tz=NEW_YORK)
        assert ticks(rule, "2026-01-01", 9) == expected
        assert rule.previous(LAST) == utc(expected[-1][:-1])
        assert rule.next(utc("9000-01-01")) is None


def test_a_start_that_is_not_given_sets_no_phase() -> None:
    """In 1970 the clocks of Kathmandu were 15 minutes behind those of today."""
    assert ticks(rrule("FREQ=HOURLY", tz="Asia/Kathmandu"), "2026-01-01", 1) == ["2026-01-01T00:15:00Z"]


def test_a_tick_that_was_counted_by_the_clock_has_another_stamp() -> None:
    counted = rrule("FREQ=HOURLY", start="2026-01-05T09:00", tz=NEW_YORK)
    by_clock = rrule("FREQ=HOURLY;BYHOUR=9", start="2026-01-05T09:00", tz=NEW_YORK)
    assert stamp_of(counted) == f"rrule=2 {stamp_of(by_clock)}"
    assert stamp_of(counted) in stamps()
    assert is_newer(stamp_of(counted), stamp_of(by_clock) or "")
    waits = cast(Schedule, SimpleNamespace(tables=stamp_of(by_clock)))
    assert not _is_current(waits, counted), "the watch misses no tick that was not promised"
    assert _is_current(waits, by_clock)


def test_count_ends_in_the_middle_of_a_fold() -> None:
    rule = rrule("FREQ=MINUTELY;INTERVAL=30;COUNT=4", start="2026-11-01T01:00", tz=NEW_YORK)
    expected = ["2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z"]
    assert ticks(rule, "2026-01-01", 9) == expected
    rule = rrule("FREQ=MINUTELY;INTERVAL=30;UNTIL=20261101T060000Z", start="2026-11-01T01:00", tz=NEW_YORK)
    assert ticks(rule, "2026-01-01", 9) == expected[:3]
    assert rule.previous(LAST) == utc("2026-11-01T06:00")


# ----------------------------------------------------------------------------------------------------------- start, end


@pytest.mark.parametrize(
    "start",
    [
        "2026-01-05T09:00",
        "2026-01-05 09:00:00",
        "20260105T090000",
        "2026-01-05T08:00:00Z",
        "2026-01-05T03:00-05:00",
        datetime(2026, 1, 5, 9),
        datetime(2026, 1, 5, 8, tzinfo=UTC),
        datetime(2026, 1, 5, 3, tzinfo=ZoneInfo(NEW_YORK)),
    ],
)
def test_a_start_is_a_wall_time_or_is_turned_into_one(start: datetime | str) -> None:
    rule = rrule("FREQ=DAILY", start=start, tz="Europe/Paris")
    assert rule == rrule("DTSTART;TZID=Europe/Paris:20260105T090000\nRRULE:FREQ=DAILY")
    assert rule == rrule("DTSTART:20260105T080000Z\nRRULE:FREQ=DAILY", tz="Europe/Paris")
    assert ticks(rule, "2026-01-01", 1) == ["2026-01-05T08:00:00Z"]


def test_a_date_is_its_midnight() -> None:
    rule = rrule("DTSTART;VALUE=DATE:20260105\nRRULE:FREQ=DAILY")
    assert rule == rrule("FREQ=DAILY", start=date(2026, 1, 5)) == rrule("FREQ=DAILY", start="2026-01-05")
    assert rule.start == "2026-01-05T00:00:00"


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20260110", "2026-01-10T09:00"),
        ("20260110T090000", "2026-01-10T09:00"),
        ("20260110T085959", "2026-01-09T09:00"),
        ("20260110T140000Z", "2026-01-10T09:00"),
        ("20260110T135959Z", "2026-01-09T09:00"),
    ],
)
def test_until_is_included_as_a_date_a_wall_time_or_an_instant(until: str, last: str) -> None:
    rule = rrule(f"FREQ=DAILY;UNTIL={until}", start="2026-01-05T09:00", tz=NEW_YORK)
    assert walls(rule)[-1] == last
    assert rule.wall(rule.previous(LAST) or 0) == f"{last}:00"


def test_a_rule_that_names_all_it_needs_has_no_start() -> None:
    rule = rrule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", tz="Europe/Paris")
    assert ticks(rule, "2026-01-01", 2) == ["2026-01-30T16:00:00Z", "2026-02-27T16:00:00Z"]
    assert rule.previous(0) is None
    assert upcoming(rrule("FREQ=HOURLY"), 0, 50) == upcoming(cron("0 * * * *"), 0, 50)


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY",
        "FREQ=WEEKLY;BYHOUR=9",
        "FREQ=YEARLY;BYWEEKNO=3;BYHOUR=9",
        "FREQ=MINUTELY;INTERVAL=2",
        "FREQ=HOURLY;COUNT=2",
    ],
)
def test_a_rule_that_needs_a_start_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(InvalidRule, match='give start="2026-01-05T09:00" or a DTSTART line, or'):
        rrule(text)


def test_dates_are_added_and_taken_away() -> None:
    text = """
        FREQ=WEEKLY;BYDAY=MO;COUNT=4
        RDATE:20260120T120000,20260301T130000Z,20260106T150000
        RDATE;VALUE=DATE:20260107
        EXDATE:20260112T140000Z,20260106T150000
        EXDATE;VALUE=DATE:20260119
    """
    rule = rrule(text, start="2026-01-05T09:00", tz=NEW_YORK)
    # COUNT counts the two Mondays that are taken away; it does not count the dates that are added.
    wanted = ["2026-01-05T09:00", "2026-01-07T09:00", "2026-01-20T12:00", "2026-01-26T09:00", "2026-03-01T08:00"]
    assert walls(rule) == wanted
    back, tick = [], rule.previous(LAST)
    while tick is not None:
        back.append(str(rule.wall(tick))[:16])
        tick = rule.previous(tick)
    assert back[::-1] == wanted


def test_a_date_takes_its_whole_day_away() -> None:
    rule = rrule("FREQ=HOURLY;INTERVAL=5\nEXDATE;VALUE=DATE:20260106", start="2026-01-05T09:00")
    day = utc("2026-01-06"), utc("2026-01-07")
    assert rule.next(day[0]) == utc("2026-01-07T01:00")
    assert rule.previous(day[1]) == utc("2026-01-05T19:00")


def test_an_exdate_takes_away_a_time_that_a_gap_has_moved() -> None:
    rule = rrule("FREQ=DAILY\nEXDATE:20260308T023000", start="2026-03-07T02:30", tz=NEW_YORK)
    assert ticks(rule, "2026-03-08", 1) == ["2026-03-09T06:30:00Z"]


# ------------------------------------------------------------------------------------------------- never, far, and fast

NEVER = [
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=MONTHLY;BYMONTH=4;BYMONTHDAY=31",
    "FREQ=DAILY;BYMONTH=6,9;BYMONTHDAY=31",
    "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=YEARLY;BYYEARDAY=1;BYMONTH=2",
    "FREQ=YEARLY;BYWEEKNO=20;BYMONTH=1",
    "FREQ=YEARLY;BYMONTH=5;BYMONTHDAY=3;BYSETPOS=3",
    "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6",
    "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=-3",
    "FREQ=DAILY;BYHOUR=9;BYSETPOS=366",
    "FREQ=SECONDLY;BYSECOND=1;BYSETPOS=2",
    "FREQ=MONTHLY;INTERVAL=2;BYMONTH=2,4,6",
    "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
    "FREQ=HOURLY;INTERVAL=24;BYHOUR=10",
    "FREQ=HOURLY;INTERVAL=168;BYDAY=TU",
    "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1,3,5",
    "FREQ=SECONDLY;INTERVAL=2;BYSECOND=1",
    "FREQ=SECONDLY;INTERVAL=86400;BYSECOND=1",
    "FREQ=DAILY;UNTIL=20260104",
    "FREQ=DAILY;UNTIL=20200104T000000Z",
    "FREQ=DAILY;COUNT=1\nEXDATE:20260105T090000",
]


@pytest.mark.parametrize("text", NEVER)
def test_a_rule_that_never_fires_is_refused_at_once(text: str) -> None:
    with at_most(A_SHORT_SEARCH), pytest.raises(InvalidRule, match="never"):
        rrule(text, start="2026-01-05T09:00")


def test_wall_times_that_never_exist_are_refused() -> None:
    # New York's clocks jump over 02:30 on the second Sunday of March, year after year.
    text = "FREQ=YEARLY;BYMONTH=3;BYDAY=2SU;BYHOUR=2;BYMINUTE=30"
    assert rrule(text, tz=NEW_YORK, start="2026-01-01").next(0) == utc("2026-03-08T07:30")
    with at_most(A_SHORT_SEARCH), pytest.raises(InvalidRule, match="do not exist"):
        rrule(text, tz=NEW_YORK, start="2026-01-01", gap="skip")


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=SECONDLY",
        "FREQ=SECONDLY;INTERVAL=7",
        "FREQ=MINUTELY;BYSECOND=30",
        "FREQ=HOURLY;INTERVAL=5;BYDAY=SU",
        "FREQ=WEEKLY;INTERVAL=3",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
    ],
)
def test_a_rule_answers_a_century_after_its_start_as_fast_as_beside_it(text: str) -> None:
    rule, moment = rrule(text, start="1976-01-05T09:00", tz=NEW_YORK), utc("2076-06-15T03:07:11")
    rule.next(moment), rule.previous(moment)
    with at_most(A_DIRECT_ANSWER):
        coming, gone = rule.next(moment), rule.previous(moment)
    assert coming is not None
    assert gone is not None
    assert gone < moment < coming


def test_the_phase_is_kept_for_a_century() -> None:
    start, moment = utc("1976-01-05T09:00"), utc("2076-06-15T03:07:11")
    rule = rrule("FREQ=SECONDLY;INTERVAL=7", start="1976-01-05T09:00")
    late = (moment - start) % (7 * SECOND)
    assert (rule.previous(moment + 1), rule.next(moment)) == (moment - late, moment - late + 7 * SECOND)


def test_the_calendar_ends() -> None:
    rule = rrule("FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO", start="0001-01-01")
    assert rule.next(FIRST - 1) == FIRST
    assert rule.next(LAST) is None
    assert str(to_datetime(rule.previous(LAST) or 0)) == "9999-01-04 00:00:00+00:00"
    with pytest.raises(InvalidRule, match="no date in"):
        rrule("FREQ=DAILY", start="9999-12-31T23:00Z", tz="Asia/Tokyo")


@given(texts(), starts)
def test_a_rule_comes_back_equal(text: str, start: datetime) -> None:
    try:
        rule = rrule(f"{text}\nEXDATE:20260101T090000Z\nRDATE;TZID={NEW_YORK}:20260102T000000", start=start)
    except InvalidRule:
        return
    for restored in (decode(rule.encode()), copy.deepcopy(rule)):
        assert restored == rule
        assert restored.next(0) == rule.next(0)
        assert restored.explain() == rule.explain()
