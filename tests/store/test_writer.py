"""The one writer: whatever waits when a transaction begins shares its commit, and fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from foliot.clock import ManualClock
from foliot.domain.run import Promise
from foliot.errors import Conflict, NotWritten, OutcomeUnknown, StoreClosed, StoreError, StoreFull
from foliot.store.sqlite import SqliteStore, writer
from foliot.store.sqlite import connection as sqlite_connection
from foliot.store.sqlite.writer import MOST_AT_ONCE
from foliot.store.verbs.transaction import Transaction
from tests.contract.stage import START, Stage, declared
from tests.waiting import HANG

pytestmark = pytest.mark.needs("sqlite")


@pytest.fixture
def store(tmp_path: Path, runner: asyncio.Runner) -> Iterator[SqliteStore]:
    made = SqliteStore(str(tmp_path / "foliot.db"), ManualClock(START))
    runner.run(made.open())
    yield made
    runner.run(made.close())


@asynccontextmanager
async def writer_busy(store: SqliteStore):
    """While the block lasts, the writer is in a transaction: requests that come now wait for the next one."""
    begun, go_on = threading.Event(), threading.Event()

    async def hold(tx: Transaction) -> None:
        begun.set()
        go_on.wait(HANG)

    holding = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(begun.wait)
    try:
        yield
        await asyncio.sleep(0)  # whatever was begun in the block has put its request
    finally:
        go_on.set()
    await holding


def wish(key: str, **more: Any) -> list[Promise]:
    return [Promise("job", b"", START, key=key, **more)]


async def moment(tx: Transaction) -> tuple[int, int]:
    return id(tx), tx.now


async def itself(tx: Transaction) -> Transaction:
    return tx


async def test_requests_that_wait_together_share_one_transaction_and_one_moment(store: SqliteStore) -> None:
    async with writer_busy(store):
        tasks = [asyncio.create_task(store.write(moment)) for _ in range(10)]
    assert len(set(await asyncio.gather(*tasks))) == 1


async def test_no_more_than_so_many_requests_share_a_transaction(store: SqliteStore) -> None:
    async with writer_busy(store):
        tasks = [asyncio.create_task(store.write(itself)) for _ in range(MOST_AT_ONCE + 1)]
    assert len({id(transaction) for transaction in await asyncio.gather(*tasks)}) == 2


async def test_a_request_that_fails_takes_back_its_own_and_nothing_else(store: SqliteStore) -> None:
    await store.promise(wish("taken"))

    async def half_done() -> object:
        return await store.promise([*wish("half"), *wish("taken", on_conflict="error")])

    async with writer_busy(store):
        tasks = [
            asyncio.create_task(step) for step in (store.promise(wish("a")), half_done(), store.promise(wish("b")))
        ]
    before, failed, after = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(failed, Conflict)
    assert not isinstance(before, BaseException)
    assert not isinstance(after, BaseException)
    assert {run.name for run in await store.runs()} == {"taken#1", "a#1", "b#1"}


async def test_a_request_that_the_engine_refuses_fails_alone_too(store: SqliteStore) -> None:
    async def nonsense(tx: Any) -> None:
        await tx.event("kind", "subject", "before the mistake")
        tx._connection.execute("INSERT INTO run (number) VALUES (1)")

    async with writer_busy(store):
        bad = asyncio.create_task(store.write(nonsense))
        good = asyncio.create_task(store.promise(wish("a")))
    with pytest.raises(NotWritten, match="nothing of this request was written"):
        await bad
    assert len(await good) == 1
    assert await store.events_since(0, 10) == []


async def test_a_full_disk_fails_requests_with_the_error_that_says_so(store: SqliteStore) -> None:
    """SQLite may roll the whole transaction back then, also what others had written in it."""

    async def limit(tx: Any, pages: int) -> None:
        tx._connection.pragma("max_page_count", pages)

    def big(key: str) -> list[Promise]:
        return [Promise("job", b"x" * 1_000_000, START, key=key)]

    await store.promise(wish("a"))
    await store.write(lambda tx: limit(tx, 1))  # not below what it has already
    async with writer_busy(store):
        tasks = [asyncio.create_task(store.promise(one)) for one in (wish("b"), big("c"), wish("d"), big("e"))]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    with pytest.raises(StoreFull, match=r"the disk is full.*nothing of this request was written"):
        await store.promise(big("f"))
    await store.write(lambda tx: limit(tx, 1_000_000))
    assert [type(one) for one in answers] == [StoreFull] * 4
    assert {run.name for run in await store.runs()} == {"a#1"}
    assert len(await store.promise(big("g"))) == 1


async def test_a_write_lock_that_another_process_keeps_writes_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_LIMIT", 0)
    stopped = apsw.Connection(store.path)
    stopped.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(NotWritten, match=r"database is locked.*nothing of this request was written"):
            await store.promise(wish("a"))
        with pytest.raises(NotWritten, match="database is locked"):
            await store.transaction().begin()
    finally:
        stopped.close()
    assert len(await store.promise(wish("a"))) == 1


class _FailingDisk:
    """A connection on a file system that fails when SQLite commits."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT":
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        return self._connection.execute(statement, *values)


