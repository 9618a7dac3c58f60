"""Runs: lists by all that can be asked, one with its whole story, and what operators do with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, Field, WithJsonSchema

from foliot.domain.conditions import Condition
from foliot.domain.instant import FIRST, LAST
from foliot.domain.listing import Order, RunFilter
from foliot.domain.run import Lane, Origin
from foliot.domain.state import State
from foliot.errors import InvalidInput
from foliot.operate.cancelling import forced_shape
from foliot.operate.replaying import outcomes_shape
from foliot.operate.settling import reconciled_shape
from foliot.operate.shapes import kept_shape
from foliot.operate.story import lineage_shape
from foliot.operate.surveyed import listed_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Body, Choice, DryRun, Line, Moment, Name, Paged, Rate, Reason, RunId
from foliot.web.problems import Problem
from foliot.web.routing import Answered

routes = router("runs")

MOST_AT_ONCE = 1_000


Kinds = type[State] | type[Origin] | type[Lane]


def _known(kind: Kinds) -> AfterValidator:
    """Text that names one of a kind."""
    known = [str(one) for one in kind]

    def checked(given: str) -> str:
        if given not in known:
            raise ValueError(f"choose one of {', '.join(known)}")
        return given

    return AfterValidator(checked)


def _words(kind: Kinds) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": [str(one) for one in kind]})


StateName = Annotated[str, _known(State), _words(State)]
OriginName = Annotated[str, _known(Origin), _words(Origin)]
LaneName = Annotated[str, _known(Lane), _words(Lane)]


class RunFilters(Body):
    """Filter of runs. Without fields it matches all."""

    state: Annotated[list[StateName], Field(max_length=20)] = []
    condition: Annotated[list[Choice[Condition]], Field(max_length=10)] = []
    schedule: Annotated[Name | None, Field(description="`-`: only runs without a schedule.")] = None
    member: Annotated[Name | None, Field(description="With `schedule`: only runs of this member.")] = None
    job: Name | None = None
    tenant: Annotated[Name | None, Field(description="`-`: only runs without a tenant.")] = None
    queue: Name | None = None
    origin: Annotated[list[OriginName], Field(max_length=10)] = []
    lane: Annotated[list[LaneName], Field(max_length=10)] = []
    reason: Annotated[list[Name], Field(max_length=20)] = []
    nominal_from: Moment | None = None
    nominal_to: Moment | None = None
    fire_from: Moment | None = None
    fire_to: Moment | None = None
    prefix: Annotated[Name | None, Field(description="Prefix of the ids.")] = None
    text: Annotated[Name | None, Field(description="Text in the id, detail or error.")] = None
    needs_person: bool = False

    def wanted(self, tenant: str | None) -> RunFilter:
        return RunFilter(
            states=tuple(State[name.upper()] for name in self.state),
            conditions=tuple(self.condition),
            schedule=self.schedule,
            member=self.member,
            job=self.job,
            tenant=tenant,
            queue=self.queue,
            origins=tuple(Origin[name.upper()] for name in self.origin),
            lanes=tuple(Lane[name.upper().replace("-", "_")] for name in self.lane),
            reasons=tuple(self.reason),
            nominal_from=FIRST if self.nominal_from is None else self.nominal_from,
            nominal_to=LAST if self.nominal_to is None else self.nominal_to,
            fire_from=FIRST if self.fire_from is None else self.fire_from,
            fire_to=LAST if self.fire_to is None else self.fire_to,
            prefix=self.prefix,
            text=self.text,
            needs_person=self.needs_person,
        )


class RunQuery(Paged, RunFilters):
    order: Choice[Order] = Order.NEWEST

    def wanted(self, tenant: str | None) -> RunFilter:
        return replace(super().wanted(tenant), order=self.order)


class CancelBody(Act):
    force: Annotated[bool, Field(description="If the handler does not stop, its worker ends its process.")] = False
    dry_run: Annotated[bool, Field(description="With `force`: only list the runs that would end.")] = False


class RetryBody(Act):
    override: Annotated[bool, Field(description="Override a refusal: an effect may happen twice.")] = False


class RerunBody(RetryBody):
    repair: Annotated[bool, Field(description="Set `ctx.repair`: the handler rewrites its output.")] = False
    repeat: Annotated[list[Name], Field(max_length=100, description="Effects to repeat.")] = []


class RerunManyBody(RetryBody):
    runs: Annotated[list[Name], Field(min_length=1, max_length=MOST_AT_ONCE)]
    repair: bool = False
    rate: Rate | None = None
    dry_run: DryRun = False


NextStep = Annotated[
    str | None,
    Field(
        pattern="^(resume|close)$",
        description="Unfinished items: `resume` runs them now; `close` declares them not needed, with a `reason`. "
        "Without it, a run with unfinished items stays parked as `settled`.",
    ),
]


class ReconcileBody(Body):
    evidence: Annotated[
        Reason | None,
        Field(description="Evidence, stored with the run. Required except to resume or close a settled run."),
    ] = None
    effects: Annotated[list[Line], Field(max_length=1_000, examples=[["payout:7=done"]])] = []
    reason: Reason | None = None
    then: NextStep = None


class ReconcileManyBody(Body):
    evidence: Annotated[Reason, Field(description="Evidence, stored with each run.")]
    job: Name | None = None
    effect: Name | None = None
    state: Annotated[
        str | None,
        Field(pattern="^(done|not_done)$", description="State of the effects. Required except to close the runs."),
    ] = None
    reason: Reason | None = None
    then: NextStep = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    dry_run: DryRun = False


ACT = problems(404, 409, body=True)


@routes.get("/runs", response_model=models.RunPage, responses=problems())
async def list_runs(asking: Asking, query: Annotated[RunQuery, Query()]) -> Any:
    """Lists live and ended runs, newest first or soonest first."""
    wanted = query.wanted(asking.narrowed(query.tenant))
    found = await asking.operate.run_page_async(wanted, cursor=query.cursor, limit=query.limit)
    return page([listed_shape(one) for one in found.runs], found.cursor, complete=found.complete)


@routes.get("/runs/{run}", response_model=models.WholeRun, responses=problems(404))
async def get_run(asking: Asking, run: RunId) -> Any:
    """Returns a run with its attempts, effects, timeline and safest actions."""
    await asking.run(run)
    return Answered(lineage_shape(await asking.operate.lineage_async(run)))


@routes.post("/runs/{run}/cancel", response_model=models.Cancelled, responses=ACT)
async def cancel_run(asking: Asking, run: RunId, body: CancelBody) -> Any:
    """Ends a pending run; requests cancellation of a running one. `force` ends its worker's process if it continues.
    Force is refused for a token that is bound to a tenant: the process may run other tenants' runs."""
    await asking.run(run)
    if not body.force:
        if body.dry_run:
            raise InvalidInput("dry_run: a cancellation has a preview only with force; leave dry_run out")
        kept = await asking.operate.cancel_async(run, reason=body.reason, actor=asking.actor)
        return Answered({**kept_shape(kept), "process": None})
    if asking.tenant is not None:
        raise Problem(
            "not-allowed", "force: may end runs of other tenants, and the token is bound to a tenant; use another token"
        )
    seen = await asking.operate.preview_force_async(run)
    if body.dry_run:
        return Answered(forced_shape(seen))
    kept = await asking.operate.cancel_async(run, reason=body.reason, actor=asking.actor, force=True)
    return Answered(forced_shape(seen, kept))


