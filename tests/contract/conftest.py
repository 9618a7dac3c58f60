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
