"""One picture: rates, and lateness, of everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.measure import Results
from bench.peers.peers import FOLIOT
from bench.peers.report import Measure, measures, median

_OURS, _THEIRS = "#2f6f9f", ("#d1495b", "#edae49", "#66a182", "#8d6a9f", "#8c8c8c")


def plot(results: Results, file: Path) -> bool:
    """False when matplotlib is not installed (`pip install foliot[bench]`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.5), layout="constrained")
    rates = [("promises", place) for place in (0, 1, 2)] + [("burst", place) for place in (0, 1)]
    _bars(results, left, rates, "per second, log scale; longer is better", "Rates")
    late = [(load, place) for load in results.found for place, one in _p99(load)]
    _bars(results, right, late, "p99 milliseconds from due to start, log scale; shorter is better", "Lateness")
    handles, names = max((axes.get_legend_handles_labels() for axes in (left, right)), key=lambda found: len(found[0]))
    figure.legend(handles, names, loc="outside lower center", ncols=max(1, len(names)), fontsize=8, frameon=False)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True


def _p99(load: str) -> list[tuple[int, Measure]]:
    return [(place, one) for place, one in enumerate(measures(load)) if one.heading == "p99 ms"]


def _bars(results: Results, axes: Any, groups: list[tuple[str, int]], unit: str, title: str) -> None:
    groups = [(load, place) for load, place in groups if load in results.found]
    height = 0.8 / max(1, len(results.peers))
    others = iter(_THEIRS)
    for row, peer in enumerate(results.peers):
        colour = _OURS if peer is FOLIOT else next(others)
        label: str | None = peer.name
        for column, (load, place) in enumerate(groups):
            one = measures(load)[place]
            value = median(results.of(load, peer), one.take)
            if value is None or value <= 0:
                continue
            where = -column + 0.4 - (row + 0.5) * height
            axes.barh(where, value, height * 0.9, color=colour, label=label)
            axes.text(value, where, f" {one.form.format(value)}", va="center", fontsize=7)
            label = None
    names = [f"{load}\n{measures(load)[place].heading}" for load, place in groups]
    axes.set_yticks([-column for column in range(len(groups))], names, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
