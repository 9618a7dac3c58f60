"""An app with a job that kills each process that executes it, among harmless ones; `--app tests/faults/venom.py`.

A worker lives until the job kills it. The files in the folder `begun` name each attempt of a neighbour that has begun.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

from foliot import Context, Foliot
from tests.waiting import until_async

SLOTS = 12
LIVES = 4
"""How many of these workers the job kills, until its attempts have processes of their own."""
NEIGHBOURS = 10
"""How many neighbours each worker executes for the first time when it dies, and how many the last one executes beside
those processes."""
RELEASE = "release"
"""The file in `begun` that lets neighbours end which wait for it."""

app = Foliot(backoff="20ms", backoff_cap="20ms", lease="10m")
"""No lease ends: the watch sees that the process of a killed worker is gone."""


@app.job(poison_after=3)
async def sting(ctx: Context, begun: str, how: str) -> None:
    """In a worker, it waits until all new neighbours of that worker have begun."""
    wanted = {f"{ctx.attempt}-{n}-1" for n in range(NEIGHBOURS)} if ctx.attempt <= LIVES else set()
    await until_async(lambda: wanted <= set(os.listdir(begun)), "all new neighbours in this worker have begun")
    if how == "segfault":
        ctypes.string_at(0)
    os._exit(9)


@app.job(attempts=1)
async def neighbour(ctx: Context, life: int, n: int, begun: str) -> str:
    """The first attempt ends with its worker, where the job kills that. A later one succeeds.

    A run that were charged for its worker's death would have no second attempt.
    """
    os.mknod(os.path.join(begun, f"{life}-{n}-{ctx.attempt}"))
    if ctx.attempt == 1 and life <= LIVES:
        await asyncio.Event().wait()
    if life > LIVES:
        await until_async(lambda: os.path.exists(os.path.join(begun, RELEASE)), "the test lets the neighbours end")
    return f"neighbour {n}"
