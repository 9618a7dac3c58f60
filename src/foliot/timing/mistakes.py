"""The classic mistakes: rules that are valid, and probably not what somebody meant. Few and true; each with its fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from foliot.domain.instant import DAY, MINUTE, SECOND, to_datetime
from foliot.domain.rule import Rule
from foliot.timing.combine import PRESENT, Composed
from foliot.timing.cron import Cron
from foliot.timing.elapsed import Every
from foliot.timing.expression import NICKNAMES
from foliot.timing.surprises import dst_surprises
from foliot.timing.wall import WallRule, begin_of
from foliot.timing.words import MONTHS, clock, dates, each, listed, weekdays
from foliot.timing.zones import VERSION, zone

_DAY = 86_400
_LENGTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STEP = re.compile(r"\*/(\d+)")
_STEP_OF_RANGE = re.compile(r"(?:\*|(\w+)-(\w+))/(\d+)")
_EVERY = {
    "second": 'every("{}s")',
    "minute": 'every("{}m")',
    "hour": 'every("{}h")',
    "day": 'rrule("FREQ=DAILY;INTERVAL={}", start=...)',
    "month": 'rrule("FREQ=MONTHLY;INTERVAL={}", start=...)',
}


def classic_mistakes(rule: Rule) -> list[str]:
    """What a careful colleague would say about a rule; mostly nothing."""
    found: list[str] = []
    if isinstance(rule, Cron):
        found += _of_cron(rule)
    if isinstance(rule, WallRule):
        found += _near_changes(rule)
    if isinstance(rule, Every):
        found += _of_rate(rule)
    if isinstance(rule, Composed):
        # Of what is only left out, nothing comes.
        found += (mistake for part in rule.kept for mistake in classic_mistakes(part))
    return list(dict.fromkeys(found))


class _Text(NamedTuple):
    """An expression as it was written, place by place."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str

    def five(self) -> str:
        return " ".join(self[1:])


def _written(rule: Cron) -> _Text:
    pieces = NICKNAMES.get(rule.expression.lower(), rule.expression).split()
    has_seconds = len(pieces) == 7 or rule.sixth == "seconds"
    return _Text(*pieces[:6]) if has_seconds else _Text("0", *pieces[:5])


def _of_cron(rule: Cron) -> Iterator[str]:
    text = _written(rule)
    yield from _days_and_weekdays(rule, text)
    yield from _too_often(rule, text)
    yield from _single_steps(rule, text)
    yield from _uneven_steps(rule, text)
    yield from _short_months(rule, text)
    yield from _herd(rule, text)


def _days_and_weekdays(rule: Cron, text: _Text) -> Iterator[str]:
    dated, named = dates(rule.fields), weekdays(rule.fields)
    if not dated or not named:
        return
    if rule.fields.either:
        day, weekday = text._replace(weekday="*").five(), text._replace(day="*").five()
        yield (
            f"day of month and day of week are both set, so the rule fires on each day that matches one of them: "
            f'{dated}, or {named}. To require both, combine two rules with &: "{day}" and "{weekday}"'
        )
    else:
        place, given, top = ("month", text.day, "1-31") if text.day[0] in "*?" else ("week", text.weekday, "0-6")
        yield (
            f"the day of {place} starts with *, so a day must match both: {dated} of the month, and {named}. "
            f"To require only one, write {given.replace('*', top, 1)} instead of {given}"
        )


def _too_often(rule: Cron, text: _Text) -> Iterator[str]:
    """A star where a zero was meant."""
    if text.second == "*" and text.minute.isdigit():
        yield "the rule fires every second of that minute, 60 times; to fire once, set the second to 0"
    elif text.minute == "*" and text.hour.isdigit():
        once = text._replace(minute="0")
        yield f'the rule fires every minute of that hour, 60 times; to fire once, write "{once.five()}"'
    elif text.minute == text.hour == "*" and text.day.isdigit():
        once = text._replace(minute="0", hour="0")
        yield f'the rule fires every minute of that day, 1,440 times; to fire once, write "{once.five()}"'


def _single_steps(rule: Cron, text: _Text) -> Iterator[str]:
    """Steps that reach no second value."""
    places = (("second", "minute"), ("minute", "hour"), ("hour", "day"), ("day", "month"), ("month", "year"))
    values = (rule.fields.seconds, rule.fields.minutes, rule.fields.hours, rule.fields.days, rule.fields.months)
    for (unit, longer), given, found in zip(places, text[:5], values, strict=True):
        match = _STEP_OF_RANGE.fullmatch(given)
        if match is None or len(found) > 1 or (match[1] is not None and match[1] == match[2]):
            continue
        step = int(match[3])
        end = longer if match[1] is None else "range"
        yield (
            f"{given} matches only {unit} {found[0]}, because a step ends with {'its' if match[1] else 'the'} {end}. "
            f"For every {step} {unit}s, use {_EVERY[unit].format(step)}"
        )


