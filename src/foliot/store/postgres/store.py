"""The fleet's store: one PostgreSQL, any number of processes.

A store moves through three states: made (nothing is open), open, closed. Opening checks the server and its schema with
a connection that is closed again; each event loop that uses the store then gets connections of its own.

Verbs are transactions of named queries, as with every engine. The four that carry the load (promise, fire, claim,
finish) are single statements where they can be, and their callers choose the numbers, so that an answer which was lost
can be asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from foliot.clock import Clock, ManualClock
from foliot.domain.access import WorkBound
from foliot.domain.instant import Duration, Instant
from foliot.domain.lanes import DueKind
from foliot.domain.run import Claimed, Ending, Kept, Lane, Loss, Progress, Promise
from foliot.domain.store import (
    CALLED_FOR,
    Arrivals,
    Beat,
    Cells,
    Decide,
    Fired,
    Instance,
    JobCard,
    Lease,
    Offer,
    Schema,
)
from foliot.errors import FoliotError, StoreClosed, StoreError
from foliot.store import queries
from foliot.store.migrations import refuse_pending
from foliot.store.postgres import callers, claiming, connection, keeping, lending, migrating, promising
from foliot.store.postgres.address import address
from foliot.store.postgres.bell import Bell, channel
from foliot.store.postgres.cells import LEAD, CellReader
from foliot.store.postgres.connection import (
    AGAIN,
    UNREACHABLE,
    Connections,
    as_store_error,
    away,
    is_cut,
    pauses,
    unknown,
)
from foliot.store.postgres.health import health
from foliot.store.postgres.periodic import PeriodicVerbs
from foliot.store.postgres.together import Alone, Together
from foliot.store.postgres.transaction import Numbers, PostgresTransaction, Query, Work, prepared
from foliot.store.verbs import dispatching, watching
from foliot.store.verbs.transaction import Row

T = TypeVar("T")

_TRIES = 5
_HEARS = {"scheduler": {"arrivals"}, "worker": {"handoff"}}


@cache
def _queries() -> Mapping[str, Query]:
    return prepared(queries.queries_of(__package__))


class _Loop:
    """What one event loop has of the store."""

    def __init__(self, store: PostgresStore) -> None:
        self.pid = os.getpid()
        self.plain: Together[Promise, Kept] = Together(store._send_plain, 1_000)
        self.keyed: Together[Promise, Kept] = Together(store._send_keyed, 200)
        listens = store.where.listen
        self.bell = Bell(store._notify, None if listens is None else lambda: store.connections.connect(listens))


class PostgresStore(PeriodicVerbs):
    """`foliot.domain.store.Store` on PostgreSQL."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__()
        self.url = url
        self.where = address(url)
        self._virtual = clock if isinstance(clock, ManualClock) else None
        """A clock that tests move; the server is told to go by it. Otherwise the server's own clock decides."""
        self.connections = Connections(self.where)
        self._queries = _queries()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()
        self._cells = CellReader(self)
        self._claimer = claiming.Claimer(self)
        self._is_open = False
        self.numbers = Numbers(0)
        self.shard_count = 0

    # Its own life

    async def open(self) -> None:
        try:
            first = await self.connections.connect()
            try:
                await connection.checked(first, self.where)
                if self.where.migrates:
                    await migrating.migrate(first, self.where)
                else:
                    refuse_pending(await migrating.stand(first), self.where.shown)
                if self._virtual is not None and not await first.fetchval(_IS_VIRTUAL):
                    await first.execute(_VIRTUAL_NOW)
                self.shard_count = await first.fetchval("SELECT shards FROM foliot.setting")
                self.numbers = Numbers(await first.fetchval(self._queries["next_node"].text))
                # A restored dump is large, and is put right once: that may take its time.
                await first.execute(
                    f"BEGIN; SET LOCAL statement_timeout = 0; {self._queries['begin_life'].text}; COMMIT",
                    timeout=86_400,
                )
            finally:
                await first.close(timeout=5)
        except asyncpg.ClientConfigurationError as error:
            raise StoreError(f"{self.where.shown} is not a valid address: {error}") from error
        except UNREACHABLE as error:
            raise away(error, self.where) from error
        except asyncpg.PostgresError as error:
            raise as_store_error(error, self.where) from error
        self._is_open = True
        self.connections.open()

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._cells.close()
            for loop, here in list(self._loops.items()):
                if loop is asyncio.get_running_loop():
                    await here.plain.done()
                    await here.keyed.done()
                    await here.bell.close()
            self._loops.clear()
            await self.connections.close()

    async def schema(self) -> Schema:
        return await migrating.look(self.where)

    async def migrate(self) -> Schema:
        return await migrating.bring(self.where)

    def migration_sql(self, after: int) -> str:
        return migrating.as_sql(after)

    @property
    def name(self) -> str:
        return self.where.shown

    @property
    def file(self) -> str | None:
        return None

    @property
    def is_server(self) -> bool:
        return True

    def again(self) -> PostgresStore:
        another = PostgresStore(self.url, self._virtual)
        another.audit_keys = self.audit_keys
        return another

    @property
    def has_own_clock(self) -> bool:
        return True

    async def now(self) -> Instant:
        [[now]] = await self.statement("look")
        return int(now)

    def version(self) -> int:
        if not self._is_open:
            raise StoreClosed("the store is closed")
        return self._here().bell.version

    def when_new(self, callback: Callable[[], None]) -> bool:
        if self._virtual is not None:
            return False
        self._here().bell.when_heard(callback)
        return True

    def ring(self, who: set[str]) -> None:
        if who:
            self._here().bell.ring(who)

    def heard(self, who: set[str]) -> None:
        """As `ring`, when others were told already."""
        if self._is_open:
            self._here().bell.heard(who)

    @property
    def bell(self) -> Bell:
        """Of this event loop."""
        return self._here().bell

    def _here(self) -> _Loop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None or here.pid != os.getpid():
            here = self._loops[loop] = _Loop(self)
        return here

    async def _notify(self, who: str) -> None:
        async with self.connections.acquired() as used:
            await used.execute(f"NOTIFY {channel(who)}")

    # Transactions

    async def statement(self, query: str, /, **values: Any) -> list[Row]:
        """One statement that is a transaction of its own. StoreError when its outcome is not known: it may have been
        done. A violated key is the caller's to understand."""
        wanted = self._queries[query]
        for left in reversed(range(_TRIES)):
            try:
                return await self._state(wanted.text, wanted.arguments(values))
            except asyncpg.UniqueViolationError:
                raise
            except AGAIN as error:
                if not left or isinstance(error, asyncpg.LockNotAvailableError):
                    raise as_store_error(error, self.where) from error
                await asyncio.sleep(0.01 * (_TRIES - left))
            except (asyncpg.PostgresError, *UNREACHABLE) as error:
                raise as_store_error(error, self.where) from error
        raise AssertionError("unreachable")

    async def repeated(self, query: str, /, **values: Any) -> list[Row]:
        """A statement that does no harm if it is done twice: said again when its outcome is not known."""
        try:
            return await self.statement(query, **values)
        except StoreError as error:
            if not isinstance(error.__cause__, UNREACHABLE):
                raise
        return await self.statement(query, **values)

    async def _state(self, text: str, arguments: Sequence[Any]) -> list[Row]:
        async with self.connections.acquired(hot=True) as used:
            if self._virtual is None and not self.where.pooler:
                rows: list[Row] = await used.fetch(text, *arguments)
                return rows
            try:
                await self._begin(used, connection.begin(self.where.pooler, hot=True))
                rows = await used.fetch(text, *arguments)
            except BaseException:
                await _roll_back(used)
                raise
            await used.execute("COMMIT")
            return rows

    async def settle(self) -> None:
        """Ends the statements of connections that broke. StoreError if the server does not end them in time."""
        await self.asked(self._settled)

    async def _settled(self) -> bool | None:
        try:
            return await self.connections.settle() or None
        except (asyncpg.PostgresError, *UNREACHABLE) as error:
            raise as_store_error(error, self.where) from error

    async def asked(self, question: Callable[[], Awaitable[T | None]]) -> T:
        """The answer to a question that changes nothing. It is repeated for as long as a verb waits for the server,
        while its connection is cut and while the answer is None. StoreError when there is none in that time."""
        lengths = pauses(self.connections.patience)
        while True:
            try:
                answer = await question()
                if answer is not None:
                    return answer
                error = StoreError(
                    f"PostgreSQL at {self.where.shown} does not answer; check the server and the network"
                )
            except StoreError as failure:
                if not is_cut(failure):
                    raise
                error = failure
            length = next(lengths, None)
            if length is None:
                raise error
            await asyncio.sleep(length)

    async def _begin(self, used: Any, words: str) -> Instant:
        """A transaction that need not have a name; answers its moment."""
        if self._virtual is not None:
            now = self._virtual.now()
            await used.execute(f"{words}; SET LOCAL foliot.now = '{now}'")
            return now
        await used.execute(words)
        return int((await self._look(used, "look"))[0])

    async def _look(self, used: Any, query: str) -> Row:
        """The moment of a transaction, by the server's clock or by that of a test."""
        if self._virtual is None:
            row: Row = await used.fetchrow(self._queries[query].text)
        else:
            row = await used.fetchrow(self._queries[f"{query}_at"].text, self._virtual.now())
        return row

    async def look_again(self, tx: PostgresTransaction, query: str, /, **values: Any) -> Row:
        """The one row of a query that asks the clock, in a transaction that began some time ago."""
        if self._virtual is not None:
            await self._look(tx.connection, "look")
        row = await tx.one(query, **values)
        assert row is not None, query
        return row

    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T:
        """Runs a verb in a transaction, again if it has to go back. An answer to COMMIT that was lost is asked for."""
        work = self.with_audit_keys(work)
        for left in reversed(range(_TRIES)):
            try:
                return await self._transact(work, lazily, hot)
            except _Unanswered as lost:
                if await self.was_committed(lost.xid, lost.life):
                    self.ring(lost.rings)
                    result: T = lost.result
                    return result
                if not left:
                    raise away(lost.error, self.where) from lost.error
            except FoliotError:
                raise
            except AGAIN as error:
                if not left:
                    raise as_store_error(error, self.where) from error
                await asyncio.sleep(0.01 * (_TRIES - left))
            except UNREACHABLE as error:  # before COMMIT was sent
                if not left:
                    raise away(error, self.where) from error
                try:
                    await self.settle()  # or we would wait for our own locks
                except StoreError as failure:
                    raise away(failure, self.where) from error
            except asyncpg.PostgresError as error:
                raise as_store_error(error, self.where) from error
        raise AssertionError("unreachable")

    async def _transact(self, work: Work[T], lazily: bool, hot: bool) -> T:
        is_sent = False
        try:
            async with self.connections.acquired(hot=hot) as used:
                try:
                    await used.execute(connection.begin(self.where.pooler, lazily=lazily, hot=hot))
                    now, xid, life = await self._look(used, "begin")
                    tx = PostgresTransaction(used, self._queries, now, self.numbers)
                    result = await work(tx)
                except BaseException:
                    await _roll_back(used)
                    raise
                is_sent = True
                await used.execute("COMMIT")
        except UNREACHABLE as error:
            # Caught here, after `acquired` noted the lost connection: `settle` ends its statement on the server.
            if is_sent:
                raise _Unanswered(xid, life, tx.rings, result, error) from error
            raise
        self.heard(tx.told)
        self.ring(tx.rings)
        return result

    async def begun(self, used: Any) -> tuple[PostgresTransaction, str, str | None]:
        """A transaction in a handler's hands, and its name: what became of it can be asked for."""
        await used.execute(connection.begin(self.where.pooler))
        now, xid, life = await self._look(used, "begin")
        return PostgresTransaction(used, self._queries, now, self.numbers), xid, life

    async def was_committed(self, xid: str, life: str | None) -> bool:
        """Whether a transaction was committed whose answer to COMMIT was lost. OutcomeUnknown when the server does not
        say so in time: it stays away, it is a different server, or it crashed and lost the record."""
        try:
            await self.settle()
            return await self.asked(partial(self._is_committed, xid, life))
        except StoreError as error:
            raise unknown(error, self.where) from error

    async def _is_committed(self, xid: str, life: str | None) -> bool | None:
        [[status, life_now]] = await self.statement("outcome", xid=xid)
        if status == "aborted" or (status == "in the future" and life != life_now):
            return False
        if status == "committed" and life is not None and life == life_now:
            await self.statement("barrier")
            return True
        # It is still in progress, or the server crashed, and another transaction may have its number now.
        return None

    async def read(self, work: Work[T]) -> T:
        """All queries of one look see one moment."""
        work = self.with_audit_keys(work)
        for left in reversed(range(2)):
            try:
                async with self.connections.acquired() as used:
                    try:
                        now = await self._begin(used, connection.begin(self.where.pooler, reading=True))
                        return await work(PostgresTransaction(used, self._queries, now, self.numbers))
                    finally:
                        await _roll_back(used)
            except FoliotError:
                raise
            except UNREACHABLE as error:
                if not left:
                    raise away(error, self.where) from error
            except asyncpg.PostgresError as error:
                raise as_store_error(error, self.where) from error
        raise AssertionError("unreachable")

    def _about_now(self) -> Instant:
        """For numbers only, which tell when they were drawn to the millisecond; nothing is decided by it."""
        return self._virtual.now() if self._virtual is not None else time.time_ns() // 1_000

    # Promises

    async def promise(self, wanted: Sequence[Promise]) -> list[Kept]:
        if not self._is_open:
            raise StoreClosed("the store is closed")
        if not wanted:
            return []
        if len(wanted) == 1:
            here = self._here()
            made = [await (here.plain if wanted[0].key is None else here.keyed).add(wanted[0])]
        elif all(one.key is None for one in wanted):
            made = await promising.insert(self, wanted, self._about_now())
        else:
            made = await self.write(lambda tx: promising.insert_mixed(tx, wanted, self.shard_count))
        if min(one.fire_at for one in wanted) < self._about_now() + CALLED_FOR:
            self.ring({"arrivals"})
        return made

    def promise_within(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        if isinstance(connection, lending.BlockingConnection):
            return connection.wait(callers.promise_async(connection.inner, wanted))
        return callers.promise(connection, wanted)

    async def promise_within_async(self, connection: Any, wanted: Sequence[Promise]) -> list[Kept]:
        return await callers.promise_async(connection, wanted)

    def transaction(self, connection: Any = None) -> lending.LentTransaction | lending.CallersTransaction:
        return lending.LentTransaction(self) if connection is None else lending.CallersTransaction(connection)

    async def _send_plain(self, wanted: Sequence[Promise]) -> Sequence[Kept | Exception]:
        return await promising.insert(self, wanted, self._about_now())

    async def _send_keyed(self, wanted: Sequence[Promise]) -> Sequence[Kept | Exception]:
        try:
            return await promising.insert_keyed(self, wanted, self._about_now())
        except StoreError as error:
            if len(wanted) == 1 or not isinstance(error.__cause__, AGAIN):
                raise
        return [Alone()] * len(wanted)

    # Dispatch

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        return await self._cells.take(shard, owner, ttl)

    async def lose(self, losses: Sequence[Loss]) -> int:
        """A lost worker may be stopped in a transaction that has the rows of its runs."""
        with contextlib.suppress(StoreError):  # a server may refuse it; most lost runs are not locked
            await self.statement("end_abandoned", idle=connection.IDLE_TIMEOUT)
        return await super().lose(losses)

    async def release(self, leases: Sequence[Lease]) -> None:
        self._cells.abandon()
        await super().release(leases)

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        if not leases:
            return []
        rows = await self.repeated(
            "renew_leases",
            owner=leases[0].owner,
            shards=[lease.shard for lease in leases],
            epochs=[lease.epoch for lease in leases],
            ttl=ttl,
            high_water=high_water,
        )
        held = {row[0]: row[1] for row in rows}
        self._cells.workers = json.loads(rows[0][2] or "{}") if rows else {}
        return [
            lease._replace(until=held[lease.shard], high_water=max(lease.high_water, high_water))
            for lease in leases
            if lease.shard in held and lease.owner == leases[0].owner
        ]

    async def lane_rates(self) -> dict[Lane, float | None]:
        return dispatching.rates(await self.repeated("lane_gates"))

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None = None) -> Cells:
        return await self._cells.load(lease, start, limit, until)

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        return await self._cells.arrivals(leases, cursor)

    @property
    def lead(self) -> Duration:
        """In virtual time nobody waits for anything."""
        return 0 if self._virtual is not None else LEAD

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        return await self._cells.fire(leases, due, cursor, decide, self._about_now(), soon, kind)

    def look_ahead(self, leases: Sequence[Lease], decide: Decide) -> None:
        self._cells.look_ahead(leases, decide, self._about_now())

    @property
    def ahead(self) -> int:
        """Of the connections that carry the load, how many may wait for a moment to come."""
        return self.where.connections // 4

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
        wanted = claiming.Wanted(worker, queues, jobs, limit, suspects, backlog, put_off, labels, ahead, called)
        return await self._claimer.claim(wanted, self._about_now())

    async def claim_within(
        self,
        worker: int,
        bound: WorkBound,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        labels: Sequence[str] = (),
        suspects: bool = True,
    ) -> list[Claimed]:
        jobs, queues = bound.narrowed(jobs, queues)
        within = None if bound.all_tenants else claiming.Within(bound.tenant)
        wanted = claiming.Wanted(worker, queues, jobs, limit, suspects, labels=labels, within=within)
        return await self._claimer.claim(wanted, self._about_now())

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        return await claiming.finish(self, worker, endings)

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        return await self._claimer.finish(worker, endings, offer, self._about_now())

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        returned = await self.write(lambda tx: claiming.give_back(tx, worker, claimed))
        if any(one.early for one in claimed):
            self.ring({"handoff"})  # whoever looks now is told when it is ready
        return returned

    async def beat(
        self, worker: int, progress: Sequence[Progress], *, patient: bool = False, leaving: bool = False
    ) -> Beat:
        lazily = not (progress or leaving)
        return await self.write(lambda tx: claiming.beat(tx, worker, progress, patient, leaving), lazily=lazily)

    # Fleet

    async def register(
        self,
        role: str,
        *,
        version: str,
        queues: Sequence[str],
        slots: int,
        jobs: Sequence[JobCard],
        release: str = "",
        labels: Sequence[str] = (),
        reserved: Mapping[str, int] | None = None,
        recycles: bool = False,
    ) -> Instance:
        instance: Instance = await self.write(
            lambda tx: watching.register(
                tx, role, version, queues, slots, jobs, release, labels, reserved or {}, recycles=recycles
            )
        )
        self._here().bell.listen(_HEARS.get(role, set()), instance.number)
        await self._rehearse(role, instance.number)
        return instance

    async def _rehearse(self, role: str, instance: int) -> None:
        """The first statement of its kind on a connection takes many times as long as the next: better now, when
        nothing is due yet. What fails here will say so when it matters."""
        with contextlib.suppress(StoreError):
            if role == "scheduler":
                await self._cells.rehearse()
            elif role == "worker":
                await self._claimer.rehearse(instance)

    async def tidy(self) -> None:
        await self.count_endings()  # before any of it outlives its term
        await self.forget_ended_pauses()
        await keeping.tidy(self)

    async def health(self) -> Mapping[str, Any]:
        try:
            async with self.connections.acquired() as used:
                return await health(used, self.where)
        except (asyncpg.PostgresError, *UNREACHABLE) as error:
            raise as_store_error(error, self.where) from error


_IS_VIRTUAL = "SELECT pg_get_functiondef('foliot.now()'::regprocedure) LIKE '%current_setting%'"
"""Asked first: a function that is made anew has every session plan its statements anew."""
_VIRTUAL_NOW = """
CREATE OR REPLACE FUNCTION foliot.now() RETURNS bigint LANGUAGE sql VOLATILE
RETURN coalesce(nullif(current_setting('foliot.now', true), '')::bigint,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
"""


class _Unanswered(Exception):
    """COMMIT was sent, and nobody knows what became of it."""

    def __init__(self, xid: str, life: str | None, rings: set[str], result: Any, error: BaseException) -> None:
        super().__init__(xid)
        self.xid = xid
        self.life = life
        self.rings = rings
        self.result = result
        self.error = error


async def _roll_back(used: Any) -> None:
    """Nothing can be done for a connection that cannot even do that: the pool sees it closed."""
    try:
        await used.execute("ROLLBACK")
    except (asyncpg.PostgresError, *UNREACHABLE):
        with contextlib.suppress(asyncpg.InterfaceError):  # it broke, and the pool knows already
            used.terminate()
