"""The rules that need no calendar: one instant, a fixed rate, a fixed delay."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from foliot.domain.instant import (
    DAY,
    LAST,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    Duration,
    Instant,
    duration,
    instant,
    rfc3339,
    spell,
)
from foliot.errors import InvalidRule
from foliot.timing.combine import Composable, refused_as_rule
from foliot.timing.words import WEEKDAYS, clock, each, elapsed

SHORTEST_INTERVAL: Duration = 100 * MILLISECOND
"""Every tick is a durable row; a faster pace is a loop inside one job, not a schedule."""

SHORTEST_DELAY: Duration = MILLISECOND
"""Below this a fixed delay would be a busy loop through the store."""

LONGEST: Duration = 36_525 * DAY
"""A hundred years: any time of today and this much still has a date."""

_FIRST: Instant = instant(datetime.min.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class At(Composable):
    """One instant, once."""

    when: Instant

    def __post_init__(self) -> None:
        _check_instant(self.when)

    def next(self, after: Instant) -> Instant | None:
        """The instant, while it is still to come."""
        return self.when if self.when > after else None

    def previous(self, before: Instant) -> Instant | None:
        """The instant, once it has passed."""
        return self.when if self.when < before else None

    def shape(self) -> dict[str, Any]:
        """As JSON."""
        return {"at": rfc3339(self.when)}

    def explain(self) -> str:
        """The rule in plain words."""
        return f"once, at {rfc3339(self.when)}"


@dataclass(frozen=True, slots=True)
class Every(Composable):
    """A fixed rate: ticks at `start`, `start + interval`, and so on, in elapsed time."""

    interval: Duration
    start: Instant = 0
    spread: bool = False
    """Whether each schedule gets a start of its own, so that many with one rule do not come all at once."""

    def __post_init__(self) -> None:
        _check_instant(self.start)
        if self.interval < SHORTEST_INTERVAL:
            raise InvalidRule(
                f"an interval of {self.interval / MILLISECOND:g} ms is too short; the shortest is "
                f"{spell(SHORTEST_INTERVAL)}. For a faster pace, loop inside one job"
            )
        _check_length(self.interval, "an interval")

    def next(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`; None past the year 9999."""
        tick = self.start + (self.index(after) + 1) * self.interval
        return tick if tick <= LAST else None

    def previous(self, before: Instant) -> Instant | None:
        """The last tick strictly before `before`; None when that is before the start."""
        index = self.index(min(before - 1, LAST))
        return self.start + index * self.interval if index >= 0 else None

    def index(self, moment: Instant) -> int:
        """The number of the last tick at or before `moment`, counted from 0; -1 before the start."""
        return max(-1, (moment - self.start) // self.interval)

    def named(self, schedule: str) -> Every:
        """The same rate; where it is spread, from a start that the schedule's id chooses, within one interval."""
        if not self.spread:
            return self
        digest = blake2b(schedule.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        # Whole seconds where they fit: people read these times.
        grain = SECOND if self.interval >= MINUTE else MILLISECOND
        return Every(self.interval, int.from_bytes(digest) % max(1, self.interval // grain) * grain)

    def shape(self) -> dict[str, Any]:
        """As JSON. The start is always written: a stored rule depends on no default."""
        spread = {"spread": True} if self.spread else {}
        return {"every": spell(self.interval), "start": rfc3339(self.start)} | spread

    def explain(self) -> str:
        """The rule in plain words."""
        counts = self.start or (self.phase() and self.interval not in (DAY, WEEK))
        return each(self.interval) + self.phase() + (f", counted from {rfc3339(self.start)}" if counts else "")

    def phase(self) -> str:
        """When the ticks of a rate of whole days are, in UTC: `, on Thursday at 00:00 UTC`."""
        if self.interval % DAY or self.spread:
            return ""
        time = f"at {clock(*divmod(self.start // MINUTE % 1440, 60), self.start // SECOND % 60)} UTC"
        # Day 0 was a Thursday.
        weekday = WEEKDAYS[(self.start // DAY + 3) % 7]
        return f", {time}" if self.interval % WEEK else f", on {weekday} {time}"


@dataclass(frozen=True, slots=True)
class After(Composable):
    """A fixed delay: the next run starts `delay` after the last one ended. It has no calendar, so no ticks to list."""

    delay: Duration = field()  # not the property of the same name, which would become its default

    def __post_init__(self) -> None:
        if self.delay < SHORTEST_DELAY:
            raise InvalidRule(
                f"a delay of {self.delay / MILLISECOND:g} ms is too short; the shortest is {spell(SHORTEST_DELAY)}"
            )
        _check_length(self.delay, "a delay")

    def next(self, after: Instant) -> Instant | None:
        """None: the end of a run makes the next tick."""

    def previous(self, before: Instant) -> Instant | None:
        """None: the end of a run makes the next tick."""

    def shape(self) -> dict[str, Any]:
        """As JSON."""
        return {"after": spell(self.delay)}

    def explain(self) -> str:
        """The rule in plain words."""
        return f"{elapsed(self.delay)} after the last run ended"


def at(when: datetime) -> At:
    """Once, at an aware datetime."""
    with refused_as_rule():
        return At(instant(when))


def every(interval: str | float | timedelta, *, start: datetime | None = None, spread: bool = False) -> Every:
    """At a fixed rate, counted from the Unix epoch (so `every("1h")` is on the hour) or from `start`.

    With `spread=True` each schedule counts from a start of its own, chosen by its id: 40,000 schedules
    `every("15m", spread=True)` come as 44 a second, not all at once.
    """
    with refused_as_rule():
        if spread and start is not None:
            raise InvalidRule("give start= or spread=True, not both: each sets the start of the count")
        return Every(duration(interval), 0 if start is None else instant(start), bool(spread))


def after(delay: str | float | timedelta) -> After:
    """At a fixed delay, from the end of one run to the start of the next: `after("10m")`."""
    with refused_as_rule():
        return After(duration(delay))


def _check_instant(moment: Instant) -> None:
    # An aware datetime near either end of the calendar can lie outside it once it is turned to UTC.
    if not _FIRST <= moment <= LAST:
        raise InvalidRule("the instant lies outside the years 1 to 9999 in UTC; give one within them")


def _check_length(length: Duration, what: str) -> None:
    if length > LONGEST:
        raise InvalidRule(f"{what} of {length // DAY} days is too long; the longest is {LONGEST // DAY} days")
