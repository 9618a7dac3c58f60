"""An app whose handlers hang, and do not react to a request to stop; `--app tests/faults/stubborn.py`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

from foliot import Foliot

app = Foliot(backoff="0s", lease="10m")
"""No lease ends: the watch sees that the process of a worker is gone."""


def first_time(place: str) -> bool:
    """Whether no attempt was here before."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@app.job(timeout="2s")
def hang_once(place: str) -> str:
    """An attempt that ends in time, on a slow machine too, is the second one at the latest."""
    if first_time(place):
        sleep_for_ever()
    return "done"


@app.job(timeout="2s")
async def block_once(place: str) -> str:
    if first_time(place):
        sleep_for_ever()  # blocking the event loop of its worker is the point
    return "done"


@app.job
async def wait_beside(place: str) -> str:
    if first_time(place):
        await asyncio.Event().wait()
    return "done"


@app.job
def take(gate: str) -> str:
    """Reads from a FIFO until the test has written to it."""
    return Path(gate).read_text()


@app.job(isolation="process")
def linger(place: str) -> None:
    """Starts another process that leaves the session, writes down their ids, and never ends."""
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(place).write_text(f"{os.getpid()} {other.pid}")
    sleep_for_ever()


def sleep_for_ever() -> None:
    while True:
        time.sleep(3_600)
