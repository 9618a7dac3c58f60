"""Rules about business days: known dates, moved dates, words, stored forms and refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from foliot.domain.instant import SECOND, Instant, instant, to_datetime
from foliot.errors import InvalidRule
from foliot.timing import (
    Composable,
    business_day,
    business_days,
    cron,
    decode,
    every,
    last_weekday,
    month_end,
    nearest_business_day,
    nth_weekday,
    only_on,
    parse,
    upcoming,
    workdays,
)
from foliot.timing.business import Roll

NEW_YORK = "America/New_York"


def moment(text: str, tz: str = "UTC") -> Instant:
    return instant(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)))


def ticks(rule: Composable, start: str, count: int) -> list[str]:
    """The next ticks after a wall time, as wall times of the rule's zone."""
    found = upcoming(rule, moment(start, rule.tz) - 1, count)
    return [to_datetime(tick).astimezone(ZoneInfo(rule.tz)).strftime("%Y-%m-%d %H:%M") for tick in found]


def days(rule: Composable, start: str, count: int) -> list[str]:
    return [tick[:10] for tick in ticks(rule, start, count)]


# ------------------------------------------------------------------------------------------------- the n-th of a period


def test_the_first_business_day_of_2027_is_a_monday_in_the_united_states() -> None:
    rule = business_day(1, country="US", at="06:00", tz=NEW_YORK)
    assert ticks(rule, "2026-12-31", 2) == ["2027-01-04 06:00", "2027-02-01 06:00"]
    assert rule.next(moment("2026-12-31")) == moment("2027-01-04T06:00", NEW_YORK)


def test_the_last_business_day_is_counted_from_the_end() -> None:
    assert days(business_day(-1, country="GB", subdivision="ENG"), "2026-04-01", 5) == [
        "2026-04-30",
        "2026-05-29",
        "2026-06-30",
        "2026-07-31",
        "2026-08-28",  # the 31st is the summer bank holiday
    ]
    assert business_day("last") == business_day(-1)
    assert business_day("first") == business_day(1)


def test_quarters_years_and_weeks_are_counted_too() -> None:
    assert days(business_day(-1, of="quarter", market="XNYS"), "2026-01-01", 4) == [
        "2026-03-31",
        "2026-06-30",
        "2026-09-30",
        "2026-12-31",
    ]
    assert days(business_day(2, of="year", country="DE"), "2026-01-01", 2) == ["2026-01-05", "2027-01-05"]
    assert days(business_day(1, of="week", country="US"), "2026-09-01", 3) == ["2026-09-08", "2026-09-14", "2026-09-21"]


def test_a_week_is_counted_from_the_day_behind_the_weekend() -> None:
    assert days(business_day(1, of="week", country="SA"), "2026-11-02", 2) == ["2026-11-08", "2026-11-15"]
    assert days(business_day(-1, of="week", country="SA"), "2026-11-02", 2) == ["2026-11-05", "2026-11-12"]


def test_a_week_may_belong_to_two_years() -> None:
    assert days(business_day(-1, of="week", country="US"), "2026-12-28", 2) == ["2026-12-31", "2027-01-08"]


def test_a_month_with_fewer_business_days_has_no_tick() -> None:
    assert days(business_day(23), "2026-01-01", 4) == ["2026-07-31", "2026-12-31", "2027-03-31", "2027-12-31"]


def test_some_months_can_be_chosen() -> None:
    rule = business_day(1, months=["jul", "January"], country="US")
    assert rule == business_day(1, months=(7, 1, 1), country="US")
    assert days(rule, "2026-01-01", 4) == ["2026-01-02", "2026-07-01", "2027-01-04", "2027-07-01"]


def test_several_times_of_a_day_are_several_ticks() -> None:
    rule = business_day(1, at=["18:30", "06:00", "18:30"], country="FR", tz="Europe/Paris")
    assert ticks(rule, "2026-05-01", 3) == ["2026-05-04 06:00", "2026-05-04 18:30", "2026-06-01 06:00"]
    assert ticks(rule, "2026-05-04T06:00", 2) == ["2026-05-04 06:00", "2026-05-04 18:30"]


