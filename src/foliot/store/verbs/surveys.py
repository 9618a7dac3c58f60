"""The verbs for what operators see of all of it at once, as methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foliot.domain.overview import ParkedGroup, ParkedRun, Pulse, Tally
from foliot.domain.schedule import Schedule
from foliot.domain.standing import STRIP, ScheduleFacts, ScheduleFilter, SchedulePage
from foliot.store.verbs import surveying, tallying, terms
from foliot.store.verbs.acts import ActVerbs

_MOST_ROUNDS = 100
"""Bounded, so that a store with a long past, whose endings were never counted, is not kept by it."""


class SurveyVerbs(ActVerbs):
    """Reads that stay short, whatever lies in the store."""

    async def templates(self, names: Sequence[str] | None = None) -> list[Schedule]:
        return await self.read(lambda tx: surveying.templates(tx, names))

    async def schedule_page(
        self, wanted: ScheduleFilter, *, cursor: str | None = None, limit: int = 50, recent: int = STRIP
    ) -> SchedulePage:
        return await self.read(lambda tx: surveying.page(tx, wanted, cursor, limit, recent))

    async def schedule_facts(self, schedule: str, *, recent: int = STRIP) -> ScheduleFacts:
        return await self.read(lambda tx: surveying.one(tx, schedule, recent))

    async def failing(self, limit: int, tenant: str | None = None) -> list[ScheduleFacts]:
        return await self.read(lambda tx: surveying.failing(tx, limit, tenant))

    async def count_endings(self) -> None:
        if not await self.read(tallying.is_any):
            return
        for _ in range(_MOST_ROUNDS):
            if not await self.write(tallying.count):
                return

    async def kept_by_minute(self, minutes: int) -> list[tuple[int, Tally]]:
        return await self.read(lambda tx: tallying.by_minute(tx, minutes))

    async def pulse(self) -> Pulse:
        return await self.read(surveying.pulse)

    async def parked_groups(self, limit: int) -> list[ParkedGroup]:
        return await self.read(lambda tx: surveying.parked_groups(tx, limit))

    async def parked(self, numbers: Sequence[int]) -> list[ParkedRun]:
        return await self.read(lambda tx: surveying.parked(tx, numbers))

    async def keep_days(self) -> int | None:
        return await self.read(terms.keep_days)

    async def set_keep_days(self, days: int | None, *, actor: str, note: str) -> None:
        await self.write(lambda tx: terms.set_keep_days(tx, days, actor, note))

    async def counts(self) -> Mapping[str, int]:
        return await self.read(surveying.counts)
