"""Nobody waits for somebody else's open transaction who need not, and nobody is forgotten while he waits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg
import pytest

from foliot import Foliot
from foliot.bootstrap import make_worker
from foliot.clock import SystemClock
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import OnConflict, Progress, Promise
from foliot.domain.state import State
from foliot.errors import Conflict, StoreClosed
from foliot.store.postgres import PostgresStore
from foliot.store.verbs import following, working
from foliot.work import worker as workers
from tests.contract.stage import Stage, declared
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.store.callers import CALLERS, School
from tests.store.lines import stages
from tests.store.test_postgres_complete import complete, transaction
from tests.waiting import soon, until_async

_A_LOCK_IS_WAITED_FOR = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def _write(stage: Stage, work: Any) -> Any:
    assert isinstance(stage.store, PostgresStore)
    return stage.store.write(work, hot=True)


async def test_beat_does_not_wait_for_an_ending_that_waits_for_a_caller(school: School) -> None:
    for _ in range(2):
        await school.promise()
    await school.fire()
    done, _other = await school.claim()
    school.clock.advance(2 * SECOND)
    async with transaction(school) as caller:
        await complete(caller, done)
        ending = asyncio.create_task(school.finish(school.failed(done)))  # its deadline passed
        await school.until_a_lock_is_waited_for()
        try:
            await soon(school.store.beat(await school.worker(), []))
        finally:
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending


async def test_beat_does_not_wait_for_a_tick_that_waits_for_its_schedule(school: School) -> None:
    first, second = await _two_ticks(school)
    school.clock.advance(2 * SECOND)
    async with transaction(school) as caller:
        await complete(caller, first)
        ending = asyncio.create_task(school.finish(school.succeeded(second)))
        await school.until_a_lock_is_waited_for()
        try:
            await soon(school.store.beat(await school.worker(), []))
        finally:
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending


async def test_control_beat_with_a_written_claim_does_not_wait(school: School) -> None:
    first, second = await _two_ticks(school)
    school.clock.advance(2 * SECOND)
    await school.store.beat(await school.worker(), [])
    async with transaction(school) as caller:
        await complete(caller, first)
        ending = asyncio.create_task(school.finish(school.succeeded(second)))
        await school.until_a_lock_is_waited_for()
        await soon(school.store.beat(await school.worker(), []))
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending


async def _two_ticks(school: School) -> Any:
    await school.apply(declared("hourly", school.now, policy=Policy()))
    await school.store.trigger("hourly", actor="a", note="")
    await school.fire()
    runs = await school.claim()
    assert len(runs) == 2
    assert len({run.token for run in runs}) == 1
    return runs


async def _refused(school: School, caller: Any, key: str) -> None:
    with pytest.raises(Conflict):
        await school.store.promise_within_async(
            caller.connection,
            [Promise("job", b"{}", school.now + HOUR, key=key, on_conflict=OnConflict.REPLACE)],
        )


async def test_a_refused_replacement_in_a_callers_transaction_keeps_no_sibling_from_ending(school: School) -> None:
    await school.promise("class:7")
    await school.promise("class:8")
    await school.fire()
    _one, other = await school.claim()
    async with transaction(school) as caller:
        await _refused(school, caller, "class:7")
        assert await soon(school.finish(school.succeeded(other))) == []


async def test_a_refused_replacement_in_a_callers_transaction_keeps_no_heart_from_beating(school: School) -> None:
    await school.promise("class:7")
    await school.promise("class:8")
    await school.fire()
    _one, _other = await school.claim()
    school.clock.advance(2 * SECOND)
    async with transaction(school) as caller:
        await _refused(school, caller, "class:7")
        await soon(school.store.beat(await school.worker(), []))


async def test_no_deadlock_between_a_completion_and_the_ending_of_a_sibling_tick(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await _two_ticks(school)
    there, go = asyncio.Event(), asyncio.Event()
    original = following.runs_ended

    async def slowly(tx: Any, schedules: Any) -> None:
        there.set()
        await go.wait()
        await original(tx, schedules)

    monkeypatch.setattr(working, "runs_ended", slowly)
    ending = asyncio.create_task(school.finish(school.died(second)))
    await there.wait()
    async with CALLERS["asyncpg"](school.dsn) as caller:
        await caller.execute("BEGIN")
        completing = asyncio.create_task(complete(caller, first))

        async def has_come_as_far_as_it_can() -> bool:
            return completing.done() or bool(await school.rows(_A_LOCK_IS_WAITED_FOR))

        await until_async(has_come_as_far_as_it_can, "the completion has ended or waits for the other transaction")
        go.set()
        await completing  # DeadlockDetectedError in the handler's own transaction
        await caller.execute("COMMIT")
    await ending


async def test_a_claim_does_not_wait_for_a_caller_because_a_tick_is_too_late(school: School) -> None:
    await school.apply(declared("hourly", school.now, policy=Policy()))
    await school.fire()
    [running] = await school.claim()
    await school.store.trigger("hourly", actor="a", note="")
    await school.fire()
    await school.rows("UPDATE foliot.run SET useful_until = $1 WHERE number <> $2", school.now + SECOND, running.number)
    school.clock.advance(2 * SECOND)
    plain = await school.promise()
    await school.fire()
    async with transaction(school) as caller:
        await complete(caller, running)
        claimed = await soon(school.claim())
        assert [run.number for run in claimed] == [plain.number]


@pytest.fixture
def claims_only_what_it_hears_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not claim once a second without a reason, as it does otherwise."""
    monkeypatch.setattr(workers, "_CLAIM_ANYWAY", HOUR)


