"""Retention: now and then the store is asked to put itself in order. What that is, and how, each engine knows."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from foliot.clock import Clock
from foliot.domain.instant import MINUTE, Duration
from foliot.watch.duty import rest

TIDY_EVERY: Duration = MINUTE

_log = logging.getLogger("foliot.watch")


class TidyStore(Protocol):
    """What is needed of a store."""

    async def tidy(self) -> None: ...


class Retention:
    """Asks once per minute."""

    def __init__(self, store: TidyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> None:
        await self._store.tidy()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        while not stop.is_set():
            try:
                await self.run_once()
            except Exception:
                _log.warning("the store could not be tidied, and is asked again in a minute", exc_info=True)
            await rest(self._clock, TIDY_EVERY, stop)
