"""Procrastinate: asynchronous workers, which fetch and finish jobs one by one."""

# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import logging
from typing import Any

from procrastinate import App, PsycopgConnector, jobs

from bench.peers.protocol import NOTE, Adapter, main, moment, record, say

CONCURRENCY = 20
POLL = 0.02
"""Seconds between looks for jobs whose time has come: nothing notifies of those."""


class Procrastinate(Adapter):
    BATCH = 20_000

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self.app = App(connector=PsycopgConnector(conninfo=dsn, min_size=2, max_size=CONCURRENCY + 2))

        @self.app.task(name="noop")
        async def noop(due: int, note: str) -> None:
            record(due)

        self.noop = noop

    async def setup(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def promise(self, due: int) -> None:
        await self.noop.configure(schedule_at=moment(due)).defer_async(due=due, note=NOTE)

    async def promise_many(self, dues: list[int]) -> None:
        # task.batch_defer has one due time for all of a batch; the job manager under it takes one for each.
        listed = [_job(due) for due in dues]
        await self.app.job_manager.batch_defer_jobs_async(listed)

    async def work(self, place: int, schedules: int) -> None:
        for number in range(schedules):

            @self.app.periodic(cron="* * * * * *", periodic_id=str(number))
            @self.app.task(name=f"tick{number}", pass_context=False)
            async def tick(timestamp: int) -> None:
                record(timestamp * 1_000)

        async with self.app.open_async():
            say(ready=True)
            await self.app.run_worker_async(
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=POLL,
                delete_jobs="always",
                install_signal_handlers=False,
            )


def _job(due: int) -> Any:
    return jobs.Job(
        id=None,
        queue="default",
        lock=None,
        queueing_lock=None,
        task_name="noop",
        task_kwargs={"due": due, "note": NOTE},
        scheduled_at=moment(due),
    )


if __name__ == "__main__":
    main(Procrastinate)
