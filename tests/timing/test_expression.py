"""Cron expressions: how each is read, which ones are refused, and how the refusal reads."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from foliot.domain.instant import instant, rfc3339
from foliot.errors import InvalidRule
from foliot.timing import Cron, cron, every, upcoming
from foliot.timing.expression import read
from foliot.timing.fields import Fields
from tests.tiers import by_tier
from tests.timing.calls import at_most


def refusal(expression: str) -> str:
    with pytest.raises(InvalidRule) as refused:
        cron(expression)
    return str(refused.value)


# ------------------------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize("weekday", ["0", "7", "sun", "SUN", "Sun", "7-7", "0,7"])
def test_seven_is_sunday(weekday: str) -> None:
    assert read(f"0 0 * * {weekday}").weekdays == (0,)


def test_a_range_up_to_seven_ends_on_sunday() -> None:
    assert read("0 0 * * 5-7").weekdays == (0, 5, 6)


def test_a_range_from_a_to_a_means_a() -> None:
    assert read("0 5-5 * * *").hours == (5,)


def test_a_step_counts_from_the_start_of_its_range() -> None:
    assert read("10-50/10 * * * *").minutes == (10, 20, 30, 40, 50)
    assert read("7-30/10 * * * *").minutes == (7, 17, 27)
    assert read("*/25 * * * *").minutes == (0, 25, 50)


def test_a_step_beyond_the_range_leaves_its_first_value() -> None:
    assert read("*/90 * * * *").minutes == (0,)


def test_months_and_weekdays_have_names_in_any_case() -> None:
    fields = read("0 0 * JAN,feb-Apr mon-FRI")
    assert (fields.months, fields.weekdays) == ((1, 2, 3, 4), (1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("nickname", "meaning"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@Daily", "0 0 * * *"),
    ],
)
def test_a_nickname_stands_for_its_expression(nickname: str, meaning: str) -> None:
    assert read(nickname) == read(meaning)


@pytest.mark.parametrize(
    ("days", "months", "expected"),
    [
        ("L", "2", ["2026-02-28", "2027-02-28", "2028-02-29"]),
        ("L-3", "2", ["2026-02-25", "2027-02-25", "2028-02-26"]),
        ("L-28", "2", ["2028-02-01", "2032-02-01"]),
        ("15W", "8", ["2026-08-14", "2027-08-16"]),  # a Saturday, a Sunday
        ("1W", "8", ["2026-08-03", "2027-08-02"]),  # a Saturday, a Sunday: it stays in its month
        ("31W", "10", ["2026-10-30", "2027-10-29"]),
        ("LW", "1", ["2026-01-30", "2027-01-29", "2028-01-31"]),
        ("L-1W", "1", ["2026-01-30", "2027-01-29", "2028-01-31"]),  # the 30th: a Friday, a Saturday, a Sunday
        ("l,1", "1", ["2026-01-31", "2027-01-01"]),
    ],
)
def test_days_that_depend_on_their_month(days: str, months: str, expected: list[str]) -> None:
    ticks = upcoming(cron(f"0 0 {days} {months} *"), instant(datetime(2026, 1, 1, tzinfo=UTC)), len(expected))
    assert [rfc3339(tick)[:10] for tick in ticks] == expected


@pytest.mark.parametrize(
    ("weekday", "expected"),
    [
        ("5#3", ["2026-01-16", "2026-02-20"]),
        ("fri#3", ["2026-01-16", "2026-02-20"]),
        ("7#1", ["2026-01-04", "2026-02-01"]),
        ("5L", ["2026-01-30", "2026-02-27"]),
        ("SUNL", ["2026-01-25", "2026-02-22"]),
        ("1#5", ["2026-03-30", "2026-06-29"]),
        ("1#1,3L", ["2026-01-05", "2026-01-28"]),
    ],
)
def test_weekdays_by_number(weekday: str, expected: list[str]) -> None:
    ticks = upcoming(cron(f"0 0 * * {weekday}"), instant(datetime(2026, 1, 2, tzinfo=UTC)), 2)
    assert [rfc3339(tick)[:10] for tick in ticks] == expected


def test_no_particular_day_is_a_star() -> None:
    assert read("0 0 ? * 5") == read("0 0 * * 5")
    assert read("0 0 13 * ?") == read("0 0 13 * *")


def test_six_fields_are_what_the_caller_says() -> None:
    assert cron("30 0 12 * * sun", seconds=True).fields.seconds == (30,)  # type: ignore[union-attr]
    assert cron("0 12 1 1 * 2027,2030", year=True).fields.years == (2027, 2030)  # type: ignore[union-attr]
    assert read("0 0 12 1 1 * 2027-2029").years == (2027, 2028, 2029), "seven are both"
    assert read("0 0 12 1 1 * *").years is None
    with pytest.raises(InvalidRule, match="seven fields"):
        cron("0 0 12 * * *", seconds=True, year=True)


def test_a_rule_with_years_ends() -> None:
    rule = Cron("0 12 1 1 * 2027", sixth="year")
    assert upcoming(rule, 0, 5) == [instant(datetime(2027, 1, 1, 12, tzinfo=UTC))]
    assert rule.next(instant(datetime(2027, 1, 1, 12, tzinfo=UTC))) is None
    assert rule.previous(0) is None


def test_every_of_other_schedulers_is_a_rate() -> None:
    assert cron("@every 90s") == every("90s")
    with pytest.raises(InvalidRule, match="is not a duration"):
        cron("@every")


def test_blanks_do_not_make_another_rule() -> None:
    assert cron(" 0\t2  * * *\n") == cron("0 2 * * *")


def test_both_names_of_utc_are_the_same_rule() -> None:
    assert cron("0 2 * * *", tz="Etc/UTC") == cron("0 2 * * *", tz="UTC") == Cron("0 2 * * *")


# -------------------------------------------------------------------------------------------------------- slots by hash


def slots(expression: str, count: int = 200) -> list[Fields]:
    return [read(expression, seed=f"schedule-{number}") for number in range(count)]


def test_a_slot_is_the_same_for_the_same_schedule() -> None:
    assert read("H H * * *", seed="nightly") == read("H H * * *", seed="nightly")
    assert cron("H H * * *").named("nightly") == cron("H H * * *").named("nightly")
    assert cron("H H * * *").named("nightly") != cron("H H * * *").named("hourly")
    assert cron("5 2 * * *").named("nightly") == cron("5 2 * * *"), "nothing is spread"


def test_slots_are_spread_over_the_whole_field() -> None:
    assert {fields.minutes for fields in slots("H * * * *", 1_000)} == {(minute,) for minute in range(60)}
    assert {fields.hours for fields in slots("0 H * * *", 1_000)} == {(hour,) for hour in range(24)}
    assert {fields.days for fields in slots("0 0 H * *", 1_000)} == {(day,) for day in range(1, 29)}, "in every month"
    assert {fields.weekdays for fields in slots("0 0 * * H")} == {(day,) for day in range(7)}


def test_a_slot_keeps_to_its_range_and_its_step() -> None:
    assert {fields.minutes for fields in slots("H(10-14) * * * *")} == {(minute,) for minute in range(10, 15)}
    assert {fields.minutes for fields in slots("H/20 * * * *")} == {
        (first, first + 20, first + 40) for first in range(20)
    }
    assert {fields.minutes for fields in slots("H(0-29)/15 * * * *")} == {(first, first + 15) for first in range(15)}


def test_a_slot_is_a_fixed_time_and_not_elapsed_time() -> None:
    assert not read("H H * * *").is_interval
    assert read("H * * * *").is_interval, "its hour is a star"


def test_fields_of_one_schedule_get_slots_of_their_own() -> None:
    assert len({(fields.minutes[0] % 24, fields.hours[0]) for fields in slots("H H * * *")}) > 100


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("expression", "column", "problem", "advice"),
    [
        ("60 * * * *", 0, "minute 60 is out of range", "0 to 59"),
        ("0 24 * * *", 2, "hour 24 is out of range", "0 to 23"),
        ("0 0 0 * *", 4, "day of month 0 is out of range", "1 to 31"),
        ("0 0 1,32 * *", 6, "day of month 32", "1 to 31"),
        ("0 0 * 13 *", 6, "month 13 is out of range", "1 to 12"),
        ("0 0 * * 1-8", 10, "day of week 8 is out of range", "0 to 7"),
        ("0 22-2 * * *", 2, "is reversed", "22-23,0-2"),
        ("0 0 * * sat-sun", 8, "is reversed", "6,0"),
        ("*/0 * * * *", 2, "step is zero", "1 or more"),
        ("0-59/00 * * * *", 5, "step is zero", "1 or more"),
        ("5/10 * * * *", 0, "has a step without a range", "5-59/10"),
        ("0 0 * * mon/2", 8, "has a step without a range", "1-6/2"),
        ("*/ * * * *", 1, "unexpected '/'", "*/5"),
        ("*/*/2 * * * *", 1, "unexpected '/'", "*/5"),
        ("1- * * * *", 1, "unexpected '-'", "0-59"),
        ("1-2-3 * * * *", 3, "unexpected '-'", "0-59"),
        ("-1 * * * *", 0, "unexpected '-'", "0-59"),
        ("*5 * * * *", 1, "unexpected '5'", "*/5"),
        ("1.5 * * * *", 1, "unexpected '.'", "*/5"),
        ("0 0 * * *\nrm", 9, "unexpected '\\n'", "*/5"),
        ("1,,2 * * * *", 2, "missing beside a comma", "remove the comma"),
        ("1, * * * *", 2, "missing beside a comma", "remove the comma"),
        (",1 * * * *", 0, "missing beside a comma", "remove the comma"),
        ("0 0 * * monday", 8, "monday is not a day of week", "did you mean mon?"),
        ("0 0 * fbe *", 6, "fbe is not a month", "did you mean feb?"),
        ("mon * * * *", 0, "mon is not a minute", "0 to 59"),
        ("* * * *", 7, "five fields, and this one has 4", "minute, hour, day of month, month, day of week"),
        ("", 0, "five fields, and this one has none", "write five"),
        ("1 2 3 4 5 6 7 8", 10, "five fields, and this one has 8", "write five"),
        ("0 2 * * * /bin/backup", 10, "text after the five fields", "remove this"),
        ("0 0 12 ? * SUN", 11, "six fields are ambiguous: seconds first, or year last", "write five"),
        ("0 0 1 1 * 2027", 10, "six fields are ambiguous: seconds first, or year last", "write five"),
        ("H(0-29 * * * *", 0, "H (a slot chosen by hash) is not allowed here", "write H, H/15"),
        ("H(29-0) * * * *", 0, "the minute range of H is reversed", "H(0-29)"),
        ("H/0 * * * *", 2, "step is zero", "1 or more"),
        ("H/61 * * * *", 2, "the step 61 is larger than the range of minutes", "1 to 60"),
        ("0 0 0 1 1 * H", 12, "H (a slot chosen by hash) is not allowed here", "write H, H/15"),
        ("HH * * * *", 0, "H (a slot chosen by hash) is not allowed here", "write H, H/15"),
        ("L * * * *", 0, "L (last) is only valid in the day of month", "L-3"),
        ("0 0 L-0 * *", 6, "no month has a day L-0", "L-1 to L-30"),
        ("0 0 L-31 * *", 6, "no month has a day L-31", "L-1 to L-30"),
        ("0 0 1L * *", 5, "L (last) is only valid in the day of month", "5L"),
        ("0 0 * * L", 8, "L alone is not a day of week", "5L for the last Friday"),
        ("0 0 * * 8L", 8, "day of week 8 is out of range", "0 to 7"),
        ("0 0 W * *", 4, "W (the nearest working day) is only valid after a day of month", "15W or LW"),
        ("0 0 1-15W * *", 8, "W (the nearest working day) is only valid after a day of month", "15W or LW"),
        ("0 0 32W * *", 4, "day of month 32 is out of range", "1 to 31"),
        ("0 0 * * 3W", 9, "W (the nearest working day) is only valid after a day of month", "15W or LW"),
        ("0 0 * * 5#6", 10, "no month has a weekday number 6", "1 to 5"),
        ("0 0 * * 5#0", 10, "no month has a weekday number 0", "1 to 5"),
        ("0 0 * * mon#019", 12, "no month has a weekday number 019", "1 to 5"),
        ("0 0 * * fri#050", 12, "no month has a weekday number 050", "1 to 5"),
        ("0 0 L-030 * *", 6, "no month has a day L-030", "L-1 to L-30"),
        ("0 0 5#3 * *", 5, "# (the n-th weekday) is only valid after a day of week", "5#3"),
        ("? * * * *", 0, "? (no particular day) is only valid alone", "write *"),
        ("0 0 ?,1 * *", 4, "? (no particular day) is only valid alone", "write *"),
        ("@reboot", 0, "@reboot is not a time", "when your program starts"),
        ("@dayly", 0, "not a known nickname", "did you mean @daily?"),
        ("@", 0, "not a known nickname", "@hourly"),
        ("@daily x", 7, "there is text after @daily", "remove this"),
        ("0 0 30 2 *", 4, "can never fire", "29 days"),
        ("0 0 31 2,4,6,9,11 *", 4, "can never fire", "30 days"),
        ("0 0 30-31 2 */7", 4, "can never fire", "29 days"),
        ("0 0 L-30 2 *", 4, "can never fire", "no month of its years has such a day"),
        ("0 0 0 29 2 * 2023,2025-2027", 6, "can never fire", "no month of its years has such a day"),
    ],
)
def test_a_refusal_points_at_the_character_and_says_what_to_write(
    expression: str, column: int, problem: str, advice: str
) -> None:
    said, shown, caret = refusal(expression).splitlines()
    assert problem in said
    assert shown == "    " + expression.replace("\n", " ")
    assert caret.index("^") == 4 + column
    assert advice in caret


@pytest.mark.parametrize("digit", ["٣", "５", "²", "௧", "①", "Ⅴ", "𝟓", "1²", "1٣"])  # noqa: RUF001 - so they look
@pytest.mark.parametrize(
    "form", ["{} * * * *", "*/{} * * * *", "H/{} * * * *", "0 0 L-{} * *", "0 0 * * 5#{}", "0 0 {}W * *"]
)
def test_only_ascii_digits_are_digits(digit: str, form: str) -> None:
    refusal(form.format(digit))


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 * * \N{LATIN SMALL LETTER LONG S}un",
        "0 0 * * \N{LATIN SMALL LETTER LONG S}un#3",
        "0 0 * * \N{KELVIN SIGN}",
        "0\u00a02 * * *",
        "0 2 * * *\u2028",
        "0 2 * * *\x0b",
        "0\0 2 * * *",
        "\0",
        "0 2 * * \ud800",
        "\udcff 2 * * *",
        "@\ud800",
        "H(H(0-5)-9) * * * *",
        "H((0-5)) * * * *",
        "H(" * 400 + " * * * *",
        "H" + "(" * 400 + "0-5" + ")" * 400 + " * * * *",
        "H(0-5" + ")" * 900 + " * * * *",
        "0 0 * * 5" + "#5" * 400,
        "0 0 " + "L" * 900 + " * *",
        "0 0 " + "1W" * 400 + " * *",
        "0 2 * * * " + "1" * 900 + "!",
        "0 2 * * * " + "jan" * 300 + "!",
        "0 2 * * * " + "LWH*" * 200 + "!",
        "-" * 990,
        "*/" * 490,
        "H" * 990,
        "9" * 20 + " * * * *",
        "1-" + "9" * 400 + " * * * *",
        "0 0 L-" + "9" * 400 + " * *",
        "0 0 * * 5#" + "9" * 400,
        "0 0 0 1 1 * " + "9" * 400,
        "0 0 0 1 1 * 0-9999",
    ],
)
def test_hostile_text_is_refused_with_few_steps_and_a_short_message(expression: str) -> None:
    """The work is counted, not timed: these are a thousand characters at most, so nothing may take many steps."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        with pytest.raises(InvalidRule) as refused:
            cron(expression)
    finally:
        sys.setprofile(None)
    assert calls < 20_000
    assert len(str(refused.value)) < 500
    assert all(line.isprintable() for line in str(refused.value).splitlines())


