"""A handler that blocks its worker's event loop: seen, told and ended from the heart's thread, which goes on.

Deadlines are watched in the loop, and in a loop that stands still no task can be cancelled. So while an attempt is past
its time, the loop is asked for a sign of life:

    told     none for a second: people hear which handler blocks it, and threads that should end are asked from here
    ended    none for `recycle_after` more: the store hears the last words, and the process ends at once

Other runs of the process are lost with it, and other workers try them again. When an operator forced the cancellation
of an attempt, the process ends after the first second, and the other runs in it are recorded as interrupted. A handler
that keeps even threads from running (code in C that holds the interpreter's lock) is not seen by this: its worker falls
silent, and loses its leases.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import Ending
from foliot.domain.store import Wish
from foliot.work.attempt import Attempt, Stop
from foliot.work.deadlines import HEED, ends_at
from foliot.work.drain import LAST_DELIVERY, parting_word
from foliot.work.outbox import WorkerStore

if TYPE_CHECKING:
    from foliot.work.worker import Worker

RECYCLED = 75
"""The exit code of a worker that is to be started again: EX_TEMPFAIL, for those who know it."""
DRAINED = 77
"""The exit code of one that an operator wanted to leave: it is not to be started again."""
EndProcess = Callable[[int], object]
"""Ends this process at once, with this exit code."""

_SETTLING: Duration = SECOND // 2
"""How long to wait for a heartbeat that is under way: the process ends soon, and the record must be made before."""
_AGAIN = "must be restarted"
_MOST_FRAMES = 12

_log = logging.getLogger("foliot.work")


class Blockade:
    """Asks the loop for signs of life while there is reason to. Everything here happens in the heart's thread, but for
    the sign."""

    def __init__(
        self, worker: Worker, store: WorkerStore, recycle_after: Duration | None, end_process: EndProcess | None
    ) -> None:
        """Without `recycle_after` and `end_process` it only tells: this process is not the worker's own."""
        self._worker = worker
        self._store = store
        self._recycle_after = recycle_after
        self._end_process = end_process
        self._asked_at: Instant | None = None
        """When the loop was asked for a sign that it has not given yet. Monotonic, as everything here."""
        self._looked_at: Instant = 0
        self._told = False

    async def run_once(self) -> None:
        """One look; to be called several times in a second."""
        now = self._worker.clock.monotonic()
        # Who was asleep himself (the whole process was stopped) cannot say for how long the loop stood still.
        slept, self._looked_at = now - self._looked_at > HEED, now
        overdue = [attempt for attempt in list(self._worker.running) if _is_overdue(attempt, now)]
        if not overdue:
            return
        if slept or self._asked_at is None:
            self._ask(now)
            return
        silent_for = now - self._asked_at
        if silent_for >= HEED and not self._told:
            self._told = True
            await self._tell(overdue, now)
        is_forced = any(attempt.force_at is not None for attempt in overdue)
        if self._recycle_after is not None and silent_for >= HEED + (0 if is_forced else self._recycle_after):
            await self._end(overdue, now, is_forced=is_forced)

    def _ask(self, now: Instant) -> None:
        loop = self._worker.loop
        if loop is None or loop.is_closed():
            return
        self._asked_at, self._told = now, False
        loop.call_soon_threadsafe(self._sign)

    def _sign(self) -> None:
        self._asked_at = None

    async def _tell(self, overdue: Sequence[Attempt], now: Instant) -> None:
        for attempt in overdue:
            if attempt.future is not None and attempt.asked_at is None and attempt.force_at is None:
                attempt.asked_at = now
                attempt.ask_to_stop(_reason(attempt, now))
        run, detail = self._blamed(overdue)
        try:
            await self._store.note(
                "blocked", run, (f"{detail}; attempts past their timeout cannot be stopped until the block ends")
            )
        except Exception as error:  # it is in the log at least
            _log.warning("%s: %s (%s: %s)", run, detail, type(error).__name__, error)

    async def _end(self, overdue: Sequence[Attempt], now: Instant, *, is_forced: bool) -> None:
        """1. Should the loop turn after all, it takes no more work, and the process ends in order. 2. The last words.
        3. The end."""
        if self._end_process is None:
            return
        self._worker.recycling = True
        self._worker.recycling_now |= is_forced
        # Whoever is wanted away must not come back for having left in a hurry.
        code, then = (DRAINED, "must not be restarted") if self._worker.last_wish is Wish.DRAIN else (RECYCLED, _AGAIN)
        run, detail = self._blamed(overdue)
        where = "".join(traceback.format_list(_stack(self._worker.thread)))
        _log.warning(
            "%s: %s although it should have ended, and cannot be stopped alone: exiting at once with code %d, %s\n%s",
            *(run, detail, code, then, where),
        )
        for attempt in overdue:
            attempt.stop = attempt.stop or _reason(attempt, now)
        try:
            async with asyncio.timeout(LAST_DELIVERY / SECOND):
                await self._last_words(run, detail, is_forced=is_forced)
        except Exception as error:
            _log.warning("recording this in the store failed: %s: %s", type(error).__name__, error)
        # Attempts that are recorded as interrupted must not go on, even if the loop turns again.
        if self._asked_at is not None or is_forced:
            self._end_process(code)

    async def _last_words(self, run: str, detail: str, *, is_forced: bool) -> None:
        if is_forced:
            await self.record_interrupted()
        else:
            await self._record(leaving=False)
        if self._worker.number is not None:
            await self._store.note("blocked", run, f"{detail}; its worker process was ended because of that")

    async def record_interrupted(self) -> None:
        """Records what runs in this process, which is shutting down and ends at once."""
        for attempt in list(self._worker.running):
            attempt.interrupt()
        await self._worker.heartbeat.settled(_SETTLING)
        await self._record(leaving=True)

    async def _record(self, *, leaving: bool) -> None:
        worker = self._worker
        if worker.number is None:
            return
        words = [parting_word(attempt) or attempt.news() for attempt in list(worker.running)]
        said = [word for word in words if word is not None]
        await self._store.beat(worker.number, said, patient=True, leaving=leaving)
        # The loop may be about to say some of this itself: said twice, it changes nothing.
        endings = [*worker.outbox.endings, *filter(None, map(_ending_of, list(worker.running)))]
        if endings:
            await self._store.finish(worker.number, endings)

    def _blamed(self, overdue: Sequence[Attempt]) -> tuple[str, str]:
        """Which run to tell of, and what: the one whose own task the loop is in, if that can be seen."""
        loop = self._worker.loop
        task = None if loop is None else asyncio.current_task(loop)
        blocking = next((one for one in list(self._worker.running) if one.task is task and task is not None), None)
        stack = _stack(self._worker.thread)
        where = f" (at {stack[-1].filename}:{stack[-1].lineno})" if stack else ""
        if blocking is None:
            return overdue[0].claimed.id, f"unknown code blocks the event loop of its worker{where}"
        attempt = f"attempt {blocking.claimed.attempt} of {blocking.handler.name}"
        return blocking.claimed.id, f"{attempt} blocks the event loop of its worker{where}"


def _is_overdue(attempt: Attempt, now: Instant) -> bool:
    if attempt.future is not None and attempt.future.done():
        return False  # it has ended, and the loop has not taken note of it
    due = ends_at(attempt)
    return due is not None and due <= now


def _reason(attempt: Attempt, now: Instant) -> Stop:
    if attempt.force_at is not None:
        return Stop.CANCEL
    deadline = attempt.deadline()
    return Stop.TIMEOUT if deadline is not None and deadline <= now else Stop.STALL


def _ending_of(attempt: Attempt) -> Ending | None:
    """Of a thread that has ended; None for all others."""
    future = attempt.future
    if future is None or not future.done() or future.cancelled() or future.exception() is not None:
        return None
    ending: Ending | None = future.result()
    return None if ending is None else attempt.reported(ending)


def _stack(thread: int) -> list[traceback.FrameSummary]:
    """Where a thread is, the innermost last."""
    frame = sys._current_frames().get(thread)
    return [] if frame is None else list(traceback.extract_stack(frame, _MOST_FRAMES))
