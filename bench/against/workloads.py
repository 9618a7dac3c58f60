"""The workloads that can be compared, and their measures. `round_program` executes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    label: str
    is_rate: bool = False
    """Larger is better. For other measures smaller is better."""
    is_count: bool = False
    """May be 0, so it has no ratio."""

    def ratio(self, this: float, other: float) -> float:
        """This relative to other; larger is better."""
        return this / other if self.is_rate else other / this


MEASURES = {
    "rate": Measure("per second", is_rate=True),
    "end_rate": Measure("per second, to the end", is_rate=True),
    "wakeups": Measure("wake-ups per second"),
    "idle_cpu_us": Measure("CPU per idle second, us"),
    "first_ms": Measure("first start, ms"),
    "p50_ms": Measure("p50, ms"),
    "p99_ms": Measure("p99, ms"),
    "missing_ticks": Measure("missing ticks", is_count=True),
    "cpu_us": Measure("CPU per run, us"),
    "server_cpu_us": Measure("of that, server, us"),
}


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    runs: int
    """Runs that are executed, or promises that are made. Of `schedules` and `start`: the number of schedules."""
    deciding: str
    """The name of the measure that decides."""
    turns: int = 0
    """Both rounds of a pair run at the same time, and have this many turns each. 0: one round after the other."""


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("burst", 30_000, "rate"),
        Workload("limits", 10_000, "rate"),
        Workload("waiters", 3_000, "rate"),
        Workload("steady", 1_500, "p50_ms"),
        Workload("schedules", 1_000, "p50_ms"),
        Workload("start", 10_000, "first_ms"),
        Workload("idle", 100, "wakeups"),
        Workload("bulk", 100_000, "rate", turns=50),
        Workload("single", 2_000, "p50_ms", turns=40),
    )
}
STORES = ("sqlite", "postgres")
