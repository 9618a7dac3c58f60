from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from foliot.clock import ManualClock
from tests.contract.stage import START
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.warm import Warm
from tests.store.callers import CALLERS, Caller, School


@pytest.fixture
def runner(lasting_runner: asyncio.Runner) -> asyncio.Runner:
    return lasting_runner


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


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, school: School, runner: asyncio.Runner) -> Iterator[Caller]:
    """Each library that a caller may have its transactions with."""
    opened = CALLERS[request.param](school.dsn)
    yield runner.run(opened.__aenter__())
    runner.run(opened.__aexit__(None, None, None))
