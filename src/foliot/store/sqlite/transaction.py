"""What a request sees of the write transaction it runs in: named queries, one moment of time, and fresh numbers."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from foliot.domain.identity import SPREAD, number_at
from foliot.domain.instant import Instant

Row = tuple[Any, ...]


class Transaction:
    """A write transaction in progress, or a read of one snapshot."""

    __slots__ = ("_connection", "_queries", "now")

    def __init__(self, connection: apsw.Connection, queries: dict[str, str], now: Instant) -> None:
        self._connection = connection
        self._queries = queries
        self.now = now

    def run(self, query: str, /, **values: Any) -> int:
        """Executes, and returns how many rows changed."""
        self._connection.execute(self._queries[query], values)
        return self._connection.changes()

    def run_each(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Executes once per row of positional values."""
        self._connection.executemany(self._queries[query], rows)

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._connection.execute(self._queries[query], values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        return self._connection.execute(self._queries[query], values).fetchone()

    def value(self, query: str, /, **values: Any) -> Any:
        """The single value of a query that always has one."""
        row = self._connection.execute(self._queries[query], values).fetchone()
        assert row is not None, query
        return row[0]

    def numbers(self, count: int) -> int:
        """The first of `count` fresh run numbers, in commit order and after the moment they were drawn in.

        Drawn from the lower half of the millisecond: the other half is room for what comes within it, so that the
        number still tells when a run was made.
        """
        candidate = number_at(self.now, random.randrange(SPREAD // 2))
        return int(self.value("take_numbers", candidate=candidate, count=count)) - count + 1

    def token(self) -> int:
        return int(self.value("take_token"))

    def event(self, kind: str, subject: str, detail: str) -> None:
        self.run("add_event", at=self.now, kind=kind, subject=subject, detail=detail)

    def audit(self, actor: str, action: str, subject: str, note: str) -> None:
        """Who did what, and why: beside the action, in its own transaction."""
        self.run("add_audit", at=self.now, actor=actor, action=action, subject=subject, note=note)

    def stir(self, numbers: Sequence[int]) -> None:
        """Tells the owner of the cells that these runs are pending again, or at another time."""
        if numbers:
            first = self.numbers(len(numbers))
            self.run_each("add_stir", ((first + place, number) for place, number in enumerate(numbers)))


def carray(numbers: Iterable[int]) -> Any:
    """Run numbers as one bound value: `number IN carray(:numbers)` reads them without building SQL."""
    listed = numbers if isinstance(numbers, array) else array("q", numbers)
    # An empty array has no address to bind; no run has the number 0.
    return apsw.carray(listed if listed else array("q", [0]))


def packed(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def unpacked(blob: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(blob)
    return numbers
