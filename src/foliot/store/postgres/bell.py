"""Wake-ups: hints that there is something to look for. A lost hint costs time, and nothing else.

A process notifies after a commit, never inside the transaction: a transaction that notifies holds a lock of the whole
server until it is on disk, and every other commit would wait for it. A process sends one message at a time.

Schedulers listen for arrivals, workers for hand-offs: each has a channel, so that neither wakes for the other's.
A message may call one instance by its number. Then there is work for one instance only: if all claimed, all but one
would find nothing. An instance without free slots passes the message on to all. If the instance is gone, the
others claim a little later, until its heartbeat has been missing for so long that no message calls it any more. A
message may also name a moment to come, by the server's clock: see `foliot.store.postgres.calls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg

from foliot.store.postgres.calls import ANY, Answer, Calls, Message, ServerTime

BREATH = 0.002
"""Seconds between two messages: a process that wakes takes all that has come since, and not one run at a time."""
UNHEARD_EVERY = 0.02
"""Seconds: a process that cannot listen looks this often."""
ANSWERED_WITHIN = 0.003
"""Seconds within which an instance that was called by its number claims; otherwise all are called."""

ASKED_EVERY, ANSWERS_WITHIN = 5.0, 3.0
"""Seconds: a silent connection may have lost its other end. So it is queried from time to time, and closed if no answer
comes."""

EVERYBODY = ("arrivals", "handoff")
"""The channels of schedulers and of workers."""

_log = logging.getLogger("foliot.store")


def channel(who: str) -> str:
    return f"foliot_{who}"


async def _within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Bell:
    """Sends and receives the wake-ups of one event loop."""

    def __init__(self, send: Callable[[str], Awaitable[None]], connect: Callable[[], Awaitable[Any]] | None) -> None:
        self._send = send
        self._connect = connect
        self._ringing: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._hears: frozenset[str] = frozenset()
        self._heard = 0
        self._callbacks: list[Callable[[], None]] = []
        self._has_ears = False
        self._ours: set[str] = set()
        """Numbers of instances here."""
        self._passing: asyncio.TimerHandle | None = None
        """Passes the message on, unless this process claims first."""
        self._looking: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        self.time = ServerTime(loop)
        self._calls = Calls(loop, self._go)

    def ring(self, who: set[str]) -> None:
        """Notifies other processes soon, and the listeners of this process at once."""
        self.heard(who)
        self._ringing |= who
        if self._ringing and self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._tell())

    def heard(self, who: set[str]) -> None:
        """A commit of this process concerns these listeners."""
        if who & self._hears or not self._hears:
            self._calls.mark()
            self._wake()

    def _wake(self) -> None:
        self._heard += 1
        for callback in self._callbacks:
            callback()

    def when_heard(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        self._look_instead()

    def _look_instead(self) -> None:
        """Calls the waiting callbacks every few milliseconds while the store cannot listen."""
        if self._has_ears or not self._callbacks or self._looking is not None:
            return
        self._looking = asyncio.get_running_loop().call_later(UNHEARD_EVERY, self._call_unheard)

    def _call_unheard(self) -> None:
        self._looking = None
        for callback in self._callbacks:
            callback()
        self._look_instead()

    def answered(self) -> Answer:
        """This process looks now, which answers every message before this."""
        if self._passing is not None:
            self._passing.cancel()
            self._passing = None
        return self._calls.answered()

    def expect(self, seconds: float) -> None:
        self._calls.expect(asyncio.get_running_loop().time() + seconds)

    def come(self, when: float) -> None:
        """This process looks again at that moment: what is ready then could not be taken before."""
        self._calls.at(when)

    def _called(self, message: Message) -> None:
        self.time.note(message.at)
        if message.taken:
            self._calls.taken(message.taken, self.time.here(message.taken), message.since)
        for at, worker, chunk in message.calls:
            is_ours = not worker or worker in self._ours
            if not is_ours:
                self._calls.others(self.time.here(at or message.at), at or message.at, chunk or ANY)
            elif not at:
                self._calls.now(alone=bool(worker))
            elif worker and chunk:
                self._calls.chunk(chunk, self.time.here(at))
            else:
                self._calls.at(self.time.here(at))

    def _go(self, is_for_us_alone: bool) -> None:
        if is_for_us_alone and self._passing is None:
            self._passing = asyncio.get_running_loop().call_later(ANSWERED_WITHIN, self._pass_on)
        self._wake()

    def _pass_on(self) -> None:
        self._passing = None
        self.ring({"handoff"})

    async def _tell(self) -> None:
        try:
            while self._ringing:
                await self._send(self._ringing.pop())
                await asyncio.sleep(BREATH)
        except Exception as error:  # a hint that is lost costs a fraction of a second
            _log.debug("wake-up not sent, receivers find the work by polling: %s", error)
            self._ringing.clear()
        finally:
            self._sender = None

    def listen(self, hears: set[str], instance: int) -> None:
        """From now on `version` follows commits of other processes that concern this one."""
        self._ours.add(str(instance))
        if self._listener is not None and not hears <= self._hears:
            self._listener.cancel()  # it starts again, with more channels
            self._listener = None
        self._hears |= hears
        if self._connect is not None and self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        pause, is_logged = 0.1, False
        while True:
            try:
                assert self._connect is not None
                connection = await self._connect()
                try:
                    gone = asyncio.Event()
                    connection.add_termination_listener(lambda *_, gone=gone: gone.set())
                    for who in self._hears or EVERYBODY:
                        await connection.add_listener(channel(who), partial(self._hear, who))
                    self._has_ears, pause = True, 0.1
                    if is_logged:
                        _log.warning("listening for wake-ups again")
                        is_logged = False
                    self.heard(set(self._hears))  # messages sent before this process listened
                    while not gone.is_set():
                        await connection.execute("SELECT 'listening'", timeout=ANSWERS_WITHIN)
                        await _within(gone, ASKED_EVERY)
                finally:
                    self._has_ears = False
                    self._look_instead()
                    connection.terminate()
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                if not is_logged:
                    _log.warning("listening for wake-ups failed, polling instead: %s: %s", type(error).__name__, error)
                    is_logged = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5)

    def _hear(self, who: str, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        message = Message.read(str(payload)) if payload and self._hears else None
        if message is None:
            self.heard({who})
        else:
            self._called(message)

    @property
    def version(self) -> int:
        return self._heard if self._has_ears else self._heard + int(time.monotonic() / UNHEARD_EVERY)

    async def close(self) -> None:
        self.answered()
        self._calls.close()
        self._callbacks.clear()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for task in (self._sender, self._listener):
            if task is not None and task.get_loop() is asyncio.get_running_loop():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        self._sender = self._listener = None
