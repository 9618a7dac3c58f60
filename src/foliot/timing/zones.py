"""Time zones, from the pinned `tzdata` package: the host's own tables may be years old.

A zone is seen as stretches: spans of instants with one offset. Inside a stretch wall time and elapsed time agree;
whatever is strange about local time happens where two stretches meet.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from foliot.domain.instant import FIRST, LAST, SECOND
from foliot.errors import InvalidRule

VERSION: str = tzdata.IANA_VERSION
"""The release of the tables, as IANA names it: `2026a`."""

FIRST_SECOND, LAST_SECOND = FIRST // SECOND, LAST // SECOND
_DAY = 86_400
_STRIDE = 3 * _DAY
"""How far apart a year is looked at. No offset in the tables ever lasted less than 6.9 days (a test holds them to it),
so no change can hide between two looks."""
_MOST_KNOWN = 1_000
"""Stretches that a zone remembers: five hundred years of summers and winters."""
_ALIASES_OF_UTC = {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"}
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?00)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stretch(NamedTuple):
    """Instants from `start` up to, and without, `end`, all in seconds, whose wall clock is `offset` ahead of UTC."""

    start: int
    end: int
    offset: int
    opens: int
    """By how much the offset grew at `start`: a gap in wall time when positive, a fold when negative."""
    closes: int
    """By how much it grows at `end`."""
    plain_from: int
    """From here to `plain_to` no wall time is doubled, and none is moved here from a gap."""
    plain_to: int


class Zone:
    """One zone of the tables. It only remembers: every answer follows from the tables alone."""

    def __init__(self, name: str, table: ZoneInfo | None) -> None:
        self.name = name
        self._table = table
        self._changes: dict[int, list[tuple[int, int, int]]] = {}
        self._known: list[Stretch] = []
        self._last = _whole(0) if table is None else _NOTHING

    def at(self, second: int) -> Stretch:
        """The stretch that an instant lies in. One that lasts for years may be cut where nothing changes."""
        last = self._last
        if last.start <= second < last.end:
            return last
        known = self._known
        place = bisect_right(known, second, key=_START)
        found = known[place - 1] if place and second < known[place - 1].end else self._find(second)
        self._last = found
        return found

    def beside(self, stretch: Stretch, step: int) -> Stretch | None:
        """The stretch after (step 1) or before (step -1); None at the end of the calendar."""
        second = stretch.end if step > 0 else stretch.start - 1
        return self.at(second) if FIRST_SECOND <= second <= LAST_SECOND else None

    def offset(self, second: int) -> int:
        """Seconds ahead of UTC."""
        return self.at(second).offset

    def local(self, second: int) -> tuple[datetime, int]:
        """The wall time of an instant, and which pass of it this is: 0, or 1 for the second of a fold."""
        stretch = self.at(second)
        wall = datetime(1970, 1, 1) + timedelta(seconds=second + stretch.offset)
        return wall, int(stretch.opens < 0 and second < stretch.start - stretch.opens)

    def changes(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Every change of offset from `first` to `last`, both instants: when, the offset before, the offset after."""
        # A change at the very start of a year is found by looking through the year before it.
        years = range(_year(first - 1), _year(last) + 1)
        return [change for year in years for change in self._in_year(year) if first <= change[0] <= last]

    def _find(self, second: int) -> Stretch:
        year = _year(second)
        near = [change for other in range(year - 2, year + 3) for change in self._in_year(other)]
        place = bisect_right(near, second, key=lambda change: change[0])
        # Without a change in two years the stretch is cut at a New Year that has none within a year of it.
        start, end, opens, closes = _new_year(year - 1), _new_year(year + 2), 0, 0
        offset = self._offset(second)
        if place:
            start, before, after = near[place - 1]
            opens = after - before
        if place < len(near):
            end, before, after = near[place]
            closes = after - before
        found = Stretch(start, end, offset, opens, closes, start + abs(opens), end - abs(closes))
        # A new list, never a changed one: other threads may be looking through it.
        self._known = sorted([*self._known[:_MOST_KNOWN], found])
        return found

    def _in_year(self, year: int) -> list[tuple[int, int, int]]:
        if not 1 <= year <= 9999:
            return []
        if year not in self._changes:
            looks = [*range(_new_year(year), _new_year(year + 1), _STRIDE), _new_year(year + 1)]
            seen = [(second, self._offset(second)) for second in looks]
            self._changes[year] = [
                self._change(low, high) for (low, before), (high, after) in pairwise(seen) if before != after
            ]
        return self._changes[year]

    def _change(self, low: int, high: int) -> tuple[int, int, int]:
        """Where the one change between two looks is, by halving."""
        before, after = self._offset(low), self._offset(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == before else (low, middle)
        return high, before, after

    def _offset(self, second: int) -> int:
        if self._table is None:
            return 0
        # Near the ends of the calendar the wall clock would leave it; the offset there is that of a day further in.
        inside = min(max(second, FIRST_SECOND + _DAY), LAST_SECOND - _DAY)
        offset = (_EPOCH + timedelta(seconds=inside)).astimezone(self._table).utcoffset()
        return 0 if offset is None else offset // timedelta(seconds=1)


def zone(name: str) -> Zone:
    """A zone by its IANA name; InvalidRule with the nearest right name when there is none."""
    if not isinstance(name, str):
        raise InvalidRule(f'{name!r:.80} is not a time zone; give its name, such as "Europe/Paris"')
    return _zone(name[:100])


def zone_names() -> list[str]:
    """Every name that the tables have, but for `Factory`, which stands for clocks that nobody has set."""
    names = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    return [name for name in names if name != "Factory"]


@lru_cache(maxsize=1_000)
def _zone(name: str) -> Zone:
    if name in _ALIASES_OF_UTC:
        return Zone("UTC", None)
    if name not in _names():
        raise InvalidRule(f"there is no time zone {name!r}; {_advice(name)}")
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as table:
        return Zone(name, ZoneInfo.from_file(table, key=name))


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zone_names())


