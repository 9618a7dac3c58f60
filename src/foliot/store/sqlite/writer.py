"""The one writer: whatever waits when a transaction begins shares its commit.

    callers ──put──▶ queue ──▶ writer thread: BEGIN IMMEDIATE, one savepoint each, COMMIT ──▶ answers

An fsync is what a durable write costs; callers that come while one is under way share the next. A request that fails
is rolled back to its savepoint and fails alone. No caller is answered before the commit.

Leases and heartbeats need no fsync. A transaction of such requests alone is written to the log and not synced. The next
fsync of the log, by any process, makes it durable together with all that was written before. A crash of the host can
lose the last of them, and then their processes have ended, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from foliot.clock import Clock
from foliot.errors import FoliotError, NotWritten, OutcomeUnknown, StoreClosed, StoreFull
from foliot.portal import finished
from foliot.store.sqlite.transaction import SqliteTransaction
from foliot.store.verbs.transaction import Transaction

T = TypeVar("T")
Work = Callable[[Transaction], Coroutine[Any, Any, T]]
"""A verb, bound to what was asked."""

_LENT_FOR = 10.0
"""Seconds for which a handler may have a store in memory for itself."""
MOST_AT_ONCE = 256
"""Requests that share one commit: enough to spread an fsync thin, few enough to let other processes in between."""


class _Request:
    __slots__ = ("answer", "error", "is_lazy", "loop", "result", "work")

    def __init__(
        self, work: Work[Any], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], is_lazy: bool = False
    ) -> None:
        self.work = work
        self.is_lazy = is_lazy
        """Its loss in a crash of the host does no harm."""
        self.loop = loop
        self.answer = answer
        self.result: Any = None
        self.error: BaseException | None = None


class Served:
    """A thread of its own that serves requests, as many at a time as wait. Their event loop is woken once for all."""

    at_once = MOST_AT_ONCE

    def __init__(self, name: str) -> None:
        self._waiting: deque[_Request] = deque()
        self._bell = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def submit(self, work: Work[T], *, lazily: bool = False) -> T:
        loop = asyncio.get_running_loop()
        request = _Request(work, loop, loop.create_future(), lazily)
        with self._bell:
            if self._closing:
                raise StoreClosed("the store is closed")
            self._waiting.append(request)
            self._bell.notify()
        # A caller that is cancelled while it waits must not leave others without their answer: its request runs on.
        result: T = await asyncio.shield(request.answer)
        return result

    @property
    def has_requests(self) -> bool:
        """Whether requests wait for the next commit."""
        return bool(self._waiting)

    def close(self) -> bool:
        """Serves what is waiting, then ends the thread. True: the connection is free then."""
        with self._bell:
            self._closing = True
            self._bell.notify()
        if self._thread.is_alive():
            self._thread.join()
        return True

    def _serve(self) -> None:
        while True:
            with self._bell:
                while not self._waiting and not self._closing:
                    self._bell.wait()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self.at_once))]
            if not batch:
                return
            self._perform(batch)
            _answer(batch)

    def _perform(self, batch: list[_Request]) -> None:
        """Gives each request its result or its error."""
        raise NotImplementedError


class Writer(Served):
    """Runs write requests one transaction after another."""

    def __init__(
        self,
        connection: apsw.Connection,
        queries: Mapping[str, str],
        clock: Clock,
        check: Callable[[], None],
        send_hints: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is asked before each transaction, and raises when the file must not be written. `send_hints`
        is called after each commit that other processes may wait for."""
        super().__init__("foliot-writer")
        self.connection = connection
        self._queries = queries
        self._clock = clock
        self._check = check
        self._send_hints = send_hints

    def _perform(self, batch: list[_Request]) -> None:
        try:
            self._check()
            if batch[0].is_lazy and all(request.is_lazy for request in batch):
                with _not_synced(self.connection):
                    is_news = self._commit(batch)
            else:
                is_news = self._commit(batch)
            if is_news:
                self._send_hints()
        except BaseException as error:
            for request in batch:
                request.error = request.error or as_store_error(error)

    def _commit(self, batch: list[_Request]) -> bool:
        return commit_together(self.connection, self._queries, self._clock, batch)


@contextmanager
def _not_synced(connection: apsw.Connection) -> Iterator[None]:
    """Commits do not wait for the disk."""
    connection.pragma("synchronous", "normal")
    try:
        yield
    finally:
        connection.pragma("synchronous", "full")


class Reader(Served):
    """Answers each request from a snapshot of its own. A few at a time: none waits long for the others."""

    at_once = 8

    def __init__(self, look: Callable[[Work[Any]], Any]) -> None:
        super().__init__("foliot-reader")
        self._look = look

    def _perform(self, batch: list[_Request]) -> None:
        for request in batch:
            try:
                request.result = self._look(request.work)
            except BaseException as error:
                request.error = as_store_error(error) if isinstance(error, apsw.Error) else error


