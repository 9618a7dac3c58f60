"""Named queries: SQL lives in .sql files, each statement under one name, and each is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import foliot.store.sqlite
import foliot.store.verbs
from foliot.store import queries

ROOM = Path(foliot.store.sqlite.__file__).parent
VERBS = Path(foliot.store.verbs.__file__).parent


def test_queries_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: one\n-- What it is for.\nSELECT 1\n\n-- name: two\nSELECT 2\n")
    (tmp_path / "b.sql").write_text("-- name: three\nSELECT 3\n")
    (tmp_path / "notes.txt").write_text("-- name: four\nSELECT 4\n")
    assert queries.load(tmp_path) == {"one": "-- What it is for.\nSELECT 1", "two": "SELECT 2", "three": "SELECT 3"}


def test_a_name_that_stands_twice_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: one\nSELECT 1\n")
    (tmp_path / "b.sql").write_text("-- name: one\nSELECT 2\n")
    with pytest.raises(RuntimeError, match=r"'one' is defined twice.*b\.sql"):
        queries.load(tmp_path)


def test_every_query_that_is_used_exists_and_every_one_that_exists_is_used() -> None:
    code = "\n".join(file.read_text() for room in (ROOM, VERBS) for file in room.glob("*.py"))
    known = set(queries.load(ROOM / "sql"))
    called = set(re.findall(r"""\.(?:run|run_each|all|one|value)\(\s*"(\w+)\"""", code))
    assert called - known == {"aside_chunks"}, "which only engines ask for that claim in one statement"
    named = {name: re.sub("_(alike|many)$", "", name) for name in known}  # variants for many rows
    assert {name for name in known if f'"{named[name]}"' not in code} == set()


def test_rows_of_the_audit_log_are_written_in_one_place() -> None:
    """Any other statement would write rows without a signature, and skip the check for the key."""
    writes = re.compile(r"INSERT INTO (?:foliot\.)?audit\b")
    store = VERBS.parent
    assert {file.name for file in store.glob("*/sql/*.sql") if writes.search(file.read_text())} == {"common.sql"}
    named = [file.name for file in store.rglob("*.py") if re.search(r'"add_(?:signed_)?audit', file.read_text())]
    assert named == ["transaction.py"]
