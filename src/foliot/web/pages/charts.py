"""Drawings, as SVG that needs no script and no style of its own. Pure: numbers in, markup out.

Colours are classes of the stylesheet, so that a drawing follows the theme. What a colour says a shape says, too, and a
title says it in words: nobody has to see colours, and nobody has to guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

Number = int | float


SHAPES: dict[str, tuple[str, str]] = {
    # Each drawn in a field of 12 by 12, and the meaning whose colour it has.
    "kept": ('<rect class="fill-ok" x="3" y="1" width="6" height="10" rx="2"/>', "ok"),
    "late": ('<path class="fill-late" d="M6 1 L11 11 L1 11 Z"/>', "late"),
    "retried": (
        '<rect class="hollow line-ok" x="2.5" y="1.5" width="7" height="9" rx="2"/>'
        '<circle class="fill-ok" cx="6" cy="6" r="1.8"/>',
        "ok",
    ),
    "partial": (
        '<circle class="hollow line-late" cx="6" cy="6" r="4.2"/>'
        '<path class="fill-late" d="M6 1.8 a4.2 4.2 0 0 1 0 8.4 Z"/>',
        "late",
    ),
    "skipped": ('<rect class="fill-idle" x="3" y="5" width="6" height="2" rx="1"/>', "idle"),
    "missed": ('<circle class="hollow line-bad" cx="6" cy="6" r="4.2" stroke-dasharray="2.2 1.6"/>', "bad"),
    "failed": ('<path class="stroke line-bad" d="M2.5 2.5 L9.5 9.5 M9.5 2.5 L2.5 9.5"/>', "bad"),
    "maybe": (
        '<path class="stroke line-maybe" d="M3.6 4.2 a2.4 2.4 0 1 1 3.4 2.2 c-.7 .4 -1 .8 -1 1.6"/>'
        '<circle class="fill-maybe" cx="6" cy="10.4" r="1"/>',
        "maybe",
    ),
    "running": ('<path class="fill-busy" d="M3 1.5 L10.5 6 L3 10.5 Z"/>', "busy"),
    "waiting": ('<circle class="hollow line-idle" cx="6" cy="6" r="4"/>', "idle"),
    "held": ('<path class="fill-late" d="M2.5 1.5 h2.5 v9 h-2.5 Z M7 1.5 h2.5 v9 h-2.5 Z"/>', "late"),
    "person": (
        '<circle class="fill-maybe" cx="6" cy="3.4" r="2.4"/>'
        '<path class="fill-maybe" d="M1.5 11 a4.5 4.5 0 0 1 9 0 Z"/>',
        "maybe",
    ),
    "dot": ('<circle class="fill-idle" cx="6" cy="6" r="2.6"/>', "idle"),
    "effect": ('<path class="fill-busy" d="M6 1 L11 6 L6 11 L1 6 Z"/>', "busy"),
}

SHAPES["settled"] = SHAPES["person"]

STATES = {
    "scheduled": "waiting",
    "held": "held",
    "ready": "waiting",
    "running": "running",
    "claimed": "running",
    "retrying": "retried",
    "verifying": "running",
    "succeeded": "kept",
    "verified": "kept",
    "reconciled": "person",
    "cancelled": "skipped",
    "skipped": "skipped",
    "unverified": "failed",
    "dead": "failed",
    "ambiguous": "maybe",
    "settled": "held",
}
"""The shape of each state of a run."""


def shape_of(state: str) -> str:
    return STATES.get(state, "dot")


def meaning_of(kind: str) -> str:
    """The colour's word, for a class: `is-ok`."""
    return SHAPES.get(kind, SHAPES["dot"])[1]


def icon(kind: str) -> Markup:
    body = SHAPES.get(kind, SHAPES["dot"])[0]
    return Markup(f'<svg viewBox="0 0 12 12" aria-hidden="true" focusable="false">{body}</svg>')


_PATHS: dict[str, tuple[str, tuple[int, str]]] = {
    # Thirty strips of thirty marks stand on a page: of the shapes that are most of them, those in a strip are one path.
    "kept": ("fill-ok", (3, "1h6v10h-6z")),
    "late": ("fill-late", (6, "1l5 10h-10z")),
    "skipped": ("fill-idle", (3, "5h6v2h-6z")),
    "failed": ("stroke line-bad", (2, "2l8 8m0-8l-8 8")),
}


def mark_shapes() -> Markup:
    """All shapes, once for a page with strips: a strip only says where each of them stands."""
    shapes = "".join(f'<g id="mark-{kind}">{body}</g>' for kind, (body, _) in SHAPES.items())
    return Markup(f'<svg class="unseen" aria-hidden="true"><defs>{shapes}</defs></svg>')


