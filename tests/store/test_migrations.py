"""A file that an older release made is brought up to date, and nothing in it is lost."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, parse_rfc3339
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.store import Schema
from foliot.errors import SchemaMismatch
from foliot.store.sqlite import migrating
from foliot.store.sqlite.connection import APPLICATION, connect
from foliot.store.sqlite.store import SqliteStore
from tests.tiers import only_in_full

STEPS = sorted(
    step.name for step in files("foliot.store.sqlite").joinpath("migrations").iterdir() if step.name.endswith(".sql")
)
SCHEMAS = [
    schema if schema in (1, 6, len(STEPS) - 1, len(STEPS)) else only_in_full(schema)
    for schema in range(1, len(STEPS) + 1)
]
"""The short form begins with the first schema, one in the middle, and the last two."""
NOW = parse_rfc3339("2026-04-03T02:00:00Z")


def _released(path: Path, schema: int) -> None:
    """A store as release number `schema` left it, with a schedule, its pending tick and one that ran."""
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", APPLICATION)
    for step in STEPS[:schema]:
        connection.execute(files("foliot.store.sqlite").joinpath("migrations", step).read_text("utf-8"))
    connection.pragma("user_version", schema)
    rule = '{"cron":"0 2 * * *","tz":"UTC"}'
    connection.execute(
        "INSERT INTO schedule (id, job, rule, payload, policy, priority, revision, fingerprint, made_at) "
        "VALUES ('daily', 'report', ?, CAST('{}' AS BLOB), ?, 0, 3, 'print', ?)",
        (rule, policy_to_json(Policy()), NOW - HOUR),
    )
    connection.execute(
        "INSERT INTO run (number, name, state, origin, job, payload, fire_at, nominal, schedule) "
        "VALUES (1, 'daily@2026-04-04T02:00:00Z', 0, 0, 'report', CAST('{}' AS BLOB), ?, ?, 'daily')",
        (NOW + 24 * HOUR, NOW + 24 * HOUR),
    )
    connection.execute(
        "INSERT INTO history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, schedule, "
        "attempt, spent, finished_at) "
        "VALUES (2, 'daily@2026-04-03T02:00:00Z', 10, 0, 0, 0, 'report', CAST('{}' AS BLOB), ?, ?, 'daily', 1, 1, ?)",
        (NOW, NOW, NOW),
    )
    connection.close()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_of_every_released_schema_opens_with_all_that_is_in_it(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "foliot.db"
    _released(path, schema)

    async def look() -> tuple[ScheduleView, list[RunView]]:
        store = SqliteStore(str(path), ManualClock(NOW))
        await store.open()
        try:
            return await store.schedule("daily"), await store.runs()
        finally:
            await store.close()

    view, runs = asyncio.run(look())
    assert (view.schedule.revision, view.schedule.source, view.schedule.tables) == (3, "code", None)
    assert view.next_id == "daily@2026-04-04T02:00:00Z"
    assert {run.id for run in runs} == {"daily@2026-04-03T02:00:00Z", "daily@2026-04-04T02:00:00Z"}


# ------------------------------------------------------------------------------------------------- before it is opened


def _look(path: Path) -> Schema:
    return asyncio.run(SqliteStore(str(path)).schema())


def _open(path: Path, *, migrates: bool = True) -> None:
    async def begin() -> None:
        store = SqliteStore(str(path), migrates=migrates)
        await store.open()
        await store.close()

    asyncio.run(begin())


def test_to_ask_how_a_file_stands_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    schema = _look(path)
    assert (schema.current, schema.latest, len(schema.pending)) == (0, len(STEPS), len(STEPS))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_to_ask_how_a_file_stands_changes_nothing(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "foliot.db"
    _released(path, schema)
    before = path.read_bytes()
    found = _look(path)
    assert (found.current, len(found.pending), found.is_too_new) == (schema, len(STEPS) - schema, False)
    assert path.read_bytes() == before


def test_to_migrate_says_how_it_stood_and_does_nothing_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "foliot.db"
    assert asyncio.run(SqliteStore(str(path)).migrate()).current == 0
    again = asyncio.run(SqliteStore(str(path)).migrate())
    assert (again.current, again.pending) == (len(STEPS), ())


def test_who_may_never_migrate_is_sent_to_the_command(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    with pytest.raises(SchemaMismatch, match="run `foliot migrate`"):
        _open(path, migrates=False)
    assert not path.exists()
    _released(path, 1)
    with pytest.raises(SchemaMismatch, match=r"missing steps: .* from 0002_walls_and_tables"):
        _open(path, migrates=False)
    asyncio.run(SqliteStore(str(path)).migrate())
    _open(path, migrates=False)


def _enter_a_step_of_the_future(path: Path, needs: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO migration (step, name, needs) VALUES (99, '0099_future', ?)", (needs,))
    connection.pragma("user_version", 99)
    connection.close()


def test_an_old_release_goes_on_with_tables_of_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    _open(path)
    _enter_a_step_of_the_future(path, needs=1)
    _open(path)
    _open(path, migrates=False)
    assert (_look(path).current, _look(path).is_too_new) == (99, False)


def test_an_old_release_refuses_tables_that_it_cannot_live_with(tmp_path: Path) -> None:
    path = tmp_path / "foliot.db"
    _open(path)
    _enter_a_step_of_the_future(path, needs=99)
    for migrates in (True, False):
        with pytest.raises(SchemaMismatch, match=r"schema 99.*upgrade"):
            _open(path, migrates=migrates)
    assert _look(path).is_too_new


def test_the_printed_steps_make_the_same_tables(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    _open(ours)
    connection = apsw.Connection(str(theirs))
    connection.execute(SqliteStore(str(theirs)).migration_sql(0))
    connection.close()
    _open(theirs, migrates=False)

    def tables(path: Path) -> object:
        looking = apsw.Connection(str(path))
        try:
            return looking.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        finally:
            looking.close()

    assert tables(ours) == tables(theirs)


def test_a_store_in_memory_has_what_the_steps_make() -> None:
    """Its tables are a copy of some that were made before."""
    stepwise = connect(":memory:")
    migrating.migrate(stepwise, ":memory:")

    async def opened() -> object:
        store = SqliteStore(":memory:")
        await store.open()
        assert store._reader is not None
        found = everything(store._reader)
        await store.close()
        return found

    def everything(connection: apsw.Connection) -> object:
        made = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        connection.execute("UPDATE migration SET applied_at = ''")  # when that was
        rows = {
            name: connection.execute(f"SELECT * FROM {name}").fetchall() for kind, name, _ in made if kind == "table"
        }
        return made, rows, connection.pragma("user_version"), connection.pragma("application_id")

    assert asyncio.run(opened()) == everything(stepwise)
    assert asyncio.run(opened()) == everything(stepwise), "the second one of a process, too"
