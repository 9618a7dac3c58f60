"""Runs rounds: each in a process group of its own, with a fresh store on disk."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from bench.against.sides import Side, SideName
from bench.against.workloads import Workload
from tests.servers.home import ServerFailed
from tests.servers.postgres import PostgresServer

SERVER_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
ROUND_TIMEOUT = 120.0
"""Seconds after which a round is ended as hanging."""
NO_ANSWER = f"no answer after {ROUND_TIMEOUT:g} s"
STOP_TIMEOUT = 40.0
"""Seconds that a round has to stop its scheduler and worker, after SIGTERM."""
LOG_TAIL = 4_000
_UNRELATED = ("FOLIOT_", "OTEL_", "PYTHON", "PG")
"""Environment variables that would change a round."""


class RoundFailed(Exception):
    """A process ended, hung, or broke a promise. The message ends with the processes' own output."""


class Answer(NamedTuple):
    measures: dict[str, float]
    early: int


class Store(NamedTuple):
    url: str
    server: int | None
    """Process id of the PostgreSQL server."""


class Rounds:
    """Rounds below one folder on disk. The PostgreSQL server starts with the first round that needs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.program = folder / "program" / "round_program.py"
        self._resources = ExitStack()
        self._server: PostgresServer | None = None
        self._count = 0

    def __enter__(self) -> Self:
        # A copy: an edit during the run must not change the later rounds.
        self.program.parent.mkdir()
        shutil.copy(Path(__file__).with_name(self.program.name), self.program)
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def run_pair(self, order: Sequence[Side], workload: Workload, store: str) -> dict[SideName, Answer]:
        """Raises RoundFailed if a round could not be measured, or if a run started early.

        Rounds with a scheduler and a worker follow each other, because even idle processes would disturb the other
        side. Rounds that only promise run at the same time and take turns, so that both meet the same load.
        """
        try:
            return self._run_pair(order, workload, store)
        except ServerFailed as error:
            raise RoundFailed(str(error)) from error

    def _run_pair(self, order: Sequence[Side], workload: Workload, store: str) -> dict[SideName, Answer]:
        if not workload.turns:
            return {side.name: self._run(side, workload, store) for side in order}
        with ExitStack() as stack:
            running = [stack.enter_context(self._round(side, workload, store)) for side in order]
            for each in running:
                each.wait_for_turn()
            for place in range(workload.turns):
                for each in running[:: -1 if place % 2 else 1]:
                    each.take_turn()
            return {side.name: each.finish() for side, each in zip(order, running, strict=True)}

    def _run(self, side: Side, workload: Workload, store: str) -> Answer:
        with self._round(side, workload, store) as running:
            return running.finish()

    @contextmanager
    def _round(self, side: Side, workload: Workload, store: str) -> Iterator[Round]:
        """A round that has begun, in a folder and with a store of its own. Nothing of it is left at the end."""
        self._count += 1
        with tempfile.TemporaryDirectory(prefix=f"round-{self._count}-", dir=self._folder) as name:
            folder = Path(name)
            with self._fresh(store, f"round_{self._count}", folder) as fresh:
                running = Round(side, workload, fresh, self.program, folder)
                try:
                    yield running
                finally:
                    running.end()

    @contextmanager
    def _fresh(self, store: str, name: str, folder: Path) -> Iterator[Store]:
        if store == "sqlite":
            yield Store(f"sqlite:///{folder / 'foliot.db'}", None)
            return
        if self._server is None:
            self._server = self._resources.enter_context(
                PostgresServer(directory=self._folder.parent, settings=SERVER_SETTINGS)
            )
        self._server.create_database(name)
        try:
            yield Store(self._server.dsn(name), self._server.pid)
        finally:
            self._server.drop_database(name)


class Round:
    """A running round program, which leads a process group."""

    def __init__(self, side: Side, workload: Workload, store: Store, program: Path, folder: Path) -> None:
        self._side = side
        self._log, self._answer = folder / "log", folder / "answer.json"
        options = {
            "workload": workload.name,
            "runs": workload.runs,
            "turns": workload.turns,
            "server": store.server,
            "answer": str(self._answer),
        }
        with self._log.open("wb") as log:
            # The program ends when its standard input does: also if this process is killed.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(program), json.dumps(options)],
                cwd=folder,
                env=environment(side, store),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def wait_for_turn(self) -> None:
        """Until the round is ready for its first turn, or has ended its last one."""
        readable, _, _ = select.select([self._output], [], [], ROUND_TIMEOUT)
        if not readable:
            raise self._failure(NO_ANSWER)
        if not self._output.read(1):
            self.finish()
            raise self._failure("ended before its last turn")

    def take_turn(self) -> None:
        with suppress(BrokenPipeError):  # it has ended: the answer is missing then
            self._input.write(b".")
        self.wait_for_turn()

    def finish(self) -> Answer:
        try:
            code = self._process.wait(ROUND_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise self._failure(NO_ANSWER) from None
        if code:
            raise self._failure(f"exit code {code}")
        answer = Answer(**json.loads(self._answer.read_text()))
        if answer.early:
            raise self._failure(f"{answer.early} runs started before their due time")
        return answer

    def _failure(self, reason: str) -> RoundFailed:
        output = self._log.read_text(errors="replace")[-LOG_TAIL:].strip() or "(nothing)"
        return RoundFailed(f"{self._side.name} ({self._side.label}): {reason}; its output ends with:\n{output}")

    def end(self) -> None:
        """Ends the program in order if it still runs. Kills its group unless it has stopped its own processes."""
        process = self._process
        try:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_TIMEOUT)
        finally:
            if process.returncode != 0:
                with suppress(ProcessLookupError):  # no process of the group is left
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._input.close()
            self._output.close()


def environment(side: Side, store: Store) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_UNRELATED)}
    return kept | {"PYTHONPATH": str(side.source), "AGAINST_SOURCE": str(side.source), "FOLIOT_STORE": store.url}
