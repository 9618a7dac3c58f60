"""How a worker comes to rest in virtual time, where only the clock can bring anything new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foliot.work.worker import Worker

_QUIET = 30
"""Passes of the event loop without progress, after which there will be none."""


async def settle(worker: Worker, patience: float) -> bool:
    """Lets everything happen that can happen now: handlers run until they end or wait for the clock to move.

    Threads really run, so they are waited for in real time, `patience` seconds at most. Answers `idle`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    quiet = 0
    while quiet < _QUIET and not worker.idle:
        before = _progress(worker)
        waiting: list[asyncio.Future[Any]] = [
            task for task in (worker.claiming, worker.outbox.delivery, *worker.desks.calls) if task is not None
        ]
        waiting += [asyncio.wrap_future(a.future) for a in worker.running if a.future and not a.future.done()]
        if not waiting and not worker.running:
            break  # what is left goes on when the worker's `run_once` is called
        if waiting and loop.time() < until:
            await asyncio.wait(waiting, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        quiet = quiet + 1 if before == _progress(worker) else 0
    return worker.idle


def _progress(worker: Worker) -> int:
    return worker.begun + worker.ended + worker.outbox.finished
