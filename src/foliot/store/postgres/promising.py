"""Making promises: many at once in one statement, and what to do when the answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Protocol, TypeVar

import asyncpg

from foliot.domain.identity import promise_stem, run_id
from foliot.domain.instant import Instant
from foliot.domain.run import Kept, OnConflict, Promise, new_kept
from foliot.domain.state import State
from foliot.errors import Conflict, NotWritten, StoreAway, StoreError
from foliot.store.postgres.address import Address
from foliot.store.postgres.connection import AGAIN, away, is_unanswered, unknown
from foliot.store.postgres.transaction import Numbers
from foliot.store.verbs.transaction import Row, Transaction

T = TypeVar("T")

_TRIES = 4
_CHOSEN = slice(Promise._fields.index("tenant"), Promise._fields.index("options") + 1)
_NOTHING = tuple(Promise("", b"", 0))[_CHOSEN]
"""Tenant, queue, priority, usefulness and options, as most promises have them."""


class Server(Protocol):
    """What this module needs of the store."""

    numbers: Numbers
    shard_count: int
    where: Address

    async def statement(self, query: str, /, **values: Any) -> list[Row]: ...
    async def settle(self) -> None: ...
    async def asked(self, question: Callable[[], Awaitable[T | None]]) -> T: ...


def plain_values(promises: Sequence[Promise], numbers: Sequence[int], shards: int) -> tuple[str, dict[str, Any]]:
    """The query for promises without keys, and its values."""
    columns: list[Any] = list(zip(*promises, strict=True))
    jobs, payloads, fire_ats, chosen = columns[0], columns[1], columns[2], columns[_CHOSEN]
    common = {"numbers": list(numbers), "shards": shards, "payloads": payloads, "fire_ats": fire_ats}
    count = len(promises)
    if jobs.count(jobs[0]) == count and all(
        column.count(usual) == count for column, usual in zip(chosen, _NOTHING, strict=True)
    ):
        return "insert_plain", {**common, "job": jobs[0]}
    tenants, queues, priorities, useful_untils, options = chosen
    return "insert_promises", {
        **common,
        "priorities": priorities,
        "jobs": jobs,
        "useful_untils": useful_untils,
        "tenants": tenants,
        "queues": queues,
        "options": options,
    }


def keyed_values(promises: Sequence[Promise], numbers: Sequence[int]) -> dict[str, Any]:
    return {
        "numbers": list(numbers),
        "stems": [promise_stem(p.key or "", p.tenant) for p in promises],
        "jobs": [p.job for p in promises],
        "payloads": [p.payload for p in promises],
        "fire_ats": [p.fire_at for p in promises],
        "useful_untils": [p.useful_until for p in promises],
        "tenants": [p.tenant for p in promises],
        "queues": [p.queue for p in promises],
        "priorities": [p.priority for p in promises],
        "options": [p.options for p in promises],
        "on_conflicts": [str(p.on_conflict) for p in promises],
        "unique_fors": [p.unique_for for p in promises],
    }


def made(promises: Sequence[Promise], numbers: Sequence[int]) -> list[Kept]:
    due = [p.fire_at for p in promises]
    return list(map(new_kept, zip(numbers, repeat(None), repeat("made"), repeat(State.SCHEDULED), due, repeat(()))))


def kept(row: Row, wanted: Promise) -> Kept | Conflict:
    """What became of a keyed promise, as the schema's function tells it."""
    number, name, outcome, state, fire_at = row
    if outcome != "refused":
        return Kept(number, name, outcome, State(state), fire_at)
    found, word = run_id(number, name), State(state)
    match wanted.on_conflict:
        case OnConflict.REPLACE:
            return Conflict(
                f'{found} is {word} and can no longer be replaced; on_conflict="renew" creates the next generation '
                "after it has ended"
            )
        case OnConflict.RENEW:
            return Conflict(
                f"{found} is still {word}, so {wanted.key!r} cannot be renewed yet; move, replace or cancel it, or "
                f"renew it once it has ended"
            )
        case _:
            return Conflict(f"the key {wanted.key!r} has a promise already: {found} is {word}; use another key")


