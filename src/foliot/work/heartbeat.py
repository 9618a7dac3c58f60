"""The heartbeat: says that the worker lives, tells what its attempts said, and hears what is to be stopped.

It has a thread and an event loop of its own, and may have a store handle of its own: one handler that blocks the
worker's loop must not lose every lease. `run_once` is one beat, and can be called without any thread. Beside it, that
thread looks whether the worker's loop is blocked; see blockade.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.work.blockade import Blockade
from foliot.work.outbox import HOPELESS, WorkerStore

if TYPE_CHECKING:
    from foliot.work.worker import Worker

_SHORTEST: Duration = 200 * MILLISECOND
_LONGEST: Duration = SECOND
"""However long the leases are: a request to stop is heard with the next beat, and somebody waits for it."""
_GLANCE: Duration = 50 * MILLISECOND
"""Between two looks around while anything runs: a run with a shorter lease may have begun, or the worker's event
loop may be blocked."""

_log = logging.getLogger("foliot.work")


class Heartbeat:
    """Beats three times in each of the shortest leases that the worker holds."""

    def __init__(self, worker: Worker, store: WorkerStore, blockade: Blockade) -> None:
        """`store` is open, and is called from the heartbeat's loop; whoever gave it closes it."""
        self._worker = worker
        self._store = store
        self.blockade = blockade
        self.beat_at: Instant | None = None
        """The last beat that the store heard."""
        self.beats = 0
        self._noted = ""
        """The error that was logged last: one that stays the same is logged once."""
        self._is_idle = threading.Event()
        """Set while no beat is under way."""
        self._is_idle.set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._called = asyncio.Event()
        """Ends a rest. Of the heartbeat's loop."""
        self._is_resting = False
        """Whether nothing was running when the thread looked last."""

    @property
    def every(self) -> Duration:
        return min(max(self._worker.policies.shortest_lease // 3, _SHORTEST), _LONGEST)

    @property
    def due_at(self) -> Instant:
        """When the next beat is due by the worker's clock, for those who call `run_once` themselves."""
        return self._worker.clock.now() if self.beat_at is None else self.beat_at + self.every

    async def run_once(self) -> bool:
        """One beat; answers whether the store heard it. What was said and not heard is said again with the next."""
        worker = self._worker
        number = worker.number
        if number is None:
            return False
        now = worker.clock.now()
        self._is_idle.clear()
        told = [(attempt, news) for attempt in list(worker.running) if (news := attempt.news()) is not None]
        try:
            beat = await self._store.beat(number, [news for _, news in told], leaving=worker.draining)
        except HOPELESS:
            raise
        except Exception as error:  # the next one is not far; the store decides whether it came too late
            shown = f"{type(error).__name__}: {error}"
            if shown != self._noted:
                _log.warning("heartbeat failed, retrying until it succeeds: %s", shown)
                self._noted = shown
            return False
        finally:
            self._is_idle.set()
        self._noted = ""
        for attempt, news in told:
            attempt.was_told(news, unheard=news.number in beat.unheard)
        self.beat_at = now
        self.beats += 1
        worker.heard(number, beat)
        return True

    async def settled(self, patience: Duration) -> None:
        """Returns when no beat is under way, and after `patience` at the latest.

        After the contexts have ended, each new beat contains the last reports. A beat that began earlier may contain
        older ones, and must not overwrite the last record."""
        if not self._is_idle.is_set():
            await asyncio.to_thread(self._is_idle.wait, patience / SECOND)

    def start(self) -> None:
        """Begins to beat, in a thread. Once: a second call changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="foliot-heartbeat", daemon=True)
            self._thread.start()

    def attend(self) -> None:
        """A run begins: from now on the thread looks around often. From the worker's event loop."""
        if self._is_resting:
            self._is_resting = False
            self._call()

    def _call(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                loop.call_soon_threadsafe(self._called.set)

    async def stop(self) -> None:
        """Ends the thread; a drain does so last, because its leases are needed until then."""
        self._stopping.set()
        self._call()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def record_interrupted(self, patience: Duration) -> None:
        """Records what still runs as interrupted, for a process that ends at once because its event loop is blocked.
        From any other thread; returns after `patience` at the latest."""
        loop = self._loop
        if loop is None or loop.is_closed() or not self._worker.running:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.blockade.record_interrupted(), loop).result(patience / SECOND)
        except Exception as error:  # the store is away
            _log.warning("recording interrupted attempts failed: %s: %s", type(error).__name__, error)

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as error:  # a worker that nobody hears must not go on
            self._worker.fail(error)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch())
        try:
            await self._beat_until_stopped()
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        # Apart from the beat: that may have to wait for the store.
        while not self._stopping.is_set():
            try:
                await self.blockade.run_once()
            except Exception:
                _log.exception("checking the worker's event loop failed")
            await self._rest(self._worker.clock.until_beat(_LONGEST))

    async def _beat_until_stopped(self) -> None:
        # By the monotonic clock: a host's clock that is set back by an hour must not silence the heart.
        last, length = _monotonic() - _LONGEST, 0
        while not self._stopping.is_set():
            if self._worker.number is not None and _monotonic() - last >= min(length, self.every):
                last, length = _monotonic(), self._worker.clock.until_beat(_LONGEST)
                if not await self.run_once():
                    length = self.every // 4  # unheard: again after a quarter of the time
            await self._rest(max(last + min(length, self.every) - _monotonic(), MILLISECOND))

    async def _rest(self, length: Duration) -> None:
        """For so long, if nothing runs. While something does, for a glance; the next run that begins ends the rest."""
        self._called.clear()
        self._is_resting = True
        # Read after that: a run that begins meanwhile is seen here, or its worker sees that this thread rests.
        if self._worker.running or self._worker.number is None:
            self._is_resting = False
            length = min(length, _GLANCE)
        if self._stopping.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(length / SECOND):
                await self._called.wait()


def _monotonic() -> Instant:
    return time.monotonic_ns() // 1_000
