"""PostgreSQL's tables are brought up to date while older processes go on: whole, or not at all."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.errors import SchemaMismatch, StoreError
from foliot.store.migrations import Step
from foliot.store.postgres import PostgresStore, migrating
from tests.contract.stage import START, Stage, fires_hourly
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer, programs
from tests.tiers import only_in_full
from tests.waiting import until_async

LATEST = len(migrating.steps())
BROKEN = Step(LATEST + 1, f"{LATEST + 1:04}_broken", "CREATE TABLE foliot.extra (n integer); SELECT 1 / 0;")


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(url: str, clock: ManualClock | None = None) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def entered(dsn: str) -> list[int]:
    async with connected(dsn) as connection:
        return [row[0] for row in await connection.fetch("SELECT step FROM foliot.migration ORDER BY step")]


async def has_schema(dsn: str) -> bool:
    async with connected(dsn) as connection:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'foliot')"))


# --------------------------------------------------------------------------------------------------------- from nothing


async def test_an_empty_database_gets_all_tables_when_it_is_opened(database: str) -> None:
    before = await PostgresStore(database).schema()
    assert (before.current, before.latest, before.needs, len(before.pending)) == (0, LATEST, 0, LATEST)
    async with opened(database) as store:
        await store.promise([Promise("job", b"{}", START)])
    assert await entered(database) == list(range(1, LATEST + 1))
    assert (await PostgresStore(database).schema()).pending == ()


async def test_to_migrate_twice_does_nothing_the_second_time(database: str) -> None:
    assert (await PostgresStore(database).migrate()).current == 0
    again = await PostgresStore(database).migrate()
    assert (again.current, again.pending) == (LATEST, ())


async def test_many_that_start_at_once_all_open_and_one_makes_the_tables(database: str) -> None:
    stores = [PostgresStore(database) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await entered(database) == list(range(1, LATEST + 1))
    for store in stores:
        await store.promise([Promise("job", b"{}", START)])
        await store.close()


async def test_a_pooler_in_transaction_mode_may_stand_between(pgbouncer: PgBouncer, database: str) -> None:
    url = f"{pgbouncer.through(database)}?pooler=transaction"
    assert len((await PostgresStore(url).migrate()).pending) == LATEST
    assert (await PostgresStore(url).schema()).pending == ()


async def test_a_step_that_fails_leaves_nothing_behind(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrating.steps()
    monkeypatch.setattr(migrating, "steps", lambda: [*known, BROKEN])
    with pytest.raises(StoreError, match="division by zero"):
        await PostgresStore(database).migrate()
    assert not await has_schema(database)


async def test_a_later_step_that_fails_leaves_the_tables_as_they_were(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrating.steps()
    async with opened(migrated):
        monkeypatch.setattr(migrating, "steps", lambda: [*known, BROKEN])
        with pytest.raises(StoreError, match="division by zero"):
            await PostgresStore(migrated).open()
    assert await entered(migrated) == list(range(1, LATEST + 1))
    async with connected(migrated) as connection:
        assert await connection.fetchval("SELECT to_regclass('foliot.extra')") is None
    monkeypatch.undo()
    async with opened(migrated) as store:
        await store.promise([Promise("job", b"{}", START)])


async def test_a_step_waits_its_turn_for_a_table_that_is_in_use(migrated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrating.steps()
    change = Step(LATEST + 1, f"{LATEST + 1:04}_wider", "ALTER TABLE foliot.job ADD COLUMN extra text;")
    monkeypatch.setattr(migrating, "steps", lambda: [*known, change])
    monkeypatch.setattr(migrating, "_BRIEFLY", "SET LOCAL lock_timeout = '300ms';")
    monkeypatch.setattr(migrating, "_PAUSE", 0.05)
    waiting = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'foliot.job'::regclass AND NOT granted)"
    async with connected(migrated) as reader, connected(migrated) as other:
        reading = reader.transaction()
        await reading.start()
        await reader.fetch("SELECT * FROM foliot.job")
        migration = asyncio.create_task(PostgresStore(migrated).migrate())
        await until_async(lambda: other.fetchval(waiting), "the migration waits for the table")
        # Whoever comes after it is let through once it has gone back, though the first reader still reads.
        await other.fetch("SELECT * FROM foliot.job")
        assert not migration.done()
        await reading.rollback()
        assert (await migration).pending == (change.name,)


# ------------------------------------------------------------------------------------------- from every released schema

HELD, READY, TICK = 11, 12, 13
ROWS: dict[int, str] = {
    1: f"""
