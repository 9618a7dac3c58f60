"""An app with a job that kills whatever worker runs it, among harmless ones; `--app tests/faults/venom.py`."""

from __future__ import annotations

import asyncio
import os
import signal

from foliot import Context, Foliot
from tests.waiting import until_async

NEIGHBOURS = 20

app = Foliot(backoff="20ms", backoff_cap="20ms", lease="10m")
"""No lease ends: the watch sees that the process of a killed worker is gone."""


@app.job(poison_after=3, attempts=10)
async def sting(ctx: Context, begun: str) -> None:
    """The first time, it waits until its neighbours have begun: the worker executes all of them when it dies."""
    if ctx.attempt == 1:
        await until_async(lambda: len(os.listdir(begun)) >= NEIGHBOURS, "all neighbours have begun")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(attempts=1)
async def neighbour(ctx: Context, n: int, begun: str) -> str:
    """The first attempt of the first ones ends with its worker. A run that were charged for that would have no attempt
    left."""
    os.mknod(os.path.join(begun, f"{n}-{ctx.attempt}"))
    if ctx.attempt == 1 and n < NEIGHBOURS:
        await asyncio.Event().wait()
    return f"neighbour {n}"
