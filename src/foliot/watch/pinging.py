"""Pings: an outside watcher is told what happens, and speaks up when it hears nothing. Healthchecks and its like.

Whoever pings is never kept waiting: pings go into bounded lines, one for each host, and threads of their own send them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from foliot.net import AddressGuard, AddressRefused, Connector

MOST_WAITING = 1_000
"""For one host."""
MOST_IN_ALL = 5_000
MOST_THREADS = 8
TIMEOUT = 10.0
"""Seconds that one try may take. No further try begins after that: a host that hangs is not asked three times."""
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


Send = Callable[[str, bytes], int]
"""Sends one request and answers its status. Raises OSError when it was not answered."""


def sending(connector: Connector) -> Send:
    """Sends pings with a connector. It follows no redirect: a ping goes to the address that was set."""
    headers = {"User-Agent": "foliot", "Content-Type": "text/plain; charset=utf-8"}

    def send(url: str, body: bytes) -> int:
        return connector.request("POST", url, body, headers, timeout=TIMEOUT).status

    return send


class Pinger:
    """A line of pings for each host, and a few threads that send them: a host that hangs holds up its own alone."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        send: Send | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send or sending(Connector(guard))
        self._sleep = sleep
        self._monotonic = monotonic
        self._lines: dict[str, deque[Ping]] = {}
        """By host: what waits, also while one is being sent."""
        self._ready: deque[str] = deque()
        """Hosts that something waits for, and that no thread has."""
        self._waiting = 0
        self._threads = 0
        self._changed = threading.Condition()
        self._failing: set[str] = set()
        self.dropped = 0
        """Pings that found no room, or were not heard."""

    def ping(self, url: str, what: str = SUCCESS, body: str = "") -> None:
        """Never waits. Where the line is full, the ping is dropped, and counted: the outside watcher notices."""
        try:
            one = Ping(address(url, what), body.encode("utf-8", "replace")[:MOST_BODY])
            host = urlsplit(url).netloc
        except ValueError:  # an unmatched bracket, for example
            self._drop("ping not sent: its URL has no valid host")
            return
        with self._changed:
            line = self._lines.get(host)
            is_full = self._waiting >= MOST_IN_ALL or len(line or ()) >= MOST_WAITING
            if not is_full:
                self._waiting += 1
                if line is None:
                    self._lines[host] = deque([one])
                    self._ready.append(host)
                else:
                    line.append(one)
                if self._ready and self._threads < MOST_THREADS:
                    self._threads += 1
                    threading.Thread(target=self._run, name="foliot-pings", daemon=True).start()
        if is_full:
            self._drop("ping queue full, dropping pings")

    def close(self, timeout: float = 2.0) -> None:
        """What waits is sent, if that does not take long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, timeout)

    def _run(self) -> None:
        """Takes turns between hosts, one ping of each: those of one host are sent in their order. Ends when no host is
        ready: whoever makes one ready begins a thread."""
        while True:
            with self._changed:
                if not self._ready:
                    self._threads -= 1
                    return
                host = self._ready.popleft()
                one = self._lines[host].popleft()
                self._waiting -= 1
            try:
                self._deliver(one)
            finally:
                with self._changed:
                    if self._lines[host]:
                        self._ready.append(host)
                    else:
                        del self._lines[host]
                        self._changed.notify_all()

    def _deliver(self, one: Ping) -> None:
        host = urlsplit(one.url).hostname or ""  # what is behind it may be secret
        begun = self._monotonic()
        for attempt in range(TRIES):
            try:
                status = self._send(*one)
            except AddressRefused as error:
                self._drop(f"ping not sent: {error}", host)
                return
            except (OSError, ValueError) as error:
                problem = f"{host} did not answer a ping: {type(error).__name__}"
            else:
                if 200 <= status < 300:
                    self._failing.discard(host)
                    return
                problem = f"{host} answered a ping with status {status}"
                if status < 500:  # the same request would be refused again
                    self._drop(problem, host)
                    return
            if attempt + 1 == TRIES or self._monotonic() - begun >= TIMEOUT:
                break
            self._sleep(PAUSE * (1 << attempt))
        self._drop(problem, host)

    def _drop(self, problem: str, host: str = "") -> None:
        with self._changed:
            self.dropped += 1
            is_new = host not in self._failing
            self._failing.add(host)
        if is_new:
            _log.warning("%s", problem)
