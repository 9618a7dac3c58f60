"""Times and lengths as people read them at a glance. Pure."""

from __future__ import annotations

from foliot.domain.instant import MILLISECOND, SECOND, Instant, to_datetime
from foliot.operate.words import brief, counted, headline, lateness, length, listed, one_line

__all__ = [
    "brief",
    "clock_time",
    "counted",
    "date_time",
    "headline",
    "lateness",
    "length",
    "listed",
    "one_line",
    "relative",
    "size",
]


def size(count: int) -> str:
    """`1.2 MB`, `12 kB`, from bytes."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.0f} kB"


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
