"""Connections to a real server: deadlines, places, counts by address. Two loopback addresses are two hosts.

A deadline of a test is short, and the test waits for the server to close the connection, however long that takes.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foliot import Foliot
from foliot.net import networks
from foliot.web.addresses import client_address, counted_as
from foliot.web.connections import Connections, Limits
from foliot.web.server import serve
from foliot.web.settings import WebSettings
from tests.waiting import soon, until_async

SOON = 0.05
"""Seconds of a deadline that runs out in a test."""
HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GET = HALF + b"\r\n"
LAST = HALF + b"Connection: close\r\n\r\n"


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        """All until the server closes the connection."""
        try:
            return await soon(self.reader.read())
        except ConnectionResetError:
            return b""

    async def answer(self) -> tuple[int, bytes]:
        head = await soon(self.reader.readuntil(b"\r\n\r\n"))
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        return int(head.split()[1]), head + await soon(self.reader.readexactly(int(length.split()[1])))


class Server:
    def __init__(self, app: Foliot, port: int) -> None:
        self.app = app
        self.port = port
        self._open = AsyncExitStack()

    async def connect(self, source: str = "127.0.0.1") -> Client:
        client = Client(*await soon(asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))))
        self._open.callback(client.writer.close)
        return client

    async def connected(self, count: int, data: bytes, source: str = "127.0.0.1") -> list[Client]:
        clients = [await self.connect(source) for _ in range(count)]
        for client in clients:
            client.send(data)
        return clients

    async def ask(self, data: bytes, source: str = "127.0.0.1") -> tuple[int, bytes]:
        client = await self.connect(source)
        client.send(data)
        return await client.answer()

    async def close(self) -> None:
        await self._open.aclose()


@asynccontextmanager
async def serving(folder: Path, limits: Limits, **settings: Any) -> AsyncIterator[Server]:
    app = Foliot(f"sqlite:///{folder}/foliot.db")
    await app.opened()
    if settings:
        app.token = (await app.operate.create_token_async("reader", scope="read", reason="why", actor="ana")).text  # type: ignore[attr-defined]
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    wanted = WebSettings(port=0, limits=limits, **settings)
    task = asyncio.create_task(serve(app, wanted, stop, ready=ready.set_result))
    server = Server(app, int((await soon(ready)).rstrip("/").rpartition(":")[2]))
    try:
        yield server
    finally:
        await server.close()
        stop.set()
        await soon(task)
        await app.close_async()


# Deadlines


@pytest.mark.parametrize("sent", [b"G", HALF, HALF + b"X-Long: " + b"a" * 9_000])
async def test_a_head_that_does_not_end_is_refused_at_its_deadline(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path, Limits(head_seconds=SOON)) as server:
        client = await server.connect()
        client.send(sent)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"urn:foliot:problem:too-slow" in answer


async def test_a_connection_without_a_request_is_closed_at_the_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(head_seconds=SOON)) as server:
        assert await (await server.connect()).rest() == b""


async def test_the_second_head_of_a_connection_has_a_deadline_too(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(head_seconds=SOON)) as server:
        together = await server.connect()
        together.send(GET + HALF)
        assert b"HTTP/1.1 408" in await together.rest()

        async def is_refused() -> bool:
            apart = await server.connect()
            apart.send(GET)
            assert (await apart.answer())[0] == 200
            apart.send(HALF)
            return b"HTTP/1.1 408" in await apart.rest()

        # On a slow machine the second head comes after the deadline of a connection without a request.
        await until_async(is_refused, "the second head came in time, and did not end")


POST = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"


@pytest.mark.parametrize("body", [b"Content-Length: 100\r\n\r\ntoken=a", b"Transfer-Encoding: chunked\r\n\r\n4\r\ntok"])
async def test_a_body_that_does_not_end_is_refused_at_its_deadline(
    tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, Limits(transfer_seconds=SOON)) as server:
        client = await server.connect()
        client.send(POST + body)
        assert (await client.rest()).startswith(b"HTTP/1.1 408")
    assert not [record for record in caplog.records if record.exc_info]


async def test_after_an_early_answer_the_rest_of_a_body_has_a_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(transfer_seconds=SOON)) as server:
        client = await server.connect()
        client.send(POST + b"Content-Length: 99999999\r\n\r\nto")
        assert (await client.rest()).startswith(b"HTTP/1.1 413")


async def test_a_response_that_its_reader_does_not_take_ends_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(transfer_seconds=SOON, least_rate=1 << 30)) as server:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.setblocking(False)
        with reader:
            await asyncio.get_running_loop().sock_connect(reader, ("127.0.0.1", server.port))
            ends = select.poll()
            ends.register(reader, 0)  # an error alone, which is there whether its data was read or not
            asked = b"GET /static/foliot.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1_000

            def is_ended() -> bool:
                nonlocal asked
                if not ends.poll(0):
                    try:
                        asked = asked[reader.send(asked) :]
                    except BlockingIOError:
                        return False
                    except ConnectionError:
                        return True
                return bool(ends.poll(0))

            await until_async(is_ended, "the server ends the connection")


def test_a_transfer_may_take_as_long_as_its_bytes_come_at_the_least_rate() -> None:
    limits = Limits(transfer_seconds=10, least_rate=16 * 1024)
    assert limits.left(elapsed=9.9, moved=0) > 0 >= limits.left(elapsed=10, moved=0)
    megabyte = 1 << 20
    assert limits.left(elapsed=73, moved=megabyte) > 0, "a legal body over a slow link"
    assert limits.left(elapsed=75, moved=megabyte) < 0


# Places


async def test_waiting_connections_of_one_address_keep_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=20, connections_of_one=8)) as server:
        slow = await server.connected(30, HALF)
        assert (await server.ask(GET, "127.0.0.2"))[0] == 200
        assert (await server.ask(GET))[0] == 200
        first = [await client.rest() for client in slow[:22]]
        assert first == [b""] * 22, "the ones that waited longest were closed"
        slow[-1].send(b"\r\n")
        assert (await slow[-1].answer())[0] == 200, "the others still have their places"


async def test_waiting_connections_of_many_addresses_keep_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=20, connections_of_one=8)) as server:
        idle = [await server.connected(8, data, f"127.0.1.{number}") for number, data in enumerate((HALF, GET, b""))]
        assert (await server.ask(GET, "127.0.0.2"))[0] == 200
        assert await idle[0][0].rest() == b""


async def test_a_connection_that_is_served_is_not_closed_for_another(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(connections=9, connections_of_one=2)) as server:
        held = Held(server)
        served = await server.connected(2, b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until_async(lambda: held.count == 2, "both are served")
        refused = await (await server.connect()).rest()
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 10" in refused
        assert (await server.ask(GET, "127.0.0.2"))[0] == 200
        held.go.set()
        assert [(await client.answer())[0] for client in served] == [503, 503]


class Held:
    """Holds requests for /readyz until the test lets them go."""

    def __init__(self, server: Server) -> None:
        self.go, self.count = asyncio.Event(), 0
        ticking = server.app.operate.ticking_async

        async def held() -> Any:
            self.count += 1
            await self.go.wait()
            return await ticking()

        server.app.operate.ticking_async = held  # type: ignore[method-assign]


READY = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


async def test_requests_of_one_address_have_a_limit_and_those_of_another_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(requests_of_one=1)) as server:
        held = Held(server)
        [first] = await server.connected(1, READY + b"\r\n")
        await until_async(lambda: held.count == 1, "a request is served")
        status, answer = await server.ask(LAST)
        assert status == 429
        assert b"retry-after: 10" in answer
        assert b"this address has 1 requests open" in answer
        assert (await server.ask(LAST, "127.0.0.2"))[0] == 200
        held.go.set()
        await first.rest()
        assert (await server.ask(LAST))[0] == 200


async def test_a_trusted_proxy_is_exempt_and_its_requests_count_for_its_clients(tmp_path: Path) -> None:
    trusted = networks("127.0.0.1")
    limits = Limits(connections_of_one=1, requests_of_one=1)
    async with serving(tmp_path, limits, trusted_proxies=trusted) as server:
        held = Held(server)
        [first] = await server.connected(1, READY + b"X-Forwarded-For: 192.0.2.7\r\n\r\n")
        await until_async(lambda: held.count == 1, "a request is served")

        async def asked(forwarded: bytes, source: str = "127.0.0.1") -> int:
            return (await server.ask(HALF + b"X-Forwarded-For: " + forwarded + b"\r\n\r\n", source))[0]

        assert await asked(b"192.0.2.7") == 429
        assert await asked(b"192.0.2.8, 192.0.2.7") == 429, "the proxy appended the last one"
        assert await asked(b"192.0.2.7, 192.0.2.8") == 200
        assert await asked(b"192.0.2.7", "127.0.0.2") == 200, "no proxy: its own address counts"
        held.go.set()
        await first.rest()


async def test_a_proxy_makes_no_request_local_however_it_names_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path, Limits(), trusted_proxies=networks("127.0.0.1")) as server:
        asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n"
        for named in (b"", b"X-Forwarded-For: 127.0.0.1\r\n", b"X-Forwarded-For: ::1, 127.0.0.1\r\n"):
            assert (await server.ask(asked + named + b"\r\n"))[0] == 401


async def test_a_live_stream_takes_no_place_of_its_address(tmp_path: Path) -> None:
    limits = Limits(connections_of_one=1, requests_of_one=1, head_seconds=SOON, transfer_seconds=SOON)
    async with serving(tmp_path, limits, most_body=1_024) as server:
        token = server.app.token.encode()  # type: ignore[attr-defined]
        stream = await server.connect()
        stream.send(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        assert b"event: hello" in await soon(stream.reader.readuntil(b"event: hello"))
        assert (await server.ask(GET))[0] == 200
        assert await (await server.connect()).rest() == b"", "the deadlines of the stream have passed as well"
        assert not stream.reader.at_eof()
        stream.writer.close()


# Decisions


class Noted:
    """A connection that notes its end."""

    def __init__(self) -> None:
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


def test_the_connection_that_waited_longest_gives_its_place() -> None:
    connections = Connections(Limits(connections=3, connections_of_one=2))
    first, second, third, fourth = (Noted() for _ in range(4))
    assert connections.enter(first, "a")
    assert connections.enter(second, "a")
    connections.serve(first)
    connections.wait(first)  # it has waited for less time than the second one now
    assert connections.enter(third, "a")
    assert [one.is_evicted for one in (first, second, third)] == [False, True, False]
    for one in (first, third):
        connections.serve(one)
    assert not connections.enter(fourth, "a"), "no connection of this address waits"
    assert connections.enter(fourth, "b")
    connections.serve(fourth)
    assert not connections.enter(Noted(), "c"), "no connection waits"
    connections.exempt(first)
    connections.remove(fourth)
    assert connections.enter(Noted(), "a"), "a live stream leaves the count of its address"
    for one in (first, third):
        connections.remove(one)
        connections.remove(one)
    assert len(connections) == 1


def test_connections_need_files() -> None:
    limits = Limits()
    assert limits.within(1 << 20) == limits
    few = limits.within(1_024)
    assert few.connections == 512
    assert few.requests < few.connections
    assert 0 < limits.within(10).connections < 512
    assert Limits(connections=5).within(10).connections == 5


PROXIES = networks("10.0.0.0/8, ::1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("::1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(peer: str, forwarded: list[str], client: str) -> None:
    assert client_address(peer, forwarded, PROXIES) == client


def test_addresses_of_one_customer_count_as_one() -> None:
    assert counted_as("2001:db8::7") == counted_as("2001:db8::8:9") != counted_as("2001:db8:0:1::7")
    assert counted_as("::ffff:192.0.2.7") == counted_as("192.0.2.7") != counted_as("192.0.2.8")
    assert counted_as("somewhere") == "somewhere"