def test_each_business_day_of_an_exchange() -> None:
    rule = business_days(market="XNYS", at=["09:30", "16:00"], tz=NEW_YORK)
    assert ticks(rule, "2026-04-02T12:00", 3) == ["2026-04-02 16:00", "2026-04-06 09:30", "2026-04-06 16:00"]
    assert rule.previous(moment("2026-04-05")) == moment("2026-04-02T16:00", NEW_YORK)


def test_a_saturday_that_china_moved_work_to_is_a_business_day() -> None:
    rule = business_days(country="CN", at="09:00", tz="Asia/Shanghai")
    assert days(rule, "2026-02-13", 4) == ["2026-02-13", "2026-02-14", "2026-02-24", "2026-02-25"]


# --------------------------------------------------------------------------------------------------------- moved dates


def test_a_date_moves_to_a_business_day() -> None:
    # 15 August 2026 is a Saturday, 15 November 2026 a Sunday.
    rolls: tuple[Roll, ...] = ("before", "after", "nearest")
    moved = {roll: days(nearest_business_day(15, roll=roll), "2026-08-01", 4) for roll in rolls}
    assert moved["before"] == ["2026-08-14", "2026-09-15", "2026-10-15", "2026-11-13"]
    assert moved["after"] == ["2026-08-17", "2026-09-15", "2026-10-15", "2026-11-16"]
    assert moved["nearest"] == ["2026-08-14", "2026-09-15", "2026-10-15", "2026-11-16"]


def test_of_two_equally_near_business_days_the_earlier_is_taken() -> None:
    assert days(nearest_business_day(16, closed=["2026-09-16"]), "2026-09-01", 1) == ["2026-09-15"]


def test_a_moved_date_may_leave_its_month() -> None:
    assert days(nearest_business_day(1, roll="before", country="US"), "2026-12-02", 2) == ["2026-12-31", "2027-02-01"]
    assert days(nearest_business_day("last", roll="after", months=["oct"]), "2026-10-01", 1) == ["2026-11-02"]
    # The months are those of the date, not of the day that it moves to.
    assert days(nearest_business_day(1, roll="before", months=[11]), "2026-10-01", 1) == ["2026-10-30"]


def test_a_month_that_is_too_short_has_the_date_on_its_last_day() -> None:
    assert days(nearest_business_day(30, roll="before"), "2027-01-01", 3) == ["2027-01-29", "2027-02-26", "2027-03-30"]
    assert nearest_business_day("last") == nearest_business_day(-1) == nearest_business_day(31)


def test_dates_that_move_to_the_same_day_are_one_tick() -> None:
    closed = [date(2026, 6, 10) + timedelta(day) for day in range(50)]
    rule = nearest_business_day(15, roll="after", closed=closed)
    assert days(rule, "2026-05-01", 4) == ["2026-05-15", "2026-07-30", "2026-08-17", "2026-09-15"]
    assert days(nearest_business_day(15, roll="before", closed=closed), "2026-05-16", 2) == ["2026-06-09", "2026-08-14"]


# ------------------------------------------------------------------------------------------------------ gaps and folds


def test_a_time_that_does_not_exist_follows_the_policy() -> None:
    every_day: dict[str, Any] = {"weekend": (), "at": "02:30", "tz": NEW_YORK}
    assert ticks(business_days(**every_day), "2026-03-08", 2) == ["2026-03-08 03:00", "2026-03-09 02:30"]
    assert ticks(business_days(**every_day, gap="skip"), "2026-03-08", 1) == ["2026-03-09 02:30"]
    assert ticks(business_days(**every_day, gap="shift_forward"), "2026-03-08", 1) == ["2026-03-08 03:30"]
    assert ticks(business_days(**every_day, preset="systemd", gap="skip"), "2026-03-08", 1) == ["2026-03-09 02:30"]


