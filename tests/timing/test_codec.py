"""Rules as text: what a store keeps comes back equal, and what a person types is understood or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, LAST, MILLISECOND, Instant
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing import After, At, Cron, Every, after, at, cron, decode, every, parse
from foliot.timing.dst import Dst, Fold, Gap, IntervalLike

MOMENT = datetime(2026, 4, 3, 2, tzinfo=UTC)
instants = some.integers(-LAST // 5, LAST)


@given(instants)
def test_an_instant_comes_back_equal(when: Instant) -> None:
    assert decode(At(when).encode()) == At(when)


@given(some.integers(100 * MILLISECOND, 10_000 * DAY), instants)
def test_a_rate_comes_back_equal(interval: int, start: Instant) -> None:
    assert decode(Every(interval, start).encode()) == Every(interval, start)


@given(some.integers(MILLISECOND, 10_000 * DAY))
def test_a_delay_comes_back_equal(delay: int) -> None:
    assert decode(After(delay).encode()) == After(delay)


@pytest.mark.parametrize(
    "expression",
    ["0 2 * * *", "*/5 9-17 * jan-MAR mon,Wed", "@daily", " 0\t0 29 2   * ", "1" + ",1" * 490 + " * * * *"],
)
def test_a_cron_rule_comes_back_equal(expression: str) -> None:
    rule = cron(expression)
    restored = decode(rule.encode())
    assert restored == rule
    assert restored.next(0) == rule.next(0)


@pytest.mark.parametrize("policy", list(product(Gap, Fold, IntervalLike)))
def test_a_policy_for_gaps_and_folds_comes_back_equal(policy: tuple[Gap, Fold, IntervalLike]) -> None:
    for six in (None, "seconds", "year"):
        rule = Cron("0 2 * * *" if six is None else "5 2 1 1 * 2030" if six == "year" else "30 0 2 * * *", sixth=six)
        rule = replace(rule, tz="Europe/Paris", dst=Dst(*policy))
        restored = decode(rule.encode())
        assert restored == rule
        assert restored.next(0) == rule.next(0)


@given(some.text(max_size=50))
def test_a_slot_by_hash_comes_back_as_it_was_settled(schedule: str) -> None:
    rule = cron("H H * * *", tz="Europe/Paris").named(schedule)
    restored = decode(rule.encode())
    assert restored == rule
    assert restored.next(0) == rule.next(0)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (cron("0 2 * * *"), '{"cron":"0 2 * * *","tz":"UTC"}'),
        (cron("0 2 * * *", tz="Europe/Paris"), '{"cron":"0 2 * * *","tz":"Europe/Paris"}'),
        (cron("0 2 * * *", fold="both"), '{"cron":"0 2 * * *","tz":"UTC","fold":"both"}'),
        (
            cron("0 2 * * *", preset="quartz"),
            '{"cron":"0 2 * * *","tz":"UTC","gap":"skip","fold":"second","interval_like":"never"}',
        ),
        (cron("5 0 2 * * *", seconds=True), '{"cron":"5 0 2 * * *","tz":"UTC","six":"seconds"}'),
        (cron("H 2 * * *").named("nightly"), '{"cron":"H 2 * * *","tz":"UTC","id":"nightly"}'),
        (every("1h", spread=True), '{"every":"1h","start":"1970-01-01T00:00:00Z","spread":true}'),
        (
            every("1h") | every("5h"),
            '{"any":[{"every":"1h","start":"1970-01-01T00:00:00Z"},{"every":"5h","start":"1970-01-01T00:00:00Z"}]}',
        ),
        (
            cron("0 2 * * *") - cron("0 2 1 1 *"),
            '{"of":{"cron":"0 2 * * *","tz":"UTC"},"without":{"cron":"0 2 1 1 *","tz":"UTC"}}',
        ),
        (
            cron("0 2 * * *").between(end=MOMENT),
            '{"of":{"cron":"0 2 * * *","tz":"UTC"},"end":"2026-04-03T02:00:00Z"}',
        ),
        (every("1h"), '{"every":"1h","start":"1970-01-01T00:00:00Z"}'),
        (every("1h30m", start=MOMENT), '{"every":"1h30m","start":"2026-04-03T02:00:00Z"}'),
        (after("10m"), '{"after":"10m"}'),
        (at(MOMENT), '{"at":"2026-04-03T02:00:00Z"}'),
    ],
)
def test_the_stored_form_does_not_change(rule: Rule, line: str) -> None:
    assert rule.encode() == line
    assert decode(line) == rule


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0 2 * * *",
        "null",
        "[]",
        "{}",
        '"cron"',
        "NaN",
        "[" * 1_100,
        "9" * 1_100,
        "{" * 1_000_000,
        '{"cron":"0 2 * * *"}',
        '{"cron":"0 2 * * *","tz":null}',
        '{"cron":"0 2 * * *","tz":"UTC","gap":null}',
        '{"cron":"0 2 * * *","tz":"UTC","lap":"skip"}',
        '{"cron":["0"],"tz":"UTC"}',
        '{"every":3600,"start":"1970-01-01T00:00:00Z"}',
        '{"every":"1h","start":0}',
        '{"after":"10m","at":"2026-04-03T02:00:00Z"}',
        '{"rrule":"FREQ=DAILY"}',
    ],
)
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(InvalidRule, match="is not a stored rule") as refused:
        decode(line)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "line",
    [
        '{"cron":"0 25 * * *","tz":"UTC"}',
        '{"cron":"0 2 * * *","tz":"Mars/Olympus"}',
        '{"cron":"0 2 * * *","tz":"UTC","gap":"jump"}',
        '{"cron":"0 2 * * *","tz":"UTC","six":"month"}',
        '{"every":"0s","start":"1970-01-01T00:00:00Z"}',
        '{"every":"1h","start":"yesterday"}',
        '{"every":"1h","start":"2026-04-03T02:00:00"}',
        '{"after":"soon"}',
        '{"after":"0s"}',
        '{"at":"2026-04-03T02:00:60Z"}',
        '{"at":"9999-12-31T23:59:59-05:00"}',
    ],
)
def test_a_stored_rule_with_a_bad_part_is_refused_as_a_rule(line: str) -> None:
    with pytest.raises(InvalidRule):
        decode(line)


CRON = '{"cron":"0 2 * * *","tz":"UTC"}'


@pytest.mark.parametrize(
    "line",
    [
        '{"of":' * 900 + CRON + ',"end":"2030-01-01T00:00:00Z"}' * 900,
        '{"of":' * 300 + CRON + ',"end":"2030-01-01T00:00:00Z"}' * 300,
        '{"any":[' * 400 + CRON + f",{CRON}]}}" * 400,
        '{"any":' + "[" * 9_000 + "]" * 9_000 + "}",
        '{"cron":"0 2 * * *","tz":"../../etc/passwd"}',
        '{"cron":"0 2 * * *","tz":"\\ud800"}',
        '{"cron":"0 2 * * *\\u0000","tz":"UTC"}',
        '{"cron":"%s","tz":"UTC"}' % ("," * 10_000),
        '{"every":"1h","start":%s}' % ("9" * 10_000),
        '{"every":"%s","start":"1970-01-01T00:00:00Z"}' % ("9" * 10_000),
        '{"of":NaN,"end":"2030-01-01T00:00:00Z"}',
        '{"of":{"after":"10m"},"end":"2030-01-01T00:00:00Z"}',
        f'{{"any":[{CRON}]}}',
        '{"any":"ab"}',
        f'{{"of":{CRON},"outside":{CRON},"for":"-1h"}}',
    ],
)
def test_hostile_lines_are_refused_with_a_short_message(line: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        decode(line)
    assert len(str(refused.value)) < 500
    str(refused.value).encode()  # it can be printed anywhere


@pytest.mark.parametrize("value", [None, 5, b"{}", {"after": "10m"}])
def test_what_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidRule):
        decode(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidRule):
        parse(value)  # type: ignore[arg-type]


@given(some.recursive(some.none() | some.integers() | some.text(max_size=9), some.lists, max_leaves=5))
def test_any_other_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidRule):
        decode(json.dumps({"cron": value}))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0 2 * * *", cron("0 2 * * *")),
        ("@daily", cron("@daily")),
        ("every 15m", every("15m")),
        ("Every  1h30m ", every("1h30m")),
        ("@every 90s", every("90s")),
        ("after 10m", after("10m")),
        ("at 2026-04-03T02:00:00Z", at(MOMENT)),
        ("at 2026-04-03T04:00:00+02:00", at(MOMENT)),
        ("at 2026-04-03 02:00:00Z", at(MOMENT)),
        ("every\t15m", every("15m")),
    ],
)
def test_what_people_type_is_understood(text: str, rule: Rule) -> None:
    assert parse(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "every",
        "@every",
        "every 15 minutes",
        "after",
        "at",
        "at noon",
        "at 2026-04-03T02:00:00",
        "in 5m",
        "@reboot",
    ],
)
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidRule):
        parse(text)


@pytest.mark.parametrize(
    "text", ["at " + "9" * 1_000_000, "every " + "9" * 1_000_000, " " * 1_000_000, "," * 1_000_000]
)
def test_huge_text_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        parse(text)
    assert len(str(refused.value)) < 400


def test_an_empty_rule_is_refused_with_the_forms_to_write() -> None:
    with pytest.raises(InvalidRule, match="every 15m"):
        parse("")


def test_a_zone_is_for_cron_alone() -> None:
    assert parse("every 15m", tz="Europe/Paris") == every("15m")
    assert parse("0 2 * * *", tz="Europe/Paris") == cron("0 2 * * *", tz="Europe/Paris")


@given(some.text(max_size=40) | some.text("everyaft @0159msh*/-,:TZ", max_size=40))
def test_any_text_is_a_rule_or_refused_as_one(text: str) -> None:
    try:
        rule = parse(text)
    except InvalidRule:
        return
    assert decode(rule.encode()) == rule


def test_a_field_that_belongs_to_another_kind_of_rule_is_refused() -> None:
    with pytest.raises(InvalidRule, match="is not a stored rule"):
        decode('{"business_days":true,"at":["00:00"],"tz":"UTC","months":[1]}')
