"""The same questions, answered slowly and by definition, for the tests to compare with. It asks foliot for nothing.

A cron line is asked, minute after minute, whether it means this one. What happens in a gap or a fold is decided by
listing the minutes that are missing, or come twice.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, cached_property
from importlib.resources import files
from itertools import pairwise
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tests.tiers import by_tier

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
EPOCH = datetime(1970, 1, 1)
MINUTE, HOUR, DAY = 60, 3600, 86_400


def second_of(*when: int) -> int:
    """The second, since 1970, of a date and time in UTC."""
    return (datetime(*when) - EPOCH) // timedelta(seconds=1)  # type: ignore[arg-type]


FIRST, LAST = second_of(2010, 1, 1), second_of(2030, 1, 1)
"""The twenty years that are looked through, in all zones."""

# --------------------------------------------------------------------------------------------------------------- zones


class Shift(NamedTuple):
    """A change of a zone's offset; all in seconds."""

    at: int
    before: int
    after: int


@cache
def table_bytes(name: str) -> bytes:
    """A zone's table, as it is stored."""
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@cache
def table(name: str) -> ZoneInfo:
    """A zone, from the same release as ours, but as Python reads it."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as stored:
        return ZoneInfo.from_file(stored, key=name)


@cache
def zones() -> list[str]:
    """One name for each table: most names are links to another's. `Factory` is no zone, but a placeholder."""
    names = set(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()) - {"Factory"}
    return sorted({table_bytes(name): name for name in sorted(names, reverse=True)}.values())


ODD_ZONES = (
    "Africa/Casablanca",  # summer time, with a break for Ramadan, and standard time all year in the stored tables
    "Africa/Juba",  # a country that changed its offset for good
    "America/Caracas",  # moved by half an hour, and back
    "America/New_York",
    "America/Sao_Paulo",  # changed at midnight, so that a day began at one o'clock
    "America/St_Johns",  # half an hour beside its neighbours, and changes at one minute past midnight until 2011
    "Antarctica/Casey",  # changes by three hours, at irregular times
    "Antarctica/Troll",  # changes by two hours
    "Asia/Gaza",  # changes on dates that are decided each year
    "Asia/Kathmandu",  # an offset of 5:45
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",  # changes by half an hour
    "Europe/Dublin",  # its winter time is the one that is saved
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Paris",
    "Europe/Volgograd",
    "Pacific/Apia",  # left out a whole day
    "Pacific/Chatham",  # 12:45, and changes at 2:45
    "Pacific/Kiritimati",
    "UTC",
)
"""Zones whose clocks do unusual things, and the best-known ordinary ones."""


@cache
def chosen_zones() -> list[str]:
    """The odd zones, and every twentieth of all; in the longer forms of the suite, all zones."""
    odd = {table_bytes(name) for name in ODD_ZONES}
    some = {*zones()[::20], *(name for name in zones() if table_bytes(name) in odd)}
    return by_tier(sorted(some), zones())


def offset(name: str, second: int) -> int:
    """How far a zone's clocks are ahead of UTC."""
    found = datetime.fromtimestamp(second, table(name)).utcoffset()
    assert found is not None
    return found // timedelta(seconds=1)


@cache
def shifts(name: str) -> list[Shift]:
    """Every change in the twenty years: days that lie apart are compared, and the second is found by halving.

    No offset lasts less than a week, as test_zones.py shows from the stored tables.
    """
    found = []
    for low, high in pairwise(range(FIRST, LAST + 1, 5 * DAY)):
        before, after = offset(name, low), offset(name, high)
        if before != after:
            place = bisect_left(range(low, high), True, key=lambda second, old=before: offset(name, second) != old)  # type: ignore[misc]
            found.append(Shift(low + place, before, after))
    return found


