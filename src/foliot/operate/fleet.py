"""How the fleet stands: which workers are there, what they take, and what waits in which queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foliot.domain.instant import Instant
from foliot.domain.store import Instance, QueueView
from foliot.operate.acting import Acting
from foliot.operate.shapes import Shape, moment


class QueueStanding(NamedTuple):
    """One queue, and who serves it."""

    queue: str
    waiting: int
    oldest: Instant | None
    """Since when the first run has waited for a worker."""
    workers: int
    slots: int
    """Of these workers, all that a run of the queue may take: not those that are reserved for others."""
    reserved: int
    """Those that only runs of this queue take."""
    jobs: int
    """Jobs whose own queue this is."""


class FleetVerbs(Acting):
    """Who is there."""

    async def workers_async(self) -> list[Instance]:
        return [one for one in await (await self._opened()).instances() if one.role == "worker"]

    async def queues_async(self) -> list[QueueStanding]:
        """All queues in which something waits, that a worker serves, or that a job names."""
        store = await self._opened()
        named = [card.queue for card in (await store.jobs()).values()]
        return standings(await store.queues_waiting(), await self.workers_async(), named)


def standings(waiting: Sequence[QueueView], workers: Sequence[Instance], named: Sequence[str]) -> list[QueueStanding]:
    views = {view.queue: view for view in waiting}
    queues = sorted({*views, *named, *(queue for worker in workers for queue in worker.queues)})
    return [_standing(queue, views.get(queue), workers, named.count(queue)) for queue in queues]


def _standing(queue: str, view: QueueView | None, workers: Sequence[Instance], jobs: int) -> QueueStanding:
    serving = [one for one in workers if queue in one.queues]
    reserved = sum(one.reserved.get(queue, 0) for one in serving)
    others = sum(most for one in serving for other, most in one.reserved.items() if other != queue)
    slots = sum(one.slots for one in serving) - others
    waiting, oldest = (0, None) if view is None else (view.waiting, view.oldest)
    return QueueStanding(queue, waiting, oldest, len(serving), slots, reserved, jobs)


def queue_shape(standing: QueueStanding) -> Shape:
    return {
        "queue": standing.queue,
        "waiting": standing.waiting,
        "waiting_since": moment(standing.oldest),
        "workers": standing.workers,
        "slots": standing.slots,
        "reserved": standing.reserved,
        "jobs": standing.jobs,
    }
