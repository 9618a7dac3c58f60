"""Rules about business days: the n-th of a month, each of them, a date moved to one, and any rule kept to them.

Which days these are is a question for `workdays`; how a wall time becomes an instant is one for the resolver.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, get_args

from foliot.domain.instant import DAY, SECOND, Instant
from foliot.domain.rule import Horizon
from foliot.errors import InvalidRule
from foliot.timing.combine import Composable, Composed, check_that_it_fires, checked, inner_words, searching
from foliot.timing.dst import VIXIE, Dst, IntervalLike, dst
from foliot.timing.names import EVERY_MONTH, among, clock, listed, ordinal
from foliot.timing.names import months as months_of
from foliot.timing.names import times as times_of
from foliot.timing.resolver import Step
from foliot.timing.wall import WallRule, begin_of
from foliot.timing.workdays import Day, Workdays, workdays
from foliot.timing.zones import zone

Period = Literal["week", "month", "quarter", "year"]
Roll = Literal["before", "after", "nearest"]

_PRESENT = begin_of(2026)
"""What fired only before this was written will not fire again."""
_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_LONGEST: dict[Period, int] = {"week": 7, "month": 31, "quarter": 92, "year": 366}
_MONTHS_IN: dict[Period, int] = {"month": 1, "quarter": 3, "year": 12}


class DayPattern:
    """The wall times of certain days, at the same times on each."""

    __slots__ = ("_day", "_times")

    def __init__(self, day: Callable[[Day, Step], Day | None], times: tuple[int, ...]) -> None:
        self._day = day
        self._times = times

    def nearest(self, wall: int, step: Step) -> int | None:
        """The wall time nearest to `wall`, itself included, in one direction."""
        today, second = divmod(wall, _DAY)
        times = self._times
        place = bisect_left(times, second) if step > 0 else bisect_right(times, second) - 1
        is_left = 0 <= place < len(times)
        day = self._day(today if is_left else today + step, step)
        if day is None:
            return None
        return day * _DAY + (times[place] if day == today else times[0 if step > 0 else -1])


class _OnDays(WallRule):
    """A rule whose subclass, a frozen dataclass with these fields besides `tz` and `dst`, finds its days."""

    __slots__ = ()

    workdays: Workdays
    times: tuple[int, ...]
    """Seconds after midnight, sorted."""

    def __post_init__(self) -> None:
        self.settle(DayPattern(self.onward, self.times), is_interval=False)
        if self.next(_PRESENT) is None:
            raise InvalidRule(
                f"this rule never fires from 2026 to {self.workdays.known[-1]}; change it: {self.explain()}"
            )

    def onward(self, start: Day, step: Step) -> Day | None:
        """The rule's day nearest to `start`, itself included, in one direction; None when there is none."""
        raise NotImplementedError

    @property
    def tables(self) -> frozenset[str]:
        """Those of zones and of holidays, where it needs them."""
        return super().tables | self.workdays.tables

    @property
    def horizon(self) -> Horizon | None:
        """The end of the holidays."""
        return self.workdays.horizon(self.tz)

    def rest(self) -> dict[str, Any]:
        """What the rules have in common, as JSON: the arguments of the functions that make them."""
        times = {"at": [clock(time) for time in self.times], "tz": self.tz}
        return times | self.workdays.shape() | self.dst.encoded()

    def when(self) -> str:
        """The times in words."""
        return f"at {listed([clock(time) for time in self.times])} {self.tz}"


