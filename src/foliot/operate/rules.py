"""A rule of time before it is saved: in words, its next times, what the clocks do to it, day by day. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from foliot.domain.instant import SECOND, Instant, instant, rfc3339, to_datetime
from foliot.domain.rule import Rule
from foliot.operate.shapes import Shape
from foliot.timing import upcoming
from foliot.timing.mistakes import classic_mistakes
from foliot.timing.preview import Day
from foliot.timing.surprises import dst_surprises, wall_rules
from foliot.timing.zones import VERSION, zone


class Explained(NamedTuple):
    given: str
    rule: Rule
    tz: str
    """The zone that it is shown in."""
    ticks: list[Instant]
    changes: Sequence[str]
    """What the clocks do to it."""
    warnings: Sequence[str]


def explained(given: str, rule: Rule, after: Instant, count: int, tz: str, *, is_named: bool) -> Explained:
    shown = shown_zone(rule, tz)
    warnings = classic_mistakes(rule)
    if not is_named and rule.named("any") != rule:
        warnings.append("H differs by schedule; see the times of one schedule with --id NAME")
    return Explained(given, rule, shown, upcoming(rule, after, count), clock_changes(rule, after, shown), warnings)


def explained_shape(told: Explained) -> Shape:
    return {
        "rule": told.given,
        "tz": told.tz,
        "words": told.rule.explain(),
        "next": [rfc3339(tick) for tick in told.ticks],
        "local": [local(tick, told.tz).isoformat() for tick in told.ticks],
        "dst": list(told.changes),
        "warnings": list(told.warnings),
        "policy": dst_policy(told.rule),
        "tzdata": VERSION,
    }


def day_shape(day: Day) -> Shape:
    return {
        "date": day.date.isoformat(),
        "count": day.count,
        "capped": day.is_capped,
        "times": [rfc3339(tick) for tick in day.times],
        "dst": day.change,
    }


def shown_zone(rule: Rule, tz: str) -> str:
    """A rule is shown in its own zone; one that has none, as elapsed time, in the one that is asked for."""
    return zone(tz).name if rule.tz == "UTC" else rule.tz


def local(moment: Instant, tz: str) -> datetime:
    """An instant on the clocks of a zone."""
    try:
        return to_datetime(moment).astimezone(timezone(timedelta(seconds=zone(tz).offset(moment // SECOND))))
    except OverflowError:  # on the last day of the calendar, where it is the year 10000 already
        return to_datetime(moment)


def clock_changes(rule: Rule, after: Instant, tz: str) -> list[str]:
    """What the clocks do to it in what is left of the year; when that is nothing, in the next year."""
    year = local(after, tz).year
    ends = [
        instant(datetime(min(year + more, 9999), 1, 1, tzinfo=UTC)) - zone(tz).offset(after // SECOND) * SECOND
        for more in (1, 2)
    ]
    found = dst_surprises(rule, after, ends[0]) or dst_surprises(rule, ends[0], ends[1])
    return [surprise.text for surprise in found]


def dst_policy(rule: Rule) -> dict[str, str | bool] | None:
    """What is in force; None where it is not one answer: elapsed time alone, or rules with different ones."""
    found = {(leaf.dst, leaf.is_elapsed) for leaf in wall_rules(rule)}
    if len(found) != 1:
        return None
    policy, is_elapsed = found.pop()
    return {**{name: str(value) for name, value in policy._asdict().items()}, "elapsed": is_elapsed}
