"""Somebody's own transaction is open and holds a run, a schedule or a key: nobody waits for it, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foliot import every
from foliot.bootstrap import make_dispatcher
from foliot.dispatch.dispatcher import LOOK_EVERY, Dispatcher
from foliot.domain.identity import tick_name
from foliot.domain.instant import HOUR, SECOND, Instant
from foliot.domain.run import Claimed, OnConflict, Promise
from foliot.domain.state import State
from foliot.store.postgres import connection as connecting
from tests.contract.stage import TTL, Stage, deciding, entries, fires
from tests.store.callers import School

NEW = b'{"new": 1}'


@asynccontextmanager
async def open_transaction(school: School, ends: str = "ROLLBACK") -> AsyncIterator[Any]:
    connection = await asyncpg.connect(school.dsn)
    try:
        await connection.execute("BEGIN")
        yield connection
        await connection.execute(ends)
    finally:
        await connection.close()


async def replace(school: School, connection: Any, key: str, fire_at: Instant) -> None:
    wanted = Promise("job", NEW, fire_at, key=key, on_conflict=OnConflict.REPLACE)
    [kept] = await school.store.promise_within_async(connection, [wanted])
    assert kept.outcome == "replaced"


async def done_or_waiting(school: School, task: asyncio.Task[Any]) -> None:
    waiting = asyncio.create_task(school.until_a_lock_is_waited_for())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def test_a_promise_that_is_replaced_while_it_is_found_too_late_is_kept(school: School) -> None:
    kept = await school.promise("class:7", useful_until=school.now)
    school.clock.advance(SECOND)
    async with open_transaction(school, "COMMIT") as caller:
        await replace(school, caller, "class:7", school.now + HOUR)
        firing = asyncio.create_task(school.fire())
        await done_or_waiting(school, firing)
    assert (await firing).skipped == 0
    found = await school.run(kept)
    assert (found.state, found.payload, found.fire_at) == (State.SCHEDULED, NEW, school.now + HOUR)
    assert await school.rows("SELECT * FROM foliot.history") == []


async def test_a_promise_that_was_replaced_to_another_queue_before_a_takeover_still_fires(school: School) -> None:
    kept = await school.promise("class:7")
    await school.fire()  # into a chunk of the first queue, which nobody has claimed yet
    await school.promise("class:7", queue="urgent", payload=NEW, on_conflict=OnConflict.REPLACE)
    school.clock.advance(2 * TTL)
    new = Stage(school.store, school.clock)
    lease = await new.lease()
    due = await new.loaded(lease)  # the old chunk names it, and will never give it to a worker of this queue
    assert [number for _, number in due] == [kept.number]
    await new.store.fire([lease], due, lease.cursor, deciding(fires))
    [run] = await new.claim(queues=["urgent"])
    assert (run.number, run.queue, run.payload) == (kept.number, "urgent", NEW)


async def test_what_a_stale_chunk_named_and_no_claim_could_take_is_told_to_its_owner(school: School) -> None:
    kept = await school.promise("class:7")
    await school.fire()
    lease = await school.lease()
    await school.promise("class:7", queue="urgent", payload=NEW, on_conflict=OnConflict.REPLACE)
    seen = await school.store.arrivals([lease], lease.cursor)
    assert await school.claim(queues=["default", "urgent"]) == []
    told = await school.store.arrivals([lease], seen.cursor)
    assert [number for _, number in entries(told)] == [kept.number]


async def fired(school: School, dispatcher: Dispatcher) -> list[Claimed]:
    """What a worker gets once the dispatcher has had time to look twice."""
    for _ in range(4):
        await dispatcher.run_once()
        school.clock.advance(LOOK_EVERY)
    return await school.claim()


async def test_a_schedule_that_somebody_holds_fires_once_it_is_free_and_keeps_nothing_else_waiting(
    school: School,
) -> None:
    for name in ("free", "held"):
        school.app.schedule(name, school.job, every("1h"))
    await school.app.apply_async()
    plain = await school.promise(after=HOUR)
    [tick] = await school.waiting("held")
    dispatcher = make_dispatcher(school.store, await school.scheduler(), clock=school.clock)
    await dispatcher.run_once()
    school.clock.step(tick.fire_at - school.now)
    async with open_transaction(school) as caller:
        await caller.execute("SELECT 1 FROM foliot.schedule WHERE id = 'held' FOR UPDATE")
        free = await fired(school, dispatcher)
        assert {run.schedule for run in free} == {None, "free"}
        assert plain.number in {run.number for run in free}
        assert dispatcher.counters.failures == dispatcher.counters.lost == 0
    [late] = await fired(school, dispatcher)
    assert late.id == tick_name("held", tick.fire_at)
    assert await fired(school, dispatcher) == []


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
async def test_a_run_that_somebody_is_replacing_does_not_keep_a_claim_from_the_others(
    school: School, ends: str
) -> None:
    held, free = await school.promise("class:7"), await school.promise("class:8")
    await school.fire()
    async with open_transaction(school, ends) as caller:
        await replace(school, caller, "class:7", school.now + HOUR)
        assert [run.number for run in await school.claim()] == [free.number]
        school.clock.advance(SECOND)
        assert await school.claim() == []
    school.clock.advance(SECOND)
    claimed = await school.claim()
    if ends == "ROLLBACK":
        assert [(run.number, run.payload) for run in claimed] == [(held.number, b"{}")]
        return
    assert claimed == []
    school.clock.advance(HOUR)
    await school.fire()
    assert [(run.number, run.payload) for run in await school.claim()] == [(held.number, NEW)]


async def test_a_key_that_somebody_holds_does_not_keep_those_waiting_who_come_later_with_other_keys(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connecting._SETTINGS, "lock_timeout", "2s")
    async with open_transaction(school) as caller:
        await school.store.promise_within_async(caller, [Promise("job", b"{}", school.now, key="held")])
        waiting = asyncio.create_task(school.promise("held"))
        await school.until_a_lock_is_waited_for()
        for key in ("a", "b"):
            assert (await school.promise(key)).outcome == "made"
        assert not waiting.done()
    assert (await waiting).outcome == "made"
