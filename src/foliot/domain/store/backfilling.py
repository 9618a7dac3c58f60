"""Ticks of the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from foliot.domain.backfill import (
    Backfill,
    BackfillProgress,
    BackfillState,
    FillTick,
    NewBackfill,
    Taken,
    UnderWay,
)
from foliot.domain.instant import Instant


class BackfillStore(Protocol):
    """Ticks of the past that are made into runs, one per tick, by whoever has the duty."""

    async def start_backfill(self, wanted: NewBackfill, *, actor: str, note: str) -> Backfill:
        """Enters a backfill with the schedule's rule and template as they are now: it keeps them, whatever becomes of
        the schedule. Conflict when the schedule's revision is not the one that was previewed, or when another backfill
        of it is under way that has ticks of this interval; UnknownName if there is no such schedule."""

    async def backfill(self, number: int) -> Backfill:
        """UnknownName if there is none."""

    async def backfills(self, *, schedule: str | None = None, limit: int = 50) -> list[Backfill]:
        """Newest first."""

    async def taken_ticks(self, schedule: str, ticks: Sequence[Instant]) -> list[Taken]:
        """Which of these ticks have a run, live or in history, or were merged into one; in the order given."""

    async def change_backfill(
        self,
        number: int,
        *,
        state: BackfillState | None = None,
        pace: Mapping[str, Any] | None = None,
        actor: str,
        note: str,
    ) -> Backfill:
        """Pauses, resumes or cancels it, or changes settings of its pace, by name. When it is cancelled, its runs that
        no worker has begun end as `cancelled`, and those that were begun go on. Failures from before it was resumed
        count no more. Conflict when its state does not allow that; UnknownName if there is none."""

    async def backfills_under_way(self) -> list[UnderWay]:
        """Those that are running, and how their runs stand. Cheap when there is none: asked every second."""

    async def make_backfill(self, number: int, version: int, ticks: Sequence[FillTick], most: int) -> Backfill | None:
        """Decides about the ticks that come next, in their order, in one transaction: those that have a run already are
        counted, at most `most` of the others become runs that are due now, and the cursor moves behind the last of
        them. Answers how it stands then; None when `version` is not the store's any more: then nothing was done."""

    async def halt_backfill(self, number: int, version: int, state: BackfillState, reason: str | None) -> bool:
        """Ends a running one, or pauses it and leaves an event `backfill_paused`. False when `version` is not the
        store's any more."""

    async def backfill_progress(self, number: int) -> BackfillProgress:
        """With its runs by state. UnknownName if there is none."""
