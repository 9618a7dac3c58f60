"""PostgreSQL's transactions, as the verbs see them, and the numbers that processes draw themselves."""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from foliot.domain.gates import Need, Taken
from foliot.domain.identity import number_at
from foliot.domain.instant import DAY, Instant
from foliot.domain.run import Kept, Promise
from foliot.store.verbs.transaction import Row, Transaction

T = TypeVar("T")

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)

_NODE_BITS, _PLACE_BITS = 10, 11
_PLACES = 1 << _PLACE_BITS


class Query(NamedTuple):
    """A named query as the server wants it: parameters by place."""

    text: str
    names: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        return [bound(values[name]) for name in self.names]


def prepared(queries: Mapping[str, str]) -> dict[str, Query]:
    return {name: _prepared(text) for name, text in queries.items()}


def _prepared(text: str) -> Query:
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return Query(_PARAMETER.sub(place, _COMMENT.sub("", text)), tuple(names))


def bound(value: Any) -> Any:
    """The server's text cannot hold a NUL; what a handler or a user wrote is kept otherwise."""
    if isinstance(value, str) and "\0" in value:
        return value.replace("\0", "\N{SYMBOL FOR NULL}")
    return value


class Numbers:
    """Draws numbers that no other process draws: time, then the node's number, then a place of its own.

    A process chooses the numbers of its runs and tokens itself, so that it can ask for them when an answer was lost.
    The place goes on from one millisecond to the next, and so the runs of one caller are spread over all shards.
    """

    def __init__(self, node: int) -> None:
        self._node = (node % (1 << _NODE_BITS)) << _PLACE_BITS
        self._place = 0
        self._last = 0
        self._lock = threading.Lock()

    def draw(self, count: int, now: Instant) -> list[int]:
        with self._lock:
            base = max(number_at(now, 0), self._last >> 22 << 22)
            drawn: list[int] = []
            while len(drawn) < count:
                self._place = (self._place + 1) % _PLACES
                first = base + self._node + self._place
                if first <= self._last:
                    base += 1 << 22
                    first = base + self._node + self._place
                # As many as there are places up to the last one: they follow one another.
                more = min(count - len(drawn), _PLACES - self._place)
                drawn += range(first, first + more)
                self._place += more - 1
                self._last = first + more - 1
            return drawn


