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
"""Seconds after which a connection that nobody needed is closed."""


class Pool:
    """The one that was used last is lent first, so that those which are not needed grow old and go."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        self._connect = connect
        self._most = most
        self._made = 0
        self._idle: deque[tuple[Any, float]] = deque()
        self._waiting: deque[asyncio.Future[Any | None]] = deque()
        self._lent: set[Any] = set()
        self._closed = False
        self._all_back = asyncio.Event()

    async def acquire(self, patience: float) -> Any:
        """TimeoutError when none was given back for so many seconds; whatever connecting raises."""
        while True:
            while self._idle:
                connection, _ = self._idle.pop()
                if not connection.is_closed():
                    self._lent.add(connection)
                    return connection
                self._made -= 1
            if self._made < self._most:
                return await self._make()
            connection = await self._wait(patience)
            if connection is not None:
                return connection

    async def _make(self) -> Any:
        self._made += 1
        try:
            connection = await self._connect()
            if self._closed:
                connection.terminate()
                raise ConnectionAbortedError("the pool was closed meanwhile")
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
        """To whoever has waited longest; False when nobody waits."""
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
        """One of ours broke: if the server went away, so did those that lie here, and each would fail somebody."""
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
