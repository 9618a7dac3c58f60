"""APScheduler 4 (a pre-release): one process that schedules and works, on its PostgreSQL data store.

Several could share the store, with events through the database. Which of the two does more was not settled here.
"""

# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import logging
from datetime import datetime

from apscheduler import AsyncScheduler, CoalescePolicy, ConflictPolicy, TaskDefaults, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from bench.peers.protocol import NOTE, Adapter, begin_of, in_order, main, moment, record, say, until

CALLERS = 16
"""It takes no batch; so many callers at once fill it fastest."""


async def noop(due: int, note: str) -> None:
    record(due)


async def tick() -> None:
    record(current_job.get().scheduled_fire_time)


class Scheduler4(Adapter):
    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://", 1), pool_size=CALLERS + 4)
        self.scheduler = AsyncScheduler(
            SQLAlchemyDataStore(engine),
            task_defaults=TaskDefaults(job_executor="async", max_running_jobs=None),
            max_concurrent_jobs=1_000,
        )

    async def setup(self) -> None:
        async with self.scheduler:
            pass

    async def open(self) -> None:
        await self.scheduler.__aenter__()

    async def close(self) -> None:
        await self.scheduler.__aexit__(None, None, None)

    async def promise(self, due: int) -> None:
        await self.scheduler.add_schedule(noop, DateTrigger(moment(due)), args=(due, NOTE))

    async def promise_many(self, dues: list[int]) -> None:
        await in_order((self.promise(due) for due in dues), CALLERS)

    async def work(self, place: int, schedules: int) -> None:
        async with self.scheduler:
            if schedules:
                begin = begin_of(schedules)
                await in_order((self._every_second(number, moment(begin)) for number in range(schedules)), CALLERS)
                await until(begin)
            say(ready=True)
            await self.scheduler.run_until_stopped()

    async def _every_second(self, number: int, start: datetime) -> None:
        await self.scheduler.add_schedule(
            tick,
            IntervalTrigger(seconds=1, start_time=start),
            id=str(number),
            coalesce=CoalescePolicy.all,
            conflict_policy=ConflictPolicy.do_nothing,
        )


if __name__ == "__main__":
    # By its own name, not as __main__: a task is stored under the name of its function.
    from bench.peers.apscheduler4.adapter import Scheduler4 as Named

    main(Named)
