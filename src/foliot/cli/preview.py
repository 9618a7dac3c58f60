"""`foliot preview`: a rule on a calendar, before it is saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated

import typer
from rich.text import Text

from foliot import timing
from foliot.cli.options import JsonOption
from foliot.cli.output import console, heading, print_items, print_json, say
from foliot.cli.rules import (
    FoldOption,
    FromOption,
    GapOption,
    IdOption,
    IntervalOption,
    PresetOption,
    RuleArgument,
    SecondsOption,
    YearOption,
    ZoneOption,
    begin,
    tell,
    why_none,
)
from foliot.cli.words import counted
from foliot.domain.instant import rfc3339
from foliot.domain.rule import Rule
from foliot.operate.rules import day_shape, local, shown_zone
from foliot.timing.preview import Day, by_hour, preview
from foliot.timing.words import MONTHS, WEEKDAYS, clock

WeeksOption = Annotated[int, typer.Option("--weeks", min=1, max=53, help="Number of weeks to show.")]

_MOST_WIDE = 84
"""Widest calendar, in characters: days further apart are harder to read."""
_MOST_TIMES = 3
"""A day with more ticks shows their number."""


def preview_days(
    rule: RuleArgument,
    tz: ZoneOption = "UTC",
    start: FromOption = None,
    weeks: WeeksOption = 4,
    preset: PresetOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    interval_like: IntervalOption = None,
    seconds: SecondsOption = False,
    year: YearOption = False,
    schedule: IdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a rule's times on a calendar, with clock changes."""
    parsed = timing.parse(
        rule, tz, preset=preset, gap=gap, fold=fold, interval_like=interval_like, seconds=seconds, year=year
    )
    named = parsed if schedule is None else parsed.named(schedule)
    shown = shown_zone(named, tz)
    first = begin(start)
    days = preview(named, first, weeks * 7, shown)
    if as_json:
        print_json([day_shape(day) for day in days])
        return
    tell(named.explain())
    if not any(day.count for day in days):
        tick = named.next(first)
        rare = f"no time in {counted(weeks, 'week')}; the next time is"
        tell(why_none(named) if tick is None else f"{rare} {rfc3339(tick)}")
        return
    _print_calendar(days, shown)
    _print_hours(named, days)
    changes = [day.change for day in days if day.change]
    if changes:
        heading("* clock changes")
        print_items(changes)


def _width() -> int:
    return min(console().width, _MOST_WIDE)


def _print_calendar(days: Sequence[Day], tz: str) -> None:
    """Weeks as rows, Monday to Sunday; a day is its number, and below that its times."""
    width = _width() // 7
    heading(f"days and times in {tz}")
    console().print(Text("".join(f"{name[:3]:<{width}}" for name in WEEKDAYS).rstrip(), style="dim"), soft_wrap=True)
    blank = [None] * days[0].date.weekday()
    cells: list[Day | None] = [*blank, *days]
    for first in range(0, len(cells), 7):
        _print_week(cells[first : first + 7], days[0], tz, width)


def _print_week(week: Sequence[Day | None], first: Day, tz: str, width: int) -> None:
    if any(day is not None and day is not first and day.date.day == 1 for day in week):
        say("")
    dates = Text()
    for day in week:
        is_new = day is not None and (day is first or day.date.day == 1)
        style = "bold yellow" if day and day.change else "bold" if is_new else "dim"
        dates.append(f"{_number(day, is_new):<{width}}", style=style)
    rows = zip_longest(*(_told(day, tz, width) for day in week), fillvalue="")
    for line in (dates, *(Text("".join(f"{cell:<{width}}" for cell in row)) for row in rows)):
        line.rstrip()
        console().print(line, soft_wrap=True)


def _number(day: Day | None, is_new: bool) -> str:
    """`8`, `8*`, `8 Mar`, `8*Mar`."""
    if day is None:
        return ""
    month = MONTHS[day.date.month][:3] if is_new else ""
    return f"{day.date.day}{'*' if day.change else ' '}{month}"


def _told(day: Day | None, tz: str, width: int) -> list[str]:
    if day is None:
        return [""]
    if not day.count:
        return ["-"]
    whens = [local(tick, tz) for tick in day.times[:_MOST_TIMES]]
    times = [clock(when.hour, when.minute, when.second) for when in whens]
    if day.count <= _MOST_TIMES and max(map(len, times)) < width:
        return times
    number = f"{day.count:,}{'+' if day.is_capped else ''}"
    return [f"{number}x" if len(number) + 1 < width else number]


def _print_hours(rule: Rule, days: Sequence[Day]) -> None:
    """The times per hour of the most common kind of day with many times."""
    many = [day for day in days if day.count > _MOST_TIMES and not day.change]
    if not many:
        return
    usual, _ = Counter(day.count for day in many).most_common(1)[0]
    day = next(day for day in many if day.count == usual)
    counts = [f"{count:,}" if count else "." for count in by_hour(rule, day)]
    size = max(3, *(len(count) + 1 for count in counts))
    across = next((hours for hours in (24, 12, 8, 6) if hours * size <= _width()), 4)
    heading(f"times per hour, as on {day.date:%a} {day.date.day} {MONTHS[day.date.month]}")
    for first in range(0, len(counts), across):
        hours = range(first, min(first + across, len(counts)))
        console().print(Text("".join(f"{hour:0>2}".rjust(size) for hour in hours), style="dim"), soft_wrap=True)
        console().print("".join(counts[hour].rjust(size) for hour in hours), soft_wrap=True)
