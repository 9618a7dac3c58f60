"""The rules without a calendar, and the functions that make them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from inspect import ismodule

import pytest
from hypothesis import given
from hypothesis import strategies as some

import foliot.timing
from foliot.domain.instant import DAY, HOUR, LAST, MILLISECOND, MINUTE, Instant, instant
from foliot.domain.rule import Rule
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing import After, At, Every, after, at, cron, every

MOMENT = datetime(2026, 4, 3, 2, tzinfo=UTC)
intervals = some.integers(100 * MILLISECOND, 400 * DAY)
instants = some.integers(instant(datetime(1900, 1, 1, tzinfo=UTC)), instant(datetime(2300, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize("rule", [at(MOMENT), every("15m"), after("10m"), cron("0 2 * * *")])
def test_every_rule_keeps_the_port_and_cannot_be_changed(rule: Rule) -> None:
    assert isinstance(rule, Rule)
    name = next(iter(rule.__slots__))  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(rule, name, 5)


def test_the_public_names_are_exactly_those_promised() -> None:
    public = {name for name, value in vars(foliot.timing).items() if name[0] != "_" and not ismodule(value)}
    assert set(foliot.timing.__all__) == public


# ---------------------------------------------------------------------------------------------------------------- once


def test_one_instant_comes_once() -> None:
    rule, moment = at(MOMENT), instant(MOMENT)
    assert rule.next(moment - 1) == moment
    assert rule.next(moment) is None
    assert rule.previous(moment) is None
    assert rule.previous(moment + 1) == moment
    assert rule.delay is None
    assert rule.explain() == "once, at 2026-04-03T02:00:00Z"


def test_a_naive_datetime_is_refused_with_the_fix() -> None:
    with pytest.raises(InvalidRule, match=r"tzinfo=UTC"):
        at(datetime(2026, 4, 3))
    with pytest.raises(InvalidRule, match=r"tzinfo=UTC"):
        every("1h", start=datetime(2026, 4, 3))


@pytest.mark.parametrize(
    "edge",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_an_instant_outside_the_calendar_is_refused(edge: datetime) -> None:
    with pytest.raises(InvalidRule, match="outside the years 1 to 9999"):
        at(edge)
    with pytest.raises(InvalidRule, match="outside the years 1 to 9999"):
        every("1h", start=edge)


# ---------------------------------------------------------------------------------------------------------- fixed rate


def test_a_fixed_rate_is_anchored_at_the_epoch() -> None:
    moment = instant(MOMENT)
    assert every("1h").next(moment - 1) == moment
    assert every("1h").next(moment) == moment + HOUR
    assert every("1h").previous(moment) == moment - HOUR
    assert every("1h").delay is None


def test_a_fixed_rate_can_have_its_own_start() -> None:
    rule, start = every("1h", start=MOMENT + timedelta(minutes=7)), instant(MOMENT) + 7 * MINUTE
    assert rule.next(start - 10 * DAY) == start
    assert rule.previous(start) is None
    assert rule.previous(start + 1) == start
    assert rule.next(start) == start + HOUR


@given(intervals, instants, instants)
def test_ticks_are_whole_intervals_from_the_start(interval: int, start: Instant, moment: Instant) -> None:
    rule = Every(interval, start)
    coming, gone = rule.next(moment), rule.previous(moment)
    assert coming is not None
    assert coming > moment
    assert coming >= start
    assert (coming - start) % interval == 0
    assert coming == start or coming - interval <= moment
    if gone is None:
        assert moment <= start
    else:
        assert start <= gone < moment <= gone + interval
        assert (gone - start) % interval == 0


@given(intervals, instants, instants)
def test_the_tick_before_the_next_one_is_not_after_now(interval: int, start: Instant, moment: Instant) -> None:
    rule = Every(interval, start)
    coming = rule.next(moment)
    assert coming is not None
    gone = rule.previous(coming)
    assert gone is None or gone <= moment


def test_a_fixed_rate_ends_with_the_calendar() -> None:
    assert every("1h").next(LAST) is None
    last = every("1h").previous(10**30)
    assert last is not None
    assert last <= LAST < last + HOUR
    assert every("1h").next(last) is None


@pytest.mark.parametrize("interval", ["15m", 900, 900.0, timedelta(minutes=15)])
def test_an_interval_can_be_said_in_three_ways(interval: str | float | timedelta) -> None:
    assert every(interval) == Every(15 * MINUTE)


@pytest.mark.parametrize("interval", [0, "0s", "99ms", 0.0999, timedelta(0)])
def test_too_fast_a_rate_is_refused(interval: str | float | timedelta) -> None:
    with pytest.raises(InvalidRule, match="the shortest is 100ms"):
        every(interval)


def test_the_fastest_rate_is_ten_a_second() -> None:
    assert every("100ms").interval == 100 * MILLISECOND


@pytest.mark.parametrize("given_", ["", "fifteen", "15 minutes", -1, timedelta(-1), True, None, float("nan")])
def test_what_is_not_a_duration_is_refused_as_a_rule(given_: str) -> None:
    with pytest.raises(InvalidRule):
        every(given_)
    with pytest.raises(InvalidRule):
        after(given_)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (every("1h"), "every hour"),
        (every("15m"), "every 15 minutes"),
        (every("90m"), "every 1 hour 30 minutes"),
        (every("61m"), "every 1 hour 1 minute"),
        (every("1d"), "every 24 hours, at 00:00 UTC"),
        (every("7d"), "every 168 hours, on Thursday at 00:00 UTC"),
        (
            every("7d", start=datetime(2026, 1, 5, 9, 30, tzinfo=UTC)),
            "every 168 hours, on Monday at 09:30 UTC, counted from 2026-01-05T09:30:00Z",
        ),
        (every("3d"), "every 72 hours, at 00:00 UTC, counted from 1970-01-01T00:00:00Z"),
        (every("7d", spread=True), "every 168 hours"),
        (every(0.25), "every 250 milliseconds"),
        (every("1h", start=MOMENT), "every hour, counted from 2026-04-03T02:00:00Z"),
        (after("1m"), "1 minute after the last run ended"),
    ],
)
def test_a_rate_is_explained_in_elapsed_time(rule: Rule, words: str) -> None:
    assert rule.explain() == words


# --------------------------------------------------------------------------------------------------------- fixed delay


def test_a_fixed_delay_has_no_calendar() -> None:
    rule = after("10m")
    assert rule == After(10 * MINUTE)
    assert rule.delay == 10 * MINUTE
    assert (rule.next(0), rule.previous(LAST)) == (None, None)


def test_a_delay_of_less_than_a_millisecond_is_refused() -> None:
    assert after("1ms").delay == MILLISECOND
    with pytest.raises(InvalidRule, match="the shortest is 1ms"):
        after("999us")


def test_a_refused_rule_is_invalid_input_and_a_value_error() -> None:
    with pytest.raises(InvalidInput):
        every("0s")
    with pytest.raises(ValueError, match="too short"):
        after(0)
    assert At(0) == at(datetime(1970, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("given_", ["36526d", timedelta(days=36_526), "400000d"])
def test_more_than_a_century_is_refused_because_its_next_tick_might_have_no_date(given_: str | timedelta) -> None:
    for rule in (every, after):
        with pytest.raises(InvalidRule, match="too long; the longest is 36525"):
            rule(given_)
        rule("36525d")
