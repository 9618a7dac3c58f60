"""Random lives of runs under limits, keys and rates that change: a counter of handlers judges, and all due work drains.

The model knows the handlers that run, and nothing of slots. A real dispatcher and a real reaper work in virtual time: a
waiter whose scheduler is not told of it stays where it is, and the walk does not come to rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foliot.clock import ManualClock
from foliot.domain.gates import RESERVED_FOR, Gate
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed, Ending, OnConflict
from foliot.domain.state import PARKED, TERMINAL, Event, Outcome, State
from foliot.errors import Conflict, UnknownName
from foliot.watch.reaper import Reaper
from tests.contract.engines import Engine
from tests.contract.stage import START, Stage
from tests.contract.test_backlog import Scheduler
from tests.tiers import by_tier

KEYS = {"account:1": 1, "account:2": 2}
"""How many runs with the key, of one tenant, may run at a time."""
QUEUES = ("default", "mail")
TENANTS = ("acme", "bolt")
GATES = ("job:job", "queue:default", "queue:mail", "tenant:*", "tenant:acme", "to:bank")
SLOTS = ("job:job", "queue:default", "queue:mail", "tenant:acme", "tenant:bolt", "to:bank")
DONE = TERMINAL | PARKED
UNLIMITED = 1_000_000


@dataclass
class Handler:
    """One that runs in a worker."""

    run: Claimed
    worker: int
    slots: tuple[str, ...]
    key: str | None
    is_check: bool


@dataclass
class Allowed:
    """How many handlers may run with one slot. The rules that a limit promises, without the rows that keep them."""

    most: int | None = None
    every: Duration | None = None
    burst: int = 1
    cap: int = UNLIMITED
    """Handlers that may run now. A lower limit counts for runs that take their slots from then on."""
    uncounted: set[int] = field(default_factory=set)
    """Runs that were handed off before there was a limit."""
    starts: list[Instant] = field(default_factory=list)

    def change(self, gate: Gate | None, running: set[int], *, is_set: bool) -> None:
        """A rate begins again when it is set."""
        most, every, burst = (gate.most, gate.every, gate.burst or 1) if gate is not None else (None, None, 1)
        if most is None:
            self.cap, self.uncounted = UNLIMITED, set()
        elif self.most is None:
            self.cap, self.uncounted = most, set(running)
        else:
            self.cap = max(self.cap, most)
        if (every, burst) != (self.every, self.burst) or is_set:
            self.starts.clear()
        self.most, self.every, self.burst = most, every, burst

    def settle(self, running: set[int]) -> None:
        """Each run that has a slot is running."""
        if self.most is not None:
            self.cap = max(self.most, len(running - self.uncounted))

    def judge(self, name: str, running: set[int]) -> None:
        count = len(running - self.uncounted)
        assert count <= self.cap, f"{count} handlers run with {name}, {self.cap} may"
        if self.every is not None:
            self._judge_rate(name, self.every)

    def _judge_rate(self, name: str, every: Duration) -> None:
        """A few waiters have their times before others. If the scheduler is late, these start beside the next ones."""
        starts, given = sorted(self.starts), max(1, RESERVED_FOR // every)
        for first, began in enumerate(starts):
            for last in range(first, len(starts)):
                most = self.burst + given + (starts[last] - began) // every
                assert last - first + 1 <= most, f"{last - first + 1} starts by the rate of {name}, {most} may"


class Walk:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.any = Random(0)
        self.workers: list[int] = []
        self.scheduler: Scheduler
        self.schedules = asyncio.Lock()
        self.reaper = Reaper(stage.store, stage.clock, chance=lambda: 0.5)
        self.handlers: dict[int, Handler] = {}
        self.gates: dict[str, Gate] = {}
        self.allowed = {name: Allowed() for name in SLOTS}
        self.promised: list[str] = []
        self.forced: set[int] = set()
        """Runs that an operator let go, against limits."""
        self.with_key: set[int] = set()
        """The same runs, until they are changed: between two attempts a run keeps its key."""
        self.returned: set[int] = set()
        """Runs that were given back: the rate has counted their start."""
        self.between: dict[int, Handler] = {}
        """Runs between two attempts: they keep their keys."""
        self.stopping: set[int] = set()
        """Runs that an operator asked to stop: they are not tried again."""
        self.unchecked: set[int] = set()
        """Runs whose check begins again: it takes no slots beside those of its run."""

    async def begin(self) -> None:
        self.workers = [await self._register() for _ in range(2)]
        self.scheduler = await Scheduler.started(self.stage)
        await self.limit()

    async def _register(self) -> int:
        return await self.stage.register(queues=QUEUES)

    async def step(self, name: str, seed: int) -> None:
        self.any = Random(seed)
        await getattr(self, name)()
        self.judge()

    async def together(self) -> None:
        """Several at once. On PostgreSQL their transactions meet."""
        acts = [self.promise, self.fire, self.claim, self.claim, self.finish, self.finish, self.complete, self.cancel]
        acts += [self.move, self.replace, self.give_back]
        await asyncio.gather(*(self.any.choice(acts)() for _ in range(4)))

    # The model

    def _counted(self, slot: str) -> set[int]:
        return {n for n, one in self.handlers.items() if slot in one.slots and n not in self.forced}

    def judge(self) -> None:
        for slot, allowed in self.allowed.items():
            allowed.judge(slot, self._counted(slot))
        keys = Counter(
            (one.key, one.run.tenant)
            for n, one in [*self.handlers.items(), *self.between.items()]
            if one.key is not None and n not in self.with_key
        )
        for (key, tenant), count in keys.items():
            assert count <= KEYS[key], f"{count} runs have the key {key} of {tenant}, {KEYS[key]} may"

    def _effective(self, slot: str) -> Gate | None:
        gate = self.gates.get(slot)
        if slot.startswith("tenant:") and gate is None:
            return self.gates.get("tenant:*")
        return gate

    def _changed(self, name: str) -> None:
        for slot, allowed in self.allowed.items():
            is_set = name in (slot, "tenant:*")
            allowed.change(self._effective(slot), self._counted(slot) | self.unchecked, is_set=is_set)

    def _over(self, number: int) -> None:
        """The run needs its slots again before it runs again."""
        self.forced.discard(number)
        self.returned.discard(number)
        for allowed in self.allowed.values():
            allowed.uncounted.discard(number)

    def _changed_run(self, number: int) -> None:
        self._over(number)
        self.with_key.discard(number)
        self.between.pop(number, None)

    # Promises

    def _wishes(self) -> bytes | None:
        key = self.any.choice([None, None, *KEYS])
        wishes: dict[str, Any] = {} if key is None else {"concurrency_key": key, "key_limit": KEYS[key]}
        if self.any.random() < 0.3:
            wishes["destination"] = "bank"
        return choices_to_json(choices(wishes)) if wishes else None

    async def promise(self) -> None:
        for _ in range(self.any.choice([1, 2, 8])):
            name, tenant = f"promise:{len(self.promised)}", self.any.choice([None, None, *TENANTS])
            self.promised.append(name if tenant is None else f"{name}[{tenant}]")
            await self._promise(name, tenant, self.any.choice([0, 0, 0, SECOND]))

    async def _promise(self, name: str, tenant: str | None, after: Duration, **more: Any) -> int:
        queue, priority = self.any.choice([None, "mail"]), self.any.choice([0, 5])
        options = self._wishes()
        given = {"options": options, "queue": queue, "priority": priority, "tenant": tenant} | more
        return (await self.stage.promise(name, after=after, **given)).number

    def _chosen(self) -> tuple[str, str | None]:
        name, _, tenant = self.any.choice(self.promised[-12:]).partition("[")
        return name, tenant.removesuffix("]") or None

    async def move(self) -> None:
        if self.promised:
            at = self.stage.now + self.any.choice([-SECOND, 0, 0, SECOND])
            with suppress(Conflict, UnknownName):
                self._changed_run((await self.stage.store.move(*self._chosen(), at)).number)

    async def replace(self) -> None:
        """Another time, priority, queue and key, or the same ones again."""
        if self.promised:
            with suppress(Conflict):
                after = self.any.choice([0, 0, SECOND])
                self._changed_run(await self._promise(*self._chosen(), after, on_conflict=OnConflict.REPLACE))

    async def change_handed_off(self) -> None:
        """What chunks still name is claimed before the scheduler hears of the changes, and after that."""
        await self.fire()
        for _ in range(4):
            await self.any.choice([self.move, self.replace])()
        await self._claim_all()
        await self._pass(SECOND)
        await self._claim_all()
        await self.fire()
        await self._claim_all()

    async def cancel(self) -> None:
        if self.promised:
            chosen = self._chosen()
            name = f"{chosen[0]}[" if chosen[1] else f"{chosen[0]}#"
            for number, one in [*self.between.items(), *self.handlers.items()]:
                if (one.run.name or "").startswith(name):
                    self.stopping.add(number)
                    self.between.pop(number, None)
            with suppress(Conflict, UnknownName):
                await self.stage.store.cancel_promise(*chosen, actor="ana", note="")

    async def release(self) -> None:
        held = await self.stage.store.runs(states=[State.HELD], limit=100)
        if held:
            chosen = self.any.choice(held)
            await self.stage.store.release_run(chosen.id, actor="ana", note="")
            self.forced.add(chosen.number)
            self.with_key.add(chosen.number)

    async def revive(self) -> None:
        for run in await self.stage.store.runs(states=sorted(PARKED), limit=1):
            if run.state is State.DEAD:
                await self.stage.store.retry(run.id, override=False, actor="ana", note="")
            else:
                await self.stage.store.reconcile(run.id, settled=(), actor="ana", evidence="looked")

    # Handlers

    async def claim(self) -> None:
        await self._claim(self.any.choice(self.workers), self.any.choice([1, 3, 100]))

    async def _claim(self, worker: int, limit: int) -> int:
        runs = await self.stage.store.claim(worker, QUEUES, ["job", "job?"], limit)
        for run in runs:
            assert run.number not in self.handlers, f"{run.id} runs twice"
            self.handlers[run.number] = self._begun(run, worker)
            self.between.pop(run.number, None)
        fresh = [run for run in runs if run.phase is None and run.number not in self.forced | self.returned]
        if fresh and any(one.every for one in self.allowed.values()):
            await self._note_starts(fresh)
        self.returned -= {run.number for run in runs}
        return len(runs)

    def _begun(self, run: Claimed, worker: int) -> Handler:
        wishes = (run.options or b"").decode()
        key = next((key for key in KEYS if key in wishes), None)
        slots = ["job:job", f"queue:{run.queue or 'default'}"]
        slots += [] if run.tenant is None else [f"tenant:{run.tenant}"]
        slots += ["to:bank"] if "bank" in wishes else []
        return Handler(run, worker, tuple(slots), key, run.phase is not None)

    async def _note_starts(self, runs: list[Claimed]) -> None:
        numbers = {run.number for run in runs}
        for view in await self.stage.store.runs(states=[State.RUNNING], limit=1000):
            if view.number in numbers and view.number in self.handlers:
                assert view.fired_at is not None
                for slot in self.handlers[view.number].slots:
                    if self.allowed[slot].every is not None:
                        self.allowed[slot].starts.append(view.fired_at)

    async def settle(self) -> None:
        """Afterwards each run that has a slot is running."""
        await self._pass(SECOND)
        await self.fire()
        await self._claim_all()
        for slot, allowed in self.allowed.items():
            allowed.settle(self._counted(slot))

    async def _claim_all(self) -> None:
        for worker in self.workers:
            while await self._claim(worker, 100):
                pass

    def _pick(self, most: int, *, checks: bool | None = None) -> list[Handler]:
        fit = [number for number, one in sorted(self.handlers.items()) if checks in (None, one.is_check)]
        return [self.handlers.pop(number) for number in self.any.sample(fit, min(most, len(fit)))]

    async def finish(self) -> None:
        ended = self._pick(self.any.choice([1, 2, 9]))
        for worker in self.workers:
            await self._finish(worker, [self._ending(one) for one in ended if one.worker == worker])

    def _ending(self, one: Handler) -> Ending:
        stage, run = self.stage, one.run
        if one.is_check and self.any.random() < 0.3:
            self.unchecked.add(run.number)
            return stage.interrupted(run)
        if one.is_check:
            self._over(run.number)
            return stage.ending(run, Event.CHECK_PASSED, Outcome.SUCCEEDED)
        if self.any.random() < 0.1:
            return stage.checkable(run)
        self._over(run.number)
        ways = [stage.succeeded] * 6 + [stage.failed, stage.died, stage.interrupted, stage.puzzled, stage.stopped]
        ending = self.any.choice(ways)(run)
        if ending.event in (Event.RETRY_GRANTED, Event.GIVEN_BACK) and run.number not in self.stopping:
            self.between[run.number] = one
        return ending

    async def _finish(self, worker: int, endings: list[Ending]) -> None:
        if endings:
            fenced = await self.stage.store.finish(worker, endings)
            assert fenced == [], "the attempt owns its run"

    async def complete(self) -> None:
        """In a transaction of the handler's, which commits or rolls back."""
        for one in self._pick(1, checks=False):
            is_committed, transaction = self.any.random() < 0.8, self.stage.store.transaction()
            is_owned = True
            try:
                await transaction.begin()
                is_owned = await transaction.finish(one.worker, self.stage.succeeded(one.run))
                await (transaction.commit if is_committed else transaction.roll_back)()
            except Exception:  # inside of it errors are the driver's own
                is_committed = False
                await transaction.roll_back()
            assert is_owned, "the attempt owns its run"
            if not is_committed:
                self.handlers[one.run.number] = one

    async def give_back(self) -> None:
        back = self._pick(2, checks=False)
        for worker in self.workers:
            runs = [one.run for one in back if one.worker == worker]
            self.returned |= {run.number for run in runs}
            await self.stage.store.give_back(worker, runs)

    async def lose(self) -> None:
        """The attempt was called lost, and its worker is late: its ending is refused."""
        for one in self._pick(1, checks=False):
            self._over(one.run.number)
            await self.stage.store.lose([self.stage.lost(one.run, retry_at=self.stage.now + SECOND)])
            if self.any.random() < 0.5:
                late = self.stage.succeeded(one.run)
                assert await self.stage.store.finish(one.worker, [late]) == [late]
        await self._beat()

    async def vanish(self) -> None:
        """A worker dies with its handlers. The watch finds out when its lease has ended."""
        gone = self.any.choice(self.workers)
        self.workers.remove(gone)
        self.workers.append(await self._register())
        for number, one in list(self.handlers.items()):
            if one.worker == gone:
                del self.handlers[number]
                if one.is_check:
                    self.unchecked.add(number)
                else:
                    self._over(number)

    async def watch(self) -> None:
        for _ in range(self.any.choice([1, 8])):
            await self._pass(5 * SECOND)
            await self.reaper.run_once()

    # Limits

    async def limit(self) -> None:
        """What was handed off before there was a limit runs first: the model counts it apart."""
        most = self.any.choice([None, 1, 2, 3, 7])
        every = self.any.choice([None, None, 200 * MILLISECOND, SECOND]) if most else SECOND
        gate = Gate(self.any.choice(GATES), most, every, self.any.choice([None, 3]) if every else None)
        await self._claim_all()
        await self.stage.store.set_limit(gate, actor="ana")
        self.gates[gate.name] = gate
        self._changed(gate.name)

    async def unlimit(self) -> None:
        await self._claim_all()
        name = self.any.choice(GATES)
        if self.gates.pop(name, None) is not None:
            await self.stage.store.drop_limit(name, actor="ana", note="")
        self._changed(name)

    # Schedulers and time

    async def fire(self) -> None:
        async with self.schedules:  # one dispatcher does one thing at a time
            await self.scheduler.fire()

    async def take_over(self) -> None:
        """A scheduler dies; another one takes its shard when the lease has ended."""
        await self._pass(6 * SECOND)
        self.scheduler = await Scheduler.started(self.stage)

    async def wait(self) -> None:
        await self._pass(self.any.choice([SECOND, SECOND, MINUTE]))

    async def _pass(self, length: Duration) -> None:
        self.stage.clock.advance(length)
        await self._beat()

    async def _beat(self) -> None:
        """A worker that lost all its attempts was declared dead, and registers again."""
        for place, worker in enumerate(self.workers):
            if not (await self.stage.store.beat(worker, [])).known:
                self.workers[place] = await self._register()

    async def come_to_rest(self) -> list[str]:
        """All handlers succeed from here on. What has not ended after that."""
        self.any = Random(1)
        left = []
        for _ in range(40 + 2 * len(self.promised)):
            await self._pass(SECOND)
            await self.fire()
            await self._claim_all()
            self.judge()
            for worker in self.workers:
                mine = [one for one in self.handlers.values() if one.worker == worker]
                for one in mine:
                    del self.handlers[one.run.number]
                    self._over(one.run.number)
                await self._finish(worker, [self._well(one) for one in mine])
            await self.watch()
            left = [run for run in await self.stage.store.runs(limit=1000) if run.state not in DONE]
            if not left:
                return []
        return [f"{run.id} is {run.state}: {run.reason} {run.detail}" for run in left]

    def _well(self, one: Handler) -> Ending:
        if one.is_check:
            return self.stage.ending(one.run, Event.CHECK_PASSED, Outcome.SUCCEEDED)
        return self.stage.succeeded(one.run)


