"""Claims and plain endings, each in one statement; what needs more thought goes the way of all engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import asyncpg

from foliot.domain.instant import MINUTE, Instant
from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Outcome, State, after
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres.transaction import Numbers, Work
from foliot.store.verbs import working
from foliot.store.verbs.transaction import Row

_UNSURE_FOR = MINUTE
"""Longer than the server lets a statement run: after that a claim whose answer was lost has happened, or never will."""
_MOST_CHUNKS = 100

_log = logging.getLogger("foliot.store")

T = TypeVar("T")


class Server(Protocol):
    """What this module needs of the store."""

    numbers: Numbers

    async def statement(self, query: str, /, **values: Any) -> list[Row]: ...
    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T: ...


class Claimer:
    """Claims for one process's worker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mean = 1.0
        """Runs in a chunk, lately: so that a claim locks about as many chunks as it needs, and leaves others theirs."""
        self._unsure: dict[int, tuple[int, Instant]] = {}
        """Tokens of claims whose answer was lost, whose they are, and since when. The store may believe in them."""

    async def claim(
        self, worker: int, queues: Sequence[str], jobs: Sequence[str], limit: int, now: Instant
    ) -> list[Claimed]:
        found = await self._found_again(worker, now) if self._unsure else []
        for pause in (0.001, 0.002, 0.004, 0.008, 0.0):
            left = limit - len(found)
            if left <= 0:
                break
            others_at_it = await self._take(worker, queues, jobs, left, now, found)
            if found or not others_at_it:
                break
            # All there is was locked by other claims. What they leave, and give back, is to be had in a moment.
            await asyncio.sleep(pause)
        return found

    async def _take(
        self, worker: int, queues: Sequence[str], jobs: Sequence[str], limit: int, now: Instant, found: list[Claimed]
    ) -> bool:
        """One claim, added to `found`; answers whether there was more that others had their hands on."""
        [token] = self._server.numbers.draw(1, now)
        try:
            rows = await self._server.statement(
                "claim_chunks",
                worker=worker,
                queues=list(queues),
                jobs=list(jobs),
                limit=limit,
                chunks=max(1, min(_MOST_CHUNKS, round(limit / self._mean + 0.5))),
                token=token,
            )
        except asyncpg.UniqueViolationError:
            return True  # another process drew the same token, because it has our node's number: the next one differs
        except StoreError:
            self._unsure[token] = worker, now
            if found:
                return False
            raise
        alive, chunks, runs, more, aside = rows[0][:5]
        if not alive and not found:
            raise LostOwnership(f"worker {worker} was declared dead; it has to register anew")
        if chunks:
            self._mean = 0.5 * self._mean + 0.5 * float(runs) / chunks
        found += [Claimed._make(row[6:]) for row in rows if row[6] is not None]
        if aside:
            try:
                await self._server.write(working.put_aside)
            except StoreError as error:  # what was claimed is ours all the same; the next claim looks again
                _log.warning("what a claim left over could not be looked at: %s", error)
                return False
            return True
        return bool(more)

    async def _found_again(self, worker: int, now: Instant) -> list[Claimed]:
        """What claims of this worker took whose answers were lost."""
        found: list[Claimed] = []
        for token, (whose, since) in list(self._unsure.items()):
            # Out before the question, or two who ask at once would both be told, and begin the same attempt.
            if whose != worker or self._unsure.pop(token, None) is None:
                continue
            try:
                rows = await self._server.statement("claimed_under", token=token)
            except StoreError:
                self._unsure[token] = whose, since
                if found:
                    return found
                raise
            found += [Claimed._make(row) for row in rows]
            if not rows and 0 <= now - since < _UNSURE_FOR:
                self._unsure[token] = whose, since  # it may be under way still
        return found


async def finish(server: Server, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """Runs that ended well and have no schedule go in one statement; it says which those were."""
    plain = [one for one in endings if _is_plain(one)]
    done: set[tuple[int, int]] = set()
    if plain:
        rows = await server.statement(
            "finish_plain",
            numbers=[one.number for one in plain],
            tokens=[one.token for one in plain],
            states=[after(State.RUNNING, one.event) for one in plain],
            started=[one.started_at for one in plain],
            finished=[one.finished_at for one in plain],
            results=[one.result for one in plain],
        )
        done = {(row[0], row[1]) for row in rows}
    rest = [one for one in endings if (one.number, one.token) not in done or not _is_plain(one)]
    if not rest:
        return []
    fenced: list[Ending] = await server.write(lambda tx: working.finish(tx, worker, rest), hot=True)
    return fenced


def _is_plain(ending: Ending) -> bool:
    return ending.outcome is Outcome.SUCCEEDED and after(State.RUNNING, ending.event) is State.SUCCEEDED
