"""What people look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from foliot.domain.audit import AuditRow
from foliot.domain.fairness import TenantView
from foliot.domain.instant import Duration, Instant
from foliot.domain.listing import RunFilter, RunPage
from foliot.domain.run import RunView
from foliot.domain.store.values import (
    EventRow,
    QueueView,
)


class ReadStore(Protocol):
    """What people look at."""

    async def runs(
        self,
        *,
        states: Sequence[int] = (),
        schedule: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Newest first, live and ended ones together, by run number; `before` continues after a page. `schedule`: its
        runs, which are its ticks where it goes over members; or those of one member, by the name of their series."""

    async def list_runs(self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """A page of the runs that are wanted, live and ended ones together, with the conditions that hold of them.
        Newest first by run number, or, of what is to come, soonest first. Pages that follow one another by their
        cursors hold every run once that was wanted all along, also while others are made. Never long: where no index
        knows what is wanted, the search ends after some twenty thousand rows, and the page says that it is incomplete.
        InvalidInput for a filter, a cursor or a limit that makes no sense."""

    async def run(self, run_id: str) -> RunView:
        """One run with its attempts. UnknownName if there is none."""

    async def ended_since(self, position: int, limit: int) -> list[RunView]:
        """Ended runs in the order of their endings, after `position`."""

    async def events_since(self, position: int, limit: int) -> list[EventRow]: ...

    async def events_of(self, subject: str) -> list[EventRow]:
        """What happened to one run, schedule or job, oldest first."""

    async def last_positions(self) -> tuple[int, int]:
        """Where `ended_since` and `events_since` stand now: from here on, only what is new."""

    async def next_pending(self) -> RunView | None:
        """The soonest run that is not due yet; None when nothing is pending."""

    async def audit_of(self, subject: str) -> list[AuditRow]:
        """What people did to one run or schedule, oldest first."""

    async def runs_between(self, job: str, start: Instant, end: Instant, limit: int) -> list[RunView]:
        """Runs of a job, or of a schedule of that name, whose nominal time lies in `[start, end)`, oldest first; reruns
        beside what they repeat. Without attempts, with batches."""

    async def durations(self, job: str, limit: int) -> list[Duration]:
        """How long the handlers of the latest runs of a job took that ended well, the newest first."""

    async def tenants_waiting(self, limit: int) -> list[TenantView]:
        """Tenants that have due runs waiting for a worker, or running: those with the most waiting first. Runs without
        a tenant count as those of one."""

    async def queues_waiting(self) -> list[QueueView]:
        """Queues in which runs were handed off that no worker has taken yet, by name."""

    async def counts(self) -> Mapping[str, int]:
        """Live runs by state, plus `history` and `early` (starts before their fire time; must be 0)."""

    async def health(self) -> Mapping[str, Any]:
        """Engine, version, settings, schema, sizes: what `foliot doctor` prints."""
