"""Where clocks are changed: what runs, when, and how often. Each example is a date on which it really happened."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from foliot.domain.instant import MINUTE, SECOND, Instant, instant
from foliot.errors import InvalidRule
from foliot.timing import Cron, cron, upcoming
from foliot.timing.dst import PRESETS
from tests.timing.oracles import table

NEW_YORK = "America/New_York"


def moment(text: str, tz: str) -> Instant:
    """An instant from a wall time, or from one with its offset."""
    when = datetime.fromisoformat(text)
    return instant(when if when.tzinfo else when.replace(tzinfo=table(tz)))


def shown(tick: Instant, tz: str) -> str:
    return datetime.fromtimestamp(tick // SECOND, table(tz)).isoformat(" ", "minutes")


def ticks(expression: str, tz: str, start: str, count: int, **policy: str) -> list[str]:
    """Tick by tick, on the zone's own clock: `2025-03-09 03:00-04:00`."""
    return [shown(tick, tz) for tick in upcoming(cron(expression, tz=tz, **policy), moment(start, tz), count)]  # type: ignore[arg-type]


def on(day: str, expression: str, tz: str, **policy: str) -> list[str]:
    """The ticks of one day, forwards; they are the same backwards."""
    rule = cron(expression, tz=tz, **policy)  # type: ignore[arg-type]
    begin, end = moment(f"{day} 00:00", tz) - 12 * 60 * MINUTE, moment(f"{day} 23:59", tz) + 12 * 60 * MINUTE
    forwards = [tick for tick in upcoming(rule, begin, 200) if tick < end]
    backwards, before = [], end
    while (tick := rule.previous(before)) is not None and tick > begin:
        backwards.append(tick)
        before = tick
    assert backwards[::-1] == forwards
    return [text for tick in forwards if (text := shown(tick, tz)).startswith(day)]


# --------------------------------------------------------------------------------------------------- what people expect


def test_a_time_in_the_gap_runs_once_right_after_it() -> None:
    assert ticks("30 2 * * *", NEW_YORK, "2025-03-08 12:00", 3) == [
        "2025-03-09 03:00-04:00",
        "2025-03-10 02:30-04:00",
        "2025-03-11 02:30-04:00",
    ]


def test_a_time_in_the_fold_runs_once_on_its_first_pass() -> None:
    assert on("2025-11-02", "30 1 * * *", NEW_YORK) == ["2025-11-02 01:30-04:00"]


def test_an_hourly_rule_runs_on_through_the_fold() -> None:
    assert ticks("0 * * * *", NEW_YORK, "2025-11-02 00:30", 3) == [
        "2025-11-02 01:00-04:00",
        "2025-11-02 01:00-05:00",
        "2025-11-02 02:00-05:00",
    ]


def test_a_rule_that_starts_with_a_star_makes_up_for_nothing() -> None:
    assert on("2025-03-09", "*/15 2 * * *", NEW_YORK) == []


def test_many_fixed_times_in_a_gap_run_once() -> None:
    assert on("2025-03-09", "0,15,30,45 2 * * *", NEW_YORK) == ["2025-03-09 03:00-04:00"]


def test_a_time_that_the_gap_ends_with_is_one_tick() -> None:
    assert on("2025-03-09", "0,30 2-3 * * *", NEW_YORK) == ["2025-03-09 03:00-04:00", "2025-03-09 03:30-04:00"]


def test_a_gap_of_half_an_hour() -> None:
    assert on("2025-10-05", "15 2 * * *", "Australia/Lord_Howe") == ["2025-10-05 02:30+11:00"]
    assert on("2025-10-05", "30 2 * * *", "Australia/Lord_Howe") == ["2025-10-05 02:30+11:00"]


def test_a_fold_of_half_an_hour() -> None:
    assert on("2025-04-06", "45 1 * * *", "Australia/Lord_Howe") == ["2025-04-06 01:45+11:00"]
    assert on("2025-04-06", "15 * * * *", "Australia/Lord_Howe")[:3] == [
        "2025-04-06 00:15+11:00",
        "2025-04-06 01:15+11:00",
        "2025-04-06 02:15+10:30",
    ]