class PostgresTransaction(Transaction):
    """One transaction of one connection.

    A query that is executed for many rows may have a twin, `..._many`, which takes their columns as arrays: one
    statement instead of one per row.
    """

    __slots__ = ("_connection", "_numbers", "_queries", "rings", "told")

    lately = (3 * DAY,)

    def __init__(self, connection: Any, queries: Mapping[str, Query], now: Instant, numbers: Numbers) -> None:
        self._connection = connection
        self._queries = queries
        self._numbers = numbers
        self.now = now
        self.audit_keys = None
        self.rings: set[str] = set()
        """Who should be woken once this has committed."""
        self.told: set[str] = set()
        """Who is woken by the commit itself."""

    @property
    def connection(self) -> Any:
        return self._connection

    async def run(self, query: str, /, **values: Any) -> int:
        wanted = self._queries[query]
        status: str = await self._connection.execute(wanted.text, *wanted.arguments(values))
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def run_each(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        listed = [[bound(value) for value in row] for row in rows]
        if not listed:
            return
        many = self._queries.get(f"{query}_many")
        if many is not None:
            await self._connection.execute(many.text, *map(list, zip(*listed, strict=True)))
        else:
            await self._connection.executemany(self._queries[query].text, listed)
        if query == "add_handoff":
            self.told.add("handoff")

    async def all(self, query: str, /, **values: Any) -> list[Row]:
        wanted = self._queries[query]
        found: list[Row] = await self._connection.fetch(wanted.text, *wanted.arguments(values))
        return found

    async def one(self, query: str, /, **values: Any) -> Row | None:
        wanted = self._queries[query]
        found: Row | None = await self._connection.fetchrow(wanted.text, *wanted.arguments(values))
        return found

    async def plainly(self, text: str) -> None:
        """Executes what cannot be a named query: the names of partitions, and settings of this transaction."""
        await self._connection.execute(text)

    async def numbers(self, count: int) -> list[int]:
        return self._numbers.draw(count, self.now)

    async def audit_numbers(self, count: int) -> list[int]:
        return [row[0] for row in await self.all("audit_numbers", count=count)]

    async def token(self) -> int:
        return self._numbers.draw(1, self.now)[0]

    async def promise(self, promises: Sequence[Promise]) -> list[Kept]:
        from foliot.store.postgres.promising import insert_mixed  # which knows this module

        self.rings.add("arrivals")
        return await insert_mixed(self, promises, await self.value("shards_set"))

    async def stir(self, numbers: Sequence[int]) -> None:
        if numbers:
            await self.run("add_stirs", numbers=list(numbers))
            self.rings.add("arrivals")

    async def added(self, numbers: Sequence[int]) -> None:
        if numbers and await self.run("add_near", numbers=list(numbers)):
            self.rings.add("arrivals")

    async def lock(self, schedules: Collection[str]) -> None:
        whole, series = _apart(schedules)
        if whole:
            await self.all("lock_schedules", ids=whole)
        if series:
            await self.all("lock_series", ids=series)

    async def lock_slots(self, numbers: Collection[int]) -> None:
        if numbers:
            await self.all("lock_slots_of", numbers=list(numbers))

    async def lock_free_slots(self, names: Collection[str]) -> Collection[str]:
        free = {row[0] for row in await self.all("lock_free_slots", names=list(names))}
        if len(free) == len(names):
            return ()
        return {row[0] for row in await self.all("slots_named", names=list(names))} - free

    async def lock_needed(self, needs: Sequence[Need]) -> dict[str, Taken]:
        await self.run_each("put_slot", needs)
        rows = await self.all("slots_named", names=[need.name for need in needs])
        return {name: Taken(used, tat) for name, used, tat in rows}

    async def let_in(self, slots: Collection[str]) -> None:
        if slots:
            await self.all("let_in", names=list(slots))
            self.rings.add("arrivals")

    async def lock_free(self, schedules: Collection[str]) -> Collection[str]:
        whole, series = _apart(schedules)
        held = await self._held(whole, "lock_free_schedules", "existing_schedules")
        return held | await self._held(series, "lock_free_series", "existing_series")

    async def _held(self, ids: list[str], taking: str, existing: str) -> set[str]:
        """Locks what is free; which of the rest somebody else has."""
        if not ids:
            return set()
        free = {row[0] for row in await self.all(taking, ids=ids)}
        if len(free) == len(ids):
            return set()
        return {row[0] for row in await self.all(existing, ids=ids)} - free

    async def passed_over(self, entries: Collection[tuple[Instant, int]]) -> Collection[tuple[Instant, int]]:
        if not entries:
            return ()
        rows = await self.all("still_pending", numbers=[number for _, number in entries])
        return {(fire_at, number) for number, fire_at in rows} & set(entries)

    async def lock_all(self) -> None:
        await self.all("lock_all")

    async def free_names(self, names: Collection[str]) -> set[str]:
        return {row[0] for row in await self.all("free_names", names=list(names))} if names else set()

    def packed(self, numbers: Iterable[int]) -> list[int]:
        return list(numbers)

    def unpacked(self, stored: Iterable[int]) -> array[int]:
        return array("q", stored)


def _apart(schedules: Collection[str]) -> tuple[list[str], list[str]]:
    """Schedules, and series of members, each in the order in which they are locked."""
    ids = sorted(schedules)
    return [one for one in ids if not one.endswith("]")], [one for one in ids if one.endswith("]")]


Work = Callable[[PostgresTransaction], Coroutine[Any, Any, T]]
"""A verb, bound to what was asked."""
