"""Through pgbouncer in transaction mode: each transaction may be another session, which others use in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

import asyncpg
import pytest

from foliot.clock import SystemClock
from foliot.domain.instant import HOUR
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.bell import UNHEARD_EVERY
from tests.contract.stage import Stage, deciding, declared, fires_hourly
from tests.servers.emptied import emptied
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.tiers import full_only
from tests.waiting import until_async

pytestmark = pytest.mark.needs("pgbouncer")


def with_sessions(count: int) -> pytest.MarkDecorator:
    """How many sessions the pooler has; the full form tries one for all clients, and two."""
    counts = [
        pytest.param(each, id=name, marks=() if each == count else full_only)
        for each, name in ((1, "one session for all"), (2, "two sessions"))
    ]
    return pytest.mark.parametrize("pooler", counts, indirect=True)


@pytest.fixture
def pooler(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[PgBouncer]:
    with PgBouncer(postgres, pool_size=request.param) as pooler:
        yield pooler


@asynccontextmanager
async def clients(
    postgres: PostgresServer, pooler: PgBouncer, count: int, more: str = ""
) -> AsyncIterator[list[Stage]]:
    """So many stores that share the pooler's few sessions."""
    url = f"{pooler.through(emptied(postgres, shards=1))}?pooler=transaction{more}"
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            store = PostgresStore(url)
            await store.open()
            stack.push_async_callback(store.close)
            made.append(Stage(store, SystemClock()))  # type: ignore[arg-type]
        yield made


async def live(stage: Stage, name: str) -> None:
    """The whole life of a few promises and of a schedule."""
    await stage.apply(declared(name, stage.now))
    keys = [f"{name}:{n}" if n % 2 else None for n in range(9)]
    await stage.store.promise([Promise("job", b"{}", stage.now, key=key) for key in keys])
    await asyncio.gather(*(stage.promise(after=random.choice([0, HOUR])) for _ in range(20)))
    await stage.store.trigger(name, actor="me", note="")
    await stage.store.pause(name, until=None, actor="me", note="")
    await stage.store.resume(name, actor="me", note="")
    assert (await stage.store.schedule(name)).schedule.revision == 1
    await stage.store.beat(await stage.worker(), [])


@with_sessions(1)
async def test_a_run_lives_its_whole_life_through_a_pooler_that_several_clients_share(
    postgres: PostgresServer, pooler: PgBouncer
) -> None:
    async with clients(postgres, pooler, 3) as them:
        await asyncio.gather(*(live(stage, f"s{n}") for n, stage in enumerate(them)))
        scheduler, *workers = them
        lease = await scheduler.lease()
        due = [entry for entry in await scheduler.loaded(lease) if entry[0] <= scheduler.now]
        await scheduler.store.fire([lease], due, lease.cursor, deciding(fires_hourly))

        async def work(stage: Stage) -> int:
            done = 0
            while runs := await stage.claim(5):
                endings = [random.choice([stage.succeeded, stage.died])(run) for run in runs]
                assert await stage.finish(*endings) == []
                done += len(runs)
            return done

        assert sum(await asyncio.gather(*map(work, workers))) == len(due)
        left = [run for run in await scheduler.store.runs(limit=500) if run.state in (State.READY, State.RUNNING)]
        assert left == []
        assert (await scheduler.store.health())["pooler"] == "transaction"


@with_sessions(2)
async def test_nothing_is_left_in_a_session_for_its_next_user(postgres: PostgresServer, pooler: PgBouncer) -> None:
    async with clients(postgres, pooler, 2) as them:
        fresh = await asyncpg.connect(postgres.dsn("contract"))
        settings = "statement_timeout lock_timeout jit enable_seqscan synchronous_commit application_name".split()
        wanted = {name: await fresh.fetchval(f"SHOW {name}") for name in settings if name != "application_name"}
        await fresh.close()
        await asyncio.gather(*(live(stage, f"s{n}") for n, stage in enumerate(them)))
        connections = [await asyncpg.connect(pooler.dsn("contract"), statement_cache_size=0) for _ in range(2)]
        # Both at once in a transaction each, as far as the pooler has two: every session is looked at.
        blocks = [connection.transaction() for connection in connections[: int(pooler.settings["default_pool_size"])]]
        for block in blocks:
            await block.start()
        for connection in connections[: int(pooler.settings["default_pool_size"])]:
            assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
            assert {name: await connection.fetchval(f"SHOW {name}") for name in wanted} == wanted
        for block in blocks:
            await block.rollback()
        for connection in connections:
            await connection.close()


async def heard(stage: Stage, before: int, other: Stage) -> None:
    """Until the store's version says that something is new."""
    await other.promise()
    await until_async(lambda: stage.store.version() != before, "the store has heard of the promise")


@with_sessions(2)
async def test_with_an_address_to_listen_at_wake_ups_come_past_the_pooler(
    postgres: PostgresServer, pooler: PgBouncer
) -> None:
    async with clients(postgres, pooler, 2, f"&listen={quote(postgres.dsn('contract'), safe='')}") as [one, other]:
        await one.register("scheduler")
        bell = one.store._here().bell  # type: ignore[attr-defined]
        await until_async(lambda: bell._has_ears, "the store listens")
        before = one.store.version()
        await asyncio.sleep(2 * UNHEARD_EVERY)  # without news nothing changes: it listens, and does not only look
        assert one.store.version() == before
        await heard(one, before, other)


@with_sessions(1)
async def test_without_one_it_looks_instead(postgres: PostgresServer, pooler: PgBouncer) -> None:
    async with clients(postgres, pooler, 1) as [one]:
        await one.register("scheduler")
        before = one.store.version()
        # "Everything may be new" after a fiftieth of a second.
        await until_async(lambda: one.store.version() != before, "the version changes by itself")


async def test_verbs_are_read_committed_whatever_the_database_prefers(
    postgres: PostgresServer, pgbouncer: PgBouncer, database: str
) -> None:
    """Who waited for a lock has to see what its holder did."""
    name = database.rpartition("/")[2]
    postgres.psql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    store = PostgresStore(f"{pgbouncer.through(database)}?pooler=transaction")
    await store.open()
    asked = "SHOW transaction_isolation"
    assert await store.write(lambda tx: tx._connection.fetchval(asked)) == "read committed"
    assert (await store._state(asked, []))[0][0] == "read committed"
    await store.close()
