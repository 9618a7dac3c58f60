"""What must not be silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.instant import Instant
from foliot.domain.run import Loss, SilentAttempt
from foliot.domain.store.values import (
    JobCard,
)


class WatchStore(Protocol):
    """What must not be silent."""

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        """Attempts whose worker's last beat is older than `beat_before`, or whose process is known to be gone.

        A process is gone when a process of the same host has seen that: the one that asks now, or one that registered
        since. Of no other process can anybody know; it counts as living until its lease has ended."""

    async def lose(self, losses: Sequence[Loss]) -> int:
        """Takes attempts away from vanished workers; each leaves an attempt `lost` and an event.

        Names token and state: an attempt that finished meanwhile keeps its verdict. Where the ledger says otherwise by
        now than the decision knew, nothing happens: look again. Returns how many were lost."""

    async def give_up(self) -> int:
        """Ends runs as dead that are held for a destination, and are older than their `give_up_after` by now. Returns
        how many; some may be left."""

    async def gather(self) -> int:
        """See `MemberStore`."""

    async def jobs(self) -> dict[str, JobCard]: ...

    async def note(self, kind: str, subject: str, detail: str) -> None:
        """Writes an event."""
