"""The latest ended ticks of many schedules at once.

Where history lies in pieces, the latest piece is asked first. Whoever has enough ticks there that were due since it
begins needs no other: the next tick is made when the one before fires, so that what ended earlier was due earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from foliot.domain.instant import FIRST, LAST, Instant
from foliot.domain.run import Origin
from foliot.domain.standing import USEFUL, EndedTick
from foliot.domain.state import State
from foliot.store.verbs.transaction import Transaction


async def ticks(tx: Transaction, ids: Sequence[str], each: int) -> dict[str, list[EndedTick]]:
    """The last of each, by their nominal times and numbers, newest first."""
    found: defaultdict[str, list[EndedTick]] = defaultdict(list)
    left = list(ids)
    for since, until in _pieces(tx):
        bounds = {"each": each, "since": since, "until": until}
        for schedule, number, name, state, origin, *rest in await tx.all("recent_of_schedules", ids=left, **bounds):
            found[schedule].append(EndedTick(number, name, State(state), Origin(origin), *rest))
        left = [name for name in left if sum([tick.nominal >= since for tick in found[name]]) < each]
        if not left:
            break
    for told in found.values():
        told.sort(key=attrgetter("nominal", "number"), reverse=True)
    return {name: told[:each] for name, told in found.items()}


async def useful_at(
    tx: Transaction, ids: Sequence[str], known: Mapping[str, Sequence[EndedTick]] | None = None
) -> dict[str, Instant]:
    """When the last useful run of each ended. Most have one among their last ticks, where these are known."""
    found = {
        name: tick.finished_at
        for name, told in (known or {}).items()
        for tick in reversed(told)
        if tick.state in USEFUL
    }
    left, nominal = [name for name in ids if name not in found], dict[str, Instant]()
    for since, until in _pieces(tx):
        if not left:
            break
        for name, finished_at, due in await tx.all("useful_of_schedules", ids=left, since=since, until=until):
            if due > nominal.get(name, FIRST):
                found[name], nominal[name] = finished_at, due
        left = [name for name in left if nominal.get(name, FIRST) < since]
    return found


def _pieces(tx: Transaction) -> Iterator[tuple[Instant, Instant]]:
    until = LAST
    for since in (*(tx.now - length for length in tx.lately), FIRST):
        yield since, until
        until = since
