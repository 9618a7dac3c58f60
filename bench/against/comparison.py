"""One comparison: pairs of rounds of one workload on one store, until the decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from bench.against.decision import Decision, decide
from bench.against.rounds import Answer, RoundFailed
from bench.against.sides import SIDES, SideName
from bench.against.workloads import MEASURES, Workload

Verdict = Literal[Decision, "error"]


@dataclass(frozen=True, slots=True)
class Pair:
    first: SideName
    answers: dict[SideName, Answer]
    seconds: float
    """How long both rounds took."""

    def ratio(self, measure: str) -> float:
        this, other = (self.answers[side].measures[measure] for side in SIDES)
        return MEASURES[measure].ratio(this, other)


@dataclass(slots=True)
class Comparison:
    workload: Workload
    store: str
    pairs: list[Pair] = field(default_factory=list)
    verdict: Verdict = "continue"
    error: str | None = None

    def measures(self) -> list[str]:
        """In the order of MEASURES, but the deciding one first."""
        known = self.pairs[0].answers["this"].measures if self.pairs else {}
        return sorted((name for name in MEASURES if name in known), key=lambda name: name != self.workload.deciding)

    def ratios(self, measure: str) -> list[float]:
        return [pair.ratio(measure) for pair in self.pairs]

    def median(self, measure: str, side: SideName) -> float:
        return median(pair.answers[side].measures[measure] for pair in self.pairs)


def compare(
    comparison: Comparison,
    run_pair: Callable[[tuple[SideName, SideName]], dict[SideName, Answer]],
    minimum: int,
    maximum: int,
    report: Callable[[Comparison], None],
) -> None:
    """Adds pairs until the verdict. `run_pair` gets the order of the sides; `report` is called after each pair.

    A round that fails ends the comparison with the verdict "error": a second try would hide a fault that is rare.
    """
    while comparison.verdict == "continue":
        order = SIDES if len(comparison.pairs) % 2 == 0 else (SIDES[1], SIDES[0])
        began = time.monotonic()
        try:
            answers = run_pair(order)
        except RoundFailed as error:
            comparison.verdict, comparison.error = "error", str(error)
            return
        comparison.pairs.append(Pair(order[0], answers, time.monotonic() - began))
        comparison.verdict = decide(comparison.ratios(comparison.workload.deciding), minimum, maximum)
        report(comparison)
