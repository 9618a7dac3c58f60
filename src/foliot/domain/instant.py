"""Instants and durations: whole microseconds, so that equal means equal and a million of them fit in an array.

People's forms (datetimes, timedeltas, "10m", RFC 3339) are read and written here and nowhere else.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from foliot.errors import InvalidInput

Instant = int
"""Microseconds since 1970-01-01T00:00:00Z, POSIX style (no leap seconds)."""

Duration = int
"""Microseconds."""

MICROSECOND: Duration = 1
MILLISECOND: Duration = 1_000
SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR
WEEK: Duration = 7 * DAY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d|w))+", re.ASCII)

FIRST: Instant = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST: Instant = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""Instants outside these two cannot be written as datetimes, so none is accepted."""


def instant(when: datetime) -> Instant:
    """The instant of an aware datetime; a naive one is refused, because it names no instant."""
    if not isinstance(when, datetime):
        raise InvalidInput(f"{when!r:.80} is not a datetime; give an aware one: datetime.now(UTC) + timedelta(hours=1)")
    if when.tzinfo is not UTC and (when.tzinfo is None or when.utcoffset() is None):
        raise InvalidInput(
            f"{when.isoformat()} has no time zone; add one: when.replace(tzinfo=UTC), or "
            "tzinfo=ZoneInfo('Europe/Paris')"
        )
    moment = (when - _EPOCH) // _MICROSECOND
    if not FIRST <= moment <= LAST:
        raise InvalidInput(f"{when.isoformat()} lies outside the years 1 to 9999 in UTC; give an instant within them")
    return moment


def to_datetime(moment: Instant) -> datetime:
    """The UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=moment)


def rfc3339(moment: Instant) -> str:
    """`2026-04-03T02:00:00Z`, with a fraction only where there is one: what run ids, the CLI and the API print."""
    text = to_datetime(moment).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def parse_rfc3339(text: str) -> Instant:
    """Reads what `rfc3339` writes, and any ISO 8601 date and time that carries its offset."""
    try:
        when = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise InvalidInput(f"{text!r:.80} is not a date and time; write it as 2026-04-03T02:00:00Z") from None
    if when.tzinfo is None:
        raise InvalidInput(
            f"{text!r:.80} has no time zone; write {when.isoformat()}Z for UTC, or an offset: {when.isoformat()}+02:00"
        )
    return instant(when)


def duration(given: str | float | timedelta) -> Duration:
    """Reads a timedelta, a number of seconds, or text such as "90s", "1h30m", "1.5d"; never negative."""
    length = _length(given)
    if length is None and isinstance(given, str) and (rest := _length(given.strip().removeprefix("-"))) is not None:
        length = -rest
    if length is None:
        shown = repr(given)[:80] if not isinstance(given, int) else "a number"
        raise InvalidInput(
            f'{shown} is not a duration; give a timedelta, seconds, or text such as "90s", "10m", "1h30m"'
        )
    if length < 0:
        raise InvalidInput(f"{given!r:.80} is negative; a duration must be zero or more: drop the minus sign")
    if length > LAST:
        raise InvalidInput("the duration is too long: the calendar ends in the year 9999; give a shorter one")
    return length


def _length(given: object) -> Duration | None:
    """Exact, also where a float would round: text is summed as fractions."""
    if isinstance(given, timedelta):
        return given // timedelta(microseconds=1)
    if isinstance(given, bool):
        return None
    if isinstance(given, int):
        return given * SECOND
    if isinstance(given, float):
        return round(Fraction(given) * SECOND) if isfinite(given) else None
    return _text_length(given) if isinstance(given, str) and len(given) < 100 else None


@lru_cache(maxsize=1_024)
def _text_length(text: str) -> Duration | None:
    if _WHOLE.fullmatch(text.strip()) is None:
        return None
    return round(sum(Fraction(number) * _UNITS[unit] for number, unit in _PIECE.findall(text)))


def spell(length: Duration) -> str:
    """A duration as people say it: `1h30m`, `250ms`, `0s`. `duration(spell(d)) == d`."""
    if length == 0:
        return "0s"
    pieces: list[str] = []
    for unit in ("w", "d", "h", "m", "s", "ms", "us"):
        count, length = divmod(length, _UNITS[unit])
        if count:
            pieces.append(f"{count}{unit}")
    return "".join(pieces)
