"""Several schedulers on one store: as virtual time shows them, and as processes that measure their clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from foliot import Foliot, every
from foliot.bootstrap import make_store, run_scheduler, run_worker
from foliot.bootstrap.scheduling import BEAT_EVERY
from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, MILLISECOND, SECOND, Duration, Instant, instant
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.domain.store import EventRow
from foliot.store.sqlite import SqliteStore
from foliot.testing import World, virtual_time
from foliot.work.handler import Handler
from tests.waiting import until_async

START = datetime(2026, 4, 3, 2, tzinfo=UTC)
NOON: Instant = instant(START)


def test_virtual_time_lets_a_handler_go_on_that_awaits_more_than_the_clock() -> None:
    app = Foliot()

    @app.job(timeout="30s")
    async def passes() -> None:
        for _ in range(300):
            await asyncio.sleep(0)

    with virtual_time(app) as world:
        passes.at(world.now)
        world.run_for("20s")
        assert world.states() == [State.SUCCEEDED]


def test_virtual_time_has_several_schedulers_that_share_the_shards_of_a_server(database: str) -> None:
    app = Foliot()
    seen: list[int] = []

    @app.job
    async def remind(number: int) -> None:
        seen.append(number)

    @app.job
    async def poll() -> None: ...

    app.schedule("often", poll, every("10s"))
    clock = ManualClock(NOON)
    store = make_store(database, clock)
    asyncio.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock)
        world.start()
        try:
            for number in range(30):
                remind.at(world.now + timedelta(seconds=number + 1), number=number)
            world.run_for("5s")
            assert [len(one.shards) for one in world.schedulers] == [16]
            world.add_scheduler()
            world.run_for("5s")
            assert [len(one.shards) for one in world.schedulers] == [8, 8]
            world.kill_scheduler()
            world.run_for("30s")
            assert [len(one.shards) for one in world.schedulers] == [16]
            assert sorted(seen) == list(range(30))
            assert world.states(schedule="often") == [State.SUCCEEDED] * 4 + [State.SCHEDULED]
        finally:
            world.close()


class OwnClock(SqliteStore):
    """A store in memory that pretends to be on another host."""

    has_own_clock = True


class Hosts:
    """A store and some hosts, whose clocks differ and go on together."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.store = OwnClock(":memory:", self.clock)
        self.hosts: list[ManualClock] = []
        self.stop = asyncio.Event()
        self.running: list[asyncio.Task[Any]] = []

    def host(self, ahead: Duration = 0) -> ManualClock:
        self.hosts.append(ManualClock(self.clock.now() + ahead))
        return self.hosts[-1]

    def start(self, process: Coroutine[Any, Any, Any]) -> None:
        self.running.append(asyncio.create_task(process))

    async def pass_time(self, length: Duration, step: Duration = 20 * MILLISECOND) -> None:
        for _ in range(length // step):
            for clock in (self.clock, *self.hosts):
                clock.advance(step)
            for _ in range(20):
                await asyncio.sleep(0)

    async def owner(self) -> int | None:
        [shard] = (await self.store.standing(0, 5 * SECOND)).shards
        return shard.owner

    async def events(self) -> list[EventRow]:
        return await self.store.events_since(0, 100)


@asynccontextmanager
async def some_hosts() -> AsyncIterator[Hosts]:
    hosts = Hosts()
    await hosts.store.open()
    try:
        yield hosts
    finally:
        hosts.stop.set()
        await hosts.pass_time(3 * SECOND)
        await asyncio.gather(*hosts.running)
        await hosts.store.close()


async def test_a_scheduler_on_a_host_whose_clock_goes_wrong_steps_down_and_comes_back_when_it_is_right() -> None:
    async with some_hosts() as hosts:
        first, second = hosts.host(), hosts.host()
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=first))
        await hosts.pass_time(SECOND)
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=second))
        await hosts.pass_time(SECOND)
        assert await hosts.owner() == 1
        first.step(3 * SECOND)
        await hosts.pass_time(3 * SECOND)
        assert await hosts.owner() == 2
        assert (await hosts.store.standing(2, 5 * SECOND)).schedulers == [2]
        assert [(one.number, one.fenced) for one in await hosts.store.instances()] == [(1, True), (2, False)]
        [told] = await hosts.events()
        assert told.kind == "clock_fenced"
        assert "scheduler 1" in told.detail
        assert "ahead of the store's" in told.detail
        first.step(-3 * SECOND)
        await hosts.pass_time(3 * SECOND)
        assert (await hosts.store.standing(2, 5 * SECOND)).schedulers == [1, 2]
        assert [event.kind for event in await hosts.events()] == ["clock_fenced", "clock_trusted"]


async def test_a_scheduler_that_starts_with_a_wrong_clock_never_takes_anything() -> None:
    async with some_hosts() as hosts:
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=hosts.host(-HOUR)))
        await hosts.pass_time(3 * SECOND)
        assert await hosts.owner() is None
        assert [event.kind for event in await hosts.events()] == ["clock_fenced"]


async def test_a_scheduler_that_was_declared_dead_enters_anew_and_takes_its_shards() -> None:
    async with some_hosts() as hosts:
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=hosts.host()))
        await hosts.pass_time(SECOND)
        assert await hosts.owner() == 1
        await hosts.store.retire(1)
        await hosts.pass_time(BEAT_EVERY + 2 * SECOND)
        assert await hosts.owner() == 2
        [kept] = await hosts.store.promise([Promise("job", b"{}", hosts.clock.now())])
        await hosts.pass_time(SECOND)
        assert (await hosts.store.run(kept.id)).state is State.READY


async def test_a_host_whose_clock_is_a_little_off_fires_on_the_stores_time() -> None:
    async with some_hosts() as hosts:
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=hosts.host(90 * MILLISECOND)))
        await hosts.pass_time(SECOND)
        [kept] = await hosts.store.promise([Promise("job", b"{}", hosts.clock.now() + SECOND)])
        await hosts.pass_time(990 * MILLISECOND, 10 * MILLISECOND)
        assert (await hosts.store.run(kept.id)).fired_at is None
        await hosts.pass_time(30 * MILLISECOND, 10 * MILLISECOND)
        assert (await hosts.store.run(kept.id)).state is State.READY


async def test_a_worker_on_a_host_with_a_wrong_clock_leaves_the_work_to_others() -> None:
    did: list[str] = []

    def handlers(name: str) -> dict[str, Handler]:
        async def job() -> None:
            did.append(name)

        return {"job": Handler.of(job)}

    async with some_hosts() as hosts:
        hosts.start(run_scheduler(hosts.store, hosts.stop, clock=hosts.host()))
        more: Any = {"grace": SECOND, "queues": ["default"], "slots": 4}
        hosts.start(run_worker(hosts.store, handlers("wrong"), hosts.stop, clock=hosts.host(3 * SECOND), **more))
        await hosts.pass_time(SECOND)
        await hosts.store.promise([Promise("job", b"{}", hosts.clock.now()) for _ in range(3)])
        await hosts.pass_time(3 * SECOND)
        assert did == []
        assert [(event.kind, "worker" in event.detail) for event in await hosts.events()] == [("clock_fenced", True)]
        hosts.start(run_worker(hosts.store, handlers("right"), hosts.stop, clock=hosts.host(), **more))
        await hosts.pass_time(3 * SECOND)
        await until_async(lambda: did == ["right"] * 3, "the worker with the right clock has done all three")