async def test_a_file_system_that_fails_during_a_commit_leaves_the_outcome_unknown(store: SqliteStore) -> None:
    """SQLite may have written all of it before, and reads it after a crash."""
    running: Any = store._writer
    connection = running.connection
    running.connection = _FailingDisk(connection)
    with pytest.raises(OutcomeUnknown, match="the file system failed during the commit, so it is unknown"):
        await store.promise(wish("a"))
    running.connection = connection
    assert len(await store.promise(wish("b"))) == 1
    lent: Any = store.transaction()
    await lent.begin()
    lent._lent = _FailingDisk(lent._lent)
    with pytest.raises(OutcomeUnknown):
        await lent.commit()


def test_shared_memory_that_finds_no_space_is_a_full_disk() -> None:
    assert isinstance(writer.as_store_error(apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)), StoreFull)
    assert not isinstance(writer.as_store_error(apsw.exception_for(apsw.SQLITE_IOERR_READ)), StoreFull)


async def test_a_mistake_in_a_request_reaches_its_caller_as_it_is(store: SqliteStore) -> None:
    async def mistaken(tx: Transaction) -> None:
        await tx.event("kind", "subject", "detail")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await store.write(mistaken)
    assert await store.events_since(0, 10) == []
    assert len(await store.promise(wish("a"))) == 1


async def test_nobody_is_told_before_the_commit(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails (a full disk) fails every request that shared it, and none of it is there."""
    real = writer.commit_together

    def failing(connection: apsw.Connection, *more: Any) -> None:
        connection.set_commit_hook(lambda: True)  # turns the commit into a rollback
        try:
            real(connection, *more)
        finally:
            connection.set_commit_hook(None)

    monkeypatch.setattr(writer, "commit_together", failing)
    answers = await asyncio.gather(*(store.promise(wish(f"k{place}")) for place in range(5)), return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    monkeypatch.undo()
    assert await store.runs() == []
    assert len(await store.promise(wish("k0"))) == 1


async def test_two_triggers_that_share_a_transaction_are_both_answered(store: SqliteStore) -> None:
    await Stage(store, ManualClock(START)).apply(declared("hourly", START + 1))
    async with writer_busy(store):
        tasks = [asyncio.create_task(store.trigger("hourly", actor="ada", note="")) for _ in range(2)]
    for kept in await asyncio.gather(*tasks):
        assert (await store.run(kept.id)).schedule == "hourly"


async def test_a_caller_that_gave_up_does_not_keep_its_neighbours_waiting(store: SqliteStore) -> None:
    async with writer_busy(store):
        given_up = asyncio.create_task(store.promise(wish("a")))
        waiting = asyncio.create_task(store.promise(wish("b")))
        await asyncio.sleep(0)
        given_up.cancel()
    assert len(await waiting) == 1
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_closing_serves_what_waits_and_refuses_what_comes_later(store: SqliteStore) -> None:
    async with writer_busy(store):
        waiting = [asyncio.create_task(store.promise(wish(f"k{place}"))) for place in range(MOST_AT_ONCE + 10)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreClosed):
            await store.promise(wish("late"))
    await closing
    assert len(await asyncio.gather(*waiting)) == MOST_AT_ONCE + 10
    again = SqliteStore(store.path, ManualClock(START))
    await again.open()
    assert (await again.counts())["scheduled"] == MOST_AT_ONCE + 10
    await again.close()


async def test_a_writer_that_was_closed_takes_nothing_any_more(store: SqliteStore) -> None:
    """A caller that had the writer in its hand when the store was closed must not wait for ever."""
    writing = store._writer
    assert writing is not None
    await store.close()
    with pytest.raises(StoreClosed):
        await writing.submit(itself)


async def test_a_caller_whose_event_loop_is_gone_does_not_stop_the_writer(store: SqliteStore) -> None:
    async with writer_busy(store):

        def call_and_leave() -> None:
            loop = asyncio.new_event_loop()
            task = loop.create_task(store.promise(wish("orphan")))
            loop.call_soon(lambda: loop.call_soon(loop.stop))
            loop.run_forever()
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()

        await asyncio.get_running_loop().run_in_executor(None, call_and_leave)
    assert len(await store.promise(wish("next"))) == 1
    assert {run.name for run in await store.runs()} == {"orphan#1", "next#1"}


async def test_a_store_in_memory_tells_its_version_while_a_handler_has_its_connection() -> None:
    store = SqliteStore(":memory:", ManualClock(START))
    await store.open()
    before = store.version()
    lent = store.transaction()
    await lent.begin()
    steps = iter(range(100_000_000))

    def count() -> None:
        lent.connection.create_scalar_function("step", lambda *_: next(steps), 0)
        many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        lent.connection.execute(f"{many} SELECT sum(step()) FROM n").fetchall()

    counting = asyncio.create_task(asyncio.to_thread(count))
    while not counting.done():
        assert store.version() == before
        await asyncio.sleep(0)
    await counting
    await lent.roll_back()
    await store.close()


async def test_a_store_in_memory_closes_although_a_handler_never_gave_its_connection_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "_LENT_FOR", 0.01)
    store = SqliteStore(":memory:", ManualClock(START))
    await store.open()
    lent = store.transaction()
    await lent.begin()
    with pytest.raises(NotWritten, match="this request was not written"):
        await store.promise(wish("a"))
    await store.close()
    with pytest.raises(StoreClosed):
        store.version()
    await lent.roll_back()
