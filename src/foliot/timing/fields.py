"""What a cron expression says, and the search for its wall times: whole months, then days, then the time of day.

Forwards and backwards are the same code: backwards in a day is forwards in its mirror image.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from foliot.timing.resolver import Step

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALWAYS = (tuple(range(1, 32)), tuple(range(1, 13)), tuple(range(7)), None)
"""Days, months, weekdays and years of a rule that has something to do every day."""


class DayMark(NamedTuple):
    """`L`, `L-3`, `15W`, `LW`: a day that depends on how its month lies."""

    day: int
    """Counted from the first day, 1, or from the last: 0, -1 and so on."""
    working: bool
    """Whether the nearest Monday to Friday of the same month is meant."""


class WeekdayMark(NamedTuple):
    """`5#3`, `5L`: the n-th, or the last, of a weekday in the month."""

    weekday: int
    nth: int
    """0 is the last one."""


class Fields(NamedTuple):
    """What an expression says, as sorted values."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday, 6 is Saturday."""
    years: tuple[int, ...] | None
    """None is every year."""
    day_marks: tuple[DayMark, ...]
    weekday_marks: tuple[WeekdayMark, ...]
    either: bool
    """True when a day needs only one of day of month and day of week; False when it needs both."""
    is_interval: bool
    """Whether minute or hour starts with a star, and so means elapsed time."""
    is_spread: bool
    """Whether some value was chosen by hash."""

    def in_month(self, first: int, length: int) -> tuple[int, ...]:
        """The days that match in a month of `length` days whose day 1 is the weekday `first`."""
        return _in_month(self.days, self.weekdays, self.day_marks, self.weekday_marks, self.either, first, length)

    def ever(self) -> bool:
        """Whether any day matches.

        Without a year, every month has begun on each weekday before 400 years are over, February in both lengths.
        """
        if self.years is not None:
            return any(self.in_month(*_shape(year, month)) for year, month in product(self.years, self.months))
        if self.days and self.days[0] <= 28 and self.weekdays:
            return True  # that day is in every month, and on each weekday in its turn
        lengths = {length for month in self.months for length in ((28, 29) if month == 2 else (_LENGTHS[month],))}
        return any(self.in_month(first, length) for first, length in product(range(7), lengths))


class FieldPattern:
    """The wall times of an expression. It remembers how months look; there are 28 kinds of them."""

    __slots__ = ("_backward", "_daily", "_days", "_fields", "_first", "_forward", "_last")

    def __init__(self, fields: Fields) -> None:
        seconds, minutes, hours = fields[:3]
        self._fields = fields
        self._forward = _TimesOfDay(hours, minutes, seconds)
        self._backward: _TimesOfDay | None = None
        self._first = hours[0] * 3600 + minutes[0] * 60 + seconds[0]
        self._last = hours[-1] * 3600 + minutes[-1] * 60 + seconds[-1]
        self._days: dict[tuple[int, int], tuple[int, ...]] = {}
        self._daily = fields[3:7] == _ALWAYS

    def nearest(self, wall: int, step: Step) -> int | None:
        """The wall time nearest to `wall`, itself included, in one direction."""
        day, second = divmod(wall, _DAY)
        if self._daily or self._matches(day):
            if step > 0:
                time = self._forward.onward(second)
                if time is not None:
                    return day * _DAY + time
            else:
                if self._backward is None:
                    self._backward = self._forward.mirrored()
                time = self._backward.onward(_DAY - 1 - second)
                if time is not None:
                    return day * _DAY + _DAY - 1 - time
        found = day + step if self._daily else self._day(day + step, step)
        return None if found is None else found * _DAY + (self._first if step > 0 else self._last)

    def _matches(self, day: int) -> bool:
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return False
        this = date.fromordinal(_EPOCH + day)
        fields = self._fields
        if this.month not in fields.months or (fields.years is not None and this.year not in fields.years):
            return False
        return this.day in self._in_month(this.year, this.month)

    def _day(self, start: int, step: Step) -> int | None:
        """The day nearest to `start` that matches, itself included."""
        if not _FIRST_DAY <= start <= _LAST_DAY:
            return None
        begin = date.fromordinal(_EPOCH + start)
        for year in self._years(begin.year, step):
            for month in _onward(self._fields.months, begin.month if year == begin.year else None, step):
                limit = begin.day if (year, month) == (begin.year, begin.month) else None
                for day in _onward(self._in_month(year, month), limit, step):
                    return date(year, month, day).toordinal() - _EPOCH
        return None

    def _years(self, start: int, step: Step) -> Sequence[int]:
        if self._fields.years is not None:
            return _onward(self._fields.years, start, step)
        return range(start, date.max.year + 1 if step > 0 else 0, step)

    def _in_month(self, year: int, month: int) -> tuple[int, ...]:
        shape = _shape(year, month)
        days = self._days.get(shape)
        if days is None:
            days = self._days[shape] = self._fields.in_month(*shape)
        return days


