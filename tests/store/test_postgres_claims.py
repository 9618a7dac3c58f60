"""A claim is one row until somebody needs more: what must hold while runs look pending and are not."""

from __future__ import annotations

import asyncio

import asyncpg

from foliot.domain.instant import SECOND
from foliot.domain.run import Promise
from foliot.domain.state import State
from tests.servers.postgres import PostgresServer
from tests.store.callers import School
from tests.store.lines import in_chunks, stages, until_locks_are_waited_for
from tests.store.test_postgres_complete import complete, transaction
from tests.tiers import by_tier
from tests.waiting import soon, until_async


async def test_a_run_that_ends_well_is_never_written_in_between(school: School) -> None:
    run = await school.running("class:7")
    assert await school.rows("SELECT state, token, attempt FROM foliot.run") == [(0, None, 0)]
    assert (await school.run(run)).state is State.RUNNING
    assert (await school.store.counts())["running"] == 1
    assert await school.finish(school.succeeded(run)) == []
    ended = await school.run(run)
    assert (ended.state, ended.attempt, ended.worker) == (State.SUCCEEDED, 1, await school.worker())
    assert await school.rows("SELECT 1 FROM foliot.claim") == []


async def test_a_run_that_two_chunks_name_is_claimed_once_by_workers_that_come_one_after_the_other(
    school: School,
) -> None:
    run = await school.running("class:7")
    await school.rows(_CHUNK, [run.number], school.now)
    other = await school.register()
    assert await school.claim(worker=other) == []
    assert await school.rows("SELECT numbers FROM foliot.handoff") == [], "and nobody is asked again"
    assert await school.finish(school.succeeded(run)) == []


async def test_a_run_that_many_chunks_name_is_claimed_once_by_workers_that_come_together(
    postgres: PostgresServer,
) -> None:
    async with stages(postgres, 4) as (judge, four):
        for _ in range(by_tier(6, 30)):
            made = await four[0].store.promise([Promise("job", b"{}", four[0].now) for _ in range(5)])
            numbers = [kept.number for kept in made]
            for _ in range(8):
                await judge.execute(_CHUNK, numbers, four[0].now)
            claims = await asyncio.gather(*(stage.claim() for stage in four * 2))
            assert sorted(run.number for claim in claims for run in claim) == sorted(numbers)
            endings = [[stage.succeeded(run) for run in claim] for stage, claim in zip(four * 2, claims, strict=True)]
            fenced = await asyncio.gather(
                *(stage.finish(*ended) for stage, ended in zip(four * 2, endings, strict=True) if ended)
            )
            assert not any(fenced)
        assert await judge.fetchval("SELECT count(*) FROM foliot.history") == 5 * by_tier(6, 30)


async def test_one_claim_that_finds_a_run_in_two_chunks_takes_it_once(school: School) -> None:
    kept = await school.store.promise([Promise("job", b"{}", school.now) for _ in range(6)])
    numbers = [one.number for one in kept]
    await school.rows(_CHUNK, numbers[:4], school.now)
    await school.rows(_CHUNK, numbers[3:], school.now)
    runs = await school.claim(100)  # the first claim of a worker takes a chunk for each run that it wants
    assert sorted(run.number for run in runs) == numbers
    assert await school.rows("SELECT sum(open), sum(cardinality(numbers)) FROM foliot.claim") == [(6, 6)]
    assert await school.finish(*map(school.succeeded, runs)) == []
    assert await school.rows("SELECT 1 FROM foliot.claim") == []
    assert await school.rows("SELECT numbers FROM foliot.handoff") == []


async def test_what_a_claim_leaves_of_a_chunk_waits_in_it(school: School) -> None:
    kept = await school.store.promise([Promise("job", b"{}", school.now) for _ in range(5)])
    await school.fire()
    assert [run.number for run in await school.claim(2)] == [one.number for one in kept[:2]]
    assert await school.rows("SELECT numbers FROM foliot.handoff") == [([one.number for one in kept[2:]],)]


async def test_a_chunk_of_which_a_run_is_gone_is_claimed_without_it(school: School) -> None:
    kept = await school.store.promise([Promise("job", b"{}", school.now) for _ in range(5)])
    await school.fire()
    await school.store.cancel(kept[2].id, actor="ana", note="")
    runs = await school.claim(100)
    assert [run.number for run in runs] == [one.number for one in kept if one is not kept[2]]
    assert await school.rows("SELECT open, cardinality(numbers) FROM foliot.claim") == [(4, 4)]
    assert await school.rows("SELECT numbers FROM foliot.handoff") == []


async def test_runs_of_a_chunk_are_begun_in_the_order_in_which_they_were_due(school: School) -> None:
    """Whoever has few threads begins them one after the other; their numbers say only when they were promised."""
    kept = await school.store.promise([Promise("job", b"{}", school.now - back * SECOND) for back in range(5)])
    await school.fire()
    assert [run.number for run in await school.claim(100)] == [one.number for one in reversed(kept)]


async def test_a_claim_that_found_smaller_chunks_than_it_thought_says_that_there_may_be_more(school: School) -> None:
    """It takes about as many chunks as it needs, by what they held lately; a worker that believes to have all does not
    ask again."""
    kept = await school.store.promise([Promise("job", b"{}", school.now) for _ in range(150)])
    numbers = [one.number for one in kept]
    await school.rows(_CHUNK, numbers[:100], school.now)
    assert len(await school.claim(120)) == 100
    for number in numbers[100:]:
        await school.rows(_CHUNK, [number], school.now)
    before = school.store.version()
    assert 0 < len(await school.claim(40)) < 40
    assert school.store.version() != before


