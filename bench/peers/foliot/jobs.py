"""Foliot's app under load, loaded by the scheduler and by each worker."""

from __future__ import annotations

import os

from bench.peers.protocol import record, record_into, say
from foliot import Context, Foliot, every

app = Foliot(os.environ.get("FOLIOT_STORE"))


@app.job
async def noop(due: int, note: str) -> None:
    record(due)


@app.job
async def tick(context: Context) -> None:
    record(context.nominal)


# In a process of Foliot's own, which knows of nothing but this file.
if "FOLIOT_PEER_OUT" in os.environ:
    record_into(os.environ["FOLIOT_PEER_OUT"])
    for number in range(int(os.environ["FOLIOT_PEER_SCHEDULES"])):
        app.schedule(f"tick{number}", tick, every("1s"))
    say(ready=True)