UPDATE foliot.setting SET shards = 1, keep_days = 30;
SELECT foliot.begin_life();
INSERT INTO foliot.job (name, policy, queue, seen_at) VALUES ('job', '{{}}', 'default', {START});
INSERT INTO foliot.instance (role, host, pid, birth, version, queues, jobs, slots, started_at, beat_at)
    VALUES ('worker', 'elsewhere', 1, '', '0.1', '["default"]', '["job"]', 10, {START}, {START});
INSERT INTO foliot.schedule (id, job, rule, payload, policy, priority, revision, fingerprint, made_at, paused_note)
    VALUES ('daily', 'job', '{{}}', '{{}}', $policy$, 0, 3, 'print', {START - HOUR}, 'once');
INSERT INTO foliot.run (number, name, fire_at, nominal, schedule, origin, shard, job, payload)
    VALUES ({TICK}, 'daily@2026-04-03T02:00:01Z', {START + SECOND}, {START + SECOND}, 'daily', 0, 0, 'job', '{{}}');
INSERT INTO foliot.run (number, name, fire_at, fired_at, shard, job, payload)
    VALUES ({READY}, 'class:7#1', {START}, {START}, 0, 'job', '[7]');
INSERT INTO foliot.run (number, fire_at, fired_at, state, shard, job, payload, token, worker, attempt, claimed_at)
    SELECT {HELD}, {START}, {START}, 4, 0, 'job', '[8]', 99, number, 2, {START} FROM foliot.instance;
INSERT INTO foliot.named (name, number) VALUES ('daily@2026-04-03T02:00:01Z', {TICK}), ('class:7#1', {READY}),
    ('daily@2026-04-02T02:00:00Z', 5);
INSERT INTO foliot.stir (shard, numbers) VALUES (0, '{{{TICK}}}');
INSERT INTO foliot.shard (shard, owner, epoch, until, high_water) VALUES (0, NULL, 7, 0, 0);
INSERT INTO foliot.handoff (fired_at, priority, lane, queue, numbers) VALUES ({START}, 0, 0, 'default', '{{{READY}}}');
INSERT INTO foliot.claim (token, claimed_at, fired_at, lane, worker, open, written, numbers)
    SELECT 99, {START}, {START}, 0, number, 1, true, '{{{HELD}}}' FROM foliot.instance;
INSERT INTO foliot.cancellation (number, worker, reason, note)
    SELECT {HELD}, number, 'requested', 'why not' FROM foliot.instance;
INSERT INTO foliot.history (number, name, state, origin, lane, priority, job, payload, fire_at, nominal, schedule,
    attempt, spent, finished_at, result)
    VALUES (5, 'daily@2026-04-02T02:00:00Z', 10, 0, 0, 0, 'job', '{{}}', {START - 24 * HOUR}, {START - 24 * HOUR},
    'daily', 1, 1, {START - 23 * HOUR}, '"done"');
INSERT INTO foliot.attempt (run, attempt, token, finished_at, outcome, error)
    VALUES ({HELD}, 1, 98, {START}, 'failed', 'ValueError');
INSERT INTO foliot.declared (release, first_at, declares) VALUES ('one', {START}, '{{"daily": "print"}}');
INSERT INTO foliot.event (at, kind, subject, detail) VALUES ({START}, 'lost', 'class:6#1', 'worker 1 was not heard of');
INSERT INTO foliot.audit (at, actor, action, subject, note) VALUES ({START}, 'ana', 'pause', 'daily', 'holidays');
""",
    4: f"""
INSERT INTO foliot.effect (lineage, run, token, started_at, attempt, name, key, state)
    VALUES ({HELD}, {HELD}, 98, {START}, 1, 'pay', '7', 'started');
