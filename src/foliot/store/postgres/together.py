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
        self._under_way: set[asyncio.Task[None]] = set()
        self._next_at: float | None = None
        """When somebody looks at what waits; None when nobody will."""
        self._patient_until = 0.0

    async def add(self, item: A) -> B:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[B] = loop.create_future()
        self._waiting.append((item, answer))
        # Not at once: whoever else is called in this pass of the loop comes along.
        self._look_at(loop, 0.0 if not self._under_way else self._patient_until)
        # A caller that is cancelled while it waits does not take its item back: it may be on its way already.
        return await answer

    async def done(self) -> None:
        """Once everybody who waits has an answer."""
        while self._waiting or self._under_way:
            if self._under_way:
                await asyncio.wait(self._under_way)
            await asyncio.sleep(0)

    def _look_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._next_at is None or when < self._next_at:
            self._next_at = when
            if when <= loop.time():
                loop.call_soon(self._look, when)
            else:
                loop.call_at(when, self._look, when)

    def _look(self, when: float) -> None:
        if when != self._next_at:
            return  # somebody looked sooner
        self._next_at = None
        loop = asyncio.get_running_loop()
        # Who has to wait for somebody else's transaction does not keep those waiting who come after.
        if self._waiting and (not self._under_way or loop.time() >= self._patient_until):
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            self._patient_until = loop.time() + PATIENCE
            self._begin(batch)
        if self._waiting:
            self._look_at(loop, self._patient_until)

    def _begin(self, batch: list[tuple[A, asyncio.Future[B]]]) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(batch))
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._waiting and not self._under_way:
            self._look_at(task.get_loop(), 0.0)

    async def _serve(self, batch: list[tuple[A, asyncio.Future[B]]]) -> None:
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
