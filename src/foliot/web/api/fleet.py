"""What there is: jobs, queues, workers, tenants, limits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.domain.gates import MOST_AT_A_TIME, MOST_BURST, MOST_WEIGHT
from foliot.operate.fleet import queue_shape
from foliot.operate.jobs import card_shape, job_shape
from foliot.operate.limits import gate_shape, limit_shape
from foliot.operate.shapes import instance_shape
from foliot.operate.tenants import tenant_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Asked, JobName, Key, Rate, ReasonQuery, named
from foliot.web.routing import Answered

routes = router("fleet")

LimitName = Annotated[Key, named("Subject of the limit", "tenant:acme")]


class TenantQuery(Asked):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class LimitBody(Act):
    """New values of a limit. Omitted fields stay unchanged."""

    concurrency: Annotated[int | None, Field(ge=0, le=MOST_AT_A_TIME)] = None
    rate: Rate | None = None
    burst: Annotated[int | None, Field(ge=1, le=MOST_BURST)] = None
    weight: Annotated[float | None, Field(gt=0, le=MOST_WEIGHT)] = None


@routes.get("/jobs", response_model=models.Page[models.Job], responses=problems())
async def list_jobs(asking: Asking) -> Any:
    """Lists jobs by name."""
    cards = await asking.operate.jobs_async()
    return page([card_shape(cards[name]) for name in sorted(cards)], None)


@routes.get("/jobs/{job}", response_model=models.WholeJob, responses=problems(404))
async def get_job(asking: Asking, job: JobName) -> Any:
    """Returns a job with figures of its latest runs."""
    view = await asking.operate.job_async(job)
    return Answered(job_shape(view.card, view.counts, view.taken))


@routes.get("/queues", response_model=models.Page[models.Queue], responses=problems())
async def list_queues(asking: Asking) -> Any:
    """Lists queues that have waiting runs, a worker or a job."""
    return page([queue_shape(one) for one in await asking.operate.queues_async()], None)


@routes.get("/workers", response_model=models.Page[models.Worker], responses=problems())
async def list_workers(asking: Asking) -> Any:
    """Lists workers that have not ended."""
    return page([instance_shape(one) for one in await asking.operate.workers_async()], None)


@routes.get("/tenants", response_model=models.Page[models.Tenant], responses=problems())
async def list_tenants(asking: Asking, query: Annotated[TenantQuery, Query()]) -> Any:
    """Lists tenants with waiting or running runs, most waiting first."""
    found = await asking.operate.tenants_async()
    return page([tenant_shape(one) for one in found[: query.limit]], None)


@routes.get("/limits", response_model=models.Page[models.Limit], responses=problems())
async def list_limits(asking: Asking) -> Any:
    """Lists limits by name and concurrency keys in use, with holders and waiting runs."""
    return page([limit_shape(one) for one in await asking.operate.limits_async()], None)


@routes.put("/limits/{limit}", response_model=models.Gate, responses=problems(body=True))
async def set_limit(asking: Asking, limit: LimitName, body: LimitBody) -> Any:
    """Sets the limit of a job, tenant, queue, schedule, destination or lane. The limit overrides the code."""
    gate = await asking.operate.limit_async(
        limit,
        reason=body.reason,
        actor=asking.actor,
        concurrency=body.concurrency,
        rate=body.rate,
        burst=body.burst,
        weight=body.weight,
    )
    return Answered(gate_shape(gate))


@routes.delete("/limits/{limit}", response_model=models.Done, responses=problems(404))
async def drop_limit(asking: Asking, limit: LimitName, reason: ReasonQuery) -> Any:
    """Removes a limit and releases the runs that wait for it. `breaker:X` closes a destination's circuit breaker."""
    await asking.operate.unlimit_async(limit, reason=reason, actor=asking.actor)
    return Answered({"id": limit, "outcome": "dropped"})
