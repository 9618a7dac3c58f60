from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from foliot.clock import ManualClock
from foliot.store.postgres import PostgresStore
from tests.contract.stage import START
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.store.callers import CALLERS, Caller, School


@pytest.fixture
def school(postgres: PostgresServer, runner: asyncio.Runner) -> Iterator[School]:
    """An app on an empty store in PostgreSQL, in virtual time, which callers' own connections begin with, too."""
    dsn = emptied(postgres, shards=1)
    name, clock = urlsplit(dsn).path[1:], ManualClock(START)
    store = PostgresStore(dsn, clock)
    runner.run(store.open())
    postgres.psql(f"ALTER DATABASE {name} SET foliot.now = '{START}'")
    yield School(store, clock, dsn)
    postgres.psql(f"ALTER DATABASE {name} RESET foliot.now")
    runner.run(store.close())


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, school: School, runner: asyncio.Runner) -> Iterator[Caller]:
    """Each library that a caller may have its transactions with."""
    opened = CALLERS[request.param](school.dsn)
    yield runner.run(opened.__aenter__())
    runner.run(opened.__aexit__(None, None, None))
