"""What the store must still record: endings with the last reports of their attempts, unbegun claims and events.

One delivery is under way at a time; what comes meanwhile goes with the next, so that commits are shared. Whatever a
delivery could not bring stays here and is tried again, with growing pauses: an ending is never lost while the process
lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from foliot.clock import Clock
from foliot.domain.decisions import store_pause
from foliot.domain.instant import SECOND, Instant
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.store import Beat, FleetStore, HandlerStore, LedgerStore, WorkStore
from foliot.errors import SchemaMismatch, StoreClosed, StoreTooOld

HOPELESS = (StoreClosed, StoreTooOld, SchemaMismatch)
"""Trying again cannot help: the process must be told."""

_MOST = 1 << 20

_log = logging.getLogger("foliot.work")


class WorkerStore(WorkStore, LedgerStore, HandlerStore, FleetStore, Protocol):
    """What of the store a worker needs."""

    @property
    def url(self) -> str | None:
        """What the processes of its attempts open it by."""

    async def note(self, kind: str, subject: str, detail: str) -> None:
        """Writes an event."""

    def version(self) -> int:
        """Differs from an earlier answer whenever anything was committed in between."""

    def when_new(self, callback: Callable[[], None]) -> bool:
        """Has this called when that happens, if the store can."""


class Exchange(Protocol):
    """Claims for a worker while its endings are recorded."""

    async def finish(self, store: WorkerStore, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        """As `WorkStore.finish`."""


class Pause:
    """After each failure in a row, the next try waits longer; see `store_pause`."""

    __slots__ = ("_failures", "_noted", "_since", "until")

    def __init__(self) -> None:
        self._failures = 0
        self._noted = ""
        """The error that was logged last: one that stays the same is logged once."""
        self._since: Instant = 0
        self.until: Instant | None = None
        """None while all is well."""

    def failed(self, now: Instant, what: str, error: Exception) -> None:
        self._failures += 1
        length = store_pause(self._failures, error)
        self._since, self.until = now, now + length
        shown = f"{type(error).__name__}: {error}"
        if shown != self._noted:
            _log.warning("%s failed, retrying in %g s: %s", what, length / SECOND, shown)
            self._noted = shown

    def succeeded(self) -> None:
        self._failures = 0
        self._noted = ""
        self.until = None

    def holds(self, now: Instant) -> bool:
        # A clock that was set back does not make it longer.
        return self.until is not None and self._since <= now < self.until


class Outbox:
    """Everything that waits to be told to the store."""

    def __init__(
        self,
        store: WorkerStore,
        clock: Clock,
        on_delivered: Callable[[int, Beat | None], None],
        exchange: Exchange | None = None,
    ) -> None:
        """`on_delivered` is called after each delivery with the worker's number and what a beat in it answered.
        `exchange`: offers to claim in the transaction that records endings."""
        self._exchange = exchange
        self._store = store
        self._clock = clock
        self._on_delivered = on_delivered
        self.endings: list[Ending] = []
        self.parting: list[Progress] = []
        """Reports of attempts that go on although this process shuts down."""
        self.unbegun: list[Claimed] = []
        self.leaving = False
        """Whether the store is to hear that this process is shutting down."""
        self.events: list[tuple[str, str, str]] = []
        self.delivery: asyncio.Task[None] | None = None
        self.pause = Pause()
        self.hopeless: Exception | None = None
        self.is_behind = False
        """Whether the last delivery left something of what was there when it began."""
        self.finished = 0
        self.fenced = 0
        self._most = _MOST

    def __bool__(self) -> bool:
        """Whether anything waits or is under way."""
        return bool(self.delivery or self.endings or self.unbegun or self.events or self.parting or self.leaving)

    @property
    def numbers(self) -> set[int]:
        """Of the runs whose end, or return, waits here."""
        return {one.number for one in self.endings}.union(one.number for one in self.unbegun)

    def deliver(self, worker: int, now: Instant) -> bool:
        """Begins a delivery if there is something to bring, none is under way, and no pause holds it back."""
        if self.delivery is not None or not self or self.pause.holds(now):
            return False
        self.delivery = asyncio.get_running_loop().create_task(self._deliver(worker))
        return True

    async def _deliver(self, worker: int) -> None:
        beat: Beat | None = None
        before = self.finished + len(self.endings)
        self.is_behind = True
        try:
            # 1. That this process shuts down, and the reports of attempts that go on.
            if self.parting or self.leaving:
                beat = await self._part(worker)
            # 2. Endings, and with them whatever they set free. Each contains the last report of its attempt.
            if self.endings:
                await self._finish(worker)
            # 3. Records that no process waits for.
            if self.unbegun:
                await self._give_back(worker)
            while self.events:
                await self._store.note(*self.events[0])
                del self.events[0]
            self.pause.succeeded()
            self.is_behind = self.finished < before
        except HOPELESS as error:
            self.hopeless = error
        except Exception as error:  # nothing was changed; everything that was not delivered is still here
            self.pause.failed(self._clock.now(), "writing outcomes to the store", error)
        finally:
            self.delivery = None
            self._on_delivered(worker, beat)

    async def _part(self, worker: int) -> Beat:
        count, leaving = len(self.parting), self.leaving
        # Patient: waits for runs that an open transaction holds, because there is no later heartbeat.
        beat = await self._store.beat(worker, self.parting[:count], patient=True, leaving=leaving)
        del self.parting[:count]
        self.leaving = self.leaving and not leaving
        return beat

    async def _finish(self, worker: int) -> None:
        batch = self.endings[: self._most]
        try:
            if self._exchange is None:
                fenced = await self._store.finish(worker, batch)
            else:
                fenced = await self._exchange.finish(self._store, worker, batch)
        except Exception:
            # One ending that the store cannot take must not hold up the others for ever: smaller batches, and the
            # one that was refused goes to the back, until it stands alone.
            self._most = max(len(batch) // 2, 1)
            self.endings = self.endings[len(batch) :] + batch
            raise
        self._most = min(self._most * 2, _MOST)
        del self.endings[: len(batch)]
        self.finished += len(batch)
        # Refused because somebody else owns the run now: the store has recorded it, there is nothing to repair here.
        self.fenced += len(fenced)
        if fenced:
            shown = ", ".join(f"{one.number}/{one.attempt}" for one in fenced[:10])
            _log.warning("%d outcomes fenced, these attempts no longer own their runs: %s", len(fenced), shown)

    async def _give_back(self, worker: int) -> None:
        count = len(self.unbegun)
        await self._store.give_back(worker, self.unbegun[:count])
        del self.unbegun[:count]
