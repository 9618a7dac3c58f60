"""The process of one attempt (see `foliot.isolated`): started by a worker, which it does not outlive.

The main thread runs the handler, through the same pipeline as in a worker. A second thread has the line to the worker:
it asks the store for the handler, says how far it is, hears that it should stop, and ends everything when the worker
is gone. Only a transaction needs more than a line: for that the process opens the store itself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from foliot import errors
from foliot.clock import SystemClock
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.policy import policy_from_json
from foliot.domain.run import Ending, Progress
from foliot.domain.signals import Tracer
from foliot.domain.store import HandlerStore, OpenTransaction
from foliot.work import wire
from foliot.work.attempt import Attempt, Stop
from foliot.work.confinement import memory_limited
from foliot.work.execute import execute, execute_in_thread
from foliot.work.handler import Handler
from foliot.work.kin import MARK, end_kin
from foliot.work.place import handler_at
from foliot.work.traced import traced, traced_in_thread

T = TypeVar("T")

MOST_TRACE = 6_000
"""Characters of a traceback, its newest end."""
_LOOK = 0.02
"""Seconds between two looks at what the attempt says of itself."""
_FLUSHING: Duration = SECOND
_CLOSING = 0.5
"""Seconds that closing the store may take: nothing depends on it."""


class Home(Protocol):
    """Where the store is opened, when it is needed: the app that has the job."""

    async def opened(self) -> HandlerStore: ...
    async def close_async(self) -> None: ...


HomeOf = Callable[[Handler, str | None], Home | None]
"""Where a handler is at home whose worker has the store with this URL; None when nobody else can open that."""


TracerOf = Callable[[Handler], Tracer | None]
"""Who follows the attempts of a handler; None when nobody does."""


def main(home_of: HomeOf, tracer_of: TracerOf = lambda handler: None) -> None:
    """One attempt, from the first message to the last, and then nothing: no thread that a handler left behind, and
    nothing that runs at exit, may keep the process."""
    own = os.getpid()
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    verdict = _attempted(line, home_of, tracer_of)
    if os.getpid() != own:
        os._exit(0)  # the handler forked, and this is the other one: it has nothing to say
    line.last_word(verdict)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    logging.shutdown()
    os._exit(0)


def _attempted(line: Line, home_of: HomeOf, tracer_of: TracerOf) -> wire.Ended | wire.Broken:
    start = line.start
    sys.path[:] = start.path
    try:
        handler = handler_at(start.place)
        line.home, tracer = home_of(handler, start.store), tracer_of(handler)
    except errors.InvalidInput as error:
        return wire.Broken(str(error), permanent=True)
    except BaseException:  # whatever the app's code does while it is imported
        return wire.Broken(f"the job could not be imported\n{traceback.format_exc()}"[-MOST_TRACE:], permanent=False)
    attempt = Attempt(start.claimed, _limited(handler), policy_from_json(start.policy))
    clock, chance = _WorkersClock(start.ahead), random.random
    if not handler.is_async:
        line.watch(attempt, attempt.ask_to_stop)
        execution = partial(execute_in_thread, attempt, clock, chance, line.desk)
        return _ended(execution() if tracer is None else traced_in_thread(tracer, attempt, execution), tracer)

    async def conduct() -> Ending | None:
        loop = asyncio.get_running_loop()
        attempt.task = asyncio.current_task()
        line.watch(attempt, lambda reason: loop.call_soon_threadsafe(_cancel, attempt, reason))
        execution = execute(attempt, clock, chance, line.desk)
        return await (execution if tracer is None else traced(tracer, attempt, execution))

    return _ended(asyncio.run(conduct()), tracer)


def _ended(ending: Ending | None, tracer: Tracer | None) -> wire.Ended:
    if tracer is not None:
        tracer.close(_FLUSHING)  # before the last word: from then on the worker waits for this process's end
    return wire.Ended(ending)


def _cancel(attempt: Attempt, reason: Stop) -> None:
    attempt.ask_to_stop(reason)
    if attempt.task is not None and attempt.started_at is not None:
        attempt.task.cancel()


def _limited(handler: Handler) -> Handler:
    """The same, with a function that holds no more memory than its job allows."""
    function, limit = handler.function, handler.memory
    if limit is None:
        return handler

    async def limited_async(**arguments: Any) -> Any:
        with memory_limited(limit):
            return await function(**arguments)

    def limited(**arguments: Any) -> Any:
        with memory_limited(limit):
            return function(**arguments)

    return replace(handler, function=limited_async if handler.is_async else limited)


class _WorkersClock(SystemClock):
    """The host's clock, as its worker corrects it."""

    def __init__(self, ahead: Duration) -> None:
        self._ahead = ahead

    def now(self) -> Instant:
        return super().now() + self._ahead


