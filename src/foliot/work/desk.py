"""The desk: what a running attempt asks of the store, for its own run and under its own token.

A handler may be a coroutine in the desk's event loop, a thread beside it, or code in another loop altogether. The ways
to ask are here, so that whatever asks is written once: as a coroutine that is given one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.run import Claimed, Progress
from foliot.domain.store import Beat, HandlerStore, LedgerStore, OpenTransaction
from foliot.errors import InvalidInput, LostOwnership

T = TypeVar("T")


class LedgerDesk(Protocol):
    """Where effects are written down: at once, or with a transaction. LostOwnership when the run is no longer the
    attempt's; then nothing was written."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its coroutines have to run."""

    @property
    def is_in_place(self) -> bool:
        """Whether its verbs never suspend, and belong into the thread that asks."""

    async def begin_effect(self, effect: Effect) -> Begun: ...

    async def end_effect(self, effect: Effect, state: EffectState, result: bytes | None, note: str | None) -> None: ...

    async def ledger(self) -> list[EffectView]:
        """All effects of the run's lineage, after everything that was asked here before has been answered."""


class Desk(LedgerDesk, Protocol):
    """All that an attempt asks. Plain values in and out: in another process there is a pipe in between."""

    async def done_items(self, batch: str) -> set[str]: ...

    async def say(self, progress: Progress) -> None:
        """What cannot wait for the next heartbeat; durable when this returns."""

    async def transaction(self, connection: Any) -> OpenTransaction:
        """One that ends the run, on the store's connection or inside the caller's own."""

    def worker_number(self) -> int: ...

    def expect(self, call: asyncio.Task[Any]) -> None:
        """Something is under way that is no verb of the desk; whoever moves a virtual clock waits for it."""


Desks = Callable[[Claimed], Desk]
"""Where an attempt finds its desk; asked only for attempts that need one."""


class DeskStore(LedgerStore, HandlerStore, Protocol):
    """What of the store the desks of a worker need."""

    async def beat(self, worker: int, progress: list[Progress], *, patient: bool = False) -> Beat: ...


class StoreDesks:
    """All desks of one worker, in the worker's own process."""

    def __init__(self, store: DeskStore, worker: Callable[[], int | None]) -> None:
        self.store = store
        self.worker = worker
        self.loop: asyncio.AbstractEventLoop | None = None
        """The worker's, once it has one."""
        self.calls: set[asyncio.Task[Any]] = set()
        """What was asked and is not answered yet: whoever moves a virtual clock waits for it first."""

    def __call__(self, claimed: Claimed) -> Desk:
        return StoreDesk(self, claimed)


class StoreDesk:
    """The desk of one attempt."""

    is_in_place = False

    __slots__ = ("_calls", "_desks", "_number", "_store", "_token")

    def __init__(self, desks: StoreDesks, claimed: Claimed) -> None:
        self._desks = desks
        self._store = desks.store
        self._number, self._token = claimed.number, claimed.token
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop = self._desks.loop
        assert loop is not None  # nothing runs before the worker has started
        return loop

    async def begin_effect(self, effect: Effect) -> Begun:
        return await self._ask(self._store.begin_effect(self._number, self._token, effect))

    async def end_effect(self, effect: Effect, state: EffectState, result: bytes | None, note: str | None) -> None:
        await self._ask(self._store.end_effect(self._number, self._token, effect, state, result, note))

    async def done_items(self, batch: str) -> set[str]:
        return await self._ask(self._store.done_items(self._number, batch))

    async def ledger(self) -> list[EffectView]:
        while self._calls:
            await asyncio.wait(self._calls)
        return await self._ask(self._store.ledger_of(self._number))

    async def say(self, progress: Progress) -> None:
        worker = self._desks.worker()
        beat = None if worker is None else await self._ask(self._store.beat(worker, [progress], patient=True))
        if beat is None or not beat.known or progress.number in beat.unheard:
            raise LostOwnership(
                f"the attempt with token {self._token} no longer owns its run; its items were not recorded"
            )

    async def transaction(self, connection: Any) -> OpenTransaction:
        return self._store.transaction(connection)

    def worker_number(self) -> int:
        worker = self._desks.worker()
        assert worker is not None  # nothing runs before the worker has started
        return worker

    def expect(self, call: asyncio.Task[Any]) -> None:
        self._desks.calls.add(call)
        call.add_done_callback(self._desks.calls.discard)

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Whoever stops waiting does not take the question back: half a write would be one that nobody knows of."""
        call = asyncio.get_running_loop().create_task(question)
        for calls in (self._calls, self._desks.calls):
            calls.add(call)
            call.add_done_callback(calls.discard)
        return await asyncio.shield(call)


# ----------------------------------------------------------------------------------------------------------- how to ask


class Ask(Protocol):
    """A way to have a coroutine run in the desk's loop."""

    async def __call__(self, question: Coroutine[Any, Any, T], /) -> T: ...


def waiting(loop: asyncio.AbstractEventLoop) -> Ask:
    """For code that awaits, in that loop or in one of its own."""

    async def ask(question: Coroutine[Any, Any, T], /) -> T:
        if asyncio.get_running_loop() is loop:
            return await question
        return await asyncio.wrap_future(_sent(question, loop))

    return ask


def blocking(loop: asyncio.AbstractEventLoop) -> Ask:
    """For code in a thread beside that loop. What it gives never suspends, so `finished` can run whatever awaits it."""

    async def ask(question: Coroutine[Any, Any, T], /) -> T:
        return _sent(question, loop).result()

    return ask


async def in_place(question: Coroutine[Any, Any, T], /) -> T:
    """For what never suspends, and belongs into the thread that asks."""
    return await question


def _sent(question: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(question, loop)
    except RuntimeError:  # the loop is closed: its worker is gone
        question.close()
        raise


def refuse_to_block(loop: asyncio.AbstractEventLoop, instead: str) -> None:
    """Code that blocks the loop which is to answer it would wait for ever."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is loop:
        raise InvalidInput(f"in an async handler, write {instead}: the other form would block its worker")
