"""An app whose handlers never stop; `--app tests/faults/blocking.py`. A file in a folder names each attempt.

An attempt of an early life goes on until its process is ended. The process of each earlier attempt of its run must have
ended before: else the attempt writes a file `overlap`.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from foliot import Context, Foliot
from foliot.store.process import birth_of, is_gone, this_host

app = Foliot(attempts=1, lease="10m")
"""No lease ends: the watch sees that the process of a worker is gone."""


def is_last(folder: str, run: str, lives: int) -> bool:
    """Writes the attempt down; whether it is to succeed."""
    earlier = [path for path in Path(folder).iterdir() if path.name.startswith(f"{run}-")]
    for path in earlier:
        pid, birth = path.read_text().split(" ", 1)
        if not is_gone(this_host(), int(pid), birth):
            (Path(folder) / "overlap").write_text(f"{run}: process {pid} runs beside {os.getpid()}")
    begun = Path(folder) / f"{run}-{len(earlier) + 1}"
    writing = begun.with_name(f"writing-{begun.name}")
    writing.write_text(f"{os.getpid()} {birth_of(os.getpid())}")
    writing.rename(begun)
    return len(earlier) >= lives


@app.job
def block(folder: str, name: str, lives: int) -> None:
    """Has no context, and so cannot know that it should stop."""
    if not is_last(folder, name, lives):
        sleep_for_ever()


@app.job
def ignore(ctx: Context, folder: str, name: str, lives: int) -> None:
    """Does not ask its context."""
    if not is_last(folder, name, lives):
        sleep_for_ever()


@app.job
async def swallow(folder: str, name: str, lives: int) -> None:
    """Swallows its cancellation."""
    if not is_last(folder, name, lives):
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@app.job(isolation="process")
def isolate(folder: str, name: str, lives: int) -> None:
    """Is killed with its own process."""
    if not is_last(folder, name, lives):
        sleep_for_ever()


@app.job
async def block_loop(folder: str, name: str, lives: int) -> None:
    """Keeps its worker from doing anything in order."""
    if not is_last(folder, name, lives):
        sleep_for_ever()


def sleep_for_ever() -> None:
    while True:
        time.sleep(3_600)
