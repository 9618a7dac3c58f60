"""`foliot migrate`: brings tables to this release, says what is missing, prints what it would do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from foliot import bootstrap
from foliot.domain.store import Schema
from tests.cli.support import refused, run, run_json
from tests.servers.postgres import PostgresServer, programs


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is not there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    found: str = request.getfixturevalue("database")
    return found


def test_a_store_is_brought_to_this_release_and_says_from_where_to_where(url: str) -> None:
    done = run_json("migrate", "--store", url)
    assert (done["from"], done["pending"], done["too_new"]) == (0, [], False)
    assert (done["to"], len(done["made"])) == (done["known"], done["known"])
    again = run_json("migrate", "--store", url)
    assert (again["from"], again["to"], again["made"]) == (done["to"], done["to"], [])
    assert "up to date" in run("migrate", "--store", url).stdout


def test_a_person_is_told_from_where_to_where(url: str) -> None:
    told = run("migrate", "--store", url).stdout
    assert "from step 0 to " in told
    assert "0001_foundation" in told


def test_the_check_changes_nothing_and_exits_1_until_all_is_done(url: str, tmp_path: Path) -> None:
    for _ in range(2):
        result = run("migrate", "--check", "--store", url)
        assert result.exit_code == 1
        assert "missing steps: 0001_foundation" in result.stdout
    assert not (tmp_path / "new.db").exists()
    assert json.loads(run("migrate", "--check", "--json", "--store", url).stdout)["from"] == 0
    assert run("migrate", "--store", url).exit_code == 0
    assert run("migrate", "--check", "--store", url).exit_code == 0


def test_the_check_exits_1_for_tables_that_are_too_new(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_json("migrate", "--store", url)

    async def schema(self: object) -> Schema:
        return Schema(99, 3, 99, ())

    monkeypatch.setattr(type(bootstrap.make_store(url)), "schema", schema)
    result = run("migrate", "--check", "--store", url)
    assert result.exit_code == 1
    assert "upgrade" in result.stdout


def test_no_app_is_imported_for_it(url: str) -> None:
    Path("broken.py").write_text("raise RuntimeError('no')\n", "utf-8")
    assert run("migrate", "--store", url, "--app", "broken.py").exit_code == 0


def test_the_store_may_be_named_by_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLIOT_STORE", url)
    assert run("migrate").exit_code == 0
    assert run("migrate", "--check").exit_code == 0


def test_the_sql_of_a_new_file_makes_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    text = run("migrate", "--sql", "--store", url).stdout
    assert not (tmp_path / "new.db").exists()
    connection = apsw.Connection(str(tmp_path / "new.db"))
    connection.execute(text)
    connection.close()
    assert run("migrate", "--check", "--store", url).exit_code == 0
    assert run("migrate", "--sql", "--store", url).stdout.startswith("-- The schema of Foliot is at step")


def test_the_sql_of_an_empty_database_makes_the_store(database: str, tmp_path: Path) -> None:
    file = tmp_path / "migrate.sql"
    file.write_text(run("migrate", "--sql", "--store", database).stdout, "utf-8")
    psql = [str(programs() / "psql"), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-f", str(file), database]
    subprocess.run(psql, check=True, capture_output=True)
    assert run("migrate", "--check", "--store", database).exit_code == 0


def test_the_sql_from_a_stated_step_needs_no_server() -> None:
    nowhere = "postgresql://nobody:secret@127.0.0.1:1/nothing"
    assert "CREATE TABLE foliot.run" in run("migrate", "--sql", "--from", "0", "--store", nowhere).stdout
    told = refused(run("migrate", "--sql", "--store", nowhere), 1)
    assert "cannot be used now" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    "arguments", [("--check", "--sql"), ("--from", "0"), ("--sql", "--from", "-1"), ("--sql", "--json")]
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    refused(run("migrate", *arguments, "--store", "sqlite:///foliot.db"), 2)


def test_a_process_that_may_never_migrate_names_the_command(url: str) -> None:
    never = f"{url}?migrate=never"
    run_json("migrate", "--store", never)  # the command itself may
    assert run("doctor", "--store", never).exit_code == 0


def test_who_may_only_read_may_check(postgres: PostgresServer, database: str) -> None:
    name, where = "only_reads", urlsplit(database)
    postgres.psql(f"DROP ROLE IF EXISTS {name}")
    postgres.psql(f"CREATE ROLE {name} LOGIN")
    run_json("migrate", "--store", database)
    grants = f"GRANT USAGE ON SCHEMA foliot TO {name}; GRANT SELECT ON foliot.migration TO {name}"
    postgres.psql(grants, where.path[1:])
    reader = where._replace(netloc=where.netloc.replace("postgres@", f"{name}@")).geturl()
    try:
        assert run("migrate", "--check", "--store", reader).exit_code == 0
    finally:
        postgres.psql(f"DROP OWNED BY {name}", where.path[1:])
        postgres.psql(f"DROP ROLE {name}")


def test_an_option_that_a_file_cannot_have_is_refused() -> None:
    assert "migrate=never" in refused(run("migrate", "--store", "sqlite:///foliot.db?pooler=none"), 1)
