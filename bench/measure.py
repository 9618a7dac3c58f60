"""The order of measuring: ceilings before, between and after, and whatever is compared takes turns.

A machine is not equally fast for five minutes. What is measured side by side in time can be compared; what is not, not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import raw
from bench.loads import burst, steady
from bench.plan import Plan
from bench.promises import promise_rates
from bench.results import Load, Results
from bench.weight import fill, weigh

DRAIN_BATCHES = (500, 1_000)

Step = tuple[str, Callable[[], None]]


class Measurement:
    """The steps of one run of the bench, in order, and what they have found so far."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.results = Results()
        self._folder = folder
        self._lean = folder / "lean.db"
        self._heavy = folder / "heavy.db"
        self._disk = (0.0, 0.0)

    def steps(self) -> list[Step]:
        parts = self.plan.parts
        steps: list[Step] = []
        if "promises" in parts:
            steps += [self._ceiling("promises"), ("promises", self._promises), self._ceiling("promises")]
        if parts & {"pending", "memory"}:
            steps.append((f"{self.plan.pending:,} pending runs", self._fill))
        if "memory" in parts:
            steps.append(("weight of a pending run", self._weigh))
        if parts & {"burst", "pending"}:
            for _ in range(self.plan.rounds):
                steps += [self._ceiling("drain"), self._burst_step("lean")]
                if "pending" in parts:
                    steps.append(self._burst_step("heavy"))
            steps.append(self._ceiling("drain"))
        if parts & {"steady", "pending"}:
            steps += self._steady_steps()
        return steps

    def _steady_steps(self) -> list[Step]:
        plan = self.plan
        slowest, *others = plan.rates
        steps: list[Step] = []
        for _ in range(plan.turns):
            steps.append(self._steady_step("lean", slowest, plan.seconds / plan.turns))
            if "pending" in plan.parts:
                steps.append(self._steady_step("heavy", slowest, plan.seconds / plan.turns))
        if "steady" in plan.parts:
            steps += [self._steady_step("lean", rate, plan.seconds) for rate in others]
        return steps

    def _steady_step(self, load: Load, rate: int, seconds: float) -> Step:
        def measure() -> None:
            path = self._lean if load == "lean" else self._heavy
            found = steady(path, rate, seconds, self.plan.slots)
            self.results.steady.setdefault(f"{load} {rate}", []).append(found)

        return f"steady {rate:,}/s" + (f", {self.plan.pending:,} pending" if load == "heavy" else ""), measure

    def _ceiling(self, which: str) -> Step:
        return f"ceiling of {which}", self._promise_ceilings if which == "promises" else self._drain_ceilings

    def _promise_ceilings(self) -> None:
        self._found("bulk", raw.bulk_insert_rate(self._folder, self.plan.bulk))
        self._found("single", raw.single_insert_rate(self._folder, self.plan.single_seconds))

    def _drain_ceilings(self) -> None:
        for batch in DRAIN_BATCHES:
            self._found(f"drain {batch}", raw.drain_rate(self._folder, self.plan.burst, batch))

    def _found(self, ceiling: str, rate: float) -> None:
        self.results.ceilings.setdefault(ceiling, []).append(rate)

    def _promises(self) -> None:
        self.results.promises = promise_rates(self._folder, self.plan.bulk, self.plan.single_seconds)

    def _fill(self) -> None:
        self._disk = fill(self._heavy, self.plan.pending)

    def _weigh(self) -> None:
        self.results.weight = weigh(self._heavy, self.plan.pending, self._disk)

    def _burst_step(self, load: Load) -> Step:
        def measure() -> None:
            path = self._lean if load == "lean" else self._heavy
            self.results.bursts.setdefault(load, []).append(burst(path, self.plan.burst, self.plan.slots))

        return "burst" + (f", {self.plan.pending:,} pending" if load == "heavy" else ""), measure