def near(shift: Shift) -> datetime:
    """A wall time that this shift jumps over, or doubles."""
    return EPOCH + timedelta(seconds=shift.at + max(shift.before, shift.after) - HOUR // 2)


# ---------------------------------------------------------------------------------------------------------- cron lines


def number(word: str, names: list[str], base: int) -> int:
    return names.index(word.lower()) + base if word.lower() in names else int(word)


@cache
def in_field(field: str, value: int, low: int, high: int, names: str = "", base: int = 0) -> bool:
    """Whether `value` is in the field, decided item by item and without making any set of values."""
    for item in field.split(","):
        span, _, step = item.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        elif "-" in span:
            first, last = (number(end, names.split(), base) for end in span.split("-"))
        else:
            first = last = number(span, names.split(), base)
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


def nearest_working_day(day: date) -> date:
    """The Monday to Friday nearest to a day, in its month."""
    around = [day + timedelta(days=away) for away in (0, -1, 1, -2, 2)]
    return next(one for one in around if one.isoweekday() <= 5 and one.month == day.month)


def is_marked(item: str, day: date) -> bool:
    """Whether `L`, `L-3`, `15W`, `LW`, `5L` or `5#3` means this day."""
    length = monthrange(day.year, day.month)[1]
    if "#" in item or (item[-1] == "L" and item != "L"):
        name, _, nth = item.partition("#")
        this_weekday = number(name.rstrip("L"), WEEKDAYS, 0) % 7 == day.isoweekday() % 7
        return this_weekday and (nth == str((day.day + 6) // 7) if nth else day.day + 7 > length)
    wanted = length - int(item.rstrip("W").partition("-")[2] or 0) if item[0] == "L" else int(item.rstrip("W"))
    if not 1 <= wanted <= length:
        return False
    return day == (nearest_working_day(day.replace(day=wanted)) if item[-1] == "W" else day.replace(day=wanted))


@dataclass(frozen=True)
class Line:
    """A line of cron: five fields, or six with the seconds first."""

    expression: str

    @cached_property
    def fields(self) -> list[str]:
        """All six."""
        return ["0"] * (6 - len(self.expression.split())) + self.expression.split()

    @property
    def is_interval(self) -> bool:
        """Whether it means elapsed time: a minute or hour that starts with a star."""
        return "*" in (self.fields[1][0], self.fields[2][0])

    @cached_property
    def seconds(self) -> list[int]:
        return [second for second in range(60) if in_field(self.fields[0], second, 0, 59)]

    def has_time(self, hour: int, minute: int) -> bool:
        return in_field(self.fields[1], minute, 0, 59) and in_field(self.fields[2], hour, 0, 23)

    def has_day(self, day: date) -> bool:
        """Both day fields must hold when either starts with a star; otherwise one suffices."""
        of_month, month, of_week = self.fields[3:]
        if not in_field(month, day.month, 1, 12, " ".join(MONTHS), 1):
            return False
        dated = any(
            is_marked(item, day) if {*item} & {*"LW"} else in_field(item, day.day, 1, 31)
            for item in of_month.split(",")
        )
        numbers = (0, 7) if day.isoweekday() == 7 else (day.isoweekday(),)
        named = any(
            is_marked(item, day) if {*item} & {*"L#"} else in_field(item, number, 0, 7, " ".join(WEEKDAYS))
            for item in of_week.split(",")
            for number in numbers
        )
        return dated and named if of_month[0] in "*?" or of_week[0] in "*?" else dated or named

    def has_minute(self, wall: datetime) -> bool:
        """Whether cron would fire in this minute of the wall clock: the question Vixie asks of every line."""
        return self.has_time(wall.hour, wall.minute) and self.has_day(wall.date())


# ---------------------------------------------------------------------------------------------------- gaps and folds


class Clock:
    """The wall clock of a zone over a span of time, minute after minute."""

    def __init__(self, zone: str, first: int, last: int) -> None:
        minutes = range(first, last, MINUTE)
        offsets = [offset(zone, minute) for minute in minutes]
        self.passes: dict[int, list[int]] = {}
        """For each minute on the wall, the instants at which it was seen: one, or two in a fold."""
        self.gaps: list[tuple[int, int, int]] = []
        """The instant after each gap, and the offsets around it."""
        for minute, ahead in zip(minutes, offsets, strict=True):
            self.passes.setdefault(minute + ahead, []).append(minute)
        for minute, (before, after) in zip(minutes[1:], pairwise(offsets), strict=True):
            if after > before:
                self.gaps.append((minute, before, after))

    def ticks(self, line: Line, gap: str, fold: str, interval_like: str) -> list[int]:
        """Every instant, in seconds, at which the line runs under this policy."""
        runs_on = interval_like == "auto" and line.is_interval
        found: set[int] = set()
        for wall, instants in self.passes.items():
            if line.has_minute(EPOCH + timedelta(seconds=wall)):
                if not runs_on and fold == "first":
                    instants = instants[:1]
                elif not runs_on and fold == "second":
                    instants = instants[-1:]
                found.update(one + second for one in instants for second in line.seconds)
        for minute, before, after in self.gaps:
            if not runs_on and after - before <= 3 * HOUR:
                found.update(self._moved(line, gap, minute, before, after))
        return sorted(found)

    def _moved(self, line: Line, gap: str, minute: int, before: int, after: int) -> list[int]:
        """When the wall times run that the clocks jumped over."""
        missing = [
            wall + second
            for wall in range(minute + before, minute + after, MINUTE)
            if line.has_minute(EPOCH + timedelta(seconds=wall))
            for second in line.seconds
        ]
        if gap == "run_after":
            return [minute] if missing else []
        if gap == "shift_forward":
            return [wall - before for wall in missing]
        if gap == "shift_backward":
            return [wall - after for wall in missing]
        return []


# ------------------------------------------------------------------------------------------------------- random lines


def random_span(random: Random, low: int, high: int, near: int | None = None) -> str:
    """A value, a list, a range or a step of a field; around `near`, where that is given."""
    start = random.randint(low, high) if near is None else min(max(near + random.randint(-2, 2), low), high)
    end = min(high, start + random.randint(0, 4 if near is not None else high))
    kinds = [str(start)] * 4 + [f"{start}-{end}", f"{start}-{end}/{random.randint(1, 7)}", f"{start},{end}"]
    return random.choice(kinds)


def random_line(random: Random, near: datetime | None = None, marks: bool = True, seconds: bool = False) -> str:
    """A cron line; most of those made for a moment run not far from it."""
    minute = random.choice(["*", f"*/{random.randint(2, 40)}", "0", "30", random_span(random, 0, 59)])
    hour = random.choice(
        ["*", f"*/{random.randint(2, 13)}"] + [random_span(random, 0, 23, near.hour if near else None)] * 4
    )
    day, month, weekday = random_days(random, near, marks)
    head = [random.choice(["0", "30", "*/20", random_span(random, 0, 59)])] if seconds else []
    return " ".join([*head, minute, hour, day, month, weekday])


def random_days(random: Random, near: datetime | None, marks: bool) -> tuple[str, str, str]:
    if near is not None and random.random() < 0.6:
        return "*", "*", "*"
    month = random.choice(["*"] * 4 + [f"*/{random.randint(2, 6)}", random_span(random, 1, 12)])
    day = random.choice(["*"] * 3 + [f"*/{random.randint(2, 10)}", random_span(random, 1, 31)])
    weekday = random.choice(["*"] * 3 + [random_span(random, 0, 7), random.choice(WEEKDAYS), "mon-fri"])
    if marks and random.random() < 0.25:
        day = random.choice(["L", "LW", f"L-{random.randint(1, 6)}", f"{random.randint(1, 28)}W", "1,L"])
    elif marks and random.random() < 0.25:
        weekday = random.choice([f"{random.randint(0, 7)}#{random.randint(1, 5)}", f"{random.randint(0, 6)}L", "1,5L"])
    return day, month, weekday
