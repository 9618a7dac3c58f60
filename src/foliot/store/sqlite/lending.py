"""A transaction in a handler's hands: on a connection of its own to the store's file, where the handler's tables are.

While it is open nobody else can write to the file, heartbeats included: it should be short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import apsw

from foliot.clock import Clock
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Ending
from foliot.errors import StoreError
from foliot.store.sqlite.transaction import SqliteTransaction
from foliot.store.sqlite.writer import as_store_error, commit
from foliot.store.verbs import ledger, working


class LentTransaction:
    """`foliot.domain.store.OpenTransaction` on SQLite. Nothing in it suspends: whoever runs it waits."""

    is_blocking = True
    is_callers = False

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        give_back: Callable[[apsw.Connection], None],
        queries: Mapping[str, str],
        clock: Clock,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` is called after a commit: other processes may wait for what the handler wrote."""
        self._connect = connect
        self._give_back = give_back
        self._queries = queries
        self._clock = clock
        self._tell = tell
        self._lent: apsw.Connection | None = None

    @property
    def connection(self) -> apsw.Connection:
        assert self._lent is not None, "it was begun"
        return self._lent

    def connection_in_thread(self, _loop: asyncio.AbstractEventLoop) -> apsw.Connection:
        return self.connection

    async def begin(self) -> None:
        connection = self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._give_back(connection)
            raise as_store_error(error) from error
        self._lent = connection

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        return await ledger.begin_effect(self._now(), number, token, effect)

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        await ledger.end_effect(self._now(), number, token, effect, state, result, note)

    async def ledger_of(self, number: int) -> list[EffectView]:
        return await ledger.ledger_of(self._now(), number)

    async def finish(self, worker: int, ending: Ending) -> bool:
        tx = self._now()
        if await tx.one("owned_run", number=ending.number, token=ending.token) is None:
            return False  # also when its ending was told already: rows that come after it are nobody's
        return not await working.finish(tx, worker, [ending])

    async def commit(self) -> None:
        try:
            commit(self.connection)
            self._tell()
        except apsw.Error as error:
            raise as_store_error(error) from error
        finally:
            await self.roll_back()

    async def roll_back(self) -> None:
        connection, self._lent = self._lent, None
        if connection is not None:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._give_back(connection)

    def _now(self) -> SqliteTransaction:
        if not self.connection.in_transaction:  # by the handler, or by SQLite itself: a full disk, ON CONFLICT ROLLBACK
            raise StoreError(
                "the handler ended the transaction inside its block, so it does not complete the "
                "run; leave COMMIT and ROLLBACK to the block"
            )
        return SqliteTransaction(self.connection, self._queries, self._clock.now())
