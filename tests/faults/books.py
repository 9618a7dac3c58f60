"""A job whose rows, effect, promise and completion are one transaction, killed before every statement of it.

    python -m tests.faults.books STORE JOB

tells as JSON before how many statements a life ended; see `test_transactions_killed`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import asyncpg

from foliot import Context, Foliot, bootstrap
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


def main(url: str, job: str) -> None:
    lives = Lives(app, url)

    async def prepare() -> None:
        store = bootstrap.make_store(url)
        await store.open()
        transaction = store.transaction()
        await transaction.begin()
        answer: Any = transaction.connection.execute(TABLE)
        if hasattr(answer, "__await__"):
            await answer
        await transaction.commit()
        await store.close()

    assert lives.elsewhere(prepare)
    died = 0
    while True:
        number = died + 1

        async def promise(number: int = number) -> None:
            here = Foliot(url)
            copy = here.job(name=job, effects=("book",))(app.jobs[job].handler.function)
            await copy.using(queue=f"case-{number}").now_async(n=number)
            await here.close_async()

        assert lives.elsewhere(promise)
        if lives.once([f"case-{number}"], dies_at=number):
            break
        died = number
    assert lives.once([f"case-{number}" for number in range(1, died + 1)])
    print(json.dumps({"died": died}))


if __name__ == "__main__":
    main(*sys.argv[1:])
