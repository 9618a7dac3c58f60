"""A transaction that ends the run: business rows, lines of the ledger, promises and the run's completion are one.

    with ctx.transaction() as tx:                     # async with, in async handlers
        tx.connection.execute("INSERT INTO revenue ...")
        tx.result = 150

On the store's connection it is begun and committed here. On one of the handler's own (`connection=`) the handler began
it, and commits it: this only adds, at the end of the block, that the run is completed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.identity import first_of_lineage
from foliot.domain.instant import Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.store import OpenTransaction
from foliot.errors import InvalidInput, LostOwnership
from foliot.portal import finished
from foliot.work.desk import Ask, Desk, blocking, refuse_to_block, waiting
from foliot.work.effects import Book, EffectBlock, Failures, checked_failures, declared

T = TypeVar("T")

MOST_RESULT = 64 * 1024
LONGEST_REST = 0.01
"""Seconds. Other writers, heartbeats among them, ask for SQLite's lock every 2 ms."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_encode = msgspec.json.Encoder().encode


class _Ask(Protocol):
    """How a verb of the transaction is run."""

    async def __call__(self, opened: OpenTransaction, question: Coroutine[Any, Any, T], /) -> T: ...

    async def take_turn(self, opened: OpenTransaction) -> None:
        """Waits until no other transaction is in the way; `end_turn` comes after it."""

    def end_turn(self) -> None:
        """Lets the next transaction begin. Does nothing where no turn was taken."""


class Completion(NamedTuple):
    """That a transaction completes the run."""

    ending: Ending
    is_certain: bool
    """It was committed here. Otherwise the handler commits it, or does not."""


class Owner(Protocol):
    """What of its context a transaction needs."""

    @property
    def claimed(self) -> Claimed: ...
    @property
    def effects(self) -> tuple[str, ...] | None: ...
    @property
    def is_checked(self) -> bool: ...
    @property
    def started_at(self) -> Instant: ...
    @property
    def desk(self) -> Desk: ...
    @property
    def lineage(self) -> str: ...
    def now(self) -> Instant: ...
    def hidden(self, text: str) -> str: ...
    def report(self) -> Progress | None:
        """What the store may not have of the attempt's progress and items."""

    def opened(self, is_open: bool) -> None:
        """While it is open, nothing else of the attempt may write. InvalidInput where another one is open: before this
        one waits for it, because that may be for ever."""

    def completed(self, completion: Completion) -> None: ...


