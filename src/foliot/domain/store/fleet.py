"""Who is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from foliot.domain.instant import Duration
from foliot.domain.store.values import (
    Instance,
    JobCard,
    Wish,
)


class FleetStore(Protocol):
    """Who is there."""

    async def register(
        self,
        role: str,
        *,
        version: str,
        queues: Sequence[str],
        slots: int,
        jobs: Sequence[JobCard],
        release: str = "",
        labels: Sequence[str] = (),
        reserved: Mapping[str, int] | None = None,
        recycles: bool = False,
    ) -> Instance:
        """Enters one start of a process, and what it knows of jobs. `release`: what its code declares; see `apply`.
        `recycles`: it ends its process when a forced cancellation cannot be done otherwise."""

    async def retire(self, instance: int) -> None:
        """The process ends in order: its claims are already given back."""

    async def instances(self) -> list[Instance]:
        """Those that have not ended."""

    async def wish(self, worker: int, wish: Wish | None, *, actor: str, note: str) -> bool:
        """What a person wants of a worker from now on; None: that it works again. False, and nothing is written, when
        that is what it was told already. UnknownName when there is no such worker, or it has ended."""

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
        """What an instance measured: the store's clock minus its host's. Fenced schedulers are not in `standing`."""
