"""The only place that knows which concrete parts go together."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

from foliot.clock import Clock, SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.store import Store
from foliot.errors import InvalidInput
from foliot.store.sqlite import SqliteStore
from foliot.watch.reaper import Reaper
from foliot.work.handler import Handler
from foliot.work.worker import Worker

DEFAULT_STORE = "sqlite:///foliot.db"


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


def make_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    clock: Clock | None = None,
    queues: Sequence[str] = ("default",),
    slots: int = 100,
    beat_store: Store | None = None,
) -> Worker:
    return Worker(store, clock or SystemClock(), handlers, queues=queues, slots=slots, beat_store=beat_store)


def make_dispatcher(store: Store, owner: int, *, clock: Clock | None = None) -> Dispatcher:
    return Dispatcher(store, clock or SystemClock(), owner=owner)


def make_reaper(store: Store, *, clock: Clock | None = None) -> Reaper:
    return Reaper(store, clock or SystemClock(), random.random)
