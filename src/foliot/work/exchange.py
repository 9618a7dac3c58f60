"""Claims in the transaction that records endings: runs that get the freed slots, and standbys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foliot.domain.instant import Instant
from foliot.domain.run import Claimed, Ending
from foliot.domain.store import Offer

if TYPE_CHECKING:
    from foliot.work.attempt import Attempt
    from foliot.work.outbox import WorkerStore
    from foliot.work.worker import Worker


class Exchange:
    """Records endings for one worker, and begins the runs that are claimed with that."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._may_have_claimed = False
        """Whether the answer of the last call was lost: the next answer has the runs that it claimed."""

    def pass_on(self, attempt: Attempt, ending: Ending | None) -> Attempt | None:
        """Begins the standby to which the slot of an attempt that ended passes, and answers it; None without one."""
        worker = self._worker
        heir = worker.standbys.heir(attempt, ending) if worker.takes_claims else None
        if heir is None:
            worker.standbys.ended(attempt, is_recorded=ending is not None)
            return None
        worker.begin_now(heir, worker.clock.monotonic())
        if worker.recorder is not None:
            worker.recorder.claimed(worker.number or 0, [heir])
        return heir

    async def finish(self, store: WorkerStore, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        """As `WorkStore.finish`."""
        standbys = self._worker.standbys
        freed, passed = standbys.freed(), standbys.passed()
        offer = self._offer(sum(freed.values()))
        if offer is None and not passed and not self._may_have_claimed:
            fenced = await store.finish(worker, endings)
            standbys.recorded(freed)
            standbys.forget_unused()
            return fenced
        offer = (offer or Offer((), (), 0))._replace(passed=[slot for _, slots in passed for slot in slots])
        asked = self._worker.clock.monotonic()
        try:
            fenced, claimed = await store.finish_and_claim(worker, endings, offer)
        except BaseException:
            self._may_have_claimed = True
            for unit, slots in passed:
                standbys.delivered(unit, slots, is_known=False)
            raise
        self._may_have_claimed = False
        for unit, slots in passed:
            standbys.delivered(unit, slots, is_known=True)
        standbys.recorded(freed)
        if claimed:
            self._begin(claimed, asked)
        standbys.forget_unused()
        return fenced

    def _offer(self, freed: int) -> Offer | None:
        """None where this worker can begin nothing, or shares its slots among queues: it claims from these in turn."""
        worker = self._worker
        if not worker.takes_claims or worker.room.reserved or worker.outbox.pause.until is not None:
            return None
        requests = worker.standbys.requests()
        if not freed and not requests:
            return None
        return Offer(
            worker.queues, worker.room.jobs_of_freed(freed), freed, worker.room.left_for_backlog(), standbys=requests
        )

    def _begin(self, claimed: list[Claimed], asked: Instant) -> None:
        worker = self._worker
        if worker.takes_claims and not worker.is_too_late(asked):
            worker.begin(claimed)
        else:
            worker.outbox.unbegun.extend(claimed)
            worker.alarm.ring()
