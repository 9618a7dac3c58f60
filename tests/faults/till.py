"""A till that pays money out, and whose worker can be killed at any boundary of an attempt.

The banks are files outside of Foliot: a payment is one line, there even when the process is killed right after it. A
line names its idempotency key, and a bank pays for each key once.

As an app (`foliot worker --app tests/faults/till.py`) the till kills its own process at the point that TILL_DIES_AT
names. In virtual time the same handlers come to a point and stay there, until the test lets their worker vanish.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import uuid4

from foliot import Context, Foliot, Verdict
from foliot.store.postgres import claiming
from foliot.store.verbs import working
from foliot.work.outbox import Outbox
from foliot.work.worker import Worker

ACCOUNTS = 5


class Point(StrEnum):
    """Where in the life of an attempt its worker dies."""

    CLAIM = "before the claim commits"
    CLAIMED = "after the claim, before the handler begins"
    BEFORE = "in the handler, before the payment"
    INSIDE = "inside the effect, before the payment"
    PAID = "inside the effect, after the payment"
    MADE = "in the handler, after a payment without an effect"
    AFTER = "after the effect, before the handler returns"
    ITEMS = "in a loop, after 3 of 5 items"
    ROWS = "inside ctx.transaction(), before it commits"
    COMMITTED = "after ctx.transaction(), before the handler returns"
    FINISH = "before the end is committed"
    FINISHED = "after the end is committed"
    CHECK = "inside the check"


Reach = Callable[[Point], Awaitable[None]]
"""Called wherever a handler passes a point."""


class Bank:
    """One for each case."""

    def __init__(self, folder: Path, case: int) -> None:
        self.path = folder / f"bank-{case}"

    def pay(self, key: str = "") -> None:
        """Without a key, every request is a payment of its own."""
        line = f"{key or uuid4()}\n".encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def paid(self) -> int:
        return len(set(self.path.read_text().split())) if self.path.exists() else 0

    def has_paid(self, key: str) -> bool:
        return self.path.exists() and key in self.path.read_text().split()


def make_till(banks: Path, reach: Reach, store: str | None = None, **settings: Any) -> Foliot:
    app = Foliot(store, **settings)

    async def pay(ctx: Context, bank: Bank, **declared: Any) -> None:
        await reach(Point.BEFORE)
        async with ctx.effect("payout", 7, **declared) as payout:
            if payout.needed:
                await reach(Point.INSIDE)
                bank.pay(payout.key)
                await reach(Point.PAID)
        await reach(Point.AFTER)

    @app.job(effects=("payout",))
    async def settle(ctx: Context, case: int) -> None:
        await pay(ctx, Bank(banks, case))

    @app.job(effects=("payout",))
    async def settle_idempotent(ctx: Context, case: int) -> None:
        await pay(ctx, Bank(banks, case), idempotent=True)

    @app.job(effects=("payout",))
    async def settle_probed(ctx: Context, case: int) -> None:
        await pay(ctx, bank := Bank(banks, case), probe=bank.has_paid)

    @app.job(effects=("payout",))
    async def settle_checked(ctx: Context, case: int) -> None:
        await pay(ctx, Bank(banks, case))

    @settle_checked.verify
    async def is_settled(case: int) -> Verdict:
        await reach(Point.CHECK)
        paid = Bank(banks, case).paid()
        return Verdict(paid == 1, f"{paid} of 1 account")

    @app.job(effects=("payout",))
    async def settle_many(ctx: Context, case: int) -> None:
        async for account in ctx.each(range(ACCOUNTS), durable=True):
            if account == 3:
                await reach(Point.ITEMS)
            async with ctx.effect("payout", account) as payout:
                if payout.needed:
                    Bank(banks, case).pay(payout.key)

    @app.job
    async def untracked(ctx: Context, case: int) -> None:
        await reach(Point.BEFORE)
        Bank(banks, case).pay()
        await reach(Point.MADE)

    @app.job(on_lost="ask")
    async def untracked_ask(ctx: Context, case: int) -> None:
        await reach(Point.BEFORE)
        Bank(banks, case).pay()
        await reach(Point.MADE)

    @app.job(idempotent=True, on_lost="ask")
    async def rewrite(ctx: Context, case: int) -> None:
        Bank(banks, case).pay(ctx.dedupe_key)
        await reach(Point.MADE)

    @app.job(effects=("payout",))
    async def settle_in_rows(ctx: Context, case: int) -> None:
        async with ctx.transaction() as tx:
            async with tx.effect("payout", 7):
                """Here the payment is a row of the store's own database."""
            await reach(Point.ROWS)
        await reach(Point.COMMITTED)

    return app


# ------------------------------------------------------------------------------------------ a process that kills itself


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_around(place: Any, name: str, *, after: bool, when: Callable[..., Any] = lambda *_: True) -> None:
    """Has a coroutine function of the house die before, or after, what it does; `when` is given its answer, or its
    arguments."""
    inner = getattr(place, name)

    @wraps(inner)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        if not after and when(*args):
            die()
        answer = await inner(*args, **kwargs)
        if after and when(answer):
            die()
        return answer

    setattr(place, name, dying)


def arm(point: Point | None) -> None:
    """Has this process die at a point that lies between the handler and the store. Where an engine has a transaction of
    several statements, it dies before the last one; where there is one statement, before that is sent."""
    if point is Point.CLAIM:
        _dies_around(working, "claim", after=True, when=bool)
        _dies_around(claiming.Claimer, "_take", after=False)
    elif point is Point.CLAIMED:
        Worker.begin = lambda self, claimed: die() if claimed else None  # type: ignore[method-assign]
    elif point is Point.FINISH:
        _dies_around(working, "finish", after=True)
        _dies_around(claiming, "_finish_runs", after=False, when=lambda _server, plain: plain)
        _dies_around(claiming.Claimer, "_finish_and_claim", after=False, when=lambda _self, _worker, plain, *_: plain)
    elif point is Point.FINISHED:
        # It claims once: not the check that its own ending hands off.
        Worker._has_all = lambda self, now: self.begun > 0  # type: ignore[method-assign]
        _dies_around(Outbox, "_finish", after=True)


if "TILL_BANKS" in os.environ:
    chosen = Point(os.environ["TILL_DIES_AT"]) if os.environ.get("TILL_DIES_AT") else None
    arm(chosen)

    async def _die_at(point: Point) -> None:
        if point is chosen:
            die()

    app = make_till(Path(os.environ["TILL_BANKS"]), _die_at, backoff="100ms")
