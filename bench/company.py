"""Who else used the machine meanwhile. A benchmark on a shared machine should say so."""

from __future__ import annotations

import os
from pathlib import Path


class Company:
    """Counts from when it was made."""

    def __init__(self) -> None:
        self._began = self._read()

    def share(self) -> float | None:
        """The share of all processor time that went to others than us and our processes; None where nobody tells."""
        if self._began is None or (ended := self._read()) is None:
            return None
        total, busy, ours = (after - before for before, after in zip(self._began, ended, strict=True))
        return max(0.0, busy - ours) / total if total else 0.0

    def _read(self) -> tuple[float, float, float] | None:
        """All time, time that was used (stolen by other machines, too), and our part of that; in seconds."""
        try:
            first = Path("/proc/stat").read_text("ascii").splitlines()[0]
        except OSError:
            return None
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in first.split()[1:9]]
        user, nice, system, idle, waiting, interrupts, soft, stolen = ticks
        busy = user + nice + system + interrupts + soft + stolen
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        return busy + idle + waiting, busy, ours
