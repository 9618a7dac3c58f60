"""Counts open connections, and decides which one is closed when there are too many.

A connection waits while it has no complete request head: it is new, idle between two requests, or slow. Waiting costs a
client nothing, so a waiting connection never keeps another client out. When all places are taken, the connection that
has waited longest is closed: of the same address if that address has its share, else of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Protocol

SPARE_FILES = 512
"""Open files beside connections: the store, logs, and connections that are accepted before others are closed."""
FEWEST = 64
"""Connections of a process that may open few files: without any it could serve no request."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections and requests. Live streams have limits of their own, and these do not count them."""

    head_seconds: float = 10.0
    """From the first byte of a request, or from the connection, to the end of its headers."""
    transfer_seconds: float = 10.0
    """A body, or a response, may take this long, and longer as far as its bytes come at the least rate."""
    least_rate: int = 16 * 1024
    """Bytes per second."""
    connections: int = 1_000
    connections_of_one: int = 250
    """Of one address."""
    requests: int = 700
    """At the same time."""
    requests_of_one: int = 200

    def left(self, elapsed: float, moved: int) -> float:
        """Seconds that a transfer may still take, after it moved these bytes."""
        return self.transfer_seconds + moved / self.least_rate - elapsed

    def within(self, open_files: int) -> Limits:
        """The limits of a process that may open this many files."""
        connections = min(self.connections, max(open_files - SPARE_FILES, FEWEST))
        share = connections / self.connections
        return replace(
            self,
            connections=connections,
            connections_of_one=max(int(self.connections_of_one * share), 1),
            requests=max(int(self.requests * share), 1),
            requests_of_one=max(int(self.requests_of_one * share), 1),
        )


LIMITS = Limits()


class Connection(Protocol):
    def evict(self) -> None:
        """Closes the connection."""


class Connections:
    """The open connections of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Connection, Hashable] = {}
        self._of: Counter[Hashable] = Counter()
        self._waiting: dict[Connection, None] = {}
        """The one that has waited longest comes first."""
        self._waiting_of: dict[Hashable, dict[Connection, None]] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: Connection, address: Hashable) -> bool:
        """Adds a connection that waits, and closes another one if it must. False: there is no place.

        The address None is not limited: a trusted proxy connects for many clients.
        """
        if address is not None and self._of[address] >= self._limits.connections_of_one:
            is_free = self._evict(self._waiting_of.get(address, {}))
        else:
            is_free = len(self._open) < self._limits.connections or self._evict(self._waiting)
        if is_free:
            self._open[connection] = address
            self._of[address] += 1
            self.wait(connection)
        return is_free

    def wait(self, connection: Connection) -> None:
        if connection in self._open and connection not in self._waiting:
            self._waiting[connection] = None
            self._waiting_of.setdefault(self._open[connection], {})[connection] = None

    def serve(self, connection: Connection) -> None:
        """The connection waits no more, so that no other one can take its place."""
        if self._waiting.pop(connection, connection) is None:
            address = self._open[connection]
            del self._waiting_of[address][connection]
            if not self._waiting_of[address]:
                del self._waiting_of[address]

    def exempt(self, connection: Connection) -> None:
        """The connection carries a live stream: it leaves the count of its address."""
        if connection in self._open:
            self.serve(connection)
            self._leave(self._open[connection])
            self._open[connection] = None
            self._of[None] += 1

    def remove(self, connection: Connection) -> None:
        if connection in self._open:
            self.serve(connection)
            self._leave(self._open.pop(connection))

    def _leave(self, address: Hashable) -> None:
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]

    def _evict(self, waiting: dict[Connection, None]) -> bool:
        victim = next(iter(waiting), None)
        if victim is None:
            return False
        self.remove(victim)
        self.evicted += 1
        victim.evict()
        return True