async def test_a_run_that_was_cancelled_before_its_claim_is_never_begun(postgres: PostgresServer) -> None:
    """Whoever cancels has the run in hand; a claim that comes meanwhile passes it over."""
    async with stages(postgres, 2) as (judge, [operator, worker]):
        kept = await operator.promise("class:7")
        await operator.fire()
        async with _Locked(judge, kept.number):
            assert await worker.claim() == []
        await operator.store.cancel(kept.id, actor="ana", note="")

        async def is_passed_over() -> bool:
            assert await worker.claim() == []
            return not await in_chunks(judge)

        await until_async(is_passed_over, "a claim has looked again at the run that lay aside")
        assert await operator.state(kept) is State.CANCELLED


async def test_a_run_that_is_claimed_while_somebody_cancels_it_is_asked_to_stop(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [operator, worker]):
        kept = await operator.promise("class:7")
        await operator.fire()
        [run] = await worker.claim()
        async with _Locked(judge, kept.number):
            cancelling = asyncio.create_task(operator.store.cancel(kept.id, actor="ana", note=""))
            await until_locks_are_waited_for(judge)
        assert (await cancelling).outcome == "asked"
        assert (await worker.store.beat(await worker.worker(), [])).cancel == [run.number]
        assert await worker.finish(worker.stopped(run)) == []
        assert await operator.state(kept) is State.CANCELLED


async def test_one_run_of_a_claim_fails_while_another_is_completed_in_an_open_transaction(school: School) -> None:
    """Nobody waits for the transaction; and what was given up under the claim is not the claim's any more."""
    for _ in range(3):
        await school.promise()
    await school.fire()
    done, failed, other = await school.claim()
    async with transaction(school) as caller:
        await complete(caller, done)
        ending = school.failed(failed, retry_in=SECOND)
        assert await soon(school.finish(ending, school.succeeded(other))) == []
        assert await school.rows("SELECT written, open FROM foliot.claim") == [(False, 1)]
    assert [await school.state(run) for run in (done, failed, other)] == [
        State.SUCCEEDED,
        State.RETRYING,
        State.SUCCEEDED,
    ]
    school.clock.advance(2 * SECOND)
    await school.fire()
    [again] = await school.claim()
    assert (again.number, again.attempt) == (failed.number, 2)
    await school.finish(school.succeeded(failed))
    assert await school.state(again) is State.RUNNING, "the old token is of no use"
    assert await school.finish(school.succeeded(again)) == []


async def test_what_a_lost_worker_had_is_not_its_claims_any_more(school: School) -> None:
    for _ in range(2):
        await school.promise()
    await school.fire()
    lost, kept = await school.claim()
    await school.store.lose([school.lost(lost, retry_at=school.now)])
    assert await school.state(kept) is State.RUNNING
    await school.fire()
    [again] = await school.claim()
    assert again.number == lost.number
    assert await school.finish(school.succeeded(lost)) == [school.succeeded(lost)]
    assert await school.finish(school.succeeded(kept), school.succeeded(again)) == []


async def test_a_heartbeat_writes_what_has_been_running_for_a_while(school: School) -> None:
    run = await school.running("class:7")
    worker = await school.worker()
    await school.store.beat(worker, [])
    assert await school.rows("SELECT written FROM foliot.claim") == [(False,)]
    school.clock.advance(2 * SECOND)
    await school.store.beat(worker, [])
    assert await school.rows("SELECT state, token, worker FROM foliot.run") == [(4, run.token, worker)]
    assert await school.rows("SELECT written FROM foliot.claim") == [(True,)]
    assert await school.finish(school.succeeded(run)) == []


async def test_a_new_owner_does_not_fire_what_is_running(school: School) -> None:
    run = await school.running("class:7")
    assert (await school.fire()).handed_off == 0
    assert await school.rows("SELECT 1 FROM foliot.handoff") == []
    assert await school.finish(school.succeeded(run)) == []


async def test_a_tick_that_ends_well_lets_go_what_waited_for_it(postgres: PostgresServer) -> None:
    """Under the schedule's lock: whoever holds a tick because this run is busy has done so by then."""
    async with stages(postgres, 1) as (judge, [stage]):
        run = await stage.running_tick()
        await judge.execute("UPDATE foliot.run SET state = 2 WHERE schedule = 'hourly' AND number <> $1", run.number)
        assert await stage.finish(stage.succeeded(run)) == []
        assert await judge.fetchval("SELECT count(*) FROM foliot.run WHERE state = 2") == 0


async def test_a_chunk_that_is_larger_than_two_workers_want_is_shared_by_them(postgres: PostgresServer) -> None:
    async with stages(postgres, 5) as (judge, five):
        await five[0].store.promise([Promise("job", b"{}", five[0].now) for _ in range(50)])
        await five[0].fire()
        assert len(await in_chunks(judge)) == 50
        claims = await asyncio.gather(*(stage.claim(10) for stage in five))
        assert [len(claim) for claim in claims] == [10] * 5


_CHUNK = "INSERT INTO foliot.handoff (queue, lane, priority, fired_at, numbers) VALUES ('default', 0, 0, $2, $1)"


class _Locked:
    """Somebody has this run in hand."""

    def __init__(self, judge: asyncpg.Connection, number: int) -> None:
        self._judge = judge
        self._number = number

    async def __aenter__(self) -> None:
        await self._judge.execute("BEGIN")
        await self._judge.execute("SELECT 1 FROM foliot.run WHERE number = $1 FOR UPDATE", self._number)

    async def __aexit__(self, *_: object) -> None:
        await self._judge.execute("COMMIT")
