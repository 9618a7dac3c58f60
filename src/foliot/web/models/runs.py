"""Runs, and what was done with many of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from foliot.web.models.common import Page, Shape


class Kept(Shape):
    """Outcome, with the run that the action left or created."""

    id: str
    outcome: str
    state: str
    fire_at: datetime
    differs: list[str]
    """Of a promise that was `kept`, the parts that were given otherwise: `job`, `args`, `time`."""


class HeldRun(Shape):
    """Another run of the worker. It would end as interrupted and start again."""

    id: str
    job: str
    claimed_at: datetime


class WorkerProcess(Shape):
    """The process that a forced cancellation ends if the run does not stop."""

    worker: int
    host: str
    pid: int
    others: list[HeldRun]


class Cancelled(Kept):
    """`process`: with `force`, of a worker that has not ended."""

    process: WorkerProcess | None


class Run(Shape):
    id: str
    state: str
    reason: str | None
    detail: str | None
    job: str
    schedule: str | None
    member: str | None
    revision: int | None
    tenant: str | None
    origin: str
    queue: str
    lane: str
    priority: int
    arguments: Any
    attempt: int
    spent: int
    worker: int | None
    nominal: datetime
    since: datetime | None
    made_at: datetime
    fire_at: datetime
    fired_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    late: float | None
    took: float | None
    progress: Any
    result: Any
    span_until: datetime | None
    span_count: int
    cancel_requested: bool
    repair: bool
    deaths: int | None
    cursor: str


class ListedRun(Run):
    conditions: list[str]


class RunPage(Page[ListedRun]):
    complete: bool = Field(description="False: the search stopped early; more may follow the cursor.")


class Attempt(Shape):
    id: str
    attempt: int
    outcome: str | None
    stage: str | None
    reason: str | None
    worker: int | None
    started_at: datetime | None
    finished_at: datetime | None
    took: float | None
    progress: Any
    error: str | None


class Effect(Shape):
    name: str
    key: str
    state: str
    maybe: bool
    settles: str | None
    attempt: int
    own: bool
    idempotency_key: str
    started_at: datetime
    ended_at: datetime | None
    result: Any
    note: str | None
    undo: str | None


class Failure(Shape):
    key: str
    error: str | None


class Batch(Shape):
    name: str
    of: int | None
    done: int
    in_doubt: int = Field(description="Items not done, with an effect that has no recorded end.")
    not_done: int = Field(description="Other items not done; 0 if `of` is unknown.")
    failed: int
    failures: list[Failure]


class Lacking(Shape):
    member: str
    run: str
    state: str
    reason: str | None
    detail: str | None


class Interval(Shape):
    done: int
    members: int
    made: bool
    states: dict[str, int]
    lacking: list[Lacking]


class Event(Shape):
    at: datetime
    kind: str
    subject: str
    detail: str
    cursor: str


class Act(Shape):
    at: datetime
    actor: str
    action: str
    note: str


class StoryLine(Shape):
    at: datetime
    kind: str
    text: str


class Step(Shape):
    action: str
    text: str
    command: str | None


class Advice(Shape):
    recovery: str = Field(alias="class")
    why: str
    action: str
    fix_first: bool = Field(description="A retry helps only after the cause is fixed.")
    lead: str
    counts: list[str] = Field(description="Counts of items and effects: done, ambiguous, not done.")
    look: list[str] = Field(description="First checks in other systems.")
    steps: list[Step]
    refused: list[Step]


class WholeRun(ListedRun):
    """A run with its attempts, effects, timeline and advice."""

    attempts: list[Attempt]
    effects: list[Effect]
    batches: list[Batch]
    interval: Interval | None
    reruns: list[str]
    events: list[Event]
    audit: list[Act]
    story: list[StoryLine]
    advice: Advice | None


class DeadRun(Run):
    useful_until: datetime | None
    replay: str
    problem: str | None


class RefusedKind(Shape):
    outcome: str
    problem: str
    count: int
    example: str


class ReplayPreview(Shape):
    total: int
    would: int
    takes: float
    refused: list[RefusedKind]
    sample: list[str]


class Outcome(Shape):
    id: str
    outcome: str
    problem: str | None
    due_at: datetime | None
    made: str | None


class Outcomes(Shape):
    """Counts by outcome, and each run."""

    would: int
    replayed: int
    rerun: int
    too_late: int
    refused: int
    passed_over: int
    failed: int
    total: int
    runs: list[Outcome]


class Reconciled(Shape):
    id: str
    effects: list[str]
    outcome: str
    problem: str | None


class RunsMeant(Shape):
    """Expected outcomes of the runs that match a filter."""

    would: int
    states: dict[str, int]
    refused: dict[str, int] = Field(description="Reasons of refusals, with counts.")
    sample: list[Run]


class Handled(Shape):
    id: str
    outcome: str
    problem: str | None


class HandledMany(Shape):
    counts: dict[str, int] = Field(description="Counts by outcome.")
    handled: list[Handled]


class BulkRuns(Shape):
    """Outcome of each run; for a dry run, the expected outcome."""

    told: HandledMany | None
    preview: RunsMeant | None