def _advice(name: str) -> str:
    offset = _OFFSET.fullmatch(name.strip())
    if offset is not None and int(offset[2]) <= 14:
        inverted = "-" if offset[1] == "+" else "+"
        return (
            f'name a place, such as "Europe/Paris", which knows its summer time; for a fixed offset write '
            f'"Etc/GMT{inverted}{int(offset[2])}" (its sign is inverted)'
        )
    folded = {known.casefold(): known for known in sorted(_names())}
    wanted = re.sub(r"\s+", "_", name.strip()).casefold()
    if wanted in folded:
        return f"write {folded[wanted]!r}"
    cities = {known.rsplit("/", 1)[-1]: full for known, full in folded.items()}
    near = get_close_matches(wanted, folded, 1, 0.75) or get_close_matches(wanted.rsplit("/", 1)[-1], cities, 1, 0.75)
    if near:
        return f"did you mean {folded.get(near[0]) or cities[near[0]]!r}?"
    return 'give an IANA name, such as "Europe/Paris" or "UTC"'


_START = attrgetter("start")
_NOTHING = Stretch(0, 0, 0, 0, 0, 0, 0)


def _whole(offset: int) -> Stretch:
    """A zone that never changes is one stretch, a day beyond the calendar on either side."""
    first, end = FIRST_SECOND - _DAY, LAST_SECOND + _DAY
    return Stretch(first, end, offset, 0, 0, first, end)


def _year(second: int) -> int:
    return (_EPOCH + timedelta(seconds=min(max(second, FIRST_SECOND), LAST_SECOND))).year


@lru_cache(maxsize=10_000)
def _new_year(year: int) -> int:
    """The first second of a year in UTC; of the years around the calendar, its ends."""
    if year < 1:
        return FIRST_SECOND - _DAY
    if year > 9999:
        return LAST_SECOND + _DAY
    return (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
