"""How values are shown on pages. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from foliot.domain.instant import SECOND, Duration, Instant, parse_rfc3339
from foliot.operate.words import length, one_line

NOTHING = "\N{EN DASH}"
"""What stands where nothing is to be said."""
_CUT = 160
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def absolute(at: str | None) -> str:
    """`2026-04-03 02:00:00`, in UTC, as all times of pages are; without seconds where there are none."""
    if at is None:
        return NOTHING
    when = _datetime(at)
    return f"{when:%Y-%m-%d %H:%M:%S}" if when.second else f"{when:%Y-%m-%d %H:%M}"


def clock(at: str | None) -> str:
    """`02:00:00.250`: for what happens within a day."""
    if at is None:
        return NOTHING
    when = _datetime(at)
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03}"


def relative(at: str, now: str) -> str:
    """`3 min ago`, `in 2 h 5 min`: the page's script goes on counting from there, in the same words."""
    seconds = (parse_rfc3339(now) - parse_rfc3339(at)) / SECOND
    far = abs(seconds)
    if far < 1:
        return "now"
    place = next(number for number, (_, size) in enumerate(_UNITS) if far >= size)
    unit, size = _UNITS[place]
    count, rest = int(far // size), 0
    if count < 10 and unit in ("d", "h"):
        rest = int((far % size) // _UNITS[place + 1][1])
    text = f"{count} {unit}" + (f" {rest} {_UNITS[place + 1][0]}" if rest else "")
    return f"in {text}" if seconds < 0 else f"{text} ago"


def length_of(seconds: float | None) -> str:
    return NOTHING if seconds is None else length(round(seconds * SECOND))


def lasting(duration: Duration | None) -> str:
    return NOTHING if duration is None else length(duration)


def number(count: float | None) -> str:
    return NOTHING if count is None else f"{count:,}"


def fact(field: str, text: object) -> Markup:
    """A number, with the field of the JSON API that has the same one. The attribute `data-of` of an element around it
    names the resource: `runs/ID`, `overview`. A field that begins with # is counted from that resource."""
    return Markup('<span data-n="{}">{}</span>').format(field, text)


def cut(text: str | None, most: int = _CUT) -> str:
    return one_line(text or "", most)


def pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def quoted(text: object) -> str:
    """A part of an address, whatever is in it."""
    return quote(str(text), safe="")


_TICK_IN = re.compile(r"(@\d{4}-[0-9TZ:.+-]+)")


def breaking(name: str) -> Markup:
    """An id that is broken where one of its parts ends, where it must be: not within its time."""
    parts = _TICK_IN.split(name, maxsplit=1)
    if len(parts) == 1:
        return escape(name)
    before, tick, rest = parts
    return Markup('{}<wbr><span class="nowrap">{}</span><wbr>{}').format(before, tick, rest)


def linked(address: str) -> Markup:
    """A link where it is the address of a page, and else its text: an address can also be a script."""
    if not address.startswith(("https://", "http://")):
        return escape(address)
    return Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(address)


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def share(part: int, whole: int) -> str:
    """`99.8%`; never rounded up to all of it."""
    if not whole:
        return NOTHING
    if part == whole:
        return "100%"
    return f"{min(100 * part / whole, 99.9):.1f}%"


def day_and_time(at: Instant) -> str:
    return f"{datetime.fromtimestamp(at / SECOND, UTC):%H:%M}"


def _datetime(at: str) -> datetime:
    return datetime.fromisoformat(at).astimezone(UTC)
