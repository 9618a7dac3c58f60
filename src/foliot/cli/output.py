"""How things are printed: tables and colours on a terminal, plain lines in a pipe, JSON when asked, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foliot.cli.words import one_line

_ENDLESS = 100_000
"""The width of what is not a terminal: nothing is wrapped or cut there."""

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
    """One line on stderr."""
    print(f"foliot: {one_line(message, 2_000)}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` 0 is always shown; where the terminal is narrow the highest ranks go first."""

    title: str
    rank: int = 0
    right: bool = False
    shrinks: bool = False
    """May be cut with an ellipsis, when leaving out columns did not help."""


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    """Rows of plain text, coloured by what they say. `nothing` is told when there are none."""
    screen = console()
    if not rows:
        screen.print(nothing)
        return
    shown = _fitting(columns, rows, screen.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index in shown:
        column = columns[index]
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column.shrinks else _width(columns, rows, index),
        )
    for row in rows:
        table.add_row(*(Text(one_line(row[index]), style=STYLES.get(row[index], "")) for index in shown))
    _print_trimmed(screen, table)


def print_facts(facts: Mapping[str, str]) -> None:
    """`label  what is known`, one per line; long text goes on below itself."""
    screen = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, fact in facts.items():
        table.add_row(label, Text(fact, style=STYLES.get(fact, "")))
    _print_trimmed(screen, table)


def heading(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))


def say(text: str, style: str = "") -> None:
    console().print(Text(text, style=style), soft_wrap=True)


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    shown = list(range(len(columns)))
    while sum(_width(columns, rows, index) + 2 for index in shown) - 2 > width:
        least = max(shown, key=lambda index: columns[index].rank)
        if columns[least].rank == 0:
            break
        shown.remove(least)
    return shown


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], index: int) -> int:
    # A column that shrinks asks for little: it takes what is left.
    most = 16 if columns[index].shrinks else _ENDLESS
    return max(len(columns[index].title), min(most, max(len(one_line(row[index])) for row in rows)))


def _print_trimmed(screen: Console, table: Table) -> None:
    """Without the blanks that rich puts at the end of lines: they spoil pasting and diffs."""
    with screen.capture() as captured:
        screen.print(table)
    for line in captured.get().splitlines():
        screen.file.write(line.rstrip() + "\n")
