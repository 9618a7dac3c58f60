"""Slots: limits how much is open at the same time, in all and for each owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from foliot.web.problems import Problem

_LATER = {"retry-after": "10"}


class Slots:
    def __init__(self, total: int, each: int, *, of: str, owner: str) -> None:
        """`of` names what is counted, `owner` names an owner: both for the text of a refusal."""
        self._total = total
        self._each = each
        self._of = of
        self._owner = owner
        self._taken: Counter[Hashable] = Counter()

    @property
    def taken(self) -> int:
        return self._taken.total()

    @contextmanager
    def slot(self, owner: Hashable) -> Iterator[None]:
        """Takes a slot until the block ends. Raises Problem, and takes none, when there is none left."""
        if self._taken[owner] >= self._each:
            detail = f"{self._owner} has {self._each} {self._of} open; close one of them, or retry later"
            raise Problem("too-many", detail, headers=_LATER)
        if self.taken >= self._total:
            raise Problem("busy", f"{self._total} {self._of} are open; retry later", headers=_LATER)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
