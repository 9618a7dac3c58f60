"""Foliot: one scheduler and its workers, as the processes that a user would start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# Before the app is imported: it takes its store from here.
if __name__ == "__main__":
    os.environ["FOLIOT_STORE"] = sys.argv[1]

from bench.peers.foliot.jobs import app, noop
from bench.peers.protocol import NOTE, Adapter, main, moment

SLOTS = 1_000


class Ours(Adapter):
    BATCH = 5_000

    async def setup(self) -> None:
        await app.opened()
        await app.close_async()

    async def open(self) -> None:
        await app.opened()

    async def close(self) -> None:
        await app.close_async()

    async def promise(self, due: int) -> None:
        await noop.at_async(moment(due), due=due, note=NOTE)

    async def promise_many(self, dues: list[int]) -> None:
        await app.promise_many_async([noop.promise_at(moment(due), due=due, note=NOTE) for due in dues])

    async def work(self, place: int, schedules: int) -> None:
        raise NotImplementedError  # becomes `foliot scheduler` or `foliot worker`: see below


def become(out: str, place: int, schedules: int) -> None:
    """The first process is the scheduler, the others are workers."""
    role = ["scheduler"] if place == 0 else ["worker", "--slots", str(SLOTS)]
    file = Path(__file__).with_name("jobs.py")
    command = [sys.executable, "-m", "foliot", *role, "--app", str(file), "--supervised-by", str(os.getppid())]
    environment = {**os.environ, "FOLIOT_PEER_OUT": out, "FOLIOT_PEER_SCHEDULES": str(schedules)}
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    if sys.argv[2] == "work":
        become(**json.loads(sys.argv[3]))
    main(Ours)
