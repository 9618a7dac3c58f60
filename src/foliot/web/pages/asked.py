"""What a page was asked for: its filters live in its address, so that a view can be sent to somebody else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from foliot.errors import InvalidInput

CURSOR = "cursor"


def number_in(text: str) -> int:
    """A whole number that a store can hold, as an address or a form says it."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput(f"{text!r:.40} is not a number; give digits")
    return int(text)


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    items: Sequence[tuple[str, str]]

    def get(self, name: str) -> str:
        return next((value.strip() for key, value in self.items if key == name), "")

    def all(self, name: str) -> list[str]:
        return [part for key, value in self.items if key == name for part in value.split(",") if part]

    def has(self, name: str) -> bool:
        return self.get(name) in ("true", "yes", "1", "on")

    def filled(self, *names: str, many: Iterable[str] = ()) -> dict[str, str | list[str]]:
        """What the form shows again."""
        return {name: self.get(name) for name in names} | {name: self.all(name) for name in many}

    @property
    def any(self) -> bool:
        return any(value for key, value in self.items if key != CURSOR)

    @property
    def cursor(self) -> str | None:
        return self.get(CURSOR) or None

    def next(self, cursor: str | None) -> str | None:
        """The address of the next page."""
        return None if cursor is None else self._address([*self._kept(), (CURSOR, cursor)])

    @property
    def first(self) -> str | None:
        """The address of the first page, for whoever is on a later one."""
        return None if self.cursor is None else self._address(self._kept())

    @property
    def query(self) -> str:
        return urlencode(self._kept())

    def _kept(self) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.items if key != CURSOR and value]

    def _address(self, items: Sequence[tuple[str, str]]) -> str:
        return f"{self.path}?{urlencode(items)}" if items else self.path
