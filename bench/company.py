"""Who else used the machine meanwhile. A benchmark on a shared machine should say so."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self


class Company:
    """Counts from when it was made."""

    def __init__(self) -> None:
        self._began = self._read()
        self._stolen = self._read_stolen()

    def stolen(self) -> float:
        """The share of all processor time that other machines of this host took while we wanted it."""
        (stolen, total), (stolen_before, total_before) = self._read_stolen(), self._stolen
        return (stolen - stolen_before) / (total - total_before) if total > total_before else 0.0

    def share(self) -> float | None:
        """The share of all processor time that went to others than us and our processes; None where nobody tells."""
        if self._began is None or (ended := self._read()) is None:
            return None
        total, busy, ours = (after - before for before, after in zip(self._began, ended, strict=True))
        return max(0.0, busy - ours) / total if total else 0.0

    def _read(self) -> tuple[float, float, float] | None:
        """All time, time that was used (stolen by other machines, too), and our part of that; in seconds."""
        ticks = _ticks()
        if ticks is None:
            return None
        user, nice, system, idle, waiting, interrupts, soft, stolen = ticks
        busy = user + nice + system + interrupts + soft + stolen
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        return busy + idle + waiting, busy, ours

    def _read_stolen(self) -> tuple[float, float]:
        ticks = _ticks()
        return (0.0, 0.0) if ticks is None else (ticks[-1], sum(ticks))


def _ticks() -> list[float] | None:
    """User, nice, system, idle, waiting, interrupts, soft, stolen; in seconds."""
    try:
        first = Path("/proc/stat").read_text("ascii").splitlines()[0]
    except OSError:
        return None
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in first.split()[1:9]]


STANDSTILL = 0.02
"""Seconds: who sleeps for a millisecond and has nothing else to do wakes later than this if the machine stood still."""


class Standstill(NamedTuple):
    """In seconds since 1970."""

    began: float
    ended: float


class Witness:
    """A thread that does nothing, and notes when it could not even do that: whatever was due then was late, whoever had
    to begin it. What this process does meanwhile must be little."""

    def __init__(self) -> None:
        self.standstills: list[Standstill] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.time()
        while not self._over.is_set():
            time.sleep(0.001)
            now = time.time()
            if now - before > STANDSTILL:
                self.standstills.append(Standstill(before, now))
            before = now
