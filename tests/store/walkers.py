"""Many actors on one database, each doing at random what its kind does, over a network that breaks; and their judge.

Everybody lives in one event loop, and goes by the server's clock. What a caller was told is written down; what it was
not told, because its answer was lost, may have happened or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from foliot.clock import SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.instant import MILLISECOND, SECOND
from foliot.domain.run import Claimed, Kept, OnConflict, Promise
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.errors import Conflict, FoliotError, LostOwnership, UnknownName
from foliot.store.postgres import PostgresStore
from tests.contract.stage import Stage, declared
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.waiting import until_async

LEASE = SECOND
SCHEDULES = [f"delay-{n}" for n in range(3)]


class Walk:
    """One walk: `go` for a while, then `drain`, then `judge`."""

    def __init__(self, dsn: str, proxy: Proxy, seed: int, server: PostgresServer | None = None) -> None:
        """With a server, that one crashes now and then."""
        self.dsn = dsn
        self.server = server
        self.proxy = proxy
        self.chance = random.Random(seed)
        self.url = proxy.through(dsn)
        self.stages: list[Stage] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.schedulers: dict[asyncio.Task[None], asyncio.Event] = {}
        self.chaos = True
        self.crashing = asyncio.Lock()
        self.going = True
        self.acknowledged: dict[int, str] = {}
        self.cancelled: set[int] = set()
        self.keys: list[str] = []
        self.running: dict[int, Claimed] = {}
        """By token and number: what somebody works on, for whoever wants to call it lost."""
        self.accepted: Counter[int] = Counter()
        self.surprises: list[BaseException] = []
        self.told = Counter[str]()
        self.broken = 0
        """How many things broke so far."""

    # Life

    async def begin(self, stores: int) -> None:
        for _ in range(stores):
            store = PostgresStore(self.url)
            store.connections.patience = 1.0
            store.connections.command_timeout = 5.0
            await store.open()
            self.stages.append(Stage(store, SystemClock()))  # type: ignore[arg-type]
        await self.stages[0].apply(*(declared(name, None, delay=20 * MILLISECOND) for name in SCHEDULES))
        for stage in self.stages:
            self.start_scheduler(stage)
            for actor in (self.produce, self.change, self.work, self.work, self.reap, self.trigger):
                self.tasks.append(asyncio.create_task(self.forever(actor, stage)))
        self.tasks.append(asyncio.create_task(self.break_things()))

    def start_scheduler(self, stage: Stage) -> None:
        stop = asyncio.Event()
        self.schedulers[asyncio.create_task(self.schedule(stage, stop))] = stop

    async def schedule(self, stage: Stage, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(FoliotError):
                owner = await stage.register("scheduler")
                await Dispatcher(stage.store, SystemClock(), owner=owner, lease_ttl=LEASE, batch=50).run(stop)

    async def forever(self, actor: Callable[[Stage], Awaitable[None]], stage: Stage) -> None:
        while self.going:
            try:
                await actor(stage)
            except (Conflict, UnknownName, LostOwnership) as error:
                self.told[type(error).__name__] += 1
            except FoliotError as error:
                self.told[type(error).__name__] += 1  # its answer was lost
            except Exception as error:  # never: an error of the driver is no answer
                self.surprises.append(error)
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.chance.uniform(0, 0.02))

    async def end(self) -> None:
        self.going = False
        for stop in self.schedulers.values():
            stop.set()
        await asyncio.gather(*self.tasks, *self.schedulers, return_exceptions=True)
        for stage in self.stages:
            await stage.store.close()

    # Actors

    async def produce(self, stage: Stage) -> None:
        if not self.chaos:
            await asyncio.sleep(0.1)
            return
        count = self.chance.choice([1, 1, 1, 1, 5, 40])
        wanted = [self.promise(stage, self.chance.random() < 0.3) for _ in range(count)]
        kept: list[Kept] = await stage.store.promise(wanted)
        for one, made in zip(wanted, kept, strict=True):
            self.acknowledged[made.number] = made.outcome
            if one.key:
                self.keys.append(one.key)

    def promise(self, stage: Stage, keyed: bool) -> Promise:
        due = stage.now + self.chance.choice([0, 0, 50, 300]) * MILLISECOND
        if not keyed:
            return Promise("job", b"{}", due)
        key = f"k:{self.chance.randrange(50)}" if self.chance.random() < 0.5 else f"n:{self.chance.getrandbits(60)}"
        mode = self.chance.choice([OnConflict.KEEP, OnConflict.KEEP, OnConflict.REPLACE, OnConflict.RENEW])
        return Promise("job", b"{}", due, key=key, on_conflict=mode)

    async def change(self, stage: Stage) -> None:
        await asyncio.sleep(0.02)
        if not self.keys or not self.chaos:
            return
        key = self.chance.choice(self.keys[-30:])
        if self.chance.random() < 0.5:
            await stage.store.move(key, None, stage.now + self.chance.choice([0, 100, 200]) * MILLISECOND)
        else:
            await stage.store.cancel_promise(key, None, actor="walk", note="")

    async def trigger(self, stage: Stage) -> None:
        await asyncio.sleep(0.2)
        if self.chaos:
            await stage.store.trigger(self.chance.choice(SCHEDULES), actor="walk", note="")

    async def work(self, stage: Stage) -> None:
        """Claims, and does with each run what a worker may do; one that is told to be dead registers anew."""
        worker = await stage.register()
        for _ in range(self.chance.choice([3, 30, 300])):
            if not self.going or not (await stage.store.beat(worker, [])).known:
                return
            runs = await stage.store.claim(worker, ["default"], ["job"], self.chance.choice([1, 5, 30]))
            self.running |= {run.token ^ run.number: run for run in runs}
            await asyncio.sleep(self.chance.uniform(0, 0.01))
            if self.chaos and self.chance.random() < 0.02:
                return  # vanishes with all that it has
            await self.finish(stage, worker, runs)
            if not runs:
                await asyncio.sleep(0.02)

    async def finish(self, stage: Stage, worker: int, runs: list[Claimed]) -> None:
        back = [run for run in runs if self.chance.random() < 0.05]
        rest = [run for run in runs if run not in back]
        endings = []
        for run in rest:
            ways = [stage.succeeded] * 12 + [stage.died, stage.interrupted] if run.spent < 3 else [stage.succeeded]
            how = self.chance.choice([*ways, self.fails(stage)] if run.spent < 3 else ways)
            endings.append(how(run))
        while back or endings:
            try:
                if back:
                    await stage.store.give_back(worker, back)
                    back = []
                fenced = await stage.store.finish(worker, endings) if endings else []
                refused = {(one.number, one.token) for one in fenced}
                for one in endings:
                    if (one.number, one.token) not in refused and one.outcome == "succeeded":
                        self.accepted[one.number] += 1
                endings = []
            except LostOwnership:
                raise
            except FoliotError:  # as a worker does: said again until it is heard
                await asyncio.sleep(0.01)
        for run in runs:
            self.running.pop(run.token ^ run.number, None)

    def fails(self, stage: Stage) -> Callable[[Claimed], Any]:
        return lambda run: stage.failed(run, self.chance.choice([0, 20]) * MILLISECOND)

    async def reap(self, stage: Stage) -> None:
        """Silence counts as loss very soon, and sometimes somebody who works is called lost."""
        await asyncio.sleep(0.1)
        silent = await stage.store.silent(stage.now - SECOND // 2)
        losses = [(one.number, one.token, one.attempt) for one in silent]
        if self.running and self.chaos and self.chance.random() < 0.5:
            run = self.chance.choice(list(self.running.values()))
            losses.append((run.number, run.token, run.attempt))
        for number, token, attempt in losses:
            lost = stage.lost(_claim(number, token, attempt), retry_at=stage.now + 10 * MILLISECOND)
            await stage.store.lose([lost])
            self.running.pop(token ^ number, None)

    async def break_things(self) -> None:
        """Schedulers vanish without a word, or freeze for longer than their lease; the network breaks."""
        while self.going:
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
            if not self.chaos:
                continue
            self.broken += 1
            what = self.chance.random() if self.broken != 2 or self.server is None else 0.7  # one crash at least
            if what < 0.3:
                victim = self.chance.choice(list(self.schedulers))
                self.schedulers.pop(victim)
                victim.cancel()
                self.start_scheduler(self.chance.choice(self.stages))
            elif what < 0.7:
                self.proxy.cut_all()
            elif what < 0.75 and self.server is not None:
                async with self.crashing:
                    await asyncio.to_thread(self.server.restart, "immediate")
            elif what < 0.9:
                where = self.chance.choice(["foliot.handoff", "foliot.run", "foliot.claim", "foliot.history"])
                self.chance.choice([self.proxy.cut_after_commit, self.proxy.cut_before_commit])(where)

    # The end

    async def drain(self) -> None:
        self.chaos = False
        async with self.crashing:  # until the server is there again
            judge = await asyncpg.connect(self.dsn)

        async def is_drained() -> bool:
            left = "SELECT count(*) FROM foliot.run WHERE state < 20 AND (schedule IS NULL OR origin <> 0)"
            return not await judge.fetchval(left)

        await until_async(is_drained, "each run but the next one of each schedule has ended")
        await judge.close()
        await self.stages[0].store.tidy()

    async def judge(self) -> None:
        judge = await asyncpg.connect(self.dsn)
        try:
            await self._judge(judge)
        finally:
            await judge.close()

    async def _judge(self, judge: Any) -> None:
        assert not self.surprises, self.surprises[:3]
        rows = await judge.fetch(
            "SELECT number, state, schedule, fire_at, fired_at, name FROM foliot.run "
            "UNION ALL SELECT number, state, schedule, fire_at, NULL, name FROM foliot.history"
        )
        seen = Counter(row[0] for row in rows)
        assert not [number for number, count in seen.items() if count > 1], "a run stands twice"
        missing = [number for number in self.acknowledged if number not in seen]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged promises are gone"
        final = {int(state) for state in TERMINAL | PARKED}
        waiting = [row for row in rows if row[1] not in final]
        assert {row[2] for row in waiting} <= set(SCHEDULES), f"never ended: {waiting[:3]}"
        assert Counter(row[2] for row in waiting) == Counter(SCHEDULES), f"not one next run of each schedule: {waiting}"
        twice = [number for number, count in self.accepted.items() if count > 1]
        assert not twice, f"more than one ending was accepted: {twice[:3]}"
        states = {row[0]: row[1] for row in rows}
        wrong = [number for number in self.accepted if states[number] != State.SUCCEEDED]
        assert not wrong, f"an accepted ending did not stay: {wrong[:3]}"
        names = Counter(row[5] for row in rows if row[5] is not None)
        assert not [name for name, count in names.items() if count > 1], "one name, two runs"
        assert await judge.fetchval("SELECT count(*) FROM foliot.history WHERE started_at < fire_at") == 0
        ticking = [row[0] for row in waiting]
        for table in ("claim", "handoff"):
            left = await judge.fetch(f"SELECT unnest(numbers) FROM foliot.{table}")
            assert {row[0] for row in left} <= set(ticking), table
        assert await judge.fetchval("SELECT count(*) FROM foliot.cancellation") == 0


def _claim(number: int, token: int, attempt: int) -> Claimed:
    nothing: list[Any] = [None] * len(Claimed._fields)
    return Claimed(*nothing)._replace(number=number, token=token, attempt=attempt)