def test_a_time_that_comes_twice_follows_the_policy() -> None:
    twice = business_day(1, weekend=(), months=[11], at="01:30", tz=NEW_YORK, fold="both")
    assert upcoming(twice, moment("2026-11-01"), 2) == [moment("2026-11-01T05:30"), moment("2026-11-01T06:30")]
    late = business_day(1, weekend=(), months=[11], at="01:30", tz=NEW_YORK, fold="second")
    assert [late.wall(tick) for tick in upcoming(late, moment("2026-11-01"), 1)] == ["2026-11-01T01:30:00/2"]


# ----------------------------------------------------------------------------------------------- any rule, kept to them


def test_a_rule_can_be_kept_to_business_days() -> None:
    rule = only_on(cron("0 9 * * *", tz=NEW_YORK), workdays("US"))
    assert ticks(rule, "2026-11-25", 3) == ["2026-11-25 09:00", "2026-11-27 09:00", "2026-11-30 09:00"]
    assert rule.previous(moment("2026-11-27")) == moment("2026-11-25T09:00", NEW_YORK)
    assert rule.wall(moment("2026-11-25T09:00", NEW_YORK)) == "2026-11-25T09:00:00"


def test_the_date_is_read_in_the_zone_that_was_named() -> None:
    rule = only_on(every("1h"), workdays("US"), tz=NEW_YORK)
    assert rule.next(moment("2026-11-14T12:00")) == moment("2026-11-16T05:00")
    assert rule.previous(moment("2026-11-14T12:00")) == moment("2026-11-14T04:00")
    assert only_on(every("1h"), workdays("US")).next(moment("2026-11-14T12:00")) == moment("2026-11-16T00:00")


def test_closed_days_are_leapt_over_however_many_ticks_they_have() -> None:
    rule = only_on(every("100ms"), workdays("US"), tz="Europe/Paris")
    assert rule.next(moment("2026-12-24T23:00") - 1) == moment("2026-12-27T23:00")
    assert rule.previous(moment("2026-12-27T23:00")) == moment("2026-12-24T23:00") - SECOND // 10


def test_a_country_s_days_and_a_market_s_can_both_be_asked_for() -> None:
    both = only_on(business_days(market="XNYS"), workdays("GB", subdivision="ENG"))
    assert days(both, "2026-08-28", 2) == ["2026-08-28", "2026-09-01"]
    assert days(both, "2026-09-04", 2) == ["2026-09-04", "2026-09-08"]


def test_where_clocks_are_set_back_over_midnight_every_tick_is_judged_by_its_own_date() -> None:
    # St John's, 7 November 2010: at 00:01 on Sunday it is 23:01 on Saturday again.
    rule = only_on(every("1m"), workdays(weekend=["sat"]), tz="America/St_Johns")
    midnight = moment("2010-11-07T02:30")
    assert upcoming(rule, midnight - 1, 2) == [midnight, midnight + 3600 * SECOND]
    assert rule.previous(midnight + 3600 * SECOND) == midnight
    other = only_on(every("1m"), workdays(weekend=["sun"]), tz="America/St_Johns")
    assert other.next(midnight - 1) == midnight + 60 * SECOND
    assert other.previous(midnight + 60 * SECOND) == midnight - 60 * SECOND


def test_a_monday_begins_when_it_begins_although_the_clocks_changed_on_sunday() -> None:
    rule = only_on(every("1m"), workdays(), tz=NEW_YORK)
    assert rule.next(moment("2026-03-07T12:00", NEW_YORK)) == moment("2026-03-09T04:00")
    assert rule.next(moment("2026-10-31T12:00", NEW_YORK)) == moment("2026-11-02T05:00")
    assert rule.previous(moment("2026-03-08T23:59", NEW_YORK)) == moment("2026-03-07T04:59")
    assert rule.previous(moment("2026-11-01T23:59", NEW_YORK)) == moment("2026-10-31T03:59")


