"""Reads iCalendar recurrences (RFC 5545): DTSTART, RRULE, RDATE and EXDATE lines, or an RRULE alone.

Only reads: what a rule leaves to its start is filled in elsewhere. Whatever is not supported is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Literal, NamedTuple

from foliot.errors import InvalidRule
from foliot.timing.periods import Frequency, Weekday
from foliot.timing.pieces import Piece

LONGEST = 10_000
"""Six hundred dates fit; the bound keeps hostile text away."""
MOST_COUNT = 10_000
"""They are counted once, when the rule is made: some 40 ms."""

_WEEKDAYS = "MO TU WE TH FR SA SU".split()
_NUMBERS = {
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (-366, 366),
}
_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)
_PROPERTIES = ("DTSTART", "RRULE", "RDATE", "EXDATE")
_REASONS = {
    "EXRULE": "EXRULE is not supported, and RFC 5545 removed it; subtract a rule instead: rrule(...) - rrule(...)",
    "RSCALE": "RSCALE is not supported: only the Gregorian calendar is",
    "SKIP": "SKIP is not supported: a date that does not exist, such as 30 February, is left out",
    "BYEASTER": "BYEASTER is not part of RFC 5545 and is not supported",
}
_DATE = "20261231, or 20261231T090000, with a Z at the end for UTC"

# A long line may go on in the next one, after one blank. People indent lines, too.
_FOLD = re.compile(r"\r?\n[ \t](?![ \t]*(?:(?:DTSTART|RRULE|RDATE|EXDATE|EXRULE)[:;]|FREQ=))", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_BYDAY = re.compile(rf"([+-]?[0-9]{{1,2}})?({'|'.join(_WEEKDAYS)})")
_MOMENT = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z)?)?")


class Moment(NamedTuple):
    """A date or a time, as iCalendar writes it."""

    when: datetime
    form: Literal["date", "wall", "utc"]


class Given(NamedTuple):
    """What a text says, and no more than that. What is empty was not said."""

    text: str
    """The same in one spelling, without DTSTART and TZID."""
    start: Moment | None
    tz: str | None
    """TZID, which must be the same on every line."""
    frequency: Frequency
    interval: int
    most: int | None
    """COUNT."""
    until: Moment | None
    week_start: int
    weekdays: tuple[Weekday, ...]
    numbers: dict[str, tuple[int, ...]]
    """BYHOUR and the like, sorted."""
    dates: tuple[Moment, ...]
    exceptions: tuple[Moment, ...]


class _Line(NamedTuple):
    name: str
    tz: str | None
    value: str

    def spelt(self) -> str:
        return self.value if self.name == "RRULE" else f"{self.name}:{self.value}"


class _Refused(Exception):
    """A part that cannot be, by its name, with the item of its list that is to blame."""

    def __init__(self, name: str, problem: str, item: str = "") -> None:
        super().__init__(problem)
        self.name, self.item = name, item

    def pointed(self, text: str) -> InvalidRule:
        """The refusal, which points at the part; the text may be in small letters and on several lines."""
        folded = text.upper()
        match = re.search(rf"(?<![A-Z]){re.escape(self.name)}(?![A-Z])", folded)
        place = match.start() if match and self.name else 0
        within = folded.find(self.item, place + len(self.name)) if self.item else -1
        problem, _, advice = str(self).partition("; ")
        return Piece(text, within if within >= 0 else place, "").refusal(problem, advice)


def read(text: str) -> Given:
    """Reads one recurrence; InvalidRule for anything else."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRule(f"{text!r:.80} is not a recurrence; write it as FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9")
    if len(text) > LONGEST or not text.isascii():
        raise InvalidRule(f"{text!r:.80} is not a recurrence: it must be plain ASCII, {LONGEST:,} characters at most")
    try:
        return _read(text)
    except _Refused as refused:
        raise refused.pointed(text) from None


