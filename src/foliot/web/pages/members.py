"""Of a schedule that goes over members: how complete its last ticks were, who was served longest ago, and who fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from foliot.domain.instant import Instant
from foliot.domain.listing import RunFilter
from foliot.domain.members import Standing
from foliot.domain.run import RunView
from foliot.domain.schedule import Schedule
from foliot.operate import Operator
from foliot.operate.members import age
from foliot.operate.shapes import moment
from foliot.operate.words import length
from foliot.web.pages.words import quoted

_WORST, _FAILING, _TICKS = 10, 10, 3
_LOOKED_AT = 200
"""So many runs that wait for a person, the newest, are put together by their members."""


async def members_part(
    operate: Operator, schedule: Schedule, ticks: Iterable[RunView], now: Instant
) -> dict[str, Any] | None:
    """None for a schedule that has no members."""
    if schedule.over is None:
        return None
    sizes = {one.name: one.members for one in await operate.member_sets_async()}
    waiting = RunFilter(prefix=f"{schedule.id}@", needs_person=True)
    page = await operate.run_page_async(waiting, limit=_LOOKED_AT)
    failing = failing_members(schedule.id, [one.view for one in page.runs])
    ended = [one for one in ticks if one.detail and one.member is None and one.finished_at is not None]
    return {
        "set": schedule.over,
        "count": sizes.get(schedule.over, 0),
        "ticks": [{"id": one.id, "nominal": moment(one.nominal), "words": one.detail} for one in ended[:_TICKS]],
        "worst": [_worst(schedule.id, one, now) for one in await operate.worst_served_async(schedule.id, limit=_WORST)],
        "failing": failing[:_FAILING],
        "failing_count": len(failing),
        "cut": page.cursor is not None or not page.complete,
    }


def failing_members(schedule: str, views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Each with its newest run that waits for a person, and how many do; those with the most first."""
    found: dict[str, list[RunView]] = {}
    for view in views:
        if view.member is not None and view.schedule == schedule:
            found.setdefault(view.member, []).append(view)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "member": member,
            "href": f"/runs?{urlencode({'schedule': schedule, 'member': member, 'needs_person': 'true'})}",
            "count": len(runs),
            "run": f"/runs/{quoted(runs[0].id)}",
            "state": str(runs[0].state),
            "detail": runs[0].detail,
        }
        for member, runs in ordered
    ]


def _worst(schedule: str, one: Standing, now: Instant) -> dict[str, Any]:
    return {
        "member": one.member,
        "href": f"/runs?{urlencode({'schedule': schedule, 'member': one.member})}",
        "age": length(age(one, now)),
        "useful_at": moment(one.useful_at),
        "added_at": moment(one.added_at),
    }
