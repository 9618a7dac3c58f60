"""An app with a job that kills whatever worker runs it, among harmless ones; `--app tests/faults/venom.py`."""

from __future__ import annotations

import asyncio
import os
import signal

from foliot import Context, Foliot

NEIGHBOURS = 20

app = Foliot(backoff="20ms", backoff_cap="20ms", lease="5s")


@app.job(poison_after=3, attempts=10)
async def sting(ctx: Context, begun: str) -> None:
    """The first time, it waits until its neighbours are at work: all of them are in the worker's hands when it dies."""
    while ctx.attempt == 1 and len(os.listdir(begun)) < NEIGHBOURS:  # noqa: ASYNC110 - files ring no bell
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(attempts=1)
async def neighbour(ctx: Context, n: int, begun: str) -> str:
    """One that were charged for its worker's death would have no attempt left."""
    os.mknod(os.path.join(begun, f"{n}-{ctx.attempt}"))
    if ctx.attempt == 1:
        await asyncio.sleep(0.5)
    return f"neighbour {n}"
