"""The embedded store: one SQLite file, several processes on one host.

A store moves through three states: made (nothing is open), open (one writer, one reader, one sentry that only asks
whether the file changed), closed. Verbs that change something go to the writer; verbs that look go to the reader, in
a thread of its own, so that neither blocks the event loop. In memory all three are one connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from foliot.clock import Clock, ManualClock, SystemClock
from foliot.domain.fairness import FairShares, Placing
from foliot.domain.instant import Duration, Instant
from foliot.domain.lanes import DueKind
from foliot.domain.run import Claimed, Ending, Kept, Lane, Promise
from foliot.domain.store import (
    Arrivals,
    Cells,
    Decide,
    Fired,
    Lease,
    Offer,
    Schema,
)
from foliot.errors import InvalidInput, NotWritten, StoreClosed
from foliot.portal import finished
from foliot.store import queries
from foliot.store.migrations import refuse_pending
from foliot.store.sqlite import cells, claiming, keeping, migrating
from foliot.store.sqlite.connection import connect, shared_files
from foliot.store.sqlite.hints import Listener, Sender, listen
from foliot.store.sqlite.lending import LentTransaction
from foliot.store.sqlite.transaction import SqliteTransaction
from foliot.store.sqlite.writer import InlineWriter, Reader, Work, Writer, as_store_error
from foliot.store.verbs import dispatching, promises, terms, working
from foliot.store.verbs.periodic import PeriodicVerbs, Waiting
from foliot.store.verbs.transaction import Row, Transaction

T = TypeVar("T")

MEMORY = ":memory:"


class SqliteStore(PeriodicVerbs):
    """`foliot.domain.store.Store` on SQLite."""

    shard_count = 1

    def __init__(self, path: str, clock: Clock | None = None, *, migrates: bool = True) -> None:
        self.path = path
        self._place = os.path.abspath(path)
        self._migrates = migrates
        self._clock = clock or SystemClock()
        self._queries = queries.queries_of(__package__)
        self._writer: Writer | InlineWriter | None = None
        self._reader: apsw.Connection | None = None
        self._sentry: apsw.Connection | None = None
        self._sender: Sender | None = None
        self._listener: Listener | None = None
        """None until a loop of this process listens."""
        self._looks: Reader | None = None
        self._inode = 0
        self._lent: set[apsw.Connection] = set()
        """Connections that handlers hold."""
        self._handed_off: dict[int, dispatching.HandedOff] = {}
        """By shard, when it was last taken; dropped once its past is loaded."""
        self._shares = FairShares()

    # Its own life

    async def open(self) -> None:
        if self.path == MEMORY:
            connection = connect(self.path, self._clock)
            migrating.migrate_new(connection)
            self._reader = self._sentry = connection
            self._writer = InlineWriter(connection, self._queries, self._clock)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._open_file)
        assert self._writer is not None
        self._writer.start()

    def _open_file(self) -> None:
        if not self._migrates:
            refuse_pending(migrating.look(self.path), self.path)
        migrating.make_folder(self.path)
        connection = connect(self.path, self._clock)
        migrating.migrate(connection, self.path)
        self._reader = connect(self.path, self._clock)
        self._sentry = connect(self.path, self._clock)
        self._looks = Reader(self._snapshot)
        self._looks.start()
        self._sender = Sender(self.path)
        self._writer = Writer(connection, self._queries, self._clock, self._refuse_another_file, self._sender.send)
        self._inode = os.stat(self.path).st_ino

    def _refuse_another_file(self) -> None:
        """What is written to a file that has no name any more is acknowledged, and gone with the process."""
        try:
            same = os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise NotWritten(
                f"{self.path} was deleted or replaced while it was in use, and this request was not written. Stop "
                "all processes, restore the file, and start them again"
            )

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        is_free = await asyncio.get_running_loop().run_in_executor(None, writer.close)
        looks, self._looks = self._looks, None
        if looks is not None:
            await asyncio.get_running_loop().run_in_executor(None, looks.close)
        if is_free:
            ours = (self._reader, self._sentry, writer.connection)
            for connection in {id(c): c for c in ours if c is not None}.values():
                connection.close()
        self._reader = self._sentry = None
        if self._sender is not None:
            self._sender.close()

    async def schema(self) -> Schema:
        return await asyncio.get_running_loop().run_in_executor(None, migrating.look, self.path)

    async def migrate(self) -> Schema:
        return await asyncio.get_running_loop().run_in_executor(None, migrating.bring, self.path)

    def migration_sql(self, after: int) -> str:
        return migrating.as_sql(after)

    @property
    def name(self) -> str:
        return "a store in memory" if self.path == MEMORY else self.path

    @property
    def url(self) -> str | None:
        if self.path == MEMORY:
            return None
        return f"sqlite:///{self._place}" + ("" if self._migrates else "?migrate=never")

    @property
    def file(self) -> str | None:
        return None if self.path == MEMORY else self.path

    @property
    def is_server(self) -> bool:
        return False

    def again(self) -> SqliteStore | None:
        if self.path == MEMORY:
            return None
        another = SqliteStore(self.path, self._clock)
        another.audit_keys = self.audit_keys
        return another

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
        # The pragma tells of other connections' commits; in memory there is only one, which counts its changes.
        if isinstance(self._writer, InlineWriter):
            return self._writer.changes()
        if self._listener is not None:
            return self._listener.version
        seen: int = self._sentry.pragma("data_version")
        return seen

    def when_new(self, callback: Callable[[], None]) -> bool:
        """From then on `version` follows only commits that other processes may wait for."""
        if self.path == MEMORY or isinstance(self._clock, ManualClock):
            return False  # virtual time asks when something has happened
        loop = asyncio.get_running_loop()
        if self._listener is None:
            self._listener = listen(self.path, loop)
        if self._listener is None or self._listener.loop is not loop:
            return False
        self._listener.when_heard(callback)
        return True

    async def write(self, work: Work[T], *, lazily: bool = False) -> T:
        if self._writer is None:
            raise StoreClosed("the store is closed")
        return await self._writer.submit(self.with_audit_keys(work), lazily=lazily)

    async def read(self, work: Work[T]) -> T:
        if self._looks is None:
            return await self.write(work)
        return await self._looks.submit(self.with_audit_keys(work))

    def _snapshot(self, work: Work[T]) -> T:
        """All queries of one look see one moment."""
        if self._reader is None:
            raise StoreClosed("the store is closed")
        self._reader.execute("BEGIN")
        try:
            return finished(work(SqliteTransaction(self._reader, self._queries, self._clock.now())))
        finally:
            self._reader.execute("ROLLBACK")

    # Promises

    async def promise(self, wanted: Sequence[Promise]) -> list[Kept]:
        return await self.write(lambda tx: promises.promise(tx, wanted))

    def promise_within(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        if connection in self._lent:
            try:
                return finished(
                    promises.promise(SqliteTransaction(connection, self._queries, self._clock.now()), wanted)
                )
            except apsw.Error as error:
                raise as_store_error(error) from error
        raise InvalidInput(
            "connection= joins a promise to a transaction of the store's own database, and this store is a "
            "separate SQLite file. In a job, use the connection of ctx.transaction() and keep your tables in that "
            "file. Elsewhere, promise after your transaction has committed, or use a store in the PostgreSQL "
            'database of your tables: Foliot("postgresql://...")'
        )

    async def promise_within_async(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        return self.promise_within(connection, wanted)

    # Transactions of handlers

    def transaction(self, connection: Any = None) -> LentTransaction:
        if connection is not None:
            raise InvalidInput(
                "connection=: this store is an SQLite file, which only Foliot may open in this process; call "
                "ctx.transaction() without connection= to get a connection to that file"
            )
        send_hints = (lambda: None) if self._sender is None else self._sender.send
        return LentTransaction(self._lend, self._take_back, self._queries, self._clock, send_hints)

    def _lend(self) -> apsw.Connection:
        if self._writer is None:
            raise StoreClosed("the store is closed")
        if isinstance(self._writer, InlineWriter):
            connection = self._writer.lend()
        else:
            self._refuse_another_file()
            connection = connect(self.path, self._clock)
        self._lent.add(connection)
        return connection

    def _take_back(self, connection: apsw.Connection) -> None:
        self._lent.discard(connection)
        if isinstance(self._writer, InlineWriter):
            self._writer.take_back()
        else:
            connection.close()

    # Dispatch

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        lease, handed_off = await self.write(lambda tx: cells.take(tx, shard, owner, ttl))
        if lease is not None:
            self._handed_off[shard] = handed_off
        return lease

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None = None) -> Cells:
        before = self._handed_off.get(lease.shard, dispatching.NOTHING)
        loaded = await self.read(lambda tx: cells.load(tx, lease, start, limit, until, before))
        if loaded.exhausted and until is not None:
            # Later windows lie above everything that was handed off before the takeover.
            self._handed_off.pop(lease.shard, None)
        return loaded

    async def lane_rates(self) -> dict[Lane, float | None]:
        rows = self._glance("lane_gates")
        return await super().lane_rates() if rows is None else dispatching.rates(rows)

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        if self._glance("last_number") == [(cursor,)]:
            return dispatching.told((), cursor)
        return await self.read(lambda tx: cells.arrivals(tx, leases, cursor))

    def look_ahead(self, leases: Sequence[Lease], decide: Decide) -> None:
        """Whatever were made ready here would hold the one writer up."""

    @property
    def lead(self) -> Duration:
        """Here a run is claimed within milliseconds of its firing."""
        return 0

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        placing = Placing(self._shares)
        fired = await self.write(lambda tx: cells.fire(tx, leases, due, cursor, decide, placing, kind))
        placing.keep()
        return fired._replace(patient=soon)

    # Work

    async def claim(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        suspects: bool = True,
        backlog: int | None = None,
        put_off: int | None = None,
        labels: Sequence[str] = (),
        ahead: int = 0,
        called: bool = False,
    ) -> list[Claimed]:
        # A query lets the writer's thread run. A claim beside outcomes that the same pass of the loop submitted shares
        # their commit, so nothing may come between them.
        shares = self._writer is not None and self._writer.has_requests
        if not shares and self._glance("is_any_to_claim", number=worker) == [(0,)]:
            return []  # without the write lock
        return await super().claim(worker, queues, jobs, limit, suspects, backlog, put_off, labels, ahead, called)

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        async def work(tx: Transaction) -> tuple[list[Ending], list[Claimed]]:
            assert isinstance(tx, SqliteTransaction)
            return await claiming.finish_and_claim(tx, worker, endings, offer)

        return await self.write(work)

    async def waiting_work(self) -> Waiting:
        rows = self._glance("waiting_work", now=self._clock.now())
        return Waiting() if rows is None else Waiting(*map(bool, rows[0]))

    def _glance(self, query: str, **values: object) -> list[Row] | None:
        """The rows of a query that reads a few pages, at once, by the connection that asks for the version. Waking a
        thread and being woken by it costs more. None where the store does not call."""
        if self._listener is None:
            return None
        if self._sentry is None:
            raise StoreClosed("the store is closed")
        try:
            return list(self._sentry.execute(self._queries[query], values))
        except apsw.Error as error:
            raise as_store_error(error) from error

    # Keeping

    async def tidy(self) -> None:
        """What waits in vain is told, what ended is counted, and what has outlived its term goes."""
        await self.write(working.report_waiting)
        await self.count_endings()
        await self.forget_ended_pauses()
        await keeping.tidy(self, await self.keep_days())

    async def health(self) -> Mapping[str, Any]:
        return await self.read(self._health)

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
            "shared_files": [] if self.path == MEMORY else shared_files(self.path),
            "keep_days": await terms.keep_days(tx),
            "integrity": "ok" if connection.execute("PRAGMA quick_check(1)").get == "ok" else "damaged",
        }
