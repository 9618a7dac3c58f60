"""The page on transactions is true: its code runs on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg

from foliot import Context
from foliot.clock import SystemClock
from foliot.domain.instant import HOUR
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.store.postgres import PostgresStore
from foliot.work.desk import StoreDesks
from tests.contract.stage import Stage
from tests.docs import pages
from tests.docs.pages import DOCS

PAGE = DOCS / "transactions.md"


@asynccontextmanager
async def _opened(database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(database)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _shown(database: str) -> dict[str, Any]:
    """What the page's Python defines, run where its database is."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute("CREATE TABLE class (id bigint PRIMARY KEY, teacher text, closed bool DEFAULT false)")
    namespace: dict[str, Any] = {"__name__": "transactions"}
    blocks = pages.python_blocks(PAGE)
    assert len(blocks) == 3
    for block in blocks:
        text = block.text.replace("postgresql://app@db/school", database)
        text = text.replace("postgresql+psycopg://app@db/school", database.replace(":", "+psycopg:", 1))
        exec(compile("\n" * block.line + text, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


async def test_rows_and_promises_of_the_page_are_there(database: str) -> None:
    async with _opened(database) as store:
        shown = await _shown(database)
        async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
            await shown["open_classes"](pool)
        runs = await store.runs()
    assert {run.name for run in runs} == {f"class:{number}#1" for number in (7, 8, 9, 10)}
    async with await psycopg.AsyncConnection.connect(database) as connection:
        rows = await (await connection.execute("SELECT id FROM class ORDER BY id")).fetchall()
    assert rows == [(7,), (8,), (9,), (10,)]


async def test_the_handler_of_the_page_completes_its_run(database: str) -> None:
    async with _opened(database) as store:
        shown = await _shown(database)
        clock = SystemClock()
        stage = Stage(store, clock)  # type: ignore[arg-type]  # it only reads the clock here
        [kept] = await store.promise([Promise("close_class", b'{"class_id": 7}', clock.now())])
        leases = [await store.take(shard, await stage.scheduler(), HOUR) for shard in range(store.shard_count)]
        held = [lease for lease in leases if lease is not None]
        await store.fire(held, [(kept.fire_at, kept.number)], held[0].cursor, lambda facts, now: [])
        [run] = await stage.claim(jobs=["close_class"])
        desks = StoreDesks(store, lambda: 1)
        desks.loop = asyncio.get_running_loop()
        ctx = Context(run, clock, clock.now() + HOUR, clock.monotonic() + HOUR, desks)
        await asyncio.to_thread(shown["close_class"], ctx, class_id=7)
        assert await stage.state(kept) is State.SUCCEEDED
        assert await stage.finish(stage.succeeded(run)) == []
        assert len(await store.runs(job="remind")) == 3, "two by the page, and one by its handler"
    async with await psycopg.AsyncConnection.connect(database) as connection:
        rows = await (await connection.execute("SELECT id FROM class WHERE closed")).fetchall()
    assert rows == [(7,)]


async def test_the_rights_that_the_page_grants_are_enough_to_promise(database: str) -> None:
    async with _opened(database):
        shown = await _shown(database)
        grants, call = [block.text for block in pages.blocks(PAGE) if block.language == "sql"]
        connection = await asyncpg.connect(database)
        undone = connection.transaction()  # a role belongs to the whole server: this one never is
        await undone.start()
        await connection.execute("CREATE ROLE web")
        await connection.execute(grants)
        await connection.execute("SET LOCAL ROLE web")
        outcomes = [row["outcome"] for row in await connection.fetch(call)]
        for conflict in ("keep", "replace"):
            job = shown["remind"].using(connection=connection, key=f"class:{conflict}", on_conflict=conflict)
            outcomes += [(await job.delay_async(length, class_id=1)).outcome for length in ("1h", "0s")]
        assert outcomes == ["made", "made", "kept", "made", "replaced"]
        await undone.rollback()
        await connection.close()
