"""Herds of ticks that are made ready before they are due: nobody sees it, and nothing comes out otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.fairness import FairShares
from foliot.domain.gates import Gate
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.policy import Policy
from foliot.domain.schedule import NewTick, TickDecision, TickFacts
from foliot.domain.store import Fired, Lease
from foliot.errors import LostOwnership
from foliot.store.postgres import PostgresStore, ahead, cells, preparing
from foliot.store.postgres.ahead import Herd
from tests.contract.stage import START, Entry, Judge, Stage, deciding, declared, fires, fires_hourly
from tests.servers.postgres import PostgresServer
from tests.store.lines import Line, due_in, leased, line, stages, until_locks_are_waited_for
from tests.waiting import soon, until_async

SHARDS, TICKS = 4, 30
DUE: Instant = START + 500 * MILLISECOND


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine must not look like a dispatcher that never calls."""
    monkeypatch.setattr(ahead, "PATIENCE", 60 * SECOND)
    monkeypatch.setattr(ahead, "_KNOWN_FOR", 60.0)
    monkeypatch.setattr(ahead, "_IDLE", "SET LOCAL idle_in_transaction_session_timeout = '60s'")


@dataclass
class Crowd:
    """Schedules whose ticks are all due at one moment, and a scheduler that has loaded them."""

    line: Line
    clock: ManualClock
    leases: list[Lease]
    due: list[Entry]

    @property
    def stage(self) -> Stage:
        return self.line.stage

    @property
    def herds(self) -> list[Herd]:
        return self.line.store._cells.ahead.herds

    async def made_ready(self, judge: Judge = fires_hourly) -> None:
        self.line.store.look_ahead(self.leases, deciding(judge))
        assert self.herds, "there is something to make ready"
        for herd in self.herds:
            await herd.ready.wait()

    async def fire(self, judge: Judge = fires_hourly, due: list[Entry] | None = None) -> Fired:
        return await self.line.store.fire(
            self.leases, self.due if due is None else due, self.leases[0].cursor, deciding(judge)
        )

    async def in_chunks(self) -> list[int]:
        return [row[0] for row in await self.line.ask("SELECT unnest(numbers) FROM foliot.handoff ORDER BY 1")]

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.due)


@asynccontextmanager
async def crowd(server: PostgresServer, *others: str, policy: Policy | None = None) -> AsyncIterator[Crowd]:
    clock = ManualClock(START)
    async with line(server, shards=SHARDS, clock=clock) as made:
        names = [*(f"s{n}" for n in range(TICKS)), *others]
        await made.stage.apply(*(declared(name, DUE, policy=policy or Policy()) for name in names))
        leases = [await leased(made.stage, shard) for shard in range(SHARDS)]
        due = [entry for lease in leases for entry in await made.stage.loaded(lease)]
        yield Crowd(made, clock, leases, due)


# -------------------------------------------------------------------------------------------------------- it is on time


