"""Many at once: schedules from a file, and schedules and runs by what they have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from foliot.operate.bulk import BulkAction, bulk_preview_shape, told_shape
from foliot.operate.pausing import ScheduleWanted
from foliot.operate.scheduling import planned_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.api.pauses import PauseBody, ResumeBody
from foliot.web.api.runs import RunFilters
from foliot.web.api.schedules import Stated
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Act, Body, DryRun, Name
from foliot.web.routing import Answered

routes = router("bulk actions")

MOST_STATED = 1_000
MOST_RUNS = 10_000


class ApplyBody(Act):
    source: Annotated[Name, Field(description="Source of the schedules; others stay unchanged.", examples=["billing"])]
    schedules: Annotated[list[Stated], Field(max_length=MOST_STATED)]
    prune: Annotated[bool, Field(description="Remove schedules that this source no longer declares.")] = False
    dry_run: DryRun = False


class Meant(Body):
    """Filter of schedules. At least one field is required; all given fields must match."""

    job: Name | None = None
    tenant: Name | None = None
    queue: Name | None = None
    owner: Name | None = None
    source: Name | None = None
    prefix: Annotated[Name | None, Field(description="Prefix of the ids.")] = None

    def wanted(self, asking: Caller) -> ScheduleWanted:
        return {
            "job": self.job,
            "tenant": asking.narrowed(self.tenant),
            "queue": self.queue,
            "owner": self.owner,
            "source": self.source,
            "prefix": self.prefix,
        }


class PauseManyBody(PauseBody):
    schedules: Meant
    dry_run: DryRun = False


class ResumeManyBody(ResumeBody):
    schedules: Meant
    dry_run: DryRun = False


class RunsBody(Act):
    runs: RunFilters
    limit: Annotated[int, Field(ge=1, le=MOST_RUNS, description="Repeat the request for the remaining runs.")] = 1_000
    dry_run: DryRun = False


@routes.post("/bulk/apply", response_model=models.Page[models.Planned], responses=problems(404, 409, body=True))
async def apply_schedules(asking: Asking, body: ApplyBody) -> Any:
    """Replaces the schedules of a source with the given ones in one transaction. `dry_run` returns the plan only."""
    given = [one.model_dump(exclude_unset=True) for one in body.schedules]
    if body.dry_run:
        told = await asking.operate.preview_apply_async(given, source=body.source, prune=body.prune)
    else:
        told = await asking.operate.apply_schedules_async(
            given, source=body.source, prune=body.prune, reason=body.reason, actor=asking.actor
        )
    return page([planned_shape(one) for one in told], None)


@routes.post("/bulk/pause", response_model=models.BulkSchedules, responses=problems(body=True))
async def pause_schedules(asking: Asking, body: PauseManyBody) -> Any:
    """Pauses each matching schedule separately. A failure does not stop the rest."""
    wanted, until = body.schedules.wanted(asking), await body.end(asking)
    if body.dry_run:
        return await _meant(asking, wanted)
    told = await asking.operate.pause_many_async(
        reason=body.reason, actor=asking.actor, what=body.what, until=until, **wanted
    )
    return Answered({"told": told_shape(told), "preview": None})


@routes.post("/bulk/resume", response_model=models.BulkSchedules, responses=problems(body=True))
async def resume_schedules(asking: Asking, body: ResumeManyBody) -> Any:
    """Resumes each matching schedule separately."""
    wanted = body.schedules.wanted(asking)
    if body.dry_run:
        return await _meant(asking, wanted)
    told = await asking.operate.resume_many_async(
        reason=body.reason, actor=asking.actor, what=body.what, catch_up=body.catch_up, **wanted
    )
    return Answered({"told": told_shape(told), "preview": None})


async def _meant(asking: Caller, wanted: ScheduleWanted) -> Answered:
    names = [view.schedule.id for view in await asking.operate.schedules_meant_async(**wanted)]
    return Answered({"told": None, "preview": {"would": len(names), "schedules": names}})


@routes.post("/bulk/cancel", response_model=models.BulkRuns, responses=problems(body=True))
async def cancel_runs(asking: Asking, body: RunsBody) -> Any:
    """Cancels each matching run separately. Pending runs end; for running ones, cancellation is requested."""
    return await _handled(asking, BulkAction.CANCEL, body)


@routes.post("/bulk/skip", response_model=models.BulkRuns, responses=problems(body=True))
async def skip_runs(asking: Asking, body: RunsBody) -> Any:
    """Skips each matching run that has not started, separately."""
    return await _handled(asking, BulkAction.SKIP, body)


async def _handled(asking: Caller, action: BulkAction, body: RunsBody) -> Answered:
    wanted = body.runs.wanted(asking.narrowed(body.runs.tenant))
    if body.dry_run:
        seen = await asking.operate.preview_bulk_async(action, wanted, limit=body.limit)
        return Answered({"told": None, "preview": bulk_preview_shape(seen)})
    told = await asking.operate.bulk_async(action, wanted, reason=body.reason, actor=asking.actor, limit=body.limit)
    return Answered({"told": told_shape(told), "preview": None})
