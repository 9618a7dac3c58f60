from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from foliot.clock import ManualClock
from foliot.domain.store import Store
from tests.contract.engines import ENGINES, Engine
from tests.contract.stage import START, Stage
from tests.tiers import full_only


@pytest.fixture(
    params=[pytest.param(engine, id=name, marks=pytest.mark.needs(engine.part)) for name, engine in ENGINES.items()]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    given: Engine = request.param
    return given


IN_MEMORY = ("test_life.py", "test_promising.py", "test_handler_transactions.py")
"""Files that the short form also plays on a store in memory. It differs from a store in a file in how it opens, closes,
reads, counts its version and lends its connection. The verbs are the same, and tests in virtual time use those."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name not in IN_MEMORY and "[sqlite-memory" in item.name:
            item.add_marker(full_only)


@pytest.fixture
def runner(lasting_runner: asyncio.Runner) -> asyncio.Runner:
    return lasting_runner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where an engine may keep files: in memory if the host can, because nothing here is proved by a slow fsync."""
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def store(
    engine: Engine, clock: ManualClock, folder: Path, runner: asyncio.Runner, request: pytest.FixtureRequest
) -> Iterator[Store]:
    """An open, empty store, whose clock is the test's."""
    made = engine.make(request, folder, clock)
    runner.run(made.open())
    yield made
    runner.run(made.close())


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)
