"""Questions of periodic work: a read costs four round trips, and in most seconds there is nothing to read.

Loops of one process ask at the same moment. One statement answers for all of them whether there is any work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from foliot.store.postgres.together import Together
from foliot.store.verbs import periodic
from foliot.store.verbs.periodic import Waiting
from foliot.store.verbs.transaction import Row

_MOST = 100
"""Callers that share a statement."""


class PeriodicVerbs(periodic.PeriodicVerbs):
    """Verbs of periodic loops. Callers of one moment share the question whether there is any work."""

    def __init__(self) -> None:
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, Together[None, Waiting]] = WeakKeyDictionary()

    async def statement(self, query: str, /, **values: Any) -> list[Row]:
        raise NotImplementedError

    async def waiting_work(self) -> Waiting:
        loop = asyncio.get_running_loop()
        together = self._asking.get(loop)
        if together is None:
            together = self._asking[loop] = Together(self._ask, _MOST)
        return await together.add(None)

    async def _ask(self, callers: Sequence[None]) -> Sequence[Waiting]:
        [row] = await self.statement("waiting_work")
        return [Waiting(*row)] * len(callers)
