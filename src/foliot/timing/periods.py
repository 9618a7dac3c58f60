"""The wall times of an iCalendar recurrence: which days match, in which periods, at which times of day.

Three questions, kept apart. Which days match is found for a year at a time, and there are only 28 kinds of years. Which
periods count (every other week) is arithmetic, so that nothing is ever counted up from the start. The times of day are
found as those of cron are. A search leaps between the three until they agree.

dateutil asks the same questions, but cannot be bounded: where nothing matches it goes on to the year 9999, whatever its
`until`. It is an oracle in tests.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from foliot.errors import InvalidRule
from foliot.timing.effort import effort
from foliot.timing.fields import FieldPattern, Fields
from foliot.timing.resolver import Step

DAY = 86_400
MOST_TRIES = 100_000
"""Leaps of one search before it gives up, loudly. Rules that a person would write need a handful."""

_SET_COST = 5
"""A period of which BYSETPOS chooses nothing costs as much as this many leaps."""

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_LAST_YEAR = date.max.year
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Frequency(IntEnum):
    """How long a period is."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


SIZES = {
    Frequency.WEEKLY: 7 * DAY,
    Frequency.DAILY: DAY,
    Frequency.HOURLY: 3600,
    Frequency.MINUTELY: 60,
    Frequency.SECONDLY: 1,
}
"""In seconds, of the periods that are all equally long."""


class Weekday(NamedTuple):
    """`FR`, `-1FR`: 0 is Monday."""

    day: int
    nth: int = 0
    """0 is every one."""


class Days(NamedTuple):
    """Which days match. What is empty restricts nothing."""

    months: tuple[int, ...]
    weeks: tuple[int, ...]
    year_days: tuple[int, ...]
    month_days: tuple[int, ...]
    weekdays: tuple[Weekday, ...]
    week_start: int
    nth_of_month: bool
    """Whether the first Monday is that of each month, and not that of the year."""


