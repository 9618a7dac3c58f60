"""Standing rules: list, look, make, edit, pause, resume, trigger, delete."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import ConfigDict, Field

from foliot.domain.schedule import ScheduleView
from foliot.domain.standing import ScheduleFilter, ScheduleOrder
from foliot.domain.state import State
from foliot.errors import Conflict, UnknownName
from foliot.operate.members import standing_shape as member_shape
from foliot.operate.scheduling import planned_shape
from foliot.operate.shapes import coming_ticks, kept_shape, moment
from foliot.operate.surveyed import standing_shape
from foliot.web import models
from foliot.web.api.parts import next_cursor, page, problems, router
from foliot.web.api.pauses import PauseBody, ResumeBody, paused, resumed
from foliot.web.api.runs import StateName
from foliot.web.caller import Asking, Caller
from foliot.web.fields import (
    Act,
    Asked,
    Choice,
    DryRun,
    Identifier,
    Length,
    Line,
    Name,
    Paged,
    Priority,
    ReasonQuery,
    ScheduleId,
    Strict,
    TenantName,
)
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("schedules")

IfMatch = Annotated[
    str | None, Header(alias="if-match", max_length=100, description="ETag that the caller saw; 412 if it has changed.")
]
Arguments = Annotated[dict[str, Any], Field(description="Arguments by name.", examples=[{"day": "monday"}])]
RuleText = Annotated[
    str | dict[str, Any], Field(description="A rule as text, or as the API returns it.", examples=["0 2 * * *"])
]


class ScheduleQuery(Paged):
    """Filter of schedules. Without fields it matches all."""

    job: Name | None = None
    tenant: Name | None = None
    paused: Annotated[bool | None, Field(description="Includes pauses of the schedule's job, queue or tenant.")] = None
    needs_person: Annotated[bool, Field(description="Only schedules with parked runs or a fault.")] = False
    last: Annotated[list[StateName], Field(max_length=20, description="State of the last run.")] = []
    text: Annotated[Name | None, Field(description="Text in the id, job or owner.")] = None
    order: Annotated[Choice[ScheduleOrder], Field(description="`next`: by next due time.")] = ScheduleOrder.NAME

    def wanted(self, tenant: str | None) -> ScheduleFilter:
        return ScheduleFilter(
            text=self.text,
            job=self.job,
            tenant=tenant,
            paused=self.paused,
            needs_person=self.needs_person,
            last=tuple(State[name.upper()] for name in self.last),
            order=self.order,
        )


class Described(Strict):
    """Fields of a schedule beside job and rule. Policy settings such as `overlap` are further fields."""

    model_config = ConfigDict(extra="allow")
    tz: Name | None = None
    args: Arguments | None = None
    bind: Annotated[dict[str, str] | None, Field(examples=[{"day": "tick.date"}])] = None
    queue: Identifier | None = None
    priority: Priority = 0
    tenant: TenantName | None = None
    owner: Line | None = None
    runbook: Line | None = None
    changes: Line | None = None


class Stated(Described):
    name: Identifier
    job: Identifier
    rule: RuleText
    over: Annotated[Name | None, Field(description="Member set: each tick creates one run per member.")] = None
    paused: Annotated[Line | None, Field(description="Create the schedule paused, with this reason.")] = None


class Changes(Described):
    """Changed fields. Omitted fields stay; a null setting returns to the job's own value."""

    rule: RuleText | None = None


class MakeBody(Act):
    schedule: Stated
    dry_run: DryRun = False


class EditBody(Act):
    change: Changes
    dry_run: DryRun = False


class TriggerBody(Act):
    override_overlap: Annotated[
        bool, Field(description="Start the run beside active runs; limits and pauses do not hold it.")
    ] = False


class NextQuery(Asked):
    count: Annotated[int, Field(ge=1, le=1_000)] = 5


class StandingQuery(Paged):
    older_than: Length | None = None


# Seeing