@dataclass(frozen=True, slots=True)
class BusinessDay(_OnDays):
    """The n-th business day of each week, month, quarter or year."""

    n: int
    """Counted from the end when it is negative."""
    of: Period
    months: tuple[int, ...]
    workdays: Workdays
    times: tuple[int, ...]
    tz: str = "UTC"
    dst: Dst = VIXIE

    def onward(self, start: Day, step: Step) -> Day | None:
        """Period by period, through the years that are known."""
        first_weekday = self.workdays.first_weekday if self.of == "week" else 0
        low, high = _days_of(self.workdays.known)
        today = max(start, low) if step > 0 else min(start, high)
        while low <= today <= high:
            first, last, month = _period(self.of, today, first_weekday)
            if month in self.months:
                found = self.workdays.nth(first, last, self.n)
                if found is not None and (found - start) * step >= 0:
                    return found
            today = last + 1 if step > 0 else first - 1
        return None

    def shape(self) -> dict[str, Any]:
        """As JSON; what is left out has its default."""
        months = {} if self.months == EVERY_MONTH else {"months": [*self.months]}
        return {"business_day": self.n, "of": self.of} | self.rest() | months

    def explain(self) -> str:
        """The rule in plain words."""
        period = among(self.months) if self.of == "month" else f"the {self.of}"
        words = f"the {ordinal(self.n)} business day of {period} ({self.workdays.words()}) {self.when()}"
        return words + self.policy_words()


@dataclass(frozen=True, slots=True)
class BusinessDays(_OnDays):
    """Each business day."""

    workdays: Workdays
    times: tuple[int, ...]
    tz: str = "UTC"
    dst: Dst = VIXIE

    def onward(self, start: Day, step: Step) -> Day | None:
        """A working day."""
        return self.workdays.onward(start, step)

    def shape(self) -> dict[str, Any]:
        """As JSON; what is left out has its default."""
        return {"business_days": True} | self.rest()

    def explain(self) -> str:
        """The rule in plain words."""
        return f"each business day ({self.workdays.words()}) {self.when()}{self.policy_words()}"


@dataclass(frozen=True, slots=True)
class NearestBusinessDay(_OnDays):
    """A date of each month, moved to a business day when it is not one."""

    day: int
    """In a month that is too short, its last day: so 31 is the last day of each."""
    roll: Roll
    months: tuple[int, ...]
    workdays: Workdays
    times: tuple[int, ...]
    tz: str = "UTC"
    dst: Dst = VIXIE

    def onward(self, start: Day, step: Step) -> Day | None:
        """The moved date nearest to `start`.

        A later date never moves to an earlier day, and none moves past a working day. So dates up to the last working
        day before `start` all move to before it, and the search can begin behind that day. Backwards it is the same.
        """
        beside = self.workdays.onward(start - step, -step)
        for nominal in self._dates(start if beside is None else beside + step, step):
            found = self._moved(nominal)
            if found is not None and (found - start) * step >= 0:
                return found
        return None

    def _dates(self, start: Day, step: Step) -> Iterator[Day]:
        """The dates from `start` on, before they are moved."""
        low, high = _days_of(self.workdays.known)
        begin = date.fromordinal(min(max(start, low), high) + _EPOCH)
        month = begin.year * 12 + begin.month - 1
        while month // 12 in self.workdays.known:
            year, this = month // 12, month % 12 + 1
            if this in self.months:
                nominal = date(year, this, min(self.day, monthrange(year, this)[1])).toordinal() - _EPOCH
                if (nominal - start) * step >= 0:
                    yield nominal
            month += step

    def _moved(self, nominal: Day) -> Day | None:
        before, after = self.workdays.onward(nominal, -1), self.workdays.onward(nominal, 1)
        if self.roll != "nearest":
            return before if self.roll == "before" else after
        if before is None or after is None:
            return None
        return before if nominal - before <= after - nominal else after

    def shape(self) -> dict[str, Any]:
        """As JSON; what is left out has its default."""
        months = {} if self.months == EVERY_MONTH else {"months": [*self.months]}
        return {"nearest_business_day": self.day, "roll": self.roll} | self.rest() | months

    def explain(self) -> str:
        """The rule in plain words."""
        shown = {29: "day 29 (or the last)", 30: "day 30 (or the last)", 31: "the last day"}
        dated = f"{shown.get(self.day, f'day {self.day}')} of {among(self.months)}"
        moved = "the nearest business day" if self.roll == "nearest" else f"the business day {self.roll} it"
        return f"{dated}, or {moved} ({self.workdays.words()}), {self.when()}{self.policy_words()}"


