"""Brings the tables of a file to this release, step by step."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from urllib.parse import quote

import apsw

from foliot.domain.store import Schema
from foliot.errors import StoreError
from foliot.store.migrations import Step, refuse_too_new, schema_of, steps_of
from foliot.store.sqlite.connection import APPLICATION, connect, refuse_foreign

_log = logging.getLogger("foliot.store")

_FIRST_ENTERED = 3
"""The step that made the table in which steps are entered."""


def steps() -> list[Step]:
    return steps_of(__package__)


def stand(connection: apsw.Connection) -> Schema:
    """How the tables stand. Only `user_version` says how far they are; the table says who can live with that."""
    current = int(connection.pragma("user_version"))
    needs = 1 if current else 0
    if current >= _FIRST_ENTERED:
        last, asked = connection.execute("SELECT max(step), max(needs) FROM migration").get
        needs = asked if last == current else current  # a step that nobody entered may ask for anything
    return schema_of(steps(), current, needs)


def migrate(connection: apsw.Connection, path: str) -> Schema:
    """Makes each pending step in a transaction of its own; answers how the tables stood before."""
    before = stand(connection)
    refuse_too_new(before, path)
    while stand(connection).pending:  # whoever only wants to look need not wait for a writer
        # Asked again under the write lock: of several processes that start together, one makes each step.
        connection.execute("BEGIN IMMEDIATE")
        try:
            schema = stand(connection)
            refuse_too_new(schema, path)
            if schema.current == 0:
                refuse_foreign(connection, path)
                connection.pragma("application_id", APPLICATION)
            if schema.pending:
                _make(connection, steps()[schema.current])
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return before


def migrate_new(connection: apsw.Connection) -> None:
    """The same for a store in memory, which begins with nothing. Tests open thousands of them, so that the steps are
    made once in each process, and their result is copied."""
    made = apsw.Connection(":memory:")
    made.deserialize("main", _made_by(tuple(steps())))
    with connection.backup("main", made, "main") as copying:
        copying.step()
    made.close()


@cache
def _made_by(steps: tuple[Step, ...]) -> bytes:
    connection = connect(":memory:")
    try:
        for step in steps:
            _make(connection, step)
        connection.pragma("application_id", APPLICATION)
        return connection.serialize("main")
    finally:
        connection.close()


def _make(connection: apsw.Connection, step: Step) -> None:
    connection.execute(step.text)
    if step.number >= _FIRST_ENTERED:
        connection.execute(_entry(step))
    connection.pragma("user_version", step.number)


def _entry(step: Step) -> str:
    return f"INSERT INTO migration (step, name, needs) VALUES ({step.number}, '{step.name}', {step.needs});"


def as_sql(after: int) -> str:
    """What `migrate` does from there on, for whoever wants to read it first."""
    left = steps()[after:]
    if not left:
        return f"-- The schema of Foliot is at step {after}: no migration is needed.\n"
    pieces = [f"-- The schema of Foliot, from step {after} to {left[-1].number}, each step in its own transaction."]
    if after == 0:
        pieces.append(f"PRAGMA application_id = {APPLICATION};")
    for step in left:
        entered = [_entry(step)] if step.number >= _FIRST_ENTERED else []
        pieces += ["BEGIN IMMEDIATE;", step.text.strip(), *entered, f"PRAGMA user_version = {step.number};\nCOMMIT;"]
    return "\n\n".join(pieces) + "\n"


# Without an open store


def look(path: str) -> Schema:
    """Changes nothing, and makes no file: whoever may only read it will do."""
    if path == ":memory:" or not Path(path).exists():
        return schema_of(steps(), 0, 0)
    try:
        connection = _connect_to_look(path)
        try:
            refuse_foreign(connection, path)
            return stand(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreError(f"{path}: cannot be read as a store: {error}") from error


def _connect_to_look(path: str) -> apsw.Connection:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.pragma("user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # The folder is not ours, so the shared memory of a write-ahead log cannot be made. Without a log all is in the
        # file, and nobody is writing to it.
        connection.close()
        if Path(f"{path}-wal").exists():
            raise
        uri = f"file:{quote(str(Path(path).absolute()))}?immutable=1"
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return connection


def make_folder(path: str) -> None:
    """Makes the directory of a new store, and says so: a path may be misspelt."""
    folder = Path(path).absolute().parent
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _log.warning("created directory %s for the store %s", folder, path)


def bring(path: str) -> Schema:
    make_folder(path)
    connection = connect(path)
    try:
        return migrate(connection, path)
    except apsw.Error as error:
        raise StoreError(f"{path}: the migration failed: {error}") from error
    finally:
        connection.close()
