"""Requests go to the address that was checked, and to no other. All traffic of these tests stays on this host."""

from __future__ import annotations

import datetime
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from foliot.net import EVERYWHERE, AddressGuard, AddressRefused, Connector
from foliot.net.connect import MOST_LOOKUPS
from tests.waiting import HANG, until
from tests.watch.loopback import listening

HERE = AddressGuard((IPv4Network("127.0.0.1"),))


class Names:
    """A name server that gives one answer after the other, and the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class NoRoute:
    """Notes where a connection would go, and makes none."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []

    def __call__(self, place: tuple[str, int], seconds: float) -> socket.socket:
        self.dialled.append(place)
        raise ConnectionRefusedError("no route")


def test_a_request_goes_to_the_resolved_address_and_names_the_host() -> None:
    with listening() as server:
        names = Names(["127.0.0.1"])
        port = server.server_port
        url = f"http://Watcher.Example:{port}/a?b=c#d"
        answer = Connector(HERE, resolve=names).request("POST", url, b"said", timeout=HANG)
        assert answer.status == 200
        assert server.requests == [("/a?b=c", "said")]
        assert server.hosts == [f"watcher.example:{port}"]
        assert names.asked == [("watcher.example", port)]


def test_a_name_that_leads_to_a_private_address_is_refused_before_anything_is_sent() -> None:
    with listening() as server:
        connector = Connector(AddressGuard(), resolve=Names(["127.0.0.1"]))
        with pytest.raises(
            AddressRefused, match=r"^watcher.example resolves to 127.0.0.1, an address of this host, and"
        ):
            connector.request("POST", f"http://watcher.example:{server.server_port}/", timeout=HANG)
        assert server.requests == []


@pytest.mark.parametrize("url", ["http://127.1:{}/", "http://0x7f000001:{}/", "http://localhost:{}/"])
def test_the_systems_resolver_is_checked_whatever_the_spelling(url: str) -> None:
    with listening() as server:
        with pytest.raises(AddressRefused):
            Connector(AddressGuard()).request("POST", url.format(server.server_port), timeout=HANG)
        assert server.requests == []


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    dial = NoRoute()
    connector = Connector(AddressGuard(), resolve=Names(["1.1.1.1", "10.0.0.1"]), dial=dial)
    with pytest.raises(AddressRefused):
        connector.request("POST", "http://watcher.example/", timeout=HANG)
    assert dial.dialled == []


def test_a_name_that_is_bound_to_another_address_after_the_check_changes_nothing() -> None:
    """The connection is made to the address of the first answer, never to the name."""
    names, dial = Names(["1.1.1.1", "2606:4700::1111"], ["127.0.0.1"]), NoRoute()
    with pytest.raises(ConnectionRefusedError):
        Connector(AddressGuard(), resolve=names, dial=dial).request("POST", "https://watcher.example/", timeout=HANG)
    assert dial.dialled == [("1.1.1.1", 443), ("2606:4700::1111", 443)]
    assert len(names.asked) == 1


def test_each_request_is_checked_anew() -> None:
    names = Names(["1.1.1.1"], ["127.0.0.1"])
    connector = Connector(AddressGuard(), resolve=names, dial=NoRoute())
    with pytest.raises(ConnectionRefusedError):
        connector.request("POST", "http://watcher.example/", timeout=HANG)
    with pytest.raises(AddressRefused):
        connector.request("POST", "http://watcher.example/", timeout=HANG)


def test_a_redirect_is_answered_and_not_followed() -> None:
    with listening() as server:
        server.answers = [302]
        answer = Connector(EVERYWHERE).request("POST", f"{server.url}/x", timeout=HANG)
        assert answer.status == 302
        assert answer.headers["Location"] == f"{server.url}/elsewhere"
        assert [path for path, _ in server.requests] == ["/x"]


