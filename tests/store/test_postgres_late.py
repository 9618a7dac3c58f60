"""A statement whose connection was lost may still be under way: on the server, where it waits for a lock, or in the
network. It was said again meanwhile, and must not count a second time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import asyncpg
import pytest

from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.run import OnConflict
from foliot.errors import StoreError
from foliot.store.postgres import PostgresStore
from tests.contract.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.store.lines import Line, backends_alive, backends_in_use, end_of_late_statements, end_waits_for_answers, line
from tests.tiers import full_only
from tests.waiting import until_async

KEYED = "foliot.make_promise("


@asynccontextmanager
async def locked(to: Line, *statements: str) -> AsyncIterator[None]:
    """Somebody else's transaction, which is open and is rolled back in the end."""
    connection = await asyncpg.connect(to.dsn)
    block = connection.transaction()
    await block.start()
    try:
        for statement in statements:
            await connection.execute(statement)
        yield
    finally:
        await block.rollback()
        await connection.close()


async def waiting(to: Line, *, besides: Collection[int] = ()) -> set[int]:
    """The backends that wait for a lock, once one does that did not wait before."""

    async def more() -> set[int]:
        found = {row[0] for row in await to.ask("SELECT pid FROM pg_locks WHERE NOT granted")}
        return found if found.difference(besides) else set()

    return await until_async(more, "another statement waits for a lock")


@asynccontextmanager
async def delayed(to: Line, where: str) -> AsyncIterator[None]:
    """The network keeps one such statement back, and its sender gives up. The statement goes on to the server when the
    block ends, and has done there what it does when this returns."""
    fault = to.proxy.freeze_before(where)
    in_use: set[int] = set()

    async def give_up() -> None:
        await fault
        in_use.update(backends_in_use(to))
        end_waits_for_answers()

    giving_up = asyncio.create_task(give_up())
    yield
    await giving_up
    frozen = {link for link in to.proxy.links if not link.flowing.is_set()}
    assert len(frozen) == 1
    to.proxy.thaw()
    await until_async(lambda: not frozen & to.proxy.links, "the proxy has passed on what it kept back")
    lost = in_use - backends_alive(to)
    assert lost
    await end_of_late_statements(to, lost)


async def test_a_promise_that_was_delayed_in_the_network_is_not_made_after_it_has_ended(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        async with delayed(to, "INSERT INTO foliot.run"):
            kept = await to.stage.promise()
            await to.stage.fire()
            [run] = await to.stage.claim()
            assert await to.stage.finish(to.stage.succeeded(run)) == []
        assert await to.runs() == [kept.number]


async def test_a_promise_that_waits_for_a_lock_when_its_connection_is_cut_is_made_once(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        async with locked(to, "LOCK TABLE foliot.run IN SHARE MODE"):
            making = asyncio.create_task(to.stage.promise(after=HOUR))
            first = await waiting(to)
            to.proxy.cut_all()
            await waiting(to, besides=first)
        kept = await making
        await end_of_late_statements(to)
        assert await to.runs() == [kept.number]


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        pytest.param(mode, options, id=f"{mode}-{way}", marks=() if short else full_only)
        for place, mode in enumerate(OnConflict)
        for way, options, short in (
            ("direct", "", place % 2 == 0),
            ("as through a pooler", "?pooler=transaction", place % 2 == 1),
        )
    ],
)
async def test_a_key_that_waits_for_another_when_its_connection_is_cut_is_made_once(
    postgres: PostgresServer, mode: OnConflict, options: str
) -> None:
    async with line(postgres, options) as to:
        async with locked(to, "INSERT INTO foliot.named VALUES ('class:7#1', 1)"):
            making = asyncio.create_task(to.stage.promise("class:7", after=HOUR, on_conflict=mode))
            first = await waiting(to)
            to.proxy.cut_all()
            await waiting(to, besides=first)
        kept = await making
        await end_of_late_statements(to)
        assert kept.name == "class:7#1"
        assert await to.runs() == [kept.number]


