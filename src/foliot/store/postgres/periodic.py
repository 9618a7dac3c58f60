"""Questions of periodic work: a read costs four round trips, and in most seconds there is nothing to read.

Loops of one process ask at the same moment. One statement answers whether there is any work for each of them, and only
a loop with work reads more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from foliot.domain.backfill import UnderWay
from foliot.domain.instant import Instant
from foliot.domain.run import SilentAttempt
from foliot.store.postgres.together import Together
from foliot.store.verbs.store import Verbs
from foliot.store.verbs.transaction import Row

_MOST = 100
"""Callers that share a statement."""


class Waiting(NamedTuple):
    """Whether there is any work for each periodic loop."""

    claims: bool
    unsealed: bool
    backfills: bool
    gathering: bool
    hopeless: bool


class PeriodicVerbs(Verbs):
    """Verbs of periodic loops, which first ask whether there is any work."""

    def __init__(self) -> None:
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, Together[None, Waiting]] = WeakKeyDictionary()

    async def statement(self, query: str, /, **values: Any) -> list[Row]:
        raise NotImplementedError

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        return await super().silent(beat_before) if (await self._waiting()).claims else []

    async def seal(self, limit: int = 1_000) -> int:
        return await super().seal(limit) if (await self._waiting()).unsealed else 0

    async def backfills_under_way(self) -> list[UnderWay]:
        return await super().backfills_under_way() if (await self._waiting()).backfills else []

    async def gather(self) -> int:
        return await super().gather() if (await self._waiting()).gathering else 0

    async def give_up(self) -> int:
        return await super().give_up() if (await self._waiting()).hopeless else 0

    async def _waiting(self) -> Waiting:
        loop = asyncio.get_running_loop()
        together = self._asking.get(loop)
        if together is None:
            together = self._asking[loop] = Together(self._ask, _MOST)
        return await together.add(None)

    async def _ask(self, callers: Sequence[None]) -> Sequence[Waiting]:
        [row] = await self.statement("waiting_work")
        return [Waiting(*row)] * len(callers)
