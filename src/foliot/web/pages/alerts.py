"""Alerts: those of one kind about one schedule or job are one row, which opens, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from foliot.domain.alerts import COUNTED, Alert, page_of
from foliot.domain.instant import Instant
from foliot.operate.alerting import alert_shape
from foliot.web.caller import Caller
from foliot.web.pages.asked import Asked

Shape = dict[str, Any]

LOOKED_AT = 500
_NAMED = 50
"""So many of a group are named one by one."""
_MARKS = {"critical": ("bad", "failed"), "warning": ("late", "late"), "notice": ("idle", "dot")}


async def alerts_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    everything, kind = asked.has("all"), asked.get("kind")
    found = await caller.operate.alerts_async(everything=everything, tenant=caller.tenant, limit=LOOKED_AT)
    shapes = [linked_shape(alert, found.now) for alert in found.alerts]
    kinds = Counter(one["kind"] for one in shapes)
    wanted = [one for one in shapes if kind in ("", one["kind"])]
    watch = "The watch has stopped, so these alerts may be out of date. Start a scheduler." if found.silent else None
    return {
        "heading": "Alerts",
        "groups": alert_groups(wanted),
        "count": len(shapes),
        "kinds": [{"name": name, "count": count} for name, count in kinds.most_common()],
        "kind": kind,
        "all": everything,
        "cut": len(shapes) == LOOKED_AT,
        "watch_words": watch,
    }


def alert_groups(shapes: Sequence[Shape]) -> list[Shape]:
    """In the order of the first of each, which is the most urgent, or the newest. The newest speaks for the others."""
    groups: dict[tuple[Any, ...], list[Shape]] = {}
    for one in shapes:
        is_resolved = one["resolved_at"] is not None
        groups.setdefault((one["kind"], one["severity"], is_resolved, about(one)), []).append(one)
    return [_group(sorted(group, key=lambda one: one["opened_at"], reverse=True)) for group in groups.values()]


def _group(group: Sequence[Shape]) -> Shape:
    newest = group[0]
    is_resolved = newest["resolved_at"] is not None
    meaning, mark = ("ok", "kept") if is_resolved else _MARKS[newest["severity"]]
    many = len(group) > 1
    alike = {"kind": newest["kind"], "about": about(newest), "severity": newest["severity"]}
    return newest | {
        "meaning": meaning,
        "mark": mark,
        "size": len(group),
        "runs": newest["count"] if newest["kind"] in COUNTED else 0,
        "about": about(newest) if many else _name(newest),
        "href": newest["about_href"] if many else newest["href"],
        "since": group[-1]["opened_at"],
        "snoozed": sum(one["snoozed_until"] is not None for one in group),
        "snooze": f"/act/alerts/many/snooze-many?{urlencode(alike)}",
        "each": [one | {"name": _name(one), "href": one["href"]} for one in group[:_NAMED]] if many else [],
    }


def about(shape: Shape) -> str:
    """What one row is about."""
    return str(shape["schedule"] or shape["job"] or shape["subject"])


def _name(shape: Shape) -> str:
    """`certificate:7#1` of `run:certificate:7#1`: what kind of thing it is, its address says."""
    run = shape["run"] if shape["count"] == 1 else None
    return str(run or shape["schedule"] or shape["job"] or shape["subject"])


def linked_shape(alert: Alert, now: Instant) -> Shape:
    """With the pages about it, and about its schedule or job."""
    of_all = replace(alert, run=None)
    return alert_shape(alert, now) | {"href": page_of(alert), "about_href": page_of(of_all)}
