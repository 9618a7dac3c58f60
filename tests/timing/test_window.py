"""Hours of the day in a zone, and the ticks of an interval."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.backfill import window
from foliot.domain.instant import DAY, HOUR, MINUTE, Instant, parse_rfc3339
from foliot.errors import InvalidInput
from foliot.timing import at, cron, every
from foliot.timing.interval import Interval
from foliot.timing.window import checked_window, ends_at, opens_at

NIGHT = window("22:00-06:00", "Europe/Paris")
NOON: Instant = parse_rfc3339("2026-04-03T10:00:00Z")  # in Paris
MOMENTS = st.integers(parse_rfc3339("2026-01-01T00:00:00Z"), parse_rfc3339("2027-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-04-03T10:00:00Z", "2026-04-03T20:00:00Z"),
        ("2026-04-03T19:59:59.999999Z", "2026-04-03T20:00:00Z"),
        ("2026-04-03T20:00:00Z", "2026-04-03T20:00:00Z"),
        ("2026-04-04T03:59:59Z", "2026-04-04T03:59:59Z"),
        ("2026-04-04T04:00:00Z", "2026-04-04T20:00:00Z"),
        ("2026-01-04T04:30:00Z", "2026-01-04T04:30:00Z"),  # in winter it closes an hour later by UTC
    ],
)
def test_a_window_opens_and_closes_by_the_clock_on_the_wall(now: str, opens: str) -> None:
    assert opens_at(NIGHT, parse_rfc3339(now)) == parse_rfc3339(opens)


def test_a_window_of_the_day_does_not_span_midnight() -> None:
    office = window("09:00-17:00", "UTC")
    assert opens_at(office, parse_rfc3339("2026-04-03T17:00:00Z")) == parse_rfc3339("2026-04-04T09:00:00Z")
    assert opens_at(office, parse_rfc3339("2026-04-03T16:59:59Z")) == parse_rfc3339("2026-04-03T16:59:59Z")


def test_work_rests_while_the_window_is_closed() -> None:
    assert ends_at(NIGHT, NOON, 10 * HOUR) == parse_rfc3339("2026-04-04T22:00:00Z")
    assert ends_at(NIGHT, parse_rfc3339("2026-04-03T20:00:00Z"), 8 * HOUR) == parse_rfc3339("2026-04-04T04:00:00Z")
    assert ends_at(None, NOON, HOUR) == NOON + HOUR


def test_an_end_that_is_too_far_off_is_none() -> None:
    assert ends_at(window("00:00-00:01", "UTC"), NOON, 2_000 * MINUTE) is None


@given(now=MOMENTS, tz=st.sampled_from(["UTC", "Europe/Paris", "America/St_Johns", "Australia/Lord_Howe"]))
def test_whenever_it_is_a_window_is_open_now_or_within_a_day(now: Instant, tz: str) -> None:
    opens = opens_at(window("01:30-02:15", tz), now)
    assert now <= opens <= now + DAY + 2 * HOUR
    assert opens_at(window("01:30-02:15", tz), opens) == opens


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Europe/Paris"):
        checked_window(window("22:00-06:00", "Europe/Pariss"))


@given(start=MOMENTS, length=st.integers(1, 5 * DAY), step=st.sampled_from([HOUR, 7 * HOUR, 90 * MINUTE]))
def test_an_interval_has_the_same_ticks_both_ways_round(start: Instant, length: int, step: int) -> None:
    rule, interval = every(step // 1_000_000), Interval(start, start + length)
    forward = list(interval.forward(rule))
    assert list(interval.backward(rule)) == forward[::-1]
    assert all(start <= tick < start + length and since == tick - step for tick, since in forward)
    for after, (tick, _) in enumerate(forward):
        assert list(interval.forward(rule, tick)) == forward[after + 1 :]
        assert list(interval.backward(rule, tick)) == forward[:after][::-1]


def test_the_first_tick_of_a_rule_stands_for_the_time_since_the_interval_began() -> None:
    once = at(datetime(2026, 4, 3, 10, tzinfo=UTC))
    assert list(Interval(NOON - HOUR, NOON + HOUR).forward(once)) == [(NOON, NOON - HOUR)]
    assert list(Interval(NOON, NOON + HOUR).forward(once)) == [(NOON, None)]


def test_the_tick_before_the_interval_is_where_the_first_one_begins() -> None:
    nightly = cron("0 2 * * *")
    start = parse_rfc3339("2026-04-03T00:00:00Z")
    [(tick, since)] = Interval(start, start + DAY).forward(nightly)
    assert (tick, since) == (start + 2 * HOUR, start - 22 * HOUR)
