"""Rules in plain words: short for the common forms, correct for all the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foliot.domain.instant import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration
from foliot.timing.expression import Fields

_MONTHS = "- January February March April May June July August September October November December".split()
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# No days or weeks: those are calendar words, and a fixed rate counts elapsed time.
_UNITS = {
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
    "millisecond": MILLISECOND,
    "microsecond": MICROSECOND,
}


def elapsed(length: Duration) -> str:
    """A duration in words: `1 hour 30 minutes`."""
    pieces = []
    for name, size in _UNITS.items():
        count, length = divmod(length, size)
        if count:
            pieces.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(pieces)


def each(length: Duration) -> str:
    """A pace in words: `every hour`, `every 15 minutes`."""
    words = elapsed(length)
    return f"every {words.removeprefix('1 ') if words.count(' ') == 1 else words}"


def describe(fields: Fields, tz: str) -> str:
    """A cron rule in words, its zone included: `at 09:00 UTC on Monday to Friday`."""
    times, days = _times(fields, tz), _days(fields)
    if tz in times:
        return f"{times} {days}"
    return f"{times}, {tz}" if days == "every day" else f"{times} {days}, {tz}"


def _times(fields: Fields, tz: str) -> str:
    minutes, hours = fields.minutes, fields.hours
    minute_pace, hour_pace = _pace(minutes, 60), _pace(hours, 24)
    if len(minutes) == 1 and hour_pace:
        return f"{each(hour_pace * HOUR)} at minute {minutes[0]}"
    if len(minutes) * len(hours) <= 6:
        return f"at {_listed([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])} {tz}"
    often = each(minute_pace * MINUTE) if minute_pace else f"at {_numbered('minute', minutes)} of every hour"
    if len(hours) == 24:
        return often
    if hours[-1] - hours[0] == len(hours) - 1:
        return f"{often} from {hours[0]:02}:00 to {hours[-1]:02}:59 {tz}"
    return f"{often} in {_numbered('hour', hours)} {tz}"


def _pace(values: tuple[int, ...], whole: int) -> int | None:
    """The step when the values divide the whole evenly (`*/15`, not `*/7`: its last gap is shorter); else None."""
    step = whole // len(values)
    return step if len(values) > 1 and values == tuple(range(0, whole, step)) else None


def _days(fields: Fields) -> str:
    months = _series(fields.months, _MONTHS) if len(fields.months) < 12 else ""
    within = f" in {months}" if months else ""
    dated = f"on {_numbered('day', fields.days)} of {months or 'the month'}" if len(fields.days) < 31 else ""
    # People's weeks begin on Monday, so that a working week reads as one span.
    weekdays = sorted((day - 1) % 7 for day in fields.weekdays)
    named = f"on {_series(weekdays, _WEEKDAYS)}" if len(weekdays) < 7 else ""
    if fields.either:
        return f"{dated} or {named}{within}" if dated and named else f"every day{within}"
    if dated:
        return f"{dated}, only when it falls {named}" if named else dated
    return f"{named or 'every day'}{within}"


def _numbered(noun: str, values: Sequence[int]) -> str:
    """`day 1`, `days 1 and 15`."""
    return f"{noun}{'s' if len(values) > 1 else ''} {_series(values, [str(number) for number in range(60)])}"


def _series(values: Iterable[int], names: Sequence[str]) -> str:
    """Sorted values by name, three or more in a row as a span: `Monday to Wednesday and Friday`."""
    spans: list[list[int]] = []
    for value in values:
        if spans and spans[-1][-1] == value - 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    words: list[str] = []
    for span in spans:
        words += [f"{names[span[0]]} to {names[span[-1]]}"] if len(span) > 2 else [names[value] for value in span]
    return _listed(words)


def _listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