class _TimesOfDay(NamedTuple):
    """Hours, minutes and seconds, each of which goes with each."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def onward(self, start: int) -> int | None:
        """The first time of day, in seconds, at or after `start`."""
        hours, minutes, seconds = self
        hour, rest = divmod(start, 3600)
        minute, second = divmod(rest, 60)
        place = bisect_left(hours, hour)
        if place == len(hours):
            return None
        if hours[place] != hour:
            return hours[place] * 3600 + minutes[0] * 60 + seconds[0]
        inner = bisect_left(minutes, minute)
        if inner < len(minutes) and minutes[inner] == minute:
            if second <= seconds[-1]:
                return hour * 3600 + minute * 60 + seconds[bisect_left(seconds, second)]
            inner += 1
        if inner < len(minutes):
            return hour * 3600 + minutes[inner] * 60 + seconds[0]
        place += 1
        return hours[place] * 3600 + minutes[0] * 60 + seconds[0] if place < len(hours) else None

    def mirrored(self) -> _TimesOfDay:
        """The same times, counted back from the end of the day."""
        ends = zip(self, (23, 59, 59), strict=True)
        hours, minutes, seconds = (tuple(end - value for value in reversed(values)) for values, end in ends)
        return _TimesOfDay(hours, minutes, seconds)


@lru_cache(maxsize=5_000)
def _in_month(
    days: tuple[int, ...],
    weekdays: tuple[int, ...],
    day_marks: tuple[DayMark, ...],
    weekday_marks: tuple[WeekdayMark, ...],
    either: bool,
    first: int,
    length: int,
) -> tuple[int, ...]:
    """Remembered for all rules together: there are few kinds of months, and many rules for the same days."""
    if not either and not day_marks and len(weekdays) == 7:
        return days if days[-1] <= length else tuple(day for day in days if day <= length)
    if not either and not weekday_marks and len(days) == 31:
        return tuple(sorted(day for weekday in weekdays for day in range(1 + (weekday - first) % 7, length + 1, 7)))
    dated = {*days, *(mark for one in day_marks for mark in _marked(one, first, length))}
    if not either and len(weekdays) == 7:
        return tuple(sorted(day for day in dated if day <= length))
    named = {day for weekday in weekdays for day in range(1 + (weekday - first) % 7, length + 1, 7)}
    named |= {day for mark in weekday_marks for day in _nth(mark, first, length)}
    return tuple(sorted(day for day in (dated | named if either else dated & named) if day <= length))


def _onward(values: tuple[int, ...], limit: int | None, step: Step) -> tuple[int, ...]:
    """The sorted `values` from `limit` on, itself included, in the direction of `step`; without a limit, all."""
    if limit is None:
        return values[::step]
    if step > 0:
        return values[bisect_left(values, limit) :]
    return values[: bisect_right(values, limit)][::-1]


def _shape(year: int, month: int) -> tuple[int, int]:
    """The weekday of a month's first day, and how many days it has."""
    is_long = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return date(year, month, 1).toordinal() % 7, 29 if is_long else _LENGTHS[month]


def _marked(mark: DayMark, first: int, length: int) -> Iterator[int]:
    day = mark.day if mark.day > 0 else length + mark.day
    if not 1 <= day <= length:
        return
    weekday = (first + day - 1) % 7
    if mark.working and weekday == 6:
        day += -1 if day > 1 else 2
    elif mark.working and weekday == 0:
        day += 1 if day < length else -2
    yield day


def _nth(mark: WeekdayMark, first: int, length: int) -> range:
    """The days of the month that fall on the weekday, cut to the one that is meant."""
    days = range(1 + (mark.weekday - first) % 7, length + 1, 7)
    return days[-1:] if mark.nth == 0 else days[mark.nth - 1 : mark.nth]