def _uneven_steps(rule: Cron, text: _Text) -> Iterator[str]:
    """A step counts from the start of each minute, hour, day; where it does not fit, the last one is shorter."""
    fields = rule.fields
    is_daily = not dates(fields) and not weekdays(fields)
    # Where no minute or hour follows upon another, nobody sees how a step ends.
    if _meet(fields.minutes):
        yield from _uneven(text.second, 60, "second", "minute")
    if _meet(fields.hours):
        yield from _uneven(text.minute, 60, "minute", "hour")
    if is_daily and len(fields.months) == 12:
        yield from _uneven(text.hour, 24, "hour", "day")
    step = _STEP.fullmatch(text.day)
    if step and 1 < int(step[1]) < 31 and not weekdays(fields):
        yield (
            f"{text.day} restarts on day 1 of each month, so the last interval of a month can be shorter. "
            f'For every {step[1]} days, use rrule("FREQ=DAILY;INTERVAL={step[1]}", start=...)'
        )


def _meet(values: tuple[int, ...]) -> bool:
    return any(later - earlier == 1 for earlier, later in pairwise(values))


def _uneven(text: str, whole: int, unit: str, longer: str) -> Iterator[str]:
    match = _STEP.fullmatch(text)
    step = int(match[1]) if match else 1
    rest = whole % step
    if rest and step < whole:
        yield (
            f"{text} restarts each {longer}, so its last interval is {rest} {unit}{'s' * (rest > 1)}, not {step}. "
            f'For equal intervals, use every("{step}{unit[0]}")'
        )


def _short_months(rule: Cron, text: _Text) -> Iterator[str]:
    given = [int(item) for item in text.day.split(",") if item.isdigit()]
    day = max(given, default=0)
    without = [month for month in rule.fields.months if _LENGTHS[month] < day]
    if (day, rule.fields.months) == (29, (2,)):
        yield "29 February exists only in leap years; for the last day of February, write L"
    elif day == 29 and 2 in rule.fields.months:
        yield "February has a day 29 only in leap years; for the last day of a month, write L"
    elif without:
        short = listed([MONTHS[month] for month in without])
        yield f"{short} {'has' if len(without) == 1 else 'have'} no day {day}; for the last day of a month, write L"


def _herd(rule: Cron, text: _Text) -> Iterator[str]:
    if text.second != "0" or text.minute != "0":
        return
    spread = text._replace(minute="H").five()
    when = "midnight" if text.hour == "0" else "minute 0"
    yield f'the rule fires at {when}, like many others; if the minute does not matter, write "{spread}" or set jitter'


def _near_changes(rule: WallRule) -> Iterator[str]:
    """In the years around the tables' own release: a rule has no clock, and zones change their habits."""
    if len(rule.fields.hours) == 24 if isinstance(rule, Cron) else rule.is_elapsed:
        return
    first, last = (begin_of(int(VERSION[:4]) + years) for years in (0, 2))
    if not dst_surprises(rule, first, last):
        return
    spans: list[list[int]] = []
    for low, high in sorted({_span(*change) for change in zone(rule.tz).changes(first // SECOND, last // SECOND)}):
        if spans and low <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], high)
        else:
            spans.append([low, high])
    unsafe = listed([f"{_clock(low)} to {_clock(high)}" for low, high in spans])
    yield (
        f"when the clocks of {rule.tz} change, a time of this rule is missing or occurs twice; "
        f"times outside {unsafe} are not affected"
    )


def _span(at: int, before: int, after: int) -> tuple[int, int]:
    low = (at + min(before, after)) % _DAY
    return low, low + abs(after - before)


def _clock(second: int) -> str:
    minutes = second // 60 % 1441
    return clock(*divmod(minutes, 60))


def _of_rate(rule: Every) -> Iterator[str]:
    pace = each(rule.interval)
    if rule.interval % DAY == 0:
        yield (
            f"{pace}{rule.phase()}{',' if rule.phase() else ''} counts elapsed time, so its local time moves when "
            f"the clocks change. For a fixed time of day, use {_by_calendar(rule)}"
        )
    elif rule.interval >= MINUTE and DAY % rule.interval:
        yield f"{pace} does not divide a day, so its times differ from day to day; for fixed times, use cron"


def _by_calendar(rule: Every) -> str:
    """The rule of the calendar that has the pace of a rate of whole days."""
    days = rule.interval // DAY
    near = to_datetime(rule.next(PRESENT - 1) or rule.start)
    if days in (1, 7):
        weekday = "*" if days == 1 else f"{near:%a}".lower()
        return f'cron("0 2 * * {weekday}", tz="Europe/Paris")'
    return f'rrule("FREQ=DAILY;INTERVAL={days}", start="{near:%Y-%m-%d}T02:00", tz="Europe/Paris")'
