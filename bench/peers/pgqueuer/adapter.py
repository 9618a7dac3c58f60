"""PgQueuer: workers that dequeue and finish in batches, on uvloop, as its own command runs them."""

# mypy: disable-error-code="import-not-found, import-untyped, misc"

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver

from bench.peers.protocol import NOTE, Adapter, main, moment, record, say

DEQUEUE = 1_000
"""As many jobs as a worker takes in one go. Its default is 10."""


class Queuer(Adapter):
    BATCH = 5_000

    async def setup(self) -> None:
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.dsn)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self) -> None:
        await self.connection.close()

    async def promise(self, due: int) -> None:
        await self.queries.enqueue("noop", _payload(due), 0, _wait(due))

    async def promise_many(self, dues: list[int]) -> None:
        # It takes how long to wait, not until when, so the due time that counts is the one that it computed.
        count = len(dues)
        waits = [_wait(due) for due in dues]
        await self.queries.enqueue(["noop"] * count, [_payload(due) for due in dues], [0] * count, waits)

    async def work(self, place: int, schedules: int) -> None:
        await self.open()
        queuer = PgQueuer.from_asyncpg_connection(self.connection)

        @queuer.entrypoint("noop")
        async def noop(job: Any) -> None:
            record(job.execute_after)

        for number in range(schedules):
            _tick(queuer, f"tick{number}")
        say(ready=True)
        if schedules:
            await queuer.sm.run()
        else:
            await queuer.run(batch_size=DEQUEUE, dequeue_timeout=timedelta(seconds=1))


def _tick(queuer: Any, name: str) -> None:
    following: datetime | None = None

    @queuer.schedule(name, "* * * * * *")
    async def tick(schedule: Any) -> None:
        # What it is given is the next time already; this run is for the one it was given before.
        nonlocal following
        if following is not None:
            record(following)
        following = schedule.next_run


def _payload(due: int) -> bytes:
    return json.dumps({"due": due, "note": NOTE}).encode()


def _wait(due: int) -> timedelta:
    return max(timedelta(0), moment(due) - datetime.now(moment(0).tzinfo))


if __name__ == "__main__":
    main(Queuer, uvloop.run)
