from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from foliot.clock import ManualClock
from tests.contract.stage import START
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.warm import Warm
from tests.store.callers import CALLERS, Caller, School, callers_for
from tests.store.lines import Kept, keep


@pytest.fixture
def runner(lasting_runner: asyncio.Runner) -> asyncio.Runner:
    return lasting_runner


@pytest.fixture(autouse=True)
def in_the_lasting_loop(request: pytest.FixtureRequest) -> None:
    """Async tests on PostgreSQL run in one loop, whose connections outlive a test: see `tests.servers.warm`."""
    names = request.fixturenames
    if inspect.iscoroutinefunction(request.function) and "postgres" in names and "runner" not in names:
        request.node.funcargs["runner"] = request.getfixturevalue("runner")
        keep(request.getfixturevalue("kept"))


@pytest.fixture(scope="session")
def kept(postgres: PostgresServer, warm: Warm) -> Iterator[Kept]:
    with Proxy(postgres.port) as proxy:
        yield Kept(warm, proxy)


@pytest.fixture
def school(postgres: PostgresServer, warm: Warm, runner: asyncio.Runner) -> Iterator[School]:
    """An app on an empty store in PostgreSQL, in virtual time, which callers' own connections begin with, too."""
    dsn, clock = emptied(postgres, shards=1), ManualClock(START)
    name = urlsplit(dsn).path[1:]
    store = warm.store(postgres.socket_dsn(name), clock)
    runner.run(store.open())
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {name} SET foliot.now = '{START}'")
        yield School(store, clock, dsn)
        owner.execute(f"ALTER DATABASE {name} RESET foliot.now")
    runner.run(store.close())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `caller` runs with each library; in the short form with some, in turn."""
    if "caller" in metafunc.fixturenames:
        metafunc.parametrize("caller", callers_for(metafunc.function), indirect=True)


@pytest.fixture
def caller(request: pytest.FixtureRequest, school: School, runner: asyncio.Runner) -> Iterator[Caller]:
    """A connection of one of the libraries that a caller may have its transactions with."""
    opened = CALLERS[request.param](school.dsn)
    yield runner.run(opened.__aenter__())
    runner.run(opened.__aexit__(None, None, None))