def test_a_day_that_was_skipped_has_no_runs() -> None:
    assert ticks("0 12 * * *", "Pacific/Apia", "2011-12-28 13:00", 3) == [
        "2011-12-29 12:00-10:00",
        "2011-12-31 12:00+14:00",
        "2012-01-01 12:00+14:00",
    ]


@pytest.mark.parametrize("gap", ["run_after", "skip", "shift_forward", "shift_backward"])
def test_a_skipped_day_is_skipped_under_every_policy(gap: str) -> None:
    assert ticks("0 12 * * *", "Pacific/Apia", "2011-12-29 13:00", 1, gap=gap) == ["2011-12-31 12:00+14:00"]


def test_a_gap_of_three_hours_is_still_one_to_make_up_for() -> None:
    assert on("2021-10-03", "20 1 * * *", "Antarctica/Casey") == ["2021-10-03 03:01+11:00"]


def test_midnight_in_a_gap() -> None:
    assert on("2025-04-25", "0 0 * * *", "Africa/Cairo") == ["2025-04-25 01:00+03:00"]


def test_midnight_in_a_fold_belongs_to_its_first_pass() -> None:
    assert ticks("0 0 * * *", "America/Havana", "2025-11-01 12:00", 2) == [
        "2025-11-02 00:00-04:00",
        "2025-11-03 00:00-05:00",
    ]


def test_a_fold_that_leads_back_into_yesterday() -> None:
    # At 00:01 on Sunday it was 23:01 on Saturday once more.
    assert on("2010-11-06", "30 23 * * *", "America/St_Johns") == ["2010-11-06 23:30-02:30"]
    assert on("2010-11-07", "0 0 * * *", "America/St_Johns") == ["2010-11-07 00:00-02:30"]
    assert on("2010-11-07", "2 0 * * *", "America/St_Johns") == ["2010-11-07 00:02-03:30"]
    assert on("2010-11-07", "0 */2 * * *", "America/St_Johns")[:3] == [
        "2010-11-07 00:00-02:30",
        "2010-11-07 00:00-03:30",
        "2010-11-07 02:00-03:30",
    ]


def test_a_leap_day_waits_over_the_year_2100() -> None:
    assert ticks("0 0 29 2 *", "Europe/Paris", "2096-02-29 12:00", 1) == ["2104-02-29 00:00+01:00"]


def test_a_star_with_a_step_needs_both_days() -> None:
    found = ticks("0 0 */2 * 1", "Europe/Paris", "2025-06-01 00:00", 3)
    assert [text[:10] for text in found] == ["2025-06-09", "2025-06-23", "2025-07-07"]


def test_a_fifth_monday_in_february_is_decades_away() -> None:
    found = ticks("0 0 * 2 1#5", "Europe/Paris", "2025-01-01 00:00", 3)
    assert [text[:10] for text in found] == ["2044-02-29", "2072-02-29", "2112-02-29"]


def test_a_start_in_the_second_pass_never_goes_back() -> None:
    inside = "2025-11-02 01:10-05:00"
    assert ticks("30 1 * * *", NEW_YORK, inside, 1) == ["2025-11-03 01:30-05:00"], "it ran on the first pass"
    assert ticks("30 1 * * *", NEW_YORK, inside, 1, fold="second") == ["2025-11-02 01:30-05:00"]
    assert ticks("*/15 * * * *", NEW_YORK, inside, 1) == ["2025-11-02 01:15-05:00"]
    rule = cron("30 1 * * *", tz=NEW_YORK)
    assert rule.previous(moment(inside, NEW_YORK)) == moment("2025-11-02 01:30-04:00", NEW_YORK)


def test_a_start_inside_the_first_pass_still_has_it_to_come() -> None:
    assert ticks("30 1 * * *", NEW_YORK, "2025-11-02 01:10-04:00", 2) == [
        "2025-11-02 01:30-04:00",
        "2025-11-03 01:30-05:00",
    ]


