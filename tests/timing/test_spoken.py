"""Rules that are typed as they are written in Python."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot import timing
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing import after, at, cron, decode, every, parse
from foliot.timing.business import business_day, only_on
from foliot.timing.monthly import nth_weekday
from foliot.timing.recurrence import rrule
from foliot.timing.spoken import CONSTRUCTORS, DEEPEST, LONGEST
from foliot.timing.workdays import workdays

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
PARIS = "Europe/Paris"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('cron("0 9 * * *", tz="Europe/Paris")', cron("0 9 * * *", tz=PARIS)),
        ("cron('0 0 9 * * *', seconds=True, gap=\"skip\")", cron("0 0 9 * * *", seconds=True, gap="skip")),
        ('every("6h")', every("6h")),
        (" every( 90 , spread = True ) ", every(90, spread=True)),
        ("every(0.5)", every(0.5)),
        ('every("1h", start="2026-01-01T00:00:00Z")', every("1h", start=MOMENT)),
        ('every("1h", start=None)', every("1h")),
        ('after("10m")', after("10m")),
        ('at("2026-01-01T01:00:00+01:00")', at(MOMENT)),
        ('cron("0 9 * * *") | every("6h")', cron("0 9 * * *") | every("6h")),
        ('cron("0 6 * * *") & every("6h") - every("12h")', cron("0 6 * * *") & (every("6h") - every("12h"))),
        ('(every("1h") | every("7h")) - every("2h")', (every("1h") | every("7h")) - every("2h")),
        ('every("1h").between(start="2026-01-01T00:00:00Z")', every("1h").between(MOMENT)),
        ('every("1h").between(None, "2026-01-01T00:00:00Z")', every("1h").between(None, MOMENT)),
        (
            'cron("*/5 * * * *").outside(cron("0 22 * * *", tz="Europe/Paris"), "8h")',
            cron("*/5 * * * *").outside(cron("0 22 * * *", tz=PARIS), "8h"),
        ),
        ('every("1h")\n  | every("7h")', every("1h") | every("7h")),
        (
            'business_day(-1, country="FR", at=["09:00", "18:00"])',
            business_day(-1, country="FR", at=("09:00", "18:00")),
        ),
        ('business_day(1, closed=("2026-01-02",))', business_day(1, closed=["2026-01-02"])),
        ('only_on(every("15m"), workdays("FR"), tz="Europe/Paris")', only_on(every("15m"), workdays("FR"), tz=PARIS)),
        ('nth_weekday(2, "tue", months=["jan"])', nth_weekday(2, "tue", months=["jan"])),
        (
            'rrule("FREQ=WEEKLY;INTERVAL=2", start="2026-01-05T09:00")',
            rrule("FREQ=WEEKLY;INTERVAL=2", start="2026-01-05T09:00"),
        ),
        (
            'rrule("DTSTART:20260105T090000\\nRRULE:FREQ=WEEKLY")',
            rrule("DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY"),
        ),
    ],
)
def test_what_can_be_written_in_python_can_be_typed(text: str, rule: Rule) -> None:
    assert parse(text) == rule


def test_every_constructor_of_rules_can_be_typed() -> None:
    made = {name for name in timing.__all__ if name[0].islower()}
    verbs = {
        "decode",
        "parse",
        "upcoming",
        "overdue",
        "jittered",
        "first_tick",
        "takes_zone",
        "takes_policy",
        "chosen_policies",
    }
    assert made - verbs <= set(CONSTRUCTORS)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("H(0-29) 2 * * *", cron("H(0-29) 2 * * *")),
        ("h(0-29) 2 * * *", cron("h(0-29) 2 * * *")),
        (' {"after":"10m"}', after("10m")),
        ((every("1h") | every("7h")).encode(), every("1h") | every("7h")),
        ("FREQ=DAILY;BYHOUR=2", rrule("FREQ=DAILY;BYHOUR=2")),
        ("RRULE:FREQ=DAILY;BYHOUR=2", rrule("FREQ=DAILY;BYHOUR=2")),
        ("wkst=mo;freq=daily;byhour=2", rrule("WKST=MO;FREQ=DAILY;BYHOUR=2")),
        ("DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY", rrule("DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY")),
    ],
)
def test_the_other_forms_are_told_apart(text: str, rule: Rule) -> None:
    assert parse(text) == rule


def test_a_stored_rule_is_checked_as_a_typed_one_is() -> None:
    for text in (
        'after("10m") | every("1h")',
        '{"any":[{"after":"10m"},{"every":"1h","start":"1970-01-01T00:00:00Z"}]}',
    ):
        with pytest.raises(InvalidRule, match="a fixed delay cannot be combined"):
            parse(text)


def refusal(text: str) -> tuple[str, int, str]:
    """What is wrong, at which character, and the advice."""
    with pytest.raises(InvalidRule) as refused:
        parse(text)
    problem, shown, pointer = str(refused.value).split("\n")
    assert text.strip().replace("\n", " ") in shown
    return problem, pointer.index("^") - 4, pointer.partition("^ ")[2]


@pytest.mark.parametrize(
    ("text", "problem", "column", "advice"),
    [
        ('crn("0 9 * * *")', "there is no rule called crn", 0, "did you mean cron?"),
        ('every("1h") | evry("2h")', "there is no rule called evry", 14, "did you mean every?"),
        ('every("1h") |\n evry("2h")', "there is no rule called evry", 15, "did you mean every?"),
        ('__import__("os")', "there is no rule called __import__", 0, "give one of cron, every"),
        ('cron("0 9 * * *", tx="UTC")', "cron has no argument tx", 18, "did you mean tz?"),
        ('cron("0 9 * * *", **{})', "cron has no argument **", 18, "give one of expression, tz"),
        ('every("é", strt=1)', "every has no argument strt", 11, "did you mean start?"),
        ('every("1h").bewteen()', "a rule has no method bewteen", 12, "did you mean between?"),
        ('every("1h").__class__()', "a rule has no method __class__", 12, "give one of between, outside"),
        ("cron()", "missing a required argument: 'expression'", 0, "it takes expression, tz"),
        ("every(1, 2, 3)", "too many positional arguments", 0, "it takes interval, start, spread"),
        ('every("1h") or every("2h")', "this operator does not combine rules", 12, "write | for or"),
        ('every("1h") + every("2h")', "this operator does not combine rules", 12, "write | for or"),
        ("every(interval)", "interval is not a call", 6, "write parentheses after it"),
        ("every(60 * 5)", "this operator does not combine rules", 9, "write | for or"),
        ('every("1h") | 5', "this is not a rule", 14, "write a call"),
        ('workdays("FR")', "this is not a rule", 0, "write a call"),
        ('every(f"{1}")', "this syntax is not allowed", 6, "write calls, text in quotes"),
        ('every((lambda: "1h")())', "this syntax is not allowed", 6, "write calls, text in quotes"),
        ('every(*["1h"])', "this syntax is not allowed", 6, "write calls, text in quotes"),
        ('every("\\x31h")', "a rule needs no backslash", 7, "remove it"),
        ('every("1h"', "syntax error: '(' was never closed", 5, "look for a missing quote or bracket"),
        ("every(" + "9" * 50 + ")", "this number is too large", 6, "write less than"),
    ],
)
def test_a_refusal_points_at_the_character_and_says_what_to_write(
    text: str, problem: str, column: int, advice: str
) -> None:
    told, place, hint = refusal(text)
    assert problem in told
    assert place == column
    assert hint.startswith(advice)


def test_a_mistake_inside_of_an_expression_is_pointed_at_there() -> None:
    with pytest.raises(InvalidRule, match=r"hour 25 is out of range\n    0 25 \* \* \*\n      \^"):
        parse('every("1h") | cron("0 25 * * *")')


@pytest.mark.parametrize(
    "text",
    [
        "every(" * 600,
        "every(" + "[" * 150 + "]" * 150 + ")",
        "every(" + "-" * 3_900 + "1)",
        'every("1h")' + '|every("1h")' * 300,
        "every(" + "9" * 3_900 + ")",
        '{"start":"2026-01-01T00:00:00Z","of":' * 100 + '{"at":"2027-01-01T00:00:00Z"}' + "}" * 100,
        'every("1h"\x00)',
        'every("\ud800")',
        "every(1e999)",
        "every(1j)",
        "every(b'1h')",
        "every(...)",
        'every("' + "x" * 5_000 + '")',
        "every(" * 3_000,
        'after("1m") | every("1m")',
        'every("1h").between("nonsense")',
        'every("1h", start=["2026-01-01T00:00:00Z"])',
        "cron([])",
        'cron("0 2 * * *", tz=5)',
        "business_day([], at=5)",
        "nth_weekday(None, None)",
        'only_on(every("1h"), "US")',
        'rrule("FREQ=DAILY", start=5)',
        "at(5)",
        'at("2026-01-01")',
    ],
)
def test_whatever_is_hostile_or_of_the_wrong_kind_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        parse(text)
    assert len(str(refused.value)) < 600


def test_the_limits_are_far_from_what_people_type() -> None:
    assert parse("|".join(['every("1h")'] * DEEPEST)).next(0) is not None
    assert LONGEST >= 1_000


@pytest.mark.parametrize("form", ["every 1h", "@every 1h", "after 10m", "at 2026-01-01T00:00:00Z"])
def test_options_of_cron_are_refused_where_time_is_elapsed(form: str) -> None:
    assert parse(form, tz=PARIS) == parse(form)
    with pytest.raises(InvalidRule, match="gap and seconds cannot be given here"):
        parse(form, gap="skip", seconds=True)


@pytest.mark.parametrize("form", ['cron("0 2 * * *")', '{"cron":"0 2 * * *","tz":"UTC"}'])
def test_a_rule_that_says_its_own_options_is_given_none(form: str) -> None:
    with pytest.raises(InvalidRule, match="tz cannot be given here: this rule sets them itself"):
        parse(form, tz=PARIS)
    with pytest.raises(InvalidRule, match="preset cannot be given here"):
        parse(form, preset="quartz")


def test_options_are_for_cron_and_recurrences() -> None:
    assert parse("0 2 * * *", PARIS, gap="skip", fold="both") == cron("0 2 * * *", tz=PARIS, gap="skip", fold="both")
    assert parse("0 0 2 * * *", seconds=True) == cron("0 0 2 * * *", seconds=True)
    assert parse("0 2 * * * 2030", year=True) == cron("0 2 * * * 2030", year=True)
    daily = "FREQ=DAILY;BYHOUR=2"
    assert parse(daily, PARIS, preset="quartz") == rrule(daily, tz=PARIS, preset="quartz")
    with pytest.raises(InvalidRule, match="year cannot be given here"):
        parse(daily, year=True)


pieces = some.sampled_from(
    ['cron("0 9 * * *")', 'every("1h")', "every", "(", ")", "|", "&", "-", ".between(", ".outside(", '"8h"', ",", " ",
     "start=", '"2026-01-01T00:00:00Z"', "5", "[", "]", "\n", "business_day(1)", "None", "é", "'", "=", "*", "\\"]
)  # fmt: skip


@given(some.lists(pieces, max_size=12).map("".join))
def test_any_text_is_a_rule_or_refused_as_one(text: str) -> None:
    try:
        rule = parse(text)
    except InvalidRule:
        return
    assert decode(rule.encode()) == rule