@routes.post("/runs/{run}/skip", response_model=models.Kept, responses=ACT)
async def skip_run(asking: Asking, run: RunId, body: Act) -> Any:
    """Skips a run that has not started. The next tick of a schedule is skipped when it is due."""
    await asking.run(run)
    return Answered(kept_shape(await asking.operate.skip_async(run, reason=body.reason, actor=asking.actor)))


@routes.post("/runs/{run}/retry", response_model=models.Kept, responses=ACT)
async def retry_run(asking: Asking, run: RunId, body: RetryBody) -> Any:
    """Retries a dead or unverified run now. Refused where an effect may have happened, unless `override`."""
    await asking.run(run)
    kept = await asking.operate.retry_async(run, reason=body.reason, actor=asking.actor, override=body.override)
    return Answered(kept_shape(kept))


@routes.post("/runs/{run}/resume", response_model=models.Kept, responses=ACT)
async def resume_run(asking: Asking, run: RunId, body: Act) -> Any:
    """Resumes a run where it stopped."""
    await asking.run(run)
    return Answered(kept_shape(await asking.operate.resume_run_async(run, reason=body.reason, actor=asking.actor)))


@routes.post("/runs/{run}/rerun", response_model=models.Kept, responses=ACT)
async def rerun_run(asking: Asking, run: RunId, body: RerunBody) -> Any:
    """Creates a rerun: a new run with the same arguments and ledger."""
    await asking.run(run)
    kept = await asking.operate.rerun_async(
        run,
        reason=body.reason,
        actor=asking.actor,
        repair=body.repair,
        repeat=body.repeat,
        override=body.override,
    )
    return Answered(kept_shape(kept))


