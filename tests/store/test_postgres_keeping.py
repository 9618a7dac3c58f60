"""Retention: a day of history is a partition, made ahead of time and dropped whole when its term has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import DAY, HOUR, MINUTE
from foliot.domain.ledger import EffectState, Item, ItemState
from foliot.domain.run import Progress
from foliot.domain.state import State
from tests.contract.stage import START, Stage
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.servers.warm import Warm
from tests.store.lines import until_locks_are_waited_for


class House(Stage):
    """A stage on PostgreSQL, whose tables can be looked at."""

    dsn: str

    async def sql(self, text: str, *values: object) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return [tuple(row) for row in await connection.fetch(text, *values)]
        finally:
            await connection.close()

    async def partitions(self) -> list[str]:
        """The days that have a partition."""
        found = await self.sql(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = 'foliot.history'::regclass AND c.relname <> 'history_other' ORDER BY c.relname"
        )
        return [str(row[0]) for row in found]


@pytest.fixture
def house(postgres: PostgresServer, warm: Warm, runner: asyncio.Runner) -> Iterator[House]:
    clock = ManualClock(START)
    dsn = emptied(postgres, shards=1, by_socket=True)
    store = warm.store(dsn, clock)
    runner.run(store.open())
    made = House(store, clock)
    made.dsn = dsn
    yield made
    runner.run(made.sql("UPDATE foliot.setting SET keep_days = 90"))
    for name in runner.run(made.partitions()):
        runner.run(made.sql(f"DROP TABLE foliot.{name}"))
    runner.run(store.close())


async def ended(house: House, key: str) -> str:
    run = await house.running(key)
    await house.finish(house.succeeded(run))
    return run.id


async def days(house: House) -> list[str]:
    return [name for name in await house.partitions() if name.startswith("history_202604")]


async def test_partitions_are_made_a_week_ahead(house: House) -> None:
    await house.store.tidy()
    assert await days(house) == [f"history_202604{day:02}" for day in range(3, 11)]
    await house.store.tidy()
    assert len(await days(house)) == 8


async def test_what_ends_lies_in_the_partition_of_its_day(house: House) -> None:
    await house.store.tidy()
    await ended(house, "class:7")
    assert await house.sql("SELECT count(*) FROM foliot.history_20260403") == [(1,)]


async def test_a_day_is_dropped_once_its_term_has_ended_and_its_keys_are_free_again(house: House) -> None:
    await house.store.tidy()
    identifier = await ended(house, "class:7")
    failing = await house.running("class:8")
    await house.finish(house.failed(failing, 0))
    again = await house.claim() or (await house.fire() and await house.claim())
    await house.finish(house.succeeded(again[0]))
    assert await house.sql("SELECT count(*) FROM foliot.attempt") == [(1,)]
    house.clock.advance(90 * DAY)
    await house.store.tidy()
    assert "history_20260403" in await days(house)  # until the day itself has ended
    assert (await house.run(identifier)).name == "class:7#1"
    house.clock.advance(DAY)
    await house.store.tidy()
    assert "history_20260403" not in await days(house)
    assert await house.sql("SELECT count(*) FROM foliot.attempt") == [(0,)]
    assert (await house.promise("class:7")).outcome == "made"


async def test_what_lies_in_no_days_partition_goes_as_well(house: House) -> None:
    identifier = await ended(house, "class:7")
    await house.store.note("kind", "subject", "old")
    house.clock.advance(91 * DAY)
    await house.store.note("kind", "subject", "new")
    await house.store.tidy()
    assert await house.sql("SELECT count(*) FROM foliot.history") == [(0,)]
    assert [event.detail for event in await house.events("kind")] == ["new"]
    assert (await house.promise(identifier.removesuffix("#1"))).outcome == "made"


async def test_nothing_goes_while_everything_is_to_be_kept(house: House) -> None:
    await house.sql("UPDATE foliot.setting SET keep_days = NULL")
    await house.store.tidy()
    identifier = await ended(house, "class:7")
    house.clock.advance(3650 * DAY)
    await house.store.tidy()
    assert (await house.promise("class:7")).id == identifier


async def test_whoever_reads_history_for_long_delays_only_the_tidying(house: House) -> None:
    await house.store.tidy()
    await ended(house, "class:7")
    reader = await asyncpg.connect(house.dsn)
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch("SELECT count(*) FROM foliot.history")
    house.clock.advance(92 * DAY)
    await house.store.tidy()
    assert "history_20260403" in await days(house)
    await ended(house, "class:8")
    await transaction.rollback()
    await reader.close()
    await house.store.tidy()
    assert "history_20260403" not in await days(house)


async def test_a_claim_of_which_no_run_is_left_goes_and_others_stay(house: House) -> None:
    completed, running = await house.running("class:7"), await house.running("class:8")
    await house.sql("SELECT foliot.complete($1, $2)", completed.number, completed.token)
    house.clock.advance(2 * MINUTE)
    await house.store.tidy()
    assert await house.sql("SELECT token FROM foliot.claim") == [(running.token,)]


async def test_an_instance_that_was_silent_for_a_day_is_ended_unless_it_has_runs(house: House) -> None:
    silent, owner, beating = [await house.register() for _ in range(3)]
    await house.running("class:7", worker=owner)
    house.clock.advance(DAY - HOUR)
    await house.store.beat(beating, [])
    await house.store.tidy()
    assert silent in await living(house)
    house.clock.advance(2 * HOUR)
    await house.store.tidy()
    assert await living(house) & {silent, owner, beating} == {owner, beating}


async def living(house: House) -> set[object]:
    return {row[0] for row in await house.sql("SELECT number FROM foliot.instance WHERE ended_at IS NULL")}


async def test_a_ledger_goes_with_the_last_run_of_its_lineage_and_what_waits_for_a_person_stays(house: House) -> None:
    await house.sql("UPDATE foliot.setting SET keep_days = 1")
    ambiguous = await house.ambiguous("waiting")
    done = await house.running("done")
    await house.begin(done)
    await house.end(done)
    item = (Item("", "a", ItemState.DONE),)
    await house.store.beat(await house.worker(), [Progress(done.number, done.token, START, None, None, item)])
    await house.finish(house.succeeded(done))
    await house.store.tidy()
    assert await house.ledger(done) == [("pay", "7", EffectState.DONE)]
    house.clock.set(START + 40 * DAY)
    await house.store.tidy()
    assert await house.state(ambiguous) is State.AMBIGUOUS
    assert [row[0] for row in await house.sql("SELECT lineage FROM foliot.effect")] == [ambiguous.number]
    assert await house.sql("SELECT lineage FROM foliot.item UNION SELECT lineage FROM foliot.batch") == []


async def test_a_ledger_stays_while_a_rerun_of_its_lineage_is_kept(house: House) -> None:
    await house.sql("UPDATE foliot.setting SET keep_days = 1")
    first = await house.running("books")
    await house.begin(first)
    await house.end(first)
    await house.finish(house.succeeded(first))
    house.clock.set(START + 39 * DAY)
    await house.store.rerun(first.id, repair=False, repeat=(), override=False, actor="ada", note="again")
    await house.fire()
    [again] = await house.claim()
    await house.finish(house.succeeded(again))
    house.clock.set(START + 39 * DAY + HOUR)
    await house.store.tidy()
    assert await house.ledger(again) == [("pay", "7", EffectState.DONE)]


async def test_ended_runs_are_counted_while_retention_drops_a_day(house: House) -> None:
    """The count waits for the lock of a partition that it has listed, and then the partition is gone."""
    await ended(house, "class:7")
    retention = await asyncpg.connect(house.dsn)
    try:
        await retention.execute(
            "CREATE TABLE foliot.history_20260101 PARTITION OF foliot.history FOR VALUES FROM (1) TO (2)"
        )
        dropping = retention.transaction()
        await dropping.start()
        await retention.execute("DROP TABLE foliot.history_20260101")
        counting = asyncio.create_task(house.store.counts())
        await until_locks_are_waited_for(retention)
        await dropping.commit()
        assert (await counting)["history"] == 1
    finally:
        await retention.close()
