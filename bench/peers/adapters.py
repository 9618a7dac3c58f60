"""The harness's side of the protocol: one question to an adapter, or a team of its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.environment import Environment

ANSWERING = 600.0
"""Seconds that a question may take at most; a peer that is slow is told to stop in time by the question itself."""
STARTING = 120.0
WRITING = 60.0


class Broken(RuntimeError):
    """An adapter failed; the text has what it said last."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What handlers recorded, in milliseconds since 1970: when each job was due, and when it started."""

    due: list[float]
    start: list[float]


class Program:
    """An adapter in its environment."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._environment = environment
        self._folder = folder

    def ask(self, dsn: str, verb: str, /, **options: Any) -> dict[str, Any]:
        """The answer: the last line."""
        try:
            done = subprocess.run(
                self._command(dsn, verb, options),
                env=self._variables(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWERING,
            )
        except subprocess.TimeoutExpired as error:
            raise Broken(f"{verb} took more than {ANSWERING:.0f} s") from error
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            raise Broken(f"{verb} ended with {done.returncode}: {_tail(done.stderr)}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    @contextmanager
    def team(self, dsn: str, count: int, schedules: int = 0) -> Iterator[Team]:
        team = Team(self._folder)
        try:
            for place in range(count):
                options = {"place": place, "out": str(team.out(place)), "schedules": schedules}
                team.start(self._command(dsn, "work", options), self._variables())
            team.wait_until_ready()
            yield team
        finally:
            team.end()

    def _command(self, dsn: str, verb: str, options: dict[str, Any]) -> list[str]:
        return [*self._environment.command, dsn, verb, json.dumps(options)]

    def _variables(self) -> dict[str, str]:
        return {**os.environ, **self._environment.variables}


class Team:
    """Worker processes that share a database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        for leftover in folder.glob("worker*"):
            leftover.unlink()

    def out(self, place: int) -> Path:
        return self._folder / f"worker{place}.json"

    def _log(self, place: int) -> Path:
        return self._folder / f"worker{place}.log"

    def start(self, command: list[str], variables: dict[str, str]) -> None:
        with self._log(len(self._processes)).open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, env=variables, cwd=self._folder, stdin=subprocess.PIPE, stdout=log, stderr=log
                )
            )

    def wait_until_ready(self) -> None:
        self._wait_for(lambda place: '"ready"' in self._said(place), STARTING, "ready")

    def collect(self) -> Samples:
        """Asks everyone for what was recorded so far."""
        for place, process in enumerate(self._processes):
            self.out(place).unlink(missing_ok=True)
            process.send_signal(signal.SIGUSR2)
        self._wait_for(lambda place: self.out(place).exists(), WRITING, "done writing")
        samples = Samples([], [])
        for place in range(len(self._processes)):
            written = json.loads(self.out(place).read_text("utf-8"))
            samples.due.extend(written["due"])
            samples.start.extend(written["start"])
        return samples

    def _wait_for(self, is_done: Any, patience: float, what: str) -> None:
        until = time.monotonic() + patience
        waiting = list(range(len(self._processes)))
        while waiting := [place for place in waiting if not is_done(place)]:
            self.check()
            if time.monotonic() > until:
                raise Broken(f"a worker was not {what} after {patience:.0f} s: {_tail(self._said(waiting[0]))}")
            time.sleep(0.02)

    def check(self) -> None:
        for place, process in enumerate(self._processes):
            if process.poll() is not None:
                raise Broken(f"a worker ended with {process.returncode}: {_tail(self._said(place))}")

    def _said(self, place: int) -> str:
        return self._log(place).read_text("utf-8", "replace")

    def end(self) -> None:
        """Everyone is gone afterwards: asked first, and then made to."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
        for process in self._processes:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _tail(text: str) -> str:
    return text.strip()[-4_000:] or "(it said nothing)"
