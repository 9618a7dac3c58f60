"""Random lives of runs under one changing limit and under keys: a counter of handlers judges, and all runs end."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from foliot.domain.gates import Gate
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed, OnConflict
from foliot.domain.state import PARKED, TERMINAL
from foliot.errors import Conflict, UnknownName
from tests.contract.stage import Stage
from tests.tiers import by_tier

SEEDS = range(by_tier(2, 12, 200))
STEPS = by_tier(120, 250)
KEYS = {"account:1": 1, "account:2": 2}
"""How many runs with the key may run at a time."""
LIMITS = (1, 2, 3, 7)
DONE = TERMINAL | PARKED


class Walk:
    """The counter knows the handlers that run, and nothing of slots.

    A lower limit counts for runs that take their slots from then on. Once each run that had a slot before is running,
    only these runs may exceed it."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.any = Random(seed)
        self.running: dict[int, Claimed] = {}
        self.key_of: dict[int, str | None] = {}
        self.promised: list[str] = []
        self.limit = 7
        self.bound = 7

    async def step(self) -> None:
        acts = [self.promise] * 5 + [self.fire] * 5 + [self.claim] * 4 + [self.claim_all] * 2 + [self.finish] * 7
        acts += [self.cancel, self.change, self.lose, self.give_back, self.wait, self.beat]
        acts += [self.move, self.replace] * 2
        await self.any.choice(acts)()
        self.judge()

    def judge(self) -> None:
        assert len(self.running) <= self.bound, f"{len(self.running)} handlers run, {self.bound} may"
        busy = Counter(self.key_of[number] for number in self.running)
        assert all(key is None or count <= KEYS[key] for key, count in busy.items()), busy

    def _wishes(self) -> tuple[str | None, bytes | None]:
        key = self.any.choice([None, None, *KEYS])
        wishes: dict[str, Any] = {} if key is None else {"concurrency_key": key, "key_limit": KEYS[key]}
        if self.any.random() < 0.2:
            wishes["destination"] = "bank"
        return key, choices_to_json(choices(wishes)) if wishes else None

    async def promise(self) -> None:
        for _ in range(self.any.choice([1, 1, 5])):
            key, options = self._wishes()
            after, name = self.any.choice([0, 0, SECOND, MINUTE]), f"promise:{len(self.promised)}"
            kept = await self.stage.promise(name, options=options, priority=self.any.choice([0, 5]), after=after)
            self.promised.append(kept.id)
            self.key_of[kept.number] = key

    async def move(self) -> None:
        if self.promised:
            at = self.stage.now + self.any.choice([-SECOND, 0, 0, SECOND])
            with suppress(Conflict):
                await self.stage.store.move(self._any_key(), None, at)

    async def replace(self) -> None:
        """Another time, priority and key, or the same ones again."""
        if self.promised:
            key, options = self._wishes()
            more: dict[str, Any] = {"after": self.any.choice([0, 0, SECOND]), "priority": self.any.choice([0, 5])}
            with suppress(Conflict):
                name = self._any_key()
                kept = await self.stage.promise(name, options=options, on_conflict=OnConflict.REPLACE, **more)
                self.key_of[kept.number] = key

    def _any_key(self) -> str:
        return self.any.choice(self.promised[-10:]).removesuffix("#1")

    async def fire(self) -> None:
        await self.stage.fire_by_policy()

    async def claim(self) -> None:
        for run in await self.stage.claim(self.any.choice([1, 3])):
            self.running[run.number] = run

    async def claim_all(self) -> None:
        """Afterwards each run that has a slot is running."""
        await self.fire()
        while claimed := await self.stage.claim():
            self.running |= {run.number: run for run in claimed}
        self.judge()
        self.bound = max(self.limit, len(self.running))

    def _pick(self, most: int = 1) -> list[Claimed]:
        numbers = self.any.sample(sorted(self.running), min(most, len(self.running)))
        return [self.running.pop(number) for number in numbers]

    async def finish(self) -> None:
        ends = [self.stage.succeeded] * 6 + [self.stage.failed, self.stage.died, self.stage.interrupted]
        await self.stage.finish(*[self.any.choice(ends)(run) for run in self._pick(self.any.choice([1, 2, 9]))])

    async def lose(self) -> None:
        await self.stage.store.lose([self.stage.lost(run, retry_at=self.stage.now + MINUTE) for run in self._pick()])

    async def give_back(self) -> None:
        await self.stage.store.give_back(await self.stage.worker(), self._pick(2))

    async def beat(self) -> None:
        self.stage.clock.advance(2 * SECOND)
        await self.stage.store.beat(await self.stage.worker(), [])

    async def cancel(self) -> None:
        waiting = sorted(set(self.promised) - {run.id for run in self.running.values()})
        if waiting:
            with suppress(Conflict, UnknownName):
                await self.stage.store.cancel(self.any.choice(waiting), actor="ana", note="")

    async def change(self) -> None:
        if self.any.random() < 0.2:
            with suppress(UnknownName):
                await self.stage.store.drop_limit("job:job", actor="ana", note="")
            self.limit = self.bound = 1_000_000
            return
        lower = self.any.choice(LIMITS)
        if self.limit > 7:
            # What runs or is handed off without the limit does not count for it.
            await self._drain()
        self.limit = lower
        self.bound = max(self.bound if self.bound <= 7 else 0, lower)
        await self.stage.store.set_limit(Gate("job:job", most=lower), actor="ana")

    async def _drain(self) -> None:
        while True:
            self.running |= {run.number: run for run in await self.stage.claim()}
            if not self.running:
                return
            await self.stage.finish(*[self.stage.succeeded(run) for run in self._pick(1_000)])

    async def wait(self) -> None:
        self.stage.clock.advance(self.any.choice([SECOND, MINUTE]))

    async def come_to_rest(self) -> list[str]:
        """All handlers succeed from here on. What has not ended after that."""
        await self.stage.finish(*[self.stage.succeeded(run) for run in self._pick(1_000)])
        left = []
        for _ in range(400):
            self.stage.clock.advance(30 * SECOND)
            await self.fire()
            for run in await self.stage.claim():
                self.running[run.number] = run
            self.judge()
            await self.stage.finish(*[self.stage.succeeded(run) for run in self._pick(1_000)])
            left = [run for run in await self.stage.store.runs(limit=1000) if run.state not in DONE]
            if not left:
                return []
        return [f"{run.id} is {run.state}: {run.reason} {run.detail}" for run in left]


@pytest.mark.parametrize("seed", SEEDS)
async def test_never_more_handlers_run_than_a_changing_limit_allows_and_no_run_is_forgotten(
    stage: Stage, seed: int
) -> None:
    walk = Walk(stage, seed)
    await stage.store.set_limit(Gate("job:job", most=walk.limit), actor="ana")
    for _ in range(STEPS):
        await walk.step()
    assert await walk.come_to_rest() == []
    for view in await stage.store.limits():
        assert (view.used, view.waiting) == (0, 0), view
