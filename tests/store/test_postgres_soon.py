"""Runs that are handed off before their time on PostgreSQL: in which chunks, who is called for each, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg

from foliot.clock import ManualClock
from foliot.domain.instant import MILLISECOND, SECOND, Duration
from foliot.domain.run import Promise
from foliot.domain.store import Fired, Lease
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.bell import channel
from foliot.store.postgres.calls import Message
from foliot.store.postgres.cells import LEAD, SHARE, SLOT
from tests.contract.stage import START, Stage, declared
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.waiting import soon


class Scene(NamedTuple):
    stage: Stage
    judge: Any
    said: asyncio.Queue[str]
    lease: Lease

    async def hands_off(self, *afters: Duration, **more: Any) -> Fired:
        """Runs that are due so long after now: what is due already, and what is soon."""
        now = self.stage.now
        [lease] = await self.stage.store.renew([self.lease], 60 * SECOND, self.lease.high_water)
        kept = await self.stage.store.promise([Promise("job", b"{}", now + after, **more) for after in afters])
        entries = [(one.fire_at, one.number) for one in kept]
        due, soon = [one for one in entries if one[0] <= now], [one for one in entries if one[0] > now]
        return await self.stage.store.fire([lease], due, lease.cursor, lambda facts, now: [], soon)

    async def chunks(self) -> list[tuple[Duration, int]]:
        """How long after now each is ready, and how many runs it has."""
        rows = await self.judge.fetch("SELECT ready_at, cardinality(numbers) FROM foliot.handoff ORDER BY ready_at, n")
        return [(max(ready_at - START, 0), count) for ready_at, count in rows]

    async def calls(self) -> list[tuple[Duration, str]]:
        """Those of the next firing. No worker claims here, so the store passes a call on to all by an empty message.
        On a slow machine that one comes before the message of the next firing."""
        while not (said := await soon(self.said.get())):
            pass
        message = Message.read(said)
        assert message is not None
        assert message.at == START
        return [(call.at - START if call.at else 0, call.worker) for call in message.calls]


@asynccontextmanager
async def scene(server: PostgresServer) -> AsyncIterator[Scene]:
    """In virtual time."""
    dsn, clock = emptied(server, shards=1, by_socket=True), ManualClock(START)
    store, judge = PostgresStore(dsn, clock), await asyncpg.connect(dsn)
    await store.open()
    try:
        said: asyncio.Queue[str] = asyncio.Queue()
        await judge.add_listener(channel("handoff"), lambda *heard: said.put_nowait(heard[-1]))
        stage = Stage(store, clock)
        yield Scene(stage, judge, said, await stage.lease())
    finally:
        await store.close()
        await judge.close()


def whoms(calls: Sequence[tuple[Duration, str]]) -> list[str]:
    return [whom for _, whom in calls]


async def test_what_is_due_within_a_slot_shares_a_chunk_that_is_ready_when_the_last_of_it_is_due(
    postgres: PostgresServer,
) -> None:
    async with scene(postgres) as at:
        fired = await at.hands_off(1 * MILLISECOND, 3 * MILLISECOND, SLOT + 1, SLOT + 4)
        assert (fired.handed_off, fired.ahead) == (4, 4)
        assert await at.chunks() == [(3 * MILLISECOND, 2), (SLOT + 4, 2)]


async def test_what_is_due_on_the_full_second_waits_for_nothing_that_comes_after_it(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        at.stage.clock.advance(-20 * MILLISECOND)
        await at.hands_off(18 * MILLISECOND, 20 * MILLISECOND, 20 * MILLISECOND + 1)
        assert await at.chunks() == [(0, 2), (1, 1)]


async def test_what_is_due_goes_at_once_beside_what_is_to_come(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        worker = str(await at.stage.register())
        fired = await at.hands_off(-SECOND, 0, 2 * MILLISECOND)
        assert (fired.handed_off, fired.ahead) == (3, 1)
        assert await at.chunks() == [(0, 2), (2 * MILLISECOND, 1)]
        assert await at.calls() == [(0, worker), (2 * MILLISECOND, worker)]


async def test_one_worker_is_called_for_all_that_is_to_come_until_that_is_its_share(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        workers = {str(await at.stage.register()) for _ in range(2)}
        await at.hands_off(*(place * SLOT for place in range(1, 4)))
        calls = await at.calls()
        assert [when for when, _ in calls] == [place * SLOT for place in range(1, 4)]
        assert len(set(whoms(calls))) == 1
        await at.hands_off(*([SLOT] * SHARE), *([2 * SLOT] * SHARE))
        assert set(whoms(await at.calls())) == workers


async def test_where_nobody_can_be_named_all_are_called(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.hands_off(SLOT // 2)
        assert await at.calls() == [(SLOT // 2, "")], "for the time of the run, not for the end of its slot"


async def test_a_message_has_room_for_any_number_of_chunks(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        worker = str(await at.stage.register())
        [lease] = await at.stage.store.renew([at.lease], 60 * SECOND, at.lease.high_water)
        wanted = [Promise("job", b"{}", START + 1 + place * 100, priority=place) for place in range(390)]
        kept = await at.stage.store.promise(wanted)
        soon = [(one.fire_at, one.number) for one in kept]
        fired = await at.stage.store.fire([lease], [], lease.cursor, lambda facts, now: [], soon)
        assert fired.ahead == 390
        calls = await at.calls()
        assert set(whoms(calls)) == {worker, ""}
        ready = [when for when, _ in await at.chunks()]
        called = [when for when, _ in calls]
        assert all(any(when <= moment < when + SLOT for moment in called) for when in ready), "each, within its slot"


async def test_what_is_beyond_the_lead_comes_back_and_what_is_due_and_was_refused_with_it(
    postgres: PostgresServer,
) -> None:
    """As it is with a scheduler whose clock is fast."""
    async with scene(postgres) as at:
        fired = await at.hands_off(LEAD, LEAD + 1)
        assert (fired.ahead, fired.early) == (1, 1)
        assert [entry[0] for entry in fired.again] == [START + LEAD + 1]


async def test_what_is_refused_beside_a_tick_that_is_due_soon_comes_back(postgres: PostgresServer) -> None:
    async with scene(postgres) as at:
        await at.stage.apply(declared("hourly", START + SLOT))
        told = await at.stage.store.arrivals([at.lease], at.lease.cursor)
        [tick] = zip(told.fire_at, told.number, strict=True)
        at.stage.store.look_ahead([at.lease], lambda facts, now: [])
        [kept] = await at.stage.store.promise([Promise("job", b"{}", START + 1)])
        refused = (kept.fire_at, kept.number)
        fired = await at.stage.store.fire([at.lease], [refused], at.lease.cursor, lambda facts, now: [], [tick])
        assert (fired.early, list(fired.again), list(fired.patient)) == (1, [refused], [tick])


async def test_what_needs_thought_and_is_due_by_the_store_s_clock_alone_is_fired(postgres: PostgresServer) -> None:
    """As it is with a scheduler whose clock is slow."""
    async with scene(postgres) as at:
        wanted = [Promise("job", b"{}", START, options=b'{"labels":["gpu"]}'), Promise("job", b"{}", START + 1)]
        due, later = [(one.fire_at, one.number) for one in await at.stage.store.promise(wanted)]
        fired = await at.stage.store.fire([at.lease], [], at.lease.cursor, lambda facts, now: [], [due, later])
        assert (fired.handed_off, list(fired.again)) == (1, [later])
