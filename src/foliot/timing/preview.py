"""A rule, day by day: how often it comes, when, and what the clocks do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice
from math import prod

from foliot.domain.instant import DAY, FIRST, HOUR, LAST, SECOND, Instant
from foliot.domain.rule import Rule
from foliot.timing.cron import Cron
from foliot.timing.elapsed import Every
from foliot.timing.surprises import Surprise, dst_surprises, written
from foliot.timing.words import clock, elapsed
from foliot.timing.zones import Zone, zone

MOST_TIMES = 100
"""How many times of a day are kept one by one."""
MOST_COUNTED = 1_500
"""How far the ticks of a day are counted one by one, where no arithmetic counts them."""
_MOST_IN_AN_HOUR = 10_000
_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Day:
    """One day on the wall calendar of a zone."""

    date: date
    start: Instant
    end: Instant
    """Where the next day begins: a day has not always 24 hours."""
    count: int
    is_capped: bool
    """Whether there are more than `count` says."""
    times: tuple[Instant, ...]
    """The first of its ticks."""
    change: str | None
    """What the clocks do on this day, and what that does to the rule."""


def preview(rule: Rule, first: Instant, days: int, tz: str | None = None) -> list[Day]:
    """The days from the one that `first` lies in, whole, on the calendar of the rule's zone, or of another."""
    where = zone(tz or rule.tz)
    # Where the calendar ends, some zones are in a year that has no date.
    today = where.local(min(max(first, FIRST + 2 * DAY), LAST - 2 * DAY) // SECOND)[0].date()
    dates = [today + timedelta(days=number) for number in range(min(days, (date.max - today).days))]
    bounds = [_midnight(where, day) for day in dates]
    surprises = dst_surprises(rule, bounds[0], bounds[-1] + 2 * _DAY * SECOND) if bounds else []
    return [_day(rule, where, day, surprises) for day in dates]


def day_bounds(day: date, tz: str) -> tuple[Instant, Instant]:
    """When a day of a zone's calendar begins, and when the next one does."""
    where = zone(tz)
    return _midnight(where, day), _midnight(where, day + timedelta(days=1))


def by_hour(rule: Rule, day: Day) -> list[int]:
    """How many ticks each hour of a day has, counted from its start."""
    hours = range(day.start, day.end, HOUR)
    return [_count(rule, start, min(start + HOUR, day.end), _MOST_IN_AN_HOUR)[0] for start in hours]


def _day(rule: Rule, where: Zone, day: date, surprises: list[Surprise]) -> Day:
    start, end = _midnight(where, day), _midnight(where, day + timedelta(days=1))
    changes = where.changes(start // SECOND, end // SECOND)
    ticks = tuple(islice(_ticks(rule, start, end), MOST_TIMES))
    count, is_capped = len(ticks), False
    if count == MOST_TIMES:
        count, is_capped = _count_day(rule, start, end, bool(changes))
    told = [surprise.text for surprise in surprises if start <= surprise.at < end] or [
        f"{_told(change, day)}; this does not affect the rule" for change in changes if change[0] < end // SECOND
    ]
    return Day(day, start, end, count, is_capped, ticks, "; ".join(told) or None)


def _count_day(rule: Rule, start: Instant, end: Instant, has_changes: bool) -> tuple[int, bool]:
    """The ticks of a day that has some, and whether there are more."""
    if not isinstance(rule, Cron):
        return _count(rule, start, end)
    if has_changes:  # rare enough to be walked through
        return _count(rule, start, end, 2 * _DAY)
    return prod(map(len, (rule.fields.hours, rule.fields.minutes, rule.fields.seconds))), False


def _count(rule: Rule, start: Instant, end: Instant, most: int = MOST_COUNTED) -> tuple[int, bool]:
    """The ticks from `start` on and before `end`, at most so many, and whether there are more."""
    if isinstance(rule, Every):
        return rule.index(end - 1) - rule.index(start - 1), False
    count = sum(1 for _ in islice(_ticks(rule, start, end), most + 1))
    return min(count, most), count > most


def _ticks(rule: Rule, start: Instant, end: Instant) -> Iterator[Instant]:
    tick = rule.next(start - 1)
    while tick is not None and tick < end:
        yield tick
        tick = rule.next(tick)


def _midnight(where: Zone, day: date) -> Instant:
    """When a day begins. Where its midnight comes twice, the first; where there is none, right after the gap."""
    wall = (day.toordinal() - _EPOCH) * _DAY
    stretch = where.at(wall - _DAY)
    while stretch.end + stretch.offset <= wall and (beside := where.beside(stretch, 1)) is not None:
        stretch = beside
    return max(wall - stretch.offset, stretch.start) * SECOND


def _told(change: tuple[int, int, int], day: date) -> str:
    at, before, after = change
    minutes = (at + before) // 60 - (day.toordinal() - _EPOCH) * 1440
    way = "forward" if after > before else "back"
    length = elapsed(abs(after - before) * SECOND)
    return f"on {written(day)} the clocks are set {way} {length} at {clock(*divmod(minutes, 60))}"
