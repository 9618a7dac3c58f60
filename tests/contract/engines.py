"""The engines that the contract is held against. Another one joins here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from foliot.clock import Clock
from foliot.domain.store import Store
from foliot.store.postgres import PostgresStore
from foliot.store.sqlite import SqliteStore, migrating
from tests.servers.emptied import emptied
from tests.servers.warm import Warm
from tests.waiting import until_async


class Engine(NamedTuple):
    part: str
    """What it needs to be there; see tests/conftest.py."""
    make: Callable[[pytest.FixtureRequest, Path, Clock], Store]
    """A store that is not open yet, on nothing: each test has its own."""


def _sqlite(request: pytest.FixtureRequest, folder: Path, clock: Clock) -> Store:
    """On a file that has its tables already; `tests/store/test_sqlite_file.py` begins with none."""
    file = folder / "foliot.db"
    file.write_bytes(_tables())
    return SqliteStore(str(file), clock)


@cache
def _tables() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "foliot.db"
        migrating.bring(str(file))
        return file.read_bytes()


def _postgres(request: pytest.FixtureRequest, folder: Path, clock: Clock) -> Store:
    """With one shard, as SQLite has, so that a test that takes shard 0 has all; `test_shards` is about many."""
    warm: Warm = request.getfixturevalue("warm")
    return warm.store(emptied(request.getfixturevalue("postgres"), shards=1, by_socket=True), clock)


ENGINES: dict[str, Engine] = {
    "sqlite": Engine("sqlite", _sqlite),
    "sqlite-memory": Engine("sqlite", lambda request, folder, clock: SqliteStore(":memory:", clock)),
    "postgres": Engine("postgres", _postgres),
}


async def all_sent(store: Store) -> None:
    """Wait until the server has every wake-up that this store sends. A session that listens later gets none of them."""
    if isinstance(store, PostgresStore):
        await until_async(lambda: store.bell._sender is None, "the store has sent its wake-ups")


async def listening(store: Store) -> None:
    """Wait until this store listens for wake-ups. Before that, its version changes with the time."""
    if isinstance(store, PostgresStore):
        await until_async(lambda: store.bell._has_ears, "the store listens for wake-ups")
