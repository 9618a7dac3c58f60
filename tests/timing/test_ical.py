"""Recurrences as people write them: what is read, what is stored, what is refused and why, and how it is told."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.errors import InvalidRule
from foliot.timing import Recurrence, decode, ical, rrule
from tests.timing.calls import A_SHORT_SEARCH, at_most

NEW_YORK = "America/New_York"


def test_the_stored_form_does_not_change() -> None:
    rule = rrule("rrule:freq=monthly; byday=-1fr;", start="2026-01-30T17:00", tz="Europe/Paris", gap="skip")
    line = '{"rrule":"FREQ=MONTHLY;BYDAY=-1FR","tz":"Europe/Paris","start":"2026-01-30T17:00:00","gap":"skip"}'
    assert rule.encode() == line
    assert decode(line) == rule


def test_lines_may_be_folded_indented_and_in_any_order() -> None:
    plain = rrule("FREQ=DAILY;BYHOUR=9\nEXDATE:20260101T090000,20260102T090000")
    folded = rrule("RRULE:FREQ=DAI\r\n LY;BYHOUR=9\r\nEXDATE:20260101T090000,202601\r\n 02T090000\r\n")
    assert plain == folded
    start = rrule("  RRULE:FREQ=DAILY\n  DTSTART:20260101T090000")
    assert start == rrule("DTSTART:20260101T090000 RRULE:FREQ=DAILY")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a recurrence"),
        ("BYDAY=MO", "FREQ is missing"),
        ("FREQ=OFTEN", "YEARLY, MONTHLY"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ is given twice"),
        ("FREQ=DAILY;;BYHOUR=9", "'' is not a part"),
        ("FREQ=DAILY;BYHOUR=", "BYHOUR has no value"),
        ("FREQ=DAILY;BYHOURS=9", "did you mean BYHOUR"),
        ("FREQ=DAILY;BYHOUR=24", "give 0 to 23"),
        ("FREQ=DAILY;BYHOUR=\u0669", "ASCII"),
        ("FREQ=DAILY;BYSECOND=60", "leap second"),
        ("FREQ=DAILY;BYMONTHDAY=0", "1 to 31, or -1 to -31"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 is invalid"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL=-1 is invalid"),
        ("FREQ=DAILY;INTERVAL=1.5", "whole number"),
        ("FREQ=DAILY;COUNT=0", "COUNT=0 is invalid"),
        ("FREQ=DAILY;COUNT=10001", "Give UNTIL= instead"),
        (f"FREQ=DAILY;COUNT={10**30}", "COUNT=1000"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101", "give one of them"),
        ("FREQ=DAILY;UNTIL=20270230", "'20270230' in UNTIL is not a date"),
        ("FREQ=DAILY;UNTIL=2027-01-01", "20261231T090000"),
        ("FREQ=DAILY;UNTIL=20270101T000060", "is not a date"),
        ("FREQ=MONTHLY;BYDAY=FRI", "'FRI' in BYDAY"),
        ("FREQ=MONTHLY;BYDAY=0FR", "'0FR' in BYDAY"),
        ("FREQ=MONTHLY;BYDAY=6FR", "at most five"),
        ("FREQ=WEEKLY;BYDAY=1MO", "cannot be combined with FREQ=WEEKLY"),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "cannot be combined with BYWEEKNO"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "cannot be combined with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYYEARDAY=1", "cannot be combined with FREQ=MONTHLY"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "cannot be combined with FREQ=MONTHLY"),
        ("FREQ=DAILY;BYSETPOS=1", "none is given"),
        ("FREQ=DAILY;WKST=1", "WKST=1 is unknown"),
        ("FREQ=YEARLY;BYEASTER=0", "BYEASTER is not part of RFC 5545"),
        ("RSCALE=CHINESE;FREQ=YEARLY", "RSCALE is not supported"),
        ("FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "EXRULE is not supported"),
        ("FREQ=DAILY\nRRULE:FREQ=WEEKLY", "RRULE is given twice"),
        ("RRULE:RRULE:FREQ=DAILY", "'RRULE:FREQ=DAILY' is not a part"),
        ("DTSTART:20260101T090000", "has no rule"),
        ("DTSTART:20260101\nDTSTART:20260101\nFREQ=DAILY", "DTSTART is given twice"),
        ("FREQ=DAILY\nSUMMARY:stand-up", "'SUMMARY' is not supported"),
        ("FREQ=DAILY\nRDATE;VALUE=PERIOD:20260101T000000Z/PT1H", "RDATE with VALUE=PERIOD is not supported"),
        ("FREQ=DAILY\nEXDATE;TZID=Asia/Tokyo:20260101\nRDATE;TZID=UTC:20260101", "one time zone"),
    ],
)
def test_what_is_wrong_is_said_by_its_name(text: str, problem: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        rrule(text, start=None if "DTSTART" in text else "2026-01-05T09:00")
    assert problem in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYHOUR=" + "9," * 500_000,
        "FREQ=DAILY;" * 900,
        "\n " * 4_999,
        " " * 9_999 + ";",
        "FREQ=DAILY\n" + "RDATE:20260101\n " * 600,
        "TZID=" * 1_900 + ":",
        "DTSTART" + ";TZID=UTC" * 1_000 + ":\n",
        "FREQ=DAILY;INTERVAL=" + "9" * 9_000,
        "FREQ=DAILY;BYHOUR=" + "9" * 9_000,
        "FREQ=MONTHLY;BYDAY=" + "9" * 9_000 + "MO",
        "FREQ=DAILY;UNTIL=" + "9" * 9_000,
    ],
)
def test_hostile_text_is_refused_at_once(text: str) -> None:
    with at_most(A_SHORT_SEARCH), pytest.raises(InvalidRule) as refused:
        rrule(text)
    assert len(str(refused.value)) < 400


# No call shows how far a pattern looks. So the next texts are a hundred times longer than allowed. A pattern whose cost
# is the square of the length, or more, would not end.
VERY_LONG = 1_000_000
PATTERNS = {name: pattern for name, pattern in vars(ical).items() if isinstance(pattern, re.Pattern)}


@pytest.mark.parametrize("text", ["\n ", " ", "\n", "RDATE:20260101\n "])
def test_folded_lines_are_joined_in_one_pass(text: str) -> None:
    ical._FOLD.sub("", text * (VERY_LONG // len(text)))


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_answers_a_very_long_text_in_one_pass(name: str) -> None:
    pattern = PATTERNS[name]
    pattern.sub("", "1" * VERY_LONG)
    for text in ("1", "+1", "MO", "-1MO", "T1", "20260101T090000Z", " ", "\n ", "A=", "1,"):
        # The last character lets no pattern match, so it tries each way that it has.
        assert not pattern.fullmatch(text * (VERY_LONG // len(text)) + "!")


@given(some.text("FREQDAILYWKBONTHSU=;:,-+0129\n Z", max_size=60) | some.text(max_size=30))
def test_any_text_is_a_rule_or_refused_as_one(text: str) -> None:
    try:
        rule = rrule(text)
    except InvalidRule:
        return
    assert decode(rule.encode()) == rule


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("soon", "is not a start"),
        ("\uff12\uff10\uff12\uff16-01-05T09:00", "is not a start"),
        ("2026-01-05T09:00:60", "is not a start"),
        (5, "give a datetime"),
        (datetime(2026, 1, 5, 9, 0, 0, 1), "microsecond=0"),
    ],
)
def test_a_bad_start_is_refused(start: str, problem: str) -> None:
    with pytest.raises(InvalidRule, match=problem):
        rrule("FREQ=DAILY", start=start)


def test_contradictions_are_refused() -> None:
    text = "DTSTART;TZID=Europe/Paris:20260105T090000\nRRULE:FREQ=DAILY"
    with pytest.raises(InvalidRule, match="given twice, as DTSTART and as start="):
        rrule(text, start="2026-01-05T09:00")
    with pytest.raises(InvalidRule, match="differ; give one"):
        rrule(text, tz="Asia/Tokyo")
    with pytest.raises(InvalidRule, match="did you mean"):
        rrule("FREQ=DAILY;BYHOUR=9", tz="Europe/Pari")
    with pytest.raises(InvalidRule, match="rrule\\(\\) reads them"):
        Recurrence(text)


@pytest.mark.parametrize("name", ["BYHOUR=9", "BYMINUTE=30", "BYSECOND=0"])
@pytest.mark.parametrize("start", ["DTSTART;VALUE=DATE:20260105", "DTSTART:20260105"])
def test_a_start_that_is_a_date_has_no_time_of_day(start: str, name: str) -> None:
    with pytest.raises(
        InvalidRule, match=f"{name.split('=')[0]} cannot be combined with a DTSTART that is a date"
    ) as refused:
        rrule(f"{start}\nRRULE:FREQ=DAILY;{name}")
    assert "DTSTART:20260105T090000" in str(refused.value)


# ------------------------------------------------------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "every 2 weeks on Monday and Friday at 09:00 UTC, from 2026-01-05"),
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU;BYSETPOS=-1,1",
            "every 2 weeks on Tuesday and Sunday at 09:00 UTC, only the 1st and last of each week, "
            "weeks starting on Sunday, from 2026-01-05",
        ),
        ("FREQ=DAILY", "every day at 09:00 UTC, from 2026-01-05"),
        ("FREQ=DAILY;BYHOUR=8,9", "every day at 08:00 and 09:00 UTC, from 2026-01-05 09:00"),
        ("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR", "on Monday to Friday at 09:00 UTC, from 2026-01-05"),
        ("FREQ=DAILY;BYMONTH=1", "every day in January at 09:00 UTC, from 2026-01-05"),
        ("FREQ=DAILY;BYDAY=MO;BYMONTH=1", "on Monday in January at 09:00 UTC, from 2026-01-05"),
        ("FREQ=DAILY;BYMONTHDAY=3;BYMONTH=2", "on day 3 of February at 09:00 UTC, from 2026-01-05"),
        (
            "FREQ=DAILY;INTERVAL=3;BYDAY=MO;BYMONTH=1",
            "every 3 days at 09:00 UTC, but only on Monday in January, from 2026-01-05",
        ),
        ("FREQ=MONTHLY", "every month on day 5 at 09:00 UTC, from 2026-01-05"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,-1", "every month on day 1 and the last day at 09:00 UTC, from 2026-01-05"),
        ("FREQ=MONTHLY;BYDAY=-1FR;BYMONTH=3", "every month on the last Friday in March at 09:00 UTC, from 2026-01-05"),
        ("FREQ=MONTHLY;BYDAY=MO,-2FR", "every month on Monday and the 2nd last Friday at 09:00 UTC, from 2026-01-05"),
        (
            "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
            "every month on day 13, only when it falls on Friday at 09:00 UTC, from 2026-01-05",
        ),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "every month on Monday to Friday at 09:00 UTC, only the last of each month, from 2026-01-05",
        ),
        ("FREQ=YEARLY", "every year on day 5 of January at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYMONTHDAY=1", "every year on day 1 of every month at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYDAY=20MO", "every year on the 20th Monday of the year at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=2SU", "every year on the 2nd Sunday of March at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "every year on Thursday in March at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYYEARDAY=100", "every year on day 100 of the year at 09:00 UTC, from 2026-01-05"),
        ("FREQ=YEARLY;BYWEEKNO=20", "every year on Monday in week 20 of the year at 09:00 UTC, from 2026-01-05"),
        ("FREQ=HOURLY;INTERVAL=2", "every 2 hours at minute 0, UTC, from 2026-01-05 09:00"),
        (
            "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11;BYDAY=MO",
            "every 20 minutes, only in hours 9 to 11, only on Monday, UTC, from 2026-01-05 09:00",
        ),
        ("FREQ=SECONDLY;BYSECOND=0,30", "every second, only in seconds 0 and 30, UTC, from 2026-01-05 09:00"),
        (
            "FREQ=DAILY;BYHOUR=1,5,9;BYMINUTE=5,25,45",
            "every day at minutes 5, 25 and 45 of hours 1, 5 and 9 UTC, from 2026-01-05 09:00",
        ),
        (
            "FREQ=DAILY;BYHOUR=1,5;BYMINUTE=5,25;BYSECOND=0,30",
            "every day at seconds 0 and 30 of minutes 5 and 25 of hours 1 and 5 UTC, from 2026-01-05 09:00",
        ),
        ("FREQ=DAILY;COUNT=1", "once, on 2026-01-05 at 09:00 UTC"),
        ("FREQ=WEEKLY;BYDAY=TU;COUNT=1", "once, on 2026-01-06 at 09:00 UTC"),
        (
            "FREQ=DAILY;COUNT=1\nRDATE:20260107T120000",
            "every day at 09:00 UTC, from 2026-01-05, 1 time, also on 2026-01-07 12:00",
        ),
        ("FREQ=DAILY;COUNT=9", "every day at 09:00 UTC, from 2026-01-05, 9 times"),
        ("FREQ=DAILY;UNTIL=20260201", "every day at 09:00 UTC, from 2026-01-05, until 2026-02-01"),
        ("FREQ=DAILY;UNTIL=20260201T090000Z", "every day at 09:00 UTC, from 2026-01-05, until 2026-02-01 09:00 UTC"),
        (
            "FREQ=DAILY\nEXDATE:20260106T090000\nRDATE:20260107T120000",
            "every day at 09:00 UTC, from 2026-01-05, also on 2026-01-07 12:00, except on 2026-01-06 09:00",
        ),
        (
            "FREQ=DAILY\nEXDATE:20260106,20260107,20260108,20260109",
            "every day at 09:00 UTC, from 2026-01-05, except on 4 dates",
        ),
    ],
)
def test_a_rule_is_told_in_plain_words(text: str, words: str) -> None:
    assert rrule(text, start="2026-01-05T09:00").explain() == words


def test_a_rule_without_a_start_does_not_speak_of_one() -> None:
    assert rrule("FREQ=WEEKLY;BYDAY=MO;BYHOUR=9", tz=NEW_YORK).explain() == f"every week on Monday at 09:00 {NEW_YORK}"
