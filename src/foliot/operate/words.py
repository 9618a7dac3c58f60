"""Lengths, errors and numbers as people say them. Pure; what the command line and the stories share."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.details import brief as brief
from foliot.domain.details import headline as headline
from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant, rfc3339


def length(duration: Duration | None) -> str:
    """Seven characters at most: `<1 ms`, `12 ms`, `1.2 s`, `12 min`, `3.5 h`, `12 d`; `-` when there is none."""
    if duration is None:
        return "-"
    size = abs(duration)
    sign = "-" if duration < 0 else ""
    if size < MILLISECOND:
        return "<1 ms" if size else "0 ms"
    if size < SECOND:
        return f"{sign}{size // MILLISECOND} ms"
    if size < MINUTE:
        return f"{sign}{size // (SECOND // 10) / 10:.1f} s"
    if size < HOUR:
        return f"{sign}{size // MINUTE} min"
    if size < 2 * DAY:
        return f"{sign}{size // (HOUR // 10) / 10:.1f} h"
    return f"{sign}{size // DAY} d"


def lateness(late_by: Duration | None) -> str:
    """`+3 ms`; a start before its time, which must never be, says `EARLY`."""
    if late_by is None:
        return "-"
    return f"+{length(late_by)}" if late_by >= 0 else f"EARLY {length(-late_by)}"


def to_the_second(when: Instant) -> str:
    """`2026-04-03T06:14:03Z`: as exact as a person needs it."""
    return rfc3339(when - when % SECOND)


def one_line(text: str, most: int = 500) -> str:
    """Text of any origin on one line, with nothing in it that could command a terminal."""
    flat = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,204 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(things: Sequence[str], most: int = 5) -> str:
    """`a, b and c`; `a, b and 17 more` where there are too many to read."""
    shown = list(things[:most]) if len(things) <= most else [*things[: most - 1], f"{len(things) - most + 1:,} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