# ----------------------------------------------------------------------------------------------- what cron can say too


def test_month_ends_and_weekdays_are_written_as_cron() -> None:
    assert month_end(at="06:00", tz="Europe/Paris") == cron("0 6 L * *", tz="Europe/Paris")
    assert nth_weekday(2, "tue", at="06:00", tz="Europe/Paris") == cron("0 6 * * 2#2", tz="Europe/Paris")
    assert nth_weekday("first", "Sunday", months=["jan", 7]) == cron("0 0 * 1,7 0#1")
    assert last_weekday("fri", at="18:05:30") == cron("30 5 18 * * 5L", seconds=True)
    assert nth_weekday(-1, "fri") == nth_weekday("last", "fri") == last_weekday("fri")
    assert days(nth_weekday(2, "tue"), "2026-11-01", 2) == ["2026-11-10", "2026-12-08"]
    assert days(last_weekday("fri"), "2026-11-01", 2) == ["2026-11-27", "2026-12-25"]
    assert days(month_end(), "2028-02-01", 2) == ["2028-02-29", "2028-03-31"]


# -------------------------------------------------------------------------------------------------------------- as text

RULES: list[tuple[Composable, str]] = [
    (
        business_day(1, country="US", at="06:00", tz=NEW_YORK),
        "the 1st business day of the month (US holidays) at 06:00 America/New_York",
    ),
    (
        business_day(-2, of="quarter", market="XECB", at=["06:00", "18:00:30"]),
        "the 2nd to last business day of the quarter (XECB holidays) at 06:00 and 18:00:30 UTC",
    ),
    (
        business_day("last", months=["jan", "jul", "dec"], weekend="fri sat", closed=["2026-12-24"]),
        "the last business day of January, July and December (no holidays, weekend fri sat, 1 day closed) at 00:00 UTC",
    ),
    (business_day(22, gap="skip", fold="both"), "the 22nd business day of the month (no holidays) at 00:00 UTC"),
    (
        business_days(country="GB", subdivision="SCT", opened=["2026-12-25"], tz="Europe/London"),
        "each business day (GB-SCT holidays, 1 day opened) at 00:00 Europe/London",
    ),
    (
        nearest_business_day(15, roll="before", country="FR", at="06:00", tz="Europe/Paris"),
        "day 15 of the month, or the business day before it (FR holidays), at 06:00 Europe/Paris",
    ),
    (
        nearest_business_day(30, months=[6], preset="quartz"),
        "day 30 (or the last) of June, or the nearest business day (no holidays), at 00:00 UTC",
    ),
    (
        nearest_business_day("last", roll="after", weekend=()),
        "the last day of the month, or the business day after it (no holidays, no weekend), at 00:00 UTC",
    ),
    (
        only_on(cron("0 9 * * *", tz=NEW_YORK), workdays("US")),
        "at 09:00 America/New_York every day, only on business days (US holidays)",
    ),
    (
        only_on(every("15m"), workdays(market="XLON"), tz="Europe/London"),
        "every 15 minutes, only on business days in Europe/London (XLON holidays)",
    ),
]
every_rule = pytest.mark.parametrize(("rule", "words"), RULES)


@every_rule
def test_a_rule_is_told_in_plain_words(rule: Composable, words: str) -> None:
    assert rule.explain() == words


@every_rule
def test_a_rule_comes_back_equal_from_the_store(rule: Composable, words: str) -> None:
    restored = decode(rule.encode())
    assert restored == rule
    assert restored.encode() == rule.encode()
    assert restored.next(0) == rule.next(0)


@every_rule
def test_a_copy_is_an_equal_rule(rule: Composable, words: str) -> None:
    again = copy.deepcopy(rule)
    assert again == rule
    assert again.next(0) == rule.next(0)


