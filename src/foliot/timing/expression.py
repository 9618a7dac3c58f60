"""Reads a five-field cron expression, strictly, as Vixie cron means it.

Every refusal shows the expression, points at the character and says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from foliot.errors import InvalidRule

LONGEST = 1_000
"""No honest expression has more characters; anything longer is refused before it is looked at."""

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
_LONGEST_MONTHS = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in range(1, 13)}

_NOT_YET = {
    "L": ("L (the last day) is not supported yet", "for now, list plain days"),
    "W": ("W (the nearest working day) is not supported yet", "for now, list plain days"),
    "#": ("# (the n-th weekday of the month) is not supported yet", "for now, list plain days"),
    "H": ("H (a slot spread by hash) is not supported yet", "for now, pick a number, or use jitter"),
    "?": ("? (no particular day) is not supported yet", "write * instead"),
}

_VALUE = "[0-9]+|[A-Za-z]+"
_ITEM = re.compile(rf"(?:(?P<star>\*)|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]+))?")
_WORD = re.compile(r"[^ \t]+")
_LOOKS_LIKE_A_FIELD = re.compile(rf"(?:[0-9]+|{'|'.join(_MONTHS + _WEEKDAYS)}|[LWH*?#/,-])+", re.IGNORECASE)


class Fields(NamedTuple):
    """What an expression says, as sorted values: all that the search for the next tick needs."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday, 6 is Saturday."""
    either: bool
    """True when a day needs only one of `days` and `weekdays`; False when it needs both."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the five places: what it is called and which values it takes."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)


_KINDS = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day of month", 1, 31),
    _Kind("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Kind("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of the expression that remembers where it stands, so that a refusal can point at it."""

    whole: str
    start: int
    text: str

    def beyond(self, offset: int) -> _Piece:
        """What is left of this piece after `offset` characters."""
        return _Piece(self.whole, self.start + offset, self.text[offset:])

    def group(self, match: re.Match[str], name: str) -> _Piece:
        """The part of this piece that a named group matched."""
        return _Piece(self.whole, self.start + match.start(name), match[name])

    def items(self) -> Iterator[_Piece]:
        """The parts between commas."""
        column = self.start
        for text in self.text.split(","):
            yield _Piece(self.whole, column, text)
            column += len(text) + 1

    def refusal(self, problem: str, advice: str) -> InvalidRule:
        """An error that shows the expression with a caret under this piece."""
        left = max(0, self.start - 60)
        excerpt = self.whole[left : self.start + 60]
        # A tab or a stray control character must not push the caret away from its target.
        shown = "".join(character if character.isprintable() else " " for character in excerpt)
        return InvalidRule(f"{problem}\n    {shown}\n    {' ' * (self.start - left)}^ {advice}")


def read(expression: str) -> Fields:
    """The fields of a cron expression or nickname; InvalidRule when it is not one, or could never fire."""
    if not isinstance(expression, str):
        raise InvalidRule(f'{expression!r:.80} is not a cron expression; give text such as "0 2 * * *"')
    if len(expression) > LONGEST:
        raise InvalidRule(
            f"a cron expression has at most {LONGEST:,} characters, and this one has {len(expression):,}; "
            f"it begins {expression[:40]!r}"
        )
    text = expression.strip(" \t\r\n")
    pieces = [_Piece(text, match.start(), match[0]) for match in _WORD.finditer(text)]
    if pieces and pieces[0].text.startswith("@"):
        return read(_expand(*pieces))
    _check_count(text, pieces)
    minutes, hours, days, months, weekdays = (_values(piece, kind) for piece, kind in zip(pieces, _KINDS, strict=True))
    # Vixie's rule looks at how the text starts, not at what it covers: `*/2` is a star, `1-31` is not.
    starred = pieces[2].text.startswith("*") or pieces[4].text.startswith("*")
    fields = Fields(minutes, hours, days, months, tuple(sorted({day % 7 for day in weekdays})), not starred)
    _check_that_it_fires(fields, pieces[2])
    return fields