# -------------------------------------------------------------------------------------------------- policy by policy


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("run_after", ["03:00"]),
        ("skip", []),
        ("shift_forward", ["03:10", "03:40"]),
        ("shift_backward", ["01:10", "01:40"]),
    ],
)
@pytest.mark.parametrize("fold", ["first", "second", "both"])
def test_what_becomes_of_times_in_a_gap(gap: str, fold: str, expected: list[str]) -> None:
    found = on("2025-03-09", "10,40 2 * * *", NEW_YORK, gap=gap, fold=fold)
    assert [text[11:16] for text in found] == expected


@pytest.mark.parametrize("gap", ["run_after", "skip", "shift_forward", "shift_backward"])
@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["01:10-04:00", "01:40-04:00"]),
        ("second", ["01:10-05:00", "01:40-05:00"]),
        ("both", ["01:10-04:00", "01:40-04:00", "01:10-05:00", "01:40-05:00"]),
    ],
)
def test_what_becomes_of_times_in_a_fold(gap: str, fold: str, expected: list[str]) -> None:
    found = on("2025-11-02", "10,40 1 * * *", NEW_YORK, gap=gap, fold=fold)
    assert [text[11:] for text in found] == expected


def test_shifted_times_and_their_own_hour_are_one_tick() -> None:
    both_hours = on("2025-03-09", "30 2,3 * * *", NEW_YORK, gap="shift_forward")
    assert both_hours == ["2025-03-09 03:30-04:00"]
    assert on("2025-03-09", "30 1,2 * * *", NEW_YORK, gap="shift_backward") == ["2025-03-09 01:30-05:00"]


def test_a_star_rule_can_be_told_to_keep_to_the_wall_clock() -> None:
    assert on("2025-03-09", "*/30 2 * * *", NEW_YORK, interval_like="never") == ["2025-03-09 03:00-04:00"]
    hourly = on("2025-11-02", "0 * * * *", NEW_YORK, interval_like="never")
    assert len(hourly) == 24, "the repeated hour is silent"
    assert len(on("2025-11-02", "0 * * * *", NEW_YORK)) == 25
    assert len(on("2025-03-09", "0 * * * *", NEW_YORK)) == 23


def test_seconds_and_years_change_nothing_about_gaps_and_folds() -> None:
    def firsts(rule: Cron, start: str) -> list[str]:
        return [shown(tick, NEW_YORK) for tick in upcoming(rule, moment(start, NEW_YORK), 2)]

    fixed = Cron("0 30 2 * * * 2025-2030", NEW_YORK)
    assert firsts(fixed, "2025-03-08 12:00") == ["2025-03-09 03:00-04:00", "2025-03-10 02:30-04:00"]
    assert firsts(Cron("0 30 1 * * *", NEW_YORK, sixth="seconds"), "2025-11-02 00:00") == [
        "2025-11-02 01:30-04:00",
        "2025-11-03 01:30-05:00",
    ]
    each_second = Cron("*/30 59 1 * * *", NEW_YORK, sixth="seconds")
    assert firsts(each_second, "2025-11-02 01:59:00-04:00")[1] == "2025-11-03 01:59-05:00", "a star in the seconds"


def test_a_rule_whose_only_time_was_skipped_is_refused() -> None:
    with pytest.raises(InvalidRule, match="in Pacific/Apia its wall times do not exist"):
        Cron("0 12 30 12 * 2011", "Pacific/Apia", sixth="year")
    assert Cron("0 12 30 12 * 2011", "Pacific/Pago_Pago", sixth="year").next(0) is not None


# -------------------------------------------------------------------------------------------------------- wall times


def test_a_wall_time_tells_the_passes_apart() -> None:
    for fold, expected in (("first", "2025-11-02T01:30:00"), ("second", "2025-11-02T01:30:00/2"), ("both", None)):
        rule = cron("30 1 * * *", tz=NEW_YORK, fold=fold)
        assert rule.wall(rule.next(moment("2025-11-02 00:00", NEW_YORK)) or 0) == expected


def test_wall_times_sort_as_their_ticks_do() -> None:
    for fold in ("first", "second"):
        rule = cron("*/10 * * * *", tz=NEW_YORK, fold=fold, interval_like="never")
        walls = [rule.wall(tick) or "" for tick in upcoming(rule, moment("2025-11-02 00:00", NEW_YORK), 30)]
        assert walls == sorted(set(walls))


