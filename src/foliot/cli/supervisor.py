"""A supervisor: restarts child processes that exit, and stops them when it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foliot.bootstrap import DRAINED, RECYCLED
from foliot.domain.instant import SECOND, Duration

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 30.0
HEALTHY = 60.0
"""Seconds after which the next exit of a process counts as its first."""

Tell = Callable[[str, str], None]
"""Receives events of a process: its name, and a phrase."""


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    command: Sequence[str]


class Supervisor:
    """Restarts its children until it is stopped."""

    def __init__(self, children: Sequence[Child], tell: Tell, *, output_to_stderr: bool = False) -> None:
        self._children = children
        self._tell = tell
        self._output = sys.stderr if output_to_stderr else None
        self._stopping = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []
        self._alive: dict[str, asyncio.subprocess.Process] = {}

    def start(self) -> None:
        self._keeping = [asyncio.create_task(self._keep(child)) for child in self._children]

    async def stop(self, patience: Duration) -> None:
        """Asks the children to end, and kills those which did not after `patience`."""
        self._stopping.set()
        for process in self._alive.values():
            _send(process, signal.SIGTERM)
        await asyncio.wait(self._keeping, timeout=patience / SECOND)
        for name, process in list(self._alive.items()):
            self._tell(name, f"did not stop within the grace, killed (pid {process.pid})")
        self.kill()
        await asyncio.gather(*self._keeping)

    def kill(self) -> None:
        """At once."""
        self._stopping.set()
        for process in self._alive.values():
            _send(process, signal.SIGKILL)

    async def _keep(self, child: Child) -> None:
        backoff = FIRST_BACKOFF
        while not self._stopping.is_set():
            began = time.monotonic()
            code, how = await self._live(child)
            if self._stopping.is_set():
                return
            if code == RECYCLED:
                # It asked for this, and took its time to: there is nothing to wait for.
                self._tell(child.name, "exited because a handler could not be stopped; restarting")
                continue
            if code == DRAINED:
                # A restarted worker would claim runs again, and the operator would have to drain it again.
                self._tell(child.name, "drained, not restarted; to start it again, restart `foliot up`")
                return
            if time.monotonic() - began > HEALTHY:
                backoff = FIRST_BACKOFF
            self._tell(child.name, f"{how}; restarting in {backoff:g} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), backoff)
            except TimeoutError:
                backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def _live(self, child: Child) -> tuple[int | None, str]:
        """Runs a child once; answers its exit code, and a phrase about its end."""
        try:
            process = await self._spawn(child)
        except OSError as error:  # no memory or no process left, for now
            return None, f"could not be started ({error})"
        self._alive[child.name] = process
        self._tell(child.name, f"started (pid {process.pid})")
        if self._stopping.is_set():  # stopped while the process was starting
            _send(process, signal.SIGTERM)
        code = await process.wait()
        del self._alive[child.name]
        return code, f"exited ({_how(code)})"

    async def _spawn(self, child: Child) -> asyncio.subprocess.Process:
        # A process group of its own: Ctrl-C in the terminal reaches the supervisor alone, which asks in order.
        return await asyncio.create_subprocess_exec(
            *child.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._output,
            process_group=0,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return  # it ended before we could ask


def _how(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