def test_the_stored_form_does_not_change() -> None:
    assert business_day(1, country="US", at="06:00", tz=NEW_YORK, gap="skip").encode() == (
        '{"business_day":1,"of":"month","at":["06:00"],"tz":"America/New_York","country":"US","gap":"skip"}'
    )
    assert business_days(market="NYSE", closed=["2026-12-24"]).encode() == (
        '{"business_days":true,"at":["00:00"],"tz":"UTC","market":"XNYS","closed":["2026-12-24"]}'
    )
    assert nearest_business_day(15, months=[1], weekend=()).encode() == (
        '{"nearest_business_day":15,"roll":"nearest","at":["00:00"],"tz":"UTC","weekend":[],"months":[1]}'
    )
    assert only_on(cron("0 9 * * *"), workdays("GB", subdivision="SCT")).encode() == (
        '{"of":{"cron":"0 9 * * *","tz":"UTC"},"only_on":{"country":"GB","subdivision":"SCT"},"tz":"UTC"}'
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"business_day":1,"of":"month"}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","colour":"red"}',
        '{"business_day":true,"of":"month","at":["00:00"],"tz":"UTC"}',
        '{"business_day":"1","of":"month","at":["00:00"],"tz":"UTC"}',
        '{"business_day":1,"of":["month"],"at":["00:00"],"tz":"UTC"}',
        '{"business_day":1,"of":"month","at":null,"tz":"UTC"}',
        '{"business_day":1,"of":"month","at":[null],"tz":"UTC"}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":5}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","country":{}}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","country":"US","subdivision":{}}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","closed":[1]}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","closed":7}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","weekend":[[]]}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","months":[1.5]}',
        '{"business_day":1,"of":"month","at":["00:00"],"tz":"UTC","gap":[]}',
        '{"business_day":1e999,"of":"month","at":["00:00"],"tz":"UTC"}',
        '{"business_days":1,"at":["00:00"],"tz":"UTC"}',
        '{"business_days":true,"of":"month","at":["00:00"],"tz":"UTC"}',
        '{"nearest_business_day":15,"at":["00:00"],"tz":"UTC"}',
        '{"nearest_business_day":15,"roll":{},"at":["00:00"],"tz":"UTC"}',
        '{"nearest_business_day":0,"roll":"after","at":["00:00"],"tz":"UTC"}',
        '{"of":{"cron":"0 9 * * *","tz":"UTC"},"only_on":{"planet":"Mars"},"tz":"UTC"}',
        '{"of":{"cron":"0 9 * * *","tz":"UTC"},"only_on":"US","tz":"UTC"}',
        '{"of":{"after":"10m"},"only_on":{"country":"US"},"tz":"UTC"}',
    ],
)
def test_a_line_that_no_rule_wrote_is_refused(line: str) -> None:
    with pytest.raises(InvalidRule):
        decode(line)


def test_a_rule_can_be_typed() -> None:
    typed = 'business_day(-1, country="FR", at="18:00", tz="Europe/Paris") | only_on(every("1h"), workdays("FR"))'
    assert parse(typed) == business_day(-1, country="FR", at="18:00", tz="Europe/Paris") | only_on(
        every("1h"), workdays("FR")
    )


@pytest.mark.parametrize(
    ("rule", "tables"),
    [
        (business_day(1), set()),
        (business_day(1, country="US"), {"holidays"}),
        (business_day(1, tz=NEW_YORK), {"tzdata"}),
        (business_days(market="XNYS", tz=NEW_YORK), {"holidays", "tzdata"}),
        (only_on(every("1h"), workdays("US")), {"holidays"}),
        (only_on(every("1h"), workdays(), tz=NEW_YORK), {"tzdata"}),
        (only_on(cron("0 9 * * *", tz=NEW_YORK), workdays("US"), tz="UTC"), {"holidays", "tzdata"}),
        (only_on(every("1h"), workdays()) | business_day(1, country="US"), {"holidays"}),
    ],
)
def test_a_rule_says_which_tables_it_depends_on(rule: Composable, tables: set[str]) -> None:
    assert rule.tables == tables


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda: business_day(24),
        lambda: business_day(-24, country="US"),
        lambda: business_day(28, country="HK"),
        lambda: business_day(67, of="quarter"),
        lambda: business_day(261, of="year", country="DE"),
        lambda: business_day(6, of="week"),
        lambda: business_day(22, months=["feb"]),
        lambda: business_day(25, country="TW"),  # before 2001 people worked on Saturdays
        lambda: only_on(cron("0 0 * * 0"), workdays()),
        lambda: only_on(cron("0 0 25 12 *"), workdays("DE")),
    ],
)
def test_a_rule_that_can_never_fire_is_refused(make: Callable[[], Composable]) -> None:
    with pytest.raises(InvalidRule, match="never fire"):
        make()


