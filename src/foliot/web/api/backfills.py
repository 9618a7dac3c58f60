"""Ticks of the past: preview, start, list, look, pause, resume, change the pace, cancel."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.domain.backfill import MOST_AT_ONCE, MOST_IN_A_ROW, MOST_TICKS
from foliot.operate.backfilling import backfill_shape, preview_shape, progress_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Asked, DryRun, Moment, Name, Number, Rate
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("backfills")

Window = Annotated[str, Field(max_length=50, examples=["22:00-06:00"])]
AtOnce = Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]


class BackfillQuery(Asked):
    schedule: Annotated[Name | None, Field(description="Required for a token that is bound to a tenant.")] = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 50


class BackfillBody(Act):
    schedule: Name
    start: Annotated[Moment, Field(alias="from")]
    end: Annotated[Moment, Field(alias="to")]
    rate: Rate | None = None
    at_once: AtOnce = 1
    window: Window | None = None
    tz: Name = "UTC"
    newest_first: bool = False
    stop_after: Annotated[int | None, Field(ge=1, le=MOST_TICKS)] = MOST_IN_A_ROW
    most: Annotated[int, Field(ge=1, le=1_000_000)] = MOST_TICKS
    revision: Annotated[int | None, Field(ge=0, le=1 << 31, description="Schedule revision in the preview.")] = None
    dry_run: DryRun = False


class PaceBody(Act):
    rate: Annotated[Rate | None, Field(description="`any` removes the rate.")] = None
    at_once: AtOnce | None = None
    window: Annotated[Window | None, Field(description="`any` removes the window.")] = None
    tz: Name = "UTC"


ACT = problems(404, 409, body=True)


@routes.get("/backfills", response_model=models.Page[models.Backfill], responses=problems(404))
async def list_backfills(asking: Asking, query: Annotated[BackfillQuery, Query()]) -> Any:
    """Lists backfills, newest first."""
    if query.schedule is not None:
        await asking.schedule(query.schedule)
    elif asking.tenant is not None:
        raise Problem("not-allowed", "the token is bound to a tenant: name the schedule")
    found = await asking.operate.backfills_async(schedule=query.schedule, limit=query.limit)
    return page([backfill_shape(one) for one in found], None)


@routes.post("/backfills", response_model=models.BackfillAnswer, responses=ACT)
async def start_backfill(asking: Asking, body: BackfillBody) -> Any:
    """Creates one run for each tick without a run. `dry_run` returns the plan only."""
    await asking.schedule(body.schedule)
    pace = {"rate": body.rate, "at_once": body.at_once, "window": body.window, "tz": body.tz, "most": body.most}
    if body.dry_run:
        seen = await asking.operate.preview_backfill_async(body.schedule, body.start, body.end, **pace)  # type: ignore[arg-type]
        return Answered({"backfill": None, "preview": preview_shape(seen)})
    made = await asking.operate.backfill_async(
        body.schedule,
        body.start,
        body.end,
        reason=body.reason,
        actor=asking.actor,
        newest_first=body.newest_first,
        stop_after=body.stop_after,
        revision=body.revision,
        **pace,  # type: ignore[arg-type]
    )
    return Answered({"backfill": backfill_shape(made), "preview": None})


@routes.get("/backfills/{backfill}", response_model=models.BackfillStanding, responses=problems(404))
async def get_backfill(asking: Asking, backfill: Number) -> Any:
    """Returns the progress of a backfill and its expected end."""
    await asking.check_backfill(backfill)
    return Answered(progress_shape(await asking.operate.backfill_progress_async(backfill)))


@routes.post("/backfills/{backfill}/pause", response_model=models.Backfill, responses=ACT)
async def pause_backfill(asking: Asking, backfill: Number, body: Act) -> Any:
    """Stops creating runs until the backfill is resumed."""
    await asking.check_backfill(backfill)
    changed = await asking.operate.pause_backfill_async(backfill, reason=body.reason, actor=asking.actor)
    return Answered(backfill_shape(changed))


@routes.post("/backfills/{backfill}/resume", response_model=models.Backfill, responses=ACT)
async def resume_backfill(asking: Asking, backfill: Number, body: Act) -> Any:
    """Resumes a backfill where it stopped. Earlier failures no longer count."""
    await asking.check_backfill(backfill)
    changed = await asking.operate.resume_backfill_async(backfill, reason=body.reason, actor=asking.actor)
    return Answered(backfill_shape(changed))


@routes.post("/backfills/{backfill}/cancel", response_model=models.Backfill, responses=ACT)
async def cancel_backfill(asking: Asking, backfill: Number, body: Act) -> Any:
    """Ends a backfill. Its runs that have not started end as cancelled."""
    await asking.check_backfill(backfill)
    changed = await asking.operate.cancel_backfill_async(backfill, reason=body.reason, actor=asking.actor)
    return Answered(backfill_shape(changed))


@routes.post("/backfills/{backfill}/rate", response_model=models.Backfill, responses=ACT)
async def pace_backfill(asking: Asking, backfill: Number, body: PaceBody) -> Any:
    """Changes the rate of a backfill."""
    await asking.check_backfill(backfill)
    changed = await asking.operate.pace_backfill_async(
        backfill,
        reason=body.reason,
        actor=asking.actor,
        rate=body.rate,
        at_once=body.at_once,
        window=body.window,
        tz=body.tz,
    )
    return Answered(backfill_shape(changed))
