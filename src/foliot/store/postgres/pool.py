"""Connections that are lent and given back, within one event loop.

The driver's own pool makes several tasks and timers for each loan, which cost more than most of our statements.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

IDLE_FOR = 300.0
"""Seconds after which an unused connection is closed."""
PATIENCE = 0.01
"""Seconds that a caller waits for a connection in use before the pool opens another one. Opening one takes as long, and
the server plans each statement again in it, which takes several times as long."""
MOST_WAITED, FREE_SHARE = 0.03, 0.02
"""Callers of an idle process ask at the same moment once a second, and wait for one another: `FREE_SHARE` of the time
at most. Where callers wait for longer, by `MOST_WAITED` seconds altogether, the pool opens another connection."""


class Pool:
    """Lends the connection that was used last first, so that those which are not needed grow old and are closed."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int, *, is_eager: bool = False) -> None:
        """`is_eager`: callers keep connections for long, so the pool does not wait for one that is in use."""
        self._connect = connect
        self._most = most
        self._is_eager = is_eager
        self._waited = 0.0
        """Seconds that callers waited although another connection could have been opened, without the free share."""
        self._waited_at = 0.0
        self._made = 0
        self._idle: deque[tuple[Any, float]] = deque()
        self._waiting: deque[asyncio.Future[Any | None]] = deque()
        self._lent: set[Any] = set()
        self._closed = False
        self._all_back = asyncio.Event()

    async def acquire(self, patience: float) -> Any:
        """TimeoutError when none was given back within `patience` seconds; any error of connecting."""
        is_patient = False
        while True:
            while self._idle:
                connection, _ = self._idle.pop()
                if not connection.is_closed():
                    self._lent.add(connection)
                    return connection
                self._made -= 1
            if self._made >= self._most:
                connection = await self._wait(patience)
            elif self._made and not is_patient and not self._is_eager and not self._waits_long():
                is_patient = True
                connection = await self._wait_a_little(min(PATIENCE, patience))
            else:
                return await self._make()
            if connection is not None:
                return connection

    def _waits_long(self) -> bool:
        if self._waited <= MOST_WAITED:
            return False
        self._waited = 0.0
        return True

    async def _wait_a_little(self, patience: float) -> Any | None:
        """None when no connection was given back in time."""
        began = time.monotonic()
        try:
            return await self._wait(patience)
        except TimeoutError:
            return None
        finally:
            now = time.monotonic()
            free = (now - self._waited_at) * FREE_SHARE
            self._waited, self._waited_at = max(0.0, self._waited - free) + now - began, now

    async def _make(self) -> Any:
        self._made += 1
        try:
            connection = await self._connect()
            if self._closed:
                connection.terminate()
                raise ConnectionAbortedError("the connection pool is closed")
        except BaseException:
            self._made -= 1
            self._give(None)
            raise
        self._lent.add(connection)
        return connection

    async def _wait(self, patience: float) -> Any | None:
        """In turn. None when there is room for one more connection, or none will ever come."""
        turn: asyncio.Future[Any | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(patience):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it was our turn, and we do not take it
                connection = turn.result()
                if connection is None:
                    self._give(None)
                else:
                    self.release(connection)
            raise

    def release(self, connection: Any) -> None:
        self._lent.discard(connection)
        if self._closed or connection.is_closed():
            self._made -= 1
            connection.terminate()
            self._give(None)
        elif self._give(connection):
            self._lent.add(connection)
        else:
            self._keep(connection)
        if self._closed and not self._lent:
            self._all_back.set()

    def _give(self, connection: Any | None) -> bool:
        """To the caller that has waited longest; False when none waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _keep(self, connection: Any) -> None:
        now = time.monotonic()
        self._idle.append((connection, now))
        oldest, since = self._idle[0]
        if now - since > IDLE_FOR:
            self._idle.popleft()
            self._made -= 1
            oldest.terminate()

    def forget_idle(self) -> None:
        """A connection broke: if the server went away, the idle ones are broken, too, and each would fail a caller."""
        while self._idle:
            connection, _ = self._idle.pop()
            self._made -= 1
            connection.terminate()

    async def close(self, patience: float) -> None:
        """Lets what is under way come to its end for a while, and closes in order what can be."""
        self._closed = True
        until = time.monotonic() + patience
        while self._give(None):
            pass
        if self._lent:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_back.wait(), patience)
        for connection in self._lent:
            connection.terminate()
        while self._idle:
            connection, _ = self._idle.pop()
            self._made -= 1
            try:
                await connection.close(timeout=max(0.1, until - time.monotonic()))
            except Exception:  # it is gone either way
                connection.terminate()
