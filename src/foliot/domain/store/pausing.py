"""What people stop for a while."""

from __future__ import annotations

from typing import Protocol

from foliot.domain.instant import Instant
from foliot.domain.pauses import Pause, What


class PauseStore(Protocol):
    """Pauses of schedules, jobs, queues and tenants; see `foliot.domain.pauses`.

    Whoever fires or claims after a pause was acknowledged keeps to it. What was handed off before, and is not claimed
    yet, comes back and is held. A run that is held says by whom and why; it goes on when the pause ends, by itself or
    by a person's word, and is decided upon anew then. A check is never paused, nor is what an operator released."""

    async def put_pause(self, name: str, what: What, *, until: Instant | None, actor: str, note: str) -> Pause:
        """Pauses it, or says anew until when and why; since when stays. UnknownName for a schedule unknown."""

    async def end_pause(self, name: str, what: What, *, actor: str, note: str, catch_up: bool = False) -> Pause | None:
        """Resumes it, and answers what was paused; None, and nothing is written, when it was not. Ticks that fell due
        meanwhile end as `skipped: paused`, in one row for each schedule; with `catch_up` they were missed, and the
        schedule's policy speaks."""

    async def pauses(self) -> list[Pause]:
        """Those in force, by name."""