@routes.get("/schedules", response_model=models.StandingPage, responses=problems())
async def list_schedules(asking: Asking, query: Annotated[ScheduleQuery, Query()]) -> Any:
    """Lists schedules by id or by next due time, with their health."""
    wanted = query.wanted(asking.narrowed(query.tenant))
    found = await asking.operate.schedule_page_async(wanted, cursor=query.cursor, limit=query.limit)
    shapes = [standing_shape(one, found.now, pauses=found.pauses) for one in found.schedules]
    return page([_own(asking, one) for one in shapes], found.cursor, complete=found.complete)


@routes.get("/schedules/{schedule}", response_model=models.ScheduleStanding, responses=problems(404))
async def get_schedule(asking: Asking, schedule: ScheduleId) -> Any:
    """Returns one schedule with its health. The ETag is its revision; every edit raises it."""
    await asking.schedule(schedule)
    standing, pauses = await asking.operate.standing_async(schedule), await asking.operate.pauses_async()
    shape = standing_shape(standing, await asking.operate.now_async(), pauses=pauses)
    return Answered(_own(asking, shape), headers={"etag": _etag(standing.schedule.revision)})


def _own(asking: Caller, shape: dict[str, Any]) -> dict[str, Any]:
    """What a token that is bound to a tenant is told of it: not what operators said of things that all share."""
    if asking.tenant is None:
        return shape
    mine = (f"schedule:{shape['id']}", f"tenant:{asking.tenant}")
    failures = {tenant: count for tenant, count in shape["failures_by_tenant"].items() if tenant == asking.tenant}
    return shape | {
        "pauses": [one for one in shape["pauses"] if one["name"] in mine],
        "failures_by_tenant": failures,
    }


@routes.get("/schedules/{schedule}/next", response_model=models.Ticks, responses=problems(404))
async def next_ticks(asking: Asking, schedule: ScheduleId, query: Annotated[NextQuery, Query()]) -> Any:
    """Lists the next nominal times. A fixed delay has at most the pending tick."""
    view = await asking.schedule(schedule)
    ticks = coming_ticks(view, await asking.operate.now_async(), query.count)
    return Answered({"schedule": schedule, "next": [moment(tick) for tick in ticks]})


@routes.get("/schedules/{schedule}/members", response_model=models.Page[models.Standing], responses=problems(404, 409))
async def member_standings(asking: Asking, schedule: ScheduleId, query: Annotated[StandingQuery, Query()]) -> Any:
    """Lists the last useful completion of each member; `older_than` lists members without a recent one."""
    now = await asking.operate.now_async()
    found = await asking.operate.member_standings_async(
        schedule, older_than=query.older_than, after=query.cursor or "", limit=query.limit
    )
    shapes = [member_shape(one, now) for one in found]
    return page(shapes, next_cursor(shapes, query.limit, "member"))


# Making and editing


@routes.post(
    "/schedules",
    status_code=201,
    response_model=models.Planned,
    responses=problems(404, 409, body=True)
    | {200: {"model": models.Planned, "description": "Unchanged, or a dry run"}},
)
async def make_schedule(asking: Asking, body: MakeBody) -> Any:
    """Creates a schedule of a known job. A repeated request changes nothing; 409 if the name is taken."""
    given = body.schedule.model_dump(exclude_unset=True)
    if asking.tenant is not None:
        await _check_own(asking, body.schedule)
        await asking.check_stated([(body.schedule.job, given)])
        given["tenant"] = asking.tenant
    if body.dry_run:
        return Answered(planned_shape(await asking.operate.preview_put_async(given)))
    try:
        planned = await asking.operate.put_schedule_async(given, reason=body.reason, actor=asking.actor)
    except Conflict:
        if asking.tenant is not None:
            await _check_own(asking, body.schedule)  # somebody else was first, and what they said is theirs
        raise
    return Answered(planned_shape(planned), 201 if planned.outcome == "created" else 200)


async def _check_own(asking: Caller, stated: Stated) -> None:
    """Names are the whole installation's: that one is taken must be told, and nothing else of it."""
    asking.narrowed(stated.tenant)
    if stated.over is not None:
        raise Problem(
            "not-allowed", "member sets belong to all tenants, and the token is bound to a tenant; use another token"
        )
    try:
        await asking.schedule(stated.name)
    except UnknownName:
        if await asking.is_taken(stated.name):
            raise Problem("refused", f"the name {stated.name!r} is taken; choose another") from None


