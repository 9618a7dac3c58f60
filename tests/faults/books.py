"""A job whose rows, effect, promise and completion are one transaction, killed before every statement of it.

    python -m tests.faults.books STORE JOB FIRST EVERY RESULT

One life is killed before the statement number FIRST, one before every EVERY-th after it. The file RESULT is then a JSON
list of these statements; see `test_transactions_killed`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

from foliot import Context, Foliot
from foliot.domain.store import Store
from tests.faults.killing import Lives

app = Foliot(backoff="0s", attempts=2)
FAR = datetime(2100, 1, 1, tzinfo=UTC)
TABLE = "CREATE TABLE booked (n INTEGER)"
"""Nothing in it keeps a row from being there twice."""


@app.job(effects=("book",))
async def book(ctx: Context, n: int) -> None:
    async with ctx.transaction() as tx:
        async with tx.effect("book", n):
            answer: Any = tx.connection.execute(f"INSERT INTO booked VALUES ({n})")
            if hasattr(answer, "__await__"):
                await answer
        await follow.using(connection=tx.connection).at_async(FAR, n=n)
        tx.result = n


@app.job(effects=("book",))
def book_in_thread(ctx: Context, n: int) -> None:
    with ctx.transaction() as tx:
        with tx.effect("book", n):
            tx.connection.execute(f"INSERT INTO booked VALUES ({n})")
        follow.using(connection=tx.connection).at(FAR, n=n)
        tx.result = n


@app.job(effects=("book",))
async def book_in_own(ctx: Context, n: int) -> None:
    """On a connection of its own to the store's database: it began this transaction, and commits it."""
    connection = await asyncpg.connect(app.store.url)
    async with connection.transaction(), ctx.transaction(connection=connection) as tx:
        async with tx.effect("book", n):
            await connection.execute(f"INSERT INTO booked VALUES ({n})")
        await follow.using(connection=connection).at_async(FAR, n=n)
        tx.result = n
    await connection.close()


@app.job
def follow(n: int) -> None: ...


def main(url: str, job: str, first: str, every: str, result: str) -> None:
    lives = Lives(app, url)
    killed: list[int] = []
    for case in count(int(first), int(every)):

        async def before(store: Store, case: int = case) -> None:
            if case == int(first):
                await make_table(store)
            await app.jobs[job].using(queue=f"case-{case}").now_async(n=case)

        if lives.once([f"case-{case}"], dies_at=case, before=before):
            break
        killed.append(case)
    assert lives.once([f"case-{case}" for case in killed])
    Path(result).write_text(json.dumps(killed))


async def make_table(store: Store) -> None:
    transaction = store.transaction()
    await transaction.begin()
    answer: Any = transaction.connection.execute(TABLE)
    if hasattr(answer, "__await__"):
        await answer
    await transaction.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
