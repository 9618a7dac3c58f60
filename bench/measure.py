"""The order of measuring: whatever is compared takes turns, with its ceiling close by.

A machine is not equally fast for five minutes. What was measured side by side can be compared; the rest cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench import raw
from bench.loads import burst, steady
from bench.plan import Plan
from bench.promises import compare_promises
from bench.results import Load, Results
from bench.rules import compare_rules, slowest_answer
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
        if "rules" in parts:
            steps.append(("rules of time", self._rules))
        if parts & {"burst", "pending"}:
            steps.append(("rehearsal", self._rehearse))
        if "promises" in parts:
            steps.append(("promises and their ceilings", self._promises))
        if parts & {"pending", "memory"}:
            steps.append((f"{self.plan.pending:,} pending runs", self._fill))
        if "memory" in parts:
            steps.append(("weight of a pending run", self._weigh))
        if parts & {"burst", "pending"}:
            for place in range(self.plan.rounds):
                steps += [("ceiling of bursts", self._drain), *self._in_turn(place, self._burst_step)]
            steps.append(("ceiling of bursts", self._drain))
        if parts & {"steady", "pending"}:
            steps += self._steady_steps()
        return steps

    def _in_turn(self, place: int, step: Callable[[Load], Step]) -> list[Step]:
        """Lean and heavy, the other way round every second time: what drifts with time favours neither."""
        loads: list[Load] = ["lean", "heavy"] if "pending" in self.plan.parts else ["lean"]
        return [step(load) for load in (loads if place % 2 == 0 else reversed(loads))]

    def _steady_steps(self) -> list[Step]:
        plan = self.plan
        slowest, *others = plan.rates
        steps: list[Step] = []
        for place in range(plan.turns):
            steps += self._in_turn(place, lambda load: self._steady_step(load, slowest, plan.seconds / plan.turns))
        if "steady" in plan.parts:
            steps += [self._steady_step("lean", rate, plan.seconds) for rate in others]
        return steps

    def _steady_step(self, load: Load, rate: int, seconds: float) -> Step:
        def measure() -> None:
            path = self._lean if load == "lean" else self._heavy
            found = steady(path, rate, seconds, self.plan.slots)
            self.results.steady.setdefault(f"{load} {rate}", []).append(found)

        return f"steady {rate:,}/s" + (f", {self.plan.pending:,} pending" if load == "heavy" else ""), measure

    def _rules(self) -> None:
        self.results.rules = compare_rules(self.plan.rule_seconds)
        self.results.slowest_answer = slowest_answer()

    def _promises(self) -> None:
        plan = self.plan
        self.results.promises = compare_promises(self._folder, plan.bulk, plan.single_seconds, plan.slices)

    def _rehearse(self) -> None:
        """A ceiling that no longer fits the engine's statements should say so now, not in a minute."""
        raw.drain_rate(self._folder, 10, 5)

    def _drain(self) -> None:
        for batch in DRAIN_BATCHES:
            rate = raw.drain_rate(self._folder, self.plan.burst, batch)
            self.results.drains.setdefault(batch, []).append(rate)

    def _fill(self) -> None:
        self._disk = fill(self._heavy, self.plan.pending)

    def _weigh(self) -> None:
        self.results.weight = weigh(self._heavy, self.plan.pending, self._disk)

    def _burst_step(self, load: Load) -> Step:
        def measure() -> None:
            path = self._lean if load == "lean" else self._heavy
            self.results.bursts.setdefault(load, []).append(burst(path, self.plan.burst, self.plan.slots))

        return "burst" + (f", {self.plan.pending:,} pending" if load == "heavy" else ""), measure