@routes.patch("/schedules/{schedule}", response_model=models.Planned, responses=problems(404, 412, 428, body=True))
async def edit_schedule(asking: Asking, schedule: ScheduleId, body: EditBody, if_match: IfMatch = None) -> Any:
    """Changes the given fields. `dry_run` returns the plan with the next ticks. `If-Match`
    names the revision that the caller saw: 412 if it has changed since, with the actor."""
    view, change = await asking.schedule(schedule), body.change.model_dump(exclude_unset=True)
    asking.check_fields(change)
    if body.dry_run:
        return Answered(planned_shape(await asking.operate.preview_edit_async(schedule, change)))
    if if_match is None:
        raise Problem(
            "no-revision", f"revision missing: send If-Match: {_etag(view.schedule.revision)} if you saw that revision"
        )
    seen = _revision(view, if_match)
    try:
        planned = await asking.operate.edit_schedule_async(
            schedule,
            change,
            revision=view.schedule.revision if seen is None else seen,
            reason=body.reason,
            actor=asking.actor,
        )
    except Conflict as error:
        raise Problem("changed-meanwhile", str(error)) from None
    headers = {} if planned.revision is None else {"etag": _etag(planned.revision)}
    return Answered(planned_shape(planned), headers=headers)


@routes.delete("/schedules/{schedule}", response_model=models.Done, responses=problems(404, 412))
async def delete_schedule(asking: Asking, schedule: ScheduleId, reason: ReasonQuery, if_match: IfMatch = None) -> Any:
    """Deletes a schedule and its pending run; its history stays. Code that declares it creates it again."""
    view = await asking.schedule(schedule)
    seen = None if if_match is None else _revision(view, if_match)
    try:
        await asking.operate.delete_async(schedule, reason=reason, actor=asking.actor, revision=seen)
    except Conflict as error:
        raise Problem("changed-meanwhile", str(error)) from None
    return Answered({"id": schedule, "outcome": "deleted"})


# Acting


@routes.post("/schedules/{schedule}/pause", response_model=models.Paused, responses=problems(404, 409, body=True))
async def pause_schedule(asking: Asking, schedule: ScheduleId, body: PauseBody) -> Any:
    """Pauses ticks until resume or the end of the pause. `what` names other operations to pause."""
    await asking.schedule(schedule)
    return await paused(asking, "schedule", schedule, body)


@routes.post("/schedules/{schedule}/resume", response_model=models.Paused, responses=problems(404, 409, body=True))
async def resume_schedule(asking: Asking, schedule: ScheduleId, body: ResumeBody) -> Any:
    """Ends a pause. Ticks due during the pause are skipped unless `catch_up`."""
    await asking.schedule(schedule)
    return await resumed(asking, "schedule", schedule, body)


@routes.post("/schedules/{schedule}/trigger", response_model=models.Kept, responses=problems(404, 409, body=True))
async def trigger_schedule(asking: Asking, schedule: ScheduleId, body: TriggerBody) -> Any:
    """Creates one run now, in addition to the ticks. Overlap applies: 409 if it would skip the run."""
    await asking.schedule(schedule)
    kept = await asking.operate.trigger_async(
        schedule, reason=body.reason, actor=asking.actor, override_overlap=body.override_overlap
    )
    return Answered(kept_shape(kept))


def _etag(revision: int) -> str:
    return f'"{revision}"'


def _revision(view: ScheduleView, seen: str) -> int | None:
    """The one that was seen; None: whichever it is."""
    if seen.strip() == "*":
        return None
    found = re.fullmatch(r'"([0-9]{1,9})"', seen.strip(), re.ASCII)
    if found is None:
        now = _etag(view.schedule.revision)
        raise Problem(
            "changed-meanwhile",
            f"If-Match {seen!r:.80} is not the current revision; read the schedule again, then send {now}",
        )
    return int(found[1])
