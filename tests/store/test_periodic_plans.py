"""A fleet with nothing to do asks again and again, and what it asks does not grow with what is pending or has ended."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND
from foliot.store import queries
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.transaction import prepared
from foliot.store.sqlite import SqliteStore
from foliot.store.sqlite.connection import connect
from tests.servers.emptied import emptied
from tests.servers.postgres import PostgresServer
from tests.store.periodic import Asked, idle_rounds

NOON = 1_800_000_000 * SECOND
GROWING = ("run", "history", "attempt", "event", "audit", "seal", "effect", "item", "batch", "backfill", "ended")
"""Tables that grow with the runs, or with the days."""
NARROW = {"run_parked", "run_retrying", "run_phase", "run_gathering", "run_gives_up", "history_early", "attempt_early"}
NARROW |= {"run_parked_groups", "run_parked_quiet", "history_span", "backfill_unended", "effect_open"}
"""Indexes of what is out of the ordinary: they may be read as a whole."""
LIMITED = {"first_held", "drop_events", "last_seal", "any_signed", "add_audit"}
"""They read from one end of an index or of a table, take every row there, and stop at their limit or at the first."""
CURSORS = {
    "arrived_new",
    "ended_briefly",
    "events_after",
    "events_since",
    "outlived",
    "is_any_uncounted",
    "tally_bound",
}
"""They go on from where they were the last time: what lies behind that is new, or is the oldest."""
LEDGERS = {"drop_ledgers"}
"""Once a minute, where a term is set, PostgreSQL reads all ledgers: an index by time would cost each effect a write."""
RARE = {"recounts_at_rest"}
"""PostgreSQL asks them only while an operator's changes are still to be counted; SQLite may ask always."""
AT_LEAST = 50
"""Statements: with fewer of them, the rounds have missed something."""


async def test_no_periodic_statement_reads_a_whole_table_on_sqlite(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    store = SqliteStore(str(tmp_path / "foliot.db"), clock)
    asked = store._queries = Asked(store._queries)
    await store.open()
    await idle_rounds(store, clock)
    await store.close()
    connection = connect(str(tmp_path / "foliot.db"))
    scans = {}
    for name in sorted(asked.names):
        found = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {asked[name]}", _nothing(asked[name]))]
        aliases = dict(re.findall(r"\b(\w+)(?: INDEXED BY \w+)? (?:AS )?(\w+)\b", asked[name]))
        tables = {alias: table for table, alias in aliases.items() if table in GROWING}
        scans[name] = [line for line in found if _reads_all(name, line, tables)]
    connection.close()
    assert len(asked.names) >= AT_LEAST
    assert {name: lines for name, lines in scans.items() if lines} == {}


def _reads_all(name: str, line: str, aliases: dict[str, str]) -> bool:
    read = re.match(r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(?:INDEX (\w+)|INTEGER PRIMARY KEY))?(.*)", line)
    if read is None or aliases.get(read[2], read[2]) not in GROWING or read[3] in NARROW:
        return False
    if read[1] == "SEARCH":  # of all rows behind a number
        return "(rowid>" in read[4] and name not in CURSORS
    return name not in LIMITED


def _nothing(query: str) -> dict[str, None] | tuple[None, ...]:
    """A plan needs a value for each parameter, and does not depend on it."""
    named = re.findall(r":([a-z]\w*)", query)
    if named:
        return dict.fromkeys(named)
    places = re.findall(r"\?(\d*)", query)
    return (None,) * max((int(place or 0) for place in places), default=0) or (None,) * len(places)


@pytest.mark.needs("postgres")
async def test_no_periodic_statement_reads_a_whole_table_on_postgresql(postgres: PostgresServer) -> None:
    clock = ManualClock(NOON)
    store = PostgresStore(emptied(postgres), clock)
    asked = store._queries = Asked(store._queries)
    await store.open()
    await idle_rounds(store, clock)
    await store.close()
    connection = await asyncpg.connect(store.url)
    scans: dict[str, list[str]] = {}
    try:
        # A plan for any values, that reads a table as a whole only where there is no index for it.
        await connection.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        for name in sorted(asked.names - LEDGERS | RARE):
            lines = await _plan(connection, asked[name].text)
            scans[name] = [line for place, line in enumerate(lines) if _reads_all_there(line, lines[place + 1 :])]
    finally:
        await connection.close()
    assert len(asked.names) >= AT_LEAST
    assert {name: lines for name, lines in scans.items() if lines} == {}


async def _plan(connection: asyncpg.Connection, text: str) -> list[str]:
    count = max((int(place) for place in re.findall(r"\$(\d+)", text)), default=0)
    await connection.execute(f"PREPARE asked AS {text}")
    try:
        nothing = f"({', '.join(['NULL'] * count)})" if count else ""
        return [row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE asked{nothing}")]
    finally:
        await connection.execute("DEALLOCATE asked")


def _reads_all_there(line: str, following: list[str]) -> bool:
    table = re.search(r"Seq Scan on (\w+)", line)
    return table is not None and table[1] in GROWING


GROUPS = {"parked_groups": {"limit": 50}, "parked_subjects": {"limit": 50}}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_runs_that_wait_for_a_person_are_grouped_from_an_index_alone_on_sqlite(
    tmp_path: Path, name: str, is_analyzed: bool
) -> None:
    store = SqliteStore(str(tmp_path / "foliot.db"), ManualClock(NOON))
    await store.open()
    await store.close()
    connection = connect(str(tmp_path / "foliot.db"))
    if is_analyzed:
        connection.execute("ANALYZE")
    text = queries.queries_of("foliot.store.sqlite")[name]
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", GROUPS[name])]
    connection.close()
    assert "SEARCH run USING COVERING INDEX run_parked_groups (state>?)" in plan
    assert sum("TEMP B-TREE FOR GROUP BY" in line for line in plan) == 1, "of the groups, not of the runs"


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("name", GROUPS)
async def test_runs_that_wait_for_a_person_are_grouped_from_an_index_alone_on_postgresql(
    postgres: PostgresServer, name: str
) -> None:
    asked = prepared(queries.load(files("foliot.store.postgres").joinpath("sql")))[name]
    connection = await asyncpg.connect(emptied(postgres))
    transaction = connection.transaction()
    await transaction.start()
    try:
        # By the sizes that tests before this one left, another index may seem cheaper.
        others = await connection.fetch(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'foliot.run'::regclass "
            "AND NOT indisprimary AND indexrelid <> 'foliot.run_parked_groups'::regclass"
        )
        await connection.execute(f"DROP INDEX {', '.join(row[0] for row in others)}")
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        rows = await connection.fetch(f"EXPLAIN {asked.text}", *asked.arguments(GROUPS[name]))
    finally:
        await transaction.rollback()
        await connection.close()
    assert any("Index Only Scan using run_parked_groups" in row[0] for row in rows), "\n".join(row[0] for row in rows)
