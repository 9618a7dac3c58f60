"""One picture: rates beside their ceilings, and how late steady work starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.loads import together
from bench.promises import BULK, CONCURRENT, SINGLE
from bench.results import Compared, Results

_FIGURE, _CEILING = "#2f6f9f", "#c9c9c9"
_COLOURS = {"lean 1000": "#2f6f9f", "heavy 1000": "#d1495b", "lean 5000": "#66a182"}


def plot(results: Results, file: Path) -> bool:
    """False when matplotlib is not installed (`pip install foliot[bench]`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    _bars(results, left)
    _lateness(results, right)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True


def _bars(results: Results, axes: Any) -> None:
    pairs = _pairs(results)
    for place, (_, found) in enumerate(pairs):
        rate, ceiling = found.rate, found.ceiling
        axes.barh(place + 0.2, ceiling, 0.38, color=_CEILING, label="raw ceiling" if place == 0 else None)
        axes.barh(place - 0.2, rate, 0.38, color=_FIGURE, label="Foliot" if place == 0 else None)
        axes.text(rate, place - 0.2, f" {rate:,.0f}/s  ({found.ratio:.2f})", va="center", fontsize=8)
        axes.text(ceiling, place + 0.2, f" {ceiling:,.0f}/s", va="center", fontsize=8, color="#666666")
    axes.set_yticks(range(len(pairs)), [name for name, _ in pairs])
    axes.set_xscale("log")
    axes.set_xlim(right=max((max(found.rate, found.ceiling) for _, found in pairs), default=1) * 6)
    axes.set_xlabel("per second, log scale")
    axes.set_title("Rates and their ceilings (same tables, same statements, plain SQL)", fontsize=10)
    if pairs:
        axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _pairs(results: Results) -> list[tuple[str, Compared]]:
    wanted: list[tuple[str, Compared | None]] = [
        ("burst, a million\npending", results.burst("heavy", "finish")),
        ("burst, to last finish", results.burst("lean", "finish")),
        ("32 callers", results.promises.get(CONCURRENT)),
        ("one caller", results.promises.get(SINGLE)),
        ("promises in\nthousands", results.promises.get(BULK)),
    ]
    return [(name, found) for name, found in wanted if found is not None]


def _lateness(results: Results, axes: Any) -> None:
    for name, parts in results.steady.items():
        everything = together(parts)
        late = everything.lateness
        load, rate = name.split()
        label = f"{int(rate):,}/s" + (", a million pending" if load == "heavy" else "")
        step = max(1, len(late) // 5_000)
        points = [*range(0, len(late), step), len(late) - 1]
        axes.plot(
            [max(late[point], 0.01) for point in points],
            [(point + 1) / len(late) for point in points],
            color=_COLOURS.get(name),
            label=f"{label}: p50 {everything.quantile(0.5):.1f} ms, p99 {everything.quantile(0.99):.1f} ms",
        )
    axes.axhline(0.99, color="#999999", linewidth=0.7, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds from due to start, log scale")
    axes.set_ylabel("share of runs")
    axes.set_title("Lateness of steady loads", fontsize=10)
    if results.steady:
        axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
