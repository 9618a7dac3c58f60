"""A load as a picture: one SVG that needs nothing else, for light and dark screens. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from foliot.cli.plots import label_of, label_step, number
from foliot.cli.words import counted
from foliot.domain.instant import to_datetime
from foliot.operate.load import herd_words, per_words
from foliot.timing.herds import Herds
from foliot.timing.load import Load

_WIDE, _LEFT, _RIGHT = 1000, 64, 20
_PLOT = _WIDE - _LEFT - _RIGHT
_TOP, _HIGH = 92, 240
_BUSY_HIGH = 80
_LINE = 22
_LABELS = 12
_MOST_NAMED = 5
_LETTERS = "ABCDE"

_STYLE = """
text { font: 13px system-ui, sans-serif; }
.title { font-size: 17px; font-weight: 600; }
.letter { font-weight: 700; }
.usual { stroke-dasharray: 4 4; }
.paper { fill: #ffffff; }
.ink { fill: #1d2733; }
.faint { fill: #66717f; }
.grid { stroke: #e3e7ec; }
.base, .usual { stroke: #8a94a1; }
.bar { fill: #2f7fc1; }
.busy { fill: #2e8b57; }
.herd, .letter { fill: #d1242f; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #12171e; }
  .ink { fill: #e6ebf1; }
  .faint { fill: #93a0ae; }
  .grid { stroke: #29323d; }
  .base, .usual { stroke: #6b7785; }
  .bar { fill: #58a6e8; }
  .busy { fill: #56c288; }
  .herd, .letter { fill: #ff6b6b; }
}
"""


def drawn(load: Load, herds: Herds) -> str:
    """The whole picture."""
    parts = [*_heading(load), *_starts(load, herds)]
    bottom = _TOP + _HIGH
    if load.busy is not None:
        parts += _panel(load, load.busy, bottom + 60, _BUSY_HIGH, "busy", "busy worker slots, on average")
        bottom += 60 + _BUSY_HIGH
    parts += _times(load, bottom)
    bottom += 34
    parts += _named(herds, bottom + _LINE)
    bottom += _LINE * min(len(herds.found), _MOST_NAMED) + _LINE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {bottom}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{_WIDE}" height="{bottom}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _heading(load: Load) -> Iterator[str]:
    begin, end = (f"{to_datetime(at):%a %Y-%m-%d %H:%M}" for at in (load.start, load.end))
    per, most = per_words(load.width), load.starts[load.fullest]
    yield f'<text class="title ink" x="{_LEFT}" y="32">Starts per {per}, {begin} to {end} UTC</text>'
    summary = (
        f"{counted(load.schedules, 'schedule')}, {counted(sum(load.starts), 'start')}; "
        f"{number(load.expected)} per {per} on average, {most:,} at most"
    )
    yield f'<text class="faint" x="{_LEFT}" y="54">{summary}</text>'


def _starts(load: Load, herds: Herds) -> Iterator[str]:
    high = set(herds.above) | {where for herd in herds.found if (where := load.number(herd.at)) is not None}
    yield from _panel(load, load.starts, _TOP, _HIGH, "bar", "", high)
    top = max(load.starts) or 1
    usual = _TOP + _HIGH * (1 - load.expected / top)
    yield f'<line class="usual" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{usual:.1f}" y2="{usual:.1f}"/>'
    free = 0.0
    places = [
        (herd_at, letter)
        for letter, herd in zip(_LETTERS, herds.found, strict=False)
        for herd_at in (herd.at, *herd.again)
    ]
    for at, letter in sorted(places):
        where = load.number(at)
        x = _LEFT + _PLOT * ((where or 0) + 0.5) / len(load.starts)
        if where is not None and x >= free:
            y = _TOP + _HIGH * (1 - load.starts[where] / top) - 6
            yield f'<text class="letter" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{letter}</text>'
            free = x + 12


def _panel(
    load: Load,
    values: Sequence[float],
    top: int,
    high: int,
    kind: str,
    title: str,
    marked: set[int] | frozenset[int] = frozenset(),
) -> Iterator[str]:
    """Bars on a grid. Equal neighbours are one bar, and what stands out is wide enough to be seen."""
    most = max(values) or 1
    if title:
        yield f'<text class="faint" x="{_LEFT}" y="{top - 12}">{title}</text>'
    for share in (0, 0.5, 1):
        y = top + high * (1 - share)
        kind_of_line = "grid" if share else "base"
        yield f'<line class="{kind_of_line}" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = number(most * share) if share else "0"
        yield f'<text class="faint" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<path class="{kind}" d="{_path(values, most, top, high)}"/>'
    wide = max(_PLOT / len(values), 2.5)
    for where in sorted(marked):
        tall = high * values[where] / most
        x = _LEFT + _PLOT * (where + 0.5) / len(values) - wide / 2
        at = to_datetime(load.at(where))
        yield (
            f'<rect class="herd" x="{x:.1f}" y="{top + high - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}">'
            f"<title>{at:%a %H:%M} UTC: {number(values[where])}</title></rect>"
        )


def _path(values: Sequence[float], most: float, top: int, high: int) -> str:
    """Steps along the top of the bars; what is not nothing is at least one point high."""
    step = _PLOT / len(values)
    steps, before = [f"M{_LEFT} {top + high}"], None
    for place, value in enumerate(values):
        if value != before:
            y = top + high - max(high * value / most, 1 if value > 0 else 0)
            steps.append(f"H{_LEFT + place * step:.1f}V{y:.1f}")
            before = value
    return "".join([*steps, f"H{_WIDE - _RIGHT}V{top + high}Z"])


def _times(load: Load, y: int) -> Iterator[str]:
    span = load.end - load.start
    step = label_step(span, _LABELS)
    for at in range(-(-load.start // step) * step, load.end + 1, step):
        x = _LEFT + _PLOT * (at - load.start) / (len(load.starts) * load.width)
        yield f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>'
        yield f'<text class="faint" x="{x:.1f}" y="{y + 20}" text-anchor="middle">{label_of(at, step)}</text>'


def _named(herds: Herds, y: int) -> Iterator[str]:
    for place, (letter, herd) in enumerate(zip(_LETTERS, herds.found, strict=False)):
        told = escape(herd_words(herd))
        shown = f'<tspan class="letter">{letter}</tspan>  {told}'
        yield f'<text class="ink" x="{_LEFT}" y="{y + place * _LINE}">{shown}</text>'
