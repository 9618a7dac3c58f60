"""SQLite's transactions, as the verbs see them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from foliot.domain.gates import Need, Taken
from foliot.domain.identity import SPREAD, number_at
from foliot.domain.instant import Instant
from foliot.domain.run import Kept, Promise
from foliot.store.queries import queries_of
from foliot.store.sqlite import slots
from foliot.store.sqlite.hints import news_of
from foliot.store.verbs import promises as making
from foliot.store.verbs.transaction import Row, Transaction, as_json

T = TypeVar("T")

_NEWS = news_of(queries_of(__package__))
_ALIKE = frozenset(name.removesuffix("_alike") for name in queries_of(__package__) if name.endswith("_alike"))
"""Queries with a variant for rows that differ in their last value alone."""
_FEW = 3
"""Rows for which one statement each costs less than one for all."""


class SqliteTransaction(Transaction):
    """Never suspends: a request that has the write lock works to its end."""

    __slots__ = ("_connection", "_queries", "_settles", "collects", "is_news")

    def __init__(
        self, connection: apsw.Connection, queries: Mapping[str, str], now: Instant, *, settles: bool = False
    ) -> None:
        """`settles`: the caller calls `settle` after each request, before the commit."""
        self._connection = connection
        self._queries = queries
        self._settles = settles
        self.collects = False
        """Whether triggers collect the slots that runs give up, for `settle`."""
        self.now = now
        self.audit_keys = None
        self.is_news = False
        """Whether it has changed something that others may wait for."""

    async def settle(self) -> None:
        """Ends a request: frees the slots that its runs gave up, once per slot."""
        if self.collects:
            await slots.let_in(self, await self._free())

    def forget(self) -> None:
        """The request failed, and is rolled back."""
        self.collects = False

    async def _collect(self) -> None:
        if self._settles and not self.collects and await self.value("any_slot"):
            await self.run("collect")
            self.collects = True

    async def _free(self) -> list[str]:
        """Frees the collected slots. Returns their names."""
        if not self.collects:
            return []
        self.collects = False
        return await slots.free(self)

    def _text(self, query: str) -> str:
        if query in _NEWS:
            self.is_news = True
        return self._queries[query]

    async def run(self, query: str, /, **values: Any) -> int:
        self._connection.execute(self._text(query), _bound(values))
        return self._connection.changes()

    async def run_each(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Rows that differ in the last value alone, a number, are one statement if the query has such a variant."""
        if query in _ALIKE:
            rows = self._run_alike(self._text(f"{query}_alike"), rows)
            if f"{query}_many" in self._queries:
                self._connection.execute(self._text(f"{query}_many"), (as_json(rows),))
                return
        self._connection.executemany(self._text(query), rows)

    def _run_alike(self, text: str, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
        """Returns the rows that are left."""
        groups: dict[Sequence[Any], list[Any]] = {}
        for row in rows:
            groups.setdefault(row[:-1], []).append(row[-1])
        left: list[Sequence[Any]] = []
        for values, numbers in groups.items():
            if len(numbers) > _FEW:
                self._connection.execute(text, (*values, apsw.carray(array("q", numbers))))
            else:
                left += [(*values, number) for number in numbers]
        return left

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
        """There is one writer at a time. What these runs give up from now on is freed by the batch."""
        if numbers:
            await self._collect()

    async def lock_free_slots(self, names: Collection[str]) -> Collection[str]:
        """As above. Slots that were freed in this request are free for the caller."""
        if self.collects:
            await slots.let_in(self, await self._free())
        await self._collect()
        return ()

    async def lock_needed(self, needs: Sequence[Need]) -> dict[str, Taken]:
        rows = {row[0]: row for row in await self.all("slots_needed", names=[need.name for need in needs])}
        await self.run_each(
            "put_slot", [need for need in needs if need.name not in rows or rows[need.name][3:] != need[1:]]
        )
        return {name: Taken(*rows[name][1:3]) if name in rows else Taken() for name, *_ in needs}

    async def let_in(self, names: Collection[str]) -> None:
        await slots.let_in(self, {*names, *await self._free()})

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