class TransactionBlock:
    """Made, entered (its transaction is open), left: committed with the run's end, or rolled back."""

    def __init__(self, owner: Owner, connection: Any) -> None:
        self._owner = owner
        self._given = connection
        self._open: OpenTransaction | None = None
        self._ask: _Ask | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it was begun, and has to be gone on with."""
        self._book: Book | None = None
        self._connection: Any = None
        self.result: Any = None
        """What the run leaves, as a JSON value: kept with its completion."""

    @property
    def connection(self) -> Any:
        """The driver's: apsw's for SQLite; for PostgreSQL asyncpg's, or in a thread one with its words and no `await`.
        Give it to `job.using(connection=...)`, and the promise is part of the transaction."""
        if self._open is None:
            raise InvalidInput("the transaction is not open; use its connection inside the block")
        return self._connection

    def effect(
        self,
        name: str,
        key: str | int,
        *,
        safe_errors: Failures | Iterable[type[BaseException]] = (),
        undo: Any = None,
    ) -> EffectBlock:
        """An effect that is rows of this very transaction: it is done if and only if that commits. What leaves the
        database, such as a payment, is no such thing: no rollback takes it back. `ctx.effect` is for those, before."""
        effect = declared(name, key, idempotent=False, probe=None, undo=undo, among=self._owner.effects)
        if self._open is None:
            raise InvalidInput("the transaction is not open; use its effects inside the block")
        if self._book is None:
            assert self._loop is not None
            desk = _TransactionDesk(self._open, self._owner.claimed, self._loop)
            self._book = Book(desk, self._owner.claimed.token, hide=self._owner.hidden)
        return EffectBlock(self._book, effect, self._owner.lineage, None, checked_failures(safe_errors))

    # In a thread

    def __enter__(self) -> TransactionBlock:
        self._loop = loop = self._owner.desk.loop
        refuse_to_block(loop, "async with ctx.transaction()")
        opened = finished(self._enter(_InThread(loop), blocking(loop)))
        self._connection = opened.connection_in_thread(loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished(self._exit(error))

    # In an event loop

    async def __aenter__(self) -> TransactionBlock:
        self._loop = asyncio.get_running_loop()
        opened = await self._enter(_InLoop(self._owner.desk), waiting(self._owner.desk.loop))
        if opened.is_callers and opened.is_blocking:
            self._left()
            raise InvalidInput("connection= is not async: use it in a plain job, with `with ctx.transaction(...)`")
        self._connection = opened.connection
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit(error)

    # Either way

    async def _enter(self, ask: _Ask, ask_desk: Ask) -> OpenTransaction:
        self._owner.opened(True)
        try:
            opened = await ask_desk(self._owner.desk.transaction(self._given))
            await ask.take_turn(opened)
            self._ask = ask
            try:
                await ask(opened, opened.begin())
            except BaseException:  # also a cancellation that came when it had begun already
                await ask(opened, opened.roll_back())
                raise
        except BaseException:
            self._left()
            raise
        self._open = opened
        return opened

    async def _exit(self, error: BaseException | None) -> None:
        opened, ask = self._open, self._ask
        assert opened is not None
        assert ask is not None
        try:
            if error is None:
                await self._complete(ask, opened)
        except BaseException:
            await ask(opened, opened.roll_back())
            raise
        else:
            if error is not None:
                await ask(opened, opened.roll_back())
        finally:
            self._left()

    async def _complete(self, ask: _Ask, opened: OpenTransaction) -> None:
        """Completion comes last: whoever lost the run is refused, and rolls back."""
        claimed = self._owner.claimed
        lines = await ask(opened, opened.ledger_of(claimed.number))
        loose = [f"{one.name} {one.key}" for one in lines if one.state is EffectState.STARTED]
        if loose:
            raise InvalidInput(
                f"effect {loose[0]} has not ended: a transaction cannot complete a run with an unfinished effect; end "
                "the block of the effect before the transaction starts"
            )
        ending = self._ending(claimed)
        worker = self._owner.desk.worker_number()
        if not await ask(opened, opened.finish(worker, ending)):
            raise LostOwnership(
                f"the attempt with token {claimed.token} no longer owns its run; its transaction is rolled back"
            )
        await ask(opened, opened.commit())
        self._owner.completed(Completion(ending, not opened.is_callers))

    def _ending(self, claimed: Claimed) -> Ending:
        event = Event.CHECK_DUE if self._owner.is_checked else Event.COMPLETED
        kept = None if self.result is None else _kept(self.result)
        started_at, now = self._owner.started_at, self._owner.now()
        return Ending(
            claimed.number,
            claimed.token,
            claimed.attempt,
            event,
            Outcome.SUCCEEDED,
            started_at,
            now,
            reason=Reason.COMMITTED,
            result=kept,
            report=self._owner.report(),
        )

    def _left(self) -> None:
        self._open = self._connection = self._book = None
        self._owner.opened(False)
        if self._ask is not None:
            self._ask.end_turn()


def _kept(result: Any) -> bytes:
    try:
        encoded = _encode(result)
    except Exception as error:
        raise InvalidInput(f"tx.result must be a JSON value; {result!r:.80} is not: {error}") from None
    if is_too_deep(encoded):
        raise InvalidInput(f"tx.result is nested more than {MOST_DEPTH} levels deep; flatten it")
    if _NUL.search(encoded):
        raise InvalidInput("tx.result contains a NUL character, which PostgreSQL's JSON cannot store; remove it")
    if len(encoded) > MOST_RESULT:
        raise InvalidInput(f"tx.result: {len(encoded):,} bytes of JSON are more than {MOST_RESULT:,}; return less")
    return encoded


# --------------------------------------------------------------------------------------------------- where it is done


class _InThread:
    """Runs a blocking transaction in the handler's own thread, and any other one in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def __call__(self, opened: OpenTransaction, question: Coroutine[Any, Any, T], /) -> T:
        if opened.is_blocking:
            return await question
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    async def take_turn(self, opened: OpenTransaction) -> None:
        """The handler's thread waits for the lock itself."""

    def end_turn(self) -> None: ...