def test_a_rule_about_elapsed_time_promises_no_wall_time() -> None:
    rule = cron("*/15 * * * *", tz=NEW_YORK)
    assert rule.wall(rule.next(0) or 0) is None
    kept = cron("*/15 * * * *", tz=NEW_YORK, interval_like="never")
    assert kept.wall(moment("2025-06-01 12:15", NEW_YORK)) == "2025-06-01T12:15:00"


# ----------------------------------------------------------------------------------------------------------- presets

PRESET_EXAMPLES = {
    "vixie": (["03:00-04:00"], ["01:30-04:00"], 25),
    # Its section 3.3.5: the offset before the gap, and the first of two.
    "rfc5545": (["03:30-04:00"], ["01:30-04:00"], 25),
    # `systemd-analyze calendar` says so, and test_differential.py asks it.
    "systemd": ([], ["01:30-04:00"], 24),
    # Read in its CronExpression, which leaves gaps and folds to java.util.Calendar: standard time wins.
    "quartz": ([], ["01:30-05:00"], 24),
    # Its own tests have 1:33:33 twice on such a day, and none in a gap.
    "temporal": ([], ["01:30-04:00", "01:30-05:00"], 25),
}


def test_every_preset_has_its_example() -> None:
    assert PRESET_EXAMPLES.keys() == PRESETS.keys()


@pytest.mark.parametrize("preset", PRESET_EXAMPLES)
def test_a_preset_does_what_the_other_scheduler_does(preset: str) -> None:
    in_gap, in_fold, hourly = PRESET_EXAMPLES[preset]
    assert [text[11:] for text in on("2025-03-09", "30 2 * * *", NEW_YORK, preset=preset)] == in_gap
    assert [text[11:] for text in on("2025-11-02", "30 1 * * *", NEW_YORK, preset=preset)] == in_fold
    assert len(on("2025-11-02", "0 * * * *", NEW_YORK, preset=preset)) == hourly
    assert len(on("2025-03-09", "0 * * * *", NEW_YORK, preset=preset)) == 23, "an hour that is missing never runs"


def test_what_is_said_besides_a_preset_wins() -> None:
    assert on("2025-03-09", "30 2 * * *", NEW_YORK, preset="systemd", gap="run_after") == ["2025-03-09 03:00-04:00"]


@pytest.mark.parametrize("option", ["preset", "gap", "fold", "interval_like"])
@pytest.mark.parametrize("value", ["", "firts", "FIRST", "x" * 1_000_000, 5, ["first"], b"first", "\ud800"])
def test_an_unknown_policy_is_refused_with_the_known_ones(option: str, value: str) -> None:
    with pytest.raises(InvalidRule, match=r"is unknown; give one of [a-z_]+, ") as refused:
        cron("0 2 * * *", **{option: value})  # type: ignore[arg-type]
    assert len(str(refused.value)) < 250


# ---------------------------------------------------------------------------------------------------- the ends of time


@pytest.mark.parametrize("tz", ["Pacific/Kiritimati", "Pacific/Pago_Pago", NEW_YORK, "UTC"])
def test_the_calendar_ends_alike_in_all_zones(tz: str) -> None:
    rule = cron("0 */6 * * *", tz=tz)
    last = rule.previous(10**30)
    first = rule.next(-(10**30))
    assert last is not None
    assert first is not None
    assert shown(last, "UTC").startswith("9999-12-31")
    assert shown(first, "UTC").startswith("0001-01-01")
    assert rule.next(last) is None
    assert rule.previous(first) is None


def test_ticks_a_century_apart_are_found_from_both_sides() -> None:
    rule = cron("0 0 29 2 */7", tz=NEW_YORK)  # a leap day on a Sunday
    found = upcoming(rule, moment("1890-01-01 00:00", NEW_YORK), 8)
    assert [shown(tick, NEW_YORK)[:4] for tick in found] == "1920 1948 1976 2004 2032 2060 2088 2128".split()
    assert all(rule.previous(later) == earlier for earlier, later in pairwise(found))
