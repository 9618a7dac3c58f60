"""What was measured, and how it compares."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.loads import Burst, Steady
from bench.rules import RuleSpeed
from bench.weight import Weight

Load = Literal["lean", "heavy"]
"""Without and with a million far-future runs pending."""


@dataclass(slots=True)
class Compared:
    """Pairs of a rate and the ceiling that was measured beside it, per second.

    The ratio is the median of the pairs' ratios. A ratio of medians would compare one moment with another.
    """

    rates: list[float] = field(default_factory=list)
    ceilings: list[float] = field(default_factory=list)
    may_exceed: bool = False
    """Whether it can be above its ceiling. Where it cannot and is, the pair did not see the same machine."""

    def add(self, rate: float, ceiling: float) -> None:
        self.rates.append(rate)
        self.ceilings.append(ceiling)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def ceiling(self) -> float:
        return statistics.median(self.ceilings)

    @property
    def ratios(self) -> list[float]:
        return [rate / ceiling for rate, ceiling in zip(self.rates, self.ceilings, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def is_impossible(self) -> bool:
        return not self.may_exceed and self.ratio > 1


@dataclass(slots=True)
class Results:
    """Everything that one run of the bench found out. What was not measured is empty."""

    machine: dict[str, Any] = field(default_factory=dict)
    rules: list[RuleSpeed] = field(default_factory=list)
    slowest_answer: tuple[float, str] | None = None
    """Of rare and bad rules: milliseconds, and which."""
    promises: dict[str, Compared] = field(default_factory=dict)
    drains: dict[int, list[float]] = field(default_factory=dict)
    """The ceiling of bursts by size of batch: before, between and after the rounds, so one more than there are."""
    bursts: dict[str, list[Burst]] = field(default_factory=dict)
    """By load, one per round."""
    steady: dict[str, list[Steady]] = field(default_factory=dict)
    """By load and rate: `lean 1000`."""
    weight: Weight | None = None
    seconds: float = 0.0
    steps: list[tuple[str, float]] = field(default_factory=list)
    """How long each step of measuring took, in seconds."""

    def burst(self, load: Load, what: Literal["start", "finish"]) -> Compared | None:
        """Each round beside the mean of the ceilings before and after it; of the batches, the faster ones."""
        found = self.bursts.get(load)
        if not found or not self.drains:
            return None
        best = [max(measured) for measured in zip(*self.drains.values(), strict=True)]
        compared = Compared()
        for one, before, after in zip(found, best, best[1:], strict=False):
            compared.add(one.start_rate if what == "start" else one.finish_rate, (before + after) / 2)
        return compared

    def heavy_to_lean(self) -> list[float]:
        """How the rate of a burst changes with a million runs pending: one ratio per round."""
        pairs = zip(self.bursts.get("heavy", []), self.bursts.get("lean", []), strict=False)
        return [heavy.start_rate / lean.start_rate for heavy, lean in pairs]

    def heavy_to_lean_p99(self, rate: str) -> list[float]:
        """The same for lateness: one ratio per turn."""
        pairs = zip(self.steady.get(f"heavy {rate}", []), self.steady.get(f"lean {rate}", []), strict=False)
        return [heavy.quantile(0.99) / lean.quantile(0.99) for heavy, lean in pairs]

    def early(self) -> int | None:
        """Starts before their time, in everything that was measured; None when nothing was."""
        everything: list[Burst | Steady] = [one for listed in self.bursts.values() for one in listed]
        everything += [one for listed in self.steady.values() for one in listed]
        return sum(one.early for one in everything) if everything else None

    def repeated(self) -> int:
        """Loads that had to be set up again, because the machine was too slow to be ready when they fell due."""
        listed: list[Burst | Steady] = [one for found in self.bursts.values() for one in found]
        listed += [one for found in self.steady.values() for one in found]
        return sum(one.tries - 1 for one in listed)


def spread(values: Sequence[float]) -> float:
    """How far the highest lies above the lowest, as a share of the mean."""
    return (max(values) - min(values)) / statistics.fmean(values) if values else 0.0
