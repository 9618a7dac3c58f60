"""Slots under several schedulers and workers at one moment: no limit is broken, nobody is held for ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from foliot.clock import SystemClock
from foliot.dispatch import Dispatcher
from foliot.domain.gates import Gate
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Claimed, Promise
from foliot.errors import Conflict
from foliot.store.verbs import firing
from tests.contract.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.store.lines import stages
from tests.tiers import by_tier
from tests.waiting import until_async

RUNS, KEYS = by_tier(50, 150), 5


async def test_live_runs_are_fired_in_one_statement_whatever_is_said_of_other_lanes(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stages(postgres, 1) as (_, [stage]):
        await stage.store.set_limit(Gate("lane:backfill", most=1), actor="ana")
        await stage.store.set_limit(Gate("lane:catch-up/job:job", most=1), actor="ana")
        await stage.promise()
        monkeypatch.delattr(firing, "fire")  # all that needs more thought
        assert (await stage.fire()).handed_off == 1


class House:
    """Several processes' worth of schedulers and workers on one database."""

    def __init__(self, them: list[Stage]) -> None:
        self.them = them
        self.busy: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: set[int] = set()
        self.over = asyncio.Event()

    async def scheduling(self, stage: Stage) -> None:
        number = await stage.register("scheduler")
        dispatcher = Dispatcher(stage.store, SystemClock(), owner=number)
        await dispatcher.run(self.over)

    async def working(self, stage: Stage, key_of: dict[int, str], chance: random.Random) -> None:
        worker = await stage.register("worker")
        while not self.over.is_set():
            claimed = await stage.store.claim(worker, ["default"], ["job"], 4)
            if not claimed:
                await asyncio.sleep(0.002)
                continue
            for run in claimed:
                self._begin(key_of[run.number])
            await asyncio.sleep(chance.random() / 500)
            await self._end(stage, worker, claimed, key_of, chance)

    def _begin(self, key: str) -> None:
        self.busy[key] += 1
        self.most[key] = max(self.most[key], self.busy[key])

    async def _end(
        self, stage: Stage, worker: int, claimed: list[Claimed], key_of: dict[int, str], chance: random.Random
    ) -> None:
        endings = []
        for run in claimed:
            self.busy[key_of[run.number]] -= 1
            again = run.attempt == 1 and chance.random() < 0.2
            endings.append(stage.failed(run, 10_000) if again else stage.succeeded(run))
            if not again:
                self.done.add(run.number)
        await stage.store.finish(worker, endings)

    async def meddling(self, stage: Stage, numbers: list[str], chance: random.Random) -> None:
        """An operator who changes a limit again and again, and lets single runs go or cancels them."""
        while not self.over.is_set():
            await stage.store.set_limit(Gate("job:job", most=chance.choice([2, 3, 8])), actor="ana")
            for act in (stage.store.cancel, stage.store.release_run):
                with suppress(Conflict):
                    await act(chance.choice(numbers), actor="ana", note="")
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("meddled", [False, True], ids=["undisturbed", "with an operator"])
async def test_keys_are_kept_and_everybody_comes_to_his_turn(postgres: PostgresServer, meddled: bool) -> None:
    chance = random.Random(7)
    async with stages(postgres, 4, shards=8) as (judge, them):
        house = House(them)
        await them[0].store.set_limit(Gate("job:job", most=6), actor="ana")
        wanted = [f"account:{n % KEYS}" for n in range(RUNS)]
        kept = await them[0].store.promise(
            [
                Promise("job", b"{}", them[0].now, options=choices_to_json(choices({"concurrency_key": key})))
                for key in wanted
            ]
        )
        key_of = {one.number: key for one, key in zip(kept, wanted, strict=True)}
        tasks = [asyncio.create_task(house.scheduling(stage)) for stage in them[:2]]
        tasks += [asyncio.create_task(house.working(stage, key_of, random.Random(n))) for n, stage in enumerate(them)]
        if meddled:
            tasks.append(asyncio.create_task(house.meddling(them[3], [one.id for one in kept], chance)))

        async def have_ended() -> bool:
            return not await judge.fetchval("SELECT count(*) FROM foliot.run")

        await until_async(have_ended, "all runs have ended")
        house.over.set()
        await asyncio.gather(*tasks)
        assert meddled or set(house.most.values()) == {1}  # who is released runs beside the others
        ended = await judge.fetchval("SELECT count(*) FROM foliot.history")
        assert ended == RUNS
        assert meddled or len(house.done) == RUNS
        assert await judge.fetchval("SELECT count(*) FROM foliot.slot WHERE used <> 0") == 0