INSERT INTO foliot.item (lineage, at, batch, key, state) VALUES ({HELD}, {START}, '', 'a', 'done');
INSERT INTO foliot.batch (lineage, name, size) VALUES ({HELD}, '', 3);
INSERT INTO foliot.budget (job, hour, spent) VALUES ('job', 1, 2);
""",
    5: f"""
INSERT INTO foliot.gate (name, most, every, source, changed_at) VALUES ('job:job', 2, 1000, 'operator', {START});
INSERT INTO foliot.slot (name, used, most) VALUES ('job:job', 0, 2);
INSERT INTO foliot.breaker (destination, failures, changed_at) VALUES ('bank', 2, {START});
INSERT INTO foliot.backfill (starts, ends, cursor, total, pace_at, made_at, at_once, revision, priority, newest_first,
    schedule, state, job, rule, actor, note, payload)
    VALUES ({START - HOUR}, {START}, {START - HOUR}, 1, {START}, {START}, 1, 3, 0, false, 'daily', 'paused', 'job',
    '{{}}', 'ana', 'again', '{{}}');
""",
    6: f"""
INSERT INTO foliot.member (member_set, key, added_at, source) VALUES ('tenants', 'acme', {START}, 'code');
INSERT INTO foliot.series (id, schedule, member, useful_at) VALUES ('daily[acme]', 'daily', 'acme', {START});
""",
    8: f"""
INSERT INTO foliot.seal (position, audit, hash) SELECT 1, max(n), 'abc' FROM foliot.audit;
INSERT INTO foliot.pause (since, name, what, actor, note) VALUES ({START}, 'job:other', 'claims', 'ana', 'full');
INSERT INTO foliot.edit (at, schedule, actor, fields) VALUES ({START}, 'daily', 'ana', 'rule');
""",
    9: """
INSERT INTO foliot.tally VALUES (29586360, 5, 1, 0, 2, 0, 0);
INSERT INTO foliot.tallied VALUES (1, 3);
""",
    10: f"""
INSERT INTO foliot.alert (opened_at, seen_at, count, kind, subject, severity, cause, action)
VALUES ({START}, {START}, 1, 'late', 'schedule:daily', 'warning', 'it is late', 'look');
INSERT INTO foliot.watched VALUES (1, 2, {START}, '\\x00') ON CONFLICT (id) DO UPDATE SET version = 2;
""",
    11: f"""
INSERT INTO foliot.token (made_at, name, hash, scope, made_by) VALUES ({START}, 'ci', '\\x01', 'read', 'ana');
INSERT INTO foliot.session VALUES ({START}, 1, '\\x02');
INSERT INTO foliot.request (made_at, credential, key, digest) VALUES ({START}, 1, 'k', '\\x03');
INSERT INTO foliot.guest VALUES (1, 1, '\\x04');
""",
    20: """
INSERT INTO foliot.holding (number, slots) VALUES (1, '["job:job"]');
""",
    29: """
INSERT INTO foliot.recount (number, tick) VALUES (1, 'daily@2026-04-03T02:00:00Z');
""",
}
"""By step, rows for the tables that it made. A step that makes one adds its own: the test below says which lack any."""


async def released(dsn: str, schema: int) -> None:
    """A database as a release left it that knew so many steps, with something in every table."""
    async with connected(dsn) as connection, connection.transaction():
        await connection.execute(migrating._TABLE)
        for step in migrating.steps()[:schema]:
            await connection.execute(step.text)
            await connection.execute(migrating._entry(step))
        policy = f"'{policy_to_json(Policy()).decode()}'"
        for number in ROWS.keys() & set(range(1, schema + 1)):
            await connection.execute(ROWS[number].replace("$policy$", policy))


async def everything(dsn: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, partitions with their parents."""
    found = {}
    async with connected(dsn) as connection:
        tables = await connection.fetch(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'foliot' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        )
        for [table] in tables:
            rows = await connection.fetch(f"SELECT t::text AS key, t.* FROM foliot.{table} t ORDER BY 1")
            found[table] = [{name: value for name, value in row.items() if name != "key"} for row in rows]
    return found


