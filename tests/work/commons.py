"""Jobs that share their worker's process, and that another process can import."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from foliot import Foliot

app = Foliot("sqlite:///:memory:")


@app.job
def where() -> int:
    return os.getpid()


@app.job
async def fall(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def fail() -> None:
    raise ValueError("no")


@app.job
def halt() -> None:
    while True:
        time.sleep(600)
