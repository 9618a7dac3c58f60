"""A network that fails on demand, between a client and a PostgreSQL server.

    with Proxy(server.port) as proxy:
        connection = await asyncpg.connect(proxy.dsn("postgres"))
        cut = proxy.cut_after_commit(where="INSERT INTO job")
        with pytest.raises(asyncpg.PostgresConnectionError):
            await connection.execute("INSERT INTO job ...")
        assert cut.happened

A fault is armed for the next message that matches, on whichever connection, and happens once. The proxy lives in a
thread of its own, so that sync and async tests use it alike; every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Literal, Self, TypeVar
from urllib.parse import urlsplit

from tests.servers.wire import COPY_IN, Conversation, Framer, Moment, Unit, writes
from tests.waiting import HANG

Where = str | Callable[[str], object] | None
"""Which statements a fault is meant for: a part of their text (case and white space do not matter), or a function."""

T = TypeVar("T")

_ENCRYPTION_REQUESTS = (80877103, 80877104)  # TLS and GSS


class Fault:
    """Something that will go wrong once. `await` it, or `wait()` for it, or look whether it `happened`."""

    def __init__(
        self, action: Literal["cut", "freeze"], when: Literal["before", "after"], commit: bool, where: Where
    ) -> None:
        self.action, self.when, self.commit, self.where = action, when, commit, where
        self._happening: Future[None] = Future()
        self._happening.set_running_or_notify_cancel()  # a test that gives up waiting does not call the fault off

    def __repr__(self) -> str:
        return f"{self.action}_{self.when}{'_commit' * self.commit}(where={self.where!r})"

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.wrap_future(self._happening).__await__()

    @property
    def happened(self) -> bool:
        return self._happening.done()

    def wait(self, timeout: float = HANG) -> None:
        try:
            self._happening.result(timeout)
        except TimeoutError:
            raise TimeoutError(
                f"{self!r} did not happen within {timeout:g} s; proxy.seen lists the statements that passed"
            ) from None

    def matches(self, moment: Moment) -> bool:
        if not self.commit:
            return moment.statement is not None and self._meant(moment.statement)
        if moment.durable is None:
            return False
        if self.where is None:  # a lone SELECT commits too, but nobody means that
            return moment.explicit or any(map(writes, moment.durable))
        return any(map(self._meant, moment.durable))

    def happen(self) -> None:
        self._happening.set_result(None)

    def _meant(self, sql: str) -> bool:
        if callable(self.where):
            return bool(self.where(sql))
        return self.where is None or " ".join(self.where.split()).casefold() in " ".join(sql.split()).casefold()


class Proxy:
    """Listens on a port of its own on 127.0.0.1. `server_port` may be changed: it holds for new connections."""

    port: int

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.seen: deque[str] = deque(maxlen=200)
        """The statements that clients executed last, oldest first; one that a fault kept back is among them."""
        self.frozen = False
        self.refusing = False
        self.latency = 0.0
        self.links: set[_Link] = set()
        self._armed: list[Fault] = []
        self._broken: list[Exception] = []
        self._started: Future[int] = Future()

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def through(self, dsn: str) -> str:
        """The same database as this DSN of the server's, reached through the proxy."""
        parts = urlsplit(dsn)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    # ------------------------------------------------------------------------------------------ faults that are armed

    def cut_before_commit(self, where: Where = None) -> Fault:
        """Cuts the connection instead of passing on what would commit: the server rolls back.

        A commit is a COMMIT, or the end of a single statement outside of a block. With `where`, of a transaction that
        executed such a statement. Without, of any block, or of a single statement whose text says that it writes; a
        SELECT of a function that writes has to be named.
        """
        return self._arm(Fault("cut", "before", True, where))

    def cut_after_commit(self, where: Where = None) -> Fault:
        """Cuts the connection when the server has committed, and keeps its answer from the client.

        A commit that the server refuses does not count: the client hears why, and the fault waits for the next one.
        """
        return self._arm(Fault("cut", "after", True, where))

    def freeze_before_commit(self, where: Where = None) -> Fault:
        """Freezes that one connection; its commit reaches the server when it thaws. Others go on."""
        return self._arm(Fault("freeze", "before", True, where))

    def freeze_after_commit(self, where: Where = None) -> Fault:
        """Freezes that one connection when the server has committed; the client hears of it when it thaws."""
        return self._arm(Fault("freeze", "after", True, where))

    def cut_before(self, where: Where) -> Fault:
        """Cuts the connection instead of passing on a statement, wherever in a transaction it stands."""
        return self._arm(Fault("cut", "before", False, where))

    def freeze_before(self, where: Where) -> Fault:
        """Freezes that one connection before a statement: its transaction stays open, and so do its locks."""
        return self._arm(Fault("freeze", "before", False, where))

    # ------------------------------------------------------------------------------------------------- faults right now

    def freeze(self) -> None:
        """Passes nothing on any more, not even that an end has gone; new connections are left without an answer."""

        async def act() -> None:
            self.frozen = True
            for link in self.links:
                link.flowing.clear()

        self._do(act())

    def thaw(self) -> None:
        """Passes on, in order, what was said to a frozen connection meanwhile."""

        async def act() -> None:
            self.frozen = False
            for link in self.links:
                link.flowing.set()

        self._do(act())

    def delay(self, seconds: float) -> None:
        """Everything takes at least this long in each direction; zero ends it."""
        self.latency = seconds

    def cut_all(self) -> None:
        """Drops every connection; when it returns they are gone."""
        self._do(self._cut_all())

    def refuse(self) -> None:
        """Closes new connections at once, until `allow()`; those that exist go on."""
        self.refusing = True

    def allow(self) -> None:
        self.refusing = False

    # ---------------------------------------------------------------------------------------------------------- running

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._thread.start()
        self.port = self._started.result(HANG)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._leave())
        self._thread.join(HANG)
        if self._broken:  # a connection that the proxy itself broke must not pass for a fault
            raise self._broken[0]

    async def _serve(self) -> None:
        try:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        except Exception as error:
            self._started.set_exception(error)
            return
        self._started.set_result(server.sockets[0].getsockname()[1])
        await self._over.wait()
        server.close()
        await self._cut_all()

    async def _leave(self) -> None:
        self._over.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        link = _Link(self, reader, writer)
        self.links.add(link)
        try:
            await link.run()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # an end has gone, the server is not there, or all are cut: what is left is to close
        except Exception as error:
            self._broken.append(error)
        finally:
            await link.close()
            self.links.discard(link)

    async def _cut_all(self) -> None:
        tasks = [link.task for link in self.links]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _arm(self, fault: Fault) -> Fault:
        async def act() -> None:
            self._armed.append(fault)

        self._do(act())
        return fault

    def take(self, moment: Moment, when: str) -> Fault | None:
        """The fault that this moment sets off: whoever takes it makes it happen, or gives it back."""
        for fault in self._armed:
            if fault.when == when and fault.matches(moment):
                self._armed.remove(fault)
                return fault
        return None

    def give_back(self, fault: Fault) -> None:
        self._armed.insert(0, fault)

    def _do(self, act: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(HANG)


class _Cut(Exception):
    """The connection ends here."""


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.flowing = asyncio.Event()
        if not proxy.frozen:
            self.flowing.set()
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._conversation = Conversation()
        self._kept: dict[Unit, tuple[Fault, bytearray]] = {}
        """By unit, the fault that waits for its end, and the answer that is kept back until then."""

    async def run(self) -> None:
        greeting = await self._greeting()
        from_server, self._to_server = await asyncio.open_connection("127.0.0.1", self._proxy.server_port)
        self._to_server.write(greeting)
        pumps = [
            asyncio.create_task(self._pump(self._from_client, self._to_server, self._upwards)),
            asyncio.create_task(self._pump(from_server, self._to_client, self._downwards)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            ended = await asyncio.gather(*pumps, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, _Cut):
                raise error

    async def close(self) -> None:
        for fault, _ in self._kept.values():
            self._proxy.give_back(fault)
        writers = [writer for writer in (self._to_client, self._to_server) if writer is not None]
        for writer in writers:
            writer.transport.abort() if self.task.cancelling() else writer.close()
        try:
            for writer in writers:
                with suppress(OSError):
                    await writer.wait_closed()
        finally:  # cut while an end did not take its last bytes
            for writer in writers:
                writer.transport.abort()

    async def _greeting(self) -> bytes:
        """The client's first message; it has no type. An offer to encrypt is turned down, and the client goes on."""
        while True:
            length = await self._from_client.readexactly(4)
            rest = await self._from_client.readexactly(int.from_bytes(length, "big") - 4)
            await self._passage()
            if int.from_bytes(rest[:4], "big") not in _ENCRYPTION_REQUESTS:
                return length + rest
            self._to_client.write(b"N")

    async def _passage(self) -> None:
        await asyncio.sleep(self._proxy.latency)
        await self.flowing.wait()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        judge: Callable[[bytes, bytearray, asyncio.StreamWriter], Coroutine[object, object, None]],
    ) -> None:
        framer = Framer()
        while True:
            try:
                chunk = await reader.read(65_536)
            except OSError:
                chunk = b""  # gone: but nobody hears of that through a frozen connection
            await self._passage()
            if not chunk:
                return
            passing = bytearray()
            for message in framer.feed(chunk):
                await judge(message, passing, writer)
            writer.write(passing)
            await writer.drain()

    async def _upwards(self, message: bytes, passing: bytearray, server: asyncio.StreamWriter) -> None:
        moment = self._conversation.client_says(message)
        if moment is not None:
            if moment.statement is not None:
                self._proxy.seen.append(moment.statement)
            if fault := self._proxy.take(moment, "before"):
                await self._strike(fault, passing, server)
            if fault := self._proxy.take(moment, "after"):
                self._kept[moment.unit] = fault, bytearray()
        passing += message

    async def _downwards(self, message: bytes, passing: bytearray, client: asyncio.StreamWriter) -> None:
        unit = self._conversation.server_says(message)
        if unit not in self._kept:
            passing += message
            return
        fault, answer = self._kept[unit]
        answer += message
        if unit.done:
            del self._kept[unit]
            if unit.succeeded:
                await self._strike(fault, passing, client)
            else:
                self._proxy.give_back(fault)
            passing += answer
        elif message[:1] == COPY_IN:  # no answer yet, but an invitation: without it the client would wait for ever
            passing += answer
            answer.clear()

    async def _strike(self, fault: Fault, passing: bytearray, writer: asyncio.StreamWriter) -> None:
        """Makes the fault happen. What was said before it still arrives."""
        writer.write(passing)
        passing.clear()
        if fault.action == "freeze":
            self.flowing.clear()
        fault.happen()
        if fault.action == "cut":
            raise _Cut
        await self.flowing.wait()
