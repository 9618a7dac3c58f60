"""One picture of an outage's aftermath: both lanes, and how late live work is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.outage import Story

_LIVE, _LATE, _QUIET = "#2f6f9f", "#d1495b", "#999999"


def plot(stories: Sequence[Story], file: Path) -> bool:
    """False when matplotlib is not installed (`pip install foliot[bench]`)."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    engines = list(dict.fromkeys(story.engine for story in stories))
    figure, rows = pyplot.subplots(
        2, len(engines), figsize=(6 * len(engines), 6.4), layout="constrained", squeeze=False
    )
    for place, engine in enumerate(engines):
        told = [story for story in stories if story.engine == engine]
        paced = next(story for story in told if story.rate)
        quiet = next(story for story in told if not story.late)
        _lanes(rows[0][place], paced)
        _lateness(rows[1][place], paced, quiet)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True


def _lanes(axes: Any, story: Story) -> None:
    for label, colour, times in (
        ("catch-up", _LATE, story.started),
        ("live", _LIVE, [at + late / 1_000 for at, late in story.live]),
    ):
        counted = Counter(int(at) for at in times)
        last = max(counted, default=0)
        axes.step(range(last + 1), [counted[second] for second in range(last + 1)], color=colour, label=label)
    axes.axhline(story.rate, color=_QUIET, linestyle=":", linewidth=1, label=f"rate: {story.rate:,.0f}/s")
    axes.set_ylabel("runs started per second")
    axes.set_title(f"{story.engine}: {len(story.late):,} overdue runs drain beside live work", fontsize=10)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _lateness(axes: Any, story: Story, quiet: Story) -> None:
    label = f"p50 {story.lateness(0.5):.1f} ms, p99 {story.lateness(0.99):.1f} ms"
    axes.plot(*zip(*story.live, strict=True), ".", markersize=2, color=_LIVE, label=label)
    share = quiet.lateness(0.99)
    axes.axhline(share, color=_QUIET, linestyle=":", linewidth=1, label=f"p99 without a backlog: {share:.1f} ms")
    drained = story.late[-1]
    axes.axvspan(0, drained, color=_LATE, alpha=0.06, label=f"the backlog drains (until {drained:.0f} s)")
    axes.set_yscale("log")
    for axis_format in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_format("{x:g}")
    axes.set_xlabel("seconds since the scheduler came back")
    axes.set_ylabel("ms from due to start, live runs")
    axes.legend(fontsize=8, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
