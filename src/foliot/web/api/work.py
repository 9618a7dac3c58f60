"""Work that is done elsewhere, in any language: register, claim, beat, say how it ended, leave."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from fastapi import Path
from pydantic import Field

from foliot.domain.access import WorkBound
from foliot.domain.instant import SECOND
from foliot.domain.store import DEFAULT_QUEUE
from foliot.operate.external import MOST_JOBS, MOST_SLOTS, GuestJob, Said, taken_shape
from foliot.web import models
from foliot.web.api.parts import problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Body, Identifier, Length, Name, Number
from foliot.web.routing import Answered

routes = router("remote workers")

AttemptToken = Annotated[
    str, Path(min_length=1, max_length=200, pattern="^[A-Za-z0-9_-]+$", description="Token from `claim`.")
]


class JobBody(Body):
    """A job of this worker. Its settings apply unless code of the fleet declares the job."""

    name: Identifier
    queue: Identifier = DEFAULT_QUEUE
    settings: Annotated[
        dict[str, Any], Field(description="Policies, as in @app.job.", examples=[{"attempts": 3, "timeout": "5m"}])
    ] = {}


class WorkerBody(Body):
    name: Annotated[Name, Field(description="Name in the list of workers.", examples=["resizer-1"])]
    jobs: Annotated[list[JobBody], Field(min_length=1, max_length=MOST_JOBS)]
    queues: Annotated[list[Name], Field(max_length=100, description="Default: the queues of the worker's jobs.")] = []
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS, description="Number of concurrent runs.")] = 1
    labels: Annotated[list[Name], Field(max_length=100)] = []
    version: Annotated[str, Field(max_length=100)] = ""


class ClaimBody(Body):
    limit: Annotated[int, Field(ge=1, le=MOST_SLOTS)] = 1


class SaidBody(Body):
    """A report of an attempt."""

    attempt: Annotated[str, Field(min_length=1, max_length=200)]
    done: Annotated[float | None, Field(ge=-1e15, le=1e15)] = None
    of: Annotated[float | None, Field(ge=-1e15, le=1e15)] = None
    note: Annotated[str | None, Field(max_length=1_000)] = None
    checkpoint: Annotated[Any, Field(description="Checkpoint for the next attempt: any JSON.")] = None


class BeatBody(Body):
    attempts: Annotated[list[SaidBody], Field(max_length=MOST_SLOTS)] = []


class CompleteBody(Body):
    result: Annotated[Any, Field(description="Any JSON, up to 64 KiB.")] = None


class FailBody(Body):
    error: Annotated[str, Field(min_length=1, max_length=10_000)]
    permanent: Annotated[bool, Field(description="Retries cannot succeed: mark the run dead.")] = False
    retry_after: Annotated[Length | None, Field(description="Minimum delay before a retry.")] = None
    cancelled: Annotated[bool, Field(description="The handler stopped after a cancellation request.")] = False


class GiveBackBody(Body):
    """An optional reason."""


ACT = problems(404, 409, body=True)


class _Speaker(TypedDict):
    credential: int
    bound: WorkBound


def _speaker(asking: Caller) -> _Speaker:
    principal = asking.principal
    assert principal.bound is not None  # the route's access says so
    return {"credential": principal.credential, "bound": principal.bound}


@routes.post("/external/workers", status_code=201, response_model=models.Registered, responses=problems(body=True))
async def register_worker(asking: Asking, body: WorkerBody) -> Any:
    """Registers a remote worker after its start. Foliot marks it dead after a lease without heartbeats."""
    entered = await asking.operate.register_guest_async(
        body.name,
        **_speaker(asking),
        jobs=[GuestJob(job.name, job.queue, job.settings) for job in body.jobs],
        queues=body.queues,
        slots=body.slots,
        labels=body.labels,
        version=body.version,
    )
    return Answered({"worker": entered.worker, "beat_every": entered.beat_every / SECOND}, 201)


@routes.post("/external/workers/{worker}/claim", response_model=models.Claims, responses=ACT)
async def claim(asking: Asking, worker: Number, body: ClaimBody) -> Any:
    """Claims ready runs, up to `limit` and the free slots. Repeat the request after an empty answer."""
    taken = await asking.operate.claim_guest_async(worker, **_speaker(asking), limit=body.limit)
    return Answered({"attempts": [taken_shape(one) for one in taken]})


@routes.post("/external/workers/{worker}/beat", response_model=models.Heard, responses=ACT)
async def beat(asking: Asking, worker: Number, body: BeatBody) -> Any:
    """Sends a heartbeat with reports of attempts. Returns attempts to stop and lost attempts."""
    said = [Said(one.attempt, one.done, one.of, one.note, one.checkpoint) for one in body.attempts]
    heard = await asking.operate.beat_guest_async(worker, said, **_speaker(asking))
    return Answered({"stop": heard.stop, "lost": heard.lost})


@routes.delete("/external/workers/{worker}", response_model=models.Done, responses=problems(404))
async def leave(asking: Asking, worker: Number) -> Any:
    """Ends a worker. Its claimed runs are handed off again at once."""
    await asking.operate.retire_guest_async(worker, credential=asking.principal.credential)
    return Answered({"id": str(worker), "outcome": "left"})


@routes.post("/external/attempts/{attempt}/complete", response_model=models.Ended, responses=ACT)
async def complete(asking: Asking, attempt: AttemptToken, body: CompleteBody) -> Any:
    """Records success. 409 if another worker owns the run: only the late report is recorded."""
    run = await asking.operate.complete_guest_async(attempt, body.result, **_speaker(asking))
    return Answered({"run": run, "outcome": "completed"})


@routes.post("/external/attempts/{attempt}/fail", response_model=models.Ended, responses=ACT)
async def fail(asking: Asking, attempt: AttemptToken, body: FailBody) -> Any:
    """Records a failure. The job's policy decides about a retry."""
    run = await asking.operate.fail_guest_async(
        attempt,
        body.error,
        **_speaker(asking),
        permanent=body.permanent,
        retry_after=body.retry_after,
        cancelled=body.cancelled,
    )
    return Answered({"run": run, "outcome": "failed"})


@routes.post("/external/attempts/{attempt}/give-back", response_model=models.Ended, responses=ACT)
async def give_back(asking: Asking, attempt: AttemptToken, body: GiveBackBody) -> Any:
    """Returns a claimed run unexecuted. It is handed off again at once and costs no attempt."""
    run = await asking.operate.give_back_guest_async(attempt, **_speaker(asking))
    return Answered({"run": run, "outcome": "returned by the worker"})
