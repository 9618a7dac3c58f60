"""The recurrence rule: iCalendar's RRULE, read on the wall clocks of a zone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from foliot.domain.instant import SECOND, Instant, instant
from foliot.errors import InvalidRule
from foliot.timing import ical
from foliot.timing.combine import refused_as_rule
from foliot.timing.dst import RFC5545, VIXIE, Dst, Fold, Gap, IntervalLike, dst
from foliot.timing.effort import effort
from foliot.timing.ical import Given, Moment
from foliot.timing.periods import DAY, SIZES, Days, Frequency, PeriodPattern, Times, Weekday
from foliot.timing.phrases import describe
from foliot.timing.pieces import Piece, pointing
from foliot.timing.resolver import Pattern, Step, nearest, nearest_elapsed
from foliot.timing.wall import Once, WallRule
from foliot.timing.words import clock
from foliot.timing.zones import FIRST_SECOND, LAST_SECOND, Zone, zone

ANCHOR = "1970-01-01T00:00:00"
"""The start of a rule that names all it needs, and is given none. It has no ticks before that."""

FEW_TRIES = 3_000
"""Leaps to the first wall time before a rule is refused. Odd rules need a few hundred: a February with five Mondays is
at most 40 years away."""

_HORIZON = 30 * 366 * DAY
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Recurrence(WallRule):
    """An RRULE with its RDATE and EXDATE lines, and its DTSTART as `start`: a wall time of its zone."""

    dst_default = RFC5545

    text: str
    start: str = ANCHOR
    tz: str = "UTC"
    dst: Dst = VIXIE
    """Stored rules that state none have Vixie's: it was the default once. `rrule` gives new ones that of RFC 5545."""
    given: Given = field(init=False, repr=False, compare=False)
    _last: int | None = field(init=False, repr=False, compare=False)
    """The second of the last tick that COUNT or UNTIL allows. A wall time would not do: in a fold it comes twice."""
    _dates: Pattern | None = field(init=False, repr=False, compare=False)
    """RDATE: neither COUNT nor UNTIL is about these."""
    _elapsed: _ByOffset | None = field(init=False, repr=False, compare=False)
    """The patterns of a rule that counts elapsed time; None for one that counts by the clock."""

    def __post_init__(self) -> None:
        given, where = ical.read(self.text), zone(self.tz)
        if given.start is not None or given.tz is not None:
            raise InvalidRule(
                "a Recurrence has its DTSTART as start=, and its TZID as tz=; rrule() reads them from text"
            )
        begin = _local(self.start, where)
        # A frozen value may still be completed while it is being made.
        for name, value in {"given": given, "text": given.text, "start": begin.isoformat()}.items():
            object.__setattr__(self, name, value)
        dates = _Listed(given.dates, begin, where) if given.dates else None
        object.__setattr__(self, "_dates", _Without(dates, given.exceptions, where) if dates else None)
        self._complete(begin, where)

    def _complete(self, begin: datetime, where: Zone) -> None:
        """Finds where the rule ends, and refuses one that never begins.

        1. A pattern that nothing but DTSTART and UNTIL bounds: what COUNT counts. EXDATE takes away from it later.
        2. The last tick. It bounds the pattern too, a day later, so that no search goes on beyond it.
        3. The pattern without EXDATE.
        """
        given, until = self.given, self.given.until
        is_interval = given.frequency >= Frequency.HOURLY and "BYHOUR" not in given.numbers
        end, last = LAST_SECOND, None
        if until is not None and until.form == "utc":
            last = _seconds(until.when)
        elif until is not None:
            end = _seconds(until.when) + (DAY - 1 if until.form == "date" else 0)
        pattern = _pattern(given, begin, end)
        first = pattern.nearest(_seconds(begin), 1, FEW_TRIES)
        if first is None:
            raise InvalidRule(
                f"this rule can never fire: {self.text[:200]!r} has no time from {self.start} on; change its parts"
            )
        object.__setattr__(self, "_last", None)
        self._settle(begin, min(end, first + _HORIZON), is_interval)
        early = _seconds(begin) - 2 * DAY
        if self._nearest(early, 1) is None:
            raise InvalidRule(f"this rule can never fire: in {self.tz} its wall times do not exist; give other times")
        self._settle(begin, end, is_interval)
        if given.most is not None:
            last = self._counted(given.most, early)
        if last is not None:
            end = min(end, last + where.offset(min(max(last, FIRST_SECOND), LAST_SECOND)) + DAY)
            object.__setattr__(self, "_last", last)
        self._settle(begin, end, is_interval, given.exceptions)
        if self._nearest(early, 1) is None:
            raise InvalidRule("this rule can never fire: UNTIL and EXDATE exclude all of its times; change one of them")

    def _settle(self, begin: datetime, end: int, is_interval: bool, exceptions: Sequence[Moment] = ()) -> None:
        """Bounds the rule by a wall time, and takes EXDATE away. A start that was not given sets no phase."""
        where = zone(self.tz)
        pattern = _pattern(self.given, begin, end)
        self.settle(_Without(pattern, exceptions, where) if exceptions else pattern, is_interval)
        has_phase = self.start != ANCHOR or self.given.interval > 1
        counts = is_interval and has_phase and where.name != "UTC" and self.dst.interval_like is IntervalLike.AUTO
        object.__setattr__(self, "_elapsed", _ByOffset(self.given, begin, end, exceptions, where) if counts else None)

    @property
    def tables(self) -> frozenset[str]:
        """With the way in which a rule of elapsed time is counted."""
        return super(Recurrence, self).tables | (frozenset() if self._elapsed is None else {"rrule"})

    @property
    def pace(self) -> int | None:
        return None if self._elapsed is None else self.given.interval * SIZES[self.given.frequency]

    def _counted(self, count: int, second: int) -> int | None:
        """The second of the last of `count` ticks, as they run: a time that is skipped is not counted."""
        last = None
        with effort():  # all of them together may cost as much as one question: rare rules are not counted for minutes
            for _ in range(count):
                found = self._tick(second, 1)
                if found is None:
                    break
                second, last = found + 1, found
        return last

    def _nearest(self, second: int, step: Step) -> Instant | None:
        """The tick of the rule up to its last one, or of its RDATEs, whichever is nearer."""
        last = LAST_SECOND if self._last is None else self._last
        policy = (self._zone, self._gap, self._fold)
        found = self._tick(second if step > 0 else min(second, last), step)
        ticks = [] if found is None or found > last else [found]
        other = None if self._dates is None else nearest(self._dates, *policy, second, step)
        ticks += [] if other is None else [other]
        return step * min(step * tick for tick in ticks) * SECOND if ticks else None

    def _tick(self, second: int, step: Step) -> int | None:
        """The nearest tick of RRULE and EXDATE."""
        if self._elapsed is None:
            return nearest(self._pattern, self._zone, self._gap, self._fold, second, step)
        return nearest_elapsed(self._elapsed, self._zone, self._elapsed.first, self._elapsed.last, second, step)

    def shape(self) -> dict[str, Any]:
        """As JSON. The start is always written: a stored rule depends on no default."""
        return {"rrule": self.text, "tz": self.tz, "start": self.start} | self.dst.encoded()

    def explain(self) -> str:
        """The rule in plain words."""
        begin = datetime.fromisoformat(self.start)
        days, times = completed(self.given, begin)
        if self.given.most == 1 and self._last is not None and not (self.given.dates or self.given.exceptions):
            local = self._zone.local(self._last)[0]
            return f"once, on {local.date()} at {clock(local.hour, local.minute, local.second)} {self.tz}"
        words = describe(self.given, days, times, self.tz, None if self.start == ANCHOR else begin)
        return words + self.policy_words()


