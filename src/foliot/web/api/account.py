"""What happened, and what will: who asks, events, the operators' log, a day's report, the load to come."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.domain.instant import DAY, LAST, SECOND, duration
from foliot.operate.auditing import anchor_shape, audit_report_shape, sealed_shape
from foliot.operate.load import load_shape
from foliot.operate.report import report_shape
from foliot.operate.shapes import event_shape
from foliot.timing.herds import herds
from foliot.timing.load import load, width_for
from foliot.web import models
from foliot.web.api.parts import next_cursor, page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Asked, Day, Key, Length, Moment, Name, Paged, named
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("account")

Subject = Annotated[Key, named("A schedule's id, or a job's name", "daily-revenue")]
MOST_BUCKETS = 20_000


class EventQuery(Asked):
    after: Annotated[str | None, Field(pattern="^[0-9]{1,18}$", description="The `cursor` of the previous page.")] = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class AuditQuery(Paged):
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$")] = None
    actor: Name | None = None
    action: Name | None = None
    subject: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    text: Name | None = None


class ReportQuery(Asked):
    on: Annotated[Day | None, Field(description="Day of the report; default: today.")] = None
    tz: Name | None = None


class LoadQuery(Asked):
    start: Annotated[Moment | None, Field(alias="from")] = None
    length: Annotated[Length, Field(alias="for")] = "24h"
    per: Annotated[Length | None, Field(description="Length of one interval; default: fitted to the period.")] = None
    schedule: Annotated[Name | None, Field(description="Name pattern of schedules, such as report-*.")] = None


@routes.get("/me", response_model=models.Me, responses=problems())
async def get_me(asking: Asking) -> Any:
    """Returns the caller's name, scope and tenant."""
    one = asking.principal
    return Answered({"name": one.name, "scope": str(one.scope), "tenant": one.tenant})


@routes.get("/events", response_model=models.Page[models.Event], responses=problems())
async def list_events(asking: Asking, query: Annotated[EventQuery, Query()]) -> Any:
    """Lists unusual events, oldest first. `cursor` is always set: continue from it, even after an empty page."""
    after = int(query.after or 0)
    found = [event_shape(one) for one in await asking.operate.events_since_async(after, query.limit)]
    return page(found, found[-1]["cursor"] if found else str(after))


@routes.get("/audit", response_model=models.Page[models.AuditRow], responses=problems())
async def list_audit(asking: Asking, query: Annotated[AuditQuery, Query()]) -> Any:
    """Lists audit entries, newest first."""
    found = await asking.operate.audit_async(
        actor=query.actor,
        action=query.action,
        subject=query.subject,
        since=query.since,
        until=query.until,
        text=query.text,
        limit=query.limit,
        before=None if query.cursor is None else int(query.cursor),
    )
    shapes = [sealed_shape(one) for one in found]
    return page(shapes, next_cursor(shapes, query.limit, "cursor"))


@routes.get("/audit/verify", response_model=models.AuditReport, responses=problems())
async def verify_audit(asking: Asking) -> Any:
    """Checks the whole log for rows that were changed, removed, or inserted without a key."""
    return Answered(audit_report_shape(await asking.operate.verify_audit_async()))


@routes.get("/audit/anchor", response_model=models.Anchor, responses=problems(409))
async def get_anchor(asking: Asking) -> Any:
    """Returns the current head of the hash chain. Store it where a writer of the store cannot change it."""
    return Answered(anchor_shape(await asking.operate.anchor_async()))


@routes.get("/report/{subject}", response_model=models.Report, responses=problems(404))
async def get_report(asking: Asking, subject: Subject, query: Annotated[ReportQuery, Query()]) -> Any:
    """Reports the outcome of one day's work in sentences."""
    if asking.tenant is not None:
        await asking.schedule(subject)
    return Answered(report_shape(await asking.operate.report_async(subject, query.on, query.tz, tenant=asking.tenant)))


@routes.get("/load", response_model=models.Load, responses=problems())
async def get_load(asking: Asking, query: Annotated[LoadQuery, Query()]) -> Any:
    """Forecasts the load of all schedules, with its load spikes."""
    span = duration(query.length)
    width = width_for(span) if query.per is None else duration(query.per)
    if not SECOND <= width <= 31 * DAY or not 0 < span <= 400 * DAY or span // width > MOST_BUCKETS:
        raise Problem("invalid", f"for, per: give at most 400 days and {MOST_BUCKETS:,} intervals of 1 s or more")
    standing = await asking.operate.standings_async(only=query.schedule)
    start = standing.now - standing.now % width if query.start is None else query.start
    if start + span > LAST:
        raise Problem("invalid", "from: too close to the end of the calendar for this period; give an earlier time")
    counted = await asyncio.to_thread(load, standing.taking_part, start, start + span, width)
    return Answered(load_shape(standing, counted, await asyncio.to_thread(herds, counted)))
