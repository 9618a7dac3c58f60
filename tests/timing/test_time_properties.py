"""What holds in every zone, over twenty years: rules about wall clocks against their definition, minute by minute.

`make test` looks at a few shifts of some zones, always the same ones; `make test-full` looks at a few of each zone,
`make torture` at all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise, product
from random import Random

import pytest

from foliot.domain.instant import SECOND, Instant
from foliot.errors import InvalidRule
from foliot.timing import Cron, upcoming
from foliot.timing.dst import Dst, Fold, Gap, IntervalLike
from tests.tiers import TORTURE, by_tier
from tests.timing.oracles import (
    DAY,
    EPOCH,
    FIRST,
    HOUR,
    LAST,
    MINUTE,
    Clock,
    Line,
    chosen_zones,
    near,
    offset,
    random_line,
    second_of,
    shifts,
)

POLICIES = [Dst(*policy) for policy in product(Gap, Fold, IntervalLike)]
REGIONS = sorted({zone.split("/")[0] if "/" in zone else "elsewhere" for zone in chosen_zones()})

if TORTURE:
    pytestmark = pytest.mark.timeout(3_600)


def of_region(region: str) -> Iterator[tuple[str, Random]]:
    """Its zones, and for each the same random choices every time."""
    for zone in chosen_zones():
        if (zone.split("/")[0] if "/" in zone else "elsewhere") == region:
            yield zone, Random(f"2026 {zone}")


def random_rule(random: Random, zone: str, **wanted: object) -> tuple[Line, Cron]:
    """A line that fires, and our rule for it."""
    while True:
        seconds = random.random() < 0.2
        line = random_line(random, seconds=seconds, **wanted)  # type: ignore[arg-type]
        try:
            return Line(line), Cron(line, zone, random.choice(POLICIES), "seconds" if seconds else None)
        except InvalidRule:
            continue


def forwards(rule: Cron, first: int, last: int) -> list[int]:
    """The ticks from `first` up to `last`, in seconds."""
    found, after = [], first * SECOND - 1
    while (tick := rule.next(after)) is not None and tick < last * SECOND:
        assert tick > after, f"{rule} goes from {after} to {tick}"
        found.append(tick // SECOND)
        after = tick
    return found


def backwards(rule: Cron, first: int, last: int) -> list[int]:
    found, before = [], last * SECOND
    while (tick := rule.previous(before)) is not None and tick >= first * SECOND:
        assert tick < before, f"{rule} goes back from {before} to {tick}"
        found.append(tick // SECOND)
        before = tick
    return found[::-1]


@pytest.mark.parametrize("region", REGIONS)
def test_around_a_shift_the_ticks_are_those_of_the_definition(region: str) -> None:
    for zone, random in of_region(region):
        some = shifts(zone) if TORTURE else random.sample(shifts(zone), min(2, len(shifts(zone))))
        for shift in some:
            first, last = shift.at // MINUTE * MINUTE - 15 * HOUR, shift.at // MINUTE * MINUTE + 15 * HOUR
            clock = Clock(zone, first, last)
            for _ in range(by_tier(3, 3, 4)):
                line, rule = random_rule(random, zone, near=near(shift))
                expected = clock.ticks(line, *rule.dst)
                assert forwards(rule, first, last) == expected, f"{rule} after {first}"
                assert backwards(rule, first, last) == expected, f"{rule} before {last}"
                check_from_within(rule, expected, [random.randint(first, last - 1) for _ in range(3)])
                check_from_within(rule, expected, [shift.at + random.randint(-HOUR, HOUR) for _ in range(3)])


def check_from_within(rule: Cron, ticks: list[int], starts: list[int]) -> None:
    """From any start, also one between two ticks, or on one."""
    for start in starts:
        after, before = bisect_right(ticks, start), bisect_left(ticks, start)
        if after < len(ticks):
            assert rule.next(start * SECOND) == ticks[after] * SECOND, f"{rule} after {start}"
        if before:
            assert rule.previous(start * SECOND) == ticks[before - 1] * SECOND, f"{rule} before {start}"


@pytest.mark.parametrize("region", REGIONS)
def test_next_and_previous_are_walks_over_the_same_ticks(region: str) -> None:
    for zone, random in of_region(region):
        for _ in range(by_tier(2, 2, 10)):
            _, rule = random_rule(random, zone)
            start = random.randint(FIRST, LAST) * SECOND + random.randint(0, SECOND - 1)
            ticks = upcoming(rule, start, 5)
            assert start < ticks[0], rule
            gone = rule.previous(ticks[0])
            assert gone is None or gone <= start, f"{rule} has {gone} between {start} and {ticks[0]}"
            for earlier, later in pairwise(ticks):
                assert earlier < later, rule
                assert rule.previous(later) == earlier, rule
                middle = random.randint(earlier, later - 1)
                assert (rule.next(middle), rule.previous(middle + 1)) == (later, earlier), f"{rule} at {middle}"


@pytest.mark.parametrize("region", REGIONS)
def test_a_tick_shows_a_time_of_the_line_or_makes_up_for_one_in_a_gap(region: str) -> None:
    for zone, random in of_region(region):
        gaps = [shift for shift in shifts(zone) if shift.after > shift.before]
        for _ in range(by_tier(2, 2, 10)):
            line, rule = random_rule(random, zone)
            for tick in upcoming(rule, random.randint(FIRST, LAST) * SECOND, 4):
                second = tick // SECOND
                if not shows(line, second + offset(zone, second)):
                    moved = [gap for gap in gaps if abs(second - gap.at) < gap.after - gap.before]
                    assert any(asked(line, gap.at + gap.before, gap.at + gap.after) for gap in moved), f"{rule} {tick}"


def shows(line: Line, wall: int) -> bool:
    return line.has_minute(EPOCH + timedelta(seconds=wall)) and wall % MINUTE in line.seconds


def asked(line: Line, first: int, last: int) -> bool:
    return any(line.has_minute(EPOCH + timedelta(seconds=wall)) for wall in range(first, last, MINUTE))


@pytest.mark.parametrize("region", REGIONS)
def test_under_fold_first_no_wall_time_runs_twice(region: str) -> None:
    for zone, random in of_region(region):
        folds = [shift for shift in shifts(zone) if shift.after < shift.before]
        for shift in folds if TORTURE else random.sample(folds, min(2, len(folds))):
            line = random_line(random, near=near(shift)).split()
            policy = Dst(random.choice(list(Gap)), Fold.FIRST, IntervalLike.NEVER)
            rule = Cron(" ".join([*line[:2], "*", "*", "*"]), zone, policy)
            ticks = forwards(rule, shift.at - 5 * HOUR, shift.at + 20 * HOUR)
            walls = [rule.wall(tick * SECOND) for tick in ticks]
            assert walls == sorted(set(walls)), rule  # type: ignore[type-var]
            assert not any("/2" in wall for wall in walls if wall), rule


def test_offsets_that_are_no_whole_minutes_are_obeyed() -> None:
    """Until the 1930s many zones kept the sun's time: Amsterdam was 19 minutes and 32 seconds ahead."""
    random = Random(1930)
    for zone in ("Europe/Amsterdam", "Africa/Monrovia", "Europe/Dublin", "Asia/Calcutta", "America/La_Paz"):
        for _ in range(20):
            line, rule = random_rule(random, zone)
            start: Instant = random.randint(second_of(1880, 1, 1), second_of(1937, 1, 1)) * SECOND
            policy = Dst(Gap.SKIP, Fold.BOTH, IntervalLike.NEVER)
            exact = Cron(rule.expression, zone, policy, rule.sixth)
            for tick in upcoming(exact, start, 4):
                wall = tick // SECOND + offset(zone, tick // SECOND)
                assert shows(line, wall), f"{exact} {tick}"
                assert exact.previous(tick + 1) == tick


def test_a_century_of_daily_ticks_has_one_for_each_day() -> None:
    """Twelve o'clock was never in a gap or a fold there; Apia left out a day, and was a day ahead from then on."""
    first, last = second_of(1970, 1, 1), second_of(2070, 1, 1)
    for zone in ("America/New_York", "Australia/Lord_Howe", "Pacific/Apia"):
        ticks = forwards(Cron("0 12 * * *", zone), first, last)
        assert len(ticks) == (last - first) // DAY
        assert {(tick + offset(zone, tick)) % DAY for tick in ticks} == {12 * HOUR}
