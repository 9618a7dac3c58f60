"""What a release must reach. A gate compares what was measured in one run; nothing fails when one is missed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.loads import together
from bench.results import Results


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    wanted: str
    found: str
    met: bool


def gates(results: Results) -> list[Gate]:
    """Those that something was measured for."""
    listed = [*_rules(results), _end_to_end(results), _punctual(results), *_unmoved(results), _never_early(results)]
    return [gate for gate in listed if gate is not None]


def _rules(results: Results) -> list[Gate | None]:
    """Twice as fast as either of the others, warm and cold; and nobody waits for a rule that is rare or wrong."""
    found: list[Gate | None] = []
    for state in ("warm", "cold"):
        ratios = [
            speed.throughput(engine) for speed in results.rules if speed.state == state for engine in speed.others
        ]
        if ratios:
            least = min(ratios)
            found.append(Gate(f"next occurrence, {state}", "at least 2 x", f"{least:.1f} x at least", least >= 2))
    if results.slowest_answer is not None:
        spent, rule = results.slowest_answer
        found.append(Gate("a rare or bad rule", "under 5 ms", f"{spent:.2f} ms ({rule})", spent < 5))
    return found


def _end_to_end(results: Results) -> Gate | None:
    compared = results.burst("lean", "finish")
    if compared is None:
        return None
    found = f"{compared.ratio:.2f}" + (" (not believable)" if compared.is_impossible else "")
    return Gate("burst, end to end, of the raw ceiling", "at least 0.33", found, compared.ratio >= 1 / 3)


def _punctual(results: Results) -> Gate | None:
    found = results.steady.get("lean 1000")
    if not found:
        return None
    late = together(found).quantile(0.99)
    return Gate("p99 due to start at 1,000/s", "under 25 ms", f"{late:.1f} ms", late < 25)


def _unmoved(results: Results) -> list[Gate | None]:
    """A million pending runs change neither rate nor lateness by more than a fifth."""
    slower = later = None
    if ratios := results.heavy_to_lean():
        met = statistics.median(ratios) >= 0.8
        slower = Gate("burst rate with a million pending", "at least 0.80 x", _median(ratios), met)
    if ratios := results.heavy_to_lean_p99("1000"):
        met = statistics.median(ratios) <= 1.2
        later = Gate("p99 at 1,000/s with a million pending", "at most 1.20 x", _median(ratios), met)
    return [slower, later]


def _median(ratios: list[float]) -> str:
    """With its range: where that is wide, the verdict is chance."""
    between = f" ({min(ratios):.2f} - {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f} x{between}"


def _never_early(results: Results) -> Gate | None:
    early = results.early()
    return None if early is None else Gate("starts before their time", "0", str(early), early == 0)
