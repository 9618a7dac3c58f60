"""Connections that outlive a test. A session that knows its statements has planned them, and most of what a short test
on PostgreSQL costs is to plan them anew.

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
    """One that is given back when it is closed in order."""

    keep: list[asyncpg.Connection[Any]] | None = None

    async def close(self, *, timeout: float | None = None) -> None:
        if self.keep is None or self.is_closed() or self.is_in_transaction():
            await super().close(timeout=timeout)
        else:
            await self.reset(timeout=timeout)
            self.keep.append(self)


class Warm:
    """The connections of one event loop that nobody uses now. What runs in another one has connections of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: dict[str, list[asyncpg.Connection[Any]]] = {}

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
                # By its name a store knows the sessions that are its own.
                try:
                    await found.execute(f"SET application_name = '{name}'")
                except BaseException:  # whoever wanted it is called off
                    found.terminate()
                    raise
                return found
        made = await asyncpg.connect(dsn, connection_class=_Connection, **options)
        made.keep = kept
        return made

    async def close(self) -> None:
        for kept in self._kept.values():
            for connection in kept:
                connection.terminate()
        await asyncio.sleep(0)  # their transports end in the next turn of the loop


class _Store(PostgresStore):
    def __init__(self, warm: Warm, dsn: str, clock: Clock | None) -> None:
        super().__init__(dsn, clock)
        self._warm = warm
        self.connections = _Connections(warm, self.where, self._virtual is not None)

    def again(self) -> PostgresStore:
        return _Store(self._warm, self.url, self._virtual)


class _Connections(Connections):
    def __init__(self, warm: Warm, where: Address, virtual: bool) -> None:
        super().__init__(where)
        self._warm = warm
        self._virtual = virtual

    async def _connect(self, hot: bool = False, dsn: str | None = None) -> asyncpg.Connection[Any]:
        return await self._warm.connect(dsn or self.where.dsn, self._options(hot), self._virtual)
