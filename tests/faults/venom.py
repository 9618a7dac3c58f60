"""An app with a job that kills each worker that runs it, among harmless ones; `--app tests/faults/venom.py`.

Each worker has one life: it ends when the job kills it. The files in the folder `begun` name each attempt of a
neighbour that has begun.
"""

from __future__ import annotations

import asyncio
import os
import signal

from foliot import Context, Foliot
from tests.waiting import until_async

NEIGHBOURS = {1: 20, 2: 3, 3: 3, 4: 3}
"""By life, how many neighbours the worker executes for the first time when it dies."""

app = Foliot(backoff="20ms", backoff_cap="20ms", lease="10m")
"""No lease ends: the watch sees that the process of a killed worker is gone."""


@app.job(poison_after=3, attempts=10)
async def sting(ctx: Context, begun: str) -> None:
    """One attempt in each life. It waits until all new neighbours of that life have begun."""
    wanted = {f"{ctx.attempt}-{n}-1" for n in range(NEIGHBOURS[ctx.attempt])}
    await until_async(lambda: wanted <= set(os.listdir(begun)), "all neighbours of this life have begun")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(attempts=1)
async def neighbour(ctx: Context, life: int, n: int, begun: str) -> str:
    """The first attempt ends with its worker, unless the poison is set aside by then. The second one succeeds.

    A run that were charged for its worker's death would have no second attempt.
    """
    os.mknod(os.path.join(begun, f"{life}-{n}-{ctx.attempt}"))
    if ctx.attempt == 1 and life in NEIGHBOURS:
        await asyncio.Event().wait()
    return f"neighbour {n}"
