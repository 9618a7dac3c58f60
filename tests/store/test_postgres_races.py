"""What one writer at a time never sees: several stores that do the same thing, or opposite things, at one moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.breaker import Contact
from foliot.domain.identity import tick_name
from foliot.domain.instant import HOUR, MINUTE, SECOND, Duration
from foliot.domain.policy import Policy, choices, choices_to_json
from foliot.domain.run import Claimed, OnConflict, Progress, Promise
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Outcome, Reason, State
from foliot.domain.store import Lease, shard_of
from foliot.errors import Conflict, LostOwnership, StoreError
from foliot.store.postgres.transaction import Numbers
from foliot.timing import every
from tests.contract.stage import FAR, START, TTL, Entry, Stage, deciding, declared, fires, fires_hourly, skips
from tests.servers.postgres import PostgresServer
from tests.store.lines import due_in, in_chunks, leased, line, stages, until_locks_are_waited_for
from tests.tiers import by_tier
from tests.waiting import until_async

KEYS = by_tier(4, 10)


def skips_when_busy(fact: TickFacts) -> TickDecision:
    return skips(fact) if fact.occupied_by else fires(fact)


def waits_when_busy(fact: TickFacts) -> TickDecision:
    return TickDecision(fact.number, "hold", reason=Reason.OVERLAP) if fact.occupied_by else fires(fact)


# -------------------------------------------------------------------------------------------------------------- owners


async def test_of_a_hundred_starters_one_gets_the_shard(postgres: PostgresServer) -> None:
    async with stages(postgres, 4) as (_, them):
        owners = [(stage, await stage.register("scheduler")) for stage in them for _ in range(25)]
        taken = await asyncio.gather(*(stage.store.take(0, owner, TTL) for stage, owner in owners))
        assert len([lease for lease in taken if lease is not None]) == 1


async def test_a_shard_is_taken_after_the_old_owners_firing_and_its_runs_are_fired_once(
    postgres: PostgresServer,
) -> None:
    async with stages(postgres, 2) as (judge, [old, new]):
        kept = [await old.promise() for _ in range(3)]
        lease = await leased(old, 0)
        due = await due_in(old, lease)
        await old.store.retire(lease.owner)
        async with judge.transaction():
            # The firing has handed off, and waits to delete its arrivals.
            await judge.execute("SELECT 1 FROM foliot.stir FOR UPDATE")
            cursor = (await old.store.arrivals([lease], lease.cursor)).cursor
            firing = asyncio.create_task(old.store.fire([lease], due, cursor, deciding(fires)))
            other = await asyncpg.connect(new.store.where.dsn)  # type: ignore[attr-defined]
            await until_locks_are_waited_for(other)
            assert await new.store.take(0, await new.scheduler(), TTL) is None
            await other.close()
        assert (await firing).handed_off == 3
        fresh = await leased(new, 0)
        assert await due_in(new, fresh) == []
        with pytest.raises(LostOwnership):
            await old.store.fire([lease], due, cursor, deciding(fires))
        assert await in_chunks(judge) == sorted(one.number for one in kept)


async def test_ticks_that_the_old_owner_fires_during_a_takeover_are_fired_once(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [old, new]):
        first = old.now
        await old.apply(*(declared(f"s{n}", first) for n in range(5)))
        lease = await leased(old, 0)
        due = await due_in(old, lease)
        await old.store.retire(lease.owner)
        blocking = await asyncpg.connect(new.store.where.dsn)  # type: ignore[attr-defined]
        block = blocking.transaction()
        await block.start()
        # The firing has decided, and waits to make the successor of one tick.
        await blocking.execute("INSERT INTO foliot.named VALUES ($1, 1)", tick_name("s3", first + HOUR))
        firing = asyncio.create_task(old.store.fire([lease], due, lease.cursor, deciding(fires_hourly)))
        await until_locks_are_waited_for(judge)
        assert await new.store.take(0, await new.scheduler(), TTL) is None
        await block.rollback()
        await blocking.close()
        fired = await firing
        fresh = await leased(new, 0)
        assert (fired.handed_off, fired.created) == (5, 5)
        assert await due_in(new, fresh) == []
        assert await in_chunks(judge) == sorted(number for _, number in due)


@asynccontextmanager
async def silent_client(judge: Any, dsn: str, statement: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A client that has rows locked and stopped between the preparation of a statement and its execution."""
    silent = await asyncpg.connect(dsn, server_settings={"application_name": "foliot test"})
    await silent.execute(f"BEGIN; {statement}")
    await silent.prepare("SELECT 1")
    state = await judge.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", silent.get_server_pid())
    try:
        assert state == "active", "idle_in_transaction_session_timeout does not apply"
        yield silent
    finally:
        silent.terminate()