def strip(kinds: Sequence[str], length: int = 30) -> Markup:
    """The last ticks of a schedule, the newest at the right end: each a mark of its own shape."""
    shown = [kind if kind in SHAPES else "dot" for kind in kinds][-length:]
    empty = length - len(shown)
    parts = [f'<svg class="draw strip" data-n="strip" {_box(12 * length, 12)} role="img">']
    parts.append(f"<title>{escape(_summary(shown))}</title>")
    if empty:
        parts.append(f'<path class="rule" d="M2 6H{12 * empty - 4}"/>')
    for kind, (drawn, (begins, line)) in _PATHS.items():
        path = "".join(f"M{12 * at + begins} {line}" for at, found in enumerate(shown, start=empty) if found == kind)
        parts += [f'<path class="{drawn}" d="{path}"/>'] if path else []
    parts += [
        f'<use href="#mark-{kind}" x="{12 * at}"/>' for at, kind in enumerate(shown, start=empty) if kind not in _PATHS
    ]
    return Markup("".join(parts) + "</svg>")


def _box(width: int, height: int) -> str:
    return f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'


def _summary(kinds: Sequence[str]) -> str:
    if not kinds:
        return "no ticks yet"
    return f"the last {len(kinds)} ticks: " + ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())


def sparkline(values: Sequence[Number], limit: Number | None = None, title: str = "") -> Markup:
    """How long the last runs took, oldest first; the dashed line is the interval that they must fit into."""
    width, height = 120, 28
    if not values:
        return Markup('<span class="soft small">no successful runs yet</span>')
    top = max([*values, limit or 0, 1e-9])
    # A limit far above everything would flatten the line: then it is left out, and the title says it.
    if limit is not None and limit > 4 * max(values):
        top, limit = max([*values, 1e-9]), None
    points = _points(values, width, height, top)
    parts = [f'<svg class="draw" data-n="durations" {_box(width, height)} role="img">']
    parts.append(f"<title>{escape(title)}</title>")
    if limit is not None:
        at = _up(limit, height, top)
        parts.append(f'<line class="rule" x1="0" x2="{width}" y1="{at}" y2="{at}"/>')
    parts.append(f'<polyline class="curve" points="{points}"/>')
    last = points.rsplit(" ", 1)[-1].split(",")
    parts.append(f'<circle class="fill-busy" cx="{last[0]}" cy="{last[1]}" r="2"/></svg>')
    return Markup("".join(parts))


class Bar(NamedTuple):
    """One stretch of time in `bars`: how many of each kind."""

    title: str
    parts: tuple[tuple[str, Number], ...]
    """Meaning (`ok`, `late`, `bad`, `idle`) and how many, from the ground up."""


def bars(columns: Sequence[Bar], ticks: Sequence[tuple[int, str]], height: int = 120, title: str = "") -> Markup:
    """Columns in time. `ticks`: which columns have a time below them."""
    width, left, floor = 480, 40, height - 20
    top = max([sum(count for _, count in column.parts) for column in columns] or [0]) or 1
    step = (width - left) / max(len(columns), 1)
    parts = [
        f'<svg class="draw" data-n="bars" viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title>'
    ]
    parts += _scale(top, left, width, floor)
    for number, column in enumerate(columns):
        at, ground = left + number * step, float(floor)
        drawn = []
        for meaning, count in column.parts:
            tall = (floor - 8) * count / top
            if tall <= 0:
                continue
            ground -= tall
            size = f'width="{max(step - 1, 1):.1f}" height="{tall:.1f}"'
            drawn.append(f'<rect class="fill-{meaning}" x="{at:.1f}" y="{ground:.1f}" {size}/>')
        parts.append(f"<g>{''.join(drawn)}<title>{escape(column.title)}</title></g>")
    for number, text in ticks:
        parts.append(f'<text x="{left + number * step:.1f}" y="{height - 4}">{escape(text)}</text>')
    return Markup("".join(parts) + "</svg>")


class Dot(NamedTuple):
    """One run in `dots`."""

    at: float
    """Where in the time shown, from 0 to 1."""
    value: float
    kind: str
    title: str
    href: str