class InlineWriter:
    """The same, in the caller's own thread: for a store in memory, where there is no fsync to share."""

    def __init__(self, connection: apsw.Connection, queries: Mapping[str, str], clock: Clock) -> None:
        self.connection = connection
        self._queries = queries
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._changes = 0

    has_requests = False

    def start(self) -> None:
        """There is nothing to start."""

    def changes(self) -> int:
        """How many rows were ever changed; while a handler has the connection, as far as is known."""
        if self._lock.acquire(blocking=False):
            try:
                self._changes = self.connection.total_changes()
            finally:
                self._lock.release()
        return self._changes

    async def submit(self, work: Work[T], *, lazily: bool = False) -> T:
        request = _Request(work, None, None)  # type: ignore[arg-type]
        # The loop must not stand still while a handler, which may need it, has the connection in its hands.
        until = time.monotonic() + _LENT_FOR
        while not self._lock.acquire(blocking=False):
            if time.monotonic() > until:
                raise NotWritten(
                    "a handler that waits inside ctx.transaction() locks the store in memory, and this request "
                    "was not written. Wait outside of the block, or use a store in a file"
                )
            await asyncio.sleep(0)
        try:
            if self._closed:
                raise StoreClosed("the store is closed")
            commit_together(self.connection, self._queries, self._clock, [request])
        except apsw.Error as error:
            raise as_store_error(error) from error
        finally:
            self._lock.release()
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result

    def lend(self) -> apsw.Connection:
        """To a handler, alone, until it is taken back."""
        self._lock.acquire()
        return self.connection

    def take_back(self) -> None:
        self._lock.release()

    def close(self) -> bool:
        """Whether the connection is free, and can be closed: an abandoned handler keeps it for ever."""
        taken = self._lock.acquire(timeout=_LENT_FOR)
        self._closed = True
        if taken:
            self._lock.release()
        return taken


def commit_together(
    connection: apsw.Connection, queries: Mapping[str, str], clock: Clock, batch: list[_Request]
) -> bool:
    """One transaction for the whole batch; whether it holds something that other processes may wait for. Raises only
    when none of it was committed."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read once the lock is held: everything decided here is decided at one moment of the store's clock.
        transaction = SqliteTransaction(connection, queries, clock.now(), settles=True)
        alone = len(batch) == 1
        for request in batch:
            if not alone:
                connection.execute("SAVEPOINT request")
            try:
                request.result = finished(request.work(transaction))
                if transaction.collects:
                    finished(transaction.settle())
            except BaseException as error:
                transaction.forget()
                request.error = as_store_error(error)
                if not connection.in_transaction:
                    raise  # SQLite itself rolled all of it back, as it may on a full disk
                if alone:
                    connection.execute("ROLLBACK")
                    return False
                connection.execute("ROLLBACK TO request")
            if not alone:
                connection.execute("RELEASE request")
        commit(connection)
        return transaction.is_news
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def commit(connection: apsw.Connection) -> None:
    """Commits. OutcomeUnknown when the file system fails: SQLite may have written the whole transaction to its log
    before that, and reads the log again after a crash."""
    try:
        connection.execute("COMMIT")
    except apsw.IOError as error:
        raise OutcomeUnknown(
            f"SQLite: {type(error).__name__}: {error}; the file system failed during the commit, so it is unknown "
            "whether this request was committed. Check before you repeat it; a promise with a key can be repeated "
            "safely"
        ) from error


def as_store_error(error: BaseException) -> BaseException:
    """An engine's error in our words; ours stay as they are."""
    if isinstance(error, apsw.FullError) or _lacks_space(error):
        return StoreFull(f"the disk is full: {error}; nothing of this request was written")
    if isinstance(error, apsw.Error) and not isinstance(error, FoliotError):
        return NotWritten(f"SQLite: {type(error).__name__}: {error}; nothing of this request was written")
    return error


def _lacks_space(error: BaseException) -> bool:
    """Whether there is no space for the shared memory of the processes: SQLite reports that as an I/O error."""
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def _answer(batch: list[_Request]) -> None:
    """Wakes each event loop once, however many of its callers were served."""
    loops: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in batch:
        loops.setdefault(request.loop, []).append(request)
    for loop, requests in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, requests)
        except RuntimeError:
            continue  # that loop was closed meanwhile: no caller is left


def _resolve(requests: list[_Request]) -> None:
    for request in requests:
        if request.answer.done():
            continue
        if request.error is not None:
            request.answer.set_exception(request.error)
        else:
            request.answer.set_result(request.result)
