"""An app whose handlers hang, as deaf as they come; `--app tests/faults/stubborn.py`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from foliot import Foliot

app = Foliot(backoff="0s", lease="3s")


def first_time(place: str) -> bool:
    """Whether nobody was here before."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@app.job(timeout="500ms")
def hang_once(place: str) -> str:
    if first_time(place):
        while True:
            time.sleep(0.05)
    return "done"


@app.job(timeout="1s")
async def block_once(place: str) -> str:
    if first_time(place):
        time.sleep(3600)  # noqa: ASYNC251 - blocking its worker's event loop is the point
    return "done"


@app.job(timeout="30s")
async def wait_beside(place: str) -> str:
    if first_time(place):
        await asyncio.sleep(20)
    return "done"


@app.job(timeout="30s")
def take(seconds: float) -> str:
    time.sleep(seconds)
    return "taken"


@app.job(timeout="60s", isolation="process")
def linger(place: str) -> None:
    """Starts another process that leaves the session, writes down who they are, and never ends."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(place).write_text(f"{os.getpid()} {other.pid}")
    while True:
        time.sleep(0.05)