def rrule(
    text: str,
    *,
    start: datetime | date | str | None = None,
    tz: str = "UTC",
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
    interval_like: str | None = None,
) -> Recurrence:
    """By an iCalendar rule: `rrule("FREQ=MONTHLY;BYDAY=-1FR", start="2026-01-30T17:00", tz="Europe/Paris")`.

    `text` is an RRULE, or lines of DTSTART, RRULE, RDATE and EXDATE. `start` is its DTSTART: a wall time of `tz`, so it
    may be naive; an aware datetime is turned to `tz`. A rule that takes nothing from its start needs none: its time of
    day and its day are named, there is no INTERVAL, no COUNT. Minutes and seconds that it leaves out are then 0.

    As in dateutil a start that the rule does not match is no tick. COUNT counts ticks, before EXDATE takes some away.
    FREQ=HOURLY, MINUTELY or SECONDLY without BYHOUR counts elapsed time from the start: with INTERVAL=90 there are
    always 90 minutes between two ticks, whatever the clocks do. `interval_like="never"` counts by the clock.
    A wall time that does not exist runs as much later as the gap is long, as RFC 5545 says: `preset="rfc5545"`.
    """
    given = ical.read(text)
    policy = dst(preset, gap, fold, interval_like, default=RFC5545)
    if given.tz is not None:
        with pointing(Piece(text, text.upper().index("TZID"), "")):
            zone(given.tz)
        if zone(tz).name not in ("UTC", zone(given.tz).name):
            raise InvalidRule(f"tz={tz} and TZID={given.tz} differ; give one of them")
        tz = given.tz
    if start is not None and given.start is not None:
        raise InvalidRule("the start is given twice, as DTSTART and as start=; give one of them")
    if start is None and given.start is None:
        _check_that_no_start_is_needed(given)
        start = ANCHOR
    begin = _local(given.start or start, zone(tz))
    return Recurrence(given.text, begin.isoformat(), tz, policy)