FROM = [schema if schema in (1, 6, LATEST - 1, LATEST) else only_in_full(schema) for schema in range(1, LATEST + 1)]
"""The short form begins with the first schema, one in the middle, and the last two: each step finds rows in some."""


@pytest.mark.parametrize("schema", FROM)
async def test_a_database_of_every_released_schema_keeps_all_that_is_in_it_and_goes_on_working(
    database: str, schema: int
) -> None:
    await released(database, schema)
    before = await everything(database)
    assert sorted(table for table, rows in before.items() if not rows) == [], "give these tables rows, in ROWS"
    await PostgresStore(database).migrate()
    after = await everything(database)
    for table, rows in before.items():
        if table != "migration":
            assert len(after[table]) == len(rows), table
            kept = [{name: row.get(name) for name in rows[0]} for row in after[table]]
            assert all(row in kept for row in rows), table
    async with opened(database, ManualClock(START)) as store:
        stage = Stage(store, store._virtual)  # type: ignore[arg-type]
        view = await store.schedule("daily")
        assert (view.schedule.revision, view.next_id, view.last_run_state) == (
            3,
            "daily@2026-04-03T02:00:01Z",
            "succeeded",
        )
        assert [run.id for run in await stage.claim()] == ["class:7#1"]
        stage.clock.advance(SECOND)
        assert (await stage.fire(fires_hourly)).created == 1
        [tick] = await stage.claim()
        assert await stage.finish(stage.succeeded(tick)) == []
        assert await stage.state(tick) is State.SUCCEEDED
        [running] = [run for run in await store.runs(states=[State.RUNNING]) if run.number == HELD]
        assert (running.cancel_requested, running.attempt) == (True, 2)
        [lost] = [one for one in await store.silent(START + HOUR) if one.number == HELD]
        assert lost.token == 99
        assert [one.attempt for one in (await store.run(running.id)).attempts] == [1, 2]
        assert [event.kind for event in await store.events_of("class:6#1")] == ["lost"]


# ------------------------------------------------------------------------------------------------- who may, and who not


@pytest.fixture
def role(postgres: PostgresServer, database: str) -> Iterator[str]:
    """A role that may do nothing yet, in its own DSN of the test's empty database."""
    yield from _role(postgres, database)


@pytest.fixture
def role_there(postgres: PostgresServer, migrated: str) -> Iterator[str]:
    """The same, in a database with all tables."""
    yield from _role(postgres, migrated)


def _role(postgres: PostgresServer, database: str) -> Iterator[str]:
    name, where = f"role_{uuid4().hex}", urlsplit(database)
    postgres.psql(f"CREATE ROLE {name} LOGIN")
    yield where._replace(netloc=where.netloc.replace("postgres@", f"{name}@")).geturl()
    postgres.psql(f"DROP OWNED BY {name}", where.path[1:])
    postgres.psql(f"DROP ROLE {name}")


def user_of(dsn: str) -> str:
    return str(urlsplit(dsn).username)


async def granted(database: str, *sentences: str) -> None:
    async with connected(database) as connection:
        for sentence in sentences:
            await connection.execute(sentence)


async def test_a_role_that_may_not_make_tables_is_told_what_to_do(database: str, role: str) -> None:
    with pytest.raises(StoreError, match=r"may not create them .*permission denied.*foliot migrate.*GRANT CREATE"):
        await PostgresStore(role).open()
    assert not await has_schema(database)


async def test_a_role_that_may_only_read_can_ask_how_the_tables_stand(database: str, role: str) -> None:
    assert (await PostgresStore(role).schema()).current == 0
    await PostgresStore(database).migrate()
    with pytest.raises(StoreError, match="GRANT USAGE ON SCHEMA foliot"):
        await PostgresStore(role).schema()
    await granted(
        database,
        f"GRANT USAGE ON SCHEMA foliot TO {user_of(role)}",
        f"GRANT SELECT ON foliot.migration TO {user_of(role)}",
        f"ALTER ROLE {user_of(role)} SET default_transaction_read_only = on",
    )
    schema = await PostgresStore(role).schema()
    assert (schema.current, schema.pending) == (LATEST, ())


