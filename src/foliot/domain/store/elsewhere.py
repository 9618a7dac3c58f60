"""Workers that reach the store through somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.access import WorkBound
from foliot.domain.elsewhere import Guest, GuestWorker
from foliot.domain.run import Claimed, SilentAttempt
from foliot.domain.store.values import Instance, JobCard


class ElsewhereStore(Protocol):
    """Workers elsewhere, in any language: they claim, beat and finish as others do, by the verbs of `WorkStore`, and
    are lost when they fall silent. Nobody here can look for their processes."""

    async def register_guest(self, wanted: Guest, jobs: Sequence[JobCard]) -> Instance:
        """Enters one start of a worker elsewhere, and what it knows of jobs that nobody else has told of."""

    async def claim_within(
        self,
        worker: int,
        bound: WorkBound,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        labels: Sequence[str] = (),
        suspects: bool = True,
    ) -> list[Claimed]:
        """As `WorkStore.claim`, of the bound's jobs, queues and tenant alone. Runs of other tenants stay where they
        are, in their order."""

    async def guest(self, worker: int) -> GuestWorker | None:
        """One that has not ended; None when there is none."""

    async def attempts_of(self, worker: int) -> list[SilentAttempt]:
        """What a worker has claimed and not ended, whether it was heard of or not, with what the ledger says."""
