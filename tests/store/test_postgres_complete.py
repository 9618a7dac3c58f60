"""foliot.complete: an attempt ends inside the handler's own transaction, as its worker would have ended it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foliot.domain.identity import tick_name
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import Claimed
from foliot.domain.state import State
from tests.contract.stage import START, TTL, declared, holds
from tests.store.callers import CALLERS, Caller, School, Undone

COMPLETE = "SELECT foliot.complete({}, {}, {})"


async def complete(caller: Caller, run: Claimed, result: str = "NULL") -> None:
    await caller.execute(COMPLETE.format(run.number, run.token, result))


@asynccontextmanager
async def transaction(school: School) -> AsyncIterator[Caller]:
    async with CALLERS["asyncpg"](school.dsn) as caller, caller.transaction():
        await caller.execute(f"SELECT set_config('foliot.now', '{school.now}', true)")
        yield caller


async def test_a_run_ends_with_the_transaction_of_its_handler(school: School, caller: Caller) -> None:
    run = await school.running("class:7")
    async with caller.transaction():
        await complete(caller, run, "'{\"sent\": 3}'")
        assert await school.state(run) is State.RUNNING
    ended = await school.run(run)
    assert (ended.state, ended.result, ended.attempt, ended.spent) == (State.SUCCEEDED, b'{"sent": 3}', 1, 1)


async def test_a_run_goes_on_when_the_transaction_is_rolled_back(school: School, caller: Caller) -> None:
    run = await school.running("class:7")
    async with caller.transaction():
        await complete(caller, run)
        raise Undone
    assert await school.state(run) is State.RUNNING
    assert await school.finish(school.succeeded(run)) == []
    assert await school.state(run) is State.SUCCEEDED


async def test_a_worker_that_reports_a_completed_attempt_is_not_fenced(school: School) -> None:
    done, failed, other = [await school.running() for _ in range(3)]
    async with transaction(school) as caller:
        await complete(caller, done, "'1'")
        await complete(caller, failed, "'2'")
    endings = [school.succeeded(done, result=b"9"), school.failed(failed), school.succeeded(other)]
    assert await school.finish(*endings) == []
    assert [(await school.run(run)).state for run in (done, failed, other)] == [State.SUCCEEDED] * 3
    assert [(await school.run(run)).result for run in (done, failed)] == [b"1", b"2"], "what was committed stands"
    assert await school.events() == []


async def test_a_claim_with_other_runs_stays_open_for_them(school: School) -> None:
    for _ in range(3):
        await school.promise()
    await school.fire()
    first, second, third = await school.claim()
    assert first.token == second.token == third.token
    async with transaction(school) as caller:
        await complete(caller, second)
    assert await school.finish(school.succeeded(first), school.succeeded(second)) == []
    school.clock.advance(2 * MINUTE)
    await school.store.tidy()
    assert await school.rows("SELECT token FROM foliot.claim") == [(third.token,)]
    assert await school.finish(school.succeeded(third)) == []
    await school.store.tidy()
    assert await school.rows("SELECT token FROM foliot.claim") == []


async def test_what_a_completed_run_leaves_is_what_a_finished_one_leaves_but_for_how_it_ended(school: School) -> None:
    chosen: dict[str, Any] = {"tenant": "acme", "priority": 3}
    finished, completed = await school.running("a", **chosen), await school.running("b", **chosen)
    school.clock.advance(7 * SECOND)
    # Of when the handler began no heartbeat has told yet: the claim is the last that is known.
    await school.finish(school.succeeded(finished, started_at=START, result=b'"x"'))
    async with transaction(school) as caller:
        await complete(caller, completed, "'\"x\"'")
    left = (await _history(school, completed)).replace('"reason": "committed"', '"reason": null')
    assert left == await _history(school, finished)


async def _history(school: School, run: Claimed) -> Any:
    [[row]] = await school.rows(
        "SELECT to_jsonb(h) - ARRAY['n', 'number', 'name', 'xid', 'token'] FROM foliot.history h WHERE number = $1",
        run.number,
    )
    return row


async def test_an_attempt_that_lost_its_run_cannot_commit(school: School) -> None:
    lost = await school.running("class:7")
    await school.store.lose([school.lost(lost, retry_at=school.now)])
    await school.fire()
    [again] = await school.claim()
    async with CALLERS["asyncpg"](school.dsn) as caller:
        await caller.execute("BEGIN")
        await caller.promise(school.job, key="confirmation")
        with pytest.raises(asyncpg.PostgresError, match="does not own it") as refused:
            await complete(caller, lost)
        assert refused.value.sqlstate == "FL001"
        await caller.execute("COMMIT")  # which PostgreSQL answers with a rollback
    assert await school.rows("SELECT name FROM foliot.named") == [("class:7#1",)]
    assert await school.state(again) is State.RUNNING


@pytest.mark.parametrize("number", ["0", "NULL"])
async def test_what_is_not_there_cannot_be_completed(school: School, number: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match="cannot be completed"):
        await school.rows(COMPLETE.format(number, 7, "NULL"))


async def test_a_run_is_completed_once(school: School) -> None:
    run = await school.running()
    await school.rows(COMPLETE.format(run.number, run.token, "NULL"))
    with pytest.raises(asyncpg.PostgresError, match="or it has ended already") as refused:
        await school.rows(COMPLETE.format(run.number, run.token, "NULL"))
    assert refused.value.sqlstate == "FL001"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_transaction_that_could_not_see_what_waits_for_the_run_cannot_complete_it(
    school: School, level: str
) -> None:
    run = await school.running_tick("hourly")
    async with CALLERS["asyncpg"](school.dsn) as caller:
        await caller.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(asyncpg.ActiveSQLTransactionError, match=f"READ COMMITTED, not {level}"):
            await complete(caller, run)
    assert await school.state(run) is State.RUNNING


async def test_a_request_to_stop_ends_with_the_run(school: School) -> None:
    run = await school.running("class:7")
    await school.store.cancel(run.id, actor="test", note="")
    async with transaction(school) as caller:
        await complete(caller, run)
    assert await school.state(run) is State.SUCCEEDED
    assert (await school.store.beat(await school.worker(), [])).cancel == []


async def test_what_was_held_for_a_completed_tick_is_released_and_told(school: School) -> None:
    run = await school.running_tick("hourly")
    held = await school.store.trigger("hourly", actor="test", note="")
    await school.fire(holds)
    assert await school.state(held) is State.HELD
    school.clock.advance(2 * TTL)
    lease = await school.lease()
    async with transaction(school) as caller:
        await complete(caller, run)
    assert await school.told(lease.cursor) == [(school.now, held.number)]
    assert await school.state(held) is State.SCHEDULED


async def test_a_completed_run_of_a_fixed_delay_has_the_successor_that_a_finished_one_has(school: School) -> None:
    delay = HOUR + 1
    shape: dict[str, Any] = {"priority": 4, "tenant": "acme", "options": b'{"attempts":2}'}
    for name in ("finished", "completed"):
        await school.apply(declared(name, None, delay=delay, policy=Policy(useful_until=MINUTE), **shape))
    school.clock.advance(delay)
    await school.fire()
    runs = {run.schedule: run for run in await school.claim()}
    school.clock.advance(3 * SECOND)
    await school.finish(school.succeeded(runs["finished"]))
    async with transaction(school) as caller:
        await complete(caller, runs["completed"])
    [theirs], [ours] = await school.waiting("finished"), await school.waiting("completed")
    assert (ours.name, ours.fire_at) == (tick_name("completed", school.now + delay), school.now + delay)
    assert await _successor(school, ours.number) == await _successor(school, theirs.number)
    assert await school.rows("SELECT last_created FROM foliot.schedule WHERE id = 'completed'") == [(ours.name,)]
    assert await school.rows("SELECT number FROM foliot.named WHERE name = $1", ours.name) == [(ours.number,)]


async def _successor(school: School, number: int) -> Any:
    [[row]] = await school.rows(
        "SELECT to_jsonb(r) - ARRAY['number', 'name', 'xid', 'schedule'] FROM foliot.run r WHERE number = $1", number
    )
    return row


async def _polling(school: School) -> Claimed:
    """A run, claimed, of a schedule that has its next one a minute after this has ended."""
    await school.apply(declared("poll", None, delay=MINUTE))
    school.clock.advance(MINUTE)
    await school.fire()
    [run] = await school.claim()
    return run


async def test_a_successor_that_is_near_is_told(school: School) -> None:
    run = await _polling(school)
    school.clock.advance(2 * TTL)
    lease = await school.lease()
    async with transaction(school) as caller:
        await complete(caller, run)
    [following] = await school.waiting("poll")
    assert await school.told(lease.cursor) == [(following.fire_at, following.number)]


async def test_a_policy_that_cannot_be_read_does_not_end_the_chain(school: School) -> None:
    run = await _polling(school)
    await school.rows("UPDATE foliot.schedule SET policy = '\\xff'")
    async with transaction(school) as caller:
        await complete(caller, run)
    assert len(await school.waiting("poll")) == 1


async def test_a_name_that_is_taken_already_is_passed_over(school: School) -> None:
    run = await _polling(school)
    await school.rows("INSERT INTO foliot.named VALUES ($1, 1)", tick_name("poll", school.now + MINUTE))
    async with transaction(school) as caller:
        await complete(caller, run)
    assert [one.fire_at for one in await school.waiting("poll")] == [school.now + MINUTE + 1]


async def test_a_run_triggered_by_hand_starts_no_second_chain(school: School) -> None:
    await school.apply(declared("poll", None, delay=HOUR))
    await school.store.trigger("poll", actor="test", note="")
    await school.fire()
    [run] = await school.claim()
    async with transaction(school) as caller:
        await complete(caller, run)
    assert [one.fire_at for one in await school.waiting("poll")] == [START + HOUR]


async def test_the_server_names_ticks_as_we_do(school: School) -> None:
    moments = [0, 1, 999_999, SECOND, START, START + 120_000, START + 7, 4_102_444_799_999_990, 253_402_300_799_000_000]
    told = await school.rows("SELECT foliot.tick_name('daily', m) FROM unnest($1::bigint[]) m", moments)
    assert [name for (name,) in told] == [tick_name("daily", moment) for moment in moments]


async def test_a_run_is_not_completed_around_an_open_effect(school: School) -> None:
    run = await school.running("class:7")
    await school.begin(run)
    async with transaction(school) as caller:
        with pytest.raises(asyncpg.PostgresError, match="an effect of it has begun and has not ended"):
            await complete(caller, run)
        raise Undone
    assert await school.state(run) is State.RUNNING


async def test_a_check_needs_the_labels_of_its_run(school: School) -> None:
    await school.promise(options=b'{"attempts":2,"labels":["gpu","region=eu"]}')
    await school.fire()
    [run] = await school.store.claim(await school.worker(), ["default"], ["job"], 1, labels=["gpu", "region=eu"])
    await school.rows("UPDATE foliot.job SET traits = '{\"checked\": true}' WHERE name = 'job'")
    async with transaction(school) as caller:
        await complete(caller, run)
    assert await school.rows("SELECT job FROM foliot.handoff") == [("job?@gpu,region=eu",)]
