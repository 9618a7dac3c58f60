"""SQLite's transactions, as the verbs see them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from foliot.domain.identity import SPREAD, number_at
from foliot.domain.instant import Instant
from foliot.domain.run import Kept, Promise
from foliot.store.queries import queries_of
from foliot.store.sqlite.hints import news_of
from foliot.store.verbs import promises as making
from foliot.store.verbs.transaction import Row, Transaction, as_json

T = TypeVar("T")

_NEWS = news_of(queries_of(__package__))


class SqliteTransaction(Transaction):
    """Never suspends: whoever holds the write lock works to the end."""

    __slots__ = ("_connection", "_queries", "is_news")

    def __init__(self, connection: apsw.Connection, queries: Mapping[str, str], now: Instant) -> None:
        self._connection = connection
        self._queries = queries
        self.now = now
        self.audit_keys = None
        self.is_news = False
        """Whether it has changed something that others may wait for."""

    def _text(self, query: str) -> str:
        if query in _NEWS:
            self.is_news = True
        return self._queries[query]

    async def run(self, query: str, /, **values: Any) -> int:
        self._connection.execute(self._text(query), _bound(values))
        return self._connection.changes()

    async def run_each(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(self._text(query), rows)

    async def all(self, query: str, /, **values: Any) -> list[Row]:
        found: Any = self._connection.execute(self._text(query), _bound(values)).fetchall()
        return found  # type: ignore[no-any-return]

    async def one(self, query: str, /, **values: Any) -> Row | None:
        return self._connection.execute(self._text(query), _bound(values)).fetchone()

    async def numbers(self, count: int) -> range:
        """In commit order, and after the moment they were drawn in.

        Drawn from the lower half of the millisecond: the other half is room for what comes within it, so that the
        number still tells when a run was made.
        """
        candidate = number_at(self.now, random.randrange(SPREAD // 2))
        last = int(await self.value("take_numbers", candidate=candidate, count=count))
        return range(last - count + 1, last + 1)

    async def audit_numbers(self, count: int) -> range:
        last = int(await self.value("last_audit"))
        return range(last + 1, last + 1 + count)

    async def token(self) -> int:
        return int(await self.value("take_token"))

    async def promise(self, promises: Sequence[Promise]) -> list[Kept]:
        return await making.promise(self, promises)

    async def stir(self, numbers: Sequence[int]) -> None:
        if numbers:
            await self.run_each("add_stir", zip(await self.numbers(len(numbers)), numbers, strict=True))

    async def added(self, numbers: Sequence[int]) -> None:
        """Numbers grow with commits: whatever lies above the cursor is new."""

    async def lock(self, schedules: Collection[str]) -> None:
        """There is one writer at a time."""

    async def lock_slots(self, numbers: Collection[int]) -> None:
        """As above."""

    async def lock_free_slots(self, names: Collection[str]) -> Collection[str]:
        return ()

    async def let_in(self, slots: Sequence[str]) -> None:
        for name, count in await self.all("slots_with_room", names=list(slots)):
            # Taken first, and set free then, one by one, which lets the next one in each time.
            await self.run("take_slots", name=name, count=count)
            await self.run("free_slots", name=name, count=count)

    async def lock_free(self, schedules: Collection[str]) -> Collection[str]:
        return ()

    async def passed_over(self, entries: Collection[tuple[Instant, int]]) -> Collection[tuple[Instant, int]]:
        return ()

    async def lock_all(self) -> None:
        """As above."""

    def packed(self, numbers: Iterable[int]) -> bytes:
        return array("q", numbers).tobytes()

    def unpacked(self, stored: bytes) -> array[int]:
        numbers = array("q")
        numbers.frombytes(stored)
        return numbers


def _bound(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if isinstance(value, array):
            # `number IN carray(:numbers)` reads them without building SQL. An empty array has no address to bind; no
            # run has the number 0.
            values[name] = apsw.carray(value if value else array("q", [0]))
        elif isinstance(value, list):
            values[name] = as_json(value)
    return values
