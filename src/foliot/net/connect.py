"""Sends one HTTP request to an address that the guard has checked.

A name is resolved once. Every address of the answer is checked, and the connection goes to a checked address, not to
the name: a second answer of the name server changes nothing. The certificate is checked against the name.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse  # noqa: TID251
from ipaddress import ip_address
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from foliot.net.guard import SETTING, AddressGuard, AddressRefused

Resolve = Callable[[str, int], Iterable[str]]
"""Answers the addresses of a name."""
Dial = Callable[[tuple[str, int], float], socket.socket]
"""Connects to an address and port. The number is the timeout in seconds."""

_PORTS = {"http": 80, "https": 443}
MOST_READ = 1_000
"""Bytes of a body that are read."""
MOST_LOOKUPS = 16
"""Name lookups of one connector at the same time. The system's resolver has no timeout, so a lookup that the request
no longer waits for continues in its thread."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def resolve(host: str, port: int) -> list[str]:
    """Asks the system's resolver."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


class Connector:
    """Sends requests to addresses that its guard allows. Threads may share it."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        resolve: Resolve = resolve,
        dial: Dial = socket.create_connection,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard
        self._resolve = resolve
        self._dial = dial
        self._make_tls = tls
        self._monotonic = monotonic
        self._lookups = threading.BoundedSemaphore(MOST_LOOKUPS)

    def request(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float,
        most: int = MOST_READ,
    ) -> Answer:
        """Sends one request and reads `most` bytes of the answer's body. Name lookup included, it takes at most
        `timeout` seconds. A redirect is an answer like any other.

        Raises AddressRefused when an address is refused, and OSError when the request was not answered."""
        request = _request(method, url, body, headers or {})
        deadline = _Deadline(self._monotonic, timeout)
        addresses = self._checked(request.host, request.port, deadline)
        try:
            with self._connected(addresses, request.port, deadline) as plain:
                if request.scheme == "http":
                    return _answer(plain, request, deadline, most)
                plain.settimeout(deadline.left())
                with self._tls.wrap_socket(plain, server_hostname=request.host) as encrypted:
                    return _answer(encrypted, request, deadline, most)
        except HTTPException as error:
            raise OSError(f"the answer is not HTTP: {type(error).__name__}") from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._make_tls()  # reads the certificates of the system, which takes milliseconds

    def _looked_up(self, host: str, port: int, deadline: _Deadline) -> list[str]:
        """Resolves a name in a thread, and waits for it until the deadline."""
        if not self._lookups.acquire(timeout=deadline.left()):
            raise TimeoutError(f"{host} was not resolved in time: {MOST_LOOKUPS} other lookups have not ended")
        answer: Future[list[str]] = Future()

        def look_up() -> None:
            try:
                answer.set_result(list(self._resolve(host, port)))
            except Exception as error:
                answer.set_exception(error)
            finally:
                self._lookups.release()

        threading.Thread(target=look_up, name="foliot-lookup", daemon=True).start()
        try:
            return answer.result(deadline.left())
        except TimeoutError:
            raise TimeoutError(f"{host} was not resolved in time") from None

    def _checked(self, host: str, port: int, deadline: _Deadline) -> list[str]:
        """Resolves a name. One refused address is enough to refuse the name: no answer of it is trusted."""
        addresses = [ip_address(text) for text in self._looked_up(host, port, deadline)]
        if not addresses:
            raise OSError(f"{host} has no address")
        for address in addresses:
            kind = self._guard.refusal(address)
            if kind is not None:
                raise AddressRefused(
                    f"{host} resolves to {address}, {kind}, and requests go only to public addresses; allow it "
                    f"with {SETTING}"
                )
        return [str(address) for address in addresses]

    def _connected(self, addresses: Iterable[str], port: int, deadline: _Deadline) -> socket.socket:
        failed: OSError | None = None
        for address in addresses:
            try:
                return self._dial((address, port), deadline.left())
            except OSError as error:
                failed = error
        assert failed is not None
        raise failed


class _Deadline:
    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left. TimeoutError when there are none."""
        left = self._until - self._monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        return left


class _Reader(io.RawIOBase):
    """Reads from a socket until the deadline. A timeout of the socket alone would begin again with every byte."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What HTTPResponse needs of a socket."""
        return io.BufferedReader(self)


class _Request(NamedTuple):
    method: str
    scheme: str
    host: str
    """As name servers and certificates know it."""
    port: int
    target: str
    body: bytes
    headers: Mapping[str, str]


def _request(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> _Request:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise OSError("the URL has no host, or its scheme is neither http nor https")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Request(method, parts.scheme, host, parts.port or _PORTS[parts.scheme], target, body, headers)


def _answer(sock: socket.socket, request: _Request, deadline: _Deadline, most: int) -> Answer:
    """Sends a request on an open connection, and reads the answer."""
    connection = HTTPConnection(request.host, request.port)
    connection.auto_open = 0  # it must not connect by itself
    connection.default_port = _PORTS[request.scheme]  # the Host header names any other port
    connection.sock = sock
    sock.settimeout(deadline.left())
    connection.request(request.method, request.target, request.body, {"Connection": "close", **request.headers})
    with HTTPResponse(cast(socket.socket, _Reader(sock, deadline)), method=request.method) as response:
        response.begin()
        return Answer(response.status, dict(response.headers), response.read(most))
