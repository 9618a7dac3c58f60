"""Schedules, and backfills of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from foliot.web.models.common import Done, Page, Shape
from foliot.web.models.runs import HandledMany


class Pause(Shape):
    name: str = Field(description="Paused subject: `job:report`.")
    what: str
    since: datetime
    until: datetime | None
    actor: str | None
    note: str | None


class Edited(Shape):
    """Operator edits since the last declaration."""

    at: datetime
    actor: str
    fields: list[str]


class Schedule(Shape):
    id: str
    job: str
    rule: Any
    words: str | None
    state: str
    fault: str | None
    paused_until: datetime | None
    paused_note: str | None
    paused_by: str | None
    pauses: list[Pause]
    edited: Edited | None
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


class AtWork(Shape):
    """A running attempt."""

    id: str
    state: str
    attempt: int
    worker: int | None
    age: float
    heard_of: float | None
    progress: Any


class ScheduleStanding(Schedule):
    """A schedule with its health."""

    last_created: str | None
    last_useful_at: datetime | None
    last_useful_age: float | None
    at_work: list[AtWork]
    waiting: int
    waiting_since: datetime | None
    retrying: int
    queue_delay: float | None
    late: float | None
    latest: float | None
    runtime_to_interval: float | None
    retries: int
    overlaps: int
    backlog: int
    useful_per_attempt: float | None
    partial: int = Field(description="Recent ticks that failed for some members.")
    emitted: int
    completed: int
    failures_in_a_row: int
    failures_by_tenant: dict[str, int]
    strip: list[str] = Field(description="Outcomes of recent ticks, oldest first.")
    durations: list[float]
    needs_person: list[str]


class StandingPage(Page[ScheduleStanding]):
    complete: bool = Field(description="False: the search stopped early; more may follow the cursor.")


class Change(Shape):
    field: str
    before: Any
    after: Any


class Planned(Shape):
    """Outcome of a declaration or an edit."""

    id: str
    outcome: str
    revision: int | None
    changed: list[Change]
    ticks_before: list[datetime]
    ticks_after: list[datetime]
    problem: str | None


class Paused(Done):
    """Subjects that were paused or resumed."""

    pauses: list[Pause]


class SchedulesMeant(Shape):
    would: int
    schedules: list[str]


class BulkSchedules(Shape):
    """Outcome of each schedule; for a dry run, the matching ones."""

    told: HandledMany | None
    preview: SchedulesMeant | None


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
    """A backfill with its runs by state and its expected end."""

    unfinished: int
    settled: int
    states: dict[str, int]
    expected_end: datetime | None


class BackfillAnswer(Shape):
    """A started backfill; for a dry run, its plan."""

    backfill: Backfill | None
    preview: BackfillPreview | None