@pytest.mark.usefixtures("claims_only_what_it_hears_of")
async def test_stale_chunks_do_not_keep_a_worker_from_what_lies_behind_them(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (_judge, [stage]):
        await stage.store.promise([Promise("other", b"{}", stage.now) for _ in range(300)])
        await stage.fire()
        await stage.promise()
        await stage.fire()
        begun = asyncio.Event()
        app = Foliot(stage.store, clock=SystemClock())

        async def job() -> None:
            begun.set()

        handler = app.job(name="job")(job)
        worker = make_worker(stage.store, {"job": handler.handler}, slots=10)
        await worker.start()
        task = asyncio.create_task(worker.run())
        try:
            await soon(begun.wait())
        finally:
            await worker.drain(0)
            await task


async def test_whoever_knows_the_job_is_told_of_the_chunk_that_was_put_aside_for_him(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [ignorant, knowing]):
        await knowing.worker()
        await ignorant.worker()
        await ignorant.promise(job="known")
        await ignorant.fire()
        heard = knowing.store.version()
        await judge.execute("NOTIFY foliot_handoff")  # what was said before it has come when it comes
        await until_async(lambda: knowing.store.version() != heard, "the store has heard what was said so far")
        before = knowing.store.version()
        assert await ignorant.claim(jobs=["job"]) == []
        assert await judge.fetchval("SELECT job FROM foliot.handoff") == "known"
        await until_async(lambda: knowing.store.version() != before, "the store that knows the job has heard of it")


async def test_a_transaction_that_is_cancelled_twice_leaves_no_open_transaction_in_the_pool(
    postgres: PostgresServer,
) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        run = await stage.running("class:7")
        there = asyncio.Event()

        async def work(tx: Any) -> None:
            there.set()
            await tx.value("next_node")
            await asyncio.sleep(3_600)

        task = asyncio.create_task(_write(stage, work))
        await there.wait()
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        [pools] = stage.store.connections._loops.values()  # type: ignore[attr-defined]
        await until_async(lambda: not pools.hot._lent, "the connection is back in the pool")
        assert await stage.finish(stage.succeeded(run)) == []
        assert await judge.fetchval("SELECT count(*) FROM foliot.history") == 1, "acknowledged and not committed"


async def test_whoever_connects_while_the_store_is_closed_is_told_so(postgres: PostgresServer) -> None:
    store = PostgresStore(emptied(postgres, shards=1))
    await store.open()
    asking = asyncio.create_task(store.now())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises((StoreClosed,)):
        await asking


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_replacement_by_a_caller_with_an_old_snapshot_is_refused_or_kept(school: School, level: str) -> None:
    kept = await school.promise("class:7", payload=b'{"old": 1}')
    await school.fire()
    async with CALLERS["asyncpg"](school.dsn) as caller:
        await caller.execute(f"BEGIN ISOLATION LEVEL {level}")
        await caller.execute("SELECT count(*) FROM foliot.setting")
        [run] = await school.claim()
        assert run.payload == b'{"old": 1}'
        new = Promise("job", b'{"new": 1}', school.now + HOUR, key="class:7", on_conflict=OnConflict.REPLACE)
        try:
            [answer] = await school.store.promise_within_async(caller.connection, [new])
            await caller.execute("COMMIT")
        except (Conflict, asyncpg.SerializationError, asyncpg.ActiveSQLTransactionError):
            return
    assert answer.outcome == "replaced"
    await school.finish(school.succeeded(run))
    assert await school.state(kept) is not State.SUCCEEDED, f"{(await school.run(kept)).payload!r} was never run"


async def test_the_rights_that_the_documentation_grants_are_enough(school: School, postgres: PostgresServer) -> None:
    await school.promise("class:7", after=HOUR)
    connection = await asyncpg.connect(school.dsn)
    try:
        await connection.execute(
            """
            DROP ROLE IF EXISTS web_review; CREATE ROLE web_review;
            GRANT USAGE ON SCHEMA foliot TO web_review;
            GRANT SELECT ON foliot.setting, foliot.shard, foliot.job, foliot.history, foliot.live_runs,
                foliot.unwritten TO web_review;
            GRANT SELECT ON foliot.effect, foliot.item TO web_review;
            GRANT SELECT, INSERT, UPDATE ON foliot.run, foliot.named, foliot.stir TO web_review;
            GRANT USAGE ON SEQUENCE foliot.spread TO web_review;
            """
        )
        await connection.execute("SET ROLE web_review")
        for conflict in ("keep", "replace"):
            wanted = Promise("job", b"{}", school.now + HOUR, key="class:7", on_conflict=OnConflict(conflict))
            await school.store.promise_within_async(connection, [wanted])
    finally:
        await connection.execute("RESET ROLE; DROP OWNED BY web_review; DROP ROLE web_review")
        await connection.close()


async def test_beat_with_progress_does_not_wait_for_a_caller(school: School) -> None:
    for _ in range(2):
        await school.promise()
    await school.fire()
    done, _other = await school.claim()
    async with transaction(school) as caller:
        await complete(caller, done)
        said = Progress(done.number, done.token, school.now, b"1", None)
        await soon(school.store.beat(await school.worker(), [said]))


@pytest.mark.usefixtures("claims_only_what_it_hears_of")
async def test_a_held_run_is_tried_again_without_waiting_for_a_second(postgres: PostgresServer) -> None:
    """Somebody has the run in hand for a moment: it is set aside for 250 ms."""
    async with stages(postgres, 1) as (judge, [stage]):
        begun = asyncio.Event()
        app = Foliot(stage.store, clock=SystemClock())

        async def job() -> None:
            begun.set()

        worker = make_worker(stage.store, {"job": app.job(name="job")(job).handler}, slots=10)
        await worker.start()
        kept = await stage.promise()
        await judge.execute("BEGIN")
        await judge.execute("SELECT 1 FROM foliot.run WHERE number = $1 FOR UPDATE", kept.number)
        task = asyncio.create_task(worker.run())
        await stage.fire()

        async def is_set_aside() -> bool:
            return bool(await judge.fetchval("SELECT EXISTS (SELECT 1 FROM foliot.handoff WHERE ready_at > 0)"))

        await until_async(is_set_aside, "the worker has set the run aside")
        await judge.execute("COMMIT")
        await soon(begun.wait())
        await worker.drain(0)
        await task
