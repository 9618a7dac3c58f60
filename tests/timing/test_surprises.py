"""What a change of the clocks does to a rule: told when it is touched, and only then."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import SECOND, instant
from foliot.domain.rule import Rule
from foliot.timing import Cron, cron, every, parse, rrule
from foliot.timing.dst import Fold, Gap, IntervalLike
from foliot.timing.surprises import dst_surprises, wall_rules
from foliot.timing.zones import zone

NEW_YORK = "America/New_York"


def told(rule: Rule, year: int = 2026) -> list[str]:
    first, last = (instant(datetime(when, 1, 1, tzinfo=UTC)) for when in (year, year + 1))
    return [surprise.text for surprise in dst_surprises(rule, first, last)]


@pytest.mark.parametrize(
    ("expression", "gap", "text"),
    [
        ("30 2 * * *", "run_after", "there is no 02:30 in America/New_York; the rule fires at 03:00"),
        ("30 2 * * *", "skip", "there is no 02:30 in America/New_York; it is skipped"),
        ("30 2 * * *", "shift_forward", "there is no 02:30 in America/New_York; the rule fires at 03:30"),
        ("30 2 * * *", "shift_backward", "there is no 02:30 in America/New_York; the rule fires at 01:30"),
        ("0,30 2 * * *", "run_after", "there is no 02:00 or 02:30 in America/New_York; the rule fires once, at 03:00"),
        ("0,30 2 * * *", "skip", "there is no 02:00 or 02:30 in America/New_York; they are skipped"),
        ("0,30 2 * * *", "shift_forward", "there is no 02:00 or 02:30 in America/New_York; "
         "the rule fires at 03:00 and 03:30"),
        ("0 2,3 * * *", "run_after", "there is no 02:00 in America/New_York; the run at 03:00 replaces it"),
        ("0-59 2 * * *", "run_after", "the 60 times from 02:00 to 02:59 do not exist in America/New_York; "
         "the rule fires once, at 03:00"),
        ("0-59 2 * * *", "shift_forward", "the 60 times from 02:00 to 02:59 do not exist in America/New_York; "
         "the rule fires from 03:00 to 03:59"),
    ],
)  # fmt: skip
def test_a_gap_is_told_with_what_the_policy_makes_of_it(expression: str, gap: str, text: str) -> None:
    assert told(cron(expression, tz=NEW_YORK, gap=gap)) == [f"on 8 March 2026 {text}"]


@pytest.mark.parametrize(
    ("expression", "fold", "text"),
    [
        ("30 1 * * *", "first", "01:30 occurs twice in America/New_York; "
         "the rule fires the first time, at 01:30-04:00"),
        ("30 1 * * *", "second", "01:30 occurs twice in America/New_York; "
         "the rule fires the second time, at 01:30-05:00"),
        ("30 1 * * *", "both", "01:30 occurs twice in America/New_York; "
         "the rule fires both times, at 01:30-04:00 and 01:30-05:00"),
        ("0,30 1 * * *", "first", "01:00 and 01:30 occur twice in America/New_York; "
         "the rule fires the first time, from 01:00-04:00 on"),
        ("0-59 1 * * *", "both", "the 60 times from 01:00 to 01:59 occur twice in America/New_York; "
                                 "the rule fires both times"),
    ],
)  # fmt: skip
def test_a_fold_is_told_with_what_the_policy_makes_of_it(expression: str, fold: str, text: str) -> None:
    assert told(cron(expression, tz=NEW_YORK, fold=fold)) == [f"on 1 November 2026 {text}"]


def test_a_rule_that_means_elapsed_time_comes_less_or_more_often() -> None:
    assert told(cron("*/15 * * * *", tz=NEW_YORK)) == [
        "on 8 March 2026 the hour from 02:00 is missing in America/New_York, "
        "so the rule fires 92 times instead of 96 that day",
        "on 1 November 2026 the hour from 01:00 occurs twice in America/New_York, "
        "so the rule fires 100 times instead of 96 that day",
    ]  # fmt: skip
    assert told(cron("*/15 2 * * *", tz=NEW_YORK))[0].endswith(
        "is missing in America/New_York, so the rule does not fire that day"
    )
    assert told(cron("*/50 1,2,3 8 3 *", tz=NEW_YORK))[0].endswith("so the rule fires 4 times instead of 6 that day")
    assert told(cron("*/30 2,3 8 3 *", tz=NEW_YORK, gap="skip", fold="both"))[0].endswith("; they are skipped")
    assert told(cron("*/60 1 1 11 *", tz=NEW_YORK))[0].endswith("so the rule fires 2 times instead of once that day")
    assert told(cron("*/60 2,3 8 3 *", tz=NEW_YORK))[0].endswith("so the rule fires once instead of 2 times that day")


def test_a_rule_of_every_second_is_told_without_its_total() -> None:
    assert told(cron("* * * * * *", tz=NEW_YORK, seconds=True))[0].endswith(
        "so the rule fires 3,600 times less that day"
    )


def test_zones_with_other_changes_are_told_as_they_are() -> None:
    assert told(cron("15 2 * * *", tz="Australia/Lord_Howe")) == [
        "on 4 October 2026 there is no 02:15 in Australia/Lord_Howe; the rule fires at 02:30"
    ]
    assert "the 30 minutes from 02:00 are missing" in told(cron("*/15 * * * *", tz="Australia/Lord_Howe"))[1]
    assert told(cron("0 12 * * *", tz="Pacific/Apia"), 2011) == [
        "on 30 December 2011 there is no 12:00 in Pacific/Apia; it is skipped"
    ]
    assert told(cron("0 0 * * *", tz="Africa/Cairo", gap="shift_backward")) == [
        "on 24 April 2026 there is no 00:00 in Africa/Cairo; the rule fires at 23:00 on 23 April 2026"
    ]


@pytest.mark.parametrize(
    "rule",
    [
        cron("0 12 * * *", tz=NEW_YORK),
        cron("30 2 * * 1-5", tz=NEW_YORK),
        cron("*/15 * * * 1-5", tz=NEW_YORK),
        cron("*/15 * * * *"),
        cron("30 2 * * *", tz="Asia/Tokyo"),
        every("15m"),
    ],
)
def test_a_rule_that_is_not_touched_has_no_surprises(rule: Rule) -> None:
    assert told(rule) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('cron("30 2 * * *", tz="America/New_York") | cron("30 2 * * *", tz="Europe/Paris")', 3),
        ('cron("30 2 * * *", tz="America/New_York") | every("1h")', 1),
        ('cron("30 2 * * *", tz="America/New_York").between(end="2026-03-01T00:00:00Z")', 0),
        ('cron("30 2 * * *", tz="America/New_York") - cron("0 3 * * 0", tz="America/New_York")', 0),
        ('cron("30 2 * * *", tz="America/New_York") - cron("0 4 * * 0", tz="America/New_York")', 1),
        ('every("1h") - cron("30 2 * * *", tz="America/New_York")', 0),
        ('every("7m") - cron("*/15 * * * *", tz="America/New_York")', 0),
        ('only_on(cron("30 2 * * *", tz="America/New_York", gap="skip"), workdays("US"))', 0),
        ('only_on(cron("*/15 * * * *", tz="America/New_York"), workdays("US"))', 0),
        ('cron("*/15 * * * *", tz="Europe/Paris").outside(cron("0 12 * * *", tz="Europe/Paris"), "1h")', 2),
        ('cron("*/15 * * * *", tz="Europe/Paris").outside(cron("0 22 * * *", tz="Europe/Paris"), "8h")', 0),
        ('business_days(at="02:30", tz="America/New_York")', 0),
        ('business_days(at="02:30", tz="America/New_York", weekend=["mon"])', 1),
        ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", 0),
        ('rrule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", tz="America/New_York")', 1),
    ],
)
def test_rules_that_are_made_of_others_are_looked_into(text: str, expected: int) -> None:
    assert len(told(parse(text))) == expected


def test_the_wall_rules_in_a_rule_are_found() -> None:
    one, other = cron("0 2 * * *"), cron("0 3 * * *")
    assert wall_rules((one | every("1h")) - other) == [one, other]
    assert wall_rules(every("1h")) == []


zones = some.sampled_from(
    [NEW_YORK, "Europe/Paris", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Gaza"]
)
expressions = some.builds(
    "{} {} * * *".format,
    some.sampled_from(["0", "30", "0,30", "*/15", "59", "0-59/7"]),
    some.sampled_from(["*", "0", "1", "2", "3", "23", "0-3", "*/2", "22-23"]),
)


@given(
    expressions,
    zones,
    some.sampled_from(Gap),
    some.sampled_from(Fold),
    some.sampled_from(IntervalLike),
    some.integers(2010, 2030),
)
def test_what_each_wall_time_gets_is_what_the_rule_does(
    expression: str, tz: str, gap: str, fold: str, interval_like: str, year: int
) -> None:
    rule = cron(expression, tz=tz, gap=gap, fold=fold, interval_like=interval_like)
    assert isinstance(rule, Cron)
    first, last = (instant(datetime(when, 1, 1, tzinfo=UTC)) // SECOND for when in (year, year + 1))
    for at, before, after in zone(tz).changes(first, last):
        low, high = at - 20_000, at + 20_000
        walls = rule.asked(low + min(before, after) - 10_000, high + max(before, after) + 10_000)
        given_ = sorted({tick for wall in walls for tick in rule.instants(wall) if low <= tick < high})
        assert given_ == ticks(rule, low, high)
        touched = list(rule.asked(at + min(before, after), at + max(before, after)))
        assert bool(touched) == bool(dst_surprises(rule, at * SECOND, at * SECOND))


def ticks(rule: Rule, low: int, high: int) -> list[int]:
    found = []
    tick = rule.next(low * SECOND - 1)
    while tick is not None and tick < high * SECOND:
        found.append(tick // SECOND)
        tick = rule.next(tick)
    return found


@pytest.mark.parametrize(
    ("text", "moves"),
    [("FREQ=MINUTELY;INTERVAL=90", True), ("FREQ=HOURLY;INTERVAL=24", True), ("FREQ=MINUTELY;INTERVAL=20", False)],
)
def test_a_rule_of_elapsed_time_says_that_its_times_on_the_clock_move(text: str, moves: bool) -> None:
    rule = rrule(text, start="2026-01-05T09:00", tz=NEW_YORK)
    found = told(rule)
    assert (
        found
        == [
            "on 8 March 2026 the clocks of America/New_York are set forward 1 hour; the rule counts elapsed time, "
            "so its local times are 1 hour later from then on",
            "on 1 November 2026 the clocks of America/New_York are set back 1 hour; the rule counts elapsed time, "
            "so its local times are 1 hour earlier from then on",
        ]
    ) is moves
    assert len(found) == 2
    assert told(rule, 2025) == []