async def insert(server: Server, promises: Sequence[Promise], now: Instant) -> list[Kept]:
    """Promises without keys. Said again after a lost answer, with the same numbers: the primary key refuses what was
    written, also by a transaction that is still under way, and history knows what has even ended meanwhile."""
    numbers = server.numbers.draw(len(promises), now)
    again = is_open = False
    for left in reversed(range(_TRIES)):
        query, values = plain_values(promises, numbers, server.shard_count)
        try:
            await server.statement(query, **values)
            return made(promises, numbers)
        except asyncpg.UniqueViolationError:
            if again and await _found(server, promises, numbers):
                return made(promises, numbers)
            numbers = server.numbers.draw(len(promises), now)  # somebody else's: another process with our node's number
        except StoreError as error:
            is_open = is_open or is_unanswered(error)
            again = again or is_open
            if is_open and not isinstance(error, StoreAway):
                if await _found(server, promises, numbers):
                    return made(promises, numbers)
                is_open = server.where.pooler
            if not left or isinstance(error, StoreAway):
                raise _failure(server, error, is_open) from error.__cause__
    raise _numbers_taken()


def _failure(server: Server, error: StoreError, is_open: bool) -> StoreError:
    """The error for the caller. `is_open`: a statement whose answer was lost may still be executed, because the store
    cannot end it through a pooler. Otherwise the store ended it and then found nothing that it wrote."""
    if is_open:
        return unknown(error, server.where)
    return error if isinstance(error, NotWritten) else away(error.__cause__ or error, server.where)


def _numbers_taken() -> StoreError:
    return NotWritten("the promises were not written, because all their new ids were in use; repeat the call")


async def _found(server: Server, promises: Sequence[Promise], numbers: Sequence[int]) -> bool:
    """Whether a statement whose answer was lost made the promises. OutcomeUnknown if the server does not say so."""
    try:
        await server.settle()
        return await server.asked(partial(_are_ours, server, promises, numbers))
    except StoreError as failure:
        raise unknown(failure, server.where) from failure


async def _are_ours(server: Server, promises: Sequence[Promise], numbers: Sequence[int]) -> bool:
    rows = {row[0]: (row[2], row[3]) for row in await server.statement("promises_made", numbers=list(numbers))}
    ours = all(rows.get(number) == (p.job, p.payload) for number, p in zip(numbers, promises, strict=True))
    if ours:
        await server.statement("barrier")
    return ours


def _in_order(promises: Sequence[Promise], places: Iterable[int]) -> list[int]:
    """Sorted by key, so that two processes with the same keys never wait for one another; one after the other for equal
    keys."""
    return sorted(places, key=lambda place: promise_stem(promises[place].key or "", promises[place].tenant))


async def insert_keyed(server: Server, promises: Sequence[Promise], now: Instant) -> list[Kept | Exception]:
    """Promises with keys, each for itself. After a lost answer those that were made are found by their numbers; the
    others may be said again without harm."""
    order = _in_order(promises, range(len(promises)))
    wanted = [promises[place] for place in order]
    numbers = server.numbers.draw(len(wanted), now)
    answers: dict[int, Kept | Exception] = {}
    again = is_open = False
    for left in reversed(range(_TRIES)):
        places = [place for place in range(len(wanted)) if place not in answers]
        if not places:
            break
        values = keyed_values([wanted[place] for place in places], [numbers[place] for place in places])
        try:
            rows = await server.statement("make_promises", **values)
        except asyncpg.UniqueViolationError:
            # Somebody else's: another process with our node's number.
            for place, number in zip(places, server.numbers.draw(len(places), now), strict=True):
                numbers[place] = number
        except StoreError as error:
            if len(wanted) > 1 and isinstance(error.__cause__, AGAIN):
                raise  # somebody's long transaction holds one of the keys: the others need not wait for it
            is_open = is_open or is_unanswered(error)
            again = again or is_open
            if is_open and not isinstance(error, StoreAway):
                answers |= await _settled(server, wanted, numbers, places)
                places = [place for place in places if place not in answers]
                is_open = server.where.pooler or any(_may_have_replaced(wanted[place]) for place in places)
            if not left or isinstance(error, StoreAway):
                answers |= dict.fromkeys(places, _failure(server, error, is_open))
        else:
            answers |= {place: kept(row, wanted[place]) for place, row in zip(places, rows, strict=True)}
            if again:
                found = dict(zip(places, rows, strict=True))
                try:
                    answers |= await server.asked(partial(_done_before, server, wanted, numbers, found))
                except StoreError as failure:
                    answers |= dict.fromkeys(places, unknown(failure, server.where))
    for place in range(len(wanted)):
        answers.setdefault(place, _numbers_taken())
    back = {place: answers[index] for index, place in enumerate(order)}
    return [back[place] for place in range(len(promises))]


