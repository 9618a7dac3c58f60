"""How everything stands: at a glance, what needs attention, what must not be silent, how long history is kept."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.domain.alerts import Alert
from foliot.domain.alerts import Kind as AlertKind
from foliot.domain.instant import MINUTE
from foliot.errors import UnknownName
from foliot.operate.alerting import alert_shape, alert_story_shape
from foliot.operate.shapes import moment
from foliot.operate.surveyed import need_shape, overview_shape, tally_shape
from foliot.operate.surveying import Kind
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Act, Asked, Choice, Length, Name, Number, Paged
from foliot.web.routing import Answered

routes = router("standing")


class NeedQuery(Paged):
    kind: Annotated[list[Choice[Kind]], Field(max_length=10)] = []
    tenant: Name | None = None


class KeptQuery(Asked):
    minutes: Annotated[int, Field(ge=1, le=1_440)] = 60


class AlertQuery(Paged):
    everything: Annotated[bool, Field(description="Include resolved alerts, newest first.")] = False
    kind: Choice[AlertKind] | None = None
    subject: Annotated[Name | None, Field(description="Subject of the alert: `schedule:X`, `job:X`, `queue:X`.")] = None
    tenant: Name | None = None
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$")] = None


class SnoozeBody(Act):
    length: Annotated[Length, Field(alias="for", description="Time without notifications.")]


class RetentionBody(Act):
    days: Annotated[int | None, Field(ge=1, le=36_500, description="null: no limit.")]


@routes.get("/overview", response_model=models.Overview, responses=problems())
async def get_overview(asking: Asking) -> Any:
    """Returns punctuality, waiting and running work, upcoming runs, the fleet, and runs that need attention."""
    return Answered(overview_shape(await asking.operate.overview_async()))


@routes.get("/overview/kept", response_model=models.Page[models.Minute], responses=problems())
async def kept_by_minute(asking: Asking, query: Annotated[KeptQuery, Query()]) -> Any:
    """Lists outcomes by the minute in which runs ended or failed, oldest first."""
    found = await asking.operate.kept_by_minute_async(query.minutes)
    return page([{"at": moment(minute * MINUTE)} | tally_shape(tally) for minute, tally in found], None)


@routes.get("/needs", response_model=models.Page[models.Need], responses=problems())
async def list_needs(asking: Asking, query: Annotated[NeedQuery, Query()]) -> Any:
    """Lists items that need attention with the safest action: schedules and stuck runs first, then newest runs."""
    found = await asking.operate.needs_person_async(
        query.kind, tenant=asking.narrowed(query.tenant), cursor=query.cursor, limit=query.limit
    )
    return page([need_shape(one) for one in found.needs], found.cursor)


# Alerts


@routes.get("/alerts", response_model=models.AlertPage, responses=problems())
async def list_alerts(asking: Asking, query: Annotated[AlertQuery, Query()]) -> Any:
    """Lists open alerts, most urgent first. `silent`: the watch has stopped."""
    found = await asking.operate.alerts_async(
        everything=query.everything,
        kind=query.kind,
        subject=query.subject,
        tenant=asking.narrowed(query.tenant),
        limit=query.limit,
        before=None if query.cursor is None else int(query.cursor),
    )
    numbers = [one.number for one in found.alerts if one.number]  # what is derived has none
    cursor = str(min(numbers)) if len(numbers) == query.limit else None
    shapes = [alert_shape(one, found.now) for one in found.alerts]
    return page(shapes, cursor, looked_at=moment(found.looked_at), silent=found.silent)


@routes.get("/alerts/{alert}", response_model=models.AlertStory, responses=problems(404))
async def get_alert(asking: Asking, alert: Number) -> Any:
    """Returns an alert with the safest actions for its run."""
    found = await _own(asking, alert)
    advice = await asking.operate.alert_advice_async(alert)
    return Answered(alert_story_shape(found, advice, await asking.operate.now_async()))


@routes.post("/alerts/{alert}/snooze", response_model=models.Alert, responses=problems(404, 409, body=True))
async def snooze_alert(asking: Asking, alert: Number, body: SnoozeBody) -> Any:
    """Stops notifications of an alert for a time. The alert stays listed."""
    await _own(asking, alert)
    changed = await asking.operate.snooze_async(alert, body.length, reason=body.reason, actor=asking.actor)
    return Answered(alert_shape(changed, await asking.operate.now_async()))


@routes.post("/alerts/{alert}/unsnooze", response_model=models.Alert, responses=problems(404, 409, body=True))
async def unsnooze_alert(asking: Asking, alert: Number, body: Act) -> Any:
    """Ends a snooze. Foliot notifies again while the alert is open."""
    await _own(asking, alert)
    changed = await asking.operate.unsnooze_async(alert, reason=body.reason, actor=asking.actor)
    return Answered(alert_shape(changed, await asking.operate.now_async()))


async def _own(asking: Caller, number: int) -> Alert:
    found = await asking.operate.alert_async(number)
    if asking.tenant is not None and found.tenant != asking.tenant:
        raise UnknownName(f"there is no alert {number}")
    return found


# History


@routes.get("/retention", response_model=models.Retention, responses=problems())
async def get_retention(asking: Asking) -> Any:
    """Returns the retention of ended runs, attempts and events."""
    return Answered({"days": await asking.operate.retention_async()})


@routes.put("/retention", response_model=models.Retention, responses=problems(body=True))
async def set_retention(asking: Asking, body: RetentionBody) -> Any:
    """Sets the retention. Foliot deletes older history permanently, within minutes; parked runs stay."""
    await asking.operate.set_retention_async(body.days, reason=body.reason, actor=asking.actor)
    return Answered({"days": body.days})