def _read(text: str) -> Given:
    lines = [_line(line) for line in _lines(text)]
    for name in ("DTSTART", "RRULE"):
        if sum(line.name == name for line in lines) > 1:
            hint = "; join rules with |: rrule(...) | rrule(...)" if name == "RRULE" else ""
            raise _Refused(name, f"{name} is given twice; a recurrence has one{hint}")
    rule = next((line for line in lines if line.name == "RRULE"), None)
    if rule is None:
        raise _Refused("", f"{text!r:.80} has no rule; add one: FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9")
    start = next((line for line in lines if line.name == "DTSTART"), None)
    zones = {line.tz for line in lines if line.tz is not None}
    if len(zones) > 1:
        raise _Refused("TZID", f"a recurrence has one time zone; use only one of {', '.join(sorted(zones))[:200]}")
    parts = _parts(rule.value)
    given = Given(
        text="\n".join(line.spelt() for line in lines if line is not start),
        start=None if start is None else _moment("DTSTART", start.value),
        tz=zones.pop() if zones else None,
        frequency=_frequency(parts),
        interval=_whole("INTERVAL", parts.get("INTERVAL", "1")),
        most=_whole("COUNT", parts["COUNT"]) if "COUNT" in parts else None,
        until=_moment("UNTIL", parts["UNTIL"]) if "UNTIL" in parts else None,
        week_start=_week_start(parts.get("WKST", "MO")),
        weekdays=tuple(_weekdays(parts["BYDAY"])) if "BYDAY" in parts else (),
        numbers={name: _numbers(name, parts[name]) for name in _NUMBERS if name in parts},
        dates=_moments(lines, "RDATE"),
        exceptions=_moments(lines, "EXDATE"),
    )
    _check(given)
    return given


# ---------------------------------------------------------------------------------------------------------------- lines


def _lines(text: str) -> Iterator[str]:
    """One for each property, wherever blanks and line ends are. Blanks beside `;` and `,` mean nothing."""
    for line in _FOLD.sub("", text).splitlines():
        joined: list[str] = []
        for word in line.split():
            if joined and (joined[-1][-1] in ";,=:" or word[0] in ";,="):
                joined[-1] += word
            else:
                joined.append(word)
        yield from joined


def _line(text: str) -> _Line:
    if ":" not in text:
        return _Line("RRULE", None, text.upper().rstrip(";"))
    head, _, value = text.partition(":")
    name, *parameters = head.split(";")
    name = name.upper()
    if name not in _PROPERTIES:
        known = ", ".join(_PROPERTIES)
        raise _Refused(name, _REASONS.get(name) or f"{name[:40]!r} is not supported; a recurrence has only {known}")
    tz = None
    for parameter in parameters:
        key, _, setting = parameter.partition("=")
        if key.upper() == "TZID" and setting and name != "RRULE":
            tz = setting.strip('"')
        elif key.upper() != "VALUE" or setting.upper() not in ("DATE", "DATE-TIME"):
            problem = f"{name} with {parameter[:40]} is not supported; only TZID=, VALUE=DATE and DATE-TIME are"
            raise _Refused(name, problem, parameter.upper())
    return _Line(name, tz, value.upper().rstrip(";"))


def _parts(value: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in value.split(";"):
        name, _, setting = part.partition("=")
        if name not in _PARTS:
            near = get_close_matches(name[:40], _PARTS, 1)
            hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(_PARTS)}"
            raise _Refused(name, _REASONS.get(name) or f"{part[:40]!r} is not a part of an RRULE; {hint}")
        if name in parts:
            raise _Refused(name, f"{name} is given twice; put its values into one list, or drop one")
        if not setting:
            raise _Refused(name, f"{name} has no value; write {name}=..., or drop it")
        parts[name] = setting
    return parts


# --------------------------------------------------------------------------------------------------------------- values


def _frequency(parts: dict[str, str]) -> Frequency:
    try:
        return Frequency[parts["FREQ"]]
    except KeyError:
        given = f"FREQ={parts['FREQ'][:40]} is not known" if "FREQ" in parts else "FREQ is missing"
        raise _Refused("FREQ", f"{given}; write FREQ= and one of {', '.join(one.name for one in Frequency)}") from None


