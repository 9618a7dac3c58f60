"""What was measured, and how it compares."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.loads import Burst, Steady
from bench.promises import PromiseRates
from bench.weight import Weight

Load = Literal["lean", "heavy"]
"""Without and with a million far-future runs pending."""


@dataclass(slots=True)
class Results:
    """Everything that one run of the bench found out. What was not measured is empty."""

    machine: dict[str, Any] = field(default_factory=dict)
    ceilings: dict[str, list[float]] = field(default_factory=dict)
    """Per second, each as often as it was measured: `bulk`, `single`, `drain 500`, `drain 1000`."""
    promises: PromiseRates | None = None
    bursts: dict[str, list[Burst]] = field(default_factory=dict)
    """By load."""
    steady: dict[str, list[Steady]] = field(default_factory=dict)
    """By load and rate: `lean 1000`."""
    weight: Weight | None = None
    seconds: float = 0.0
    steps: list[tuple[str, float]] = field(default_factory=list)
    """How long each step of measuring took, in seconds."""

    def ceiling(self, name: str) -> float | None:
        found = self.ceilings.get(name)
        return statistics.fmean(found) if found else None

    def burst_rate(self, load: Load, what: Literal["start", "finish"] = "start") -> float | None:
        found = self.bursts.get(load)
        if not found:
            return None
        return statistics.median(one.start_rate if what == "start" else one.finish_rate for one in found)

    def early(self) -> int | None:
        """Starts before their time, in everything that was measured; None when nothing was."""
        everything: list[Burst | Steady] = [one for listed in self.bursts.values() for one in listed]
        everything += [one for listed in self.steady.values() for one in listed]
        return sum(one.early for one in everything) if everything else None


def spread(values: Sequence[float]) -> float:
    """How far the highest lies above the lowest, as a share of the mean: the noise of this run."""
    return (max(values) - min(values)) / statistics.fmean(values) if values else 0.0