class Times(NamedTuple):
    """The times of day: each goes with each."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]


class PeriodPattern:
    """The wall times of a rule from `start` to `until`, both included. A pattern, for the resolver."""

    def __init__(
        self,
        frequency: Frequency,
        interval: int,
        days: Days,
        times: Times,
        positions: tuple[int, ...],
        start: int,
        until: int,
    ) -> None:
        self._frequency = frequency
        self._interval = interval
        self._days = days
        self._times = _every_day(times)
        self._morning, self._night = self._times.nearest(0, 1) or 0, self._times.nearest(DAY - 1, -1) or 0
        self._positions = positions
        self._start = start
        self._until = until
        self._size = SIZES.get(frequency, 0)
        # Where numbered periods begin. The first day of 1970 was a Thursday.
        self._origin = (days.week_start - 3) * DAY if frequency is Frequency.WEEKLY else 0
        self._first = self._period(start)
        # What was looked at last. It is replaced, never changed: other threads may be looking, too.
        self._year: tuple[int, int, Sequence[int]] = (0, 0, ())
        self._chosen: tuple[int, list[int]] = (self._first - 1, [])

    def nearest(self, wall: int, step: Step, tries: int = MOST_TRIES) -> int | None:
        """The wall time nearest to `wall`, itself included, in one direction.

        1. Leap to the next day and time that match.
        2. When the period that they lie in does not count, leap to the next one that does, and look again.
        3. With BYSETPOS a period is taken as a whole: only some of its times count, and there may be none left.
        """
        return self.within(wall, self._until if step > 0 else self._start, step, tries)

    def within(self, wall: int, end: int, step: Step, tries: int = MOST_TRIES) -> int | None:
        """The same, up to `end`."""
        with effort() as store:
            if step > 0:
                return self._search(max(wall, self._start), step, tries, store, self._start, min(end, self._until))
            return self._search(min(wall, self._until), step, tries, store, max(end, self._start), self._until)

    def day(self, wall: int, step: Step) -> int | None:
        """The begin of the day that matches nearest to a wall time."""
        day = self._day(wall // DAY, step)
        return None if day is None else day * DAY

    def _search(self, wall: int, step: Step, tries: int, store: list[int], low: int, high: int) -> int | None:
        left = min(tries, store[0])
        while left > 0:
            found = self._match(wall, step)
            if found is None or not low <= found <= high:
                return None
            period = self._period(found)
            beyond = (period - self._first) % self._interval
            if not beyond:
                chosen = self._choose(period, wall, step) if self._positions else found
                if chosen is not None:
                    return chosen if low <= chosen <= high else None
            cost = 1 if beyond else _SET_COST
            left, store[0] = left - cost, store[0] - cost
            if step > 0:
                wall = self._begin(period - beyond + self._interval)
            else:
                wall = self._begin(period - beyond + (1 if beyond else 0)) - 1
        raise InvalidRule(
            f"this rule never fires, or too rarely: its INTERVAL or BYSETPOS excluded {tries:,} candidate times in a "
            f"row; change them"
        )

    # ------------------------------------------------------------------------------------------------------ days, times

    def _match(self, wall: int, step: Step) -> int | None:
        """The nearest day and time that match, whatever period they lie in."""
        day = wall // DAY
        near = self._day(day, step)
        if near == day:
            found = self._times.nearest(wall, step)
            if found is not None and found // DAY == day:
                return found
            near = self._day(day + step, step)
        return None if near is None else near * DAY + (self._morning if step > 0 else self._night)

    def _day(self, day: int, step: Step) -> int | None:
        begin, end, matching = self._year
        if not begin <= day < end:
            if not _FIRST_DAY <= day <= _LAST_DAY:
                return None
            begin, end, matching = self._year = _look(self._days, _year_of(self._days, day))
        place = bisect_left(matching, day - begin) if step > 0 else bisect_right(matching, day - begin) - 1
        if not 0 <= place < len(matching):
            year = _year_of(self._days, begin) + step
            while not (matching := _in_year(self._days, _TWINS[year % 400])):
                year += step
                if not 0 <= year <= _LAST_YEAR + 1:
                    return None
            begin, place = _begin(self._days, year), 0 if step > 0 else -1
        found = begin + matching[place]
        return found if _FIRST_DAY <= found <= _LAST_DAY else None

    # ---------------------------------------------------------------------------------------------------------- periods

    def _period(self, wall: int) -> int:
        """The number of the period that a wall time lies in."""
        if self._size:
            return (wall - self._origin) // self._size
        if self._frequency is Frequency.YEARLY:
            return _year_of(self._days, wall // DAY)
        this = date.fromordinal(_EPOCH + wall // DAY)
        return this.year * 12 + this.month - 1

    def _begin(self, period: int) -> int:
        """The first second of a period."""
        if self._size:
            return period * self._size + self._origin
        if self._frequency is Frequency.YEARLY:
            return _begin(self._days, period) * DAY
        year, month = divmod(period, 12)
        day = _new_year(year) if year > _LAST_YEAR else date(year, month + 1, 1).toordinal() - _EPOCH
        return day * DAY

    # --------------------------------------------------------------------------------------------------------- BYSETPOS

    def _choose(self, period: int, wall: int, step: Step) -> int | None:
        known, chosen = self._chosen
        if known != period:
            chosen = sorted({*self._picked(period, 1), *self._picked(period, -1)})
            self._chosen = (period, chosen)
        place = bisect_left(chosen, wall) if step > 0 else bisect_right(chosen, wall) - 1
        return chosen[place] if 0 <= place < len(chosen) else None

    def _picked(self, period: int, step: Step) -> Iterator[int]:
        """The times of a period that BYSETPOS names by counting from one end."""
        begin, end = self._begin(period), self._begin(period + 1) - 1
        wanted = {position * step for position in self._positions if position * step > 0}
        wall = begin if step > 0 else end
        for count in range(1, max(wanted, default=0) + 1):
            found = self._match(wall, step)
            if found is None or not begin <= found <= end:
                return
            if count in wanted:
                yield found
            wall = found + step


def _every_day(times: Times) -> FieldPattern:
    hours, minutes, seconds = times
    days, months, weekdays = tuple(range(1, 32)), tuple(range(1, 13)), tuple(range(7))
    return FieldPattern(Fields(seconds, minutes, hours, days, months, weekdays, None, (), (), False, False, False))


# ---------------------------------------------------------------------------------------------------------------- years
# With BYWEEKNO a year is the one that weeks are numbered in: it begins with its week 1, up to three days off 1 January.


def _new_year(year: int) -> int:
    """The 1st of January, in days since 1970; of years that have no dates, too."""
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400 + 1 - _EPOCH


def _begin(days: Days, year: int) -> int:
    begin = _new_year(year)
    if not days.weeks:
        return begin
    # Week 1 is the first with four days in the year. Day 0 was a Thursday.
    into = (begin + 3 - days.week_start) % 7
    return begin - into if into <= 3 else begin + 7 - into


def _year_of(days: Days, day: int) -> int:
    year = date.fromordinal(min(max(_EPOCH + day, 1), date.max.toordinal())).year
    if days.weeks:
        year += (day >= _begin(days, year + 1)) - (day < _begin(days, year))
    return year


def _look(days: Days, year: int) -> tuple[int, int, Sequence[int]]:
    return _begin(days, year), _begin(days, year + 1), _in_year(days, _TWINS[year % 400])


@lru_cache(maxsize=1_000)
def _in_year(days: Days, year: int) -> Sequence[int]:
    """The days that match in a year, counted from its begin."""
    begin, end = _begin(days, year), _begin(days, year + 1)
    length = (end - begin) // 7
    weeks = [week for week in range(length) if week + 1 in days.weeks or week - length in days.weeks]
    candidates: Iterable[int] = range(end - begin)
    if days.weeks:
        candidates = (day for day in candidates if day // 7 in weeks)
    if days.weekdays:
        # Most days fall out by their weekday alone. Day 0 was a Thursday.
        weekdays = {one.day for one in days.weekdays}
        candidates = (day for day in candidates if (begin + day + 3) % 7 in weekdays)
    return tuple(day for day in candidates if _matches(days, date.fromordinal(_EPOCH + begin + day)))


def _matches(days: Days, this: date) -> bool:
    """Whether a day is one of those that are meant. Its week was asked before."""
    if days.months and this.month not in days.months:
        return False
    place, length = this.day, 29 if this.month == 2 and isleap(this.year) else _LENGTHS[this.month]
    if days.month_days and place not in days.month_days and place - length - 1 not in days.month_days:
        return False
    if not days.year_days and (not days.weekdays or (this.weekday(), 0) in days.weekdays):
        return True
    in_year, year_length = this.timetuple().tm_yday, 365 + isleap(this.year)
    if days.year_days and in_year not in days.year_days and in_year - year_length - 1 not in days.year_days:
        return False
    if not days.nth_of_month:
        place, length = in_year, year_length
    numbers = (0, (place + 6) // 7, -((length - place) // 7 + 1))
    return not days.weekdays or any((this.weekday(), nth) in days.weekdays for nth in numbers)


def _twins() -> list[int]:
    """For each year of the 400 that the calendar repeats, the first that looks the same, its neighbours included."""
    seen: dict[tuple[int, ...], int] = {}
    return [
        seen.setdefault((_new_year(year) % 7, *(isleap(year + beside) for beside in (-1, 0, 1))), year)
        for year in range(2000, 2400)
    ]


_TWINS = _twins()
