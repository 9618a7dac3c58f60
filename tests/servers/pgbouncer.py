"""A real pgbouncer in front of a real server: what a fleet's connections often go through."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from tests.servers.home import Home, Server, memory
from tests.servers.host import free_port, obtain, why_not
from tests.servers.postgres import USER, PostgresServer
from tests.waiting import HANG

PoolMode = Literal["session", "transaction", "statement"]


class PgBouncer(Server):
    """A pooler for all databases of one server. In transaction mode, one client's transactions use many connections.

    `settings` are those of its configuration's main section; otherwise it is as pgbouncer's authors ship it.
    """

    name = "pgbouncer"

    def __init__(
        self,
        server: PostgresServer,
        pool_mode: PoolMode = "transaction",
        pool_size: int = 20,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__()
        self.server = server
        self.port = free_port()
        self.settings: dict[str, str | int] = {
            "pool_mode": pool_mode,
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            **(settings or {}),
        }

    def start(self) -> None:
        if self.alive:
            return
        if self.home is None:
            self._make()
        home = self._made
        with home.log.open("a") as log:
            configuration = home.path / "pgbouncer.ini"
            self._process = home.spawn(program(), configuration, stdout=log, stderr=subprocess.STDOUT)
        self._wait_until(self._takes_connections, "pgbouncer takes connections")

    def stop(self) -> None:
        """At once, as a crash would: whoever is connected is cut off."""
        if self._process is not None and self.alive:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        if self.home is not None:
            self.home.close()
            self.home = None

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def through(self, dsn: str) -> str:
        """The same database as this DSN of the server's, reached through the pooler."""
        return urlsplit(dsn)._replace(netloc=f"{USER}@127.0.0.1:{self.port}").geturl()

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=HANG).close()
        except OSError:
            return False
        return True

    def _make(self) -> None:
        program()  # its reason is better than that of a directory without a pooler
        self.home = home = Home("pgbouncer", memory())
        users = home.write("users", f'"{USER}" ""\n')
        fixed: Mapping[str, str | int] = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": str(home.path),
            "auth_type": "trust",
            "auth_file": str(users),
            "auth_user": USER,  # whoever is not in that file is looked up on the server
            "admin_users": USER,
        }
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={self.server.port}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in {**self.settings, **fixed}.items()),
        ]
        home.write("pgbouncer.ini", "\n".join([*lines, ""]))


# -------------------------------------------------------------------------------------------------------------- program


def missing_pgbouncer() -> str | None:
    """Why no pgbouncer can be had here; None when one can. Installs it where that is possible."""
    return why_not(program)


@cache
def program() -> Path:
    return obtain("pgbouncer", "pgbouncer", _find)


def _find() -> Path | None:
    """It is often among the programs for administrators, which are not on everybody's path."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/local/bin")
    return Path(found) if found else None
