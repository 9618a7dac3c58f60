"""The only place that knows which concrete parts go together."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from foliot.clock import Clock, SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.instant import SECOND, Duration
from foliot.domain.store import JobCard, Store
from foliot.errors import FoliotError, InvalidInput, StoreError
from foliot.store.sqlite import SqliteStore
from foliot.watch.reaper import Reaper
from foliot.work.handler import Handler
from foliot.work.worker import Worker

DEFAULT_STORE = "sqlite:///foliot.db"
BEAT_EVERY: Duration = 5 * SECOND
"""How often a scheduler says that it lives, also while another one owns the shard."""

_log = logging.getLogger("foliot")


def make_store(url: str | None, clock: Clock | None = None) -> Store:
    """The store behind a URL; it is not open yet. Without one, FOLIOT_STORE says which, and else `foliot.db` here."""
    url = url or os.environ.get("FOLIOT_STORE") or DEFAULT_STORE
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and separator and path.startswith("/") and len(path) > 1:
        return SqliteStore(path[1:], clock)
    if scheme in ("postgresql", "postgres"):
        raise InvalidInput(
            f"{url!r:.40}: PostgreSQL is not supported by this release yet; use sqlite:///path/to/foliot.db"
        )
    raise InvalidInput(
        f"{url!r:.80} is not a store; write sqlite:///foliot.db for a file here, sqlite:////var/lib/foliot.db for one "
        f"anywhere, or sqlite:///:memory: for tests"
    )


async def open_store(store: Store) -> None:
    """Opens it; a file that cannot be made or reached is a StoreError that says which."""
    try:
        await store.open()
    except OSError as error:
        raise StoreError(
            f"the store {store_file(store) or 'in memory'} cannot be opened: {error.strerror or error}; "
            f"give a path in a folder that exists or can be made, and that this user may write to"
        ) from error


def store_file(store: Store) -> Path | None:
    """Where the store lies on this host's disk; None when it is no file."""
    return Path(store.path) if isinstance(store, SqliteStore) and store.path != ":memory:" else None


def _another_handle(store: Store, clock: Clock | None) -> Store | None:
    """The same store, opened a second time; None where that would be another one."""
    file = store_file(store)
    return None if file is None else SqliteStore(str(file), clock)


def make_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    clock: Clock | None = None,
    queues: Sequence[str] = ("default",),
    slots: int = 100,
    beat_store: Store | None = None,
    version: str = "",
) -> Worker:
    return Worker(
        store, clock or SystemClock(), handlers, queues=queues, slots=slots, beat_store=beat_store, version=version
    )


def make_dispatcher(store: Store, owner: int, *, clock: Clock | None = None) -> Dispatcher:
    return Dispatcher(store, clock or SystemClock(), owner=owner)


def make_reaper(store: Store, *, clock: Clock | None = None) -> Reaper:
    return Reaper(store, clock or SystemClock(), random.random)


async def run_scheduler(
    store: Store, stop: asyncio.Event, *, cards: Sequence[JobCard] = (), version: str = "", clock: Clock | None = None
) -> None:
    """A scheduler process, from its registration until `stop` is set and its shard is given up."""
    clock = clock or SystemClock()
    instance = await store.register("scheduler", version=version, queues=(), slots=0, jobs=cards)
    dispatcher = make_dispatcher(store, instance.number, clock=clock)
    beating = asyncio.create_task(_beat(store, instance.number, clock))
    try:
        await asyncio.gather(dispatcher.run(stop), make_reaper(store, clock=clock).run(stop))
    finally:
        beating.cancel()
        await dispatcher.release()
        await store.retire(instance.number)


async def _beat(store: Store, number: int, clock: Clock) -> None:
    while True:
        await clock.sleep(BEAT_EVERY)
        try:
            await store.beat(number, [])
        except FoliotError as error:  # the next one is not far
            _log.warning("the scheduler's heartbeat failed: %s", error)
        except Exception:  # a bug, here or in the store; without a heartbeat a scheduler that works would seem dead
            _log.exception("the scheduler's heartbeat failed")


async def run_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    stop: asyncio.Event,
    *,
    grace: Duration,
    queues: Sequence[str],
    slots: int,
    version: str = "",
    clock: Clock | None = None,
) -> list[str]:
    """A worker process, from its registration until `stop` is set and it is drained.

    Answers which runs still execute: their threads outlived the grace, and only `os._exit` ends them. The heartbeat
    has a handle of its own, because one long request must not keep the worker from saying that it lives.
    """
    beat_store = _another_handle(store, clock)
    if beat_store is not None:
        await open_store(beat_store)
    worker = make_worker(
        store, handlers, clock=clock, queues=queues, slots=slots, beat_store=beat_store, version=version
    )
    try:
        await worker.start()
        working = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            await working  # it ends by itself only when it cannot go on, and then this raises
        executing = await worker.drain(grace)
        await working
        return executing
    finally:
        if beat_store is not None:
            await worker.heartbeat.stop()
            await beat_store.close()
