"""The sealer: rows of the operators' log get their seals soon after they were written, by one instance for all."""

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

_log = logging.getLogger("foliot.watch")

WriteAnchor = Callable[[str], None]
"""Adds a line to a file, durably."""


class SealStore(Protocol):
    """What is needed of a store."""

    async def seal(self, limit: int = 1_000) -> int: ...

    async def sealing(self) -> Standing: ...

    async def now(self) -> Instant: ...


class Sealer:
    """Seals once per second what there is. Where somebody wants anchors it writes the head of the chain down, now and
    then: that file may lie where whoever could change the store cannot."""

    def __init__(self, store: SealStore, clock: Clock, write_anchor: WriteAnchor | None = None) -> None:
        self._store = store
        self._clock = clock
        self._write_anchor = write_anchor
        self._anchored: Seal = START
        self._anchored_at: Instant | None = None
        self._failing = False
        self._unwritable = False

    async def run_once(self) -> int:
        """Seals all that waits; answers how much that was."""
        done = 0
        while count := await self._store.seal(AT_ONCE):
            done += count
            if count < AT_ONCE:
                break
        if self._write_anchor is not None:
            await self._anchor(self._write_anchor)
        return done

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        while not stop.is_set():
            try:
                await self.run_once()
                self._failing = False
            except Exception:
                if not self._failing:
                    _log.warning("the audit log could not be sealed, and is tried again", exc_info=True)
                self._failing = True
            await rest(self._clock, LOOK_EVERY, stop)

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
                _log.error("the anchor of the audit log cannot be written, and is tried again every minute: %s", error)
            self._unwritable = True
        else:
            self._anchored, self._unwritable = head, False
