"""Recurrences in plain words: what the start supplied is said, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from itertools import product

from foliot.timing.ical import Given, Moment
from foliot.timing.periods import Days, Frequency, Times
from foliot.timing.words import MONTHS, WEEKDAYS, clock, listed, numbered, ordinal, series

_PERIODS = dict(zip(Frequency, "year month week day hour minute second".split(), strict=True))
_MOST_LISTED = 6
_MOST_DATES = 3


def describe(given: Given, days: Days, times: Times, tz: str, start: datetime | None) -> str:
    """`every 2 weeks on Monday and Friday at 09:00 Europe/Paris, from 2026-01-05`."""
    period = _PERIODS[given.frequency]
    pace = f"every {period}" if given.interval == 1 else f"every {given.interval} {period}s"
    if given.frequency is Frequency.DAILY:
        told = _daily(given.interval, pace, _days(given.frequency, days).strip(), f"{_times(times)} {tz}")
    elif given.frequency < Frequency.DAILY:
        told = f"{pace}{_days(given.frequency, days)} {_times(times)} {tz}"
    else:
        told = f"{pace}{_within(given.frequency, times)}{_days(given.frequency, days)}, {tz}"
    positions = sorted(given.numbers.get("BYSETPOS", ()), key=lambda position: (position < 0, position))
    chosen = f", only the {listed([_place(one) for one in positions])} of each {period}" if positions else ""
    if days.week_start and (days.weeks or (given.frequency is Frequency.WEEKLY and (positions or given.interval > 1))):
        chosen += f", weeks starting on {WEEKDAYS[days.week_start]}"
    return f"{told}{chosen}{_bounds(given, times, start)}"


# ----------------------------------------------------------------------------------------------------------------- days


def _days(frequency: Frequency, days: Days) -> str:
    """The days, led by the most exact; whatever else is said only narrows it."""
    kinds = [kind for kind in (_year_days(days), _month_days(frequency, days), _weekdays(frequency, days)) if kind]
    only = ", only" if frequency > Frequency.DAILY else ""
    detail = f"{only} on {', only when it falls on '.join(kinds)}" if kinds else ""
    if days.weeks:
        detail += f" in {_some('week', days.weeks)} of the year"
    if days.months and not _says_months(frequency, days):
        detail += f"{'' if kinds else only} in {series(days.months, MONTHS)}"
    return detail


def _daily(interval: int, pace: str, days: str, times: str) -> str:
    """`on Monday in January at 09:00 UTC`: days that are named need no pace, unless it leaves some of them out."""
    if interval > 1 and days:
        return f"{pace} {times}, but only {days}"
    if days.startswith("on "):
        return f"{days} {times}"
    return f"{pace}{' ' if days else ''}{days} {times}"


def _says_months(frequency: Frequency, days: Days) -> bool:
    """Whether the months are beside their days already: `day 1 of May`, `the 1st Monday of May`."""
    if frequency is Frequency.YEARLY and any(one.nth for one in days.weekdays):
        return True
    return frequency is not Frequency.MONTHLY and bool(days.month_days)


def _year_days(days: Days) -> str:
    return f"{_some('day', days.year_days)} of the year" if days.year_days else ""


def _month_days(frequency: Frequency, days: Days) -> str:
    if not days.month_days:
        return ""
    return _some("day", days.month_days) + (f" of {_months(days)}" if frequency is not Frequency.MONTHLY else "")


def _weekdays(frequency: Frequency, days: Days) -> str:
    if not days.weekdays:
        return ""
    plain = sorted(one.day for one in days.weekdays if not one.nth)
    nth = [f"the {_place(one.nth)} {WEEKDAYS[one.day]}" for one in days.weekdays if one.nth]
    named = listed([*([series(plain, WEEKDAYS)] if plain else []), *nth])
    if not nth or frequency is not Frequency.YEARLY:
        return named
    return f"{named} of {_months(days) if days.months else 'the year'}"


def _months(days: Days) -> str:
    return series(days.months, MONTHS) if days.months else "every month"


def _some(noun: str, values: Sequence[int]) -> str:
    """`days 1 and 15`, `the last day`, `day 1 and the 2nd last day`."""
    ahead, behind = [value for value in values if value > 0], [value for value in values if value < 0]
    last = [f"the {_place(value)} {noun}" for value in reversed(behind)]
    return listed([*([numbered(noun, ahead)] if ahead else []), *last])


def _place(number: int) -> str:
    """`1st`, `last`, `2nd last`."""
    return ordinal(number) if number > 0 else "last" if number == -1 else f"{ordinal(-number)} last"


# ---------------------------------------------------------------------------------------------------------------- times


def _times(times: Times) -> str:
    """For whole days: the times of day."""
    hours, minutes, seconds = times
    if len(hours) * len(minutes) * len(seconds) <= _MOST_LISTED:
        return f"at {listed([clock(*each) for each in product(hours, minutes, seconds)])}"
    exact = f"{numbered('second', seconds)} of " if seconds != (0,) else ""
    return f"at {exact}{numbered('minute', minutes)} of {numbered('hour', hours)}"


def _within(frequency: Frequency, times: Times) -> str:
    """For parts of days: what is meant in each of them, and what of the day is left out."""
    hours, minutes, seconds = times
    told, limits = "", []
    if frequency is Frequency.SECONDLY:
        limits += [numbered("second", seconds)] if len(seconds) < 60 else []
    elif seconds != (0,):
        told = f" at {numbered('second', seconds)}"
    if frequency is Frequency.HOURLY:
        told = f" at {numbered('minute', minutes)}{told.replace(' at ', ' and ')}"
    else:
        limits += [numbered("minute", minutes)] if len(minutes) < 60 else []
    limits += [numbered("hour", hours)] if len(hours) < 24 else []
    return told + (f", only in {' of '.join(limits)}" if limits else "")


# --------------------------------------------------------------------------------------------------------------- bounds


def _bounds(given: Given, times: Times, start: datetime | None) -> str:
    detail = ""
    if start is not None:
        # The date says it all, when no time of that day is before the start.
        earliest = time(times.hours[0], times.minutes[0], times.seconds[0])
        is_whole = given.frequency <= Frequency.DAILY and start.time() <= earliest
        detail += f", from {start.date() if is_whole else _clock(start)}"
    if given.until is not None:
        detail += f", until {_moment(given.until)}"
    if given.most is not None:
        detail += f", {given.most} time{'s' if given.most > 1 else ''}"
    if given.dates:
        detail += f", also {_moments(given.dates)}"
    return detail + (f", except {_moments(given.exceptions)}" if given.exceptions else "")


def _moments(moments: Sequence[Moment]) -> str:
    if len(moments) > _MOST_DATES:
        return f"on {len(moments)} dates"
    return f"on {listed([_moment(moment) for moment in moments])}"


def _moment(moment: Moment) -> str:
    if moment.form == "date":
        return str(moment.when.date())
    return _clock(moment.when) + (" UTC" if moment.form == "utc" else "")


def _clock(when: datetime) -> str:
    return f"{when.date()} {clock(when.hour, when.minute, when.second)}"
