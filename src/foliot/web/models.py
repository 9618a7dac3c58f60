"""What answers are made of: for the description, and for the tests that hold the shapes of `operate` to it.

Answers are not made with these: `foliot.operate` has made them already, for the command line too.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ProblemShape(Shape):
    """What went wrong, as RFC 9457 has it."""

    model_config = ConfigDict(extra="forbid", title="Problem")
    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] | None = Field(default=None, description="One for each field that cannot be used.")


class FieldProblem(Shape):
    where: str
    problem: str


class Page(Shape, Generic[T]):
    items: list[T]
    cursor: str | None = Field(description="Where the next page begins; null when there is none.")


class Me(Shape):
    name: str
    scope: str
    tenant: str | None


# Runs


class Kept(Shape):
    """What became of it: the run that stands for it now."""

    id: str
    outcome: str
    state: str
    fire_at: datetime


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
    complete: bool = Field(description="False: the search was cut short; there may be more from the cursor on.")


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
    failed: int
    failures: list[Failure]


class Lacking(Shape):
    member: str
    run: str
    state: str
    reason: str | None


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
    lead: str
    look: list[str]
    steps: list[Step]
    refused: list[Step]


class WholeRun(ListedRun):
    """A run with everything that is known of it."""

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


# Schedules


class Schedule(Shape):
    id: str
    job: str
    rule: Any
    words: str | None
    state: str
    fault: str | None
    paused_until: datetime | None
    paused_note: str | None
    revision: int
    tenant: str | None
    queue: str | None
    priority: int
    owner: str | None
    runbook: str | None
    changes: str | None
    arguments: Any
    bind: dict[str, str] | None
    over: str | None
    tz: str | None
    source: str
    tables: str | None
    policy: dict[str, Any]
    next_run: str | None
    next_nominal: datetime | None
    next_fire_at: datetime | None
    last_run: str | None
    last_run_state: str | None
    last_success_at: datetime | None
    active: int
    evaluated_through: datetime | None
    made_at: datetime


class Ticks(Shape):
    schedule: str
    next: list[datetime]


class Done(Shape):
    """A thing, and what was done with it."""

    id: str
    outcome: str


# Backfills


class Pace(Shape):
    rate: str | None
    at_once: int
    window: str | None
    tz: str | None


class TakenTick(Shape):
    nominal: datetime
    run: str
    state: str
    reason: str | None


class BackfillPreview(Pace):
    schedule: str
    start: datetime = Field(alias="from")
    end: datetime = Field(alias="to")
    ticks: int
    new: int
    first: datetime | None
    last: datetime | None
    seconds: float | None
    ends_at: datetime | None
    taken: list[TakenTick]


class Backfill(Pace):
    id: int
    schedule: str
    job: str
    state: str
    reason: str | None
    start: datetime = Field(alias="from")
    end: datetime = Field(alias="to")
    newest_first: bool
    ticks: int
    made: int
    existed: int
    left: int
    stop_after: int | None
    revision: int
    actor: str
    note: str
    started_at: datetime
    ended_at: datetime | None


class BackfillStanding(Backfill):
    """With its runs by state, and when it will have ended."""

    unfinished: int
    settled: int
    states: dict[str, int]
    expected_end: datetime | None


class BackfillAnswer(Shape):
    """A backfill that was begun; or, of a dry run, what it would do."""

    backfill: Backfill | None
    preview: BackfillPreview | None


# What there is


class Durations(Shape):
    count: int
    p50: float | None
    p99: float | None
    longest: float | None


class Job(Shape):
    name: str
    queue: str
    owner: str | None
    runbook: str | None
    changes: str | None
    effects: list[str] | None
    idempotent: bool
    rewritable: bool
    checked: bool
    isolated: bool
    policy: dict[str, Any]


class WholeJob(Job):
    counts: dict[str, int]
    durations: Durations
    advice: list[str]


class Queue(Shape):
    queue: str
    waiting: int
    waiting_since: datetime | None
    workers: int
    slots: int
    reserved: int
    jobs: int


class Worker(Shape):
    number: int
    role: str
    host: str
    pid: int
    version: str
    queues: list[str]
    labels: list[str]
    slots: int
    reserved: dict[str, int]
    started_at: datetime
    beat_at: datetime


class Tenant(Shape):
    tenant: str | None
    weight: float
    waiting: int
    running: int
    share: float
    oldest_due_at: datetime | None
    delay: float | None
    takes_more: bool
    floods: bool


class Gate(Shape):
    name: str
    concurrency: int | None
    rate: str | None
    burst: int | None
    weight: float | None
    source: str
    note: str | None


class Limit(Gate):
    used: int
    waiting: int
    changed_at: datetime | None


class MemberSet(Shape):
    name: str
    members: int
    schedules: list[str]


class Member(Shape):
    member: str
    added_at: datetime
    source: str


class Standing(Shape):
    member: str
    added_at: datetime
    useful_tick: datetime | None
    useful_at: datetime | None
    age: float


class MembersChanged(Shape):
    name: str
    added: int
    removed: int
    skipped: int


# What happened, and what will


class AuditRow(Shape):
    number: int
    at: datetime | None
    actor: str | None
    action: str | None
    subject: str | None
    note: str | None
    position: int | None
    hash: str | None
    cursor: str


class Anchor(Shape):
    at: datetime
    position: int
    hash: str


class AuditReport(Shape):
    ok: bool
    rows: int
    position: int
    hash: str
    problem: str | None
    detail: str | None
    broken_at: int | None
    row: int | None
    anchors: int
    proven: Anchor | None


class Statement(Shape):
    run: str | None
    nominal: datetime
    verdict: str
    ok: bool
    text: str


class Report(Shape):
    subject: str
    date: date
    tz: str
    ok: bool
    statements: list[Statement]


class Bucket(Shape):
    at: datetime
    starts: int
    busy: float | None


class Load(Shape):
    start: datetime = Field(alias="from")
    end: datetime = Field(alias="to")
    per: float
    schedules: int
    starts: int
    expected: float
    peak: int
    peak_at: datetime
    line: float
    herds: list[dict[str, Any]]
    buckets: list[Bucket]
    paused: list[str]
    delayed: list[str]
    broken: list[dict[str, str]]
    cut: list[dict[str, Any]]
    evened: int
    unknown: int


class Explained(Shape):
    rule: str
    tz: str
    words: str
    next: list[datetime]
    local: list[str]
    dst: list[str]
    warnings: list[str]
    policy: dict[str, Any] | None
    tzdata: str


class Times(Shape):
    next: list[datetime]


class Day(Shape):
    date: date
    count: int
    capped: bool
    times: list[datetime]
    dst: str | None


class Days(Shape):
    days: list[Day]


# Who may ask


class Token(Shape):
    name: str
    scope: str
    tenant: str | None
    state: str
    made_at: datetime
    made_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class NewToken(Token):
    token: str | None = Field(description="The text; told once. Null where the same request is answered again.")


# Work that is done elsewhere


class Registered(Shape):
    worker: int
    beat_every: float = Field(description="Seconds: how often to beat.")


class Taken(Shape):
    """An attempt in your hands."""

    run: str
    attempt: int
    attempt_id: str
    attempt_token: str
    job: str
    arguments: dict[str, Any]
    schedule: str | None
    tenant: str | None
    queue: str
    nominal: datetime
    since: datetime | None
    deadline: datetime
    checkpoint: Any
    repair: bool


class Claims(Shape):
    attempts: list[Taken]


class Heard(Shape):
    stop: list[str] = Field(description="Attempts that somebody wants stopped.")
    lost: list[str] = Field(description="Attempts that are yours no more: drop them.")


class Ended(Shape):
    run: str
    outcome: str


# Whether ticks happen


class Health(Shape):
    status: str
    version: str


class Ready(Shape):
    status: str
    reasons: list[str]


ProblemShape.model_rebuild()
