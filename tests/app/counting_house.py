"""Jobs whose transactions are made in processes of their own; see `test_isolated_transactions`."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from typing import Any

from foliot import Context, Foliot

app = Foliot("sqlite:///:memory:", backoff="0s", attempts=2)
"""On a store that no other process can reach: the worker's own is what counts."""
job = app.job(isolation="process", effects=("book",))
FAR = datetime(2100, 1, 1, tzinfo=UTC)


@job
async def book(ctx: Context, n: int) -> None:
    async with ctx.transaction() as tx:
        async with tx.effect("book", n):
            answer: Any = tx.connection.execute(f"INSERT INTO booked VALUES ({n})")
            if hasattr(answer, "__await__"):
                await answer
        await follow.using(connection=tx.connection).at_async(FAR, n=n)
        tx.result = n


@job
def book_in_thread(ctx: Context, n: int) -> None:
    with ctx.transaction() as tx:
        with tx.effect("book", n):
            tx.connection.execute(f"INSERT INTO booked VALUES ({n})")
        follow.using(connection=tx.connection).at(FAR, n=n)
        tx.result = n


@job
def book_and_die(ctx: Context, n: int) -> None:
    book_in_thread(ctx, n)
    os.kill(os.getpid(), signal.SIGKILL)


@job
def book_for_checking(ctx: Context, n: int) -> None:
    book_in_thread(ctx, n)
    os.kill(os.getpid(), signal.SIGKILL)


@book_for_checking.verify
def is_booked(n: int) -> bool:
    return n > 0


@job
def book_on_the_second_try(ctx: Context, n: int) -> None:
    with ctx.transaction() as tx:
        with tx.effect("book", n):
            tx.connection.execute(f"INSERT INTO booked VALUES ({n})")
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@job
def promise_elsewhere(n: int) -> None:
    follow.at(FAR, n=n)


@app.job
def follow(n: int) -> None: ...
