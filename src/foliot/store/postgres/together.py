"""Callers that come while a statement is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


PATIENCE = 0.1
"""Seconds that a statement may take before the next is sent beside it."""


class Alone(Exception):
    """Said of an item that should be sent again by itself: something in its company had to wait."""


class Together(Generic[A, B]):
    """One statement at a time per event loop; a caller that is alone does not wait for anybody.

    `send` answers each item with its result, or with the exception that concerns this item alone.
    """

    def __init__(self, send: Callable[[Sequence[A]], Awaitable[Sequence[B | Exception]]], most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def add(self, item: A) -> B:
        answer: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._serve())
        # A caller that is cancelled while it waits does not take its item back: it may be on its way already.
        return await answer

    async def done(self) -> None:
        """Once everybody who waits has an answer."""
        while left := {*self._under_way, *(() if self._sending is None else (self._sending,))}:
            await asyncio.wait(left)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                # Who has to wait for somebody else's transaction does not keep those waiting who come after.
                await asyncio.wait({self._begin(batch)}, timeout=PATIENCE)
        finally:
            self._sending = None

    def _begin(self, batch: list[tuple[A, asyncio.Future[B]]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._serve_batch(batch))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _serve_batch(self, batch: list[tuple[A, asyncio.Future[B]]]) -> None:
        try:
            results: Sequence[B | BaseException] = await self._send([item for item, _ in batch])
        except BaseException as error:
            results = [error] * len(batch)
        for (item, answer), result in zip(batch, results, strict=True):
            if isinstance(result, Alone):
                self._begin([(item, answer)])
            elif answer.done():
                continue
            elif isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)
