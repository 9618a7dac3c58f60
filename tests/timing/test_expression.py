"""Cron expressions: how each is read, which ones are refused, and how the refusal reads."""

from __future__ import annotations

import pytest

from foliot.errors import InvalidRule
from foliot.timing import Cron, cron
from foliot.timing.expression import read


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


def test_blanks_do_not_make_another_rule() -> None:
    assert cron(" 0\t2  * * *\n") == cron("0 2 * * *")


def test_both_names_of_utc_are_the_same_rule() -> None:
    assert cron("0 2 * * *", tz="Etc/UTC") == cron("0 2 * * *", tz="UTC") == Cron("0 2 * * *")


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
        ("0 22-2 * * *", 2, "runs backwards", "22-23,0-2"),
        ("0 0 * * sat-sun", 8, "runs backwards", "6,0"),
        ("*/0 * * * *", 2, "step is zero", "1 or more"),
        ("0-59/00 * * * *", 5, "step is zero", "1 or more"),
        ("5/10 * * * *", 0, "steps through no range", "5-59/10"),
        ("0 0 * * mon/2", 8, "steps through no range", "1-6/2"),
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
        ("H(0-29 * * * *", 0, "H (a slot spread by hash) cannot stand here", "write H, H/15"),
        ("H(29-0) * * * *", 0, "the minute range of H runs backwards", "H(0-29)"),
        ("H/0 * * * *", 2, "step is zero", "1 or more"),
        ("H/61 * * * *", 2, "the step 61 is longer than the minutes", "1 to 60"),
        ("0 0 0 1 1 * H", 12, "H (a slot spread by hash) cannot stand here", "write H, H/15"),
        ("HH * * * *", 0, "H (a slot spread by hash) cannot stand here", "write H, H/15"),
        ("L * * * *", 0, "L (the last) belongs in the day of month", "L-3"),
        ("0 0 L-0 * *", 6, "no month has a day L-0", "L-1 to L-30"),
        ("0 0 L-31 * *", 6, "no month has a day L-31", "L-1 to L-30"),
        ("0 0 1L * *", 5, "L (the last) belongs in the day of month", "5L"),
        ("0 0 * * L", 8, "L alone is no day of week", "5L for the last Friday"),
        ("0 0 * * 8L", 8, "day of week 8 is out of range", "0 to 7"),
        ("0 0 W * *", 4, "W (the nearest working day) belongs behind a day of month", "15W or LW"),
        ("0 0 1-15W * *", 8, "W (the nearest working day) belongs behind a day of month", "15W or LW"),
        ("0 0 32W * *", 4, "day of month 32 is out of range", "1 to 31"),
        ("0 0 * * 3W", 9, "W (the nearest working day) belongs behind a day of month", "15W or LW"),
        ("0 0 * * 5#6", 10, "no month has a weekday number 6", "1 to 5"),
        ("0 0 * * 5#0", 10, "no month has a weekday number 0", "1 to 5"),
        ("0 0 5#3 * *", 5, "# (the n-th weekday) belongs behind a day of week", "5#3"),
        ("? * * * *", 0, "? (no particular day) stands alone", "write *"),
        ("0 0 ?,1 * *", 4, "? (no particular day) stands alone", "write *"),
        ("@reboot", 0, "@reboot names no time", "when your program starts"),
        ("@dayly", 0, "not a known nickname", "did you mean @daily?"),
        ("@", 0, "not a known nickname", "@hourly"),
        ("@daily x", 7, "nothing may follow @daily", "remove this"),
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


@pytest.mark.parametrize("digit", ["٣", "５", "²", "௧"])  # noqa: RUF001 - that they look like digits is the point
def test_only_ascii_digits_are_digits(digit: str) -> None:
    assert "unexpected" in refusal(f"{digit} * * * *")


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
