"""Real processes, killed for real. A test ends each of them by its id."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import apsw

from foliot import Foliot
from foliot.domain.run import RunView
from foliot.domain.state import State
from tests.servers.forked import Forked
from tests.waiting import until

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
CAMPUS = ROOT / "tests" / "faults" / "campus.py"


class Fleet:
    """The processes of one store, and a client of that store in the process of the tests."""

    def __init__(self, folder: Path, store: str | None = None, **environment: str) -> None:
        """On a file of its own if no store is given."""
        self.store = store or f"sqlite:///{folder / 'foliot.db'}"
        self.log = folder / "log.jsonl"
        self.acknowledged = folder / "acknowledged"
        self.output = folder / "output"
        self.environment = {
            **os.environ,
            **environment,
            "CAMPUS_LOG": str(self.log),
            "FOLIOT_STORE": self.store,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        self.output.touch()
        self.alive: dict[str, Forked] = {}
        self._loop: asyncio.Runner | None = None
        self._client: Foliot | None = None

    # ----------------------------------------------------------------------------------------------------- processes

    def start(self, name: str, module: str, *arguments: str, **environment: str) -> Forked:
        """Runs what `python -m module arguments` would."""
        process = Forked(
            module, *arguments, environment=self.environment | environment, output=self.output, folder=ROOT
        )
        self.alive[name] = process
        return process

    def start_scheduler(self, name: str = "scheduler", app: Path = CAMPUS) -> Forked:
        return self.start(name, "foliot", "scheduler", "--app", str(app))

    def start_worker(self, name: str = "worker", *options: str, app: Path = CAMPUS) -> Forked:
        return self.start(name, "foliot", "worker", "--app", str(app), *options)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> int:
        process = self.alive.pop(name)
        process.send_signal(how)
        return process.wait()

    def stop(self, name: str) -> Forked:
        """Stops the process by SIGSTOP at a moment at which it does not have SQLite's write lock."""
        process = self.alive[name]
        path = self.store.removeprefix("sqlite:///")

        def is_stopped_outside_of_a_write() -> bool:
            process.send_signal(signal.SIGSTOP)
            until(lambda: _state(process.pid) == "T", f"{name} is stopped")
            if path == self.store or _can_be_written(path):
                return True
            process.send_signal(signal.SIGCONT)
            return False

        until(is_stopped_outside_of_a_write, f"{name} is stopped without the write lock")
        return process

    def fallen(self) -> list[str]:
        """The names of processes that ended although no test ended them. Each is reported once."""
        ended = [name for name, process in self.alive.items() if process.poll() is not None]
        for name in ended:
            del self.alive[name]
        return ended

    def kill_all(self) -> None:
        """Everything at the same moment, as a power cut would."""
        for process in self.alive.values():
            process.send_signal(signal.SIGKILL)
        for process in self.alive.values():
            process.wait()
        self.alive.clear()

    def close(self) -> None:
        self.kill_all()
        if self._loop is not None:
            if self._client is not None:
                self._loop.run(self._client.close_async())
            self._loop.close()

    # -------------------------------------------------------------------------------------------------------- client

    def ask(self, question: Callable[[Foliot], Coroutine[Any, Any, T]]) -> T:
        """The answer of a client that stays connected: most of what a short question costs is to open the store."""
        if self._loop is None:
            self._loop = asyncio.Runner()
        if self._client is None:
            self._client = Foliot(self.store)
        return self._loop.run(question(self._client))

    def promise(self, job: str, queue: str | None = None, lease: str | None = None, **arguments: Any) -> str:
        """The id of a run that is due now. The client knows the job by its name alone."""

        async def made(app: Foliot) -> str:
            here = app.jobs.get(job) or app.job(name=job)(_unknown)
            wanted: dict[str, Any] = {"queue": queue, "lease": lease}
            chosen = {name: value for name, value in wanted.items() if value is not None}
            return (await here.using(**chosen).now_async(**arguments)).id

        return self.ask(made)

    def run(self, run_id: str) -> RunView:
        return self.ask(lambda app: app.operate.run_async(run_id))

    def succeeded(self, run_id: str) -> RunView:
        """The run, once it is done."""

        def done() -> RunView | None:
            run = self.run(run_id)
            return run if run.state is State.SUCCEEDED else None

        found = until(done, f"{run_id} is done")
        assert found is not None
        return found


async def _unknown(**_arguments: Any) -> None: ...


def _state(pid: int) -> str:
    """The state of a process as `ps` shows it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _can_be_written(path: str) -> bool:
    """Whether the write lock of this SQLite file is free now."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True
