"""Slots on SQLite: the writer frees them by the batch, all other transactions run by run. None of them forgets one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from foliot.clock import ManualClock
from foliot.domain.breaker import Contact
from foliot.domain.gates import Gate
from foliot.domain.instant import SECOND
from foliot.domain.policy import choices, choices_to_json
from foliot.store import queries
from foliot.store.sqlite import SqliteStore
from foliot.store.sqlite.connection import connect
from foliot.store.verbs import breakers
from tests.contract.stage import START, Stage


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[tuple[Stage, apsw.Connection]]:
    """A stage, and a connection of another program to its file, which counts the writes of slots and of runs."""
    clock = ManualClock(START)
    store = SqliteStore(str(folder / "foliot.db"), clock)
    await store.open()
    other = connect(store.path, clock)
    other.execute("CREATE TABLE written (name TEXT)")
    other.execute("CREATE TRIGGER slot_written AFTER UPDATE ON slot BEGIN INSERT INTO written VALUES (new.name); END")
    other.execute("CREATE TRIGGER run_written AFTER UPDATE ON run BEGIN INSERT INTO written VALUES (new.number); END")
    try:
        yield Stage(store, clock), other
    finally:
        other.close()
        await store.close()


def writes(other: apsw.Connection, name: str | int) -> int:
    count: int = other.execute("SELECT count(*) FROM written WHERE name = ?", (str(name),)).get
    other.execute("DELETE FROM written")
    return count


def used(other: apsw.Connection) -> dict[str, int]:
    return dict(other.execute("SELECT name, used FROM slot"))


async def test_a_batch_that_is_handed_off_writes_its_slot_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=100), actor="ana")
        for _ in range(20):
            await stage.promise()
        assert (await stage.fire()).handed_off == 20
        assert writes(other, "job:job") == 1
        assert used(other) == {"job:job": 20}


async def test_a_batch_that_ends_writes_its_slot_twice_at_most(tmp_path: Path) -> None:
    """Once for the units that are freed, once for those that the next runs take."""
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=5), actor="ana")
        for _ in range(10):
            await stage.promise()
        await stage.fire()
        runs = await stage.claim()
        writes(other, "job:job")
        await stage.finish(*map(stage.succeeded, runs))
        assert writes(other, "job:job") == 2
        assert used(other) == {"job:job": 5}


async def test_a_rate_that_does_not_bind_writes_no_run(tmp_path: Path) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", every=1), actor="ana")
        kept = [await stage.promise(options=choices_to_json(choices({"destination": "bank"}))) for _ in range(5)]
        assert (await stage.fire()).handed_off == 5
        assert [writes(other, run.number) for run in kept] == [0] * 5


async def test_runs_that_another_program_ends_free_their_slots_in_its_transaction(tmp_path: Path) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
        for _ in range(4):
            await stage.promise()
        await stage.fire()
        for run in await stage.claim():
            other.execute("DELETE FROM run WHERE number = ?", (run.number,))
        assert used(other) == {"job:job": 2}  # of the next two
        await stage.fire()
        for run in await stage.claim():
            other.execute("DELETE FROM run WHERE number = ?", (run.number,))
        assert used(other) == {"job:job": 0}


async def test_requests_of_one_commit_each_free_what_their_runs_had(tmp_path: Path) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=6), actor="ana")
        for _ in range(6):
            await stage.promise()
        await stage.fire()
        runs = await stage.claim()
        endings = list(map(stage.succeeded, runs))
        await asyncio.gather(*(stage.finish(*endings[first : first + 2]) for first in (0, 2, 4)))
        assert used(other) == {"job:job": 0}
        assert other.execute("SELECT count(*) FROM collected").get == 0


async def test_a_request_that_fails_frees_nothing_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=4), actor="ana")
        for _ in range(4):
            await stage.promise()
        await stage.fire()
        endings = list(map(stage.succeeded, await stage.claim()))
        writes(other, "job:job")
        monkeypatch.setattr(breakers, "heard", _fail)
        contact = Contact("bank", True, 5, SECOND, SECOND)
        failed, refused = await asyncio.gather(
            stage.finish(*(ending._replace(contact=contact) for ending in endings)),
            stage.finish(*endings[:2]),
            return_exceptions=True,
        )
        assert isinstance(failed, ZeroDivisionError)
        assert refused == []
        assert used(other) == {"job:job": 2}
        assert writes(other, "job:job") == 1


async def _fail(*_: object) -> None:
    raise ZeroDivisionError


async def test_waiters_of_a_rate_get_the_next_times_together(tmp_path: Path) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", every=SECOND // 4), actor="ana")
        for _ in range(6):
            await stage.promise()
        await stage.fire()  # one starts, two have their times, three are held
        stage.clock.advance(SECOND)
        writes(other, "")
        assert (await stage.fire()).handed_off == 2
        assert writes(other, "rate:job:job") <= 3  # freed, taken, and the times of the next two
        due = [run.fire_at for run in await stage.store.runs(limit=10) if run.fire_at >= stage.now]
        assert sorted(due) == [stage.now, stage.now + SECOND // 4]


class Plans:
    """Plans of queries on a file in which runs wait."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = queries.queries_of("foliot.store.sqlite")

    def lines(self, name: str, **values: object) -> Collection[str]:
        return [row[3] for row in self._connection.execute(f"EXPLAIN QUERY PLAN {self._queries[name]}", values)]


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_the_next_runs_are_read_in_their_order_from_the_index_of_those_that_wait(
    tmp_path: Path, is_analyzed: bool
) -> None:
    async with staged(tmp_path) as (stage, other):
        await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
        for _ in range(3):
            await stage.promise()
        await stage.fire()
        if is_analyzed:  # with so few rows every other plan looks as good
            other.execute("ANALYZE")
        plans = Plans(other)
        waiting = plans.lines("next_waiting", slot="job:job", limit=5)
        assert waiting == ["SEARCH run USING INDEX run_waiting (waits_for=?)"]
        rooms = plans.lines("slots_with_room", names='["job:job"]')
        assert any(re.match(r"SEARCH r .*USING INDEX run_waiting \(waits_for=\?\)", line) for line in rooms), rooms
