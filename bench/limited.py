"""The app under limits: a job that does nothing, and one that takes 20 ms and leaves the processor to others."""

import asyncio

from foliot import Foliot

app = Foliot()


@app.job
async def noop() -> None:
    pass


@app.job
async def nap() -> None:
    await asyncio.sleep(0.02)
