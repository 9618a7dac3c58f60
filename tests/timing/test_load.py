"""The load that schedules will make, counted; and its herds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Instant, instant, parse_rfc3339
from foliot.domain.rule import Rule
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing import At, Every, after, at, cron, every, jittered
from foliot.timing import load as loads
from foliot.timing.herds import herds, spread_rule
from foliot.timing.load import Load, Standing, load, short, width_for

START = parse_rfc3339("2026-06-01T00:00:00Z")


def crowd(rule: Rule, count: int, name: str = "crowd", **given: Any) -> list[Standing]:
    names = [f"{name}-{number}" for number in range(count)]
    return [Standing(one, rule.named(one), **given) for one in names]


def a_day(*standing: Standing, width: int = MINUTE) -> Load:
    return load(standing, START, START + DAY, width)


# ------------------------------------------------------------------------------------------------------------- counting

rules = some.one_of(
    some.builds(Every, some.integers(SECOND, 3 * HOUR), some.integers(START - DAY, START + DAY)),
    some.sampled_from(
        [
            cron("*/7 * * * *"),
            cron("H/20 * * * *"),
            cron("30 2 * * *", tz="America/New_York"),
            cron("*/30 * * * *", tz="Australia/Lord_Howe"),
            cron("0 9 * * mon-fri", tz="Europe/Paris") | every("50m"),
            cron("*/20 * * * *") - cron("0 * * * *"),
            every("30s"),
            every("7m", spread=True),
            at(datetime(2026, 6, 1, 3, tzinfo=UTC)),
        ]
    ),
)
standings = some.lists(
    some.tuples(rules, some.just(0) | some.integers(1, 2 * HOUR), some.integers(1, 3)),
    max_size=6,
)
# Around the days on which New York's clocks change, too.
begins = some.integers(START - 3 * HOUR, START + 3 * HOUR) | some.integers(
    parse_rfc3339("2026-03-08T05:00:00Z"), parse_rfc3339("2026-03-08T08:00:00Z")
)


def by_hand(standing: list[Standing], start: Instant, end: Instant, width: int) -> list[int]:
    """Tick by tick, schedule by schedule, from long before."""
    counts = Counter[int]()
    for one in standing:
        tick = one.rule.next(start - one.jitter - 1)
        while tick is not None and tick < end:
            following = one.rule.next(tick)
            fire = jittered(one.id, tick, one.jitter, following)
            if start <= fire < end:
                counts[(fire - start) // width] += one.runs
            tick = following
    return [counts[number] for number in range(-(-(end - start) // width))]


@given(standings, begins, some.integers(1, 8 * HOUR), some.sampled_from([7 * SECOND, MINUTE, 13 * MINUTE, HOUR]))
def test_it_counts_what_asking_each_rule_for_each_tick_counts(
    given_: list[tuple[Rule, int, int]], start: Instant, span: int, width: int
) -> None:
    standing = [
        Standing(f"s{number}", rule.named(f"s{number}"), jitter, runs=runs)
        for number, (rule, jitter, runs) in enumerate(given_)
    ]
    counted = load(standing, start, start + span, width)
    assert list(counted.starts) == by_hand(standing, start, start + span, width)
    assert (counted.cut, counted.broken, counted.evened) == ((), (), 0)


def test_schedules_with_equal_ticks_are_counted_together() -> None:
    counted = a_day(*crowd(cron("0 2 * * *"), 300), *crowd(cron("H * * * *"), 1_000, "spread"))
    assert (counted.schedules, sum(counted.starts)) == (1_300, 300 + 24_000)
    assert len(counted.strands) <= 61


def test_jitter_spreads_the_members_of_a_tick_evenly() -> None:
    standing = Standing("health", every("1h"), HOUR // 2, runs=3_000, is_spread=True)
    counted = load([standing], START, START + 2 * HOUR, 10 * MINUTE)
    assert [round(count, -1) for count in counted.starts] == [1_000, 1_000, 1_000, 0, 0, 0] * 2


def test_a_fast_rate_is_counted_by_arithmetic() -> None:
    counted = a_day(*crowd(every("100ms"), 10_000))
    assert set(counted.starts) == {600 * 10_000}
    assert herds(counted).found == ()


def test_a_rate_that_begins_later_is_counted_from_there() -> None:
    counted = a_day(Standing("late", Every(30 * SECOND, START + HOUR)))
    assert counted.starts[59:61] == (0, 2)
    assert sum(counted.starts) == 23 * 120


def test_what_has_too_many_ticks_is_counted_less_far_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "MOST_ASKED", 100)
    monkeypatch.setattr(loads, "LEAST_ASKED", 50)
    counted = a_day(*crowd(cron("* * * * *"), 2), *crowd(cron("0 2 * * *"), 1, "night"))
    [cut] = counted.cut
    assert (cut.rule, cut.schedules, cut.until) == ("* * * * *", ("crowd-0", "crowd-1"), START + 50 * MINUTE)
    assert counted.starts[:51] == (2,) * 50 + (0,)
    assert sum(counted.starts) == 101


def test_too_much_jitter_is_taken_to_be_even_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "MOST_MOVED", 10)
    counted = a_day(*crowd(cron("0 2 * * *"), 100, jitter=10 * MINUTE - 1))
    assert counted.starts[119:131] == (0, *(10,) * 10, 0)
    assert counted.evened == 100


def test_a_rule_that_cannot_answer_does_not_stop_the_others() -> None:
    class Tired(At):
        """Gives its search up, as a rule may that is made of others: at once, or after its instant."""

        def next(self, after: Instant) -> Instant | None:
            if self.when > after:
                return self.when
            raise InvalidRule("exclude all nearby ticks")

    night = crowd(cron("0 2 * * *"), 3)
    counted = a_day(Standing("silent", Tired(START - DAY)), Standing("tired", Tired(START + HOUR)), *night)
    assert counted.broken == (("silent", "exclude all nearby ticks"),)
    assert [(cut.schedules, cut.until) for cut in counted.cut] == [(("tired",), START + HOUR + 1)]
    assert (counted.schedules, sum(counted.starts)) == (4, 4)


def test_a_fixed_delay_has_no_calendar() -> None:
    counted = a_day(Standing("sweep", after("10m")), Standing("hourly", every("1h")))
    assert (counted.delayed, sum(counted.starts)) == (("sweep",), 24)


def test_busy_workers_are_starts_by_how_long_they_take() -> None:
    counted = a_day(*crowd(cron("0 2 * * *"), 4, takes=90 * SECOND), Standing("unknown", cron("0 3 * * *")))
    assert counted.busy is not None
    assert counted.busy[119:123] == (0, 4, 2, 0)
    assert counted.unknown == 1
    assert a_day(Standing("unknown", every("1h"))).busy is None


def test_a_run_that_is_longer_than_the_next_tick_adds_up() -> None:
    counted = a_day(Standing("slow", every("1m"), takes=10 * MINUTE))
    assert counted.busy is not None
    assert counted.busy[0] == 1
    assert set(counted.busy[9:]) == {10}


@pytest.mark.parametrize(
    ("span", "width"),
    [
        (5 * MINUTE, SECOND),
        (DAY, MINUTE),
        (7 * DAY, 5 * MINUTE),
        (30 * DAY, 15 * MINUTE),
        (365 * DAY, 6 * HOUR),
        (36_500 * DAY, DAY),
    ],
)
def test_the_longer_the_span_the_wider_its_buckets(span: int, width: int) -> None:
    assert width_for(span) == width


def test_no_time_at_all_and_too_many_buckets_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the period is empty"):
        load([], START, START)
    with pytest.raises(InvalidInput, match="wider buckets"):
        load([], START, START + 365 * DAY, SECOND)


def test_who_listens_hears_how_far_it_is() -> None:
    heard: list[tuple[int, int]] = []
    load(
        [*crowd(every("1h"), 3), Standing("other", every("2h"))],
        START,
        START + DAY,
        told=lambda done, of: heard.append((done, of)),
    )
    assert heard == [(3, 4), (4, 4)]


# ---------------------------------------------------------------------------------------------------------------- herds


def test_a_herd_is_named_with_its_rules_and_its_sharpest_second() -> None:
    counted = a_day(
        *crowd(cron("0 2 * * *"), 380, "night"),
        *crowd(every("2h"), 32, "even"),
        *crowd(every("15m", spread=True), 200, "poll"),
    )
    herd = herds(counted).found[0]
    assert (herd.at, herd.sharpest, herd.schedules) == (START + 2 * HOUR, START + 2 * HOUR, 412)
    assert [(family.rule, family.schedules) for family in herd.core] == [("0 2 * * *", 380), ("every 2 hours", 32)]
    assert [family.rule for family in herd.others] == ["every 15 minutes"]
    assert herd.count == counted.starts[120] == 412 + herd.others[0].runs


def test_a_herd_that_comes_every_hour_is_one_herd() -> None:
    counted = a_day(*crowd(cron("0 * * * *"), 50), *crowd(cron("0 2 * * *"), 20, "night"))
    first, second = herds(counted).found
    assert (first.at, first.count, first.again) == (START + 2 * HOUR, 70, ())
    assert (second.at, second.count, len(second.again)) == (START, 50, 22)


def test_what_is_spread_is_no_herd() -> None:
    spread = [*crowd(cron("H H * * *"), 2_000), *crowd(every("15m", spread=True), 500, "poll")]
    assert herds(a_day(*spread)).found == ()


def test_a_few_are_no_herd() -> None:
    assert herds(a_day(*crowd(cron("0 2 * * *"), 9))).found == ()
    assert herds(a_day(*crowd(cron("0 2 * * *"), 11))).found != ()


def test_one_busy_schedule_is_no_herd() -> None:
    assert herds(a_day(Standing("burst", cron("* 0 2 * * *", seconds=True)))).found == ()


def test_where_no_minute_stands_out_a_second_may() -> None:
    [herd] = herds(a_day(*crowd(cron("* * * * *"), 100))).found
    assert (herd.count, herd.at_once) == (100, 100)


def test_jitter_that_is_there_already_is_taken_into_account() -> None:
    [sharp] = herds(a_day(*crowd(cron("0 2 * * *"), 500))).found
    [moved] = herds(a_day(*crowd(cron("0 2 * * *"), 500, jitter=5 * MINUTE))).found
    assert (sharp.at_once, sharp.count) == (500, 500)
    assert moved.at_once < 20
    assert moved.count < 150


def test_the_work_of_a_herd_is_told_where_it_is_known() -> None:
    known, unknown = crowd(cron("0 2 * * *"), 20, takes=3 * SECOND), crowd(cron("0 2 * * *"), 20, "new")
    assert herds(a_day(*known)).found[0].works == MINUTE
    assert herds(a_day(*known, *unknown)).found[0].works is None


# --------------------------------------------------------------------------------------------------------------- relief


@pytest.mark.parametrize(
    ("rule", "change", "spread", "period"),
    [
        (cron("0 2 * * *"), "H 2 * * * instead of 0 2 * * *", cron("H 2 * * *"), (0, 60)),
        (cron("59 2 * * *"), "H 2 * * * instead of 59 2 * * *", cron("H 2 * * *"), (-59, 1)),
        (cron("@hourly"), "H * * * * instead of @hourly", cron("H * * * *"), (0, 60)),
        (cron("*/30 * * * *"), "H/30 * * * * instead of */30 * * * *", cron("H/30 * * * *"), (0, 30)),
        (every("15m"), 'every("15m", spread=True)', every("15m", spread=True), (0, 15)),
    ],
)
def test_the_peak_that_spreading_leaves_is_the_peak_that_it_makes(
    rule: Rule, change: str, spread: Rule, period: tuple[int, int]
) -> None:
    herd = herds(a_day(*crowd(rule, 600))).found[0]
    by_hash = herd.relief[0]
    assert (by_hash.change, by_hash.schedules) == (change, 600)
    # In the time that this herd is spread over: others, elsewhere, are spread as well.
    made = a_day(*crowd(spread, 600))
    first, last = ((herd.at - START) // MINUTE + minutes for minutes in period)
    assert by_hash.peak == max(made.starts[first:last])


def test_the_peak_that_jitter_leaves_is_the_peak_that_it_makes() -> None:
    standing = [*crowd(cron("0 2 * * *"), 100), *crowd(every("10s", spread=True), 3, "poll")]
    herd = herds(a_day(*standing)).found[0]
    by_jitter = herd.relief[-1]
    assert by_jitter.change == 'jitter="5m"'
    made = a_day(*crowd(cron("0 2 * * *"), 100, jitter=5 * MINUTE), *crowd(every("10s", spread=True), 3, "poll"))
    assert by_jitter.peak == max(made.starts)


@pytest.mark.parametrize(
    "rule",
    [cron("H 2 * * *"), cron("1,2,50 2 * * *"), cron("* 2 * * *"), cron("0 0 2 * * *", seconds=True), every("5s")],
)
def test_a_rule_that_cannot_be_spread_is_left_to_jitter(rule: Rule) -> None:
    assert spread_rule(rule) is None


def test_rules_are_called_as_they_are_written() -> None:
    assert short(cron("0  2 * * *", tz="Europe/Paris")) == "0 2 * * * Europe/Paris"
    assert short(cron("H 2 * * *").named("books")) == "H 2 * * *"
    assert short(every("15m", spread=True).named("books")) == "every 15 minutes"
    assert short(cron("0 2 * * *") | every("6h")) == "at 02:00 UTC every day; or every 6 hours"


def test_an_instant_lies_in_a_bucket_or_outside_of_the_span() -> None:
    counted = load([], START, START + 90 * SECOND, MINUTE)
    assert len(counted.starts) == 2
    assert [counted.number(START + moment) for moment in (-1, 0, 60 * SECOND, 90 * SECOND)] == [None, 0, 1, None]
    assert instant(datetime(2026, 6, 1, tzinfo=UTC)) == counted.at(0)
