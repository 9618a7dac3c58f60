"""What is asked of schedules finds their runs by an index, however many other runs there are."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from foliot.store import queries
from foliot.store.postgres.transaction import prepared
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.needs("postgres")

ASKED: dict[str, dict[str, Any]] = {
    "delayed_schedules": {"schedules": ["hourly"]},
    "durations_of_ticks": {"job": "job", "limit": 5, "schedules": 5},
    "useful_of_schedules": {"ids": ["hourly"], "since": 0, "until": 1},
}


@pytest.mark.parametrize("query", ASKED)
async def test_runs_of_a_schedule_are_found_by_an_index(postgres: PostgresServer, query: str) -> None:
    """Ids of schedules and names in runs have two collations: a comparison by the wrong one passes every index by."""
    asked = prepared(queries.load(files("foliot.store.postgres").joinpath("sql")))[query]
    connection = await asyncpg.connect(emptied(postgres))
    try:
        await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        rows = await connection.fetch(f"EXPLAIN {asked.text}", *asked.arguments(ASKED[query]))
    finally:
        await connection.close()
    conditions = [row[0].strip() for row in rows if "Index Cond" in row[0]]
    assert any("(schedule = " in one for one in conditions), "\n".join(row[0] for row in rows)


async def test_no_function_that_turns_plans_off_lets_a_caller_compile_them(postgres: PostgresServer) -> None:
    """What is turned off has a high cost, and a plan of a high cost is compiled, which takes seconds."""
    connection = await asyncpg.connect(emptied(postgres))
    try:
        rows = await connection.fetch(
            "SELECT proname, proconfig FROM pg_proc "
            "WHERE pronamespace = 'foliot'::regnamespace AND proconfig::text LIKE '%enable_%'"
        )
    finally:
        await connection.close()
    assert {row["proname"] for row in rows} >= {"let_in", "run_let_go"}
    assert all("jit=off" in row["proconfig"] for row in rows)