@pytest.mark.parametrize("seed", ["", "\ud800", "\0", "é" * 10_000, "a\nminute"])
def test_any_id_has_a_slot(seed: str) -> None:
    assert Cron("H H H * *", seed=seed).next(0) is not None


def test_a_caret_far_to_the_right_still_points_at_its_character() -> None:
    shown, caret = refusal("1," * 400 + "99 * * * *").splitlines()[1:]
    assert len(shown) < 140
    assert shown[caret.index("^") :].startswith("99 ")


def test_control_characters_are_not_printed() -> None:
    assert "\x1b" not in refusal("\x1b[31m * * * *")


@pytest.mark.parametrize("text", ["," * 1_000_000, "* " * 500_000, "9" * 1_000_000, "@" * 1_000_000, "1," * 501])
def test_huge_input_is_refused_at_once_and_not_repeated(text: str) -> None:
    message = refusal(text)
    assert "1,000 characters" in message
    assert len(message) < 300


@pytest.mark.parametrize("text", ["1-" + "9" * 990, "*/" + "9" * 900 + " * * * x", "," * 1_000, "9" * 900 + " * * * *"])
def test_large_but_permitted_input_is_refused_with_a_short_message(text: str) -> None:
    assert len(refusal(text)) < 500


@pytest.mark.parametrize("value", [None, 5, b"0 2 * * *", ["0", "2"]])
def test_what_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidRule, match="is not a cron expression"):
        cron(value)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ the short way

