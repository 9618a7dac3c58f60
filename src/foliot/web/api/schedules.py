"""Standing rules: list, look, pause, resume, trigger, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import Field

from foliot.domain.schedule import ScheduleView
from foliot.operate.members import standing_shape
from foliot.operate.shapes import coming_ticks, kept_shape, moment, schedule_shape, schedule_state
from foliot.web import models
from foliot.web.api.parts import next_cursor, page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Body, Length, Moment, Name, Paged, ReasonQuery, ScheduleId
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("schedules")

IfMatch = Annotated[
    str | None, Header(alias="if-match", max_length=100, description="The ETag that was seen; 412 when it is another.")
]


class ScheduleQuery(Paged):
    job: Name | None = None
    tenant: Name | None = None
    state: Annotated[str | None, Field(pattern="^(waiting|busy|paused|ended|set aside)$")] = None
    text: Annotated[Name | None, Field(description="What stands in their ids, jobs or owners.")] = None


class PauseBody(Act):
    until: Moment | None = None


class ResumeBody(Act):
    catch_up: Annotated[bool, Field(description="Ticks that passed meanwhile were missed, and its policy speaks.")] = (
        False
    )


class NextQuery(Body):
    count: Annotated[int, Field(ge=1, le=1_000)] = 5


class StandingQuery(Paged):
    older_than: Length | None = None


@routes.get("/schedules", response_model=models.Page[models.Schedule], responses=problems())
async def list_schedules(asking: Asking, query: Annotated[ScheduleQuery, Query()]) -> Any:
    """Schedules by id."""
    tenant, now = asking.narrowed(query.tenant), await asking.operate.now_async()
    found = [
        view
        for view in sorted(await asking.operate.schedules_async(), key=lambda view: view.schedule.id)
        if _is_wanted(view, query, tenant)
        and (query.state is None or schedule_state(view, now) == query.state)
        and (query.cursor is None or view.schedule.id > query.cursor)
    ]
    shapes = [schedule_shape(view, now) for view in found[: query.limit]]
    return page(shapes, next_cursor(shapes, query.limit, "id") if len(found) > query.limit else None)


def _is_wanted(view: ScheduleView, query: ScheduleQuery, tenant: str | None) -> bool:
    one = view.schedule
    return (
        tenant in (None, one.tenant)
        and query.job in (None, one.job)
        and (query.text is None or query.text.lower() in f"{one.id}\n{one.job}\n{one.owner or ''}".lower())
    )


@routes.get("/schedules/{schedule}", response_model=models.Schedule, responses=problems(404))
async def get_schedule(asking: Asking, schedule: ScheduleId) -> Any:
    """One schedule. Its ETag is its revision, which every edit raises."""
    view = await asking.schedule(schedule)
    return Answered(schedule_shape(view, await asking.operate.now_async()), headers={"etag": _etag(view)})


@routes.delete("/schedules/{schedule}", response_model=models.Done, responses=problems(404, 412))
async def delete_schedule(asking: Asking, schedule: ScheduleId, reason: ReasonQuery, if_match: IfMatch = None) -> Any:
    """Removes a schedule and its pending run; its history stays. What code declares comes back with the code."""
    _check_revision(await asking.schedule(schedule), if_match)
    await asking.operate.delete_async(schedule, reason=reason, actor=asking.actor)
    return _done(schedule, "deleted")


@routes.get("/schedules/{schedule}/next", response_model=models.Ticks, responses=problems(404))
async def next_ticks(asking: Asking, schedule: ScheduleId, query: Annotated[NextQuery, Query()]) -> Any:
    """Its next nominal times; a fixed delay knows at most the one that is waiting."""
    view = await asking.schedule(schedule)
    ticks = coming_ticks(view, await asking.operate.now_async(), query.count)
    return Answered({"schedule": schedule, "next": [moment(tick) for tick in ticks]})


@routes.get("/schedules/{schedule}/members", response_model=models.Page[models.Standing], responses=problems(404, 409))
async def member_standings(asking: Asking, schedule: ScheduleId, query: Annotated[StandingQuery, Query()]) -> Any:
    """Of each member that it goes over, the last useful completion; with `older_than`, of those that lack one."""
    now = await asking.operate.now_async()
    found = await asking.operate.member_standings_async(
        schedule, older_than=query.older_than, after=query.cursor or "", limit=query.limit
    )
    shapes = [standing_shape(one, now) for one in found]
    return page(shapes, next_cursor(shapes, query.limit, "member"))


@routes.post("/schedules/{schedule}/pause", response_model=models.Done, responses=problems(404, 409, body=True))
async def pause_schedule(asking: Asking, schedule: ScheduleId, body: PauseBody) -> Any:
    """No tick runs from now on, until it is resumed or `until` has come."""
    await asking.schedule(schedule)
    await asking.operate.pause_async(schedule, reason=body.reason, actor=asking.actor, until=body.until)
    return _done(schedule, "paused")


@routes.post("/schedules/{schedule}/resume", response_model=models.Done, responses=problems(404, 409, body=True))
async def resume_schedule(asking: Asking, schedule: ScheduleId, body: ResumeBody) -> Any:
    """The next tick runs; those that passed during the pause are skipped, unless `catch_up`."""
    await asking.schedule(schedule)
    await asking.operate.resume_async(schedule, reason=body.reason, actor=asking.actor, catch_up=body.catch_up)
    return _done(schedule, "resumed")


@routes.post("/schedules/{schedule}/trigger", response_model=models.Kept, responses=problems(404, 409, body=True))
async def trigger_schedule(asking: Asking, schedule: ScheduleId, body: Act) -> Any:
    """One run now, beside its ticks; it obeys overlap."""
    await asking.schedule(schedule)
    return Answered(kept_shape(await asking.operate.trigger_async(schedule, reason=body.reason, actor=asking.actor)))


def _done(schedule: str, outcome: str) -> Answered:
    return Answered({"id": schedule, "outcome": outcome})


def _etag(view: ScheduleView) -> str:
    return f'"{view.schedule.revision}"'


def _check_revision(view: ScheduleView, seen: str | None) -> None:
    if seen is not None and seen.strip() not in ("*", _etag(view)):
        raise Problem(
            "changed-meanwhile",
            f"its revision is {view.schedule.revision} by now; look at it again, then say {_etag(view)}",
        )
