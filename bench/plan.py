"""How much is measured, and where."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

PARTS = ("rules", "promises", "burst", "steady", "pending", "memory")
"""What `--only` can name. Ceilings are measured with whatever is compared to them."""

_IN_MEMORY = ("tmpfs", "ramfs", "overlay")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of one run of the bench."""

    parts: frozenset[str] = frozenset(PARTS)
    rounds: int = 3
    """Lean and heavy bursts take turns this often, with a ceiling before, between and after them."""
    burst: int = 100_000
    bulk: int = 200_000
    pending: int = 1_000_000
    seconds: float = 20.0
    """Of each steady load."""
    turns: int = 4
    """Lean and heavy steady loads take turns, each in so many pieces."""
    single_seconds: float = 3.0
    slices: int = 10
    """Promises and their ceilings take turns this often."""
    slots: int = 1_000
    rates: tuple[int, ...] = (1_000, 5_000)
    rule_seconds: float = 0.2
    """For each rule, zone and state of the caches."""

    def quick(self) -> Plan:
        """Ten times smaller: shows that it works, and little else."""
        return replace(
            self,
            rounds=1,
            turns=1,
            slices=4,
            burst=self.burst // 10,
            bulk=self.bulk // 10,
            pending=self.pending // 10,
            seconds=self.seconds / 10,
            single_seconds=self.single_seconds / 5,
            rule_seconds=self.rule_seconds / 10,
        )


@contextmanager
def workshop(fallback: Path, *, keep: bool) -> Iterator[Path]:
    """A folder of our own on a real disk; gone afterwards, whatever happens, unless it is to be kept."""
    temporary = Path(tempfile.gettempdir())
    place = fallback if _file_system(temporary) in _IN_MEMORY else temporary
    folder = Path(tempfile.mkdtemp(prefix="foliot-bench-", dir=place))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on; empty where nobody says."""
    try:
        mounts = Path("/proc/mounts").read_text("utf-8")
    except OSError:
        return ""
    found = ("", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        if len(point) >= len(found[0]) and os.path.commonpath([point, folder.resolve()]) == point:
            found = point, kind
    return found[1]
