"""Who else used the machine meanwhile. A benchmark on a shared machine should say so."""

from __future__ import annotations

import os
from pathlib import Path


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