async def _settled(
    server: Server, wanted: Sequence[Promise], numbers: Sequence[int], places: Sequence[int]
) -> dict[int, Kept | Exception]:
    """The promises, by place, that a statement whose answer was lost has made. OutcomeUnknown for each place if the
    server does not say so."""
    try:
        await server.settle()
        return await server.asked(partial(_found_again, server, wanted, numbers, places))
    except StoreError as failure:
        return dict.fromkeys(places, unknown(failure, server.where))


def _may_have_replaced(promise: Promise) -> bool:
    """Whether the statement can have changed a promise that has another number."""
    return promise.on_conflict is OnConflict.REPLACE


async def _found_again(
    server: Server, wanted: Sequence[Promise], numbers: Sequence[int], places: Sequence[int]
) -> dict[int, Kept | Exception]:
    """Those of these places that were made, although nobody heard so."""
    rows = await server.statement("promises_made", numbers=[numbers[place] for place in places])
    names = {row[0]: row[1] for row in rows}
    if names:
        await server.statement("barrier")
    return {
        place: Kept(numbers[place], name, _made_or_renewed(name), State.SCHEDULED, wanted[place].fire_at)
        for place in places
        if (name := names.get(numbers[place])) is not None
    }


def _made_or_renewed(name: str) -> str:
    return "made" if name.endswith("#1") else "renewed"


async def _done_before(
    server: Server, wanted: Sequence[Promise], numbers: Sequence[int], rows: dict[int, Row]
) -> dict[int, Kept | Exception]:
    """What was said twice can find its own first saying in its way: that is no conflict."""
    ours: dict[int, Kept | Exception] = {}
    for place, (number, name, outcome, state, fire_at) in rows.items():
        one = wanted[place]
        if number == numbers[place] and outcome in ("kept", "refused"):
            ours[place] = Kept(number, name, _made_or_renewed(name), State(state), fire_at)
        elif outcome == "refused" and one.on_conflict is OnConflict.REPLACE and fire_at == one.fire_at:
            [found] = await server.statement("promises_made", numbers=[number])
            if (found[2], found[3]) == (one.job, one.payload):
                ours[place] = Kept(number, name, "replaced", State(state), fire_at)
    return ours


async def insert_mixed(tx: Transaction, promises: Sequence[Promise], shards: int) -> list[Kept]:
    """All or none, in one transaction: with keys and without."""
    numbers = await tx.numbers(len(promises))
    answers: dict[int, Kept] = {}
    plain = [place for place, one in enumerate(promises) if one.key is None]
    keyed = _in_order(promises, [place for place, one in enumerate(promises) if one.key is not None])
    if plain:
        chosen = [promises[place] for place in plain]
        query, values = plain_values(chosen, [numbers[place] for place in plain], shards)
        await tx.all(query, **values)
        answers |= {place: made([promises[place]], [numbers[place]])[0] for place in plain}
    values = keyed_values([promises[place] for place in keyed], [numbers[place] for place in keyed])
    for place, row in zip(keyed, await tx.all("make_promises", **values), strict=True):
        answer = kept(row, promises[place])
        if isinstance(answer, Conflict):
            raise answer
        answers[place] = answer
    return [answers[place] for place in range(len(promises))]
