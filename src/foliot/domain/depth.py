"""How deep JSON is nested. Whoever looks through a value goes down with it: what is deeper than this is refused where
it comes in, so that nobody has to give up half-way. Pure."""

from __future__ import annotations

import re

MOST_DEPTH = 100

_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def is_too_deep(data: bytes) -> bool:
    """Of JSON that was just encoded. Most is shorter than so many pairs of brackets, or has no more brackets than it
    may have levels, and is not looked through."""
    if len(data) <= 2 * MOST_DEPTH or data.count(b"[") + data.count(b"{") <= MOST_DEPTH:
        return False
    depth = 0
    for piece in _PIECE.finditer(data):
        letter = data[piece.start()]
        if letter in b"[{":
            depth += 1
            if depth > MOST_DEPTH:
                return True
        elif letter in b"]}":
            depth -= 1
    return False