def dots(
    found: Sequence[Dot],
    top: float,
    words: Sequence[tuple[float, str]],
    edges: tuple[str, str],
    limit: float | None = None,
    title: str = "",
) -> Markup:
    """Runs in time, each at its height: `words` are heights that are named."""
    width, height, left, floor = 480, 160, 60, 134
    # A group, not a picture: each dot leads to its run, and has a name.
    parts = [
        f'<svg class="draw" data-n="dots" viewBox="0 0 {width} {height}" role="group" aria-label="{escape(title)}">'
    ]
    for value, text in words:
        at = _between(value, top, floor)
        parts.append(f'<line class="axis" x1="{left}" x2="{width}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    if limit is not None and limit <= top:
        at = _between(limit, top, floor)
        parts.append(f'<line class="rule" x1="{left}" x2="{width}" y1="{at:.1f}" y2="{at:.1f}"/>')
    for dot in found:
        x, y = left + dot.at * (width - left - 8), _between(min(dot.value, top), top, floor)
        body = SHAPES.get(dot.kind, SHAPES["dot"])[0]
        parts.append(
            f'<a href="{escape(dot.href)}" aria-label="{escape(dot.title)}">'
            f'<g transform="translate({x - 5:.1f} {y - 5:.1f}) scale(0.85)">{body}'
            f"<title>{escape(dot.title)}</title></g></a>"
        )
    parts.append(f'<text x="{left}" y="{height - 6}">{escape(edges[0])}</text>')
    parts.append(f'<text x="{width}" y="{height - 6}" text-anchor="end">{escape(edges[1])}</text></svg>')
    return Markup("".join(parts))


class Span(NamedTuple):
    """A stretch of a run's life in `timeline`."""

    row: str
    start: float
    """From 0 to 1 of the time shown."""
    end: float | None
    """None: it is not over."""
    meaning: str
    title: str


def timeline(
    spans: Sequence[Span],
    marks: Sequence[tuple[float, str, str]],
    edges: Sequence[tuple[float, str]],
    open_in: tuple[int, int] | None = None,
) -> Markup:
    """A run's life from left to right: rows of stretches, and marks that stand across all of them. `open_in`: where the
    picture begins and ends, in milliseconds since 1970; the page's script then moves its end with the clock."""
    rows = list(dict.fromkeys(span.row for span in spans))
    width, left, line = 600, 84, 24
    height = line * len(rows) + 40
    wide = width - left - 8
    moves = "" if open_in is None else f' data-from="{open_in[0]}" data-to="{open_in[1]}" data-x="{left} {wide}"'
    where = f'viewBox="0 0 {width} {height}" role="img"{moves}'
    parts = [f'<svg class="draw" data-n="timeline" {where}><title>a run in time</title>']
    for at, text, meaning in marks:
        x = left + at * wide
        where = f'data-start="{at:.6f}" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 22}"'
        parts.append(f'<line class="rule line-{meaning}" {where}/><title>{escape(text)}</title>')
    for place, row in enumerate(rows):
        y = 10 + place * line
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(row)}</text>')
        for span in spans:
            if span.row == row:
                end = 1.0 if span.end is None else span.end
                x, w = left + span.start * wide, max((end - span.start) * wide, 3)
                time = f'data-start="{span.start:.6f}" data-end="{"now" if span.end is None else f"{end:.6f}"}"'
                size = f'x="{x:.1f}" y="{y + 2}" width="{w:.1f}" height="14" rx="3"'
                parts.append(
                    f'<rect class="fill-{span.meaning}" {time} {size}><title>{escape(span.title)}</title></rect>'
                )
    for at, text in edges:
        anchor = "start" if at < 0.1 else "end" if at > 0.9 else "middle"
        clock = " data-clock" if at == 1 else ""
        where = f'x="{left + at * wide:.1f}" y="{height - 6}" text-anchor="{anchor}"'
        parts.append(f"<text{clock} {where}>{escape(text)}</text>")
    return Markup("".join(parts) + "</svg>")


def heat(rows: Sequence[tuple[str, str, Sequence[int]]], columns: Iterable[tuple[int, str]]) -> Markup:
    """A field of cells, each with a heat from 0 to 5: rows have a name and a title; `columns` names some of them.

    There are as many cells as a day has minutes: those of one heat are one path, and a row tells about all of its own.
    """
    longest = max((len(cells) for _, _, cells in rows), default=0)
    left, wide, high = 64, 10, 14
    width, height = left + wide * longest, len(rows) * high + 20
    paths = [""] * 6
    for place, (_, _, cells) in enumerate(rows):
        for number, heated in enumerate(cells):
            paths[heated] += f"M{left + number * wide} {place * high}h{wide - 1}v{high - 2}h-{wide - 1}z"
    parts = [
        f'<svg class="draw heat" data-n="heat" viewBox="0 0 {width} {height}" role="img"><title>load in time</title>'
    ]
    parts += [f'<path class="heat-{heated}" d="{path}"/>' for heated, path in enumerate(paths) if path]
    for place, (name, title, _) in enumerate(rows):
        parts.append(f'<text x="{left - 8}" y="{place * high + 9}" text-anchor="end">{escape(name)}</text>')
        size = f'y="{place * high}" width="{width}" height="{high}"'
        parts.append(f'<rect class="clear" {size}><title>{escape(title)}</title></rect>')
    for number, text in columns:
        parts.append(f'<text x="{left + number * wide}" y="{height - 6}">{escape(text)}</text>')
    return Markup("".join(parts) + "</svg>")


# How numbers become places


def _points(values: Sequence[Number], width: int, height: int, top: Number) -> str:
    step = (width - 4) / max(len(values) - 1, 1)
    return " ".join(f"{2 + number * step:.1f},{_up(value, height, top)}" for number, value in enumerate(values))


def _up(value: Number, height: int, top: Number) -> float:
    return round(height - 3 - (height - 6) * value / top, 1)


def _between(value: float, top: float, floor: int) -> float:
    return floor - (floor - 12) * value / (top or 1)


def _scale(top: Number, left: int, width: int, floor: int) -> list[str]:
    """The ground, and the top with its number."""
    return [
        f'<line class="axis" x1="{left}" x2="{width}" y1="{floor}" y2="{floor}"/>',
        f'<line class="axis" x1="{left}" x2="{width}" y1="8" y2="8"/>',
        f'<text x="{left - 6}" y="12" text-anchor="end">{top:,.0f}</text>',
        f'<text x="{left - 6}" y="{floor + 4}" text-anchor="end">0</text>',
    ]
