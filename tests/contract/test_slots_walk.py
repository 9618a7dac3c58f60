"""Random lives of runs that need keys, slots and rates: no limit is ever broken, and nothing is held for ever."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy, choices, choices_to_json
from foliot.domain.run import Claimed
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.domain.store import DEFAULT_QUEUE, Offer, PassedSlot, StandbyRequest
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from tests.contract.stage import Stage, declared
from tests.tiers import by_tier

SEEDS = range(by_tier(1, 5, 60))
STEPS = 150
KEYS = ("account:1", "account:2")
LIMITS = ("job:job", "tenant:*", "tenant:acme", "queue:default", "to:bank")
DONE = TERMINAL | PARKED


class Walk:
    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.any = Random(seed)
        self.running: dict[int, tuple[Claimed, str | None]] = {}
        self.keys: dict[int, str] = {}
        self.promised: list[str] = []
        self.forced: set[str] = set()
        self.standbys: dict[int, Claimed] = {}

    async def step(self) -> None:
        actions = [self.promise] * 6 + [self.fire] * 6 + [self.claim] * 6 + [self.finish] * 6 + [self.exchange] * 6
        actions += [
            self.cancel,
            self.release,
            self.limit,
            self.unlimit,
            self.lose,
            self.wait,
            self.reconcile,
            self.pause,
            self.give_back,
        ]
        await self.any.choice(actions)()
        busy = Counter(key for _, key in self.running.values() if key is not None)
        assert all(count == 1 for count in busy.values()), busy

    async def promise(self) -> None:
        wishes: dict[str, Any] = {}
        key = self.any.choice([None, *KEYS])
        if key is not None:
            wishes["concurrency_key"] = key
        if self.any.random() < 0.3:
            wishes["destination"] = "bank"
        kept = await self.stage.promise(
            options=choices_to_json(choices(wishes)),
            tenant=None if key else self.any.choice([None, "acme", "bolt"]),
            priority=self.any.choice([0, 0, 5]),
            after=self.any.choice([0, SECOND, MINUTE]),
        )
        self.promised.append(kept.id)
        if key is not None:
            self.keys[kept.number] = key

    async def fire(self) -> None:
        await self.stage.fire_by_policy()

    async def claim(self) -> None:
        self.begin(await self.stage.claim(self.any.choice([1, 2, 10])))

    def begin(self, claimed: list[Claimed]) -> None:
        for run in claimed:
            if run.standby:
                self.standbys[run.number] = run
                continue
            key = "account:1" if run.schedule == "hourly" else self.keys.get(run.number)
            self.running[run.number] = run, None if run.id in self.forced else key

    async def finish(self) -> None:
        if not self.running:
            return
        number = self.any.choice(sorted(self.running))
        run, _ = self.running.pop(number)
        how = self.any.choice([self.stage.succeeded] * 4 + [self.stage.failed, self.stage.died, self.stage.interrupted])
        await self.stage.finish(how(run))

    async def exchange(self) -> None:
        """A run ends well, a standby of its slot begins, and the store claims what it can."""
        ended, passed = [], []
        if self.running:
            number = self.any.choice(sorted(self.running))
            run, _ = self.running.pop(number)
            ended.append(self.stage.succeeded(run))
            heirs = [one for one in self.standbys.values() if run.slot is not None and one.slot == run.slot]
            if heirs and run.id not in self.forced:
                heir = self.standbys.pop(heirs[0].number)
                self.running[heir.number] = heir, self.keys.get(heir.number)
                passed.append(PassedSlot(run.number, run.token, heir.number, heir.token))
        requests = [StandbyRequest(f"key:{self.any.choice(KEYS)}", "job", 2), StandbyRequest("job:job", "job", 2)]
        offer = Offer([DEFAULT_QUEUE], ["job"], self.any.choice([0, 1, 5]), None, passed, requests)
        fenced, claimed = await self.stage.store.finish_and_claim(await self.stage.worker(), ended, offer)
        assert fenced == []
        self.begin(claimed)

    async def give_back(self) -> None:
        standbys, self.standbys = list(self.standbys.values()), {}
        if standbys:
            await self.stage.store.give_back(await self.stage.worker(), standbys)

    async def lose(self) -> None:
        if self.running:
            number = self.any.choice(sorted(self.running))
            run, _ = self.running.pop(number)
            await self.stage.store.lose([self.stage.lost(run, retry_at=self.stage.now + MINUTE)])

    async def cancel(self) -> None:
        owned = {claimed.id for claimed, _ in self.running.values()} | {one.id for one in self.standbys.values()}
        open_ones = [run for run in self.promised if run not in owned]
        if open_ones:
            try:
                await self.stage.store.cancel(self.any.choice(open_ones), actor="ana", note="")
            except (Conflict, UnknownName):
                return

    async def release(self) -> None:
        held = await self.stage.store.runs(states=[State.HELD], limit=100)
        if held and self.any.random() < 0.3:
            chosen = self.any.choice(held).id
            await self.stage.store.release_run(chosen, actor="ana", note="")
            self.forced.add(chosen)

    async def limit(self) -> None:
        gate = Gate(
            self.any.choice(LIMITS), most=self.any.choice([None, 1, 2, 3]), every=self.any.choice([None, SECOND])
        )
        await self.stage.store.set_limit(gate, actor="ana")

    async def unlimit(self) -> None:
        try:
            await self.stage.store.drop_limit(self.any.choice(LIMITS), actor="ana", note="")
        except UnknownName:
            return

    async def pause(self) -> None:
        if self.any.random() < 0.5:
            await self.stage.store.pause("hourly", until=self.stage.now + 90 * MINUTE, actor="ana", note="")
        else:
            await self.stage.store.resume("hourly", actor="ana", note="", catch_up=self.any.random() < 0.5)

    async def wait(self) -> None:
        self.stage.clock.advance(self.any.choice([SECOND, MINUTE, HOUR]))

    async def reconcile(self) -> None:
        for run in await self.stage.store.runs(states=sorted(PARKED), limit=1):
            await self.stage.store.reconcile(run.id, settled=(), actor="ana", evidence="looked")

    async def come_to_rest(self) -> list[str]:
        """Everything goes well from here on. Answers what is not done then."""
        await self.give_back()
        for run, _ in self.running.values():
            await self.stage.finish(self.stage.succeeded(run))
        await self.stage.store.delete("hourly", actor="ana", note="")
        for _ in range(400):
            self.stage.clock.advance(2 * SECOND)
            await self.fire()
            claimed = await self.stage.claim()
            await self.stage.finish(*[self.stage.succeeded(run) for run in claimed])
            left = [run for run in await self.stage.store.runs(limit=1000) if run.state not in DONE]
            if not left:
                return []
        return [f"{run.id} is {run.state}: {run.reason} {run.detail}" for run in left]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("overlap", ["queue", "coalesce", "replace"])
async def test_no_limit_is_broken_and_nothing_is_held_for_ever(stage: Stage, seed: int, overlap: str) -> None:
    walk = Walk(stage, seed)
    policy = Policy().merged(choices({"overlap": overlap, "concurrency_key": "account:1", "catch_up": "all"}))
    options = b'{"concurrency_key":"account:1"}'
    rule = every("1h").encode()
    await stage.apply(declared("hourly", stage.now, rule=rule, policy=policy, options=options))
    for _ in range(STEPS):
        await walk.step()
    assert await walk.come_to_rest() == []
    for view in await stage.store.limits():
        assert (view.used, view.waiting) == (0, 0), view
