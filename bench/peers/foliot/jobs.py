"""Foliot's app under load, loaded by the scheduler and by each worker."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.peers.protocol import record, record_into, say
from foliot import Context, Foliot, every

app = Foliot(os.environ.get("FOLIOT_STORE"))


@app.job
async def noop(due: int, note: str) -> None:
    record(due)


@app.job
async def tick(context: Context) -> None:
    record(context.nominal)


def begin(out: str, schedules: int, ready: Callable[..., None] = say) -> None:
    """In a process of Foliot's own, which knows of nothing but this app."""
    record_into(out)
    for number in range(schedules):
        app.schedule(f"tick{number}", tick, every("1s"))
    ready(ready=True)


if "FOLIOT_PEER_OUT" in os.environ:
    begin(os.environ["FOLIOT_PEER_OUT"], int(os.environ["FOLIOT_PEER_SCHEDULES"]))