def test_what_can_just_happen_is_accepted() -> None:
    assert business_day(23).next(0) is not None
    assert business_day(66, of="quarter").next(0) is not None
    assert business_day(262, of="year").next(0) is not None
    assert business_day(31, weekend=()).next(0) is not None
    only_once = business_day(24, opened=["2026-07-04"])
    assert only_once.next(0) == moment("2026-07-31")
    assert only_once.next(moment("2026-07-31")) is None


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: business_day(0), "1 to 31"),
        (lambda: business_day(True), "1 to 31"),
        (lambda: business_day(1.5), "1 to 31"),  # type: ignore[arg-type]
        (lambda: business_day("second"), "first or last"),
        (lambda: business_day(32), "1 to 31"),
        (lambda: business_day(-8, of="week"), "1 to 7"),
        (lambda: business_day(1, of="decade"), "week, month, quarter, year"),  # type: ignore[arg-type]
        (lambda: business_day(1, of="year", months=[1]), "months= requires of='month'"),
        (lambda: business_day(1, months=[]), "leave it out"),
        (lambda: business_day(1, months="jan"), r"write \[1, 7\]"),
        (lambda: business_day(1, months=[13]), "1 to 12"),
        (lambda: business_day(1, months=[True]), "1 to 12"),
        (lambda: business_day(1, months=["ja"]), "1 to 12"),
        (lambda: business_day(1, at="24:00"), 'up to "23:59:59"'),
        (lambda: business_day(1, at="12:60"), 'up to "23:59:59"'),
        (lambda: business_day(1, at="23:59:60"), 'up to "23:59:59"'),
        (lambda: business_day(1, at="6am"), '"06:00"'),
        (lambda: business_day(1, at="١٢:00"), '"06:00"'),
        (lambda: business_day(1, at=[]), '"06:00"'),
        (lambda: business_day(1, at=6), '"06:00"'),  # type: ignore[arg-type]
        (lambda: business_day(1, at=["06:00"] * 101), "up to 100"),
        (lambda: business_day(1, tz="Europe/Pari"), "Europe/Paris"),
        (lambda: business_day(1, country="Frence"), "'FR'"),
        (lambda: business_day(1, gap="jump"), "run_after"),
        (lambda: nearest_business_day(0), "1 to 31, or last"),
        (lambda: nearest_business_day(32), "1 to 31, or last"),
        (lambda: nearest_business_day([1]), "1 to 31, or last"),  # type: ignore[arg-type]
        (lambda: nearest_business_day(1, roll="up"), "before, after, nearest"),  # type: ignore[arg-type]
        (lambda: only_on(cron("0 9 * * *"), "US"), r'give workdays\("US"\)'),  # type: ignore[arg-type]
        (lambda: only_on("0 9 * * *", workdays()), "is not a rule"),  # type: ignore[arg-type]
        (lambda: only_on(cron("0 9 * * *"), workdays(), tz="Mars"), "no time zone"),
        (lambda: nth_weekday(6, "tue"), "1 to 5, or last"),
        (lambda: nth_weekday(1, "2"), "give one of mon"),
        (lambda: month_end(at=["06:00", "07:00"]), "combine them"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_says_what_to_write(make: Callable[[], Composable], advice: str) -> None:
    with pytest.raises(InvalidRule, match=advice):
        make()
