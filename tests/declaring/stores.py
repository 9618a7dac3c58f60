"""Stores that an older release made and operators edited (`recorded.py`), and what that release does to them now."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from foliot.store.postgres import migrating

HERE = Path(__file__).parent
KNOWN_STEPS = 12
"""How many steps of PostgreSQL's schema the release ed5b06f knows."""


def recorded_file(folder: Path) -> Path:
    file = folder / "ed5b06f.db"
    file.write_bytes(gzip.decompress((HERE / "ed5b06f.db.gz").read_bytes()))
    return file


async def record_database(dsn: str) -> None:
    rows = gzip.decompress((HERE / "ed5b06f.sql.gz").read_bytes()).decode()
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(migrating._TABLE)
        for step in migrating.steps()[:KNOWN_STEPS]:
            await connection.execute(step.text)
            await connection.execute(migrating._entry(step))
        await connection.execute(rows)
    finally:
        await connection.close()


@contextmanager
def opened_file(file: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(file))
    try:
        yield connection
    finally:
        connection.close()


def changed_by_the_older_release(file: Path, schedule: str, **columns: Any) -> None:
    """As its statements `put_schedule` and `drop_edits` do it: the columns that it does not know stay."""
    with opened_file(file) as connection:
        stated = ", ".join(f"{name} = ?" for name in columns)
        values: Sequence[Any] = (*columns.values(), schedule)
        connection.execute(f"UPDATE schedule SET {stated}, revision = revision + 1 WHERE id = ?", values)
        connection.execute("DELETE FROM edit WHERE schedule = ?", (schedule,))


def fingerprints_in(file: Path) -> dict[str, str]:
    """What the older release compares with its own, by equality."""
    with opened_file(file) as connection:
        return dict(connection.execute("SELECT id, fingerprint FROM schedule"))
