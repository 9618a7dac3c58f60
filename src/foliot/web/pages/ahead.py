"""The load that is to come. To ask ten thousand rules takes a second or more: it is counted beside the pages, once for
everybody who looks, and shown with its age."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, duration, to_datetime
from foliot.errors import InvalidInput
from foliot.operate import Operator
from foliot.operate.load import Standings, again_words, left_out_words, made_of, per_words, relief_words
from foliot.operate.shapes import moment
from foliot.operate.words import counted
from foliot.timing.herds import Herds, herds
from foliot.timing.load import Load, load, width_for
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.asked import Asked

_SPANS = (("1h", "an hour"), ("6h", "six hours"), ("1d", "a day"), ("7d", "a week"))
_LENGTHS = {duration(value): text for value, text in _SPANS}
_MOST_SCHEDULES = 20_000
"""Whoever has more asks the command line, which shows how far it is."""
PATIENCE = 0.1
"""Seconds for which a page waits for a count; then it shows what was counted before, or says that it is under way."""
_FRESH = MINUTE
_PAUSES = 30
"""A count is also fresh for so many times as long as it took: whoever keeps the page open keeps no core busy."""

_log = logging.getLogger(__name__)


class Ahead(NamedTuple):
    """A load that was counted, as the page shows it."""

    at: Instant
    until: Instant
    """From here on it is counted anew when somebody looks."""
    shown: dict[str, Any]


class Counting:
    """Counts, one at a time, and keeps what was counted; one for each process that serves pages."""

    def __init__(self) -> None:
        self._known: dict[Duration, Ahead] = {}
        self._under_way: dict[Duration, asyncio.Task[None]] = {}
        self._failed: dict[Duration, tuple[float, BaseException]] = {}
        """When a count failed, and why: it is not begun again at once."""
        self._turn = asyncio.Lock()
        self._changes = 0

    async def look(self, operate: Operator, span: Duration) -> tuple[Ahead | None, bool]:
        """What is known, if anything is by now; and whether it is being counted."""
        now = await operate.now_async()
        known = self._known.get(span)
        if known is not None and known.at <= now < known.until:
            return known, False
        if span in self._failed and time.monotonic() < self._failed[span][0] + _FRESH / SECOND:
            if known is None:
                raise self._failed[span][1]
            return known, False
        if span not in self._under_way:
            task = self._under_way[span] = asyncio.create_task(self._count(operate, span))
            task.add_done_callback(lambda ended: self._ended(span, ended))
        task = self._under_way[span]
        await asyncio.wait([task], timeout=PATIENCE)
        if task.done():
            task.result()  # what went wrong is told to whoever waits for it
        return self._known.get(span), not task.done()

    def forget(self) -> None:
        """Somebody changed a schedule: what is known is shown until it has been counted anew."""
        self._changes += 1
        self._known = {span: known._replace(until=known.at) for span, known in self._known.items()}

    async def _count(self, operate: Operator, span: Duration) -> None:
        async with self._turn:
            began, changes = time.monotonic(), self._changes
            standing = await operate.standings_async()
            shown = await asyncio.to_thread(_counted, standing, span)
            took = round((time.monotonic() - began) * SECOND)
            lasts = max(_FRESH, _PAUSES * took) if changes == self._changes else 0
            self._known[span] = Ahead(standing.now, standing.now + lasts, shown)

    def _ended(self, span: Duration, task: asyncio.Task[None]) -> None:
        del self._under_way[span]
        self._failed.pop(span, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed[span] = time.monotonic(), error
            _log.warning("load forecast failed: %s", error)


def counting_of(request: Request) -> Counting:
    """The one of this process."""
    state = request.app.state
    if not hasattr(state, "counting"):
        state.counting = Counting()
    found: Counting = state.counting
    return found


async def load_page(caller: Caller, asked: Asked, counting: Counting) -> dict[str, Any]:
    span = duration(asked.get("for") or "1d")
    if span not in _LENGTHS:  # each is counted for itself, and kept
        raise InvalidInput(
            f"for must be one of {', '.join(value for value, _ in _SPANS)}; `foliot load` accepts other periods"
        )
    known, is_counting = await counting.look(caller.operate, span)
    return {
        "heading": "Load forecast",
        "spans": _SPANS,
        "asked": asked.get("for") or "1d",
        "load": None if known is None else known.shown,
        "counted_at": None if known is None else moment(known.at),
        "is_counting": is_counting,
    }


def _counted(standing: Standings, span: Duration) -> dict[str, Any]:
    """In a thread: others want their pages meanwhile."""
    width = MINUTE if span <= DAY else width_for(span)
    first = standing.now - standing.now % (HOUR if span > HOUR else width)
    found = load(standing.taking_part[:_MOST_SCHEDULES], first, first + span, width)
    crowds = herds(found)
    drawing, scale = _heat(found, crowds.line)
    return {
        "starts": sum(found.starts),
        "schedules": found.schedules,
        "peak": found.starts[found.fullest],
        "peak_at": moment(found.at(found.fullest)),
        "per": per_words(width),
        "from": moment(first),
        "length": _LENGTHS[span],
        "drawing": drawing,
        "scale": scale,
        "herds": [_herd(crowds, number, width) for number in range(min(len(crowds.found), 12))],
        "left_out": left_out_words(standing, found)[:8],
    }


def _herd(crowds: Herds, number: int, width: Duration) -> dict[str, Any]:
    herd = crowds.found[number]
    return {
        "at": moment(herd.at),
        "starts": herd.count,
        "made_of": made_of(herd),
        "again": again_words(herd),
        "relief": [relief_words(herd, one, width) for one in herd.relief],
    }


def _heat(of: Load, line: float) -> tuple[Markup, list[tuple[int, str]]]:
    """An hour in a row where the cells are minutes, else a day. Above `line` it is a herd, in the colour that warns."""
    peak = max([*of.starts, 1])
    across = 60 if of.width == MINUTE else max(DAY // of.width, 1) if of.width < DAY else 7
    rows = []
    for start in range(0, len(of.starts), across):
        counts = of.starts[start : start + across]
        at = to_datetime(of.at(start))
        name = f"{at:%a %H:%M}" if of.width == MINUTE else f"{at:%a %d %b}"
        fullest = to_datetime(of.at(start + counts.index(max(counts))))
        title = f"{name}: {counted(sum(counts), 'start')}, at most {max(counts):,}, at {fullest:%H:%M}"
        rows.append((name, title, [_degree(count, peak, line) for count in counts]))
    columns = _minutes(of) if of.width == MINUTE else _hours(of, across)
    scale = [(0, "none")] + [(degree, f"up to {step:,}") for degree, step in enumerate(_steps(peak), start=1)]
    herd = [(5, f"load spike: more than {line:,.0f}")] if peak > line else []
    return charts.heat(rows, columns), scale + herd


def _minutes(of: Load) -> list[tuple[int, str]]:
    """Every tenth minute, where an hour is a row; it need not begin with the clock's."""
    at = [to_datetime(of.at(place)) for place in range(60)]
    return [(place, f":{each:%M}") for place, each in enumerate(at) if each.minute % 10 == 0]


def _hours(of: Load, across: int) -> list[tuple[int, str]]:
    """Every third hour, where a day is a row."""
    if across <= 7:
        return []
    return [(place, f"{to_datetime(of.at(place)):%H:%M}") for place in range(across) if place * 8 % across == 0]


def _steps(peak: int) -> list[int]:
    return sorted({max(round(peak * part), 1) for part in (0.25, 0.5, 0.75, 1)})


def _degree(count: int, peak: int, line: float) -> int:
    if not count:
        return 0
    if count > line:
        return 5
    return next(degree for degree, step in enumerate(_steps(peak), start=1) if count <= step)
