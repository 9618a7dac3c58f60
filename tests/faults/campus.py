"""The app that fault tests run: every handler writes what it really did to a log outside of Foliot.

A line is one write with O_APPEND: whole, in order, and there even when the process is killed right after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

from foliot import Context, Foliot, every
from tests.waiting import until_async

app = Foliot()
_log = os.open(os.environ["CAMPUS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def tell(what: str, ctx: Context, **more: object) -> None:
    told = {"what": what, "run": ctx.run_id, "attempt": ctx.attempt, "token": ctx.token, "at": time.time_ns() // 1_000}
    os.write(_log, json.dumps(told | {"due": int(ctx.nominal.timestamp() * 1_000_000)} | more).encode() + b"\n")


@app.job(lease="2s", attempts=1_000, backoff="50ms", backoff_cap="200ms")
async def record(ctx: Context, n: int) -> None:
    tell("start", ctx, n=n)
    await asyncio.sleep(0.002 * (n % 10))
    tell("end", ctx, n=n)


@app.job(lease="2s", attempts=1_000, backoff="50ms", backoff_cap="200ms")
def tick(ctx: Context) -> None:
    tell("start", ctx)
    tell("end", ctx)


@app.job(lease="1s", attempts=1_000, backoff="10ms")
async def wait(ctx: Context, gate: str) -> str:
    """Only the first attempt waits until the file `gate` exists: the second one shows that the run goes on."""
    tell("start", ctx)
    if ctx.attempt == 1:
        await until_async(lambda: os.path.exists(gate), "the test opens the gate")
    tell("end", ctx)
    return f"attempt {ctx.attempt}"


@app.job
async def greet(ctx: Context) -> None:
    tell("start", ctx)
    tell("end", ctx)


if os.environ.get("CAMPUS_SCHEDULES"):
    for number in range(5):
        app.schedule(f"tick-{number}", tick, every("200ms"), catch_up="all", overlap="allow")
    app.schedule("latest", tick, every("500ms"), catch_up="once", overlap="skip")
