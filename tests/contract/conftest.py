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


@pytest.fixture(
    params=[pytest.param(engine, id=name, marks=pytest.mark.needs(engine.part)) for name, engine in ENGINES.items()]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    given: Engine = request.param
    return given


IN_MEMORY = (
    "test_life.py",
    "test_promising.py",
    "test_firing.py",
    "test_claiming.py",
    "test_finishing.py",
    "test_parts.py",
)
"""What a store in memory is held to each time. It is the one in a file at another address, and every test in virtual
time is played on it; in the long form it is held to the rest, too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("FOLIOT_TORTURE"):
        return
    here = Path(__file__).parent
    left = [
        item
        for item in items
        if item.path.parent == here and item.path.name not in IN_MEMORY and "[sqlite-memory" in item.name
    ]
    if left:
        gone = set(left)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left)


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
