"""Transactions in a handler's hands: on a connection of the store's, or inside one that the handler began itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import msgspec

from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Ending
from foliot.domain.state import Event
from foliot.errors import LostOwnership, NotWritten, StoreError
from foliot.store.postgres import callers
from foliot.store.postgres.connection import UNREACHABLE, Connections, away
from foliot.store.postgres.transaction import PostgresTransaction
from foliot.store.verbs import ledger, working
from foliot.store.verbs.transaction import Row

T = TypeVar("T")


class Server(Protocol):
    """What this module needs of the store."""

    @property
    def connections(self) -> Connections: ...
    async def begun(self, used: Any) -> tuple[PostgresTransaction, str, str | None]: ...
    async def was_committed(self, xid: str, life: str | None) -> bool: ...
    def ring(self, who: set[str]) -> None: ...
    def heard(self, who: set[str]) -> None: ...


class Draft:
    """Lines of the ledger that a transaction is going to write: at its very end, because from then on everybody waits
    for it who ends a run of the same claim, or beats for one."""

    def __init__(self) -> None:
        self._writes: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        self._lines: dict[tuple[str, str], EffectView] = {}

    def begin(
        self, effect: Effect, token: int, before: EffectView | None, write: Callable[[], Coroutine[Any, Any, Any]]
    ) -> EffectView | None:
        """What was said of it in this transaction counts before what is in the ledger."""
        known = self._lines.get((effect.name, effect.key), before)
        self._writes.append(write)
        if known is None or known.state is EffectState.NOT_DONE:
            self._lines[effect.name, effect.key] = _line(effect, token, EffectState.STARTED, None)
        return known

    def end(
        self,
        effect: Effect,
        token: int,
        state: EffectState,
        result: bytes | None,
        write: Callable[[], Coroutine[Any, Any, Any]],
    ) -> None:
        self._lines[effect.name, effect.key] = _line(effect, token, state, result)
        self._writes.append(write)

    async def written(self) -> None:
        """LostOwnership when the run is no longer the attempt's."""
        writes, self._writes = self._writes, []
        for write in writes:
            await write()


def _line(effect: Effect, token: int, state: EffectState, result: bytes | None) -> EffectView:
    return EffectView(effect.name, effect.key, state, effect.settles, 0, 0, token, 0, None, result, None, effect.undo)


class LentTransaction:
    """`foliot.domain.store.OpenTransaction` on a connection of the store's."""

    is_blocking = False
    is_callers = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loan = AsyncExitStack()
        self._tx: PostgresTransaction | None = None
        self._used: Any = None
        self._name: tuple[str, str | None] = ("", None)
        self._draft = Draft()

    @property
    def connection(self) -> Any:
        return self._used

    def connection_in_thread(self, loop: asyncio.AbstractEventLoop) -> BlockingConnection:
        return BlockingConnection(self._used, loop)

    @property
    def _open(self) -> PostgresTransaction:
        assert self._tx is not None, "it was begun"
        if not self._used.is_in_transaction():
            raise StoreError(
                "the handler ended the transaction inside its block, so it does not complete the "
                "run; leave COMMIT and ROLLBACK to the block"
            )
        return self._tx

    async def begin(self) -> None:
        self._used = await self._loan.enter_async_context(self._server.connections.acquired(lent=True))
        try:
            self._tx, *name = await self._server.begun(self._used)
        except UNREACHABLE as error:
            await self._end(error)
            raise away(error, self._server.connections.where) from error
        except BaseException as error:
            await self._end(error)
            raise
        self._name = (str(name[0]), name[1])

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        found = await ledger.look_at_effect(self._open, number, effect)

        def write() -> Coroutine[Any, Any, Begun]:
            return ledger.begin_effect(self._open, number, token, effect)

        return found._replace(before=self._draft.begin(effect, token, found.before, write))

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        def write() -> Coroutine[Any, Any, None]:
            return ledger.end_effect(self._open, number, token, effect, state, result, note)

        self._draft.end(effect, token, state, result, write)

    async def ledger_of(self, number: int) -> list[EffectView]:
        await self._draft.written()
        return await ledger.ledger_of(self._open, number)

    async def finish(self, worker: int, ending: Ending) -> bool:
        try:
            await self._draft.written()
        except LostOwnership:
            return False
        if await self._open.one("owned_run", number=ending.number, token=ending.token) is None:
            return False  # also when its ending was told already: rows that come after it are nobody's
        return not await working.finish(self._open, worker, [ending])

    async def commit(self) -> None:
        tx = self._open
        try:
            status = await self._used.execute("COMMIT")
        except UNREACHABLE as error:
            await self._end(error)
            if not await self._server.was_committed(*self._name):
                raise away(error, self._server.connections.where) from error
        except BaseException as error:
            await self._end(error)
            raise
        else:
            await self._end(None)
            if status != "COMMIT":  # a statement in it had failed, and somebody went on
                raise NotWritten(
                    "a statement of the transaction failed and the block caught its error; PostgreSQL rolled the "
                    "transaction back, and nothing was written. Let the error leave the block, or use a savepoint"
                )
        self._server.heard(tx.told)
        self._server.ring(tx.rings)

    async def roll_back(self) -> None:
        if self._tx is None:
            return
        try:
            await self._used.execute("ROLLBACK")
        except BaseException as error:
            await self._end(error)
            if not isinstance(error, Exception):
                raise
        else:
            await self._end(None)

    async def _end(self, error: BaseException | None) -> None:
        """Gives the connection back, and says how it was left."""
        self._tx = None
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        with contextlib.suppress(BaseException):  # it is thrown at whoever lent it, who throws it back
            await self._loan.__aexit__(kind, error, trace)


