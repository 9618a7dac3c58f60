"""The results as a line per pair, as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from bench.against.comparison import Comparison, Pair
from bench.against.decision import median_interval
from bench.against.sides import SIDES, Side
from bench.against.workloads import MEASURES


def pair_line(comparison: Comparison, maximum: int) -> str:
    """The last pair."""
    pair = comparison.pairs[-1]
    title = f"{comparison.workload.name} {comparison.store}, pair {len(comparison.pairs)} of at most {maximum}"
    parts = [_measured(pair, name) for name in comparison.measures()]
    if comparison.verdict != "continue":
        parts.append(comparison.verdict)
    return f"{title}, {pair.seconds:.0f} s: {'; '.join(parts)}"


def _measured(pair: Pair, name: str) -> str:
    this, other = (_number(pair.answers[side].measures[name]) for side in SIDES)
    ratio = "" if MEASURES[name].is_count else f" ({pair.ratio(name):.2f})"
    return f"{MEASURES[name].label} {this} / {other}{ratio}"


def table(comparisons: Sequence[Comparison], sides: Sequence[Side]) -> Table:
    this, other = sides
    shown = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    shown.title = f"this: {this.label}   other: {other.label}   ratio: this relative to other, larger is better"
    for heading in ("workload", "store", "pairs", "measure", "this", "other", "ratio", "95% interval", "verdict"):
        is_number = heading in ("pairs", "this", "other", "ratio")
        shown.add_column(heading, justify="right" if is_number else "left")
    for comparison in comparisons:
        start = [comparison.workload.name, comparison.store, str(len(comparison.pairs))]
        for name in comparison.measures():
            decides = name == comparison.workload.deciding
            shown.add_row(*(start if decides else [""] * 3), *_cells(comparison, name, decides))
        if not comparison.pairs:
            shown.add_row(*start, "", "", "", "", "", comparison.verdict)
    return shown


def _cells(comparison: Comparison, name: str, decides: bool) -> Iterator[str]:
    yield MEASURES[name].label
    yield from (_number(comparison.median(name, side)) for side in SIDES)
    if MEASURES[name].is_count:
        return
    ratios = comparison.ratios(name)
    interval = median_interval(ratios)
    yield f"{median(ratios):.3f}"
    yield f"{interval.low:.3f} to {interval.high:.3f}" if interval else "-"
    yield comparison.verdict if decides else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == 0 else f"{value:.3g}"


def to_json(comparisons: Sequence[Comparison], sides: Sequence[Side]) -> dict[str, Any]:
    return {"sides": {side.name: side.label for side in sides}, "comparisons": list(map(_comparison, comparisons))}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    ratios = {name: comparison.ratios(name) for name in comparison.measures() if not MEASURES[name].is_count}
    return {
        "workload": comparison.workload.name,
        "runs": comparison.workload.runs,
        "store": comparison.store,
        "verdict": comparison.verdict,
        "error": comparison.error,
        "deciding": comparison.workload.deciding,
        "ratios": {
            name: {"median": median(listed), "interval": median_interval(listed), "pairs": listed}
            for name, listed in ratios.items()
        },
        "pairs": [
            {"first": pair.first, "seconds": pair.seconds, **{side: pair.answers[side].measures for side in SIDES}}
            for pair in comparison.pairs
        ],
    }
