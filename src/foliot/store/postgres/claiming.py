"""Claims and plain endings, each in one statement; what needs more thought goes the way of all engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import asyncpg

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.run import Claimed, Ending, Lane, Progress, new_claimed
from foliot.domain.state import TRANSITIONS, Outcome, State
from foliot.domain.store import Beat
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres.transaction import Numbers, PostgresTransaction, Work
from foliot.store.verbs import working
from foliot.store.verbs.transaction import Row

_UNSURE_FOR = MINUTE
"""Longer than the server lets a statement run: after that a claim whose answer was lost has happened, or never will."""
_MOST_CHUNKS = 100
_TRIES = 50
"""Of one claim, while all that it finds has to be laid aside: there may be something behind it."""
_AGAIN = 0.3
"""Seconds: longer than such a run is left alone."""
_DECLARED_DEAD = "FL003"
_CAREFULLY, _LATER = "carefully", "later"
"""What a claim says that could not take whole chunks, or found none that is ready yet: see the schema."""
_ORDER = itemgetter(4, 7, 0)
"""Chunk by chunk, and in each by time: tokens rise."""
_BRIEF = SECOND
"""What runs for longer than this has its claim written: see the schema."""

_log = logging.getLogger("foliot.store")

T = TypeVar("T")

_ENDS_WELL = frozenset(
    event for (state, event), to in TRANSITIONS.items() if state is State.RUNNING and to is State.SUCCEEDED
)


class Server(Protocol):
    """What this module needs of the store."""

    numbers: Numbers

    async def statement(self, query: str, /, **values: Any) -> list[Row]: ...
    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T: ...
    def ring(self, who: set[str]) -> None: ...
    def heard(self, who: set[str]) -> None: ...
    def answered(self) -> Duration: ...
    def expect(self, seconds: float) -> None: ...


class Claimer:
    """Claims for one process's worker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mean = 1.0
        """Runs in a chunk, lately: so that a claim locks about as many chunks as it needs, and leaves others theirs."""
        self._unsure: dict[tuple[int, ...], tuple[int, Instant]] = {}
        """Tokens of claims whose answer was lost, whose they are, and since when. The store may believe in them."""
        self._wait: Duration = 0
        """For how long the claim that is under way may wait at the server."""
        self._looks_again = 0.0
        """When it will, by the event loop's clock."""

    async def rehearse(self, worker: int) -> None:
        """On two connections, because a worker claims while it tells what ended."""
        nothing: dict[str, Any] = {"queues": (), "jobs": (), "limit": 0, "chunks": 0, "tokens": (), "suspects": False}
        nothing |= {"backlog": None, "put_off": None, "labels": (), "carefully": False, "wait": 0}
        for _ in range(2):
            await asyncio.gather(*(_finish_runs(self._server, []) for _ in range(2)))
            await asyncio.gather(*(self._server.statement("claim_runs", worker=worker, **nothing) for _ in range(2)))

    async def claim(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        now: Instant,
        suspects: bool,
        backlog: int | None,
        put_off: int | None,
        labels: Sequence[str],
    ) -> list[Claimed]:
        self._wait = self._server.answered()
        found = await self._found_again(worker, now) if self._unsure else []
        for _ in range(_TRIES):
            left = limit - len(found)
            # One run under suspicion at a time, also where one is found whose claim seemed lost.
            more = suspects and all(one.deaths is None for one in found)
            late = None if backlog is None else backlog - sum(one.lane > Lane.LIVE for one in found)
            shared = None if put_off is None else put_off - len(found)
            if left <= 0:
                break
            if not await self._take(worker, queues, jobs, left, now, found, more, late, shared, labels) or found:
                break
            await asyncio.sleep(0.001)
        if self._unsure:
            self._look_again()
        if len(found) >= limit:
            # There may be more. Whoever found it locked by this claim has gone to sleep again.
            self._server.ring({"handoff"})
        return found

    async def _take(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        now: Instant,
        found: list[Claimed],
        suspects: bool,
        backlog: int | None,
        put_off: int | None,
        labels: Sequence[str],
    ) -> bool:
        """One claim, added to `found`; answers whether what lay aside was looked at, so that there may be more."""
        chunks = max(1, min(_MOST_CHUNKS, round(limit / self._mean + 0.5)))
        tokens = self._server.numbers.draw(chunks, now)
        wanted = {"worker": worker, "queues": queues, "jobs": jobs, "limit": limit, "chunks": chunks, "tokens": tokens}
        wanted |= {"suspects": suspects, "backlog": backlog, "put_off": put_off, "labels": labels, "wait": self._wait}
        try:
            rows = await self._server.statement("claim_runs", **wanted, carefully=False)
            if rows and rows[-1][1] == _CAREFULLY and rows[-1][0] is None:
                rows = await self._server.statement("claim_runs", **wanted, carefully=True)
        except asyncpg.UniqueViolationError:
            return True  # another process drew the same token, because it has our node's number: the next one differs
        except StoreError as error:
            if isinstance(error.__cause__, asyncpg.PostgresError) and error.__cause__.sqlstate == _DECLARED_DEAD:
                if found:
                    return False
                raise LostOwnership(f"worker {worker} was declared dead; it has to register anew") from error
            self._unsure[tuple(tokens)] = worker, now
            if found:
                return False
            raise
        aside = bool(rows) and rows[-1][0] is None
        if aside:
            last = rows.pop()
            if last[1] == _LATER:
                self._server.expect(last[7] / SECOND)
                aside = False
        if rows:
            rows.sort(key=_ORDER)
            taken = len({row[4] for row in rows})
            self._mean = 0.5 * self._mean + 0.5 * len(rows) / taken
            if taken == chunks and len(rows) < limit:
                self._server.heard({"handoff"})  # they were smaller than thought: there may be more behind them
        found += map(new_claimed, rows)
        if aside:
            self._look_again()
            try:
                await self._server.write(working.put_aside)
            except StoreError as error:  # what was claimed is ours all the same; the next claim looks again
                _log.warning("what a claim left over could not be looked at: %s", error)
                return False
        return aside

    def _look_again(self) -> None:
        """What somebody has his hands on, or what is still under way, is to be had a little later."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._looks_again:  # one look is enough, however many claims want it
            self._looks_again = loop.time() + _AGAIN
            loop.call_later(_AGAIN, self._server.heard, {"handoff"})

    async def _found_again(self, worker: int, now: Instant) -> list[Claimed]:
        """What claims of this worker took whose answers were lost."""
        found: list[Claimed] = []
        for tokens, (whose, since) in list(self._unsure.items()):
            # Out before the question, or two who ask at once would both be told, and begin the same attempt.
            if whose != worker or self._unsure.pop(tokens, None) is None:
                continue
            try:
                rows = await self._server.statement("claimed_under", tokens=tokens)
            except StoreError:
                self._unsure[tokens] = whose, since
                if found:
                    return found
                raise
            found += map(new_claimed, rows)
            if not rows and 0 <= now - since < _UNSURE_FOR:
                self._unsure[tokens] = whose, since  # it may be under way still
        return found


async def finish(server: Server, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """Runs that ended well, and from whose end nothing follows, go in one statement; it says which were left."""
    plain = [one for one in endings if _is_plain(one)]
    left = {(row[0], row[1]) for row in await _finish_runs(server, plain)} if plain else set()
    if not left and len(plain) == len(endings):
        return []
    others = [one for one in endings if not _is_plain(one)]
    rest = others + [one for one in plain if (one.number, one.token) in left]
    fenced: list[Ending] = await server.write(lambda tx: working.finish(tx, worker, rest), hot=True)
    return fenced


def _is_plain(one: Ending) -> bool:
    return one.event in _ENDS_WELL and one.outcome is Outcome.SUCCEEDED and one.contact is None


async def _finish_runs(server: Server, plain: Sequence[Ending]) -> list[Row]:
    return await server.statement(
        "finish_runs",
        numbers=[one.number for one in plain],
        tokens=[one.token for one in plain],
        state=State.SUCCEEDED,
        started=[one.started_at for one in plain],
        finished=[one.finished_at for one in plain],
        results=[one.result for one in plain],
    )


async def give_back(tx: PostgresTransaction, worker: int, claimed: Sequence[Claimed]) -> int:
    numbers, tokens = [one.number for one in claimed], {one.token for one in claimed}
    await tx.all("write_claims", tokens=list(tokens), numbers=numbers)
    return await working.give_back(tx, worker, claimed)


async def beat(tx: PostgresTransaction, worker: int, progress: Sequence[Progress], patient: bool) -> Beat:
    tokens = list({one.token for one in progress})
    await tx.all("write_old_claims", worker=worker, before=tx.now - _BRIEF, tokens=tokens)
    return await working.beat(tx, worker, progress, patient)
