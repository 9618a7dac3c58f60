"""Lists: runs by filters, dead letters, backfills, the audit log."""

from __future__ import annotations

from typing import Any

from foliot.domain.conditions import Condition
from foliot.domain.instant import FIRST, LAST, Instant, parse_rfc3339
from foliot.domain.listing import Order, RunFilter
from foliot.domain.run import Lane, Origin
from foliot.domain.state import Reason, State
from foliot.errors import InvalidInput, UnknownName
from foliot.operate.auditing import sealed_shape
from foliot.operate.backfilling import backfill_shape, pace_words, progress_shape
from foliot.operate.replaying import dead_shape
from foliot.operate.shapes import run_shape
from foliot.web.caller import Caller
from foliot.web.pages.asked import Asked, number_in

_PAGE = 50
_DEAD = 50
_MORE = ("condition", "member", "tenant", "origin", "since", "until", "order")
"""Filters that are folded away until somebody uses one."""
_WHY = ("attempts", "permanent", "too_old", "destination_down", "poison", "bad_payload", "bad_row", "lost", "timed_out")


async def runs_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    page = await caller.operate.run_page_async(run_filter(caller, asked), cursor=asked.cursor, limit=_PAGE)
    return {
        "heading": "Runs",
        "asked": asked.filled(
            *("text", "schedule", "member", "job", "tenant", "queue", "since", "until", "needs_person", "order"),
            many=("state", "condition", "origin"),
        ),
        "any_asked": asked.any,
        "more_asked": any(asked.get(name) for name in _MORE),
        "states": [str(state) for state in State],
        "conditions": [str(condition) for condition in Condition],
        "origins": [str(origin) for origin in Origin],
        "jobs": [] if caller.tenant is not None else sorted(await caller.operate.jobs_async()),
        "page": {
            "runs": [run_shape(one.view) | {"conditions": list(one.conditions)} for one in page.runs],
            "complete": page.complete,
            "next": asked.next(page.cursor),
        },
        "first": asked.first,
    }


def run_filter(caller: Caller, asked: Asked) -> RunFilter:
    """What the address says, as a filter. A word that is none is told, with those that there are."""
    soonest = asked.get("order") == "soonest"
    return RunFilter(
        states=tuple(_named(State, name, "state") for name in asked.all("state")),
        conditions=tuple(Condition(name) for name in asked.all("condition") if name in set(Condition)),
        schedule=asked.get("schedule") or None,
        member=asked.get("member") or None,
        job=asked.get("job") or None,
        tenant=caller.narrowed(asked.get("tenant") or None),
        queue=asked.get("queue") or None,
        origins=tuple(_named(Origin, name, "origin") for name in asked.all("origin")),
        lanes=tuple(_named(Lane, name.replace("-", "_"), "lane") for name in asked.all("lane")),
        reasons=tuple(asked.all("reason")),
        nominal_from=moment_of(asked.get("since"), FIRST),
        nominal_to=moment_of(asked.get("until"), LAST),
        text=asked.get("text") or None,
        needs_person=asked.has("needs_person"),
        order=Order.SOONEST if soonest else Order.NEWEST,
    )


def _named(kind: Any, name: str, what: str) -> Any:
    if name.upper() not in kind.__members__:
        raise InvalidInput(f"unknown {what} {name!r:.40}; known: {', '.join(map(str, kind))}")
    return kind[name.upper()]


def moment_of(text: str, otherwise: Instant) -> Instant:
    """As a browser's field says it, in UTC; or as RFC 3339."""
    if not text:
        return otherwise
    if text.endswith("Z") or "+" in text:
        return parse_rfc3339(text)
    return parse_rfc3339(f"{text if text.count(':') > 1 else text + ':00'}Z")


async def dead_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    found = await caller.operate.dead_async(limit=_DEAD + 1, **dead_wanted(caller, asked))
    return {
        "heading": "Dead letters",
        "asked": asked.filled("job", "schedule", "member", "why", "tenant"),
        "any_asked": asked.any,
        "reasons": [str(reason) for reason in Reason if str(reason) in _WHY],
        "letters": [dead_shape(one) for one in found[:_DEAD]],
        "more": len(found) > _DEAD,
        "filter_query": asked.query,
    }


def dead_wanted(caller: Caller, asked: Asked) -> dict[str, Any]:
    wanted = {name: asked.get(name) for name in ("job", "schedule", "member", "why")}
    wanted["tenant"] = caller.narrowed(asked.get("tenant") or None) or ""
    return {name: value for name, value in wanted.items() if value}


async def backfills_page(caller: Caller) -> dict[str, Any]:
    rows = []
    for one in await caller.operate.backfills_async(limit=_PAGE):
        if not await _is_theirs(caller, one.schedule):
            continue
        state = str(one.state)
        if state in ("running", "paused"):
            shape = progress_shape(await caller.operate.backfill_progress_async(one.number))
        else:
            shape = backfill_shape(one) | {"unfinished": 0, "expected_end": None}
        marks = {"running": ("busy", "running"), "paused": ("late", "held"), "cancelled": ("idle", "skipped")}
        meaning, mark = marks.get(state, ("ok", "kept"))
        rows.append(shape | {"pace": pace_words(one.pace), "meaning": meaning, "mark": mark})
    return {"heading": "Backfills", "backfills": rows}


async def _is_theirs(caller: Caller, schedule: str) -> bool:
    if caller.tenant is None:
        return True
    try:
        await caller.schedule(schedule)
    except UnknownName:  # another tenant's, or gone: then nobody knows whose it was
        return False
    return True


async def audit_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    cursor = asked.cursor
    rows = await caller.operate.audit_async(
        text=asked.get("text") or None,
        actor=asked.get("actor") or None,
        action=asked.get("action") or None,
        subject=asked.get("subject") or None,
        limit=_PAGE,
        before=None if cursor is None else number_in(cursor),
    )
    shapes = [sealed_shape(row) for row in rows]
    last = str(rows[-1].number) if len(rows) == _PAGE else None
    return {
        "heading": "Audit log",
        "asked": asked.filled("text", "actor", "action", "subject"),
        "rows": shapes,
        "page": {"complete": True, "next": asked.next(last)},
        "first": asked.first,
    }
