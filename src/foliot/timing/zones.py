"""Time zones, from the pinned `tzdata` package: the host's own tables may be years old.

A zone is seen as stretches: spans of instants with one offset. Inside a stretch wall time and elapsed time agree;
whatever is strange about local time happens where two stretches meet.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import attrgetter
from typing import NamedTuple

import tzdata

from foliot.domain.instant import FIRST, LAST, SECOND
from foliot.errors import InvalidRule
from foliot.timing.tzif import Change, Table, read

VERSION: str = tzdata.IANA_VERSION
"""The release of the tables, as IANA names it: `2026a`."""

FIRST_SECOND, LAST_SECOND = FIRST // SECOND, LAST // SECOND
_DAY = 86_400
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

    def __init__(self, name: str, table: Table) -> None:
        self.name = name
        self._table = table
        self._times = [change.at for change in table.changes]
        self._known: list[Stretch] = []
        self._last = _NOTHING

    def at(self, second: int) -> Stretch:
        """The stretch that an instant lies in."""
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

    def changes(self, first: int, last: int) -> list[Change]:
        """Every change of offset from `first` to `last`, both instants."""
        listed = self._table.changes[bisect_left(self._times, first) : bisect_right(self._times, last)]
        later = self._after(_year(first) - 1, _year(last) + 1)
        return [*listed, *(change for change in later if first <= change.at <= last)]

    def _find(self, second: int) -> Stretch:
        place = bisect_right(self._times, second)
        near = self._table.changes[max(place - 1, 0) : place + 1]
        if place == len(self._times):
            year = _year(second if self._table.end is None else max(second, self._table.end))
            near = (*near, *self._after(year - 1, year + 1))
            place = bisect_right(near, second, key=_AT)
            near = near[max(place - 1, 0) : place + 1]
        start, end, opens, closes, offset = FIRST_SECOND - _DAY, LAST_SECOND + _DAY, 0, 0, self._table.first
        for change in near:
            if change.at <= second:
                start, opens, offset = change.at, change.after - change.before, change.after
            else:
                end, closes = change.at, change.after - change.before
        found = Stretch(start, end, offset, opens, closes, start + abs(opens), end - abs(closes))
        # A new list, never a changed one: other threads may be looking through it.
        self._known = sorted([*self._known[:_MOST_KNOWN], found])
        return found

    def _after(self, first: int, last: int) -> Iterator[Change]:
        """The changes of some years that come after the listed ones."""
        tail, end = self._table.tail, self._table.end
        if tail is not None:
            for year in range(max(first, 1 if end is None else _year(end)), min(last, 9999) + 1):
                yield from (change for change in tail.in_year(year) if end is None or change.at > end)


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
        return Zone("UTC", Table(0, (), None, None))
    if name not in _names():
        raise InvalidRule(f"there is no time zone {name!r}; {_advice(name)}")
    return Zone(name, table(name))


def table(name: str) -> Table:
    """What the package says of a zone."""
    return read(_files().joinpath("zoneinfo", *name.split("/")).read_bytes())


@lru_cache(maxsize=1)
def _files() -> Traversable:
    return files("tzdata")


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zone_names())


def _advice(name: str) -> str:
    offset = _OFFSET.fullmatch(name.strip())
    if offset is not None and int(offset[2]) <= 14:
        inverted = "-" if offset[1] == "+" else "+"
        return (
            f'name a place, such as "Europe/Paris", which includes summer time; for a fixed offset write '
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


_START, _AT = attrgetter("start"), attrgetter("at")
_NOTHING = Stretch(0, 0, 0, 0, 0, 0, 0)


def _year(second: int) -> int:
    return (_EPOCH + timedelta(seconds=min(max(second, FIRST_SECOND), LAST_SECOND))).year
