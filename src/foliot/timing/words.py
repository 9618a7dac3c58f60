"""Rules in plain words: short for the common forms, correct for all the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foliot.domain.instant import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration
from foliot.timing.fields import DayMark, Fields, WeekdayMark

MONTHS = "- January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# No days or weeks: those are calendar words, and a fixed rate counts elapsed time.
_UNITS = {
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
    "millisecond": MILLISECOND,
    "microsecond": MICROSECOND,
}
_MOST_LISTED = 6
"""Times of day that are listed one by one; more are told as a pace."""
_MOST_STEPS = 9
"""Values with a step that are listed one by one."""


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


def describe(fields: Fields, tz: str, schedule: str = "") -> str:
    """A cron rule in words, its zone included: `at 09:00 UTC on Monday to Friday`. `schedule`: whose slots `H` has."""
    times, is_placed = _times(fields)
    days = _days(fields)
    # A pace around the clock says itself that it is every day; its zone matters only to its days.
    detail = f"{times} {tz} {days}" if is_placed else times if days == "every day" else f"{times} {days}"
    years = "" if fields.years is None else f", only in {listed(_stepped('year', fields.years))}"
    slot = ""
    if fields.is_spread:
        slot = (
            " (chosen by H for this schedule)" if schedule else " (an example: H depends on the name of the schedule)"
        )
    return f"{detail}{years}{'' if is_placed else f', {tz}'}{slot}"


def _times(fields: Fields) -> tuple[str, bool]:
    """What happens in a day, and whether it names times of day, which need the zone beside them."""
    seconds, minutes, hours = fields.seconds, fields.minutes, fields.hours
    is_once_an_hour = len(minutes) == len(seconds) == 1
    hour_pace = _pace(hours, 24)
    if is_once_an_hour and hour_pace and len(hours) > 3:
        second = f" and second {seconds[0]}" if seconds != (0,) else ""
        return f"{each(hour_pace * HOUR)} at minute {minutes[0]}{second}", False
    if len(hours) * len(minutes) * len(seconds) <= _MOST_LISTED:
        listed_times = [clock(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
        return f"at {listed(listed_times)}", True
    is_span = hours[-1] - hours[0] == len(hours) - 1
    if is_once_an_hour and is_span:
        first, last = (clock(hour, minutes[0], seconds[0]) for hour in (hours[0], hours[-1]))
        return f"every hour from {first} to {last}", True
    often, of_hour = _often(seconds, minutes)
    if is_span:
        within = "" if len(hours) == 24 else f" from {hours[0]:02}:00 to {hours[-1]:02}:59"
        return f"{often}{' of every hour' if of_hour else ''}{within}", len(hours) < 24
    return f"{often} {'of' if of_hour else 'in'} {numbered('hour', hours)}", True


def _often(seconds: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[str, bool]:
    """What happens in an hour, and whether it ends with minutes, which `of every hour` may follow."""
    minute_pace, second_pace = _pace(minutes, 60), _pace(seconds, 60)
    if len(seconds) == 1 and minute_pace:
        return each(minute_pace * MINUTE) + (f" at second {seconds[0]}" if seconds != (0,) else ""), False
    if seconds == (0,):
        return f"at {numbered('minute', minutes)}", True
    told = each(second_pace * SECOND) if second_pace else f"at {numbered('second', seconds)}"
    if len(minutes) == 60:
        return (told if second_pace else f"{told} of every minute"), False
    return f"{told} {'in' if second_pace else 'of'} {numbered('minute', minutes)}", True


def clock(hour: int, minute: int, second: int = 0) -> str:
    """A time of day: `09:30`, `09:30:15`."""
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _pace(values: tuple[int, ...], whole: int) -> int | None:
    """The step when the values divide the whole evenly (`*/15`, not `*/7`: its last gap is shorter); else None."""
    step = whole // len(values)
    return step if len(values) > 1 and values == tuple(range(0, whole, step)) else None


def _days(fields: Fields) -> str:
    months = series(fields.months, MONTHS) if len(fields.months) < 12 else ""
    within, of_month = (f" in {months}", f" of {months}") if months else ("", " of the month")
    dated = dates(fields)
    if dated:
        dated = f"on {dated}{of_month}"
    named = weekdays(fields, "and" if fields.either or not dated else "or")
    if fields.either:
        where = of_month if fields.weekday_marks else within
        return f"{dated} or on {named}{where}" if dated and named else f"every day{within}"
    if dated:
        return f"{dated}, only when it falls on {named}" if named else dated
    return f"on {named}{of_month if fields.weekday_marks else within}" if named else f"every day{within}"


def dates(fields: Fields) -> str:
    """The days of the month, without the month: `days 1 and 15 and the last day`; nothing when it is all of them."""
    if len(fields.days) == 31:
        return ""
    plain = [numbered("day", fields.days)] if fields.days else []
    # A working day near another one stands last: what follows it reads as one more day that it is near to.
    marks = sorted(fields.day_marks, key=lambda mark: (mark.working, mark.day != 0))
    return listed([*plain, *dict.fromkeys(map(_day_mark, marks))])


def weekdays(fields: Fields, last: str = "and") -> str:
    """The days of the week: `Monday to Friday`, `the 3rd Friday`; nothing when it is all of them."""
    if len(fields.weekdays) == 7:
        return ""
    # People's weeks begin on Monday, so that a working week reads as one span.
    plain = sorted((day - 1) % 7 for day in fields.weekdays)
    marks = dict.fromkeys(map(_weekday_mark, fields.weekday_marks))
    return listed([*_spans(plain, WEEKDAYS), *marks], last)


def _day_mark(mark: DayMark) -> str:
    if mark.day > 0:
        return f"the working day (Monday to Friday) nearest to day {mark.day}"
    if mark.day == 0:
        return "the last working day (Monday to Friday)" if mark.working else "the last day"
    back = f"the {'day' if mark.day == -1 else f'{ordinal(-mark.day)} day'} before the last day"
    return f"the working day (Monday to Friday) nearest to {back}" if mark.working else back


def _weekday_mark(mark: WeekdayMark) -> str:
    return f"the {ordinal(mark.nth) if mark.nth else 'last'} {WEEKDAYS[(mark.weekday - 1) % 7]}"


def ordinal(number: int) -> str:
    """`1st`, `22nd`, `13th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def numbered(noun: str, values: Sequence[int]) -> str:
    """`day 1`, `days 1 and 15`, `every 2nd day from 1 to 31`."""
    step = values[1] - values[0] if len(values) > _MOST_STEPS else 1
    if step > 1 and tuple(values) == tuple(range(values[0], values[-1] + 1, step)):
        return f"every {ordinal(step)} {noun} from {values[0]} to {values[-1]}"
    return f"{noun}{'s' if len(values) > 1 else ''} {series(values)}"


def _stepped(noun: str, values: Sequence[int]) -> list[str]:
    """Sorted values, in which many with one step are a span: `2020` and `every 2nd year from 2026 to 2198`."""
    words: list[str] = []
    plain: list[int] = []
    rest = list(values)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        length = next((n for n in range(1, len(rest)) if rest[n] - rest[n - 1] != step), len(rest))
        if step > 1 and length > _MOST_STEPS:
            words += [*_spans(plain, None), numbered(noun, rest[:length])]
            plain = []
        else:
            length = max(length - 1, 1)  # the last one may begin the next span
            plain += rest[:length]
        rest = rest[length:]
    return [*words, *_spans(plain, None)]


def series(values: Iterable[int], names: Sequence[str] | None = None) -> str:
    """Sorted values, by name if they have one, three or more in a row as a span: `Monday to Wednesday and Friday`."""
    return listed(_spans(values, names))


def _spans(values: Iterable[int], names: Sequence[str] | None) -> list[str]:
    spans: list[list[int]] = []
    for value in values:
        if spans and spans[-1][-1] == value - 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    words: list[str] = []
    for span in spans:
        called = [str(value) if names is None else names[value] for value in span]
        words += [f"{called[0]} to {called[-1]}"] if len(span) > 2 else called
    return words


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]
