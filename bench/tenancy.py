"""The app under a flood: jobs that take as long as they are told to, and leave the processor to the scheduler."""

import asyncio

from foliot import Foliot

app = Foliot()


@app.job
async def trickle(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.job
async def flood(seconds: float) -> None:
    await asyncio.sleep(seconds)
