"""Reads a cron expression, strictly, as Vixie cron means it, with the additions that Quartz and Jenkins made.

Every refusal shows the expression, points at the character and says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import blake2b
from typing import Literal, NoReturn

from foliot.errors import InvalidRule
from foliot.timing.fields import DayMark, Fields, WeekdayMark
from foliot.timing.pieces import Piece, words

LONGEST = 1_000
"""No honest expression has more characters; anything longer is refused before it is looked at."""

Sixth = Literal["seconds", "year"]
"""What the sixth of six fields is: seconds, which come first, or the year, which comes last."""

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_VALUE = "[0-9]+|[A-Za-z]+"
_STEP = "(?:/(?P<step>[0-9]+))?"
_ITEM = re.compile(rf"(?:(?P<star>\*)|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?){_STEP}")
_HASH = re.compile(rf"H(?![A-Za-z])(?:\((?P<first>{_VALUE})-(?P<last>{_VALUE})\))?{_STEP}", re.IGNORECASE)
_DAY_MARK = re.compile(r"(?:(?P<last>L)(?:-(?P<back>[0-9]+))?|(?P<day>[0-9]+)(?=W))(?P<working>W)?", re.IGNORECASE)
_WEEKDAY_MARK = re.compile(r"(?P<day>[0-9]+|[A-Za-z]{3})(?:(?P<last>L)|#(?P<nth>[0-9]+))", re.IGNORECASE)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:us|ms|[smhdw]))+")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T")
# One digit at a time: a repeat inside a repeat could be cut in so many ways that a refusal would take hours.
_SPREADS = re.compile(r"(?:^|[ \t,])[Hh](?![A-Za-z])")
_LOOKS_LIKE_A_FIELD = re.compile(rf"(?:{'|'.join(_MONTHS + _WEEKDAYS)}|[0-9LWH*?#/,()-])+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """One of the places: what it is called and which values it takes."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    whole: range = field(init=False)
    common: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)
    """What most fields say, with its values: a star, a star with a step, a number, a name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", range(self.low, self.high + 1))
        if len(self.whole) > 60:
            return  # years
        self.common["*"] = self._values(1)
        self.common.update((f"*/{step}", self._values(step)) for step in range(1, self.high + 1))
        self.common.update((str(value), (value % 7 if self.high == 7 else value,)) for value in self.whole)
        self.common.update((name, (value,)) for name, value in self.names.items())

    def plain(self, text: str) -> tuple[int, ...] | None:
        """The values of a field that is common, or made of two or more that are: `9-17`, `1-59/2`, `0,30`. None for
        all else, be it right or wrong."""
        known = self.common.get(text)
        if known is not None:
            return known
        if "," in text:
            items = [self.plain(item) for item in text.split(",")]
            return None if None in items else tuple(sorted({value for item in items if item for value in item}))
        span, slash, step = text.partition("/")
        first, _, last = span.partition("-")
        low, high = self.common.get(first), self.common.get(last)
        if low is None or high is None or len(low) > 1 or len(high) > 1 or low[0] > high[0]:
            return None
        pace = _MINUTE.common.get(step, ()) if slash else (1,)
        if len(pace) != 1 or not pace[0] or (self.high == 7 and "7" in span):
            return None
        return tuple(range(low[0], high[0] + 1, pace[0]))

    def _values(self, step: int) -> tuple[int, ...]:
        """Each day of the week once: 7 is another name of 0."""
        values = tuple(self.whole)[::step]
        return tuple(sorted({day % 7 for day in values})) if self.high == 7 else values

    @property
    def top(self) -> int:
        """The highest value that is not another name of the lowest."""
        return 6 if self.names and self.high == 7 else self.high

    @property
    def spread(self) -> range:
        """Where `H` may put its slot: on days that every month has."""
        return range(self.low, (28 if self.high == 31 else self.top) + 1)


_SECOND = _Kind("second", 0, 59)
_MINUTE = _Kind("minute", 0, 59)
_HOUR = _Kind("hour", 0, 23)
_MONTH = _Kind("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
_DAY = _Kind("day of month", 1, 31)
_WEEKDAY = _Kind("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)})
_YEAR = _Kind("year", 1970, 2199)
_HASHED = frozenset("Hh")
_MARKS = frozenset("LlWw#?")
_ZERO = Piece("0", 0, "0")
_STAR = Piece("*", 0, "*")
_ONCE = (0,)

# What is allowed in one place, and asked for in another.
_ELSEWHERE = {
    "L": ("L (last) is only valid in the day of month, or after a day of week", "write L or L-3 there, or 5L"),
    "W": ("W (the nearest working day) is only valid after a day of month", "write 15W or LW there"),
    "#": ("# (the n-th weekday) is only valid after a day of week", "write 5#3 there, for the third Friday"),
    "?": ("? (no particular day) is only valid alone, as the day of month or day of week", "write * instead"),
    "H": ("H (a slot chosen by hash) is not allowed here", "write H, H/15, H(0-29) or H(0-29)/10, alone"),
}


def checked_text(expression: str) -> str:
    """Refuses what is no text, and what is too long to be looked at."""
    if not isinstance(expression, str):
        raise InvalidRule(f'{expression!r:.80} is not a cron expression; give text such as "0 2 * * *"')
    if len(expression) > LONGEST:
        raise InvalidRule(
            f"a cron expression has at most {LONGEST:,} characters, and this one has {len(expression):,}; "
            f"it starts with {expression[:40]!r}"
        )
    return expression


def read(expression: str, sixth: Sixth | None = None, seed: str = "") -> Fields:
    """The fields of a cron expression or nickname; InvalidRule when it is not one, or could never fire.

    `sixth` says what six fields mean; `seed` settles where `H` puts its slots: the schedule's id.
    """
    text = checked_text(expression).strip(" \t\r\n")
    if sixth not in (None, "seconds", "year"):
        raise InvalidRule(f"sixth={sixth!r:.20}: give seconds or year")
    if sixth is None and (fields := _common(text)) is not None:
        return fields
    pieces = words(text)
    if pieces and pieces[0].text.startswith("@"):
        return read(_expand(*pieces))
    second, (minute, hour, day, month, weekday), year = _places(text, pieces, sixth)
    spreads = ("H" in text or "h" in text) and _SPREADS.search(text) is not None
    seed = seed if spreads else ""
    days, day_marks = _days(day, seed)
    weekdays, weekday_marks = _weekdays(weekday, seed)
    fields = Fields(
        seconds=(0,) if second is _ZERO else _values(second, _SECOND, seed),
        minutes=_values(minute, _MINUTE, seed),
        hours=_values(hour, _HOUR, seed),
        days=days,
        months=_values(month, _MONTH, seed),
        weekdays=weekdays,
        years=None if year.text == "*" else _values(year, _YEAR, seed),
        day_marks=day_marks,
        weekday_marks=weekday_marks,
        # Vixie's rule looks at how the text starts, not at what it covers: `*/2` is a star, `1-31` is not.
        either=day.text[0] not in "*?" and weekday.text[0] not in "*?",
        is_interval=minute.text[0] == "*" or hour.text[0] == "*",
        is_spread=spreads,
    )
    if not fields.ever():
        raise day.refusal("this rule can never fire: no day matches", _why_never(fields))
    return fields


def _common(text: str) -> Fields | None:
    """The fields of five that are common, without a search for what is wrong: most expressions are read here. One that
    could never fire is left to `read`, which says why."""
    parts = text.split(" ")
    if len(parts) != 5:
        return None
    minute, hour, day, month, weekday = parts
    minutes, hours, days = _MINUTE.plain(minute), _HOUR.plain(hour), _DAY.plain(day)
    months, weekdays = _MONTH.plain(month), _WEEKDAY.plain(weekday)
    if minutes is None or hours is None or days is None or months is None or weekdays is None:
        return None
    either, is_interval = day[0] != "*" and weekday[0] != "*", minute[0] == "*" or hour[0] == "*"
    fields = Fields(_ONCE, minutes, hours, days, months, weekdays, None, (), (), either, is_interval, False)
    return fields if fields.ever() else None


def _expand(nickname: Piece, *rest: Piece) -> str:
    word = nickname.text.lower()
    if word == "@reboot":
        raise nickname.refusal(
            "@reboot is not a time, and Foliot does not start runs when a host boots",
            "call the job when your program starts, or give a rule with times",
        )
    if word == "@every":
        raise nickname.refusal("@every is not cron", 'use every("90s")')
    if word not in NICKNAMES:
        near = get_close_matches(word, NICKNAMES, 1)
        advice = f"did you mean {near[0]}?" if near else f"give one of {' '.join(NICKNAMES)}"
        raise nickname.refusal(f"{nickname.text:.20} is not a known nickname", advice)
    if rest:
        raise rest[0].refusal(f"there is text after {nickname.text}", "remove this")
    return NICKNAMES[word]


def _places(text: str, pieces: list[Piece], sixth: Sixth | None) -> tuple[Piece, list[Piece], Piece]:
    """Second, the five fields, year."""
    wanted = 6 if sixth else 5
    listed = "minute, hour, day of month, month, day of week"
    for piece in pieces[wanted:]:
        if not _LOOKS_LIKE_A_FIELD.fullmatch(piece.text):
            raise piece.refusal(
                f"there is text after the {_spelled(wanted)} fields of the cron expression", "remove this"
            )
    if len(pieces) == 7:
        return pieces[0], pieces[1:6], pieces[6]
    if len(pieces) == 6 and sixth is None:
        raise pieces[5].refusal(
            "six fields are ambiguous: seconds first, or year last",
            "choose seconds=True or year=True (--seconds or --year), or write five fields",
        )
    if len(pieces) != wanted:
        place = pieces[wanted] if len(pieces) > wanted else Piece(text, len(text), "")
        count = _spelled(len(pieces)) if pieces else "none"
        if len(pieces) == 1 and _DURATION.fullmatch(text):
            raise pieces[0].refusal(
                f"{text:.20} is a duration, not a rule", f'write every {text:.20}, in Python every("{text:.20}")'
            )
        if len(pieces) == 1 and text.startswith("-") and _DURATION.fullmatch(text[1:]):
            raise pieces[0].refusal(f"{text:.20} is a negative duration, and not a rule", f"write every {text[1:20]}")
        if len(pieces) == 1 and _INSTANT.match(text):
            raise pieces[0].refusal(f"{text:.40} is an instant, and not a rule", f"write at {text:.40}")
        raise place.refusal(
            f"a cron expression has {_spelled(wanted)} fields, and this one has {count}",
            f"write {_spelled(wanted)}: {'second, ' * (sixth == 'seconds')}{listed}{', year' * (sixth == 'year')}",
        )
    if sixth == "seconds":
        return pieces[0], pieces[1:], _STAR
    return _ZERO, pieces[:5], pieces[5] if sixth else _STAR


def _spelled(number: int) -> str:
    return {5: "five", 6: "six", 7: "seven"}.get(number, str(number))


def _days(piece: Piece, seed: str) -> tuple[tuple[int, ...], tuple[DayMark, ...]]:
    if (common := _DAY.common.get(piece.text)) is not None:
        return common, ()
    if _MARKS.isdisjoint(piece.text):
        return _values(piece, _DAY, seed), ()
    plain, marks = [], []
    for item in _listed(piece):
        match = _DAY_MARK.fullmatch(item.text)
        if match is None:
            plain.append(item)
        elif match["last"]:
            back = 0
            if match["back"]:
                back = _count(item.group(match, "back"), 30, "no month has a day L-", "use L-1 to L-30")
            marks.append(DayMark(-back, bool(match["working"])))
        else:
            marks.append(DayMark(_value(item.group(match, "day"), _DAY), True))
    return _union(plain, _DAY, seed), tuple(marks)


def _weekdays(piece: Piece, seed: str) -> tuple[tuple[int, ...], tuple[WeekdayMark, ...]]:
    if (common := _WEEKDAY.common.get(piece.text)) is not None:
        return common, ()
    if _MARKS.isdisjoint(piece.text):
        values = _values(piece, _WEEKDAY, seed)
        return values if values[-1] < 7 else tuple(sorted({day % 7 for day in values})), ()
    plain, marks = [], []
    for item in _listed(piece):
        match = _WEEKDAY_MARK.fullmatch(item.text)
        if item.text in ("L", "l"):
            raise item.refusal(
                "L alone is not a day of week",
                "write 5L for the last Friday, or L in the day of month for its last day",
            )
        if match is None:
            plain.append(item)
            continue
        weekday = _value(item.group(match, "day"), _WEEKDAY) % 7
        nth = 0
        if not match["last"]:
            nth = _count(item.group(match, "nth"), 5, "no month has a weekday number ", "use 1 to 5")
        marks.append(WeekdayMark(weekday, nth))
    return tuple(sorted({day % 7 for day in _union(plain, _WEEKDAY, seed)})), tuple(marks)


def _count(piece: Piece, most: int, problem: str, advice: str) -> int:
    """A number from 1 to `most`, of two digits at most."""
    number = int(piece.text) if len(piece.text) <= 2 else 0
    if not 1 <= number <= most:
        raise piece.refusal(f"{problem}{piece.text:.20}", advice)
    return number


def _listed(piece: Piece) -> Iterable[Piece]:
    """The items of a field for days, where `?` is another way to write `*`."""
    return [Piece(piece.whole, piece.start, "*")] if piece.text == "?" else piece.items()


def _values(piece: Piece, kind: _Kind, seed: str) -> tuple[int, ...]:
    if (common := kind.common.get(piece.text)) is not None:
        return common
    if "," not in piece.text:
        return tuple(_item(piece, kind, seed))
    return _union(piece.items(), kind, seed)


def _union(items: Iterable[Piece], kind: _Kind, seed: str) -> tuple[int, ...]:
    return tuple(sorted({value for item in items for value in _item(item, kind, seed)}))


def _item(piece: Piece, kind: _Kind, seed: str) -> range:
    if piece.text == "*":
        return kind.whole
    if piece.text[:1] in _HASHED and kind is not _YEAR and (hashed := _HASH.fullmatch(piece.text)):
        return _slot(piece, hashed, kind, seed)
    match = _ITEM.match(piece.text)
    if match is None or match.end() < len(piece.text):
        _refuse(piece, piece.beyond(match.end() if match else 0), kind)
    star, _, last, step = match.groups()
    low, high = kind.low, kind.high
    if not star:
        low = high = _value(piece.group(match, "first"), kind)
    if last:
        high = _value(piece.group(match, "last"), kind)
    if high < low:
        raise piece.refusal(f"the {kind.name} range {piece.text:.20} is reversed", f"write {_wrapped(low, high, kind)}")
    if not step:
        return range(low, high + 1)
    if not star and not last:
        # Vixie steps only through a range; other crons read `5/10` as `5-59/10`, so ask which is meant.
        raise piece.refusal(
            f"the {kind.name} {piece.text:.20} has a step without a range", f"write {low}-{kind.top}/{step:.20}"
        )
    return range(low, high + 1, _step(piece.group(match, "step"), kind))


def _slot(piece: Piece, match: re.Match[str], kind: _Kind, seed: str) -> range:
    """`H`: one value, or one offset for a step, that the same schedule always gets, and others mostly do not."""
    span = kind.spread
    if match["first"]:
        low, high = (_value(piece.group(match, name), kind) for name in ("first", "last"))
        if high < low:
            raise piece.refusal(f"the {kind.name} range of H is reversed", f"write H({high}-{low})")
        span = range(low, high + 1)
    step = _step(piece.group(match, "step"), kind) if match["step"] else len(span)
    if step > len(span):
        raise piece.group(match, "step").refusal(
            f"the step {step} is larger than the range of {kind.name}s that H may use", f"use 1 to {len(span)}"
        )
    digest = blake2b(f"{seed}\n{kind.name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return span[int.from_bytes(digest) % step :: step]


def _step(piece: Piece, kind: _Kind) -> int:
    if len(piece.text) > 4:
        raise piece.refusal(f"the {kind.name} step is too large", f"use 1 to {kind.high}")
    step = int(piece.text)
    if step == 0:
        raise piece.refusal(f"the {kind.name} step is zero", "write 1 or more")
    return step


def _value(piece: Piece, kind: _Kind) -> int:
    if piece.text.isdigit():
        if len(piece.text) <= 9 and kind.low <= (number := int(piece.text)) <= kind.high:
            return number
        raise piece.refusal(f"{kind.name} {piece.text:.20} is out of range", f"use {kind.low} to {kind.high}")
    word = piece.text.lower()
    if word in kind.names:
        return kind.names[word]
    if set(word) <= set("lwh"):
        raise piece.refusal(*_ELSEWHERE[word[0].upper()])
    near = [word[:3]] if word[:3] in kind.names else get_close_matches(word, kind.names, 1, 0.5)
    advice = f"did you mean {near[0]}?" if near else f"use {kind.low} to {kind.high}"
    raise piece.refusal(f"{piece.text:.20} is not a {kind.name}", advice)


def _refuse(item: Piece, rest: Piece, kind: _Kind) -> NoReturn:
    if not rest.text:
        raise rest.refusal(f"the {kind.name} is missing beside a comma", "write a value here, or remove the comma")
    character = rest.text[0]
    if item.text[0] in "Hh" and kind is not _YEAR and not item.text[1:2].isalpha():
        raise item.refusal(*_ELSEWHERE["H"])
    if character.upper() in _ELSEWHERE:
        raise rest.refusal(*_ELSEWHERE[character.upper()])
    advice = {
        "/": "a step is a whole number, as in */5 or 10-50/10",
        "-": f"a range has two ends, as in {kind.low}-{kind.high}",
    }.get(character, "write *, a value, a range such as 1-5, or a step such as */5, with commas between")
    raise rest.refusal(f"unexpected {character!r} in the {kind.name}", advice)


def _wrapped(low: int, high: int, kind: _Kind) -> str:
    """What somebody who wrote `22-2` meant."""
    spans = ((low, kind.top), (kind.low, high))
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in spans)


def _why_never(fields: Fields) -> str:
    if fields.days and not fields.day_marks and not fields.either:
        longest = max(29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in fields.months)
        if min(fields.days) > longest:
            return f"the longest of its months has {longest} days"
    return "no month of its years has such a day"
