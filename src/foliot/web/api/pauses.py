"""What is stopped for a while: jobs, queues and tenants; and workers that take nothing more."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from foliot.domain.instant import Instant, duration
from foliot.domain.pauses import What
from foliot.domain.store import Wish
from foliot.operate.shapes import pause_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Act, Choice, JobName, Key, Length, Moment, Number, named
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("pauses")

QueueName = Annotated[Key, named("Name of the queue", "default")]
TenantName = Annotated[Key, named("Name of the tenant", "acme")]
Whats = Annotated[list[Choice[What]], Field(min_length=1, max_length=3, description="Operations to pause.")]


class PauseBody(Act):
    """A pause until resume, until the time `until`, or for the duration `for`."""

    what: Whats | None = None
    until: Moment | None = None
    length: Annotated[Length | None, Field(alias="for")] = None

    async def end(self, asking: Caller) -> Instant | None:
        if self.length is None:
            return self.until
        if self.until is not None:
            raise Problem("invalid", "until, for: give only one of them")
        return await asking.operate.now_async() + duration(self.length)


class ResumeBody(Act):
    what: Whats | None = None
    catch_up: Annotated[bool, Field(description="Apply the catch-up policy to ticks due during the pause.")] = False


async def paused(asking: Caller, kind: str, name: str, body: PauseBody) -> Answered:
    made = await asking.operate.pause_of_async(
        kind, name, reason=body.reason, actor=asking.actor, what=body.what, until=await body.end(asking)
    )
    return Answered({"id": name, "outcome": "paused", "pauses": [pause_shape(one) for one in made]})


async def resumed(asking: Caller, kind: str, name: str, body: ResumeBody) -> Answered:
    ended = await asking.operate.resume_of_async(
        kind, name, reason=body.reason, actor=asking.actor, what=body.what, catch_up=body.catch_up
    )
    outcome = "resumed" if ended else "unchanged"
    return Answered({"id": name, "outcome": outcome, "pauses": [pause_shape(one) for one in ended]})


ACT = problems(404, 409, body=True)


@routes.get("/pauses", response_model=models.Page[models.Pause], responses=problems())
async def list_pauses(asking: Asking) -> Any:
    """Lists pauses. A pause of a schedule's own ticks is listed with the schedule."""
    return page([pause_shape(one) for one in await asking.operate.pauses_async()], None)


@routes.post("/jobs/{job}/pause", response_model=models.Paused, responses=ACT)
async def pause_job(asking: Asking, job: JobName, body: PauseBody) -> Any:
    """Pauses claims of the job unless `what` names others. Running attempts continue."""
    return await paused(asking, "job", job, body)


@routes.post("/jobs/{job}/resume", response_model=models.Paused, responses=ACT)
async def resume_job(asking: Asking, job: JobName, body: ResumeBody) -> Any:
    """Ends all pauses of the job, or those in `what`, and releases held runs."""
    return await resumed(asking, "job", job, body)


@routes.post("/queues/{queue}/pause", response_model=models.Paused, responses=ACT)
async def pause_queue(asking: Asking, queue: QueueName, body: PauseBody) -> Any:
    """Pauses claims of the queue unless `what` names others."""
    return await paused(asking, "queue", queue, body)


@routes.post("/queues/{queue}/resume", response_model=models.Paused, responses=ACT)
async def resume_queue(asking: Asking, queue: QueueName, body: ResumeBody) -> Any:
    """Ends all pauses of the queue, or those in `what`."""
    return await resumed(asking, "queue", queue, body)


@routes.post("/tenants/{tenant}/pause", response_model=models.Paused, responses=ACT)
async def pause_tenant(asking: Asking, tenant: TenantName, body: PauseBody) -> Any:
    """Pauses claims of the tenant unless `what` names others."""
    return await paused(asking, "tenant", tenant, body)


@routes.post("/tenants/{tenant}/resume", response_model=models.Paused, responses=ACT)
async def resume_tenant(asking: Asking, tenant: TenantName, body: ResumeBody) -> Any:
    """Ends all pauses of the tenant, or those in `what`."""
    return await resumed(asking, "tenant", tenant, body)


@routes.post("/workers/{worker}/drain", response_model=models.Wished, responses=ACT)
async def drain_worker(asking: Asking, worker: Number, body: Act) -> Any:
    """Drains a worker: it takes no new runs, finishes its current ones, and exits. The drain starts within a second."""
    return await _wished(asking, worker, Wish.DRAIN, body)


@routes.post("/workers/{worker}/quarantine", response_model=models.Wished, responses=ACT)
async def quarantine_worker(asking: Asking, worker: Number, body: Act) -> Any:
    """Quarantines a worker: it takes no new runs, finishes its current ones, and keeps running for inspection."""
    return await _wished(asking, worker, Wish.QUARANTINE, body)


@routes.post("/workers/{worker}/resume", response_model=models.Wished, responses=ACT)
async def resume_worker(asking: Asking, worker: Number, body: Act) -> Any:
    """Ends a drain or quarantine. A drained worker can be resumed until it has exited."""
    return await _wished(asking, worker, None, body)


async def _wished(asking: Caller, worker: int, wish: Wish | None, body: Act) -> Answered:
    is_new = await asking.operate.wish_async(worker, wish, reason=body.reason, actor=asking.actor)
    return Answered({"number": worker, "wish": wish, "outcome": "told" if is_new else "unchanged"})
