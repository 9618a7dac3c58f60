"""Retention: now and then the store is asked to put itself in order. What that is, and how, each engine knows.

What ended is counted a little more often, for whoever wants to see how promises are kept.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from foliot.clock import Clock
from foliot.domain.instant import MINUTE, SECOND, Duration
from foliot.watch.duty import rest

TIDY_EVERY: Duration = MINUTE
COUNT_EVERY: Duration = 10 * SECOND

_log = logging.getLogger("foliot.watch")


class TidyStore(Protocol):
    """What is needed of a store."""

    async def tidy(self) -> None: ...

    async def count_endings(self) -> None: ...


class Retention:
    """Asks once per minute; counts every ten seconds."""

    def __init__(self, store: TidyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> None:
        await self._store.tidy()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        rounds = 0
        while not stop.is_set():
            try:
                if rounds % (TIDY_EVERY // COUNT_EVERY):
                    await self._store.count_endings()
                else:
                    await self.run_once()
            except Exception:
                _log.warning("deleting expired history failed, retrying later", exc_info=True)
            rounds += 1
            await rest(self._clock, COUNT_EVERY, stop)
