"""Slots under several schedulers and workers at one moment: no limit is broken, nobody is held for ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

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

RUNS, KEYS, LIMIT = by_tier(50, 150), 5, 4


async def test_live_runs_are_fired_in_one_statement_whatever_is_said_of_other_lanes(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stages(postgres, 1) as (_, [stage]):
        await stage.store.set_limit(Gate("lane:backfill", most=1), actor="ana")
        await stage.store.set_limit(Gate("lane:catch-up/job:job", most=1), actor="ana")
        await stage.promise()
        monkeypatch.delattr(firing, "fire")  # all that needs more thought
        assert (await stage.fire()).handed_off == 1


async def test_the_next_run_is_found_without_a_look_at_the_others_that_wait(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
        numbers = [kept.number for kept in await stage.store.promise([Promise("job", b"{}", stage.now)] * 100)]
        await stage.fire()
        read = """SELECT sum(pg_stat_get_xact_tuples_returned(r.oid)) FROM (
            SELECT indexrelid AS oid FROM pg_index WHERE indrelid = 'foliot.run'::regclass
            UNION ALL SELECT 'foliot.run'::regclass
        ) r"""
        await judge.execute("ANALYZE foliot.run")  # autovacuum may do it at any moment
        async with judge.transaction():
            await judge.execute("SET LOCAL enable_seqscan = off")  # the best plan for 100 rows alone
            before = await judge.fetchval(read)
            await judge.execute("DELETE FROM foliot.run WHERE number = $1", numbers[0])
            assert await judge.fetchval(read) - before < 30
        assert [run.number for run in await stage.claim()] == [numbers[1]]


async def test_a_batch_that_ends_writes_its_slot_twice_at_most(postgres: PostgresServer) -> None:
    """Once for what is freed, once for what is taken by those that are let in."""
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.set_limit(Gate("job:job", most=5), actor="ana")
        for _ in range(10):
            await stage.promise()
        await stage.fire()
        numbers = [run.number for run in await stage.claim()]
        assert len(numbers) == 5
        async with judge.transaction():
            await judge.execute("DELETE FROM foliot.run WHERE number = ANY($1::bigint[])", numbers)
            assert await judge.fetchval("SELECT pg_stat_get_xact_tuples_updated('foliot.slot'::regclass)") == 2
        assert len(await stage.claim()) == 5


async def test_a_run_whose_limit_has_room_is_not_written_when_it_is_handed_off(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.set_limit(Gate("job:job", most=5), actor="ana")
        kept = await stage.promise(options=choices_to_json(choices({"concurrency_key": "account:7"})))
        before = await judge.fetchval("SELECT ctid FROM foliot.run")
        assert (await stage.fire()).handed_off == 1
        assert await judge.fetchval("SELECT ctid FROM foliot.run") == before
        held = await judge.fetchrow("SELECT number, slots FROM foliot.holding")
        assert (held["number"], held["slots"]) == (kept.number, '["job:job","key:account:7"]')


@pytest.mark.parametrize("seed", range(by_tier(3, 30)))
async def test_a_rate_is_kept_by_starts_that_were_taken_before_their_time(postgres: PostgresServer, seed: int) -> None:
    """The judge fills a bucket with the starts in the order of their own times, and never finds it fuller than the rate
    allows at once."""
    chance = random.Random(seed)
    every, slack = 1_000, 4_000
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.set_limit(Gate("job:job", every=every), actor="ana")
        now, starts, moment = 10**15, Counter[int](), 10**15
        for _ in range(150):
            now += chance.choice((0, 100, 1_000, 5_000, 20_000))
            if moment <= now or not chance.randrange(4):
                moment = now + chance.choice((500, 2_000, 10_000, 40_000))
            count = chance.randint(1, 4)
            at = chance.choice((now, moment))
            taken = await judge.fetchval(
                """UPDATE foliot.slot s SET tat = a.tat, ahead = a.ahead, ahead_at = a.ahead_at
                FROM foliot.slot o, LATERAL foliot.after_starts(o, $1, $2, $3) AS a
                WHERE a.name IS NOT NULL AND s.name = o.name RETURNING 1""",
                *(count, now, at),
            )
            if taken:
                starts[at] += count
        assert len(starts) > 20
    level, before = 0, 0
    for at, count in sorted(starts.items()):
        level = max(level - (at - before), 0) + count * every
        before = at
        assert level <= slack + every, f"{count} starts at {at} are too many"


async def test_standbys_are_looked_for_only_where_runs_wait(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        asked = "SELECT foliot.awaited(ARRAY['key:a', 'key:b', 'job:job'])"
        for key in ("a", "b", "b"):
            await stage.promise(options=choices_to_json(choices({"concurrency_key": key})))
        assert await judge.fetchval(asked) == []
        await stage.fire()
        assert await judge.fetchval(asked) == [2]


async def test_settings_that_cannot_be_read_stop_no_run_that_ends(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
        _, second = [await stage.promise() for _ in range(2)]
        await stage.fire()
        [run] = await stage.claim()
        await judge.execute(
            "UPDATE foliot.run SET options = convert_to('{\"concurrency_key\"', 'UTF8') WHERE number = $1",
            second.number,
        )
        assert await stage.finish(stage.succeeded(run)) == []
        await stage.fire()
        assert [run.number for run in await stage.claim()] == [second.number]


class House:
    """Several processes' worth of schedulers and workers on one database."""

    def __init__(self, them: list[Stage], judge: Any) -> None:
        self.them = them
        self.judge = judge
        self.asking = asyncio.Lock()
        self.busy: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: set[int] = set()
        self.most_at_once = 0
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
        self.most_at_once = max(self.most_at_once, self.busy.total())
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
                if chance.random() < 0.3:
                    await self._complete(run)
        await stage.store.finish(worker, endings)

    async def _complete(self, run: Claimed) -> None:
        """As a handler does in a transaction of its own, with one statement more behind it."""
        async with self.asking, self.judge.transaction():
            await self.judge.execute("SELECT foliot.complete($1, $2)", run.number, run.token)
            await self.judge.execute("SELECT 1")

    async def ask(self, sql: str) -> Any:
        async with self.asking:
            return await self.judge.fetchval(sql)

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
        house = House(them, judge)
        await them[0].store.set_limit(Gate("job:job", most=LIMIT), actor="ana")
        wanted = [f"account:{n % KEYS}" if n % 3 else "" for n in range(RUNS)]
        kept = await them[0].store.promise(
            [
                Promise(
                    "job",
                    b"{}",
                    them[0].now,
                    options=choices_to_json(choices({"concurrency_key": key})) if key else None,
                )
                for key in wanted
            ]
        )
        key_of = {one.number: key for one, key in zip(kept, wanted, strict=True)}
        tasks = [asyncio.create_task(house.scheduling(stage)) for stage in them[:2]]
        tasks += [asyncio.create_task(house.working(stage, key_of, random.Random(n))) for n, stage in enumerate(them)]
        if meddled:
            tasks.append(asyncio.create_task(house.meddling(them[3], [one.id for one in kept], chance)))

        async def have_ended() -> bool:
            return not await house.ask("SELECT count(*) FROM foliot.run")

        await until_async(have_ended, "all runs have ended")
        house.over.set()
        await asyncio.gather(*tasks)
        if not meddled:  # who is released runs beside the others
            assert {most for key, most in house.most.items() if key} == {1}
            assert house.most_at_once <= LIMIT
        ended = await judge.fetchval("SELECT count(*) FROM foliot.history")
        assert ended == RUNS
        assert meddled or len(house.done) == RUNS
        assert await judge.fetchval("SELECT count(*) FROM foliot.slot WHERE used <> 0") == 0
        assert await judge.fetchval("SELECT count(*) FROM foliot.holding") == 0
