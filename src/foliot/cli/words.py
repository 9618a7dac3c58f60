"""Times and lengths as people read them at a glance. Pure."""

from __future__ import annotations

import re

from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant, to_datetime


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


def relative(when: Instant | None, now: Instant) -> str:
    """`in 3.5 h`, `12 s ago`, `now`."""
    if when is None:
        return "-"
    if abs(when - now) < SECOND:
        return "now"
    return f"in {length(when - now)}" if when > now else f"{length(now - when)} ago"


def clock_time(when: Instant) -> str:
    """`21:03:20`, UTC."""
    return f"{to_datetime(when):%H:%M:%S}"


def date_time(when: Instant | None) -> str:
    """`2026-04-03 02:00:00.125`, UTC; without a fraction where there is none."""
    if when is None:
        return "-"
    return f"{to_datetime(when):%Y-%m-%d %H:%M:%S}" + (
        f".{when % SECOND // MILLISECOND:03}" if when % SECOND >= MILLISECOND else ""
    )


def one_line(text: str, most: int = 500) -> str:
    """Text of any origin on one line, with nothing in it that could command a terminal."""
    flat = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def headline(error: str) -> str:
    """The first line of an error, without the module of its class: people know their errors by name."""
    first = (error.strip().splitlines() or [""])[0]
    return re.sub(r"^(?:[A-Za-z_]\w*\.)+([A-Z]\w*)(?=:|$)", r"\1", first)


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,204 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