def _whole(name: str, text: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if number < 1:
        raise _Refused(name, f"{name}={text[:40]} is invalid; give a whole number from 1 to 999999999")
    if name == "COUNT" and number > MOST_COUNT:
        raise _Refused(name, f"COUNT={text[:40]} is too large; the maximum is {MOST_COUNT}. Give UNTIL= instead")
    return number


def _numbers(name: str, text: str) -> tuple[int, ...]:
    low, high = _NUMBERS[name]
    values: set[int] = set()
    for item in text.split(","):
        value = int(item) if _NUMBER.fullmatch(item) else None
        if name == "BYSECOND" and value == 60:
            raise _Refused(name, "BYSECOND=60 is a leap second, which POSIX time does not have; give 0 to 59")
        if value is None or not low <= value <= high or (value == 0 and low < 0):
            span = f"1 to {high}, or -1 to {low} from the end" if low < 0 else f"{low} to {high}"
            raise _Refused(name, f"{item[:40]!r} in {name} is invalid; give {span}", item)
        values.add(value)
    return tuple(sorted(values))


def _week_start(text: str) -> int:
    if text not in _WEEKDAYS:
        raise _Refused("WKST", f"WKST={text[:40]} is unknown; give one of {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(text)


def _weekdays(text: str) -> list[Weekday]:
    weekdays: set[Weekday] = set()
    for item in text.split(","):
        match = _BYDAY.fullmatch(item)
        nth = int(match[1] or 0) if match else 0
        if match is None or (match[1] and not 1 <= abs(nth) <= 53):
            problem = f"{item[:40]!r} in BYDAY is invalid; write MO, 1MO (the first), or -1MO (the last)"
            raise _Refused("BYDAY", problem, item)
        weekdays.add(Weekday(_WEEKDAYS.index(match[2]), nth))
    return sorted(weekdays)


def _moment(name: str, text: str) -> Moment:
    match = _MOMENT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        when = datetime.fromisoformat(f"{match[1]}T{match[2] or '000000'}")
    except ValueError:
        raise _Refused(name, f"{text[:40]!r} in {name} is not a date or a time; write {_DATE}", text) from None
    return Moment(when, "utc" if match[3] else "wall" if match[2] else "date")


def _moments(lines: list[_Line], name: str) -> tuple[Moment, ...]:
    return tuple(_moment(name, item) for line in lines if line.name == name for item in line.value.split(","))


# --------------------------------------------------------------------------------------------------------------- checks


def _check(given: Given) -> None:
    """What RFC 5545 forbids. Other readers ignore such parts, and so run at times that nobody asked for."""
    frequency, numbers = given.frequency, given.numbers
    if given.most is not None and given.until is not None:
        raise _Refused("UNTIL", "COUNT and UNTIL both set the end of the rule; give one of them")
    if "BYMONTHDAY" in numbers and frequency is Frequency.WEEKLY:
        raise _Refused("BYMONTHDAY", "BYMONTHDAY cannot be combined with FREQ=WEEKLY; write FREQ=MONTHLY or FREQ=DAILY")
    if "BYYEARDAY" in numbers and frequency in (Frequency.DAILY, Frequency.WEEKLY, Frequency.MONTHLY):
        raise _Refused("BYYEARDAY", f"BYYEARDAY cannot be combined with FREQ={frequency.name}; write FREQ=YEARLY")
    if "BYWEEKNO" in numbers and frequency is not Frequency.YEARLY:
        raise _Refused("BYWEEKNO", f"BYWEEKNO cannot be combined with FREQ={frequency.name}; write FREQ=YEARLY")
    if "BYSETPOS" in numbers and not given.weekdays and len(numbers) == 1:
        raise _Refused(
            "BYSETPOS", "BYSETPOS selects among the times of other BY parts, and none is given; add BYDAY, for example"
        )
    if given.start is not None and given.start.form == "date":
        for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
            if name in numbers:
                date = f"{given.start.when:%Y%m%d}"
                raise _Refused(
                    name,
                    f"{name} cannot be combined with a DTSTART that is a date, and RFC 5545 says to ignore it; "
                    f"write the time of day into DTSTART, as in DTSTART:{date}T090000, or drop {name}",
                )
    furthest = max((abs(one.nth) for one in given.weekdays), default=0)
    if not furthest:
        return
    if frequency > Frequency.MONTHLY or "BYWEEKNO" in numbers:
        what = "BYWEEKNO" if "BYWEEKNO" in numbers else f"FREQ={frequency.name}"
        raise _Refused(
            "BYDAY",
            f"BYDAY with a number, such as 1MO, cannot be combined with {what}; write FREQ=MONTHLY, or MO alone",
        )
    if furthest > 5 and (frequency is Frequency.MONTHLY or "BYMONTH" in numbers):
        raise _Refused(
            "BYDAY", f"BYDAY has {furthest} as the number of a weekday, but a month has at most five; give 1 to 5"
        )
