"""Delayed runs: made by the job's name, moved and cancelled by their keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from foliot.domain.instant import to_datetime
from foliot.operate.promising import Promised
from foliot.operate.shapes import kept_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Act, Body, Identifier, Key, Length, Moment, Name, Priority, TenantName, named
from foliot.web.routing import Answered, check_text

routes = router("promises")

MOST_PROMISED = 10_000
PromiseKey = Annotated[Key, named("Key of the promise", "class:7")]
Whose = Annotated[
    TenantName | None, Field(description="Tenant of the promise; optional for a token that is bound to a tenant.")
]

Why = Annotated[
    str,
    Field(max_length=2_000, description="Optional reason, recorded in the audit log with the token's name."),
    AfterValidator(check_text),
]


class PromiseBody(Body):
    """A run of a job, due `at` a time, after a `delay`, or now."""

    job: Identifier
    args: Annotated[dict[str, Any], Field(description="Arguments by name.", examples=[{"class_id": 7}])] = {}
    at: Moment | None = None
    delay: Length | None = None
    key: Annotated[Name | None, Field(description="A repeated key returns the same promise.")] = None
    tenant: Whose = None
    queue: Identifier | None = None
    priority: Priority = 0
    on_conflict: Annotated[str, Field(pattern="^(keep|replace|error|renew)$")] = "keep"
    unique_for: Length | None = None
    useful_until: Annotated[Moment | None, Field(description="A run that starts after this time is skipped.")] = None
    settings: Annotated[dict[str, Any], Field(description="Settings of the policy.", examples=[{"attempts": 2}])] = {}

    def promised(self, asking: Caller) -> Promised:
        return Promised(
            job=self.job,
            arguments=self.args,
            at=self.at,
            delay=self.delay,
            key=self.key,
            tenant=asking.narrowed(self.tenant),
            queue=self.queue,
            priority=self.priority,
            on_conflict=self.on_conflict,
            unique_for=self.unique_for,
            useful_until=None if self.useful_until is None else to_datetime(self.useful_until),
            settings=self.settings,
        )

    def stated(self) -> tuple[str, dict[str, Any]]:
        return self.job, {**self.settings, "queue": self.queue, "priority": self.priority}


class OnePromiseBody(PromiseBody):
    reason: Why = ""


class PromisesBody(Body):
    reason: Why = ""
    promises: Annotated[list[PromiseBody], Field(min_length=1, max_length=MOST_PROMISED)]


class MoveBody(Body):
    at: Moment
    reason: Why = ""
    tenant: Whose = None


class CancelBody(Act):
    tenant: Whose = None


ACT = problems(404, 409, body=True)


@routes.post("/promises", response_model=models.Kept, responses=ACT)
async def make_promise(asking: Asking, body: OnePromiseBody) -> Any:
    """Stores a promise durably, then answers. The worker checks the arguments against the job."""
    await asking.check_stated([body.stated()])
    [kept] = await asking.operate.promise_many_async([body.promised(asking)], actor=asking.actor, reason=body.reason)
    return Answered(kept_shape(kept))


@routes.post("/bulk/promises", response_model=models.Page[models.Kept], responses=ACT)
async def make_promises(asking: Asking, body: PromisesBody) -> Any:
    """Stores all promises or none, in one transaction. The answer keeps their order."""
    await asking.check_stated(one.stated() for one in body.promises)
    promised = [one.promised(asking) for one in body.promises]
    kept = await asking.operate.promise_many_async(promised, actor=asking.actor, reason=body.reason)
    return page([kept_shape(one) for one in kept], None)


@routes.post("/promises/{key}/move", response_model=models.Kept, responses=ACT)
async def move_promise(asking: Asking, key: PromiseKey, body: MoveBody) -> Any:
    """Changes the due time of a promise that is not claimed yet."""
    tenant = asking.narrowed(body.tenant)
    kept = await asking.operate.move_promise_async(key, body.at, actor=asking.actor, reason=body.reason, tenant=tenant)
    return Answered(kept_shape(kept))


@routes.post("/promises/{key}/cancel", response_model=models.Kept, responses=ACT)
async def cancel_promise(asking: Asking, key: PromiseKey, body: CancelBody) -> Any:
    """Ends a promise that has not started; requests cancellation of a running one."""
    kept = await asking.operate.cancel_promise_async(
        key, reason=body.reason, actor=asking.actor, tenant=asking.narrowed(body.tenant)
    )
    return Answered(kept_shape(kept))
