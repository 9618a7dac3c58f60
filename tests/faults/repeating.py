"""An app whose handlers write down each item that they finished; `--app tests/faults/repeating.py`.

Each lineage of runs has a file. A line is one write with O_APPEND. A line `kept i` follows the call that reported item
i and did not raise. A later `begin i` of the same file is a repeated item.

A plan names what goes wrong in each attempt, and at which item. Attempts after the last one of the plan go well.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from foliot import Context, Foliot, Permanent
from foliot.store.process import birth_of, is_gone, this_host

app = Foliot(backoff="100ms", backoff_cap="1s", attempts=1_000, lease="10m")
"""No lease ends: the watch sees that the process of a worker is gone."""

BEGUN, WAITING = ".begun", ".waiting"
"""Files of all attempts: the name of each that has begun, and of each that waits to be asked to stop."""

WAITS = ("wait", "block")
"""Faults that last until the attempt is asked to stop. A thread does not react to that when it blocks."""

PACE = 0.002
"""Seconds for each item, so that faults fall between items."""

Plan = Sequence[tuple[str, int]]


class Evidence:
    """What one attempt writes down."""

    def __init__(self, ctx: Context, folder: str, name: str, plan: Plan) -> None:
        self._ctx = ctx
        self._name = name
        path = Path(folder) / name
        self._refuse_overlap(path)
        self._begun = path.parent / BEGUN
        self._waiting = path.parent / WAITING
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        place = sum(line.startswith("attempt ") for line in path.read_text().splitlines())
        self.fault, self._at = plan[place] if place < len(plan) else ("none", 0)
        self.write(f"attempt {os.getpid()} {birth_of(os.getpid())}")
        append(self._begun, name)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())

    def wait(self) -> None:
        append(self._waiting, self._name)

    def close(self) -> None:
        self.write("end")
        os.close(self._file)

    def is_due(self, item: int) -> bool:
        """Whether this attempt is to go wrong at this item."""
        return self.fault != "none" and item == self._at

    def go_wrong(self) -> None:
        """All faults but those that wait."""
        if self.fault == "raise":
            raise OSError("no line")
        if self.fault == "permanent":
            raise Permanent("no such account")
        if self.fault == "item":
            self._ctx.item_failed("no such item")

    def _refuse_overlap(self, path: Path) -> None:
        """The attempt before this one has ended, or its process has."""
        lines = path.read_text().splitlines() if path.exists() else []
        attempts = [number for number, line in enumerate(lines) if line.startswith("attempt ")]
        if attempts and "end" not in lines[attempts[-1] :]:
            _, pid, birth = lines[attempts[-1]].split(" ", 2)
            if not is_gone(this_host(), int(pid), birth):
                (path.parent / "overlap").write_text(f"{path.name}: process {pid} runs beside {os.getpid()}")


def append(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def meet(ctx: Context, seen: Evidence, item: int) -> None:
    seen.write(f"begin {item}")
    time.sleep(PACE)
    if not seen.is_due(item):
        return
    if seen.fault in WAITS:
        seen.wait()
        while seen.fault == "block" or not ctx.cancelled:
            time.sleep(25 * PACE)
        ctx.check()
    seen.go_wrong()


async def meet_in_loop(ctx: Context, seen: Evidence, item: int) -> None:
    seen.write(f"begin {item}")
    await asyncio.sleep(PACE)
    if not seen.is_due(item):
        return
    if seen.fault in WAITS:
        seen.wait()
        await asyncio.Event().wait()
    seen.go_wrong()


def go_over(ctx: Context, folder: str, name: str, plan: Plan, items: int) -> None:
    seen = Evidence(ctx, folder, name, plan)
    last: int | None = None
    try:
        for item in ctx.each(range(items)):
            if last is not None:
                seen.write(f"kept {last}")
            meet(ctx, seen, item)
            last = None if seen.fault == "item" and seen.is_due(item) else item
        seen.write(f"kept {last}")
    finally:
        seen.close()


async def go_over_in_loop(ctx: Context, folder: str, name: str, plan: Plan, items: int) -> None:
    seen = Evidence(ctx, folder, name, plan)
    last: int | None = None
    try:
        async for item in ctx.each(range(items)):
            if last is not None:
                seen.write(f"kept {last}")
            await meet_in_loop(ctx, seen, item)
            last = None if seen.fault == "item" and seen.is_due(item) else item
        seen.write(f"kept {last}")
    finally:
        seen.close()


def go_on(ctx: Context, folder: str, name: str, plan: Plan, items: int) -> None:
    seen = Evidence(ctx, folder, name, plan)
    try:
        for item in range(ctx.last_checkpoint or 0, items):
            meet(ctx, seen, item)
            ctx.checkpoint(item + 1)
            seen.write(f"kept {item}")
    finally:
        seen.close()


async def go_on_in_loop(ctx: Context, folder: str, name: str, plan: Plan, items: int) -> None:
    seen = Evidence(ctx, folder, name, plan)
    try:
        for item in range(ctx.last_checkpoint or 0, items):
            await meet_in_loop(ctx, seen, item)
            ctx.checkpoint(item + 1)
            seen.write(f"kept {item}")
    finally:
        seen.close()


app.job(name="each_in_thread")(go_over)
app.job(name="each_in_loop")(go_over_in_loop)
app.job(name="each_in_process", isolation="process")(go_over)
app.job(name="checkpoint_in_thread")(go_on)
app.job(name="checkpoint_in_loop")(go_on_in_loop)
app.job(name="checkpoint_in_process", isolation="process")(go_on)
