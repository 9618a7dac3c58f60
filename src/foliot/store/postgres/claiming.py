"""Claims and plain endings, each in one statement; what needs more thought goes the way of all engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import asyncpg

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.run import Claimed, Ending, Lane, Progress, new_claimed
from foliot.domain.state import TRANSITIONS, Outcome, State
from foliot.domain.store import Beat, Offer
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres.bell import Bell
from foliot.store.postgres.connection import is_unanswered
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
_TIME = itemgetter(7, 0)
_REACH = 3
"""Leads by which what we are called for may lie ahead: herds of ticks are handed off sooner than other runs."""
_PASSED_CHUNKS = 8
"""Most chunks that a worker takes of the runs which get the slots that it frees: usually there is one."""
_LEFT, _PASSED, _STANDBY = range(3)
"""Kinds of rows in the answer of `finish_and_claim`."""
_PASSED_ORDER = itemgetter(5, 8, 1)
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

    @property
    def bell(self) -> Bell: ...
    @property
    def lead(self) -> Duration: ...


class Within(NamedTuple):
    """The tenant that a claim is bound to; None: to runs without one."""

    tenant: str | None


class Wanted(NamedTuple):
    """What a claim may take: see `foliot.domain.store.WorkStore.claim`."""

    worker: int
    queues: Sequence[str]
    jobs: Sequence[str]
    limit: int
    suspects: bool = True
    backlog: int | None = None
    put_off: int | None = None
    labels: Sequence[str] = ()
    ahead: int = 0
    called: bool = False
    within: Within | None = None

    def beside(self, found: Sequence[Claimed]) -> Wanted:
        """What is left of it when these are taken."""
        return self._replace(
            limit=self.limit - len(found),
            # One run under suspicion at a time, also where one is found whose claim seemed lost.
            suspects=self.suspects and all(one.deaths is None for one in found),
            backlog=None if self.backlog is None else self.backlog - sum(one.lane > Lane.LIVE for one in found),
            put_off=None if self.put_off is None else self.put_off - len(found),
        )


class Claimer:
    """Claims for one process's worker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._mean = 1.0
        """Runs in a chunk, lately: so that a claim locks about as many chunks as it needs, and leaves others theirs."""
        self._unsure: dict[tuple[int, ...], tuple[int, Instant]] = {}
        """Tokens of claims whose answer was lost, whose they are, and since when. The store may believe in them."""
        self._looks_again = 0.0
        """When it will, by the event loop's clock."""

    async def rehearse(self, worker: int) -> None:
        """On two connections, because a worker claims while it tells what ended."""
        nothing = Wanted(worker, (), (), 0)
        for _ in range(2):
            await asyncio.gather(*(_finish_runs(self._server, []) for _ in range(2)))
            await asyncio.gather(*(self._finish_and_claim(worker, [], Offer((), (), 0), []) for _ in range(2)))
            await asyncio.gather(*(self._state(nothing, (), [], carefully=False) for _ in range(2)))

    async def claim(self, wanted: Wanted, now: Instant) -> list[Claimed]:
        called = self._server.bell.answered()
        found = await self._found_again(wanted.worker, now) if self._unsure else []
        await self._answer(wanted, called.chunks, now, found)
        for _ in range(_TRIES if called.anything or not wanted.called else 0):
            left = wanted.beside(found)
            if left.limit <= 0 or not await self._take(left, now, found) or found:
                break
            await asyncio.sleep(0.001)
        if self._unsure:
            self._look_again()
        if len(found) >= wanted.limit:
            # There may be more. Whoever found it locked by this claim has gone to sleep again.
            self._server.ring({"handoff"})
        return found

    async def _answer(self, wanted: Wanted, chunks: Mapping[int, float], now: Instant, found: list[Claimed]) -> None:
        """What we are called for before its time; what there is no room for, at its time."""
        left = wanted.beside(found)
        most = min(left.limit, left.ahead) if self._server.lead else 0
        if chunks and most > 0:
            before = len(found)
            await self._take(left._replace(limit=most), now, found, list(chunks))
            taken = found[before:]
            if len(taken) < most and len({one.token for one in taken}) == len(chunks):
                return
        for when in set(chunks.values()):
            self._server.bell.come(when)

    async def _take(self, wanted: Wanted, now: Instant, found: list[Claimed], named: Sequence[int] = ()) -> bool:
        """One claim, added to `found`; answers whether what lay aside was looked at, so that there may be more."""
        # Of each chunk, a bound claim may take one run alone.
        mean = self._mean if wanted.within is None else 1.0
        chunks = len(named) or max(1, min(_MOST_CHUNKS, round(wanted.limit / mean + 0.5)))
        tokens = self._server.numbers.draw(chunks, now)
        asked = asyncio.get_running_loop().time()
        try:
            rows = await self._state(wanted, tokens, named, carefully=False)
            if rows and rows[-1][1] == _CAREFULLY and rows[-1][0] is None:
                rows = await self._state(wanted, tokens, named, carefully=True)
        except asyncpg.UniqueViolationError:
            return True  # another process drew the same token, because it has our node's number: the next one differs
        except StoreError as error:
            if _is_declared_dead(error):
                if found:
                    return False
                raise LostOwnership(f"worker {wanted.worker} was marked dead; it must register again") from error
            self._unsure[tuple(tokens)] = wanted.worker, now
            if found:
                return False
            raise
        aside = bool(rows) and rows[-1][0] is None
        if aside:
            last = rows.pop()
            if last[1] == _LATER:
                self._server.bell.expect(last[7] / SECOND)
                aside = False
        if named:
            found += self._waiting(rows, asked)
        elif wanted.within is not None:
            found += map(new_claimed, sorted(rows, key=_ORDER))
        elif rows:
            rows.sort(key=_ORDER)
            taken = len({row[4] for row in rows})
            self._mean = 0.5 * self._mean + 0.5 * len(rows) / taken
            if taken == chunks and len(rows) < wanted.limit:
                self._server.heard({"handoff"})  # they were smaller than thought: there may be more behind them
            found += map(new_claimed, rows)
        if aside:
            self._look_again()
            try:
                await self._server.write(working.put_aside)
            except StoreError as error:  # what was claimed is ours all the same; the next claim looks again
                _log.warning("checking runs that a claim skipped failed, the next claim checks them: %s", error)
                return False
        return aside

    async def _state(
        self, wanted: Wanted, tokens: Sequence[int], named: Sequence[int], *, carefully: bool
    ) -> list[Row]:
        if wanted.within is not None:
            return await self._server.statement(
                "claim_within",
                worker=wanted.worker,
                tenant=wanted.within.tenant,
                queues=wanted.queues,
                jobs=wanted.jobs,
                limit=wanted.limit,
                tokens=tokens,
                suspects=wanted.suspects,
                labels=wanted.labels,
            )
        return await self._server.statement(
            "claim_runs",
            worker=wanted.worker,
            queues=wanted.queues,
            jobs=wanted.jobs,
            limit=wanted.limit,
            chunks=len(tokens),
            tokens=tokens,
            suspects=wanted.suspects,
            backlog=wanted.backlog,
            put_off=wanted.put_off,
            labels=wanted.labels,
            carefully=carefully,
            named=named,
            ahead=_REACH * self._server.lead if named else 0,
        )

    def _waiting(self, rows: list[Row], asked: float) -> Iterator[Claimed]:
        """What was claimed before its time, by a statement that was sent at `asked`, in the order of time."""
        rows.sort(key=_TIME)
        ago = None
        for one in map(new_claimed, rows):
            if one.early:
                if ago is None:  # one look at the clock for all
                    ago = self._server.bell.time.ago(one.fire_at - one.early, asked)
                yield one._replace(early=max(one.early - ago, 0))
            else:
                yield one

    def _look_again(self) -> None:
        """What somebody has his hands on, or what is still under way, is to be had a little later."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._looks_again:  # one look is enough, however many claims want it
            self._looks_again = loop.time() + _AGAIN
            loop.call_later(_AGAIN, self._server.heard, {"handoff"})

    async def finish(
        self, worker: int, endings: Sequence[Ending], offer: Offer, now: Instant
    ) -> tuple[list[Ending], list[Claimed]]:
        """Plain endings and the claims that follow from them are one statement; the other endings come after it. The
        runs that were claimed with an answer that was lost come with the next call, too: a worker that drains makes no
        other claim."""
        found = await self._found_again(worker, now) if self._unsure else []
        try:
            fenced, claimed = await self._finish(worker, endings, offer, now)
        except BaseException:
            if found:
                self._unsure[tuple({one.token for one in found})] = worker, now
            raise
        return fenced, [*found, *claimed]

    async def _finish(
        self, worker: int, endings: Sequence[Ending], offer: Offer, now: Instant
    ) -> tuple[list[Ending], list[Claimed]]:
        plain = [one for one in endings if _is_plain(one)]
        tokens = self._server.numbers.draw(_PASSED_CHUNKS + len(offer.standbys), now)
        try:
            rows = await self._finish_and_claim(worker, plain, offer, tokens)
        except (asyncpg.UniqueViolationError, StoreError) as error:
            # Another process drew the same token, see `_take`; or this worker was declared dead meanwhile.
            if not isinstance(error, asyncpg.UniqueViolationError) and not _is_declared_dead(error):
                if is_unanswered(error):
                    self._unsure[tuple(tokens)] = worker, now
                raise
            rows = await self._finish_and_claim(worker, plain, offer._replace(limit=0, standbys=()), [])
        left = {(row[1], row[5]) for row in rows if row[0] == _LEFT}
        passed = sorted((row for row in rows if row[0] == _PASSED), key=_PASSED_ORDER)
        standbys = (row for row in rows if row[0] == _STANDBY)
        claimed = [new_claimed((*row[1:-1], 0, row[-1], row[0] == _STANDBY)) for row in (*passed, *standbys)]
        try:
            return await _finish_rest(self._server, worker, endings, left), claimed
        except Exception:
            if claimed:  # the caller hears of them with its next claim
                self._unsure[tuple(tokens)] = worker, now
            raise

    async def _finish_and_claim(
        self, worker: int, plain: Sequence[Ending], offer: Offer, tokens: Sequence[int]
    ) -> list[Row]:
        return await self._server.statement(
            "finish_and_claim",
            **_columns(plain),
            holders=[one.holder for one in offer.passed],
            holder_tokens=[one.holder_token for one in offer.passed],
            heirs=[one.heir for one in offer.passed],
            heir_tokens=[one.heir_token for one in offer.passed],
            worker=worker,
            queues=offer.queues,
            jobs=offer.jobs,
            limit=offer.limit,
            backlog=offer.backlog,
            lines=[one.slot for one in offer.standbys],
            line_jobs=[one.job for one in offer.standbys],
            mosts=[one.most for one in offer.standbys],
            new_tokens=tokens,
        )

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
            found += map(new_claimed, rows)  # what had to wait then waits for as long from now
            if not rows and 0 <= now - since < _UNSURE_FOR:
                self._unsure[tokens] = whose, since  # it may be under way still
        return found


def _is_declared_dead(error: Exception) -> bool:
    return isinstance(error.__cause__, asyncpg.PostgresError) and error.__cause__.sqlstate == _DECLARED_DEAD


async def finish(server: Server, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """Runs that ended well, without a report, and from whose end nothing follows, go in one statement; it says which
    were left. While failures of a destination are counted, successes with one are among these."""
    plain = [one for one in endings if _is_plain(one)]
    left = {(row[0], row[1]) for row in await _finish_runs(server, plain)} if plain else set()
    return await _finish_rest(server, worker, endings, left)


async def _finish_rest(
    server: Server, worker: int, endings: Sequence[Ending], left: Collection[tuple[int, int]]
) -> list[Ending]:
    """The endings that are not plain, and those that the statement left."""
    rest = [one for one in endings if not _is_plain(one)]
    rest += [one for one in endings if _is_plain(one) and (one.number, one.token) in left] if left else ()
    if not rest:
        return []
    fenced: list[Ending] = await server.write(lambda tx: working.finish(tx, worker, rest), hot=True)
    return fenced


def _is_plain(one: Ending) -> bool:
    has_answered = one.contact is None or one.contact.answered
    return one.event in _ENDS_WELL and one.outcome is Outcome.SUCCEEDED and has_answered and one.report is None


async def _finish_runs(server: Server, plain: Sequence[Ending]) -> list[Row]:
    return await server.statement("finish_runs", **_columns(plain))


def _columns(plain: Sequence[Ending]) -> dict[str, Any]:
    return {
        "numbers": [one.number for one in plain],
        "tokens": [one.token for one in plain],
        "state": State.SUCCEEDED,
        "started": [one.started_at for one in plain],
        "finished": [one.finished_at for one in plain],
        "results": [one.result for one in plain],
    }


async def give_back(tx: PostgresTransaction, worker: int, claimed: Sequence[Claimed]) -> int:
    returned = await _return_standbys(tx, [one for one in claimed if one.standby])
    left = [one for one in claimed if one.number not in returned]
    if left:
        numbers, tokens = [one.number for one in left], {one.token for one in left}
        await tx.all("write_claims", tokens=list(tokens), numbers=numbers)
    return len(returned) + (await working.give_back(tx, worker, left) if left else 0)


async def _return_standbys(tx: PostgresTransaction, standbys: Sequence[Claimed]) -> frozenset[int]:
    if not standbys:
        return frozenset()
    values = {"numbers": [one.number for one in standbys], "tokens": [one.token for one in standbys]}
    # A standby with a request to stop is not among these: the request has its claim written.
    return frozenset(await tx.value("return_standbys", **values) or ())


async def beat(
    tx: PostgresTransaction, worker: int, progress: Sequence[Progress], patient: bool, leaving: bool
) -> Beat:
    tokens = list({one.token for one in progress})
    await tx.all("write_old_claims", worker=worker, before=tx.now - _BRIEF, tokens=tokens)
    return await working.beat(tx, worker, progress, patient, leaving)
