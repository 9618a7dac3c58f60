"""Processes that are forks of one interpreter which has imported everything and has nothing open.

A `foliot` process of its own costs half a second of CPU before it does anything, and nearly all of that is imports. A
fork costs a hundredth. In all else it is a process like any other: it has an id, a birth, signals and an exit status.
Tests of the command line itself start the command.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import HANG

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.servers.preloaded"])


class Forked:
    """One such process; its methods are those of `subprocess.Popen`."""

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], output: Path, folder: Path
    ) -> None:
        """Runs what `python -m module arguments` would. What it prints is appended to `output`."""
        place = (module, arguments, dict(environment), str(output), str(folder))
        self._process = _forks.Process(target=_run, args=place, daemon=False)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit status, and None while it runs. Once there is a status, nothing is left of the process."""
        return self._process.exitcode

    def wait(self, timeout: float = HANG) -> int:
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str], output: str, folder: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