values = some.one_of(
    some.integers(0, 60).map(str), some.sampled_from(["*", "jan", "mon", "SUN", "7", "L", "W", "H", "x", "", "07"])
)
spans = some.one_of(values, some.tuples(values, values).map("-".join))
items = some.one_of(spans, some.tuples(spans, some.sampled_from(["1", "2", "15", "90", "0", "x", ""])).map("/".join))
places = some.lists(items, min_size=1, max_size=3).map(",".join)


def answer(text: str) -> object:
    try:
        return read(text)
    except InvalidRule as refused:
        return str(refused).partition("\n")[0]


@settings(max_examples=by_tier(300, 2_000, 20_000))
@given(some.tuples(places, places, places, places, places).map(" ".join))
@example("0 0 * * 7-5")
@example("0 0 * * 0-7/2")
@example("0 0 * * 1-5/")
@example("0 0 30 2 *")
def test_common_expressions_are_read_as_the_exact_reader_reads_them(text: str) -> None:
    """Two blanks in a row lead to the exact reader, which knows where each character stands."""
    assert answer(text) == answer(text.replace(" ", "  ", 1))


@pytest.mark.parametrize("expression", ["* * * * *", "*/15 9-17 * * mon-fri", "0 0 1,15 * *", "23 0-20/2 * * *"])
def test_a_common_expression_is_read_with_few_steps(expression: str) -> None:
    with at_most(60):
        read(expression)
