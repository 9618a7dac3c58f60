"""Finding a place in an endless list that can only be read forwards: a few dozen looks at one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from foliot.domain.instant import MINUTE, Instant
from foliot.domain.store import EventRow
from foliot.operate import Operator


class _Positioned(Protocol):
    @property
    def position(self) -> int: ...


Row = TypeVar("Row", bound=_Positioned, covariant=True)


class Look(Protocol[Row]):
    """Rows after a position, in order, no more than `limit`."""

    def __call__(self, position: int, limit: int) -> Awaitable[Sequence[Row]]: ...


async def last_position(look: Look[_Positioned]) -> int:
    """The position of the newest row; 0 when there is none."""

    async def more(position: int) -> bool:
        return bool(await look(position, 1))

    return await _first_without(more)


async def events_of(operator: Operator, subject: str, since: Instant, page: int = 500) -> list[EventRow]:
    """What was noted about a subject since a moment. A minute before it counts too: clocks step back now and then."""

    async def older(position: int) -> bool:
        following = await operator.events_since_async(position, 1)
        return bool(following) and following[0].at < since - MINUTE

    position = await _first_without(older)
    found: list[EventRow] = []
    while True:
        rows = await operator.events_since_async(position, page)
        found += [row for row in rows if row.subject == subject]
        if len(rows) < page:
            return found
        position = rows[-1].position


async def _first_without(holds: Callable[[int], Awaitable[bool]]) -> int:
    """The smallest number for which `holds` is no longer true: doubled until it is passed, then halved."""
    if not await holds(0):
        return 0
    low, high = 0, 1
    while await holds(high):
        low, high = high, high * 2
    while high - low > 1:  # it holds for low, and not for high
        middle = (low + high) // 2
        if await holds(middle):
            low = middle
        else:
            high = middle
    return high
