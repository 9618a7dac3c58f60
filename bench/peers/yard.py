"""The server that everyone is measured on, and fresh databases on it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers.postgres import PostgresServer

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB"}
"""Equal for everybody. All else is as PostgreSQL has it by default: fsync and synchronous_commit are on."""
LOOK_EVERY = 0.02
"""Seconds between looks at whether anything is left to do."""


class Yard:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    def settings(self) -> dict[str, str]:
        """As the server itself says."""
        wanted = ["server_version", "fsync", "synchronous_commit", *SETTINGS, "data_directory"]
        with psycopg.connect(self._server.dsn()) as connection:
            return {name: connection.execute(f"SHOW {name}").fetchall()[0][0] for name in wanted}

    def seconds(self) -> float:
        """Processor time that the server has used so far, of backends that have ended too."""
        fields = Path(f"/proc/{self._server.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def fresh(self, peer: str, template: str = "template0") -> Iterator[Database]:
        """A database of its own, gone afterwards; a copy of another one when a template is named."""
        name = f"{peer}_{next(self._numbers)}"
        self._command(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield Database(name, self._server.dsn(name))
        finally:
            self._command(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _command(self, statement: str) -> None:
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            connection.execute(statement)


class Database:
    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        self.dsn = dsn

    def settle(self) -> None:
        """Statistics as in a store that has stood for a while, and no checkpoint in the middle of what follows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A transaction that sees the database as it is now, until it ends."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute("SELECT count(*) FROM pg_class")
            yield

    def wait_until_finished(self, unfinished: str, until: float) -> float | None:
        """When nothing was left to do, in seconds since 1970; None when something still was at `until`."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while time.time() < until:
                rows = connection.execute(unfinished, prepare=True).fetchall()
                if not rows[0][0]:
                    return time.time()
                time.sleep(LOOK_EVERY)
        return None
