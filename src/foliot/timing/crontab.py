"""The cron rule: finds the ticks of an expression by walking civil dates, forwards or backwards with the same code."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Literal

from foliot.domain.instant import DAY, LAST, MINUTE, Duration, Instant
from foliot.errors import InvalidRule
from foliot.timing.expression import Fields, read
from foliot.timing.words import describe

Step = Literal[1, -1]
"""The direction of a search: 1 into the future, -1 into the past."""

_EPOCH = date(1970, 1, 1).toordinal()
_MINUTES_A_DAY = DAY // MINUTE
_FIRST_MINUTE = (date.min.toordinal() - _EPOCH) * _MINUTES_A_DAY
_LAST_MINUTE = LAST // MINUTE


@dataclass(frozen=True, slots=True)
class Cron:
    """A five-field cron expression, evaluated in UTC."""

    expression: str
    tz: str = "UTC"
    fields: Fields = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tz not in ("UTC", "Etc/UTC"):
            raise InvalidRule(
                f'the time zone {self.tz!r:.80} is not supported yet; write the rule in UTC, and leave tz out or "UTC"'
            )
        # A frozen value may still be completed while it is being made.
        object.__setattr__(self, "fields", read(self.expression))
        object.__setattr__(self, "expression", " ".join(self.expression.split()))
        object.__setattr__(self, "tz", "UTC")

    @property
    def delay(self) -> Duration | None:
        """None: the ticks come from the calendar."""

    def next(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`; None past the year 9999."""
        return self._nearest(max(after // MINUTE + 1, _FIRST_MINUTE), 1)

    def previous(self, before: Instant) -> Instant | None:
        """The last tick strictly before `before`."""
        return self._nearest(min((before - 1) // MINUTE, _LAST_MINUTE), -1)

    def encode(self) -> str:
        """One line of JSON, for the store."""
        return json.dumps({"cron": self.expression, "tz": self.tz}, separators=(",", ":"))

    def explain(self) -> str:
        """The rule in plain words."""
        return describe(self.fields, self.tz)

    def _nearest(self, minute: int, step: Step) -> Instant | None:
        """The tick at `minute`, counted from the epoch, or else the nearest one in the direction of `step`."""
        if not _FIRST_MINUTE <= minute <= _LAST_MINUTE:
            return None
        day, minute_of_day = divmod(minute, _MINUTES_A_DAY)
        start = date.fromordinal(_EPOCH + day)
        for found in self._days(start, step):
            time = self._time(minute_of_day if found == start else None, step)
            if time is not None:
                return (found.toordinal() - _EPOCH) * DAY + time * MINUTE
        return None

    def _days(self, start: date, step: Step) -> Iterator[date]:
        """The days that match, from `start` on: whole months at a time, so that a leap day is found in a few steps."""
        fields = self.fields
        for year in range(start.year, date.max.year + 1 if step > 0 else 0, step):
            for month in _onward(fields.months, start.month if year == start.year else None, step):
                days = _days_of_month(fields.days, fields.weekdays, fields.either, *monthrange(year, month))
                first = start.day if (year, month) == (start.year, start.month) else None
                for day in _onward(days, first, step):
                    yield date(year, month, day)

    def _time(self, limit: int | None, step: Step) -> int | None:
        """The first time of a day, in minutes, from `limit` on."""
        first_hour, first_minute = (None, None) if limit is None else divmod(limit, 60)
        for hour in _onward(self.fields.hours, first_hour, step):
            for minute in _onward(self.fields.minutes, first_minute if hour == first_hour else None, step):
                return hour * 60 + minute
        return None


def _onward(values: tuple[int, ...], limit: int | None, step: Step) -> tuple[int, ...]:
    """The sorted `values` from `limit` on, itself included, in the direction of `step`; without a limit, all."""
    if limit is None:
        return values[::step]
    if step > 0:
        return values[bisect_left(values, limit) :]
    return values[: bisect_right(values, limit)][::-1]


@lru_cache(maxsize=4096)
def _days_of_month(
    days: tuple[int, ...], weekdays: tuple[int, ...], either: bool, first: int, length: int
) -> tuple[int, ...]:
    """The days that match in a month of `length` days whose day 1 is a `first` (Monday is 0, as `calendar` counts)."""
    # Cron counts weekdays from Sunday, so day 1 of a month that begins on a Monday is weekday (0 + 1) % 7.
    numbered = ((day, day in days, (first + day) % 7 in weekdays) for day in range(1, length + 1))
    return tuple(day for day, dated, named in numbered if (dated or named if either else dated and named))
