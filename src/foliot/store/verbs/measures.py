"""The verbs that count for metrics, as methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from foliot.domain.alerts import COUNTED
from foliot.domain.run import Lane
from foliot.domain.state import State
from foliot.domain.store import QueueView
from foliot.domain.store.measuring import Backlog, EndedCount, Parked, ScheduleAge
from foliot.store.verbs import latest, surveying
from foliot.store.verbs.acts import Work
from foliot.store.verbs.reading import last_positions
from foliot.store.verbs.rows import handed_off
from foliot.store.verbs.transaction import Transaction, longs

T = TypeVar("T")


class MeasureVerbs(ABC):
    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """All queries of one look see one moment."""

    async def backlog(self) -> Backlog:
        return await self.read(backlog)

    async def ended_counts(self, position: int | None) -> tuple[int, list[EndedCount]]:
        return await self.read(lambda tx: ended_counts(tx, position))

    async def live_counts(self) -> Mapping[State, int]:
        return await self.read(surveying.live_counts)

    async def schedule_ages(self) -> list[ScheduleAge]:
        return await self.read(schedule_ages)


async def backlog(tx: Transaction) -> Backlog:
    """Read through chunks, which are few. What was moved or replaced since may be counted for a moment."""
    queues: dict[str, QueueView] = {}
    lanes: Counter[Lane] = Counter()
    for queue, lane, fired_at, stored in await tx.all("measured_chunks"):
        known, count = queues.get(queue, QueueView(queue, 0, fired_at)), len(tx.unpacked(stored))
        queues[queue] = QueueView(queue, known.waiting + count, min(known.oldest, fired_at))
        lanes[Lane(lane)] += count
    ready = sum(row[1] for row in await tx.all("count_ready", numbers=longs(await handed_off(tx)), now=tx.now))
    parked = [Parked(job, State(state), count) for job, state, count in await tx.all("count_parked_by_job")]
    alerts = await tx.all("count_open_alerts")
    return Backlog(
        sorted(queues.values()),
        lanes,
        max(await tx.value("count_due", now=tx.now) - ready, 0),
        parked,
        await tx.value("count_early"),
        {(kind, severity): count for kind, severity, count, _ in alerts},
        {(kind, severity): runs for kind, severity, _, runs in alerts if kind in COUNTED},
    )


async def ended_counts(tx: Transaction, position: int | None) -> tuple[int, list[EndedCount]]:
    now, _ = await last_positions(tx)
    if position is None:
        return now, []
    rows = await tx.all("count_ended", position=position)
    return now, [EndedCount(job, State(state), count, int(attempts)) for job, state, count, attempts in rows]


async def schedule_ages(tx: Transaction) -> list[ScheduleAge]:
    rows = await tx.all("schedule_ages", now=tx.now)
    useful = await latest.useful_at(tx, [row[0] for row in rows])
    return [
        ScheduleAge(name, made_at, useful.get(name), bool(is_paused), bool(is_faulty))
        for name, made_at, is_paused, is_faulty in rows
    ]