# ---------------------------------------------------------------------------------------------- what the start supplies


def completed(given: Given, start: datetime) -> tuple[Days, Times]:
    """What the rule says, with what it leaves to its start filled in."""
    frequency = given.frequency
    months, weeks, year_days, month_days, hours, minutes, seconds = (
        given.numbers.get(name, ())
        for name in ("BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYHOUR", "BYMINUTE", "BYSECOND")
    )
    weekdays = given.weekdays
    if not (year_days or month_days or weekdays):
        if weeks or frequency is Frequency.WEEKLY:
            weekdays = (Weekday(start.weekday()),)
        elif frequency <= Frequency.MONTHLY:
            month_days = (start.day,)
            months = months or ((start.month,) if frequency is Frequency.YEARLY else ())
    days = Days(
        months, weeks, year_days, month_days, weekdays, given.week_start, bool(months) or frequency is Frequency.MONTHLY
    )
    return days, Times(
        hours or (tuple(range(24)) if frequency >= Frequency.HOURLY else (start.hour,)),
        minutes or (tuple(range(60)) if frequency >= Frequency.MINUTELY else (start.minute,)),
        seconds or (tuple(range(60)) if frequency is Frequency.SECONDLY else (start.second,)),
    )


def _check_that_no_start_is_needed(given: Given) -> None:
    named = given.weekdays or given.numbers.keys() & {"BYMONTHDAY", "BYYEARDAY"}
    if given.interval > 1:
        problem, fix = "counts its INTERVAL from its start", "drop INTERVAL"
    elif given.most is not None:
        problem, fix = "counts its COUNT from its start", "give UNTIL instead"
    elif given.frequency < Frequency.DAILY and not named:
        problem, fix = "takes its day from its start", "name the day: BYDAY=MO, for example"
    elif given.frequency <= Frequency.DAILY and "BYHOUR" not in given.numbers:
        problem, fix = "takes its time of day from its start", "name the time: BYHOUR=9;BYMINUTE=0, for example"
    else:
        return
    raise InvalidRule(
        f'{given.text[:200]!r} {problem}, and no start is given; give start="2026-01-05T09:00" or a DTSTART line, '
        f"or {fix}"
    )


def _pattern(given: Given, begin: datetime, until: int) -> PeriodPattern:
    days, times = completed(given, begin)
    positions = given.numbers.get("BYSETPOS", ())
    return PeriodPattern(given.frequency, given.interval, days, times, positions, _seconds(begin), until)


# ----------------------------------------------------------------------------------------------------------- wall times


def _seconds(wall: datetime) -> int:
    """As patterns count wall time."""
    return (wall - _EPOCH) // timedelta(seconds=1)


def _local(start: datetime | date | str | Moment | None, where: Zone) -> datetime:
    """A start as a wall time of its zone."""
    if isinstance(start, Moment):
        start = start.when.isoformat() + ("Z" if start.form == "utc" else "")
    when: object = start
    if isinstance(start, str):
        try:
            when = datetime.fromisoformat(start)
        except ValueError:
            raise InvalidRule(f'{start!r:.80} is not a start; write it as "2026-01-05T09:00"') from None
    elif isinstance(start, date) and not isinstance(start, datetime):
        when = datetime(start.year, start.month, start.day)
    if not isinstance(when, datetime):
        raise InvalidRule(f'{start!r:.80} is not a start; give a datetime, or text such as "2026-01-05T09:00"')
    if when.microsecond:
        raise InvalidRule(f"the start, {when.isoformat()}, has a fraction of a second; use .replace(microsecond=0)")
    if when.utcoffset() is None:
        return when.replace(tzinfo=None, fold=0)
    with refused_as_rule():
        second = instant(when) // SECOND
    try:
        return where.local(second)[0]
    except OverflowError:
        raise InvalidRule(
            f"the start, {when.isoformat()}, has no date in {where.name}; give a start between the years 1 and 9999"
        ) from None