class BlockingConnection:
    """The store's connection, for a handler in a thread: the same words as asyncpg's, without `await`."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.inner = inner
        self._loop = loop

    def execute(self, query: str, *args: Any) -> str:
        """Executes a statement; answers its status, such as `INSERT 0 1`."""
        return str(self.wait(self.inner.execute(query, *args)))

    def executemany(self, query: str, args: Sequence[Sequence[Any]]) -> None:
        self.wait(self.inner.executemany(query, args))

    def fetch(self, query: str, *args: Any) -> list[Any]:
        return list(self.wait(self.inner.fetch(query, *args)))

    def fetchrow(self, query: str, *args: Any) -> Any:
        return self.wait(self.inner.fetchrow(query, *args))

    def fetchval(self, query: str, *args: Any) -> Any:
        return self.wait(self.inner.fetchval(query, *args))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class CallersTransaction:
    """`foliot.domain.store.OpenTransaction` inside one that the handler began, and commits."""

    is_callers = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_blocking = callers.is_blocking(connection)
        self._draft = Draft()

    def connection_in_thread(self, _loop: asyncio.AbstractEventLoop) -> Any:
        return self.connection

    async def begin(self) -> None:
        """The handler did."""

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        lines = await self._lines(number)
        before = next((one for one in lines if (one.name, one.key) == (effect.name, effect.key)), None)
        said = {"run": number, "token": token, **effect._asdict()}
        known = self._draft.begin(effect, token, before, lambda: self._say(callers.BEGIN_EFFECT, said))
        return Begun(known, "")

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        told = {"state": state, "result": None if result is None else result.decode(), "note": note}
        said = {"run": number, "token": token, **effect._asdict(), **told}
        self._draft.end(effect, token, state, result, lambda: self._say(callers.END_EFFECT, said))

    async def ledger_of(self, number: int) -> list[EffectView]:
        await self._draft.written()
        return await self._lines(number)

    async def _lines(self, number: int) -> list[EffectView]:
        return [ledger.effect_view(row) for row in await self._say(callers.EFFECTS, {"run": number})]

    async def finish(self, worker: int, ending: Ending) -> bool:
        said = {
            "run": ending.number,
            "token": ending.token,
            "result": None if ending.result is None else ending.result.decode(),
            "checked": ending.event is Event.CHECK_DUE,
        }
        try:
            await self._draft.written()
            await self._say(callers.COMPLETE, said)
        except LostOwnership:
            return False
        return True

    async def commit(self) -> None:
        """The handler will."""

    async def roll_back(self) -> None:
        """The handler will."""

    async def _say(self, query: str, said: dict[str, Any]) -> Sequence[Row]:
        text = msgspec.json.encode(said).decode()
        if self.is_blocking:
            return callers.say(self.connection, query, text)
        return await callers.say_async(self.connection, query, text)
