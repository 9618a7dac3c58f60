"""Who may ask, work that is done elsewhere, and whether ticks happen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from foliot.web.models.common import Shape


class Token(Shape):
    name: str
    scope: str
    tenant: str | None
    all_tenants: bool
    jobs: list[str]
    queues: list[str]
    state: str
    made_at: datetime
    made_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class NewToken(Token):
    token: str | None = Field(description="Text of the token, in the first answer only. Null in a repeated answer.")


class Registered(Shape):
    worker: int
    beat_every: float = Field(description="Seconds between heartbeats.")


class Taken(Shape):
    """A claimed attempt."""

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
    stop: list[str] = Field(description="Attempts with a cancellation request.")
    lost: list[str] = Field(description="Attempts that another worker owns: stop them.")


class Ended(Shape):
    run: str
    outcome: str


class Health(Shape):
    status: str
    version: str


class Ready(Shape):
    status: str
    reasons: list[str]
