"""The embedded store: one SQLite file, several processes on one host.

A store moves through three states: made (nothing is open), open (one writer, one reader, one sentry that only asks
whether the file changed), closed. Verbs that change something go to the writer; verbs that look go to the reader, in
a thread of its own, so that neither blocks the event loop. In memory all three are one connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import apsw

from foliot.clock import Clock, SystemClock
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Claimed, Ending, Kept, Loss, Progress, Promise, RunView, SilentAttempt
from foliot.domain.schedule import Applied, Armed, Declaration, Rearming, ScheduleView
from foliot.domain.store import (
    Arrivals,
    Beat,
    Cells,
    Decide,
    EventRow,
    Fired,
    Instance,
    JobCard,
    Lease,
    Schema,
    Standing,
)
from foliot.errors import InvalidInput, StoreClosed, StoreError, UnknownName
from foliot.store import queries
from foliot.store.migrations import refuse_pending
from foliot.store.sqlite import cells, migrating
from foliot.store.sqlite.connection import connect
from foliot.store.sqlite.transaction import SqliteTransaction, drive
from foliot.store.sqlite.writer import InlineWriter, Work, Writer, as_store_error
from foliot.store.verbs import dispatching, promises, reading, schedules, watching, working
from foliot.store.verbs.transaction import Transaction

T = TypeVar("T")

MEMORY = ":memory:"


class SqliteStore:
    """`foliot.domain.store.Store` on SQLite."""

    def __init__(self, path: str, clock: Clock | None = None, *, migrates: bool = True) -> None:
        self.path = path
        self._migrates = migrates
        self._clock = clock or SystemClock()
        self._queries = queries.load(files(__package__).joinpath("sql"))
        self._writer: Writer | InlineWriter | None = None
        self._reader: apsw.Connection | None = None
        self._sentry: apsw.Connection | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._inode = 0
        self._handed_off: dict[tuple[int, int], dispatching.HandedOff] = {}
        """By shard and epoch; dropped once the first window of the lease is loaded."""

    # Its own life

    async def open(self) -> None:
        if self.path == MEMORY:
            connection = connect(self.path)
            migrating.migrate(connection, self.path)
            self._reader = self._sentry = connection
            self._writer = InlineWriter(connection, self._queries, self._clock)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._open_file)
        assert self._writer is not None
        self._writer.start()

    def _open_file(self) -> None:
        if not self._migrates:
            refuse_pending(migrating.look(self.path), self.path)
        Path(self.path).absolute().parent.mkdir(parents=True, exist_ok=True)
        connection = connect(self.path)
        migrating.migrate(connection, self.path)
        self._reader = connect(self.path)
        self._sentry = connect(self.path)
        self._threads = ThreadPoolExecutor(1, "foliot-reader")
        self._writer = Writer(connection, self._queries, self._clock, self._refuse_another_file)
        self._inode = os.stat(self.path).st_ino

    def _refuse_another_file(self) -> None:
        """What is written to a file that has no name any more is acknowledged, and gone with the process."""
        try:
            same = os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was in use; nothing was written. Stop all processes, "
                f"put the file back, and start again"
            )

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        await asyncio.get_running_loop().run_in_executor(None, writer.close)
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.get_running_loop().run_in_executor(None, threads.shutdown)
        for connection in {id(c): c for c in (self._reader, self._sentry, writer.connection) if c is not None}.values():
            connection.close()
        self._reader = self._sentry = None

    async def schema(self) -> Schema:
        return await asyncio.get_running_loop().run_in_executor(None, migrating.look, self.path)

    async def migrate(self) -> Schema:
        return await asyncio.get_running_loop().run_in_executor(None, migrating.bring, self.path)

    def migration_sql(self, after: int) -> str:
        return migrating.as_sql(after)

    @property
    def has_own_clock(self) -> bool:
        return False

    async def now(self) -> Instant:
        if self._writer is None:
            raise StoreClosed("the store is closed")
        return self._clock.now()

    def version(self) -> int:
        if self._sentry is None:
            raise StoreClosed("the store is closed")
        # The pragma tells of other connections' commits; in memory there is only this one, which counts its changes.
        seen: int = self._sentry.pragma("data_version") if self.path != MEMORY else self._sentry.total_changes()
        return seen

    def when_new(self, callback: Callable[[], None]) -> bool:
        return False

    async def _write(self, work: Work[T]) -> T:
        if self._writer is None:
            raise StoreClosed("the store is closed")
        return await self._writer.submit(work)

    async def _read(self, work: Work[T]) -> T:
        if self._threads is None:
            return await self._write(work)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._snapshot, work)
        except apsw.Error as error:
            raise as_store_error(error) from error

    def _snapshot(self, work: Work[T]) -> T:
        """All queries of one look see one moment."""
        if self._reader is None:
            raise StoreClosed("the store is closed")
        self._reader.execute("BEGIN")
        try:
            return drive(work(SqliteTransaction(self._reader, self._queries, self._clock.now())))
        finally:
            self._reader.execute("ROLLBACK")

    # Promises

    async def promise(self, wanted: Sequence[Promise]) -> list[Kept]:
        return await self._write(lambda tx: promises.promise(tx, wanted))

    def promise_within(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        raise InvalidInput(
            "connection= makes a promise part of a transaction in the store's own database, and this store is an "
            "SQLite file of its own. Promise once your transaction has committed, or keep the store in the PostgreSQL "
            'that your tables are in: Foliot("postgresql://...")'
        )

    async def promise_within_async(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        return self.promise_within(connection, wanted)

    async def move(self, key: str, tenant: str | None, fire_at: Instant) -> Kept:
        return await self._write(lambda tx: promises.move(tx, key, tenant, fire_at))

    async def cancel_promise(self, key: str, tenant: str | None, *, actor: str, note: str) -> Kept:
        return await self._write(lambda tx: promises.cancel_promise(tx, key, tenant, actor, note))

    async def cancel(self, run_id: str, *, actor: str, note: str) -> Kept:
        return await self._write(lambda tx: promises.cancel(tx, run_id, actor, note))

    async def retry(self, run_id: str, *, actor: str, note: str, override: bool) -> Kept:
        return await self._write(lambda tx: promises.retry(tx, run_id, actor, note, override))

    # Schedules

    async def apply(
        self, declarations: Sequence[Declaration], *, prune: bool, actor: str, source: str = "code", release: str = ""
    ) -> Applied:
        return await self._write(lambda tx: schedules.apply(tx, declarations, prune, actor, source, release))

    async def fingerprints(self, source: str = "code") -> dict[str, str]:
        return await self._read(lambda tx: schedules.fingerprints(tx, source))

    async def declared_otherwise(self, schedule_id: str) -> list[str]:
        return await self._read(lambda tx: schedules.otherwise(tx, schedule_id))

    async def schedules(self) -> list[ScheduleView]:
        return await self._read(lambda tx: schedules.views(tx, None))

    async def schedule(self, schedule_id: str) -> ScheduleView:
        found = await self._read(lambda tx: schedules.views(tx, schedule_id))
        if not found:
            raise UnknownName(f"there is no schedule {schedule_id!r}")
        return found[0]

    async def pause(self, schedule_id: str, *, until: Instant | None, actor: str, note: str) -> None:
        await self._write(lambda tx: schedules.pause(tx, schedule_id, until, actor, note))

    async def resume(self, schedule_id: str, *, actor: str, note: str) -> None:
        await self._write(lambda tx: schedules.resume(tx, schedule_id, actor, note))

    async def delete(self, schedule_id: str, *, actor: str, note: str) -> None:
        await self._write(lambda tx: schedules.delete(tx, schedule_id, actor, note))

    async def trigger(self, schedule_id: str, *, since: Instant | None = None, actor: str, note: str) -> Kept:
        return await self._write(lambda tx: schedules.trigger(tx, schedule_id, since, actor, note))

    # Dispatch

    @property
    def shard_count(self) -> int:
        return 1

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        return await self._write(lambda tx: dispatching.standing(tx, owner, ttl, self.shard_count))

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        lease, handed_off = await self._write(lambda tx: cells.take(tx, shard, owner, ttl))
        if lease is not None:
            self._handed_off[shard, lease.epoch] = handed_off
        return lease

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        return await self._write(lambda tx: dispatching.renew(tx, leases, ttl, high_water))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._write(lambda tx: dispatching.release(tx, leases))

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int) -> Cells:
        before = self._handed_off.get((lease.shard, lease.epoch), dispatching.NOTHING)
        loaded = await self._read(lambda tx: cells.load(tx, lease, start, limit, before))
        if loaded.exhausted:
            # Later windows lie above everything that was handed off before the takeover.
            self._handed_off.pop((lease.shard, lease.epoch), None)
        return loaded

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        return await self._read(lambda tx: cells.arrivals(tx, leases, cursor))

    async def fire(
        self, leases: Sequence[Lease], due: Sequence[tuple[Instant, int]], cursor: int, decide: Decide
    ) -> Fired:
        return await self._write(lambda tx: cells.fire(tx, leases, due, cursor, decide))

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        return await self._read(lambda tx: schedules.computed_otherwise(tx, tables, after, limit))

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        return await self._write(lambda tx: schedules.rearm(tx, rearmings))

    # Work

    async def claim(self, worker: int, queues: Sequence[str], jobs: Sequence[str], limit: int) -> list[Claimed]:
        return await self._write(lambda tx: working.claim(tx, worker, queues, jobs, limit))

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        return await self._write(lambda tx: working.finish(tx, worker, endings))

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        return await self._write(lambda tx: working.give_back(tx, worker, claimed))

    async def beat(self, worker: int, progress: Sequence[Progress]) -> Beat:
        return await self._write(lambda tx: working.beat(tx, worker, progress))

    # Watch

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        return await self._read(lambda tx: watching.silent(tx, beat_before))

    async def lose(self, losses: Sequence[Loss]) -> int:
        return await self._write(lambda tx: watching.lose(tx, losses))

    async def jobs(self) -> dict[str, JobCard]:
        return await self._read(watching.jobs)

    async def note(self, kind: str, subject: str, detail: str) -> None:
        await self._write(lambda tx: tx.event(kind, subject, detail))

    async def tidy(self) -> None:
        """Nothing yet: what ended stays."""

    # Fleet

    async def register(
        self, role: str, *, version: str, queues: Sequence[str], slots: int, jobs: Sequence[JobCard], release: str = ""
    ) -> Instance:
        return await self._write(lambda tx: watching.register(tx, role, version, queues, slots, jobs, release))

    async def retire(self, instance: int) -> None:
        await self._write(lambda tx: watching.retire(tx, instance))

    async def instances(self) -> list[Instance]:
        return await self._read(watching.instances)

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
        await self._write(lambda tx: watching.report_clock(tx, instance, low, high, fenced))

    # Reading

    async def runs(
        self,
        *,
        states: Sequence[int] = (),
        schedule: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        return await self._read(lambda tx: reading.runs(tx, states, schedule, job, tenant, limit, before))

    async def run(self, run_id: str) -> RunView:
        return await self._read(lambda tx: reading.run(tx, run_id))

    async def ended_since(self, position: int, limit: int) -> list[RunView]:
        return await self._read(lambda tx: reading.ended_since(tx, position, limit))

    async def events_since(self, position: int, limit: int) -> list[EventRow]:
        return await self._read(lambda tx: reading.events_since(tx, position, limit))

    async def events_of(self, subject: str) -> list[EventRow]:
        return await self._read(lambda tx: reading.events_of(tx, subject))

    async def last_positions(self) -> tuple[int, int]:
        return await self._read(reading.last_positions)

    async def next_pending(self) -> RunView | None:
        return await self._read(reading.next_pending)

    async def counts(self) -> Mapping[str, int]:
        return await self._read(reading.counts)

    async def health(self) -> Mapping[str, Any]:
        return await self._read(self._health)

    async def _health(self, tx: Transaction) -> dict[str, Any]:
        connection = self._reader
        assert connection is not None
        schema = migrating.stand(connection)
        return {
            "engine": "sqlite",
            "path": self.path,
            "version": apsw.sqlite_lib_version(),
            "schema": schema.current,
            "schema_known": schema.latest,
            "journal_mode": connection.pragma("journal_mode"),
            "synchronous": {0: "off", 1: "normal", 2: "full", 3: "extra"}[connection.pragma("synchronous")],
            "bytes": 0 if self.path == MEMORY else os.stat(self.path).st_size,
            "integrity": "ok" if connection.execute("PRAGMA quick_check(1)").get == "ok" else "damaged",
        }