@pytest.mark.parametrize(("over_for", "is_ended"), [(TTL + SECOND, True), (-SECOND, False)])
async def test_a_silent_owners_transaction_is_ended_when_its_lease_has_been_over_for_a_period(
    postgres: PostgresServer, over_for: Duration, is_ended: bool
) -> None:
    async with stages(postgres, 2) as (judge, [old, new]):
        lease = await leased(old, 0)
        await old.store.retire(lease.owner)
        await judge.execute(f"UPDATE foliot.shard SET until = foliot.now() - {over_for} WHERE shard = 0")
        lock = "SELECT FROM foliot.shard WHERE shard = 0 FOR NO KEY UPDATE"
        async with silent_client(judge, old.store.where.dsn, lock) as silent:  # type: ignore[attr-defined]
            owner = await new.scheduler()
            assert await new.store.take(0, owner, TTL) is None
            if is_ended:
                await until_async(lambda: new.store.take(0, owner, TTL), "the shard is taken")
                await until_async(silent.is_closed, "the client has noticed that the server ended its transaction")
            else:
                await silent.execute("ROLLBACK")


async def test_runs_are_lost_although_their_worker_is_silent_in_a_transaction_that_has_them(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        run = await stage.running()
        lock = "SELECT FROM foliot.run FOR UPDATE; SELECT FROM foliot.claim FOR UPDATE"
        async with silent_client(judge, stage.store.where.dsn, lock) as silent:  # type: ignore[attr-defined]
            monkeypatch.setattr("foliot.store.postgres.connection.IDLE_TIMEOUT", "0s")
            assert await stage.store.lose([stage.lost(run)]) == 1
            await until_async(silent.is_closed, "the client has noticed that the server ended its transaction")


@pytest.mark.parametrize("act", ["lose", "take"])
async def test_runs_are_lost_and_shards_taken_although_the_server_refuses_to_end_silent_clients(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    refusals: list[str] = []

    async def refused(query: str, **values: Any) -> Any:
        if query in ("end_abandoned", "end_firing"):
            refusals.append(query)
            raise StoreError("permission denied for function pg_terminate_backend")
        return await state(query, **values)

    async with stages(postgres, 1) as (judge, [stage]):
        run, state = await stage.running(), stage.store.statement  # type: ignore[attr-defined]
        monkeypatch.setattr(stage.store, "statement", refused)
        if act == "lose":
            assert await stage.store.lose([stage.lost(run)]) == 1
        else:
            async with judge.transaction():
                await judge.execute("SELECT FROM foliot.shard FOR UPDATE")
                assert await stage.store.take(0, await stage.scheduler(), TTL) is None
        assert len(refusals) == 1


# ------------------------------------------------------------------------------------------------------------- promises


async def test_a_key_that_sixteen_promise_at_once_has_one_run(postgres: PostgresServer) -> None:
    async with stages(postgres, 16) as (judge, them):
        for key in range(KEYS):
            kept = await asyncio.gather(*(stage.promise(f"class:{key}", after=HOUR) for stage in them))
            assert len({one.number for one in kept}) == 1
            assert sorted(one.outcome for one in kept) == ["kept"] * 15 + ["made"]
        assert await judge.fetchval("SELECT count(*) FROM foliot.run") == KEYS


async def test_a_key_that_sixteen_renew_at_once_has_one_new_generation(postgres: PostgresServer) -> None:
    async with stages(postgres, 16) as (judge, them):
        run = await them[0].running("class:7")
        await them[0].finish(them[0].succeeded(run))
        asked = (stage.promise("class:7", after=HOUR, on_conflict=OnConflict.RENEW) for stage in them)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert len([one for one in answers if isinstance(one, Conflict)]) == 15
        assert await judge.fetchval("SELECT array_agg(name) FROM foliot.run") == ["class:7#2"]


async def test_bulks_with_the_same_keys_in_any_order_do_not_fail_by_deadlock(postgres: PostgresServer) -> None:
    chance = random.Random(1)
    async with stages(postgres, 8) as (judge, them):
        for modes in ([OnConflict.KEEP], [OnConflict.KEEP, OnConflict.REPLACE]):
            bulks = []
            for stage in them:
                keys = [f"{len(modes)}:{n}" for n in range(100)]
                chance.shuffle(keys)
                bulks.append(
                    [Promise("job", b"{}", stage.now + HOUR, key=k, on_conflict=chance.choice(modes)) for k in keys]
                )
            kept = await asyncio.gather(*(s.store.promise(b) for s, b in zip(them, bulks, strict=True)))
            assert len({one.number for answers in kept for one in answers}) == 100
        assert await judge.fetchval("SELECT count(*) FROM foliot.run") == 200


async def test_two_processes_that_draw_the_same_numbers_both_make_their_promises(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [one, other]):
        for stage in (one, other):
            stage.store.numbers = Numbers(7)  # type: ignore[attr-defined]
            stage.store._about_now = lambda now=one.now: now  # type: ignore[attr-defined]
        for stage in (one, other):
            await stage.promise(after=HOUR)
            await stage.promise(f"{id(stage)}", after=HOUR)
        assert await judge.fetchval("SELECT count(*) FROM foliot.run") == 4


async def test_a_promise_that_is_moved_while_it_is_fired_is_not_claimed_before_its_new_time(
    postgres: PostgresServer,
) -> None:
    async with stages(postgres, 2) as (_, [scheduler, mover]):
        for n in range(20):
            await scheduler.promise(f"k:{n}")
        await asyncio.gather(scheduler.fire(), *(mover.store.move(f"k:{n}", None, mover.now + HOUR) for n in range(20)))
        assert await scheduler.claim() == []
        assert len([run for run in await mover.store.runs() if run.state is State.SCHEDULED]) == 20


async def test_a_run_that_is_cancelled_while_it_is_claimed_is_either_ended_or_asked_to_stop(
    postgres: PostgresServer,
) -> None:
    async with stages(postgres, 3) as (judge, [worker, other, operator]):
        for _ in range(10):
            kept = [await worker.promise() for _ in range(10)]
            await worker.fire()
            cancelling = asyncio.gather(*(operator.store.cancel(one.id, actor="me", note="") for one in kept))
            first, second = await asyncio.gather(worker.claim(5), other.claim(10))
            answers = {one.number: one.outcome for one in await cancelling}
            claimed = {run.number: run for run in [*first, *second]}
            rest = {run.number: run for run in await other.claim(100)}
            for number, outcome in answers.items():
                assert (number in claimed | rest) == (outcome == "asked"), outcome
            for stage, runs in ((worker, first), (other, [*second, *rest.values()])):
                assert await stage.finish(*(stage.stopped(run) for run in runs)) == []
        assert await judge.fetchval("SELECT count(*) FROM foliot.history WHERE state = 13") == 100
        for table in ("run", "claim", "cancellation"):
            assert await judge.fetchval(f"SELECT count(*) FROM foliot.{table}") == 0, table


async def test_nobody_is_asked_to_stop_for_ever_a_run_that_has_ended(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [worker, operator]):
        for _ in range(10):
            for _ in range(10):
                await worker.promise()
            await worker.fire()
            runs = await worker.claim()
            cancelling = [operator.store.cancel(run.id, actor="me", note="") for run in runs]
            await asyncio.gather(
                *(worker.finish(worker.succeeded(run)) for run in runs), *cancelling, return_exceptions=True
            )
        await operator.store.tidy()
        assert await judge.fetchval("SELECT count(*) FROM foliot.history") == 100
        assert await judge.fetchval("SELECT count(*) FROM foliot.cancellation") == 0


async def test_a_run_that_is_claimed_in_the_moment_it_is_replaced_is_asked_to_stop_all_the_same(
    postgres: PostgresServer,
) -> None:
    clock = ManualClock(START)
    async with line(postgres, clock=clock) as held:
        stage = held.stage
        policy = Policy().merged(choices({"overlap": "replace"}))
        await stage.apply(declared("hourly", START + HOUR, rule=every("1h").encode(), policy=policy))
        first = await stage.store.trigger("hourly", actor="ana", note="")
        await stage.fire_by_policy()
        other = await asyncpg.connect(held.dsn)
        async with other.transaction():
            await other.execute("SELECT 1 FROM foliot.run WHERE number = $1 FOR NO KEY UPDATE", first.number)
            clock.advance(MINUTE)
            second = await stage.store.trigger("hourly", actor="ana", note="")
            await stage.fire_by_policy()
        await other.close()
        [run] = await stage.claim()
        assert (run.id, await stage.state(second)) == (first.id, State.HELD)
        clock.advance(SECOND)
        await stage.fire_by_policy()
        assert (await stage.store.beat(await stage.worker(), [])).cancel == [first.number]
        await stage.finish(stage.stopped(run))
        await stage.fire_by_policy()
        assert [one.id for one in await stage.claim()] == [second.id]
        assert (await stage.run(first)).detail == f"by {second.id}"


# ---------------------------------------------------------------------------------------------------------------- work


async def test_two_first_failures_of_a_destination_at_one_moment_are_two(postgres: PostgresServer) -> None:
    options = choices_to_json(choices({"destination": "bank"}))
    contact = Contact("bank", False, 5, MINUTE, HOUR)
    async with stages(postgres, 2) as (judge, them):
        for _ in them:
            await them[0].promise(options=options)
        await them[0].fire()
        endings = [(stage, stage.failed((await stage.claim(1))[0])._replace(contact=contact)) for stage in them]
        async with judge.transaction():
            await judge.execute("LOCK TABLE foliot.breaker IN SHARE MODE")  # everybody looks, and nobody writes
            failing = [asyncio.create_task(stage.finish(ending)) for stage, ending in endings]
            await until_locks_are_waited_for(judge, 2)
        await asyncio.gather(*failing)
        assert await judge.fetchval("SELECT failures FROM foliot.breaker") == 2


async def test_an_attempt_that_ends_while_it_is_lost_has_one_verdict(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [worker, reaper]):
        for _ in range(10):
            for _ in range(20):
                await worker.promise()
            await worker.fire()
            number = await worker.register()
            runs = await worker.claim(worker=number)
            half = [worker.succeeded(run) for run in runs[::2]], [worker.failed(run) for run in runs[1::2]]
            endings = asyncio.gather(*(worker.store.finish(number, batch) for batch in half))
            losses = await reaper.store.lose([reaper.lost(run, retry_at=FAR) for run in reversed(runs)])
            fenced = sum(map(len, await endings))
            assert losses == fenced
            assert await judge.fetchval("SELECT count(*) FROM foliot.claim") == 0
        rows = await judge.fetch("SELECT run, array_agg(outcome ORDER BY outcome) FROM foliot.attempt GROUP BY run")
        assert {tuple(row[1]) for row in rows} <= {(Outcome.FENCED, Outcome.LOST), (Outcome.FAILED,)}


async def test_an_old_attempt_is_fenced_also_when_it_is_told_with_the_new_one(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (_, [stage]):
        old = await stage.running()
        await stage.store.lose([stage.lost(old, retry_at=stage.now)])
        await stage.fire()
        [new] = await stage.claim()
        fenced = await stage.finish(stage.succeeded(old), stage.succeeded(new))
        assert [one.token for one in fenced] == [old.token]
        assert len(await stage.events("fenced")) == 1


async def test_a_worker_whose_clock_lags_did_not_begin_before_its_claim(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (_, [stage]):
        for how in (stage.succeeded, stage.died, stage.failed):
            run = await stage.running()
            claimed_at = (await stage.run(run)).claimed_at or 0
            lagging = claimed_at - 50_000
            await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, lagging, None, None)])
            assert (await stage.run(run)).started_at == claimed_at
            await stage.finish(how(run, started_at=lagging, finished_at=lagging + 1))
            ended = await stage.run(run)
            assert {(one.started_at, one.finished_at) for one in ended.attempts} == {(claimed_at, claimed_at)}
        assert (await stage.store.counts())["early"] == 0


async def test_two_endings_of_one_claim_at_once_close_it(postgres: PostgresServer) -> None:
    async with stages(postgres, 2) as (judge, [worker, other]):
        for _ in range(by_tier(5, 20)):
            for _ in range(4):
                await worker.promise()
            await worker.fire()
            runs, number = await worker.claim(), await worker.worker()
            told = zip([worker, other] * 2, runs, strict=True)
            await asyncio.gather(*(stage.store.finish(number, [stage.succeeded(run)]) for stage, run in told))
        assert await judge.fetchval("SELECT count(*) FROM foliot.claim") == 0
        assert await judge.fetchval("SELECT count(*) FROM foliot.history") == 4 * by_tier(5, 20)


# ----------------------------------------------------------------------------------------------------------- schedules


async def fired(stage: Stage, leases: list[Lease], due: list[Entry]) -> tuple[int, int]:
    """How many were handed off and skipped, once nobody else had his hands on any."""
    handed_off = skipped = 0
    while due:
        one = await stage.store.fire(leases, due, leases[0].cursor, deciding(skips_when_busy))
        handed_off, skipped, due = handed_off + one.handed_off, skipped + one.skipped, list(one.busy)
    return handed_off, skipped


async def test_overlap_is_obeyed_whatever_shards_the_runs_of_a_schedule_lie_in(postgres: PostgresServer) -> None:
    async with stages(postgres, 4, shards=16) as (judge, them):
        for round_ in range(by_tier(4, 10)):
            name = f"s{round_}"
            await them[0].apply(declared(name, them[0].now))
            for stage in them:
                await stage.store.trigger(name, actor="me", note="")
            leases = [[await leased(stage, shard) for shard in range(n, 16, 4)] for n, stage in enumerate(them)]
            due = [
                [entry for lease in mine for entry in await due_in(stage, lease)]
                for stage, mine in zip(them, leases, strict=True)
            ]
            counts = await asyncio.gather(*(fired(*one) for one in zip(them, leases, due, strict=True)))
            assert [sum(column) for column in zip(*counts, strict=True)] == [1, 4]
            for run in await them[0].claim():
                await them[0].finish(them[0].succeeded(run))
            for stage, mine in zip(them, leases, strict=True):
                await stage.store.release(mine)
        assert await judge.fetchval("SELECT count(*) FROM foliot.run") == 0


async def test_nothing_is_held_for_ever_when_what_it_is_held_for_ends_at_that_moment(postgres: PostgresServer) -> None:
    """A hundred interleavings of admission and ending, over twenty schedules at a time."""
    chance = random.Random(2)
    async with stages(postgres, 2, shards=16) as (judge, [scheduler, worker]):
        names = [f"s{n}" for n in range(20)]
        await scheduler.apply(*(declared(name, None) for name in names))

        async def fire(stage: Stage) -> int:
            leases = [await leased(stage, shard) for shard in range(16)]
            due = [entry for lease in leases for entry in await due_in(stage, lease)]
            parts = [[e for e in due if shard_of(e[1], 16) % 4 == part] for part in range(4)]
            fired = await asyncio.gather(
                *(stage.store.fire(leases, part, leases[0].cursor, deciding(waits_when_busy)) for part in parts)
            )
            return sum(one.handed_off for one in fired)

        for _ in range(by_tier(2, 5)):
            for name in names:
                await scheduler.store.trigger(name, actor="me", note="")
            assert await fire(scheduler) == 20
            runs = await worker.claim()
            for name in names:
                await scheduler.store.trigger(name, actor="me", note="")

            async def end(run: Claimed) -> None:
                for _ in range(chance.randrange(30)):  # turns of the loop
                    await asyncio.sleep(0)
                how = chance.choice([worker.succeeded, worker.died])
                assert await worker.finish(how(run)) == []

            await asyncio.gather(fire(scheduler), *(end(run) for run in runs))
            assert await judge.fetchval("SELECT count(*) FROM foliot.run WHERE state = 2") == 0
            await fire(scheduler)
            await worker.finish(*(worker.succeeded(run) for run in await worker.claim()))
            assert await judge.fetchval("SELECT count(*) FROM foliot.run WHERE state < 20") == 0


async def test_a_tick_whose_schedule_is_being_edited_goes_where_the_edit_says(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.apply(declared("hourly", stage.now))
        async with judge.transaction():
            await judge.execute("SELECT 1 FROM foliot.schedule FOR UPDATE")
            assert len((await stage.fire()).busy) == 1
            await judge.execute("UPDATE foliot.schedule SET queue = 'other'; UPDATE foliot.run SET queue = 'other'")
            assert len((await stage.fire()).busy) == 1
        assert (await stage.fire()).handed_off == 1
        assert len(await stage.claim(queues=["other"])) == 1


async def test_eight_that_apply_the_same_declarations_make_each_schedule_once(postgres: PostgresServer) -> None:
    async with stages(postgres, 8) as (judge, them):
        first = them[0].now + MINUTE
        for fingerprint in ("v1", "v2"):
            stated = [declared(f"s{n}", first, fingerprint=fingerprint) for n in range(20)]
            orders = [random.Random(n).sample(stated, 20) for n in range(8)]
            applied = await asyncio.gather(*(s.apply(*order) for s, order in zip(them, orders, strict=True)))
            assert sum(len(one.created) + len(one.changed) for one in applied) == 20
        rows = await judge.fetch("SELECT schedule, count(*) FROM foliot.run GROUP BY schedule")
        assert len(rows) == 20
        assert {row[1] for row in rows} == {1}