async def test_a_renewal_that_was_delayed_in_the_network_does_not_renew_again(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        run = await to.stage.running("class:7")
        await to.stage.finish(to.stage.succeeded(run))
        async with delayed(to, KEYED):
            kept = await to.stage.promise("class:7", on_conflict=OnConflict.RENEW)
            await to.stage.fire()
            [again] = await to.stage.claim()
            await to.stage.finish(to.stage.succeeded(again))
        assert await to.runs() == [run.number, kept.number]


async def test_a_replacement_that_was_made_and_then_claimed_is_not_called_a_conflict(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        direct = PostgresStore(to.dsn)
        await direct.open()
        other = Stage(direct, to.stage.clock)
        fault = to.proxy.cut_after_commit(KEYED)
        to.proxy.refuse()  # new connections only: nobody can ask what became of it
        replacing = asyncio.create_task(
            to.stage.promise("class:7", payload=b'{"new": 1}', on_conflict=OnConflict.REPLACE)
        )
        await fault
        await other.fire()
        [run] = await other.claim()
        to.proxy.allow()
        assert (await replacing).outcome == "replaced"
        assert run.payload == b'{"new": 1}'
        await other.finish(other.succeeded(run))
        await direct.close()


async def test_a_replacement_that_was_delayed_in_the_network_does_not_undo_a_later_one(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        async with delayed(to, KEYED):
            await to.stage.promise("class:7", after=HOUR, payload=b'"first"', on_conflict=OnConflict.REPLACE)
            await to.stage.promise("class:7", after=HOUR, payload=b'"second"', on_conflict=OnConflict.REPLACE)
        assert (await to.stage.run("class:7#1")).payload == b'"second"'


async def test_a_change_that_waits_for_a_lock_when_its_connection_is_cut_is_made_once(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        kept = await to.stage.promise("class:7", after=HOUR)
        async with locked(to, f"SELECT 1 FROM foliot.run WHERE number = {kept.number} FOR UPDATE"):
            moving = asyncio.create_task(to.store.move("class:7", None, to.stage.now + MINUTE))
            first = await waiting(to)
            to.proxy.cut_all()
            await waiting(to, besides=first)
        await moving
        await end_of_late_statements(to)
        assert await to.count("stir WHERE numbers = ARRAY[$1::bigint]", kept.number) == 1


async def test_a_claim_that_waits_for_a_lock_when_its_connection_is_cut_is_found_again(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        kept = await to.stage.promise()
        await to.stage.fire()
        await to.stage.worker()
        async with locked(to, "LOCK TABLE foliot.claim IN SHARE MODE"):
            claiming = asyncio.create_task(to.stage.claim())
            await waiting(to)
            to.proxy.cut_all()
            with pytest.raises(StoreError):
                await claiming
        await end_of_late_statements(to)
        [run] = await to.stage.claim()
        assert (run.number, run.attempt) == (kept.number, 1)
        assert await to.count("claim") == 1


async def test_a_claim_that_was_delayed_in_the_network_takes_nothing_from_the_next_one(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        kept = await to.stage.promise()
        await to.stage.fire()
        await to.stage.worker()
        async with delayed(to, "foliot.claim_runs("):
            with pytest.raises(StoreError):
                await to.stage.claim()
            [run] = await to.stage.claim()
        assert await to.stage.claim() == []
        assert (run.number, run.attempt) == (kept.number, 1)
        assert await to.stage.finish(to.stage.succeeded(run)) == []


async def test_an_ending_that_waits_for_a_lock_when_its_connection_is_cut_counts_once(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        run = await to.stage.running()
        ending = to.stage.succeeded(run)
        async with locked(to, "SELECT 1 FROM foliot.claim FOR UPDATE"):
            finishing = asyncio.create_task(to.stage.finish(ending))
            first = await waiting(to)
            to.proxy.cut_all()
            with pytest.raises(StoreError):
                await finishing
            again = asyncio.create_task(to.stage.finish(ending))
            await waiting(to, besides=first)
        assert await again == []
        await end_of_late_statements(to)
        assert await to.runs() == [run.number]
        assert await to.count("claim") == 0


async def test_a_firing_that_was_delayed_in_the_network_is_refused_by_its_epoch(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        kept = await to.stage.promise()
        await to.stage.scheduler()
        async with delayed(to, "foliot.fire_runs("):
            with pytest.raises(Exception, match="the answer to a firing was lost"):
                await to.stage.fire()
            assert (await to.stage.fire()).handed_off == 1
        assert await to.ask("SELECT numbers FROM foliot.handoff") == [([kept.number],)]


async def test_what_was_claimed_is_ours_although_the_rest_cannot_be_looked_at(postgres: PostgresServer) -> None:
    async with line(postgres, patience=0) as to:
        kept = await to.stage.promise()
        await to.stage.promise(job="unknown")
        await to.stage.fire()
        await to.stage.worker()
        fault = to.proxy.cut_before("WHERE aside FOR UPDATE")
        to.proxy.refuse()
        [run] = await to.stage.claim()
        assert fault.happened
        assert run.number == kept.number
        to.proxy.allow()
        assert await to.stage.claim() == []
        [other] = await to.stage.claim(jobs=["unknown"])
        assert other.job == "unknown"


async def test_two_workers_of_one_store_find_their_own_claims_again(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        workers = [await to.stage.register() for _ in range(2)]
        for worker in workers:
            await to.stage.promise()
            await to.stage.fire()
            to.proxy.cut_after_commit("foliot.claim_runs(")
            with pytest.raises(StoreError):
                await to.stage.claim(worker=worker)
        answers = await asyncio.gather(*(to.stage.claim(worker=worker) for worker in workers * 2))
        owners = {row[0]: row[1] for row in await to.ask("SELECT number, worker FROM foliot.live_runs")}
        got = [(run.number, worker) for worker, runs in zip(workers * 2, answers, strict=True) for run in runs]
        assert sorted(got) == sorted(owners.items())
