"""Numbers in time, as blocks on a terminal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, to_datetime

_BLOCKS = " ▁▂▃▄▅▆▇█"
_STEPS: tuple[Duration, ...] = (
    *(seconds * SECOND for seconds in (5, 10, 30)),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 4, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)
"""How far labels may be apart."""
_BETWEEN = 3
"""Blanks between two labels, at least."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Buckets that share the columns of a terminal: each column has equally many, and shows its fullest."""

    start: Instant
    width: Duration
    """Of one column."""
    values: tuple[float, ...]
    high: frozenset[int]
    """The columns that have a bucket which stands out."""
    each: int
    """Buckets in a column."""

    def place(self, moment: Instant) -> int:
        return (moment - self.start) // self.width


def columns(values: Sequence[float], start: Instant, width: Duration, most: int, high: Collection[int] = ()) -> Columns:
    """As many columns as there is room for. Few buckets are drawn wider, as far as they go."""
    each = -(-len(values) // most)
    wide = max(1, most // len(values)) if each == 1 else 1
    wide = next(wide for wide in range(wide, 0, -1) if width % wide == 0)
    shown = [max(values[first : first + each]) for first in range(0, len(values), each)]
    marked = frozenset(number // each * wide + more for number in high for more in range(wide))
    return Columns(start, each * width // wide, tuple(one for one in shown for _ in range(wide)), marked, each)


def bars(shown: Columns, rows: int, indent: int, style: str, high_style: str = "bold red") -> list[Text]:
    """Rows of blocks, the topmost first, with the scale on the left. Whatever is not nothing is seen."""
    top = max(shown.values) or 1
    eighths = [max(round(value / top * rows * 8), 1 if value > 0 else 0) for value in shown.values]
    lines = []
    for row in range(rows - 1, -1, -1):
        scale = number(top) if row == rows - 1 else number(top / 2) if rows > 3 and row == rows // 2 - 1 else ""
        line = Text(no_wrap=True).append(f"{scale:>{indent - 1}} ", style="dim")
        blocks = [_BLOCKS[min(max(tall - row * 8, 0), 8)] for tall in eighths]
        # Neighbours of one colour together: a terminal far away is told each change of colour.
        for is_high, run in groupby(range(len(blocks)), shown.high.__contains__):
            line.append("".join(blocks[place] for place in run), style=high_style if is_high else style)
        line.rstrip()
        lines.append(line)
    return lines


def scale_size(top: float) -> int:
    """The columns that the scale takes, on the left of the bars."""
    return max(len(number(top)), len(number(top / 2))) + 1


def marks(shown: Columns, at: Mapping[Instant, str], indent: int) -> Text:
    """A line of letters that stand over the columns of these instants; of several in one column, the first."""
    letters = [" "] * len(shown.values)
    for when, letter in at.items():
        place = shown.place(when)
        if 0 <= place < len(letters) and letters[place] == " ":
            letters[place] = letter
    return Text(" " * indent + "".join(letters).rstrip(), style="bold red", no_wrap=True)


def axis(shown: Columns, indent: int) -> tuple[Text, Text]:
    """A line with ticks, and the times below them, in UTC."""
    size = len(shown.values)
    step = next((step for step in _STEPS if step // shown.width >= _label_size(step) + _BETWEEN), _STEPS[-1])
    line, labels = ["─"] * size, [" "] * (size + _label_size(step))
    free = 0
    first = -(-shown.start // step) * step
    for moment in range(first, shown.start + size * shown.width, step):
        place = shown.place(moment)
        line[place] = "┬"
        label = label_of(moment, step)
        if place >= free and place + len(label) <= size + 2:
            labels[place : place + len(label)] = label
            free = place + len(label) + 1
    blank = " " * indent
    return (
        Text(blank + "".join(line), style="dim", no_wrap=True),
        Text(blank + "".join(labels).rstrip(), no_wrap=True),
    )


def label_of(moment: Instant, step: Duration) -> str:
    """`02:00`; the date where a day begins, and where labels are days."""
    when = to_datetime(moment)
    if step >= DAY or (moment % DAY == 0 and step >= HOUR):
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M:%S}" if step < MINUTE else f"{when:%H:%M}"


def label_step(span: Duration, most: int) -> Duration:
    """How far labels are apart, when there is room for `most` of them."""
    return next((step for step in _STEPS if span // step <= most), _STEPS[-1])


def _label_size(step: Duration) -> int:
    return 8 if step < MINUTE else 6


def number(value: float) -> str:
    """`1,204`, `12`, `0.4`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