def _wall(moment: Moment, where: Zone) -> int:
    second = _seconds(moment.when)
    return second + where.offset(second) if moment.form == "utc" else second


class _ByOffset:
    """The patterns of a rule that counts elapsed time, by offset: the rule from one instant on, as clocks with
    different offsets show it."""

    __slots__ = ("_exceptions", "_given", "_known", "_until", "_zone", "first", "last")

    def __init__(self, given: Given, begin: datetime, until: int, exceptions: Sequence[Moment], where: Zone) -> None:
        wall = _seconds(begin)
        first = nearest(Once(wall), where, Gap.SHIFT_FORWARD, Fold.FIRST, wall - 2 * DAY, 1)
        self.first = wall if first is None else first
        self.last = min(until + 2 * DAY, LAST_SECOND)
        """No offset is as large as the two days."""
        self._given, self._until, self._exceptions, self._zone = given, until, exceptions, where
        self._known: dict[int, PeriodPattern | _WithoutElapsed] = {}

    def __call__(self, offset: int) -> PeriodPattern | _WithoutElapsed:
        pattern = self._known.get(offset)
        if pattern is None:
            begin = _EPOCH + timedelta(seconds=max(self.first + offset, FIRST_SECOND))
            counted = _pattern(self._given, begin, self._until)
            pattern = _WithoutElapsed(counted, self._exceptions, self._zone) if self._exceptions else counted
            self._known[offset] = pattern
        return pattern


class _Listed:
    """RDATE: wall times, one by one. A date alone has the start's time of day."""

    __slots__ = ("_walls",)

    def __init__(self, moments: Iterable[Moment], begin: datetime, where: Zone) -> None:
        time_of_day = _seconds(begin) % DAY
        walls = {_wall(moment, where) + (time_of_day if moment.form == "date" else 0) for moment in moments}
        self._walls = sorted(walls)

    def nearest(self, wall: int, step: Step) -> int | None:
        """The listed time nearest to `wall`, itself included, in one direction."""
        place = bisect_left(self._walls, wall) if step > 0 else bisect_right(self._walls, wall) - 1
        return self._walls[place] if 0 <= place < len(self._walls) else None


class _Without:
    """A pattern without its EXDATEs. A date alone takes its whole day away."""

    __slots__ = ("_days", "_pattern", "_walls")

    def __init__(self, pattern: Pattern, exceptions: Iterable[Moment], where: Zone) -> None:
        self._pattern = pattern
        self._walls = {_wall(moment, where) for moment in exceptions if moment.form != "date"}
        self._days = {_seconds(moment.when) // DAY for moment in exceptions if moment.form == "date"}

    def nearest(self, wall: int, step: Step) -> int | None:
        """The nearest time of the pattern that is not taken away."""
        return self._onward(self._pattern.nearest, wall, step)

    def _onward(self, search: Callable[[int, Step], int | None], wall: int, step: Step) -> int | None:
        found = search(wall, step)
        while found is not None:
            if found // DAY in self._days:
                found = (found // DAY + (step > 0)) * DAY - (step < 0)
            elif found in self._walls:
                found += step
            else:
                return found
            found = search(found, step)
        return None


class _WithoutElapsed(_Without):
    """The same of a rule that counts elapsed time."""

    __slots__ = ("_elapsed",)

    def __init__(self, pattern: PeriodPattern, exceptions: Iterable[Moment], where: Zone) -> None:
        super().__init__(pattern, exceptions, where)
        self._elapsed = pattern

    def within(self, wall: int, end: int, step: Step) -> int | None:
        """The nearest time up to `end` that is not taken away."""
        return self._onward(lambda found, step: self._elapsed.within(found, end, step), wall, step)

    def day(self, wall: int, step: Step) -> int | None:
        """The begin of the nearest day that may have a time."""
        return self._elapsed.day(wall, step)
