"""How things are printed: tables on a terminal, plain lines in a pipe, JSON when asked, errors in one line."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from foliot.cli.words import one_line
from foliot.domain.redaction import redacted_text

_ENDLESS = 100_000
"""Width of an output that is not a terminal: nothing is wrapped or cut there."""

STYLES = {
    "succeeded": "green",
    "verified": "green",
    "reconciled": "green",
    "running": "cyan",
    "verifying": "cyan",
    "retrying": "yellow",
    "held": "yellow",
    "skipped": "yellow",
    "cancelled": "magenta",
    "unverified": "red",
    "dead": "bold red",
    "ambiguous": "bold red",
    "settled": "bold yellow",
    "missing": "bold red",
    "failed": "bold red",
    "partial": "red",
    "stuck": "bold yellow",
    "stalled": "bold yellow",
    "late": "yellow",
    "poison": "bold red",
    "complete": "green",
    "merged": "green",
    "paused": "yellow",
    "set aside": "bold red",
    "ok": "green",
    "warning": "yellow",
    "wrong": "bold red",
}


def console() -> Console:
    """Made when it is needed: tests and pipes replace the stream."""
    made = Console(highlight=False, markup=False, emoji=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_ENDLESS)


def print_json(value: Any) -> None:
    """One document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def complain(message: str) -> None:
    """One line on stderr, without secrets: an app's own errors come through here, too."""
    print(f"foliot: {one_line(redacted_text(_flat(message)), 2_000)}", file=sys.stderr, flush=True)


def _flat(message: str) -> str:
    """A message that points at a character with a caret on a line of its own says in words where that is."""
    pointed = re.fullmatch(r"(.*)\n( *)(.*)\n( *)\^+ *(.*)", message.rstrip(), re.DOTALL)
    if pointed is None:
        return message
    what, indent, given, place, hint = pointed.groups()
    return f"{what.rstrip(':')}: {given!r}, character {len(place) - len(indent) + 1}" + (f": {hint}" if hint else "")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `rank` 0 is always shown; a narrow terminal drops the highest ranks first."""

    title: str
    rank: int = 0
    right: bool = False
    coloured: bool = False
    """Its words have colours of their own: states, verdicts."""
    shrinks: bool = False
    """Takes what is left, and is cut there with an ellipsis."""
    wraps: bool = False
    """Takes what is left, and goes on below itself."""
    least: int = 12
    """Minimal width of a column that shrinks or wraps; columns with a higher rank are dropped first."""


_GAP = 2


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    """Prints rows of plain text, or `nothing` when there are none."""
    screen = console()
    if not rows:
        screen.print(nothing)
        return
    for line in table_lines(columns, rows, screen.width):
        screen.print(line, soft_wrap=True)


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, header: bool = True
) -> list[Text]:
    """The same table as lines of at most `width` characters."""
    flat = [[one_line(cell) for cell in row] for row in rows]
    shown, widths = _layout(columns, flat, width)
    title = _row(columns, [column.title for column in columns], shown, widths)[0]
    lines = [Text(title.plain, style="bold")] if header else []
    return lines + [line for row in flat for line in _row(columns, row, shown, widths)]


def print_facts(facts: Mapping[str, str]) -> None:
    """`label  what is known`, one per line; long text goes on below itself."""
    screen = console()
    indent = max(map(len, facts)) + _GAP
    for label, fact in facts.items():
        for number, part in enumerate(_wrapped(fact, screen.width - indent)):
            line = Text().append(f"{'' if number else label:<{indent}}", style="dim")
            screen.print(line.append(part, style=STYLES.get(fact, "")), soft_wrap=True)


def print_items(items: Iterable[str]) -> None:
    """`- one thing`, one per line; long text goes on below itself."""
    screen = console()
    for item in items:
        for number, part in enumerate(_wrapped(item, screen.width - 2)):
            screen.print(f"{'  ' if number else '- '}{part}", soft_wrap=True)


def print_timeline(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """`time  since the line before  what happened`, and in which style; long text goes on below itself."""
    screen = console()
    times, deltas = (max(len(row[index]) for row in rows) for index in (0, 1))
    indent = times + deltas + 2 * _GAP
    for time, delta, text, style in rows:
        for number, part in enumerate(_wrapped(one_line(text, 2_000), screen.width - indent)):
            line = Text().append(f"{'' if number else time:<{times + _GAP}}", style="dim")
            line.append(f"{'' if number else delta:>{deltas}}{' ' * _GAP}", style="dim")
            screen.print(line.append(part, style=style), soft_wrap=True)


def heading(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))


def say(text: str, style: str = "") -> None:
    console().print(Text(text, style=style), soft_wrap=True)


def say_indented(text: str, indent: int, style: str = "") -> None:
    """Prints text with each of its lines indented; long text goes on below itself."""
    screen = console()
    # A long id is not broken: it may be copied.
    lines = textwrap.wrap(text, max(screen.width - indent, 20), break_on_hyphens=False, break_long_words=False)
    for line in lines:
        screen.print(Text(" " * indent + line, style=style), soft_wrap=True)


def _layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide each is."""
    wanted = [max(len(column.title), *(len(row[index]) for row in rows), 0) for index, column in enumerate(columns)]
    least = [
        min(size, column.least) if column.shrinks or column.wraps else size
        for column, size in zip(columns, wanted, strict=True)
    ]
    shown = list(range(len(columns)))
    while sum(least[index] + _GAP for index in shown) - _GAP > width:
        last = max(shown, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    left = width - (sum(least[index] + _GAP for index in shown) - _GAP)
    widths = list(least)
    for index in shown:
        grown = min(wanted[index] - least[index], max(left, 0))
        widths[index] += grown
        left -= grown
    return shown, widths


def _row(columns: Sequence[Column], cells: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> list[Text]:
    """One row as lines of text, without blanks at their ends: those spoil pasting and diffs."""
    parts = {
        index: _wrapped(cells[index], widths[index]) if columns[index].wraps else [_cut(cells[index], widths[index])]
        for index in shown
    }
    lines = []
    for number in range(max(len(part) for part in parts.values())):
        line = Text()
        for index in shown:
            cell = parts[index][number] if number < len(parts[index]) else ""
            padded = f"{cell:>{widths[index]}}" if columns[index].right else f"{cell:<{widths[index]}}"
            line.append(padded, style=STYLES.get(cell, "") if columns[index].coloured else "")
            line.append(" " * _GAP)
        line.rstrip()
        lines.append(line)
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False) or [""]
