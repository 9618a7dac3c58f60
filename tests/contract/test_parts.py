"""Parts that cannot be had are reported loudly: the mechanism of tests/conftest.py, run for real in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.postgres import CHOICE
from tests.waiting import HANG

CONFTEST = Path(__file__).parents[1] / "conftest.py"
MOON = '\nPARTS["moon"] = lambda: "it is too far away"\nPARTS["sea"] = lambda: None\n'
TESTS = """
import pytest

def test_of_nothing_special(): pass

@pytest.mark.needs("moon")
def test_of_the_moon(): raise AssertionError("must not run")

@pytest.mark.needs("sea")
def test_of_the_sea(): pass
"""
UNSAID = """
import pytest
from tests.servers.postgres import PostgresServer

@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server

def test_of_a_fixture(server): raise AssertionError("must not run")

def test_of_the_same_fixture(server): raise AssertionError("must not run")

def test_of_a_fixture_by_name(request): request.getfixturevalue("database")

async def test_of_a_server_of_its_own():
    with PostgresServer():
        raise AssertionError("must not run")
"""


@pytest.fixture
def session(tmp_path: Path):
    """Runs pytest on some tests; returns its exit code and the lines it printed."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text() + MOON)
    (tmp_path / "test_parts_here.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider -ra\n")

    def run(*arguments: str, require: str = "", tests: str = TESTS) -> tuple[int, list[str]]:
        (tmp_path / "test_parts_here.py").write_text(tests)
        path = {"PYTHONPATH": str(CONFTEST.parents[1])}  # it imports tests.servers
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=tmp_path,
            env={**os.environ, **path, "FOLIOT_REQUIRE": require, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_a_missing_part_is_skipped_and_told_at_the_end_of_the_summary(session) -> None:
    code, lines = session()
    assert code == 0
    assert "2 passed, 1 skipped" in lines[-1]
    assert lines[-2] == "NOT RUN: moon (it is too far away)"
    assert sum("NOT RUN" in line for line in lines) == 1


def test_a_missing_part_that_is_required_fails_the_session(session) -> None:
    code, lines = session(require="sea, moon")
    assert code == 1
    assert lines[-2] == "NOT RUN: moon (it is too far away)"


def test_a_required_part_fails_the_session_also_when_no_test_asked_for_it(session) -> None:
    code, lines = session("-k", "nothing", require="moon")
    assert code == 1
    assert "NOT RUN: moon (it is too far away)" in lines


def test_neither_required_parts_that_are_there_nor_missing_ones_that_no_test_needs_change_anything(session) -> None:
    code, lines = session("-k", "sea or nothing", require="sea,")
    assert code == 0
    assert not any("NOT RUN" in line for line in lines)


@pytest.mark.parametrize(("require", "ends_with"), [("", 0), ("postgres", 1)])
def test_a_test_that_starts_a_missing_server_is_not_run_although_it_does_not_say_what_it_needs(
    session, monkeypatch: pytest.MonkeyPatch, require: str, ends_with: int
) -> None:
    monkeypatch.setenv(CHOICE, "/nowhere")
    code, lines = session(require=require, tests=UNSAID)
    assert code == ends_with
    assert "4 skipped" in lines[-1]
    assert lines[-2].startswith("NOT RUN: postgres (FOLIOT_TEST_POSTGRES=/nowhere: ")


def test_a_required_part_that_does_not_exist_fails_the_session(session) -> None:
    code, lines = session("-k", "nothing", require="mooon")
    assert code == 1
    assert any(line.startswith("NOT RUN: mooon (there is no such part") for line in lines)


def test_a_test_that_needs_a_part_nobody_knows_fails(session) -> None:
    code, lines = session(tests='import pytest\n@pytest.mark.needs("mooon")\ndef test_it(): pass\n')
    assert code == 1
    told = "there is no such part; known are: browser, moon, pgbouncer, postgres, sea, sqlite"
    assert any(told in line for line in lines)


def test_async_tests_are_run_and_fail_a_session_that_has_all_required_parts(session) -> None:
    code, lines = session(require="sea", tests="async def test_good(): pass\nasync def test_bad(): assert 1 == 2\n")
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]