@dataclass(frozen=True, slots=True)
class OnlyOn(Composed):
    """The ticks of a rule that fall on working days, by the calendar on the wall of a zone."""

    rule: Composable
    workdays: Workdays
    tz: str = "UTC"

    def __post_init__(self) -> None:
        check_that_it_fires(self)

    @property
    def parts(self) -> tuple[Composable, ...]:
        return (self.rule,)

    @property
    def tables(self) -> frozenset[str]:
        zones = frozenset() if self.tz == "UTC" else frozenset({"tzdata"})
        return self.rule.tables | self.workdays.tables | zones

    @property
    def zones(self) -> frozenset[str]:
        return self.rule.zones | {self.tz}

    @property
    def horizon(self) -> Horizon | None:
        ends = (self.workdays.horizon(self.tz), self.rule.horizon)
        return min((end for end in ends if end is not None), default=None)

    def search(self, after: Instant) -> Instant | None:
        # Before the first year that is known there is nothing to look for, and behind the last.
        return self._search(max(after, begin_of(self.workdays.known[0])), 1)

    def previous(self, before: Instant) -> Instant | None:
        return self._search(min(before, begin_of(self.workdays.known[-1] + 1) + 4 * DAY), -1)

    def _search(self, start: Instant, step: Step) -> Instant | None:
        """From tick to tick, and over closed days in one leap: a rule may have a tick in every second of them."""
        where = zone(self.tz)
        with searching(self, start) as leave_out:
            tick = self.rule.next(start) if step > 0 else self.rule.previous(start)
            while tick is not None:
                stretch = where.at(tick // SECOND)
                today = (tick // SECOND + stretch.offset) // _DAY
                day = self.workdays.onward(today, step)
                if day is None or day == today:
                    return None if day is None else tick
                leave_out(tick)
                # To where that day begins or ends; but where the offset changes, it has to be computed anew.
                if step > 0:
                    tick = self.rule.next(min(day * _DAY - stretch.offset, stretch.end) * SECOND - 1)
                else:
                    tick = self.rule.previous(max((day + 1) * _DAY - stretch.offset, stretch.start) * SECOND)
        return None

    def named(self, schedule: str) -> OnlyOn:
        return OnlyOn(self.rule.named(schedule), self.workdays, self.tz)

    def shape(self) -> dict[str, Any]:
        return {"of": self.rule.shape(), "only_on": self.workdays.shape(), "tz": self.tz}

    def explain(self) -> str:
        where = "" if self.tz == self.rule.tz else f" in {self.tz}"
        return f"{inner_words(self.rule)}, only on business days{where} ({self.workdays.words()})"


# ---------------------------------------------------------------------------------------------------- making the rules


def business_day(
    n: int | str,
    *,
    of: Period = "month",
    months: Iterable[int | str] | None = None,
    country: str | None = None,
    subdivision: str | None = None,
    market: str | None = None,
    closed: Iterable[date | str] = (),
    opened: Iterable[date | str] = (),
    weekend: str | Iterable[str] | None = None,
    at: str | Iterable[str] = "00:00",
    tz: str = "UTC",
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
) -> BusinessDay:
    """The n-th business day of each month, the last with -1: `business_day(1, country="US", at="06:00", tz=...)`.

    `of` can be week, quarter or year too; a week begins behind the weekend. A period with fewer business days has no
    tick. `months=("jan", "jul")` keeps to some months. For the calendar (country, subdivision, market, closed, opened,
    weekend) see `workdays`.
    """
    if of not in get_args(Period):
        raise InvalidRule(f"of={of!r:.80} is unknown; give one of {', '.join(_LONGEST)}")
    count = {"first": 1, "last": -1}.get(n) if isinstance(n, str) else n
    most = _LONGEST[of]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= abs(count) <= most:
        raise InvalidRule(f"n={n!r:.80} is not a day number of a {of}; give 1 to {most}, -1 to -{most}, first or last")
    if months is not None and of != "month":
        raise InvalidRule(f"months= requires of='month', and of='{of}' was given; leave one of them out")
    days = workdays(country, subdivision=subdivision, market=market, closed=closed, opened=opened, weekend=weekend)
    return BusinessDay(count, of, months_of(months), days, times_of(at), tz, _policy(preset, gap, fold))


def business_days(
    *,
    country: str | None = None,
    subdivision: str | None = None,
    market: str | None = None,
    closed: Iterable[date | str] = (),
    opened: Iterable[date | str] = (),
    weekend: str | Iterable[str] | None = None,
    at: str | Iterable[str] = "00:00",
    tz: str = "UTC",
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
) -> BusinessDays:
    """Each business day: `business_days(market="XNYS", at=["09:30", "16:00"], tz="America/New_York")`."""
    days = workdays(country, subdivision=subdivision, market=market, closed=closed, opened=opened, weekend=weekend)
    return BusinessDays(days, times_of(at), tz, _policy(preset, gap, fold))


def nearest_business_day(
    day: int | str,
    *,
    roll: Roll = "nearest",
    months: Iterable[int | str] | None = None,
    country: str | None = None,
    subdivision: str | None = None,
    market: str | None = None,
    closed: Iterable[date | str] = (),
    opened: Iterable[date | str] = (),
    weekend: str | Iterable[str] | None = None,
    at: str | Iterable[str] = "00:00",
    tz: str = "UTC",
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
) -> NearestBusinessDay:
    """A date of each month, the last with "last" or -1, moved to a business day when it is not one.

    `roll` says where to: the business day before or after, or the nearest, of two equally near the earlier. That may
    be in another month: `months` speaks of the date itself. Dates that move to the same day are one tick. A month
    that is too short has the date on its last day.
    """
    number = 31 if day in ("last", -1) else day
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 31:
        raise InvalidRule(f"day={day!r:.80} is not a day of the month; give 1 to 31, or last")
    if roll not in get_args(Roll):
        raise InvalidRule(f"roll={roll!r:.80} is unknown; give one of {', '.join(get_args(Roll))}")
    days = workdays(country, subdivision=subdivision, market=market, closed=closed, opened=opened, weekend=weekend)
    return NearestBusinessDay(number, roll, months_of(months), days, times_of(at), tz, _policy(preset, gap, fold))


def only_on(rule: Composable, days: Workdays, *, tz: str | None = None) -> OnlyOn:
    """The ticks of a rule that fall on working days: `only_on(every("15m"), workdays("FR"), tz="Europe/Paris")`.

    The date of a tick is read in `tz`, by default the rule's own; a rule of elapsed time, or of several zones, has UTC.
    """
    if not isinstance(days, Workdays):
        raise InvalidRule(
            f'{days!r:.80} is not a calendar of working days; give workdays("US") or workdays(market="XNYS")'
        )
    return OnlyOn(checked(rule), days, zone(rule.tz if tz is None else tz).name)


# ----------------------------------------------------------------------------------------------------------- the pieces


def _policy(preset: str | None, gap: str | None, fold: str | None) -> Dst:
    """These rules name their times, so none of them can look like an interval."""
    return dst(preset, gap, fold)._replace(interval_like=IntervalLike.AUTO)


def _days_of(years: range) -> tuple[Day, Day]:
    return date(years[0], 1, 1).toordinal() - _EPOCH, date(years[-1], 12, 31).toordinal() - _EPOCH


def _period(of: Period, day: Day, first_weekday: int) -> tuple[Day, Day, int]:
    """The first and the last day of the period that a day lies in, and the month of that day."""
    this = date.fromordinal(day + _EPOCH)
    if of == "week":
        first = day - (this.weekday() - first_weekday) % 7
        return first, first + 6, this.month
    length = _MONTHS_IN[of]
    begin = (this.month - 1) // length * length + 1
    end = begin + length - 1
    first = date(this.year, begin, 1).toordinal() - _EPOCH
    return first, date(this.year, end, monthrange(this.year, end)[1]).toordinal() - _EPOCH, this.month
