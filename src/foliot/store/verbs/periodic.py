"""Verbs of periodic loops: in most seconds there is no work for them. One cheap question says so, and only a loop with
work reads more."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from foliot.domain.backfill import UnderWay
from foliot.domain.instant import Instant
from foliot.domain.run import SilentAttempt
from foliot.store.verbs.store import Verbs


class Waiting(NamedTuple):
    """Whether there is any work for each periodic loop."""

    claims: bool = True
    unsealed: bool = True
    backfills: bool = True
    gathering: bool = True
    hopeless: bool = True


class PeriodicVerbs(Verbs):
    """Verbs of periodic loops, which first ask whether there is any work."""

    @abstractmethod
    async def waiting_work(self) -> Waiting:
        """Asks the store, at little cost."""

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        return await super().silent(beat_before) if (await self.waiting_work()).claims else []

    async def seal(self, limit: int = 1_000) -> int:
        return await super().seal(limit) if (await self.waiting_work()).unsealed else 0

    async def backfills_under_way(self) -> list[UnderWay]:
        return await super().backfills_under_way() if (await self.waiting_work()).backfills else []

    async def gather(self) -> int:
        return await super().gather() if (await self.waiting_work()).gathering else 0

    async def give_up(self) -> int:
        return await super().give_up() if (await self.waiting_work()).hopeless else 0