async def test_nobody_sees_what_is_made_ready(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        assert await given.in_chunks() == []
        assert await given.line.count("run WHERE fired_at IS NOT NULL") == 0
        assert await given.line.runs() == given.numbers


async def test_a_herd_goes_whole_when_its_time_has_come_and_each_tick_has_its_successor(
    postgres: PostgresServer,
) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        [herd] = given.herds
        given.clock.advance(DUE + 3 - START)
        fired = await given.fire(_never)
        assert herd.task.result().handed_off == TICKS
        assert (fired.at, fired.handed_off, fired.created, fired.stale, fired.early) == (DUE + 3, TICKS, TICKS, 0, 0)
        assert await given.in_chunks() == given.numbers
        assert await given.line.count("run WHERE fired_at IS NULL") == TICKS
        assert await given.line.count("handoff WHERE fired_at = $1", DUE + 3) > 0


async def test_a_herd_is_handed_off_just_before_its_time_and_claimed_at_it(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "lead", cells.LEAD)
    async with crowd(postgres) as given:
        given.clock.advance(DUE - ahead.HAND_OFF // 2 - given.clock.now())
        monkeypatch.setattr(ahead, "LATEST", 0)
        await given.made_ready()
        [herd] = given.herds
        await herd.task  # nobody has called for it
        assert await given.in_chunks() == given.numbers
        given.line.store.look_ahead(given.leases, deciding(fires_hourly))
        assert given.herds == [herd], "it is known until it is called for"
        assert await given.stage.claim() == []
        given.clock.advance(DUE - 1 - given.clock.now())
        assert await given.stage.claim() == []
        given.clock.advance(1)
        fired = await given.fire(_never)
        assert (fired.handed_off, fired.created, fired.stale, fired.early) == (TICKS, TICKS, 0, 0)
        claimed = await given.stage.claim()
        assert sorted(run.number for run in claimed) == given.numbers
        for run in claimed:
            view = await given.stage.run(run)
            assert view.fired_at == view.fire_at == DUE
        assert await given.in_chunks() == []


async def _time_comes(made: Line, moment: Instant) -> None:
    async def has_come() -> bool:
        [[now]] = await made.ask("SELECT foliot.now()")
        return bool(now >= moment)

    await until_async(has_come, "this moment has come by the server's clock")


async def _made_ready_in_time(made: Line) -> tuple[Instant, list[Lease], list[Entry]]:
    """Ticks that are due soon, and made ready. Where the set-up takes longer, it is made again for later ticks."""
    for wait in (2, 10, 60):
        [[now]] = await made.ask("SELECT foliot.now()")
        due = now + wait * SECOND
        await made.stage.apply(*(declared(f"s{n}-{wait}", due) for n in range(TICKS)))
        leases = [await leased(made.stage, shard) for shard in range(SHARDS)]
        loaded = [entry for lease in leases for entry in await made.stage.loaded(lease)]
        entries = [entry for entry in loaded if entry[0] == due]
        assert len(entries) == TICKS
        made.store.look_ahead(leases, deciding(fires_hourly))
        if made.store._cells.ahead.herds:
            return due, leases, entries
        await made.ask("DELETE FROM foliot.run")
        await made.ask("DELETE FROM foliot.schedule")
    raise AssertionError("no ticks were made ready within a minute")


async def test_by_the_server_s_own_clock_a_herd_goes_by_itself_and_never_early(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "AHEAD", 90 * SECOND)  # so that no set-up comes too early for it
    async with line(postgres, shards=SHARDS) as made:
        due, leases, entries = await _made_ready_in_time(made)
        [herd] = made.store._cells.ahead.herds
        await herd.task
        rows = await made.ask("SELECT fired_at, ready_at, cardinality(numbers) FROM foliot.handoff")
        assert sum(row[2] for row in rows) == TICKS
        assert all(row[0] >= due and row[1] in (0, due) for row in rows)
        await _time_comes(made, due)
        assert len(await made.stage.claim()) == TICKS
        assert min([row[0] for row in await made.ask("SELECT claimed_at FROM foliot.claim")]) >= due
        fired = await made.store.fire(leases, entries, leases[0].cursor, deciding(_never))
        assert (fired.handed_off, fired.stale) == (TICKS, 0)
        assert fired.at >= due


async def test_whoever_calls_for_a_part_of_a_herd_is_not_told_that_the_rest_is_stale(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        given.clock.advance(SECOND)
        first = await given.fire(_never, given.due[:10])
        rest = await given.fire(_never, given.due[10:])
        assert (first.handed_off, rest.handed_off, rest.stale, rest.early) == (TICKS, 0, 0, 0)
        again = await given.fire()
        assert (again.handed_off, again.stale) == (0, TICKS)
        assert await given.in_chunks() == given.numbers


async def test_a_herd_that_is_called_for_before_its_time_stays_where_it_is(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        given.clock.advance(DUE - 1 - START)
        fired = await given.fire()
        assert (fired.handed_off, fired.early) == (0, TICKS)
        assert await given.in_chunks() == []
        given.clock.advance(1)
        assert (await given.fire()).handed_off == TICKS


async def test_what_waits_beside_a_herd_is_fired_with_it(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        given.clock.advance(SECOND)
        plain = await given.stage.promise()
        fired = await given.fire(_never, [*given.due, (given.clock.now(), plain.number)])
        assert (fired.handed_off, fired.stale) == (TICKS + 1, 0)
        assert await given.in_chunks() == sorted([*given.numbers, plain.number])


# ------------------------------------------------------------------------------------------------ it is not out of date


async def test_an_owner_that_was_replaced_hands_nothing_off(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        await given.line.ask("UPDATE foliot.shard SET epoch = epoch + 1 WHERE shard = 3")
        given.clock.advance(SECOND)
        with pytest.raises(LostOwnership) as lost:
            await given.fire()
        assert lost.value.shards == {3}
        assert await given.in_chunks() == []
        assert await given.line.runs() == given.numbers
        given.leases = [await leased(given.stage, shard) for shard in range(SHARDS)]
        assert (await given.fire()).handed_off == TICKS
        assert await given.in_chunks() == given.numbers


async def test_a_tick_whose_schedule_has_another_run_is_decided_about_when_it_is_due(postgres: PostgresServer) -> None:
    """Its run may end until then, and must not wait for anybody to end."""
    async with crowd(postgres) as given:
        await given.stage.store.trigger("s7", actor="test", note="")
        await given.line.store.fire(given.leases, await _all_due(given), given.leases[0].cursor, deciding(fires))
        [busy] = await given.stage.claim()
        await given.made_ready()
        [herd] = given.herds
        assert len(herd.entries) == TICKS - 1
        await given.stage.finish(given.stage.succeeded(busy))
        given.clock.advance(SECOND)
        seen: list[str | None] = []
        fired = await given.fire(lambda fact: seen.append(fact.occupied_by) or fires_hourly(fact))  # type: ignore[func-returns-value]
        assert (seen, fired.handed_off, fired.created) == ([None], TICKS, TICKS)


async def test_whoever_pauses_a_schedule_of_the_herd_comes_after_its_tick(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        pausing = asyncio.create_task(given.stage.store.pause("s7", until=None, actor="test", note="enough"))
        await _until_a_lock_is_waited_for(given)
        given.clock.advance(SECOND)
        assert (await given.fire(_never)).handed_off == TICKS
        await pausing
        assert (await given.stage.store.schedule("s7")).schedule.paused_at is not None


async def test_a_herd_that_is_given_up_lets_everybody_go_on(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        pausing = asyncio.create_task(given.stage.store.pause("s7", until=None, actor="test", note="enough"))
        await _until_a_lock_is_waited_for(given)
        await given.line.store.release(given.leases)
        await pausing
        assert await given.line.runs() == given.numbers
        given.leases = [await leased(given.stage, shard) for shard in range(SHARDS)]
        given.clock.advance(SECOND)
        assert (await given.fire()).handed_off == TICKS


async def test_a_limit_that_is_set_meanwhile_holds_for_the_herd(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        await given.stage.store.set_limit(Gate("job:job", most=10), actor="test")
        given.clock.advance(SECOND)
        fired = await given.fire()
        assert (fired.handed_off, fired.held, fired.created) == (10, TICKS - 10, TICKS)


async def test_a_tick_that_was_cancelled_is_not_made_ready(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        [view] = await given.stage.waiting("s7")
        await given.stage.store.cancel(view.id, actor="test", note="not today")
        await given.made_ready()
        [herd] = given.herds
        assert (DUE, view.number) not in herd.entries
        assert len(herd.entries) == TICKS - 1


async def test_a_schedule_that_needs_another_ones_result_is_not_made_ready(postgres: PostgresServer) -> None:
    """Whether it has that is known when it is due. The other one is left for whoever ends its runs."""
    async with crowd(postgres) as given:
        await given.stage.apply(declared("below", DUE, policy=Policy(requires="s7")))
        given.due = [entry for lease in given.leases for entry in await given.stage.loaded(await _again(given, lease))]
        await given.made_ready()
        [herd] = given.herds
        assert len(herd.entries) == TICKS


async def test_schedules_that_miss_their_ticks_at_once_are_not_made_ready(postgres: PostgresServer) -> None:
    async with crowd(postgres, policy=Policy(missed_after=10 * MILLISECOND)) as given:
        given.line.store.look_ahead(given.leases, deciding(fires_hourly))
        [herd] = given.herds
        await soon(asyncio.wait([herd.task]))
        assert not herd.entries
        given.clock.advance(SECOND)
        assert (await given.fire()).handed_off == TICKS


async def test_few_ticks_are_left_to_the_firing_itself(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "HERD", TICKS + 1)
    async with crowd(postgres) as given:
        given.line.store.look_ahead(given.leases, deciding(_never))
        assert given.herds == []


# ------------------------------------------------------------------------------------------------------ it can go wrong


async def test_a_connection_that_is_lost_while_a_herd_waits_costs_nothing(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        given.line.proxy.cut_all()
        given.clock.advance(SECOND)
        assert (await given.fire()).handed_off == TICKS
        assert await given.in_chunks() == given.numbers
        assert await given.line.count("run WHERE fired_at IS NULL") == TICKS


async def test_a_herd_whose_commit_was_not_answered_is_handed_off_once(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        given.clock.advance(SECOND)
        fault = given.line.proxy.cut_after_commit()
        await given.fire()
        assert fault.happened
        assert await given.in_chunks() == given.numbers
        assert await given.line.count("run WHERE fired_at IS NULL") == TICKS


async def test_closing_the_store_ends_what_waits(postgres: PostgresServer) -> None:
    async with crowd(postgres) as given:
        await given.made_ready()
        [herd] = given.herds
        await given.line.store.close()
        assert herd.task.cancelled()
        assert await given.line.runs() == given.numbers


# ------------------------------------------------------------------------------------------------------ beside all this


async def test_a_tick_whose_upstream_somebody_holds_is_put_back_and_the_others_go(postgres: PostgresServer) -> None:
    """A firing waits for nobody: the holder may be a herd that waits for this firing to be done."""
    async with crowd(postgres) as given:
        await given.stage.apply(
            declared("below", DUE, policy=Policy(requires="elsewhere")), declared("elsewhere", None)
        )
        given.clock.advance(SECOND)
        due = await _all_due(given)
        holder = await asyncpg.connect(given.line.dsn)
        await holder.execute("BEGIN; SELECT 1 FROM foliot.schedule WHERE id = 'elsewhere' FOR UPDATE")
        fired = await given.fire(due=due)
        [below] = await given.stage.waiting("below")
        assert (fired.handed_off, fired.busy, fired.stale) == (TICKS, [(DUE, below.number)], 0)
        await holder.close()
        assert (await given.fire(due=list(fired.busy))).handed_off == 1


async def test_stirs_are_forgotten_also_where_nothing_but_ticks_is_fired(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_FORGETS_EVERY", -1.0)
    async with crowd(postgres) as given:
        store, cursor = given.line.store, given.leases[0].cursor
        given.clock.advance(SECOND)
        await given.fire(_fires_soon)
        told = await store.arrivals(given.leases, cursor)
        assert len(told.number) == TICKS
        assert await given.line.count("stir") > 0
        assert len((await store.arrivals(given.leases, told.cursor)).number) == 0
        assert await given.line.count("stir") == 0


async def test_nobody_forgets_a_stir_for_an_owner_that_replaced_him(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_FORGETS_EVERY", -1.0)
    async with crowd(postgres) as given:
        store, cursor = given.line.store, given.leases[0].cursor
        given.clock.advance(SECOND)
        await given.fire(_fires_soon)
        told = await store.arrivals(given.leases, cursor)
        await given.line.ask("UPDATE foliot.shard SET epoch = epoch + 1")
        before = await given.line.count("stir")
        await store.arrivals(given.leases, told.cursor)
        assert await given.line.count("stir") == before > 0


async def test_stirs_are_forgotten_by_the_firing_after_one_that_was_refused(postgres: PostgresServer) -> None:
    async with stages(postgres, 1) as (judge, [stage]):
        await stage.promise("class:7", after=HOUR)
        await stage.store.move("class:7", None, stage.now + MINUTE)
        await stage.promise()
        lease = await stage.lease()
        due = await due_in(stage, lease)
        with pytest.raises(LostOwnership):
            await stage.store.fire([lease._replace(epoch=lease.epoch + 1)], due, lease.cursor, deciding(fires))
        assert await judge.fetchval("SELECT count(*) FROM foliot.stir") > 0
        assert (await stage.store.fire([lease], due, lease.cursor, deciding(fires))).handed_off == 1
        assert await judge.fetchval("SELECT count(*) FROM foliot.stir") == 0


def _never(fact: TickFacts) -> TickDecision:
    raise AssertionError(f"what was made ready is not decided about again: {fact.id}")


def _fires_soon(fact: TickFacts) -> TickDecision:
    following = NewTick(fact.nominal + MINUTE, fact.nominal, fact.nominal + MINUTE)
    return TickDecision(fact.number, "fire", successor=following, evaluated_through=fact.nominal)


async def _all_due(given: Crowd) -> list[Entry]:
    rows = await given.line.ask("SELECT fire_at, number FROM foliot.run WHERE fire_at <= $1", given.clock.now())
    return [(row[0], row[1]) for row in rows]


async def _again(given: Crowd, lease: Lease) -> Lease:
    return lease._replace(cursor=(await given.line.store.arrivals([lease], lease.cursor)).cursor)


async def _until_a_lock_is_waited_for(given: Crowd) -> None:
    judge = await asyncpg.connect(given.line.dsn)
    try:
        await until_locks_are_waited_for(judge)
    finally:
        await judge.close()


# ------------------------------------------------------------------------------------------------------ large herds


def test_thousands_of_ticks_of_one_moment_are_made_ready_earlier_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Instant, int]] = []
    monkeypatch.setattr(ahead.Ahead, "_begin", lambda self, at, numbers, *rest: begun.append((at, len(numbers))))
    given = ahead.Ahead(cast(ahead.Server, None), FairShares(), lambda: "")
    many, few = START + 3 * SECOND, START + 2_990 * MILLISECOND
    given.note((many, number, True) for number in range(ahead.LARGE))
    given.note((few, number, True) for number in range(ahead.HERD))
    given.look([], deciding(fires), many - ahead.FURTHEST - 1)
    assert begun == []
    given.look([], deciding(fires), many - ahead.FURTHEST)
    assert begun == [(many, ahead.LARGE)]
    given.note((many, ahead.LARGE + number, True) for number in range(ahead.HERD))  # made meanwhile
    given.look([], deciding(fires), many - ahead.AHEAD)
    assert begun == [(many, ahead.LARGE), (few, ahead.HERD), (many, ahead.HERD)]
    assert given.is_tick((many, 0))
    assert given.is_tick((many, ahead.LARGE))


def test_a_thousand_ticks_of_each_second_are_not_prepared_beside_those_of_the_second_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[Instant, int]] = []
    monkeypatch.setattr(ahead.Ahead, "_begin", lambda self, at, numbers, *rest: begun.append((at, len(numbers))))
    given = ahead.Ahead(cast(ahead.Server, None), FairShares(), lambda: "")
    due = START + SECOND
    given.note((due, number, True) for number in range(1_000))
    given.look([], deciding(fires), START)
    assert begun == []
    given.look([], deciding(fires), due - ahead.AHEAD)
    assert begun == [(due, 1_000)]


async def test_a_herd_that_is_decided_in_pieces_goes_whole(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "PIECE", 7)
    async with crowd(postgres) as given:
        await given.made_ready()
        given.clock.advance(DUE - START)
        assert (await given.fire(_never)).handed_off == TICKS
        assert await given.in_chunks() == given.numbers
