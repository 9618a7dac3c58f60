"""The engines that the contract is held against. Another one joins here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from foliot.clock import Clock
from foliot.domain.store import Store
from foliot.store.sqlite import SqliteStore


class Engine(NamedTuple):
    part: str
    """What it needs to be there; see tests/conftest.py."""
    make: Callable[[Path, Clock], Store]
    """A store that is not open yet, on nothing: each test has its own."""


ENGINES: dict[str, Engine] = {
    "sqlite": Engine("sqlite", lambda folder, clock: SqliteStore(str(folder / "foliot.db"), clock)),
    "sqlite-memory": Engine("sqlite", lambda folder, clock: SqliteStore(":memory:", clock)),
}