OFTEN = ["fire", "claim", "promise", "finish"]
ACTS = [
    *OFTEN * 4,
    "settle",
    "settle",
    "together",
    "together",
    "complete",
    "complete",
    "change_handed_off",
    "move",
    "replace",
    "limit",
]
ACTS += ["wait", "cancel", "release", "revive", "give_back", "lose", "vanish", "watch", "unlimit", "take_over"]
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 1 << 20)), min_size=40, max_size=140)


async def walked(store_of: Callable[[ManualClock], Any], steps: list[tuple[str, int]]) -> None:
    clock = ManualClock(START)
    store = store_of(clock)
    await store.open()
    try:
        walk = Walk(Stage(store, clock))
        await walk.begin()
        for name, seed in steps:
            await walk.step(name, seed)
        await drained(walk)
    finally:
        await store.close()


async def drained(walk: Walk) -> None:
    """All due work ends, and no slot is taken or waited for afterwards."""
    assert await walk.come_to_rest() == []
    for view in await walk.stage.store.limits():
        assert (view.used, view.waiting) == (0, 0), view


def test_never_more_handlers_run_than_limits_allow_and_no_run_is_forgotten(
    engine: Engine, folder: Path, runner: asyncio.Runner, request: pytest.FixtureRequest
) -> None:
    @settings(max_examples=by_tier(3, 30, 2_500), suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def walks(steps: list[tuple[str, int]]) -> None:
        for file in folder.iterdir():
            file.unlink()
        runner.run(walked(lambda clock: engine.make(request, folder, clock), steps))

    walks()