def _expand(nickname: _Piece, *rest: _Piece) -> str:
    word = nickname.text.lower()
    if word == "@reboot":
        raise nickname.refusal(
            "@reboot names no time: a schedule outlives every machine that serves it",
            "call the job when your program starts, or write a rule of time",
        )
    if word == "@every":
        raise nickname.refusal("@every is not cron", 'use every("90s")')
    if word not in NICKNAMES:
        near = get_close_matches(word, NICKNAMES, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {' '.join(NICKNAMES)}"
        raise nickname.refusal(f"{nickname.text:.20} is not a known nickname", advice)
    if rest:
        raise rest[0].refusal(f"nothing may follow {nickname.text}", "remove this")
    return NICKNAMES[word]


def _check_count(text: str, pieces: list[_Piece]) -> None:
    five = "write five: minute, hour, day of month, month, day of week"
    if len(pieces) < 5:
        end = _Piece(text, len(text), "")
        raise end.refusal(f"a cron expression has five fields, and this one has {len(pieces) or 'none'}", five)
    extra = pieces[5:]
    for piece in extra:
        if not _LOOKS_LIKE_A_FIELD.fullmatch(piece.text):
            raise piece.refusal("there is text after the five fields of the cron expression", "remove this")
    if len(extra) == 1:
        raise extra[0].refusal("six fields are ambiguous: seconds first, or year last; neither is supported yet", five)
    if len(extra) == 2:
        raise extra[0].refusal("seven fields carry seconds first and year last; neither is supported yet", five)
    if extra:
        raise extra[0].refusal(f"a cron expression has five fields, and this one has {len(pieces)}", five)


def _values(piece: _Piece, kind: _Kind) -> tuple[int, ...]:
    return tuple(sorted({value for item in piece.items() for value in _item(item, kind)}))


def _item(piece: _Piece, kind: _Kind) -> range:
    match = _ITEM.match(piece.text)
    if match is None or match.end() < len(piece.text):
        raise _unreadable(piece.beyond(match.end() if match else 0), kind)
    low, high = kind.low, kind.high
    if not match["star"]:
        low = high = _value(piece.group(match, "first"), kind)
    if match["last"]:
        high = _value(piece.group(match, "last"), kind)
    if high < low:
        raise piece.refusal(
            f"the {kind.name} range {piece.text:.20} runs backwards", f"write {_wrapped(low, high, kind)}"
        )
    if not match["step"]:
        return range(low, high + 1)
    if not match["star"] and not match["last"]:
        # Vixie steps only through a range; other crons read `5/10` as `5-59/10`, so ask which is meant.
        top = 6 if kind.high == 7 else kind.high
        raise piece.refusal(
            f"the {kind.name} {piece.text:.20} steps through no range", f"write {low}-{top}/{match['step']:.20}"
        )
    step = int(match["step"])
    if step == 0:
        raise piece.group(match, "step").refusal(f"the {kind.name} step is zero", "write 1 or more")
    return range(low, high + 1, step)


def _value(piece: _Piece, kind: _Kind) -> int:
    if piece.text.isdigit():
        number = int(piece.text)
        if kind.low <= number <= kind.high:
            return number
        raise piece.refusal(f"{kind.name} {piece.text:.20} is out of range", f"use {kind.low} to {kind.high}")
    word = piece.text.lower()
    if word in kind.names:
        return kind.names[word]
    if set(word) <= set("lwh"):
        raise piece.refusal(*_NOT_YET[word[0].upper()])
    near = [word[:3]] if word[:3] in kind.names else get_close_matches(word, kind.names, 1, 0.5)
    advice = f"did you mean {near[0]}?" if near else f"use {kind.low} to {kind.high}"
    raise piece.refusal(f"{piece.text:.20} is not a {kind.name}", advice)


def _unreadable(piece: _Piece, kind: _Kind) -> InvalidRule:
    if not piece.text:
        return piece.refusal(f"the {kind.name} is missing beside a comma", "write a value here, or remove the comma")
    character = piece.text[0]
    if character.upper() in _NOT_YET:
        return piece.refusal(*_NOT_YET[character.upper()])
    advice = {
        "/": "a step is a whole number, as in */5 or 10-50/10",
        "-": f"a range has two ends, as in {kind.low}-{kind.high}",
    }.get(character, "write *, a value, a range such as 1-5, or a step such as */5, with commas between")
    return piece.refusal(f"unexpected {character!r} in the {kind.name}", advice)


def _wrapped(low: int, high: int, kind: _Kind) -> str:
    """What somebody who wrote `22-2` meant."""
    top = 6 if kind.high == 7 else kind.high
    spans = ((low, top), (kind.low, high))
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in spans)


def _check_that_it_fires(fields: Fields, days: _Piece) -> None:
    # With `either`, some weekday always comes. Otherwise it is enough that one of the days exists in one of the months:
    # in the 400 years of the Gregorian cycle every date, 29 February included, falls on each of the seven weekdays.
    longest = max(_LONGEST_MONTHS[month] for month in fields.months)
    if not fields.either and min(fields.days) > longest:
        raise days.refusal(
            f"this rule can never fire: none of its months has a day {min(fields.days)}",
            f"the longest of its months has {longest} days",
        )