class Line:
    """The line to the worker, in a thread and an event loop of its own."""

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="foliot-line", daemon=True).start()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._questions = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._attempt: Attempt | None = None
        self._stop: Callable[[Stop], object] | None = None
        self._stopping: Stop | None = None
        self._told_began = False
        self._told_moved: Instant | None = None
        self.home: Home | None = None
        self._has_store = False
        self.start = self._run(self._open(connection))

    def desk(self, *_: object) -> PipeDesk:
        return PipeDesk(self)

    def watch(self, attempt: Attempt, stop: Callable[[Stop], object]) -> None:
        """From now on, says what is new about the attempt, and passes on that it is to stop."""
        self._run(self._begin(attempt, stop))

    def last_word(self, verdict: wire.Ended | wire.Broken) -> None:
        self._run(self._close(verdict))

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """A question to the worker's desk, in this line's own loop."""
        question = next(self._questions)
        self._answers[question] = answer = self.loop.create_future()
        wire.send(self._writer, wire.Asked(question, verb, msgspec.msgpack.encode(arguments)))
        try:
            return msgspec.msgpack.decode(await answer, type=wire.QUESTIONS[verb][1], strict=False)
        finally:
            del self._answers[question]

    async def store(self) -> HandlerStore:
        """The store itself, opened by whoever asks first."""
        if self.home is None:
            raise errors.InvalidInput(
                "ctx.transaction() cannot reach a store in the worker's memory from an isolated process; use a "
                "store in a file, or run the job without isolation"
            )
        self._has_store = True
        return await self.home.opened()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _open(self, connection: socket.socket) -> wire.Start:
        self._reader, self._writer = await asyncio.open_connection(sock=connection)
        start = await wire.from_worker(self._reader)
        if not isinstance(start, wire.Start):
            _perish()
        self._tasks.append(self.loop.create_task(self._listen()))
        return start

    async def _begin(self, attempt: Attempt, stop: Callable[[Stop], object]) -> None:
        self._attempt, self._stop = attempt, stop
        if self._stopping is not None:  # it came while the app was being imported
            attempt.ask_to_stop(self._stopping)
        self._tasks.append(self.loop.create_task(self._speak()))

    async def _listen(self) -> None:
        while True:
            message = await wire.from_worker(self._reader)
            if isinstance(message, wire.Answer):
                self._hear(message)
            elif isinstance(message, wire.Stopping):
                self._stopping = message.reason
                if self._stop is not None:
                    self._stop(message.reason)
            else:
                _perish()

    def _hear(self, message: wire.Answer) -> None:
        answer = self._answers.get(message.question)
        if answer is None or answer.done():
            return  # whoever asked has gone
        if message.error is None:
            answer.set_result(message.value)
        else:
            answer.set_exception(_error(*message.error))

    async def _speak(self) -> None:
        while True:
            self._say()
            await asyncio.sleep(_LOOK)

    def _say(self) -> None:
        """What is new."""
        attempt = self._attempt
        if attempt is None or attempt.started_at is None or attempt.begun_at is None:
            return
        if not self._told_began:
            wire.send(self._writer, wire.Began(attempt.started_at, attempt.begun_at))
            self._told_began = True
        news, moved_at = attempt.news(), attempt.moved_at()
        if news is not None or moved_at != self._told_moved:
            wire.send(self._writer, wire.Said(news, moved_at))
            self._told_moved = moved_at
        if news is not None:
            attempt.was_told(news)

    async def _close(self, verdict: wire.Ended | wire.Broken) -> None:
        """After this has returned, everything that was said is out of our hands."""
        for task in self._tasks:
            task.cancel()
        self._say()
        wire.send(self._writer, verdict)
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        if self.home is not None and self._has_store:
            with suppress(Exception):
                await asyncio.wait_for(self.home.close_async(), _CLOSING)


def _perish() -> NoReturn:
    """The worker is gone: nobody would hear how this attempt ends, and somebody else may have begun it anew."""
    end_kin(os.environ.get(MARK, ""), os.getpid())
    os._exit(1)


def _error(kind: str, text: str) -> Exception:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, errors.FoliotError):
        return found(text)
    return errors.StoreError(text)


class PipeDesk:
    """What the attempt asks of the store, by way of its worker; see `foliot.work.desk`."""

    is_in_place = False

    def __init__(self, line: Line) -> None:
        self._line = line

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._line.loop

    async def begin_effect(self, effect: Effect) -> Begun:
        answer: Begun = await self._line.ask("begin_effect", effect)
        return answer

    async def end_effect(self, effect: Effect, state: EffectState, result: bytes | None, note: str | None) -> None:
        await self._line.ask("end_effect", effect, state, result, note)

    async def done_items(self, batch: str) -> set[str]:
        answer: set[str] = await self._line.ask("done_items", batch)
        return answer

    async def ledger(self) -> list[EffectView]:
        answer: list[EffectView] = await self._line.ask("ledger")
        return answer

    async def say(self, progress: Progress) -> None:
        await self._line.ask("say", progress)

    async def transaction(self, connection: Any) -> OpenTransaction:
        return (await self._line.store()).transaction(connection)

    def worker_number(self) -> int:
        return self._line.start.worker

    def expect(self, call: asyncio.Task[Any]) -> None:
        """Time is never virtual here."""