def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    with listening() as server:
        assert Connector(EVERYWHERE).request("POST", f"{server.url}/x", timeout=HANG).status == 200


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///etc/passwd", "http:///x", "//host/x"])
def test_only_http_with_a_host_is_requested(url: str) -> None:
    with pytest.raises(OSError, match="neither http nor https"):
        Connector(EVERYWHERE, resolve=Names([])).request("POST", url, timeout=HANG)


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(OSError, match=r"watcher\.example has no address"):
        Connector(EVERYWHERE, resolve=Names([])).request("POST", "http://watcher.example/", timeout=HANG)


@contextmanager
def talking(said: bytes, *, again: bool = False) -> Iterator[str]:
    """A server that sends these bytes to the first connection, once or until the other side leaves."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):
                connection.recv(10_000)
                connection.sendall(said)
                while again:
                    connection.sendall(said)

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            thread.join()


class Silent:
    """A name server that answers nothing until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked = 0

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        self.released.wait(HANG)
        return ["127.0.0.1"]


def test_a_name_server_that_does_not_answer_does_not_hold_a_request_beyond_its_timeout() -> None:
    """A request here has a thousandth of a second left when it waits, by its own clock."""
    names, dial = Silent(), NoRoute()
    seconds = itertools.cycle([0.0, 1.0, 59.999])  # the begin, the place among the lookups, the answer
    connector = Connector(EVERYWHERE, resolve=names, dial=dial, monotonic=lambda: next(seconds))
    try:
        for _ in range(MOST_LOOKUPS):
            with pytest.raises(TimeoutError, match=r"watcher\.example was not resolved in time$"):
                connector.request("POST", "http://watcher.example/", timeout=60)
        late = itertools.cycle([0.0, 59.999])
        connector._monotonic = lambda: next(late)
        with pytest.raises(TimeoutError, match="16 other lookups have not ended"):
            connector.request("POST", "http://watcher.example/", timeout=60)
        until(lambda: names.asked == MOST_LOOKUPS, "each lookup has begun")
        assert dial.dialled == []
    finally:
        names.released.set()
    connector._monotonic = lambda: 0.0
    with pytest.raises(ConnectionRefusedError):
        connector.request("POST", "http://watcher.example/", timeout=60)


def test_an_answer_that_is_not_http_is_an_error_of_the_connection() -> None:
    with talking(b"Dear diary,\r\n\r\n") as url, pytest.raises(OSError, match="the answer is not HTTP: BadStatusLine"):
        Connector(EVERYWHERE).request("POST", url, timeout=HANG)


def test_a_server_that_never_ends_its_answer_does_not_get_more_time() -> None:
    """A second passes with each look at the clock, whatever the machine's speed."""
    seconds = itertools.count()
    with talking(b"HTTP/1.1 100 Continue\r\n\r\n", again=True) as url, pytest.raises(TimeoutError):
        Connector(EVERYWHERE, monotonic=lambda: next(seconds)).request("POST", url, timeout=HANG)


def test_only_the_beginning_of_a_body_is_read() -> None:
    body = b"x" * 5_000
    with talking(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + body) as url:
        assert Connector(EVERYWHERE).request("POST", url, timeout=HANG, most=10).body == b"x" * 10


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for watcher.example, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "watcher.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2100, 1, 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("watcher.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return file


@contextmanager
def listening_with_tls(certificate: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Its port, and the names that clients ask for."""
    asked: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _, name, __: asked.append(name)
    with listening() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server.server_port, asked


def test_the_certificate_is_checked_against_the_name_and_not_the_address(certificate: Path) -> None:
    with listening_with_tls(certificate) as (port, asked):
        trusting = lambda: ssl.create_default_context(cafile=certificate)  # noqa: E731
        connector = Connector(HERE, resolve=Names(["127.0.0.1"]), tls=trusting)
        assert connector.request("POST", f"https://watcher.example:{port}/x", timeout=HANG).status == 200
        assert asked == ["watcher.example"]
        with pytest.raises(ssl.SSLCertVerificationError):
            connector.request("POST", f"https://other.example:{port}/x", timeout=HANG)
