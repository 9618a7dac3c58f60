"""Pieces of a text that remember where they stand, so that a refusal can point at the character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from foliot.errors import InvalidRule

_WORD = re.compile(r"[^ \t]+")


class Piece(NamedTuple):
    """A stretch of a longer text."""

    whole: str
    start: int
    text: str

    def beyond(self, offset: int) -> Piece:
        """What is left of this piece after `offset` characters."""
        return Piece(self.whole, self.start + offset, self.text[offset:])

    def group(self, match: re.Match[str], name: str) -> Piece:
        """The part of this piece that a named group matched."""
        return Piece(self.whole, self.start + match.start(name), match[name])

    def items(self) -> Iterator[Piece]:
        """The parts between commas."""
        column = self.start
        for text in self.text.split(","):
            yield Piece(self.whole, column, text)
            column += len(text) + 1

    def refusal(self, problem: str, advice: str) -> InvalidRule:
        """An error that shows the text with a caret under this piece."""
        left = max(0, self.start - 60)
        excerpt = self.whole[left : self.start + 60]
        # A tab or a stray control character must not push the caret away from its target.
        said, shown = (
            "".join(character if character.isprintable() else " " for character in text) for text in (problem, excerpt)
        )
        return InvalidRule(f"{said}\n    {shown}\n    {' ' * (self.start - left)}^ {advice}".rstrip())


@contextmanager
def pointing(piece: Piece) -> Iterator[None]:
    """Makes a refusal of this piece point at it, unless it points at a character already."""
    try:
        yield
    except InvalidRule as refusal:
        problem, _, advice = str(refusal).partition("; ")
        if "\n" in problem + advice:
            raise
        raise piece.refusal(problem, advice) from None


def words(text: str) -> list[Piece]:
    """The parts between blanks."""
    return [Piece(text, match.start(), match[0]) for match in _WORD.finditer(text)]
