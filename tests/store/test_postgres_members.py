"""Members on a real server: turns that are taken and given back by several processes at one moment."""

from __future__ import annotations

import asyncio
import random

from foliot.dispatch import decide_ticks
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import Claimed
from foliot.timing import every
from tests.contract.stage import Stage, declared
from tests.servers.postgres import PostgresServer
from tests.store.lines import due_in, leased, stages
from tests.tiers import by_tier

MEMBERS = [f"tenant-{number:02}" for number in range(20)]


async def test_a_members_turn_is_never_lost_between_one_that_ends_and_one_that_begins_to_wait(
    postgres: PostgresServer,
) -> None:
    chance = random.Random(7)
    async with stages(postgres, 3, shards=2) as (judge, [first, second, worker]):
        policy = Policy(overlap=Overlap.QUEUE)
        await first.store.change_members("tenants", add=MEMBERS, actor="me", note="")
        await first.apply(declared("often", None, rule=every("1h").encode(), policy=policy, over="tenants"))

        async def fire_due() -> int:
            """Each scheduler its own shard, both at once; what somebody else holds is tried again."""

            async def one(stage: Stage, which: int) -> int:
                lease = await leased(stage, which)
                due = await due_in(stage, lease)
                done = await stage.store.fire([lease], due, lease.cursor, decide_ticks)
                return done.handed_off + done.created + len(done.busy)

            return sum(await asyncio.gather(one(first, 0), one(second, 1)))

        async def fire_all() -> None:
            while await fire_due():
                pass

        async def end(run: Claimed) -> None:
            for _ in range(chance.randrange(30)):  # turns of the loop
                await asyncio.sleep(0)
            assert await worker.finish(chance.choice([worker.succeeded, worker.died])(run)) == []

        async def claim_all() -> list[Claimed]:
            """A claim takes as many chunks as recent sizes suggest. Smaller chunks need another claim."""
            runs = await worker.claim()
            while more := await worker.claim():
                runs += more
            return runs

        for _ in range(by_tier(2, 4)):
            await first.store.trigger("often", actor="me", note="")
            await fire_all()
            runs = await claim_all()
            assert sorted(run.member or "" for run in runs) == MEMBERS
            await first.store.trigger("often", actor="me", note="")
            await asyncio.gather(fire_all(), *(end(run) for run in runs))
            await fire_all()
            again = await claim_all()
            assert sorted(run.member or "" for run in again) == MEMBERS
            await worker.finish(*(worker.succeeded(run) for run in again))
            await first.store.gather()
            assert await judge.fetchval("SELECT count(*) FROM foliot.run WHERE state < 20") == 0


async def test_two_who_set_the_members_at_once_leave_what_one_of_them_said(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (_, them):
        for _ in range(10):
            wanted = (["acme", "globex"], ["initech"])
            await asyncio.gather(
                *(
                    stage.store.set_members("tenants", keys, actor="me", note="")
                    for stage, keys in zip(them, wanted, strict=True)
                )
            )
            assert [one.key for one in await them[0].store.members("tenants")] in wanted


async def test_a_tick_makes_no_runs_while_somebody_changes_its_members(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.store.change_members("tenants", add=MEMBERS, actor="me", note="")
        await stage.apply(declared("often", stage.now, rule=every("1h").encode(), over="tenants"))
        async with judge.transaction():
            await judge.execute("SELECT pg_advisory_xact_lock(x'466F6C6A'::integer, hashtext('tenants'))")
            held = await stage.fire_by_policy()
            assert (len(held.busy), held.created) == (1, 1)  # the next tick
        assert (await stage.fire_by_policy()).created == len(MEMBERS)
