"""Reads TZif (RFC 9636): the changes of a zone's offset that its file lists, and the rule for the years after them.

`zoneinfo` answers for one instant and lists no changes, so a search for them has to probe. The file lists them.
"""

from __future__ import annotations

import re
from array import array
from datetime import date
from struct import unpack_from
from sys import byteorder
from typing import NamedTuple

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_HEADER = 44
_NAME = r"(?:<[A-Za-z0-9+-]+>|[A-Za-z]+)"
_TIME = r"([+-]?)(\d{1,3})(?::(\d\d))?(?::(\d\d))?"
_POSIX = re.compile(rf"{_NAME}{_TIME}(?:{_NAME}(?:{_TIME})?,([^,]+),([^,]+))?", re.ASCII)
_WHEN = re.compile(rf"(?:M(\d+)\.(\d)\.(\d)|J(\d+)|(\d+))(?:/{_TIME})?", re.ASCII)


class Change(NamedTuple):
    """A change of the offset: the instant in seconds, and the seconds ahead of UTC before and after it."""

    at: int
    before: int
    after: int


class _When(NamedTuple):
    """A day of each year, and seconds after its midnight."""

    month: int
    week: int
    """1 to 5, where 5 is the last; 0 for a number of the day in the year."""
    day: int
    """The weekday, 0 for Sunday; or the number of the day, from 0."""
    counts_leap_day: bool
    second: int

    def in_year(self, year: int) -> int:
        """Seconds since 1970 on the wall clock."""
        if not self.week:
            begin = date(year, 1, 1).toordinal()
            skips = not self.counts_leap_day and self.day >= 59 and date(year, 12, 31).toordinal() - begin == 365
            return (begin + self.day + skips - _EPOCH) * _DAY + self.second
        first = date(year, self.month, 1).toordinal()
        day = first + (self.day - first) % 7 + (self.week - 1) * 7
        last = (date(year, self.month + 1, 1) if self.month < 12 else date(year, 12, 31)).toordinal()
        while self.week == 5 and day >= last + (self.month == 12):
            day -= 7
        return (day - _EPOCH) * _DAY + self.second


class Tail(NamedTuple):
    """The rule for all years after the listed changes: a standard offset, another one, and when each begins."""

    standard: int
    other: int
    to_other: _When
    to_standard: _When

    def in_year(self, year: int) -> list[Change]:
        """The changes of one year, in order; none where one offset lasts for the whole year."""
        forth = Change(self.to_other.in_year(year) - self.standard, self.standard, self.other)
        back = Change(self.to_standard.in_year(year) - self.other, self.other, self.standard)
        return sorted((forth, back))


class Table(NamedTuple):
    """What a file says."""

    first: int
    """The offset before the first change."""
    changes: tuple[Change, ...]
    end: int | None
    """The instant of the last line, also where the offset stayed; None without any. The tail speaks of what follows."""
    tail: Tail | None
    """None: the last offset lasts."""


def read(data: bytes) -> Table:
    """Reads the second block of a file, which has 64-bit times; the first one is for old readers."""
    _, _, _, times, kinds, letters = _counts(data, 0)
    place = _HEADER + times * 5 + kinds * 6 + letters + _rest(data, 0, 4)
    _, _, _, times, kinds, letters = _counts(data, place)
    body = place + _HEADER
    when = array("q", data[body : body + times * 8])
    if byteorder == "little":
        when.byteswap()
    place = body + times * 8
    indices, place = data[place : place + times], place + times
    offsets = [unpack_from(">l", data, place + 6 * kind)[0] for kind in range(kinds)]
    first = before = offsets[0]
    changes = []
    for at, index in zip(when, indices, strict=True):
        after = offsets[index]
        if after != before:
            changes.append(Change(at, before, after))
        before = after
    footer = data[place + kinds * 6 + letters + _rest(data, body - _HEADER, 8) :].decode("ascii").strip()
    return Table(first, tuple(changes), when[-1] if when else None, _tail(footer))


def _counts(data: bytes, place: int) -> tuple[int, ...]:
    if data[place : place + 4] != b"TZif":
        raise ValueError("this is not a TZif file of version 2 or later")
    return unpack_from(">6l", data, place + 20)


def _rest(data: bytes, place: int, width: int) -> int:
    """The bytes of a block that say nothing about offsets: leap seconds, and which clock a change was set by."""
    utc, standard, leaps, *_ = _counts(data, place)
    return leaps * (width + 4) + standard + utc


def _tail(text: str) -> Tail | None:
    """A POSIX TZ string: `EST5EDT,M3.2.0,M11.1.0`. Its offsets are those behind UTC."""
    match = _POSIX.fullmatch(text)
    if match is None:
        if text:
            raise ValueError(f"the rule {text!r:.80} at the end of a TZif file cannot be read")
        return None
    if match[9] is None:
        return None
    standard = -_seconds(*match.group(1, 2, 3, 4))
    other = standard + 3600 if match[6] is None else -_seconds(*match.group(5, 6, 7, 8))
    return Tail(standard, other, _when(match[9]), _when(match[10]))


def _when(text: str) -> _When:
    match = _WHEN.fullmatch(text)
    if match is None:
        raise ValueError(f"the day {text!r:.80} at the end of a TZif file cannot be read")
    second = 7200 if match[7] is None else _seconds(*match.group(6, 7, 8, 9))
    if match[1] is not None:
        return _When(int(match[1]), int(match[2]), int(match[3]), True, second)
    if match[4] is not None:
        return _When(1, 0, int(match[4]) - 1, False, second)
    return _When(1, 0, int(match[5]), True, second)


def _seconds(sign: str, hours: str, minutes: str | None, seconds: str | None) -> int:
    return (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0))
