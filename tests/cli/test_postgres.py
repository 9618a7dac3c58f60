"""The command on a PostgreSQL server: processes, the doctor, and what is refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from foliot import Foliot, bootstrap, every
from foliot.cli.doctor import Check
from foliot.cli.server import server_checks
from tests.cli.support import environment, make_doubts, make_overdue, process, refused, run, run_json, until
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.waiting import HANG, until_async

JOBS = """
from foliot import Foliot, every

app = Foliot()

@app.job
async def tick() -> None: ...

app.schedule("tick", tick, every("200ms"))
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.py"
    file.write_text(JOBS, "utf-8")
    return file


def succeeded(url: str) -> int:
    return sum(shape["state"] == "succeeded" for shape in run_json("runs", "list", "--store", url, "--limit", "100"))


# ------------------------------------------------------------------------------------------------------------ processes


@pytest.mark.faults
def test_a_supervisor_and_its_children_work_on_a_server_and_keep_the_password_out_of_their_command_lines(
    tmp_path: Path, jobs: Path, database: str
) -> None:
    url = database.replace("postgres@", "postgres:tell-nobody@")
    with process(tmp_path, "up", "--app", jobs, "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: up.lines() and up.started("worker"), "the worker was started")
        for name in ("scheduler", "worker"):
            assert b"tell-nobody" not in Path(f"/proc/{up.started(name)[0]}/cmdline").read_bytes()
        until(lambda: succeeded(database) >= 3, "some ticks ran")
        found = run_json("doctor", "--store", database)
        assert {instance["role"] for instance in found["instances"]} == {"scheduler", "worker"}
        assert {check["name"]: check["verdict"] for check in found["checks"]}["shards"] == "ok"
        assert up.end() == 0
        assert up.lines()[-1]["text"] == "stopped"
        assert "tell-nobody" not in up.out.read_text("utf-8") + up.err.read_text("utf-8")
    after = run_json("doctor", "--store", database)
    assert (after["instances"], after["counts"]["early"], after["store"]["held"]) == ([], 0, {})


def test_commands_that_look_make_no_store(database: str) -> None:
    told = refused(run("runs", "list", "--store", database), 1)
    assert "there is no store in postgresql://" in told
    assert run("migrate", "--check", "--store", database).exit_code == 1


def test_a_server_that_cannot_be_reached_is_told_in_one_line() -> None:
    told = refused(run("runs", "list", "--store", "postgresql://ana:secret@127.0.0.1:1/x"), 1)
    assert "postgresql://ana@127.0.0.1:1/x cannot be used now" in told
    assert "secret" not in told


def test_without_the_driver_the_extra_is_named() -> None:
    body = "import sys; sys.modules['asyncpg'] = None\nfrom foliot import Foliot\nFoliot('postgresql://a:secret@b/c')"
    done = subprocess.run(
        [sys.executable, "-c", body], env=environment(), capture_output=True, text=True, timeout=HANG, check=False
    )
    assert "InvalidInput" in done.stderr
    assert 'pip install "foliot[postgres]"' in done.stderr.splitlines()[-1]
    assert "secret" not in done.stderr.splitlines()[-1]


def test_forked_children_draw_numbers_of_their_own(migrated: str) -> None:
    """One that went on with its parent's could take the parent's promise for its own."""
    body = f"""
import os
from foliot import Foliot
app = Foliot({migrated!r})

@app.job
def greet() -> None: ...

greet.now()
nodes = [app.store.numbers._node]
for _ in range(2):
    child = os.fork()
    if child == 0:
        greet.now()
        os._exit(0 if app.store.numbers._node not in nodes else 1)
    assert os.waitpid(child, 0)[1] == 0
app.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", body], env=environment(), capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------------------------------------- doctor


def checks(url: str) -> dict[str, tuple[str, str]]:
    found = run_json("doctor", "--store", url)
    return {check["name"]: (check["verdict"], check["detail"]) for check in found["checks"]}


def test_the_doctor_tells_of_the_server(database: str) -> None:
    run_json("migrate", "--store", database)
    found = run_json("doctor", "--store", database)
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    sound = ("store", "durability", "connections", "transactions", "wake-ups", "retention", "schema", "integrity")
    assert {name: verdicts[name] for name in sound} == dict.fromkeys(sound, "ok")
    assert verdicts["shards"] == verdicts["scheduler"] == verdicts["worker"] == "warning"
    assert found["ok"] is True
    store = found["store"]
    assert (store["engine"], store["fsync"], store["full_page_writes"]) == ("postgresql", "on", "on")
    assert (store["shards"], store["held"], store["keep_days"]) == (16, {}, 30)
    assert store["schema"] == store["schema_known"] >= 1
    assert 1 <= store["connections"] <= store["max_connections"]
    told = run("doctor", "--store", database).stdout
    assert "ended runs are kept for 30 days" in told
    assert "LISTEN/NOTIFY; without a pooler" in told


def test_the_doctor_tells_of_a_pooler(pgbouncer: PgBouncer, migrated: str) -> None:
    url = f"{pgbouncer.through(migrated)}?pooler=transaction"
    verdict, detail = checks(url)["wake-ups"]
    assert verdict == "ok"
    assert "polling instead of LISTEN/NOTIFY; through a pooler in transaction mode" in detail


def test_the_doctor_warns_of_commits_that_do_not_wait(database: str) -> None:
    run_json("migrate", "--store", database)

    async def never_wait() -> None:
        connection = await asyncpg.connect(database)
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        await connection.close()

    asyncio.run(never_wait())
    verdict, detail = checks(database)["durability"]
    assert (verdict, "synchronous_commit off" in detail) == ("warning", True)


def test_the_doctor_warns_of_tables_that_a_newer_release_made(database: str) -> None:
    run_json("migrate", "--store", database)

    async def upgrade() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute("INSERT INTO foliot.migration (step, name) VALUES (99, '0099_future')")
        await connection.close()

    asyncio.run(upgrade())
    verdict, detail = checks(database)["schema"]
    assert (verdict, "newer release" in detail) == ("warning", True)


@pytest.mark.faults
def test_the_doctor_sees_replicas_and_open_transactions_as_far_as_its_role_may() -> None:
    with PostgresServer() as server:
        replica = server.replica(synchronous=True)
        run_json("migrate", "--store", server.dsn())
        health = asyncio.run(_health_beside_a_transaction(server.dsn()))
        assert (health["replicas"], health["synchronous_replicas"]) == (1, 1)
        server.psql(
            "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA foliot TO app;"
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA foliot TO app;"
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA foliot TO app"
        )
        url = f"{server.dsn().replace('postgres@', 'app@')}?migrate=never"
        verdict, detail = checks(url)["durability"]
        assert (verdict, "GRANT pg_monitor TO app" in detail) == ("ok", True)
        assert "1 replica, an unknown number synchronous" in detail
        server.psql("GRANT pg_monitor TO app")
        verdict, detail = checks(url)["durability"]
        assert (verdict, detail.endswith("1 replica, 1 synchronous")) == ("ok", True)
        replica.stop("immediate")
        until(lambda: server.psql("SELECT count(*) FROM pg_stat_replication") == "0", "the replica is gone")
        found = checks(url)  # trying a wake-up does not wait for a replica, either
        assert (found["durability"][0], found["wake-ups"][0]) == ("warning", "ok")
        replica.close()


async def _health_beside_a_transaction(url: str) -> dict[str, Any]:
    """Once the store says that the transaction has been open for a second, which is as fine as it tells."""
    store = bootstrap.make_store(url)
    await store.open()
    waiting = await asyncpg.connect(url)
    open_one = waiting.transaction()
    await open_one.start()
    await waiting.fetch("SELECT 1")

    async def seen() -> dict[str, Any] | None:
        health = await store.health()
        return dict(health) if health["oldest_transaction_seconds"] >= 1 else None

    try:
        found: dict[str, Any] | None = await until_async(seen, "the store sees an open transaction")
    finally:
        await open_one.rollback()
        await waiting.close()
        await store.close()
    assert found is not None
    return found


def test_the_doctor_warns_of_what_is_due_and_of_open_alerts(migrated: str) -> None:
    asyncio.run(make_overdue(migrated))
    found = checks(migrated)
    assert found["due"][0] == found["alerts"][0] == "warning"
    assert found["due"][1].startswith("2 runs due and not handed off, the oldest since ")
    assert found["alerts"][1].startswith("1 open; see foliot alerts list; most urgent: dead, it failed five times")


def listening(database: str, elsewhere: str) -> str:
    return f"{database}?listen={quote(elsewhere, safe='')}"


@pytest.mark.parametrize(
    ("elsewhere", "reason"),
    [
        ("postgresql://nobody:tell-nobody@{host}", 'role "nobody" does not exist'),
        ("postgresql://postgres:tell-nobody@127.0.0.1:1/x", "Connect call failed"),
        ("postgresql://postgres:tell-nobody/more@{host}", "the URL cannot be read"),
    ],
)
def test_the_doctor_warns_when_nobody_can_listen_and_keeps_the_password(
    migrated: str, elsewhere: str, reason: str
) -> None:
    verdict, detail = checks(listening(migrated, elsewhere.format(host=migrated.partition("@")[2])))["wake-ups"]
    assert verdict == "warning"
    assert reason in detail
    assert "tell-nobody" not in detail


def test_the_doctor_warns_when_wake_ups_do_not_arrive(
    postgres: PostgresServer, pgbouncer: PgBouncer, migrated: str
) -> None:
    """Really waits for them, because that is what is tried."""
    assert checks(listening(migrated, migrated))["wake-ups"][0] == "ok"
    for elsewhere in (postgres.dsn(), pgbouncer.through(migrated)):
        verdict, detail = checks(listening(migrated, elsewhere))["wake-ups"]
        assert verdict == "warning"
        assert detail.startswith("wake-ups do not arrive: listen= connects to another database, or through a pooler")


def test_wake_ups_arrive_past_a_pooler(pgbouncer: PgBouncer, migrated: str) -> None:
    url = f"{pgbouncer.through(migrated)}?pooler=transaction&listen={quote(migrated, safe='')}"
    verdict, detail = checks(url)["wake-ups"]
    assert (verdict, detail) == ("ok", "LISTEN/NOTIFY; through a pooler in transaction mode")


HEALTH = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
    "autovacuum": "on",
    "replicas": 0,
    "synchronous_replicas": 0,
    "role": "app",
    "connections": 5,
    "max_connections": 100,
    "oldest_transaction_seconds": 0,
    "pooler": "none",
    "listens": True,
    "wake_ups": "ok",
    "shards": 2,
    "held": {"4": [0], "5": [1]},
    "keep_days": None,
}


def judged(**differing: Any) -> dict[str, Check]:
    return {found[0]: Check._make(found) for found in server_checks(HEALTH | differing)}


def test_a_sound_server_has_nothing_to_complain_of() -> None:
    assert {check.verdict for check in judged().values()} == {"ok"}
    assert judged()["shards"].detail == "2 of 2 held, 1 by scheduler 4, 1 by scheduler 5"
    assert judged()["retention"].detail == "ended runs are never deleted"


@pytest.mark.parametrize(
    ("check", "expected", "differing"),
    [
        ("durability", "wrong", {"fsync": "off"}),
        ("durability", "wrong", {"full_page_writes": "off"}),
        ("durability", "warning", {"synchronous_commit": "off"}),
        ("durability", "ok", {"synchronous_commit": "local"}),
        ("durability", "warning", {"synchronous_commit": "local", "synchronous_standby_names": "*", "replicas": 1}),
        ("durability", "warning", {"synchronous_standby_names": "*"}),
        ("durability", "ok", {"synchronous_standby_names": "*", "replicas": 1, "synchronous_replicas": 1}),
        ("durability", "ok", {"synchronous_standby_names": "*", "replicas": 1, "synchronous_replicas": None}),
        ("wake-ups", "ok", {"listens": False, "wake_ups": None}),
        ("wake-ups", "warning", {"wake_ups": "wake-ups do not arrive"}),
        ("connections", "warning", {"connections": 91}),
        ("transactions", "ok", {"oldest_transaction_seconds": 300}),
        ("transactions", "warning", {"oldest_transaction_seconds": 301}),
        ("transactions", "warning", {"autovacuum": "off"}),
        ("shards", "warning", {"held": {"4": [0]}}),
    ],
)
def test_each_fault_of_a_server_has_its_verdict(check: str, expected: str, differing: dict[str, Any]) -> None:
    assert judged(**differing)[check].verdict == expected


# ---------------------------------------------------------------------------------------------------------------- drift


async def test_a_schedule_says_who_declares_it_otherwise(migrated: str) -> None:
    apps = [Foliot(migrated), Foliot(migrated)]
    for app, rule in zip(apps, ("1h", "2h"), strict=True):

        @app.job
        def report() -> None: ...

        app.schedule("report", report, every(rule))
        await app.apply_async()
        store = await app.opened()
        await store.register("scheduler", version="", queues=(), slots=0, jobs=(), release=app.release)
    try:
        shown = await asyncio.to_thread(run_json, "schedules", "show", "report", "--store", migrated)
        assert [told.partition(" on ")[0] for told in shown["drift"]] == ["scheduler 1"]
        told = await asyncio.to_thread(run, "schedules", "show", "report", "--store", migrated)
        assert "declared differently by the code of scheduler 1 on" in told.stdout
        assert (await apps[0].settle_async()).outdated == ["report"]
        assert (await apps[1].settle_async()).outdated == []
    finally:
        for app in apps:
            await app.close_async()


# ------------------------------------------------------------------------------------------------------------ uncertain


def test_what_is_uncertain_is_told_settled_and_repeated_on_a_server_too(migrated: str) -> None:
    asyncio.run(make_doubts(migrated))
    shape = run_json("runs", "show", "wire:1#1", "--store", migrated)
    assert (shape["advice"]["class"], shape["effects"][0]["maybe"], shape["attempts"][0]["stage"]) == (
        "maybe",
        True,
        "inside_effect",
    )
    why, known = ("--reason", "a test", "--store", migrated), ("--evidence", "the statement", "--store", migrated)
    refused(run("runs", "retry", "wire:1#1", *why), 1)
    every_wire = ("runs", "reconcile", "--all", "--effect-name", "wire", "--state", "done")
    assert [one["outcome"] for one in run_json(*every_wire, "--yes", *known)] == ["reconciled"] * 2
    assert run_json("runs", "resume", "tally#1", *why)["outcome"] == "retried"
    assert run_json("runs", "rerun", "books#1", "--repair", *why)["id"] == "books#1#r1"
    assert run_json("runs", "show", "books#1", "--store", migrated)["reruns"] == ["books#1#r1"]
    assert run_json("runs", "show", "books#1#r1", "--store", migrated)["repair"] is True
    told = run_json("report", "transfer", "--store", migrated)
    assert [one["verdict"] for one in told["statements"]] == ["reconciled", "reconciled"]
    assert run_json("jobs", "show", "transfer", "--store", migrated)["counts"] == {"reconciled": 2}
