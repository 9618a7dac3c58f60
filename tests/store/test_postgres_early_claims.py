"""Claims before the time on PostgreSQL, by the server's clock: what is taken, when it may begin, and what is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import pytest

from foliot.domain.identity import run_id
from foliot.domain.instant import MILLISECOND, SECOND, Duration
from foliot.domain.run import Claimed, Kept, Promise
from foliot.domain.state import Event, Outcome, State
from foliot.domain.store import Lease
from foliot.store.postgres import PostgresStore, cells
from foliot.store.postgres import store as stores
from tests.contract.stage import Stage, declared
from tests.servers.postgres import PostgresServer
from tests.store.lines import stages
from tests.waiting import until_async

LEAD: Duration = 120 * SECOND
"""So long that the slowest machine claims before the time."""
SOON: Duration = 60 * SECOND
AWAITED: Duration = 2 * SECOND
"""The same, where the test waits for the time."""


@pytest.fixture(autouse=True)
def lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "LEAD", LEAD)
    monkeypatch.setattr(stores, "LEAD", LEAD)


class Scene(NamedTuple):
    stage: Stage
    judge: Any
    lease: Lease
    worker: int

    @property
    def store(self) -> PostgresStore:
        assert isinstance(self.stage.store, PostgresStore)
        return self.stage.store

    async def hands_off(self, *afters: Duration) -> list[Kept]:
        """Runs that are due so long after now, handed off, and the worker has heard of it."""
        now = await self.store.now()
        kept = await self.store.promise([Promise("job", b"{}", now + after) for after in afters])
        await self.hands_off_again(kept)
        return kept

    async def hands_off_awaited(self) -> Kept:
        """A run whose time the test waits for. If its time comes before it is handed off, it ends at once, and the
        next run has a later time."""
        for after in (AWAITED, 5 * AWAITED, 25 * AWAITED):
            now = await self.store.now()
            [kept] = await self.store.promise([Promise("job", b"{}", now + after)])
            if await self.is_handed_off_ahead([kept]):
                await self.is_called()
                return kept
            [late] = await self.claims()
            await self.stage.finish(self.stage.succeeded(late), worker=self.worker)
        raise AssertionError(f"no run was handed off within {25 * AWAITED / SECOND:g} s")

    async def is_handed_off_ahead(self, kept: list[Kept]) -> bool:
        await self.store.beat(self.worker, [])  # or it would not be called on a machine that is slow enough
        [lease] = await self.store.renew([self.lease], 60 * SECOND, self.lease.high_water)
        soon = [(one.fire_at, one.number) for one in kept]
        fired = await self.store.fire([lease], [], lease.cursor, lambda facts, now: [], soon)
        return fired.ahead == len(kept)

    async def hands_off_again(self, kept: list[Kept]) -> None:
        assert await self.is_handed_off_ahead(kept)
        await self.is_called()

    async def time_comes(self) -> None:
        """Nobody waits for it."""
        await self.judge.execute("UPDATE foliot.run SET fire_at = fire_at - $1", SOON)
        await self.judge.execute("UPDATE foliot.handoff SET ready_at = 0, fired_at = fired_at - $1", SOON)

    async def is_called(self) -> None:
        await until_async(lambda: self.store.bell._calls._chunks, "the store has heard the call")

    async def claims(self, *, limit: int = 10, ahead: int = 10, called: bool = True) -> list[Claimed]:
        return await self.store.claim(self.worker, ["default"], ["job"], limit, ahead=ahead, called=called)


@asynccontextmanager
async def scene(server: PostgresServer) -> AsyncIterator[Scene]:
    async with stages(server, 1) as (judge, [stage]):
        worker = await stage.register()
        lease = await stage.lease()  # registers a scheduler, for which the store listens again from the start
        bell = stage.store.bell  # type: ignore[attr-defined]
        await until_async(lambda: bell._has_ears, "the store listens")
        yield Scene(stage, judge, lease, worker)


async def test_whoever_is_called_takes_it_before_its_time_and_is_told_how_long_to_wait(
    postgres: PostgresServer,
) -> None:
    async with scene(postgres) as at:
        first, second = await at.hands_off(SOON, SOON + 10 * MILLISECOND)
        asked = await at.store.now()
        claimed = await at.claims()
        answered = await at.store.now()
        assert [one.number for one in claimed] == [first.number, second.number]
        for one in claimed:
            assert one.early > 0
            # It begins after `early` from the answer: not before its time, and not as if the server had answered early.
            assert one.fire_at <= answered + one.early
            assert asked + one.early <= one.fire_at + SECOND


async def test_what_is_due_before_the_answer_comes_may_begin_at_once(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.hands_off(SOON)
        await at.time_comes()
        [one] = await at.claims()
        assert one.early == 0


async def test_nothing_else_is_taken_before_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.hands_off(SOON)
        at.store.bell.answered()  # as if the call had not been heard
        assert await at.claims() == []
        [kept] = await at.hands_off(SOON)
        assert [one.number for one in await at.claims()] == [kept.number]


async def test_who_takes_nothing_ahead_comes_at_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        kept = await at.hands_off_awaited()
        assert await at.claims(ahead=0) == []
        heard = at.store.version()
        await until_async(lambda: at.store.version() != heard, "the store says that there is something new")
        assert await at.store.now() >= kept.fire_at
        assert [one.number for one in await at.claims(ahead=0)] == [kept.number]


async def test_of_more_than_it_takes_ahead_the_rest_is_left_for_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        kept = await at.hands_off(SOON, SOON, SOON)
        assert len(await at.claims(ahead=2)) == 2
        assert await at.claims() == []
        await at.time_comes()
        [last] = await at.claims()
        assert last.number == kept[-1].number


@pytest.mark.parametrize("called", [True, False])
async def test_a_call_for_what_is_to_come_hides_nothing_that_is_due(postgres: PostgresServer, called: bool) -> None:
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        overdue = await at.stage.promise(after=-SECOND)
        fired = await at.store.fire([at.lease], [(overdue.fire_at, overdue.number)], at.lease.cursor, lambda *_: [])
        assert fired.handed_off == 1
        if not called:
            at.store.bell._calls._is_anything = False  # it was told of that, and could not take it then
        assert [one.number for one in await at.claims(called=called)] == [kept.number, overdue.number]


async def test_who_is_called_for_what_is_to_come_asks_for_nothing_else(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        at.store.bell.answered()
        [kept] = await at.hands_off(SOON)
        asked: list[str] = []
        state = at.store._claimer._state

        async def spy(wanted: Any, tokens: Any, named: Any, *, carefully: bool) -> Any:
            asked.append(f"{len(named)} by name")
            return await state(wanted, tokens, named, carefully=carefully)

        at.store._claimer._state = spy  # type: ignore[method-assign]
        assert [one.number for one in await at.claims()] == [kept.number]
        assert asked == ["1 by name"]


async def test_a_chunk_that_somebody_else_took_is_looked_for_at_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.hands_off(SOON)
        await at.judge.execute("DELETE FROM foliot.handoff")
        assert await at.claims() == []
        assert len(at.store.bell._calls._moments) == 1


async def test_it_is_its_worker_s_from_the_claim_on_and_that_counts_from_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        await at.claims()
        seen = await at.stage.run(kept)
        assert (seen.state, seen.fired_at, seen.claimed_at) == (State.RUNNING, kept.fire_at, kept.fire_at)


async def test_what_an_old_snapshot_may_not_know_to_be_claimed_is_not_replaced(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.judge.execute(stores._VIRTUAL_NOW)  # the judge's transaction has a time of its own
        now = await at.store.now()
        [kept] = await at.store.promise([Promise("job", b"{}", now + SOON, key="k")])
        replace = (
            "SELECT outcome FROM foliot.promise('job', now() + interval '1 hour', key => 'k', on_conflict => 'replace')"
        )
        async with at.judge.transaction(isolation="repeatable_read"):
            await at.judge.fetchval("SELECT 1 FROM foliot.run")
            await at.hands_off_again([kept])
            assert len(await at.claims()) == 1
            await at.judge.execute(f"SET LOCAL foliot.now = '{kept.fire_at - SECOND // 2}'")
            with pytest.raises(asyncpg.PostgresError, match="due within a second"):
                await at.judge.fetchval(replace)
        with pytest.raises(asyncpg.UniqueViolationError, match="has a promise already"):
            await at.judge.fetchval(replace)


async def test_what_is_written_of_it_counts_from_its_time(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        early, late = await at.hands_off(SOON, SOON + 1)
        one, other = await at.claims()
        # The worker's clock may be a little behind the server's.
        ending = at.stage.ending(one, Event.COMPLETED, Outcome.SUCCEEDED)
        await at.stage.finish(ending._replace(started_at=one.fire_at - 1, finished_at=one.fire_at), worker=at.worker)
        await at.store.beat(at.worker, [])
        ended = await at.stage.run(early)
        moments = (ended.fired_at, ended.claimed_at, ended.started_at, ended.finished_at)
        assert (ended.state, moments) == (State.SUCCEEDED, (early.fire_at,) * 4)
        assert other.number == late.number


async def test_one_that_really_began_before_its_time_would_be_seen(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        [one] = await at.claims()
        began = one.fire_at - 21 * MILLISECOND
        ending = at.stage.ending(one, Event.COMPLETED, Outcome.SUCCEEDED)
        await at.stage.finish(ending._replace(started_at=began, finished_at=began + 1), worker=at.worker)
        assert (await at.stage.run(kept)).started_at == began


async def test_a_cancellation_that_comes_too_late_is_a_request_and_says_so(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        await at.claims()
        answer = await at.store.cancel(run_id(kept.number, None), actor="me", note="")
        assert answer.state is State.RUNNING
        assert (await at.store.beat(at.worker, [])).cancel == [kept.number]


async def test_one_that_was_cancelled_or_moved_after_its_hand_off_is_not_claimed(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        cancelled, kept = await at.hands_off(SOON, SOON)
        await at.store.cancel(run_id(cancelled.number, None), actor="me", note="")
        assert [one.number for one in await at.claims()] == [kept.number]


async def test_one_that_is_given_back_before_its_time_is_claimed_at_it(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        kept = await at.hands_off_awaited()
        claimed = await at.claims()
        assert await at.store.give_back(at.worker, claimed) == 1
        found: list[Claimed] = []

        async def is_found() -> bool:
            found.extend(await at.claims(ahead=0))
            return bool(found)

        await until_async(is_found, "the run that was given back is claimed")
        assert await at.store.now() >= kept.fire_at
        assert (found[0].number, found[0].attempt, found[0].early) == (kept.number, 1, 0)


async def test_what_is_claimed_is_not_handed_off_again(postgres: PostgresServer) -> None:
    """As somebody would who took the shard over, and loaded it."""
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        await at.claims()
        soon = [(kept.fire_at, kept.number)]
        fired = await at.store.fire([at.lease], [], at.lease.cursor, lambda facts, now: [], soon)
        assert (fired.handed_off, fired.stale) == (0, 1)


async def test_a_claim_whose_answer_was_lost_is_found_with_how_long_to_wait(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        [kept] = await at.hands_off(SOON)
        [claimed] = await at.claims()
        at.store._claimer._unsure[claimed.token,] = at.worker, await at.store.now()
        [found] = await at.claims()
        assert (found.number, found.token) == (kept.number, claimed.token)
        assert found.fire_at <= await at.store.now() + found.early


async def test_a_herd_of_ticks_is_called_for_by_its_chunks(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        now = await at.store.now()
        await at.stage.apply(*(declared(f"tick-{place}", now + 10 * SECOND) for place in range(3)))
        [[row]] = [await at.judge.fetch("SELECT array_agg(number ORDER BY number) FROM foliot.run")]
        numbers = list(row[0])

        async def hand_off(tx: Any) -> None:
            ready = now + SOON
            chunks = [("default", 0, 0, ready, part, None, False, 0, 1) for part in (numbers[:2], numbers[2:])]
            await tx.run_each("add_handoff", chunks)
            await tx.one("call_for_chunks", at=ready, whom=json.dumps({"default": [at.worker]}))

        await at.store.write(hand_off)
        await at.is_called()
        assert len(at.store.bell.answered().chunks) == 2
