"""Reads the numbers of a page. Each stands in an element whose attribute `data-n` names a field of the JSON API; the
nearest `data-of` names the resource. A digit that stands elsewhere, and is no part of a name, has no known meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from tests.web.clerks import parsed

Element = ElementTree.Element
_NAMES = ("pre", "code", "option", "textarea", "head", "script", "style")
"""Elements of stored text, and of choices."""


class Shown(NamedTuple):
    of: str
    field: str
    text: str
    instant: str = ""
    """What a `time` element says to programs."""


class Page:
    def __init__(self, text: str) -> None:
        self.root = parsed(text)
        self.numbers: list[Shown] = []
        self.drawings: list[tuple[str, str, Element]] = []
        """Resource, kind and element of each drawing."""
        self.rows: list[str] = []
        """The resources of table rows, in order."""
        self.unknown: list[str] = []
        """Digits without a meaning, with what stands around them."""
        self._read(self.root, "")
        self.links = [element.get("href", "") for element in self.root.iter("a")]

    def _read(self, element: Element, of: str) -> None:
        of = element.get("data-of", of)
        classes = element.get("class", "").split()
        if element.tag == "tr" and "data-of" in element.keys() and "child" not in classes:  # noqa: SIM118
            self.rows.append(of)
        if element.tag in _NAMES or "hint" in classes:
            return
        field = element.get("data-n")
        if element.tag == "svg":
            if field is not None:
                self.drawings.append((of, field, element))
            return
        if element.tag == "progress":
            self.numbers.append(Shown(of, field or "", f"{element.get('value')} of {element.get('max')}"))
            return
        if field is not None:
            self.numbers.append(
                Shown(of, field, " ".join("".join(element.itertext()).split()), element.get("datetime", ""))
            )
            return
        if "id" in classes:
            for child in element.iter():
                if child is not element and child.get("data-n") is not None:
                    self._read(child, of)
            return
        texts = [element.text, element.get("title"), element.get("aria-label") if element.tag != "input" else None]
        texts += [child.tail for child in element]
        self.unknown += [f"<{element.tag}> {text.strip()}" for text in texts if text and re.search("[0-9]", text)]
        for child in element:
            self._read(child, of)


def titles(element: Element) -> Iterator[str]:
    for one in element.iter("title"):
        yield " ".join((one.text or "").split())
