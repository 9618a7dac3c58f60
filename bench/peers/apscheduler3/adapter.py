"""APScheduler 3: jobs run inside the one scheduler process, in threads, from the SQLAlchemy job store.

Its scheduler for asyncio looks into the store from the event loop that the jobs wait for, and starts them later.
"""

# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import asyncio
import logging
from typing import Any

from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from bench.peers.protocol import NOTE, Adapter, begin_of, main, moment, record, say, until


def noop(due: int, note: str) -> None:
    record(due)


def nothing() -> None:
    """A tick. When it was due is said to listeners only, once it has run."""


def tick(event: Any) -> None:
    record(event.scheduled_run_time)


class Scheduler3(Adapter):
    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        url = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        self.scheduler = BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(url=url)},
            job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1_000},
            timezone="UTC",
        )

    async def setup(self) -> None:
        self.scheduler.start(paused=True)  # makes the table

    async def open(self) -> None:
        self.scheduler.start(paused=True)  # until it is started, jobs are only kept in memory

    async def close(self) -> None:
        pass

    async def promise(self, due: int) -> None:
        self._add(due)

    async def promise_many(self, dues: list[int]) -> None:
        """One after another: there is no batch."""
        for due in dues:
            self._add(due)

    def _add(self, due: int) -> None:
        self.scheduler.add_job(noop, "date", run_date=moment(due), args=(due, NOTE))

    async def work(self, place: int, schedules: int) -> None:
        self.scheduler.start(paused=True)
        if schedules:
            self.scheduler.add_listener(tick, EVENT_JOB_EXECUTED)
            begin = begin_of(schedules)
            for number in range(schedules):
                self.scheduler.add_job(nothing, "cron", second="*", start_date=moment(begin), id=str(number))
            await until(begin)
        self.scheduler.resume()
        say(ready=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    # By its own name, not as __main__: a job is stored under the name of its function.
    from bench.peers.apscheduler3.adapter import Scheduler3 as Named

    main(Named)
