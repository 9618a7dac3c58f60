"""Every refused text of a rule shows the character that is to blame. `^` stands before it here."""

from __future__ import annotations

import pytest

from foliot.errors import InvalidRule
from foliot.timing import parse

REFUSED = [
    # durations and instants
    ("^7s", "write every 7s"),
    ("^-5m", "is a negative duration, and not a rule"),
    ("^2026-04-03T02:00:00Z", "write at 2026-04-03T02:00:00Z"),
    ("every^", "is not a duration"),
    ("every ^fifteen", "is not a duration"),
    ("every ^-5m", "'-5m' is negative"),
    ("every ^7", "is not a duration"),
    ("every ^50ms", "too short"),
    ("every ^200000d", "too long"),
    ("@every ^5x", "is not a duration"),
    ("after ^soon", "is not a duration"),
    ("after ^0s", "too short"),
    ("at ^noon", "is not a date and time"),
    ("at ^2026-04-03T02:00:00", "write 2026-04-03T02:00:00Z"),
    # RRULE
    ("^FREQ=OFTEN", "is not known"),
    ("freq=daily;byhour=9,^24", "'24' in BYHOUR is invalid"),
    ("FREQ=DAILY;^BYHOURS=9", "did you mean BYHOUR?"),
    ("^FREQ=DAILY", "takes its time of day from its start"),
    ("FREQ=WEEKLY;BYHOUR=9;BYDAY=MO,^XX", "'XX' in BYDAY"),
    ("FREQ=DAILY;^COUNT=0", "COUNT=0 is invalid"),
    ("FREQ=DAILY;^COUNT=10001", "too large"),
    ("FREQ=DAILY;UNTIL=^2026-01-01", "is not a date"),
    ("FREQ=DAILY;COUNT=2;^UNTIL=20270101", "both set the end of the rule"),
    ("FREQ=DAILY;^BYHOUR=9;BYHOUR=8", "given twice"),
    ("FREQ=DAILY;^BYHOUR=", "has no value"),
    ("FREQ=WEEKLY;^BYMONTHDAY=1;BYHOUR=9", "cannot be combined with FREQ=WEEKLY"),
    ("FREQ=MONTHLY;^BYDAY=6FR;BYHOUR=9", "at most five"),
    ("FREQ=DAILY;^BYSETPOS=1", "none is given"),
    ("FREQ=DAILY;^WKST=1", "WKST=1 is unknown"),
    ("^FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2;BYHOUR=9", "can never fire"),
    ("^DTSTART:20260101T090000", "has no rule"),
    ("DTSTART:^20260199T090000\nFREQ=DAILY", "in DTSTART is not a date"),
    ("DTSTART:20260105T090000\nFREQ=DAILY\nEXDATE:20260106,^x", "in EXDATE is not a date"),
    ("DTSTART;^TZID=Mars/Base:20260105T090000\nFREQ=DAILY", "there is no time zone"),
    ("DTSTART:20260105T090000\nFREQ=DAILY\n^EXRULE:FREQ=WEEKLY", "EXRULE is not supported"),
    ("DTSTART:20260105T090000\nFREQ=DAILY\nRDATE;^VALUE=PERIOD:20260101T000000Z/PT1H", "is not supported"),
    # calls
    ('cron("0 9 * * *", tz=^"Mars/Base")', "there is no time zone"),
    ('cron("0 9 * * *", gap=^"never")', "gap='never' is unknown"),
    ("^cron(5)", "is not a cron expression"),
    ('cron("0 9 * * *", seconds=^True, year=True)', "seven fields"),
    ('every(^"5x")', "is not a duration"),
    ('every("15m", start=^"soon")', "is not a date and time"),
    ('business_day(1, country=^"XX")', "there is no country"),
    ('business_day(^0, country="US")', "not a day number"),
    ('business_day(1, country="US", weekend=^["fry"])', "is not a weekday"),
    ('nearest_business_day(5, roll=^"up")', "roll='up' is unknown"),
    ('nth_weekday(2, ^"tues day")', "is not a weekday"),
    ('month_end(at=^"noon")', "is not a time of day"),
    ('cron("0 9 * * *") | ^after("5m")', "a fixed delay cannot be combined"),
    ('cron("0 9 * * *") - ^cron("0 9 * * *")', "exclude all nearby ticks"),
    ('cron("0 9 * * *").between(^"soon")', "is not a date and time"),
    ('cron("0 9 * * *").outside(cron("0 0 * * *"), ^"x")', "is not a duration"),
    # stored rules
    ('^{"cron":"0 9 * * *"}', "is not a stored rule"),
]


@pytest.mark.parametrize(("marked", "problem"), REFUSED)
def test_a_refused_text_shows_the_character_that_is_to_blame(marked: str, problem: str) -> None:
    text = marked.replace("^", "", 1)
    with pytest.raises(InvalidRule) as refused:
        parse(text)
    said, shown, caret = str(refused.value).splitlines()
    assert problem in said + caret
    assert shown == "    " + text.replace("\n", " ")
    assert caret.index("^") == 4 + marked.index("^")


@pytest.mark.parametrize(
    ("given", "problem"), [({"tz": "Mars/Base"}, "no time zone"), ({"gap": "never"}, "gap='never'")]
)
@pytest.mark.parametrize("text", ["0 9 * * *", "FREQ=DAILY;BYHOUR=9"])
def test_no_character_is_to_blame_for_what_stands_beside_the_text(
    text: str, given: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidRule, match=problem) as refused:
        parse(text, **given)  # type: ignore[arg-type]
    assert "^" not in str(refused.value)
