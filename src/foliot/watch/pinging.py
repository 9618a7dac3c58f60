"""Pings: an outside watcher is told what happens, and speaks up when it hears nothing. Healthchecks and its like.

Whoever pings is never kept waiting: pings go into a bounded line, and a thread of their own sends them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

MOST_WAITING = 1_000
TIMEOUT = 10.0
TRIES = 3
PAUSE = 1.0
"""Seconds before the second try; twice as long before the third."""
MOST_BODY = 10_000

_log = logging.getLogger("foliot.watch")

SUCCESS, START, FAIL, LOG = "", "start", "fail", "log"


class Ping(NamedTuple):
    url: str
    body: bytes


def address(url: str, what: str) -> str:
    """`https://host/id` and `fail` make `https://host/id/fail`; a query stays where it is."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{what}")) if what else url


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: where a ping goes is what was configured, and nothing else."""

    def redirect_request(self, *_: object) -> None:
        return None


def send(url: str, body: bytes = b"") -> None:
    """One request; raises OSError when it was not heard."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise OSError("only http and https are pinged")
    request = Request(url, data=body, method="POST", headers={"User-Agent": "foliot"})
    with build_opener(_Stay).open(request, timeout=TIMEOUT) as answer:
        answer.read(1_000)


class Pinger:
    """A line of pings and the thread that sends them, which is started by the first one."""

    def __init__(self, send: Callable[[str, bytes], None] = send, sleep: Callable[[float], None] = time.sleep) -> None:
        self._send = send
        self._sleep = sleep
        self._line: queue.Queue[Ping | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self.dropped = 0
        """Pings that found no room, or were not heard."""

    def ping(self, url: str, what: str = SUCCESS, body: str = "") -> None:
        """Never waits. Where the line is full, the ping is dropped, and counted: the outside watcher notices."""
        try:
            self._line.put_nowait(Ping(address(url, what), body.encode("utf-8", "replace")[:MOST_BODY]))
        except queue.Full:
            self._drop("the line of pings is full; some are dropped")
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="foliot-pings", daemon=True)
                self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """What waits is sent, if that does not take long."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            try:
                self._line.put(None, timeout=timeout)
            except queue.Full:
                return
            thread.join(timeout)

    def _run(self) -> None:
        while (one := self._line.get()) is not None:
            self._deliver(one)

    def _deliver(self, one: Ping) -> None:
        host = urlsplit(one.url).hostname or ""  # what is behind it may be secret
        for attempt in range(TRIES):
            try:
                self._send(*one)
            except HTTPError as error:
                if error.code < 500:  # it was understood, and refused: saying it again changes nothing
                    self._drop(f"{host} answers {error.code} to a ping", host)
                    return
                told = f"{host} answers {error.code} to a ping"
            except (OSError, ValueError) as error:
                told = f"{host} does not hear a ping: {type(error).__name__}"
            else:
                self._failing.discard(host)
                return
            if attempt + 1 < TRIES:
                self._sleep(PAUSE * (1 << attempt))
        self._drop(told, host)

    def _drop(self, told: str, host: str = "") -> None:
        self.dropped += 1
        if host not in self._failing:
            self._failing.add(host)
            _log.warning("%s", told)
