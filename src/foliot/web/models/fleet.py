"""What there is: jobs, queues, workers, tenants, limits, members."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from foliot.web.models.common import Shape


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
    secret: list[str]
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
    wish: str | None
    wish_note: str | None
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


class Wished(Shape):
    number: int
    wish: str | None
    outcome: str