async def test_a_role_that_may_only_use_the_tables_works_on_those_of_another(migrated: str, role_there: str) -> None:
    await granted(
        migrated,
        f"GRANT USAGE ON SCHEMA foliot TO {user_of(role_there)}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA foliot TO {user_of(role_there)}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA foliot TO {user_of(role_there)}",
    )
    async with opened(f"{role_there}?migrate=never") as store:
        [kept] = await store.promise([Promise("job", b"{}", START, key="class:7")])
        worker = (await store.register("worker", version="", queues=["default"], slots=1, jobs=[])).number
        assert await store.claim(worker, ["default"], ["job"], 1) == []
        assert (await store.cancel(kept.id, actor="ana", note="")).outcome == "cancelled"


# --------------------------------------------------------------------------------------------------- never, and too new


async def test_who_may_never_migrate_is_sent_to_the_command(database: str) -> None:
    url = f"{database}?migrate=never"
    with pytest.raises(SchemaMismatch, match=r"missing steps: \d+.*run `foliot migrate`"):
        await PostgresStore(url).open()
    assert not await has_schema(database)
    await PostgresStore(url).migrate()  # the command does what the processes must not
    async with opened(url) as store:
        await store.promise([Promise("job", b"{}", START)])


async def enter_a_step_of_the_future(dsn: str, needs: int) -> None:
    await granted(dsn, f"INSERT INTO foliot.migration (step, name, needs) VALUES (99, '0099_future', {needs})")


async def test_an_old_release_goes_on_with_tables_of_a_newer_one(migrated: str) -> None:
    await enter_a_step_of_the_future(migrated, needs=1)
    for url in (migrated, f"{migrated}?migrate=never"):
        async with opened(url) as store:
            await store.promise([Promise("job", b"{}", START)])
            assert (await store.health())["schema"] == 99
    schema = await PostgresStore(migrated).schema()
    assert (schema.current, schema.pending, schema.is_too_new) == (99, (), False)


async def test_an_old_release_refuses_tables_that_it_cannot_live_with(migrated: str) -> None:
    await enter_a_step_of_the_future(migrated, needs=99)
    for url in (migrated, f"{migrated}?migrate=never"):
        with pytest.raises(SchemaMismatch, match=r"schema 99.*newer release.*supports 99 steps.*upgrade"):
            await PostgresStore(url).open()
    with pytest.raises(SchemaMismatch):
        await PostgresStore(migrated).migrate()
    assert (await PostgresStore(migrated).schema()).is_too_new


def test_a_step_says_in_its_first_line_whom_it_breaks() -> None:
    assert Step(4, "0004_x", "-- breaks: 3\nSELECT 1;").needs == 3
    assert Step(4, "0004_x", "-- Says nothing of that.\n-- breaks: 3\n").needs == 1


# ------------------------------------------------------------------------------------------------------------------ SQL


async def test_psql_does_with_the_printed_steps_what_we_do(database: str, tmp_path: Path) -> None:
    file = tmp_path / "migrate.sql"
    file.write_text(PostgresStore(database).migration_sql(0), "utf-8")
    options = ["-X", "-q", "-1", "-v", "ON_ERROR_STOP=1"]

    def run() -> subprocess.CompletedProcess[str]:
        command = [str(programs() / "psql"), *options, "-f", str(file), database]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = await asyncio.to_thread(run)
    assert (done.returncode, done.stderr) == (0, "")
    assert await entered(database) == list(range(1, LATEST + 1))
    async with opened(f"{database}?migrate=never") as store:
        await store.promise([Promise("job", b"{}", START)])
    # A second time it stops at the first statement that was made already, and changes nothing.
    again = await asyncio.to_thread(run)
    assert again.returncode != 0
    assert await entered(database) == list(range(1, LATEST + 1))


def test_nothing_to_be_done_is_a_comment() -> None:
    text = PostgresStore("postgresql://nobody@nowhere.invalid/x").migration_sql(LATEST)
    assert text.startswith("--")
    assert text.count("\n") == 1
