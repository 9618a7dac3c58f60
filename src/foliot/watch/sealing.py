"""The sealer: one scheduler of the fleet seals rows of the audit log soon after they were written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from foliot.clock import Clock
from foliot.domain.audit import START, Anchor, Seal, Standing
from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.watch.duty import rest

LOOK_EVERY: Duration = SECOND
ANCHOR_EVERY: Duration = MINUTE
"""An anchor is written at most so often, and only when the chain has grown."""
AT_ONCE = 1_000
REST = 9
"""After a full batch the sealer rests for this many times as long as the batch took. An app that creates 100,000
schedules writes as many rows, and the process that seals them also has to fire."""

_log = logging.getLogger("foliot.watch")

WriteAnchor = Callable[[str], None]
"""Adds a line to a file, durably."""


class SealStore(Protocol):
    """What is needed of a store."""

    async def seal(self, limit: int = 1_000) -> int: ...

    async def sealing(self) -> Standing: ...

    async def now(self) -> Instant: ...


class Sealer:
    """Seals a batch of rows every second, and sooner while more wait. Where anchors are configured, it writes the head
    of the chain to a file from time to time. A person who can change the store may be unable to change that file."""

    def __init__(self, store: SealStore, clock: Clock, write_anchor: WriteAnchor | None = None) -> None:
        self._store = store
        self._clock = clock
        self._write_anchor = write_anchor
        self._anchored: Seal = START
        self._anchored_at: Instant | None = None
        self._failing = False
        self._unwritable = False

    async def run_once(self) -> int:
        """Seals a batch of rows; returns how many."""
        count = await self._store.seal(AT_ONCE)
        if self._write_anchor is not None:
            await self._anchor(self._write_anchor)
        return count

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        while not stop.is_set():
            length, began = LOOK_EVERY, self._clock.monotonic()
            try:
                if await self.run_once() >= AT_ONCE:
                    length = min(REST * (self._clock.monotonic() - began), LOOK_EVERY)
                self._failing = False
            except Exception:
                if not self._failing:
                    _log.warning("sealing the audit log failed, retrying", exc_info=True)
                self._failing = True
            await rest(self._clock, length, stop)

    async def _anchor(self, write: WriteAnchor) -> None:
        moment = self._clock.monotonic()
        if self._anchored_at is not None and moment - self._anchored_at < ANCHOR_EVERY:
            return
        self._anchored_at = moment
        head = (await self._store.sealing()).head
        if head in (START, self._anchored):
            return
        try:
            await asyncio.to_thread(write, Anchor(await self._store.now(), *head).line())
        except OSError as error:
            if not self._unwritable:
                _log.error("writing the audit anchor failed, retrying every minute: %s", error)
            self._unwritable = True
        else:
            self._anchored, self._unwritable = head, False