class _Turns:
    """The turn of an event loop's blocking transactions, and the one thread that runs them.

    SQLite lets one transaction write at a time. If each waited for the lock in a thread of the loop's executor, the
    waiting ones would take all its threads, and the one with the lock could neither go on nor end.

    SQLite's lock is not fair. The next transaction begins so soon after the one before it that no other writer would
    get the lock, and heartbeats would stop. So the lock stays free for half the time of a turn, and not for long.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="foliot-transaction")
        self._lock = asyncio.Lock()
        self._began = self._rests_until = 0.0

    async def begin(self) -> None:
        await self._lock.acquire()
        self._began = max(time.monotonic(), self._rests_until)

    def end(self) -> None:
        now = time.monotonic()
        self._rests_until = now + min(max(now - self._began, 0.0) / 2, LONGEST_REST)
        self._lock.release()

    def perform(self, question: Coroutine[Any, Any, T]) -> T:
        """Called in the thread."""
        time.sleep(max(self._rests_until - time.monotonic(), 0.0))
        return finished(question)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


class _InLoop:
    """Runs a transaction for an async handler. A blocking one may wait for a lock or for the disk, which the loop must
    not do. A handler that is cancelled meanwhile still waits for the answer: half a transaction would keep the file
    locked."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._turns: _Turns | None = None

    async def take_turn(self, opened: OpenTransaction) -> None:
        if opened.is_blocking and not opened.is_callers:
            turns = _turns.setdefault(asyncio.get_running_loop(), _Turns())
            await turns.begin()
            self._turns = turns

    def end_turn(self) -> None:
        if self._turns is not None:
            self._turns.end()
            self._turns = None

    async def __call__(self, opened: OpenTransaction, question: Coroutine[Any, Any, T], /) -> T:
        if opened.is_callers:
            return await question
        task = asyncio.get_running_loop().create_task(self._run(question))
        self._desk.expect(task)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None and not task.cancelled() and task.exception() is None:
            raise cancelled
        return task.result()

    async def _run(self, question: Coroutine[Any, Any, T]) -> T:
        if self._turns is None:
            return await question
        return await asyncio.get_running_loop().run_in_executor(self._turns.thread, self._turns.perform, question)


class _TransactionDesk:
    """The ledger as the transaction sees it."""

    def __init__(self, opened: OpenTransaction, claimed: Claimed, loop: asyncio.AbstractEventLoop) -> None:
        self._opened = opened
        self._number, self._token = claimed.number, claimed.token
        self._lineage = first_of_lineage(claimed.id)
        self.loop = loop

    @property
    def is_in_place(self) -> bool:
        return self._opened.is_blocking

    async def begin_effect(self, effect: Effect) -> Begun:
        begun = await self._opened.begin_effect(self._number, self._token, effect)
        return begun._replace(lineage=self._lineage)

    async def end_effect(self, effect: Effect, state: EffectState, result: bytes | None, note: str | None) -> None:
        await self._opened.end_effect(self._number, self._token, effect, state, result, note)

    async def ledger(self) -> list[EffectView]:
        return await self._opened.ledger_of(self._number)
