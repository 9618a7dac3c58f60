"""The sentry: notices that nobody watches. It stands where no scheduler does, in a worker."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from foliot.clock import Clock
from foliot.domain.alerts import Kind, silence
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.survey import Conclusion, Memory
from foliot.watch.duty import repeat
from foliot.watch.heralding import Herald

LOOK_EVERY: Duration = 15 * SECOND

_log = logging.getLogger("foliot.watch")


class SentryStore(Protocol):
    """What is needed of a store."""

    async def recall(self) -> Memory: ...

    async def open_alert(self, conclusion: Conclusion) -> bool: ...

    async def now(self) -> Instant: ...


class Sentry:
    """Asks every fifteen seconds when the watch last looked. One worker does so for all: a query, and no more.

    The alert that it opens is resolved by the watch, when that looks again."""

    def __init__(self, store: SentryStore, clock: Clock, herald: Herald) -> None:
        self._store = store
        self._clock = clock
        self._herald = herald

    async def run_once(self) -> bool:
        """Whether nobody watches."""
        finding = silence((await self._store.recall()).looked_at, await self._store.now())
        if finding is None:
            return False
        if await self._store.open_alert(Conclusion(b"", [finding])):
            _log.error("%s", finding.cause)
        await self._herald.run_once(only=Kind.WATCH_SILENT)
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        await repeat(
            self.run_once, LOOK_EVERY, self._clock, stop, ("reading the time of the last watch round failed, retrying")
        )
