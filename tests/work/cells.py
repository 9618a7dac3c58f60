"""Jobs that a process of its own can import, and what becomes of them there."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from foliot import Context, Foliot, Permanent
from tests.waiting import until

app = Foliot("sqlite:///:memory:")
job = app.job(isolation="process")


@job
def add(x: int, y: int) -> int:
    return x + y


@job
async def add_later(x: int, y: int) -> int:
    await asyncio.sleep(0)
    return x + y


@job
def whoami() -> tuple[int, int, list[str]]:
    heavy = ("typer", "rich", "holidays", "asyncpg", "foliot.cli", "foliot.testing")
    return os.getpid(), os.getsid(0), [name for name in heavy if name in sys.modules]


@job
def refuse(why: str) -> None:
    raise Permanent(why)


@job
def crash(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@job
def hang() -> None:
    while True:
        time.sleep(600)


@job
def hang_politely(ctx: Context) -> None:
    until(lambda: ctx.cancelled, "the attempt is asked to stop")


@job
async def hang_async(ctx: Context) -> None:
    await asyncio.Event().wait()


@job
def tell(ctx: Context, heard: str) -> int:
    """Ends when the test has seen that the store heard it."""
    ctx.progress(1, of=3, note="begun")
    ctx.checkpoint({"row": 7})
    until(Path(heard).exists, "the store has heard it")
    return ctx.attempt


@job
def pay(ctx: Context, bill: int) -> str:
    with ctx.effect("payout", key=bill) as payout:
        if payout.needed:
            payout.result = f"paid {bill}"
    return str(payout.result)


@job
def pay_and_die(ctx: Context, bill: int) -> None:
    with ctx.effect("payout", key=bill):
        os.kill(os.getpid(), signal.SIGKILL)


@job
def settle(ctx: Context) -> None:
    with ctx.transaction():
        pass


@job
def batch(ctx: Context, heard: str) -> None:
    for number in ctx.each([1, 2, 3]):
        if number == 3:
            until(Path(heard).exists, "the store has heard of the first two")
            os._exit(4)


@app.job(isolation="process", memory="200MB")
def hoard() -> int:
    return len(bytearray(400_000_000))


@job
def raise_a_family(note: str) -> None:
    """One that leaves its session and loses its parent, and one that leaves its session without any mark."""
    sleeper = "import time; time.sleep(600)"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-c", orphan], check=True)
    own = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True, env={})
    Path(note).write_text(str(own.pid))
    hang()


@job
def fork() -> str:
    if os.fork() == 0:
        return "the other one"
    os.wait()
    return "this one"


def make_hidden() -> Foliot:
    hidden = Foliot("sqlite:///:memory:")

    @hidden.job(isolation="process")
    def unseen() -> None: ...

    return hidden
