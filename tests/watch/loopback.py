"""A real HTTP server on this host, which remembers what it was told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tests.waiting import HANG


class Heard(HTTPServer):
    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        """Paths, and what was said."""
        self.hosts: list[str] = []
        """What the Host headers named."""
        self.answers: list[int] = []
        """The next ones; 200 when there is none."""
        self.came = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for_requests(self, *, count: int) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=HANG), f"only these came: {self.requests}"


class _Handler(BaseHTTPRequestHandler):
    server: Heard

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.requests.append((self.path, body))
        self.server.hosts.append(self.headers["Host"])
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.came.release()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening() -> Iterator[Heard]:
    server = Heard()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
