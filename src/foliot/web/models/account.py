"""What happened, what will, how everything stands, and what must not be silent."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from pydantic import Field

from foliot.web.models.common import Page, Shape
from foliot.web.models.fleet import Worker
from foliot.web.models.runs import Advice, Run, Step


class AuditRow(Shape):
    number: int
    at: datetime | None
    actor: str | None
    action: str | None
    subject: str | None
    note: str | None
    position: int | None
    hash: str | None
    signed: str | None
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
    signed: int | None
    unsigned: int | None
    signed_from: int | None
    warning: str | None


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


class Retention(Shape):
    days: int | None = Field(description="Retention of ended runs; null: no limit.")


class Tally(Shape):
    """Counts of outcomes."""

    on_time: int
    late: int
    missed: int
    skipped: int
    cancelled: int
    settled: int
    failed: int
    promised: int


class Minute(Tally):
    """Counts of the runs that ended in one minute."""

    at: datetime


class Waits(Shape):
    waiting: int
    since: datetime | None


class Coming(Shape):
    start: datetime = Field(alias="from")
    runs: int


class Instance(Worker):
    """A process of the fleet with its last heartbeat."""

    heard_of: float
    clock_offset: list[float | None]
    fenced: bool
    shards: list[int]
    duties: list[str]
    running: int


class Working(Shape):
    verdict: str
    what: str
    instances: list[Instance]


class Scheduling(Working):
    last_tick: datetime | None


class Overview(Shape):
    """Overview of the whole installation."""

    now: datetime
    last_hour: Tally
    last_day: Tally
    counted_at: datetime | None
    running: int
    retrying: int
    held: int
    waiting: int
    waiting_since: datetime | None
    queue_delay: float | None
    lanes: dict[str, Waits]
    overdue: int
    overdue_since: datetime | None
    early: int
    needs_person: dict[str, int]
    coming: list[Coming]
    next: list[Run]
    ended: list[Run]
    schedulers: Scheduling
    workers: Working


class Need(Shape):
    """An item that needs attention, with the safest action."""

    kind: str
    subject: str
    job: str
    schedule: str | None
    tenant: str | None
    since: datetime | None
    what: str
    action: str
    command: str | None
    why: str
    owner: str | None
    runbook: str | None
    counts: list[str] = Field(description="Counts of items and effects: done, ambiguous, not done.")
    look: list[str] = Field(description="First checks in other systems.")
    steps: list[Step] = Field(description="Safe actions, safest first.")
    in_doubt: list[str] = Field(description="Ambiguous effects, as `name:key`.")
    fix_first: bool = Field(description="A retry helps only after the cause is fixed.")


class Alert(Shape):
    number: int
    kind: str
    subject: str
    severity: str
    cause: str
    action: str
    opened_at: datetime
    open_for: float
    seen_at: datetime
    resolved_at: datetime | None
    snoozed_until: datetime | None
    count: int = Field(description="Number of runs that the alert counts, for `late` and for the kinds about runs.")
    schedule: str | None
    job: str | None
    run: str | None = Field(description="Run of the alert; the newest run if there are several.")
    tenant: str | None
    owner: str | None
    runbook: str | None
    told_at: datetime | None = Field(description="Time of the message about the opening of the alert.")
    repeated_at: datetime | None = Field(description="Time of the last repetition of that message.")


class AlertStory(Alert):
    """An alert with the safest actions for its run."""

    advice: Advice | None


class AlertPage(Page[Alert]):
    looked_at: datetime | None = Field(description="Time of the last round of the watch.")
    silent: bool = Field(description="The watch has stopped: alerts may be out of date.")
