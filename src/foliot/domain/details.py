"""Details of runs and errors as one short line. Pure."""

from __future__ import annotations

import re

_REFUSALS = ("the check rejected the result", "the check says no")
"""How the detail of a result begins that a check rejected. Stores hold both, because releases differ."""


def headline(error: str) -> str:
    """The first line of an error, without the module of its class: people know their errors by name."""
    first = (error.strip().splitlines() or [""])[0]
    return re.sub(r"^(?:[A-Za-z_]\w*\.)+([A-Z]\w*)(?=:|$)", r"\1", first)


def brief(detail: str | None) -> str:
    """The headline of a detail, without the words of a rejected check: its reason has them already."""
    line = headline(detail or "")
    for words in _REFUSALS:
        line = line.removeprefix(words)
    return line.removeprefix(": ")
