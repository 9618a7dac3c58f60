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
from foliot.store.sqlite.connection import APPLICATION
from foliot.store.sqlite.store import SqliteStore

STEPS = sorted(
    step.name for step in files("foliot.store.sqlite").joinpath("migrations").iterdir() if step.name.endswith(".sql")
)
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


@pytest.mark.parametrize("schema", range(1, len(STEPS) + 1))
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
