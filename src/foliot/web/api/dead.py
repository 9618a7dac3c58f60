"""Dead letters: see them, see what a replay would do, replay many."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.operate.replaying import DeadWanted, dead_shape, outcomes_shape, replay_preview_shape
from foliot.web import models
from foliot.web.api.parts import next_cursor, page, problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Body, DryRun, Moment, Name, Paged, Rate, Reason
from foliot.web.routing import Answered

routes = router("dead letters")


class Meant(Body):
    """Filter of dead letters. Without fields it matches all."""

    job: Name | None = None
    schedule: Annotated[Name | None, Field(description="`-`: only runs without a schedule.")] = None
    member: Annotated[Name | None, Field(description="With `schedule`: only runs of this member.")] = None
    tenant: Annotated[Name | None, Field(description="`-`: only runs without a tenant.")] = None
    why: Annotated[Name | None, Field(description="Reason: attempts, permanent, too_old, ...")] = None
    since: Annotated[Moment | None, Field(description="Only nominal times in [since, until).")] = None
    until: Moment | None = None

    def wanted(self, asking: Caller) -> DeadWanted:
        return {
            "job": self.job,
            "schedule": self.schedule,
            "member": self.member,
            "tenant": asking.narrowed(self.tenant),
            "why": self.why,
            "since": self.since,
            "until": self.until,
        }


class DeadQuery(Meant, Paged):
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$")] = None


class ReplayBody(Meant):
    reason: Reason
    rate: Rate | None = None
    override: bool = False
    limit: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    dry_run: DryRun = False


class ReplayAnswer(models.Shape):
    """Outcome of each run; for a dry run, the expected outcome."""

    outcomes: models.Outcomes | None
    preview: models.ReplayPreview | None


@routes.get("/dead", response_model=models.Page[models.DeadRun], responses=problems())
async def list_dead(asking: Asking, query: Annotated[DeadQuery, Query()]) -> Any:
    """Lists dead letters, oldest first, each with the effect of a replay."""
    found = await asking.operate.dead_async(limit=query.limit, after=int(query.cursor or 0), **query.wanted(asking))
    shapes = [dead_shape(one) for one in found]
    return page(shapes, next_cursor(shapes, query.limit, "cursor"))


@routes.post("/dead/replay", response_model=ReplayAnswer, responses=problems(body=True))
async def replay_dead(asking: Asking, body: ReplayBody) -> Any:
    """Replays dead letters in lane backfill. Foliot decides about each one separately."""
    wanted = body.wanted(asking)
    if body.dry_run:
        seen = await asking.operate.preview_replay_async(
            rate=body.rate, override=body.override, limit=body.limit, **wanted
        )
        return Answered({"outcomes": None, "preview": replay_preview_shape(seen)})
    told = await asking.operate.replay_dead_async(
        reason=body.reason, actor=asking.actor, rate=body.rate, override=body.override, limit=body.limit, **wanted
    )
    return Answered({"outcomes": outcomes_shape(told), "preview": None})
