"""Who is there, who owns what, what waits where; and the load that is to come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from foliot.domain.instant import DAY, HOUR, MINUTE, Duration, Instant, duration, to_datetime
from foliot.domain.overview import Holding
from foliot.domain.store import ALIVE, Duty, Instance
from foliot.errors import InvalidInput
from foliot.operate.fleet import queue_shape
from foliot.operate.limits import limit_shape
from foliot.operate.load import Standings, again_words, left_out_words, load_shape, made_of, per_words, relief_words
from foliot.operate.shapes import instance_shape, moment
from foliot.operate.tenants import tenant_shape
from foliot.operate.words import counted, length
from foliot.timing.herds import Herds, herds
from foliot.timing.load import Load, load, width_for
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.asked import Asked

_SPANS = (("1h", "an hour"), ("6h", "6 hours"), ("1d", "a day"), ("7d", "a week"))
_MOST_SCHEDULES = 20_000
"""Whoever has more asks the command line, which shows how far it is."""


async def fleet_page(caller: Caller) -> dict[str, Any]:
    operate = caller.operate
    seen = await operate.overview_async()
    pauses = {one.name for one in await operate.pauses_async()}
    return {
        "heading": "Fleet",
        "shards_words": seen.scheduling.what,
        "schedulers": [_instance(one, seen.pulse.now, seen.pulse.holdings) for one in seen.schedulers],
        "workers": [_instance(one, seen.pulse.now) | {"acts": _worker_acts(one)} for one in seen.workers],
        "queues": [
            queue_shape(one) | {"paused": f"queue:{one.queue}" in pauses} for one in await operate.queues_async()
        ],
        "tenants": [tenant_shape(one) for one in (await operate.tenants_async())[:20]],
        "limits": [limit_shape(one) | {"allows": _allows(limit_shape(one))} for one in await operate.limits_async()],
    }


def _instance(one: Instance, now: Instant, holdings: Sequence[Holding] = ()) -> dict[str, Any]:
    low, high = one.offset_low, one.offset_high
    clock = "not measured: the store's own" if low is None or high is None else f"{_offset(low)} to {_offset(high)}"
    return instance_shape(one) | {
        "host": one.host.split(" ")[0],
        "alive": now - one.beat_at < ALIVE,
        "fenced": one.fenced,
        "clock": clock,
        "wish": getattr(one, "wish", None),
        "holds": _holds([each for each in holdings if each.owner == one.number]),
    }


def _offset(of: Duration) -> str:
    return f"{of / 1000:+.1f} ms"


def _holds(holdings: Sequence[Holding]) -> str:
    shards = [one.shard for one in holdings if one.shard >= 0]
    duties = [Duty(one.shard).name.lower() for one in holdings if one.shard < 0]
    said = [counted(len(shards), "shard")] if shards else []
    return ", ".join(said + ([f"the duties {', '.join(duties)}"] if duties else [])) or "nothing"


def _worker_acts(one: Instance) -> list[dict[str, str]]:
    at = f"/act/workers/{one.number}"
    if getattr(one, "wish", None):
        return [{"href": f"{at}/resume", "text": "Work again…", "kind": "safe"}]
    return [
        {"href": f"{at}/drain", "text": "Drain…", "kind": ""},
        {"href": f"{at}/quarantine", "text": "Quarantine…", "kind": ""},
    ]


def _allows(shape: dict[str, Any]) -> str:
    said = [] if shape["concurrency"] is None else [f"{shape['concurrency']:,} at a time"]
    said += [] if shape["rate"] is None else [str(shape["rate"])]
    said += [] if shape["weight"] in (None, 1) else [f"weight {shape['weight']:g}"]
    return ", ".join(said) or "anything"


# The load to come


async def load_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    span = duration(asked.get("for") or "1d")
    if not HOUR <= span <= 31 * DAY:
        raise InvalidInput("the load is shown for an hour up to 31 days")
    standing = await caller.operate.standings_async()
    width = MINUTE if span <= DAY else width_for(span)
    first = standing.now - standing.now % (HOUR if span > HOUR else width)
    # In a thread: with ten thousand schedules that takes half a second, in which others want their pages.
    counted_load, found = await asyncio.to_thread(_counted, standing, first, span, width)
    shape = load_shape(standing, counted_load, found)
    drawing, scale = _heat(counted_load, found.line)
    return {
        "heading": "Load ahead",
        "load": shape,
        "per": per_words(width),
        "span_words": f"from {to_datetime(first):%Y-%m-%d %H:%M} UTC on, for {length(span)}",
        "spans": _SPANS,
        "asked": asked.get("for") or "1d",
        "drawing": drawing,
        "scale": scale,
        "herds": [
            {
                "at": moment(herd.at),
                "starts": herd.count,
                "made_of": made_of(herd),
                "again": again_words(herd),
                "relief": [relief_words(herd, one, width) for one in herd.relief],
            }
            for herd in found.found[:12]
        ],
        "left_out": left_out_words(standing, counted_load)[:8],
    }


def _counted(standing: Standings, first: Instant, span: Duration, width: Duration) -> tuple[Load, Herds]:
    found = load(standing.taking_part[:_MOST_SCHEDULES], first, first + span, width)
    return found, herds(found)


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
    herd = [(5, f"a herd: more than {line:,.0f}")] if peak > line else []
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
