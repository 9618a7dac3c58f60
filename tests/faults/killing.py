"""Lives of a worker that is killed before the n-th statement of a handler's transaction.

    lives = Lives(app, store)
    lives.once(["case-3"], dies_at=3, before=promise)   # what waits in that queue is begun, and the process is killed
    lives.once(["case-3"])                              # another life ends it

Each life is a process of its own: a fork of one that has everything imported and nothing open. Call it from such a one
(`tests.faults.books`), never from the tests' own process, which has threads and open files.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

import asyncpg

from foliot import Foliot, bootstrap
from foliot.domain.state import PARKED, TERMINAL
from foliot.domain.store import Store
from foliot.store.postgres import lending as postgres
from foliot.store.sqlite import lending as sqlite
from tests.waiting import HANG

Before = Callable[[Store], Awaitable[None]]
"""Work of a life before the worker begins, which no kill interrupts."""


class Lives:
    def __init__(self, app: Foliot, store: str) -> None:
        self._app = app
        self._store = store

    def once(self, queues: Sequence[str], dies_at: int | None = None, before: Before | None = None) -> bool:
        """One life: it ends when nothing is left to do in these queues. Whether it came to that."""
        child = os.fork()
        if not child:
            signal.alarm(int(HANG))
            status = 1
            try:
                asyncio.run(self._live(queues, dies_at, before))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status not in (0, signal.SIGKILL):
            raise RuntimeError(f"a life ended by a fault of the test: {os.waitstatus_to_exitcode(status)}")
        return status == 0

    async def _live(self, queues: Sequence[str], dies_at: int | None, before: Before | None) -> None:
        store = bootstrap.make_store(self._store)
        await store.open()
        with self._app.standing_on(store, self._app.clock):
            if before is not None:
                await before(store)
            if dies_at is not None:
                _arm(dies_at)
            handlers = {name: job.handler for name, job in self._app.jobs.items()}
            worker = bootstrap.make_worker(store, handlers, queues=queues)
            instance = await store.register("scheduler", version="", queues=(), slots=0, jobs=())
            dispatcher, reaper = bootstrap.make_dispatcher(store, instance.number), bootstrap.make_reaper(store)
            await worker.start()
            while not worker.idle or await _is_busy(store, queues):
                await reaper.run_once()
                await dispatcher.run_once()
                await worker.run_once()
                await asyncio.sleep(0.002)  # handlers run in threads
            await store.retire(worker.number or 0)
            await store.retire(instance.number)
        await store.close()


async def _is_busy(store: Store, queues: Sequence[str]) -> bool:
    return any(run.queue in queues and run.state not in TERMINAL | PARKED for run in await store.runs(limit=1_000))


class _Counter:
    """Kills this process before the n-th statement."""

    def __init__(self, dies_at: int) -> None:
        self._dies_at = dies_at
        self._seen = 0

    def count(self, *_: Any) -> bool:
        self._seen += 1
        if self._seen == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def _arm(dies_at: int) -> None:
    counter = _Counter(dies_at)
    begin_in_file = sqlite.LentTransaction.begin
    counted: list[Any] = []

    async def in_file(self: Any) -> None:
        await begin_in_file(self)
        self.connection.exec_trace = counter.count

    def on_server(begin: Any) -> Any:
        async def begun(self: Any) -> None:
            await begin(self)
            counted.append(getattr(self.connection, "_con", self.connection))

        return begun

    def watched(inner: Any) -> Any:
        @wraps(inner)
        async def said(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
            is_counted = self in counted
            if is_counted:
                counter.count()
            answer = await inner(self, query, *args, **kwargs)
            if is_counted and query.rstrip(";") == "COMMIT":  # other connections commit meanwhile
                counted.remove(self)
            return answer

        return said

    sqlite.LentTransaction.begin = in_file  # type: ignore[method-assign]
    for kind in (postgres.LentTransaction, postgres.CallersTransaction):
        kind.begin = on_server(kind.begin)  # type: ignore[method-assign]
    for name in ("execute", "executemany", "fetch", "fetchrow", "fetchval"):
        setattr(asyncpg.Connection, name, watched(getattr(asyncpg.Connection, name)))
