"""What every server has: a directory of its own, a user that it runs as, a life that ends with ours."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from types import TracebackType
from typing import Any, Self

from tests.servers import janitor
from tests.waiting import HANG, until

MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 1 << 30
"""Containers often have 64 MB there, which a server fills within seconds."""


class ServerFailed(Exception):
    """A server, or a program that belongs to it, did not do what was asked. The message ends with what it said."""


class ServerMissing(ServerFailed):
    """This machine has no such server. tests/conftest.py reports its tests as not run."""


class Home:
    """Where one server lives. Nothing in it outlives this process, even when that is killed; see janitor.py."""

    def __init__(self, name: str, inside: Path) -> None:
        self.path = Path(mkdtemp(prefix=f"foliot-{name}-", dir=inside))
        self.log = self.path / "log"
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", janitor.__file__, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C, or the death of our process group, is not meant for it
        )
        if user := unprivileged():
            os.chown(self.path, user.pw_uid, user.pw_gid)

    def spawn(self, *command: str | Path, **options: Any) -> subprocess.Popen[str]:
        """Start a program, never as root, that ends when this process does.

        Its command line must name this directory: by that the janitor knows it again.
        """
        if user := unprivileged():
            options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            cwd=self.path,
            env=environment(),
            start_new_session=True,
            text=True,
            **options,
        )
        assert self._janitor.stdin is not None
        self._janitor.stdin.write(f"{process.pid}\n".encode())
        self._janitor.stdin.flush()
        return process

    def run(self, *command: str | Path) -> str:
        """Run a program to its end; what it printed."""
        with self.spawn(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                printed, complaint = process.communicate(timeout=HANG)
            except subprocess.TimeoutExpired:
                process.kill()
                raise ServerFailed(f"no answer within {HANG:g} s from: {' '.join(map(str, command))}") from None
        if process.returncode:
            raise ServerFailed(f"failed with {process.returncode}: {' '.join(map(str, command))}\n{complaint.strip()}")
        return printed.strip()

    def write(self, name: str, text: str) -> Path:
        """A file that the server may read, whatever our umask."""
        path = self.path / name
        path.write_text(text)
        if user := unprivileged():
            os.chown(path, user.pw_uid, user.pw_gid)
        return path

    def log_tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(["the end of its log:", *text.splitlines()[-lines:]])

    def close(self) -> None:
        """End whatever runs here, and remove the directory."""
        if self._janitor.stdin is not None:
            self._janitor.stdin.close()
        self._janitor.wait()


class Server(ABC):
    """A program that is made and started by `with`, and may be stopped and started in between."""

    name: str

    def __init__(self) -> None:
        self.home: Home | None = None
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it takes connections. Does nothing when it runs."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove its directory."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that leads it."""
        if self._process is None or not self.alive:
            raise ServerFailed(f"{self.name} is not running; start() it first")
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._made.log

    @property
    def _made(self) -> Home:
        if self.home is None:
            raise ServerFailed(f"{self.name} has no directory yet, or no more; start() it first")
        return self.home

    def _wait_until(self, true: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            if not self.alive:
                raise ServerFailed(f"{self.name} ended by itself; {self._made.log_tail()}")
            return true()

        try:
            until(is_so, what)
        except AssertionError as error:
            raise ServerFailed(f"{error}; {self._made.log_tail()}") from None


def memory() -> Path:
    """Where tests keep a server: in memory if the host can, because nothing there is proved by a slow fsync."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY:
        return MEMORY
    return Path(gettempdir())


@cache
def unprivileged() -> pwd.struct_passwd | None:
    """Whom a server runs as when we are root, which PostgreSQL refuses; None when we are not."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def environment() -> dict[str, str]:
    """The caller's environment, without what would lead a program to another server or speak another language."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}
