"""Connections that outlive a test. A session that knows its statements has planned them, and most of what a short test
on PostgreSQL costs is to plan them again.

Stores differ in nothing but that: each has pools of its own, and a connection comes to it as it left the last one, with
the settings that it began with and no locks, listeners or transaction.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from foliot.clock import Clock
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.address import Address
from foliot.store.postgres.connection import Connections


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that goes to the next store when this one closes it, or stops to listen on it."""

    keep: list[_Connection] | None = None
    leaving: asyncio.Task[None] | None = None
    asked = answered = 0
    """Statements. A statement that failed, or was cancelled, has no answer."""

    async def execute(self, *statement: Any, **options: Any) -> Any:
        self.asked += 1
        answer = await super().execute(*statement, **options)
        self.answered += 1
        return answer

    async def add_listener(self, *wanted: Any) -> None:
        self.asked += 1
        await super().add_listener(*wanted)
        self.answered += 1

    async def close(self, *, timeout: float | None = None) -> None:
        if self.keep is None or self.is_closed() or self.is_in_transaction():
            await super().close(timeout=timeout)
        else:
            self._leave(self.keep)

    def terminate(self) -> None:
        """A connection with listeners is idle, unless its last statement has no answer. It stops to listen before it is
        kept: the server waits for a listener that does not read, and then cannot drop a database."""
        if self.keep is None or self.is_closed() or not self._listeners or self.asked != self.answered:
            super().terminate()
        else:
            self._listeners.clear()
            self.leaving = asyncio.get_running_loop().create_task(self._stop_listening(self.keep))

    async def _stop_listening(self, keep: list[_Connection]) -> None:
        try:
            await self.execute("UNLISTEN *")
        except BaseException:  # also when the loop ends
            super().terminate()
        else:
            self._leave(keep)

    def _leave(self, keep: list[_Connection]) -> None:
        """Nothing that happens from now on concerns the store that had this connection."""
        self._listeners.clear()
        self._log_listeners.clear()
        self._termination_listeners.clear()
        keep.append(self)

    async def enter(self, name: str) -> None:
        """The session as a new one has it, under the name by which a store knows its own sessions."""
        await self.execute(f"{self.get_reset_query()} SET application_name = '{name}'")


class Warm:
    """The connections of one event loop that nobody uses now. What runs in another one has connections of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: dict[str, list[_Connection]] = {}
        self._made: list[_Connection] = []

    def store(self, dsn: str, clock: Clock | None = None) -> PostgresStore:
        return _Store(self, dsn, clock)

    async def connect(self, dsn: str, options: dict[str, Any], virtual: bool) -> asyncpg.Connection[Any]:
        """In virtual time a session may have begun with another time than the server's."""
        if asyncio.get_running_loop() is not self._loop:
            return await asyncpg.connect(dsn, **options)
        settings = dict(options["server_settings"])
        name = settings.pop("application_name")
        kept = self._kept.setdefault(repr((dsn, options | {"server_settings": settings}, virtual)), [])
        while kept:
            found = kept.pop()
            if not found.is_closed():
                try:
                    await found.enter(name)
                except BaseException:  # also when the caller was cancelled
                    found.terminate()
                    raise
                return found
        made = await asyncpg.connect(dsn, connection_class=_Connection, **options)
        made.keep = kept
        self._made = [other for other in self._made if not other.is_closed()] + [made]
        return made

    async def close(self) -> None:
        await asyncio.gather(*(made.leaving for made in self._made if made.leaving), return_exceptions=True)
        for kept in self._kept.values():
            for connection in kept:
                connection.keep = None
                connection.terminate()
        await asyncio.sleep(0)  # their transports end in the next turn of the loop


class _Store(PostgresStore):
    def __init__(self, warm: Warm, dsn: str, clock: Clock | None) -> None:
        super().__init__(dsn, clock)
        self._warm = warm
        self.connections = _Connections(warm, self.where, self._virtual is not None)

    async def _rehearse(self, role: str, instance: int) -> None:
        """A session that an earlier test used has planned its statements already."""

    def again(self) -> PostgresStore:
        return _Store(self._warm, self.url, self._virtual)


class _Connections(Connections):
    def __init__(self, warm: Warm, where: Address, virtual: bool) -> None:
        super().__init__(where)
        self._warm = warm
        self._virtual = virtual

    async def _connect(self, hot: bool = False, dsn: str | None = None) -> asyncpg.Connection[Any]:
        return await self._warm.connect(dsn or self.where.dsn, self._options(hot), self._virtual)
