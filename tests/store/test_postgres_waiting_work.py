"""Periodic loops of one process share a statement, and read more only where there is work."""

from __future__ import annotations

import asyncio

import pytest

from foliot.clock import ManualClock
from foliot.domain.gates import Gate
from foliot.domain.instant import SECOND
from foliot.store.postgres import PostgresStore
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.store.periodic import Asked

pytestmark = pytest.mark.needs("postgres")

NOON = 1_800_000_000 * SECOND


class Counted(Asked):
    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store._queries)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> object:
        self.asked.append(name)
        return super().__getitem__(name)


async def test_loops_without_work_share_one_statement(postgres: PostgresServer) -> None:
    store = PostgresStore(emptied(postgres), ManualClock(NOON))
    await store.open()
    while await store.seal():
        pass
    asked = store._queries = Counted(store)
    answers = await asyncio.gather(
        store.silent(NOON), store.seal(), store.backfills_under_way(), store.gather(), store.give_up()
    )
    assert answers == [[], 0, [], 0, 0]
    assert [name for name in asked.asked if not name.startswith("look")] == ["waiting_work"]
    await store.set_limit(Gate("job:one", most=1), actor="test")
    assert await store.seal() == 1
    await store.close()
