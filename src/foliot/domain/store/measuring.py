"""What is counted for metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from foliot.domain.instant import Instant
from foliot.domain.run import Lane
from foliot.domain.state import State
from foliot.domain.store.values import QueueView


class Parked(NamedTuple):
    """Runs that wait for a person."""

    job: str
    state: State
    runs: int


class Backlog(NamedTuple):
    """What waits at one moment."""

    queues: Sequence[QueueView]
    lanes: Mapping[Lane, int]
    """Runs that were handed off, and that no worker has taken yet."""
    overdue: int
    """Runs that are due, and that no scheduler has handed off."""
    parked: Sequence[Parked]
    early: int
    """Attempts that began before their time; must be 0."""
    alerts: Mapping[tuple[str, str], int]
    """Open ones, by kind and severity; snoozed ones are open."""
    alert_runs: Mapping[tuple[str, str], int]
    """How many runs these count, of the kinds that count runs."""


class EndedCount(NamedTuple):
    """Runs that ended."""

    job: str
    state: State
    runs: int
    attempts: int
    """How many attempts they took."""


class ScheduleAge(NamedTuple):
    """How long ago a schedule was of use."""

    schedule: str
    made_at: Instant
    useful_at: Instant | None
    """When its last useful run ended; None when it has had none."""
    is_paused: bool
    is_faulty: bool
    """It was set aside, because it cannot be read."""


class MeasureStore(Protocol):
    """Numbers about everything. Whoever asks again and again minds what each of these costs."""

    async def backlog(self) -> Backlog:
        """Costs as much as there is that waits, whatever is scheduled or has ended."""

    async def ended_counts(self, position: int | None) -> tuple[int, list[EndedCount]]:
        """What has ended since a position, and the position of now, to go on from; None: nothing, and the position. All
        that has ended is counted once by whoever goes on so. Costs as much as has ended since."""

    async def live_counts(self) -> Mapping[State, int]:
        """Runs that have not ended, by state. Costs a look at each of them."""

    async def schedule_ages(self) -> list[ScheduleAge]:
        """All schedules, by name. Costs a search for each."""
