"""How a worker comes to rest in virtual time, where only the clock can bring anything new."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foliot.work.worker import Worker

_QUIET = 30
"""Passes of the event loop without progress, after which there will be none."""

_PAUSE = 0.001
"""Seconds between two looks at a handler that asks the database."""


async def settle(worker: Worker, patience: float) -> bool:
    """Lets everything happen that can happen now: handlers run until they end or wait for the clock to move.

    Threads and statements of a handler's transaction really run. They are waited for in real time, `patience` seconds
    at most. Answers `idle`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    quiet = 0
    while quiet < _QUIET and not worker.idle:
        before = _progress(worker)
        waiting = [*_asked(worker), *map(asyncio.wrap_future, _threads(worker))]
        if not waiting and not worker.running:
            break  # what is left goes on when the worker's `run_once` is called
        if waiting and loop.time() < until:
            await asyncio.wait(waiting, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        elif _is_in_transaction(worker) and loop.time() < until:
            await asyncio.sleep(_PAUSE)  # the database has to answer
            continue
        await asyncio.sleep(0)
        quiet = quiet + 1 if before == _progress(worker) else 0
    return worker.idle


def waits_in_real_time(worker: Worker) -> bool:
    """Whether a thread, the store or a handler's transaction works on something, whatever the clock does."""
    return bool(_asked(worker)) or bool(_threads(worker)) or _is_in_transaction(worker)


def _asked(worker: Worker) -> list[asyncio.Future[Any]]:
    """Calls of the store that have no answer yet."""
    calls = (worker.claiming, worker.outbox.delivery, *worker.desks.calls)
    return [call for call in calls if call is not None]


def _threads(worker: Worker) -> list[Future[Any]]:
    """Handlers that run in threads."""
    return [attempt.future for attempt in worker.running if attempt.future and not attempt.future.done()]


def tasks(worker: Worker) -> list[asyncio.Task[None]]:
    """Async handlers that have not ended."""
    return [attempt.task for attempt in worker.running if attempt.task is not None and not attempt.task.done()]


def _progress(worker: Worker) -> int:
    return worker.begun + worker.ended + worker.outbox.finished


def _is_in_transaction(worker: Worker) -> bool:
    """Whether a coroutine has a transaction of the store open. Calls of a thread end with its future."""
    contexts = [attempt.context for attempt in worker.running if attempt.task is not None]
    return any(context is not None and context._in_transaction for context in contexts)
