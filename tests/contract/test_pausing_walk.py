"""Pauses come and go at random while work is promised, fired, claimed and tried again: nothing that is paused is ever
claimed, and once nothing is paused any more everything comes to its end."""

from __future__ import annotations

from random import Random

import pytest

from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.pauses import What, holding
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import Claimed
from foliot.domain.state import State
from foliot.timing import every
from tests.contract.stage import Stage, declared
from tests.tiers import by_tier

JOBS, TENANTS, QUEUES = ["job", "other"], [None, "acme"], [None, "mail"]
NAMES = ["job:job", "job:other", "tenant:acme", "queue:default", "queue:mail", "schedule:often"]
SEEDS = range(by_tier(1, 5, 100))
POLICY = Policy(overlap=Overlap.ALLOW)


class Walk:
    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = Random(seed)
        self.running: list[Claimed] = []
        self.claimed = 0

    async def step(self) -> None:
        stage, chance = self.stage, self.chance
        match chance.randrange(8):
            case 0 | 1:
                whose = {"tenant": chance.choice(TENANTS), "queue": chance.choice(QUEUES)}
                job, after = chance.choice(JOBS), chance.choice([0, 0, MINUTE])
                await stage.promise(None, job=job, after=after, **whose)
            case 2:
                until = chance.choice([None, stage.now + chance.randrange(1, 120) * SECOND])
                what = chance.choice(list(What))
                await stage.store.put_pause(chance.choice(NAMES), what, until=until, actor="ada", note="walk")
            case 3:
                what, catch_up = chance.choice(list(What)), chance.random() < 0.5
                await stage.store.end_pause(chance.choice(NAMES), what, actor="bob", note="walk", catch_up=catch_up)
            case 4:
                stage.clock.advance(chance.randrange(30) * SECOND)
            case 5:
                await stage.fire_by_policy()
            case 6:
                await self.claim()
            case 7:
                await self.finish()

    async def claim(self) -> None:
        paused = await self.stage.store.pauses()
        for one in await self.stage.claim(3, queues=["default", "mail"], jobs=JOBS):
            assert holding(paused, _names(one), one.attempt > 1, self.stage.now) is None, (one, paused)
            self.running.append(one)
            self.claimed += 1

    async def finish(self) -> None:
        if self.running:
            one = self.running.pop(self.chance.randrange(len(self.running)))
            ending = self.stage.succeeded(one)
            if one.attempt < 3 and self.chance.random() < 0.5:
                ending = self.stage.failed(one, 10 * SECOND)
            assert await self.stage.finish(ending) == []

    async def come_to_an_end(self) -> None:
        for one in await self.stage.store.pauses():
            await self.stage.store.end_pause(one.name, one.what, actor="bob", note="over")
        await self.stage.store.delete("often", actor="bob", note="over")
        for _ in range(40):
            self.stage.clock.advance(20 * SECOND)
            await self.stage.fire_by_policy()
            await self.claim()
            while self.running:
                await self.finish()


def _names(one: Claimed) -> list[str]:
    names = [f"job:{one.job}", f"queue:{one.queue or 'default'}"]
    names += [f"tenant:{one.tenant}"] if one.tenant else []
    return names + ([f"schedule:{one.schedule}"] if one.schedule else [])


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_that_is_paused_is_claimed_and_nothing_is_forgotten(stage: Stage, seed: int) -> None:
    rule = every("40s")
    first = rule.next(stage.now)
    await stage.apply(declared("often", first, rule=rule.encode(), policy=POLICY, queue="mail", tenant="acme"))
    walk = Walk(stage, seed)
    for _ in range(120):
        await walk.step()
    await walk.come_to_an_end()
    assert walk.claimed > 10
    runs = await stage.store.runs(limit=1_000)
    assert {run.state for run in runs} <= {State.SUCCEEDED, State.SKIPPED}, [run for run in runs if run.state < 10]