@routes.post("/runs/{run}/verify", response_model=models.Kept, responses=ACT)
async def verify_run(asking: Asking, run: RunId, body: Act) -> Any:
    """Runs the job's check again."""
    await asking.run(run)
    return Answered(kept_shape(await asking.operate.verify_async(run, reason=body.reason, actor=asking.actor)))


@routes.post("/runs/{run}/reconcile", response_model=models.Kept, responses=ACT)
async def reconcile_run(asking: Asking, run: RunId, body: ReconcileBody) -> Any:
    """Records evidence about effects. The run ends when no work is left; else `then` decides, or it stays
    parked. Outcomes: `recorded`, `settled`, `resumed`, `closed`, `reconciled`."""
    await asking.run(run)
    kept = await asking.operate.reconcile_async(
        run,
        evidence=body.evidence or "",
        actor=asking.actor,
        effects=body.effects,
        reason=body.reason or "",
        then=body.then,
    )
    return Answered(kept_shape(kept))


@routes.post("/runs/{run}/release", response_model=models.Kept, responses=ACT)
async def release_run(asking: Asking, run: RunId, body: Act) -> Any:
    """Releases a held run despite overlap, key and limits."""
    await asking.run(run)
    return Answered(kept_shape(await asking.operate.release_async(run, reason=body.reason, actor=asking.actor)))


@routes.post("/bulk/rerun", response_model=models.Outcomes, responses=problems(404, body=True))
async def rerun_runs(asking: Asking, body: RerunManyBody) -> Any:
    """Reruns each matching run separately in lane backfill. A refused run does not stop the rest."""
    for run in body.runs if asking.tenant is not None else ():
        await asking.run(run)
    told = await asking.operate.rerun_many_async(
        body.runs,
        reason=body.reason,
        actor=asking.actor,
        repair=body.repair,
        override=body.override,
        rate=body.rate,
        dry_run=body.dry_run,
    )
    return Answered(outcomes_shape(told))


@routes.post("/bulk/reconcile", response_model=models.Page[models.Reconciled], responses=problems(body=True))
async def reconcile_runs(asking: Asking, body: ReconcileManyBody) -> Any:
    """Reconciles each parked run with a matching ambiguous effect, separately."""
    told = await asking.operate.reconcile_many_async(
        evidence=body.evidence,
        actor=asking.actor,
        job=body.job,
        effect=body.effect,
        state=body.state,
        reason=body.reason or "",
        then=body.then,
        limit=body.limit,
        dry_run=body.dry_run,
    )
    return page([reconciled_shape(one) for one in told], None)
