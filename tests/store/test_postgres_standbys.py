"""Claims in the transaction that records endings on PostgreSQL: which runs become standbys, and how standbys end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from foliot.clock import SystemClock
from foliot.dispatch import Dispatcher
from foliot.domain.gates import Gate
from foliot.domain.instant import MILLISECOND
from foliot.domain.policy import Policy, choices, choices_to_json
from foliot.domain.run import Claimed, Promise
from foliot.domain.state import State
from foliot.domain.store import Offer, PassedSlot, StandbyRequest
from foliot.errors import StoreError
from foliot.work import standby
from foliot.work.handler import Handler
from foliot.work.worker import Worker
from tests.contract.stage import Stage
from tests.servers.postgres import PostgresServer
from tests.store.lines import line, stages, until_locks_are_waited_for
from tests.tiers import by_tier
from tests.waiting import until_async

SLOT = "job:job"


class Scene(NamedTuple):
    stage: Stage
    judge: Any
    worker: int

    async def limited(self, most: int, *promised: dict[str, Any]) -> list[Claimed]:
        """Runs of a limited job: answers those that are running. The others wait."""
        await self.stage.store.set_limit(Gate(SLOT, most=most), actor="ana")
        for more in promised:
            await self.stage.promise(**more)
        await self.stage.fire()
        return await self.stage.claim(worker=self.worker)

    async def exchange(
        self, *ended: Claimed, limit: int = 0, standbys: int = 0, passed: Sequence[PassedSlot] = (), job: str = "job"
    ) -> list[Claimed]:
        requests = [StandbyRequest(SLOT, job, standbys)] if standbys else []
        offer = Offer(["default"], ["job", "other"], limit, None, passed, requests)
        endings = [self.stage.succeeded(run) for run in ended]
        fenced, claimed = await self.stage.store.finish_and_claim(self.worker, endings, offer)
        assert fenced == []
        return claimed

    async def used(self) -> tuple[int, int]:
        """How many slots are taken, and how many runs wait for one."""
        views = {view.gate.name: view for view in await self.stage.store.limits()}
        return views[SLOT].used, views[SLOT].waiting

    async def left(self) -> list[int]:
        """What nothing may leave behind: holdings, claims and runs."""
        return [await self.judge.fetchval(f"SELECT count(*) FROM foliot.{t}") for t in ("holding", "claim", "run")]


@asynccontextmanager
async def scene(postgres: PostgresServer) -> AsyncIterator[Scene]:
    async with stages(postgres, 1) as (judge, [stage]):
        yield Scene(stage, judge, await stage.register(jobs=("job", "other")))


def pass_to(holder: Claimed, heir: Claimed) -> PassedSlot:
    return PassedSlot(holder.number, holder.token, heir.number, heir.token)


def plain(count: int) -> list[dict[str, Any]]:
    return [{} for _ in range(count)]


async def test_the_run_that_gets_a_freed_slot_is_claimed_in_the_transaction_that_frees_it(
    postgres: PostgresServer,
) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, *plain(3))
        [second] = await on.exchange(first, limit=1)
        assert (second.slot, second.standby, second.attempt) == (SLOT, False, 1)
        assert await on.judge.fetchval("SELECT count(*) FROM foliot.handoff") == 0
        assert await on.used() == (1, 1)
        assert await on.stage.state(second) is State.RUNNING


async def test_a_claim_says_which_slot_its_run_has(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, {})
        assert first.slot == SLOT
        await on.stage.store.drop_limit(SLOT, actor="ana", note="")
        await on.stage.promise()
        await on.stage.fire()
        assert [run.slot for run in await on.stage.claim(worker=on.worker)] == [None]


async def test_no_run_becomes_a_standby_before_one_of_another_job(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        await on.limited(1, {"priority": 9}, {"priority": 3}, {"priority": 2, "job": "other"}, {"priority": 1})
        await on.judge.execute("UPDATE foliot.run SET waits_for = $1, state = 2 WHERE job = 'other'", SLOT)
        assert [run.priority for run in await on.exchange(standbys=5)] == [3]


@pytest.mark.parametrize("is_let_in", [False, True])
async def test_a_standby_that_began_has_the_slot_of_the_run_that_ended(
    postgres: PostgresServer, is_let_in: bool
) -> None:
    async with scene(postgres) as on:
        [holder] = await on.limited(1, *plain(4))
        if is_let_in:
            [holder] = await on.exchange(holder, limit=1)  # its slot is in its row
        [heir] = await on.exchange(standbys=1)
        assert await on.exchange(holder, passed=[pass_to(holder, heir)], limit=1) == []
        assert (await on.used())[0] == 1
        assert len(await on.exchange(heir, limit=1)) == 1
        assert (await on.used())[0] == 1


async def test_a_slot_passes_through_many_runs_and_is_freed_once(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, *plain(5))
        second, third, fourth = await on.exchange(standbys=3)
        # The second began and ended in this process before the store heard of it.
        assert await on.exchange(first, second, passed=[pass_to(first, third)]) == []
        assert await on.used() == (1, 1)
        assert await on.exchange(third, passed=[pass_to(third, fourth)]) == []
        [last] = await on.exchange(fourth, limit=1)
        assert await on.exchange(last) == []
        assert await on.used() == (0, 0)
        assert await on.left() == [0, 0, 0]


@pytest.mark.parametrize("written", ["holder", "heir", "both"])
async def test_a_slot_passes_also_where_a_claim_is_written(postgres: PostgresServer, written: str) -> None:
    async with scene(postgres) as on:
        [holder] = await on.limited(1, *plain(3))
        [heir] = await on.exchange(standbys=1)
        for run in {"holder": [holder], "heir": [heir], "both": [holder, heir]}[written]:
            await on.judge.execute("SELECT foliot.write_claims(ARRAY[$1::bigint])", run.token)
        assert await on.exchange(holder, passed=[pass_to(holder, heir)], limit=1) == []
        assert (await on.used())[0] == 1
        assert len(await on.exchange(heir, limit=1)) == 1


async def test_slots_that_pass_on_and_slots_that_are_freed_are_locked_in_one_order(postgres: PostgresServer) -> None:
    """Firing and other workers lock slots by their names. Two orders would be a deadlock."""
    async with scene(postgres) as at:
        store = at.stage.store
        for slot in ("job:job", "job:other"):
            await store.set_limit(Gate(slot, most=1), actor="ana")
        for name in ("job", *["other"] * 4):
            await at.stage.promise(job=name)
        await at.stage.fire()
        first, other = await at.stage.claim(worker=at.worker, jobs=["job", "other"])
        requests = [StandbyRequest("job:other", "other", 1)]
        offer = Offer(["default"], ["job", "other"], 1, None, (), requests)
        _, [holder, heir] = await store.finish_and_claim(at.worker, [at.stage.succeeded(other)], offer)
        passing = Offer((), (), 0, passed=[pass_to(holder, heir)])
        endings = [at.stage.succeeded(run) for run in (first, holder)]
        async with at.judge.transaction():
            await at.judge.execute("SELECT FROM foliot.slot WHERE name = 'job:job' FOR UPDATE")
            recorded = asyncio.create_task(store.finish_and_claim(at.worker, endings, passing))
            await until_locks_are_waited_for(at.judge)
            await at.judge.execute("SELECT FROM foliot.slot WHERE name = 'job:other' FOR UPDATE NOWAIT")
        assert await recorded == ([], [])
        assert await at.judge.fetchval("SELECT sum(used) FROM foliot.slot") == 1


async def test_a_standby_that_fails_keeps_its_key_for_its_next_attempt(postgres: PostgresServer) -> None:
    key: dict[str, Any] = {"options": choices_to_json(choices({"concurrency_key": "account"}))}
    async with scene(postgres) as on:
        for _ in range(3):
            await on.stage.promise(**key)
        await on.stage.fire()
        [holder] = await on.stage.claim(worker=on.worker)
        request = StandbyRequest("key:account", "job", 1)
        ask = Offer(["default"], ["job"], 0, standbys=[request])
        _, [heir] = await on.stage.store.finish_and_claim(on.worker, [], ask)
        failed = on.stage.failed(heir)
        offer = Offer(["default"], ["job"], 1, passed=[pass_to(holder, heir)])
        await on.stage.store.finish_and_claim(on.worker, [on.stage.succeeded(holder), failed], offer)
        await on.stage.fire()
        assert await on.stage.claim(worker=on.worker) == []
        slots = await on.judge.fetchval("SELECT slots FROM foliot.run WHERE number = $1", heir.number)
        assert slots == '["key:account"]'


async def test_a_standby_that_does_not_begin_returns_to_its_place(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, *plain(4))
        second, third = await on.exchange(standbys=2)
        was = await on.judge.fetchval("SELECT fire_at FROM foliot.holding WHERE number = $1", second.number)
        assert await on.stage.store.give_back(on.worker, [second, third]) == 2
        view = await on.stage.run(second)
        assert (view.state, view.fire_at) == (State.HELD, was)
        assert await on.used() == (1, 3)
        [again] = await on.exchange(first, limit=1)
        assert (again.number, again.attempt) == (second.number, 1)


async def test_a_standby_that_returns_goes_at_once_where_a_slot_is_free(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, *plain(2))
        [heir] = await on.exchange(standbys=1)
        await on.exchange(first)
        assert await on.used() == (0, 0)
        await on.stage.store.give_back(on.worker, [heir])
        [again] = await on.stage.claim(worker=on.worker)
        assert (again.number, again.standby, await on.used()) == (heir.number, False, (1, 0))


@pytest.mark.parametrize("how", ["the claim is written", "the limit is dropped"])
async def test_a_standby_that_cannot_return_to_its_place_is_fired_again(postgres: PostgresServer, how: str) -> None:
    async with scene(postgres) as on:
        [first] = await on.limited(1, *plain(2))
        [heir] = await on.exchange(standbys=1)
        if how == "the claim is written":
            await on.judge.execute("SELECT foliot.write_claims(ARRAY[$1::bigint])", heir.token)
        else:
            await on.exchange(first)
            await on.stage.store.drop_limit(SLOT, actor="ana", note="")
        await on.stage.store.give_back(on.worker, [heir])
        assert await on.stage.claim(worker=on.worker) == []  # not without a slot
        await on.stage.fire()
        if how == "the claim is written":
            assert await on.used() == (1, 1)
            await on.exchange(first)
        [again] = await on.stage.claim(worker=on.worker)
        assert again.number == heir.number


async def test_a_run_of_a_standby_that_its_user_completes_frees_the_slot(postgres: PostgresServer) -> None:
    async with scene(postgres) as on:
        [holder] = await on.limited(1, *plain(3))
        [heir] = await on.exchange(standbys=1)
        await on.exchange(holder, passed=[pass_to(holder, heir)])
        await on.judge.execute("SELECT foliot.complete($1, $2)", heir.number, heir.token)
        assert await on.used() == (1, 0)
        assert len(await on.stage.claim()) == 1


async def test_claims_whose_answer_was_lost_come_with_the_next_endings(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        await to.store.set_limit(Gate(SLOT, most=1), actor="ana")
        for _ in range(3):
            await to.stage.promise()
        await to.stage.fire()
        [first] = await to.stage.claim()
        worker = await to.stage.worker()
        offer = Offer(["default"], ["job"], 1, None, (), [StandbyRequest(SLOT, "job", 1)])
        fault = to.proxy.cut_after_commit("foliot.finish_and_claim(")
        with pytest.raises(StoreError):
            await to.store.finish_and_claim(worker, [to.stage.succeeded(first)], offer)
        assert fault.happened
        ending = to.stage.succeeded(first)
        fenced, claimed = await to.store.finish_and_claim(worker, [ending], Offer((), (), 0))
        assert fenced == []
        assert sorted(run.standby for run in claimed) == [False, True]
        assert await to.stage.claim() == []


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_claims_whose_answer_was_lost_come_with_the_next_claim(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        await to.store.set_limit(Gate(SLOT, most=1), actor="ana")
        for _ in range(4):
            await to.stage.promise()
        await to.stage.fire()
        [first] = await to.stage.claim()
        worker = await to.stage.worker()
        offer = Offer(["default"], ["job"], 1, None, (), [StandbyRequest(SLOT, "job", 1)])
        fault = getattr(to.proxy, f"cut_{moment}_commit")("foliot.finish_and_claim(")
        with pytest.raises(StoreError):
            await to.store.finish_and_claim(worker, [to.stage.succeeded(first)], offer)
        assert fault.happened
        claimed = await to.stage.claim() if moment == "after" else []
        fenced, more = await to.store.finish_and_claim(worker, [to.stage.succeeded(first)], offer)
        claimed += more
        assert fenced == []
        assert [run.standby for run in claimed].count(False) == 1
        [view] = [view for view in await to.store.limits() if view.gate.name == SLOT]
        assert view.used == 1
        for run in claimed:
            if run.standby:
                assert await to.store.give_back(worker, [run]) == 1


async def test_two_workers_take_no_run_twice_and_pass_no_slot_twice(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [one, two]):
        on, other = [Scene(stage, judge, await stage.register()) for stage in (one, two)]
        first, second = await on.limited(2, *plain(10))
        heirs = await on.exchange(standbys=3)
        others = await other.exchange(standbys=3)
        assert len({run.number for run in (*heirs, *others)}) == 6
        await on.exchange(first, passed=[pass_to(first, heirs[0])])
        # The other worker has no run that has a slot: what it says is not believed.
        await other.exchange(passed=[pass_to(second, others[0]), pass_to(heirs[0], others[0])])
        assert (await on.used())[0] == 2
        assert await judge.fetchval("SELECT slots FROM foliot.holding WHERE number = $1", others[0].number) == "[]"


async def test_two_workers_keep_a_limit_that_binds_while_slots_pass_from_run_to_run(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers as they are: the handlers count themselves."""
    monkeypatch.setattr(standby, "MOST", 8)  # so that others wait beside the standbys
    runs, limit, over = by_tier(300, 2_000), 4, asyncio.Event()
    busy, most, ended = 0, 0, Counter[int]()

    async def job(n: int) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(5):  # endings of others are recorded meanwhile
            await stage.store.now()
        busy -= 1
        ended[n] += 1
        if n % 10 == 0 and ended[n] == 1:
            raise ValueError("once more")

    async with stages(postgres, 3) as (judge, [stage, *others]):
        await stage.store.set_limit(Gate(SLOT, most=limit), actor="ana")
        now = await stage.store.now()
        await stage.store.promise([Promise("job", b'{"n":%d}' % n, now) for n in range(runs)])
        handler = Handler.of(job, policy=Policy(backoff=MILLISECOND))
        workers = [Worker(one.store, SystemClock(), {"job": handler}, slots=10) for one in others]
        for worker in workers:
            await worker.start()
        dispatcher = Dispatcher(stage.store, SystemClock(), owner=await stage.register("scheduler"))
        tasks = [asyncio.create_task(work) for work in (dispatcher.run(over), *(worker.run() for worker in workers))]

        async def is_done() -> bool:
            return not await judge.fetchval("SELECT count(*) FROM foliot.run")

        try:
            await until_async(is_done, "all runs have ended")
        finally:
            for worker in workers:
                await worker.drain(0)
            over.set()
            await asyncio.gather(*tasks)
        assert sorted(ended) == list(range(runs))
        assert sum(ended.values()) == runs + runs // 10
        assert most <= limit
        on = Scene(stage, judge, 0)
        assert (await on.used(), await on.left()) == ((0, 0), [0, 0, 0])
