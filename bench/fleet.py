"""One scheduler and one worker, as the processes that a user would start, and a look at the file that they share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from bench.raw import now
from foliot.domain.instant import Instant
from foliot.store.sqlite.connection import connect

APP = Path(__file__).with_name("jobs.py")
PATIENCE = 30.0
"""Seconds for a process to appear in the store, and for it to leave when it is asked to."""


class Stuck(RuntimeError):
    """A process died, or what was due does not happen."""


class Watcher:
    """Looks at a store from outside. Its looks are cheap, because they share the machine with what they look at."""

    def __init__(self, path: Path) -> None:
        self._connection: apsw.Connection = connect(str(path))

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def ended(self) -> int:
        """Where history ends: numbers in it are given without gaps, and the last one is found without a scan."""
        return int(self._connection.execute("SELECT coalesce(max(n), 0) FROM history").get)

    def is_owned_by(self, scheduler: int) -> bool:
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM shard s JOIN instance i ON i.number = s.owner WHERE i.pid = ?)",
                (scheduler,),
            ).get
        )

    def is_registered(self, pid: int) -> bool:
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM instance WHERE pid = ? AND ended_at IS NULL)", (pid,)
            ).get
        )

    def times_since(self, position: int) -> list[tuple[int, int]]:
        """Fire time and start of every run that ended after a position, in that order of endings."""
        rows: list[Any] = self._connection.execute(
            "SELECT fire_at, started_at FROM history WHERE n > ? ORDER BY n", (position,)
        ).fetchall()
        return rows


class Fleet:
    """The processes, and what they said."""

    def __init__(self, path: Path, watcher: Watcher, slots: int) -> None:
        self._watcher = watcher
        self._log = path.with_name(f"{path.stem}.log")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start("scheduler", path)
            self._start("worker", path, "--slots", str(slots))
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    def _start(self, role: str, path: Path, *options: str) -> None:
        # Supervised: should the bench be killed, its processes end by themselves.
        command = [sys.executable, "-m", "foliot", role, "--app", str(APP), "--store", f"sqlite:///{path}"]
        with self._log.open("ab") as log:
            self._processes[role] = subprocess.Popen(
                [*command, "--supervised-by", str(os.getpid()), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.check()
            owned = self._watcher.is_owned_by(self._processes["scheduler"].pid)
            if owned and self._watcher.is_registered(self._processes["worker"].pid):
                return
            time.sleep(0.02)
        raise Stuck(f"scheduler and worker were not ready after {PATIENCE:g} s:\n{self._said()}")

    def wait_for(self, ended: int, patience: float) -> Instant:
        """Until history has come to a position; when that was, to a hundredth of a second."""
        until = time.monotonic() + patience
        while (reached := self._watcher.ended()) < ended:
            self.check()
            if time.monotonic() > until:
                raise Stuck(f"{ended - reached} runs have not ended after {patience:.0f} s:\n{self._said()}")
            time.sleep(0.01)
        return now()

    def check(self) -> None:
        for role, process in self._processes.items():
            if process.poll() is not None:
                raise Stuck(f"the {role} ended with {process.returncode}:\n{self._said()}")

    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2_000:]

    def end(self) -> None:
        """Every process is gone afterwards: asked first, and then made to."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def fleet(path: Path, watcher: Watcher, slots: int) -> Iterator[Fleet]:
    running = Fleet(path, watcher, slots)
    try:
        yield running
    finally:
        running.end()
