"""Real processes, killed for real. Whatever a test leaves behind is ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CAMPUS = ROOT / "tests" / "faults" / "campus.py"


class Fleet:
    """The processes of one store."""

    def __init__(self, folder: Path, store: str | None = None, **environment: str) -> None:
        """On a file of its own if no store is given."""
        self.store = store or f"sqlite:///{folder / 'foliot.db'}"
        self.log = folder / "log.jsonl"
        self.acknowledged = folder / "acknowledged"
        self.errors = (folder / "errors").open("ab")
        self.environment = {
            **os.environ,
            **environment,
            "CAMPUS_LOG": str(self.log),
            "FOLIOT_STORE": self.store,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        self.alive: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *command], env=self.environment, stderr=self.errors, stdout=self.errors, cwd=ROOT
        )
        self.alive[name] = process
        return process

    def start_scheduler(self, name: str = "scheduler") -> subprocess.Popen[bytes]:
        return self.start(name, "-m", "foliot", "scheduler", "--app", str(CAMPUS))

    def start_worker(self, name: str = "worker", *options: str) -> subprocess.Popen[bytes]:
        return self.start(name, "-m", "foliot", "worker", "--app", str(CAMPUS), *options)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> int:
        process = self.alive.pop(name)
        process.send_signal(how)
        return process.wait(20)

    def fallen(self) -> list[str]:
        """Those that ended although nobody ended them; they are not among the living any more."""
        ended = [name for name, process in self.alive.items() if process.poll() is not None]
        for name in ended:
            del self.alive[name]
        return ended

    def kill_all(self) -> None:
        """Everything at the same moment, as a power cut would."""
        for process in self.alive.values():
            process.send_signal(signal.SIGKILL)
        for process in self.alive.values():
            process.wait(20)
        self.alive.clear()

    def close(self) -> None:
        for process in self.alive.values():
            process.send_signal(signal.SIGCONT)
        self.kill_all()
        self.errors.close()


def eventually(condition: Callable[[], Any], *, within: float, what: str) -> Any:
    """Real processes take real time: asks again until the condition holds, or says what never came."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within} s: {what}")
