"""What a reader had seen: which transactions were done, and which were under way.

Transactions of a server end in any order. "Everything after this number" would miss whoever drew a number early and
committed late; "everything that this snapshot did not show" misses nobody, and tells nothing twice.
"""

from __future__ import annotations

from typing import NamedTuple


class Snapshot(NamedTuple):
    xmax: int
    """From here on nothing had begun."""
    under_way: tuple[int, ...]
    """Below it, these had not ended."""
    text: str
    life: str = ""
    """The server's life in which these numbers were given out; see the table of that name."""

    @property
    def cursor(self) -> int:
        """The same as one number, which is all that a cursor is to the rooms."""
        return int.from_bytes(f"{self.text}:{self.life}".encode())

    @property
    def values(self) -> dict[str, object]:
        return {"xmax": str(self.xmax), "under_way": [str(one) for one in self.under_way]}


def read(text: str) -> Snapshot:
    """From the server's own form, `xmin:xmax:one,another`, and its life."""
    own, _, life = text.rpartition(":")
    _, xmax, under_way = own.split(":")
    return Snapshot(int(xmax), tuple(int(one) for one in under_way.split(",") if one), own, life)


BEFORE_ALL = read("3:3::")
"""No transaction is older."""


def at(cursor: int) -> Snapshot:
    return read(cursor.to_bytes((cursor.bit_length() + 7) // 8).decode()) if cursor else BEFORE_ALL


class Ages:
    """Tells which transactions may have begun long ago, from the snapshots that were seen since."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._seen: list[tuple[int, int]] = []
        """Times and their xmax, the oldest first, none older than `length`."""

    def note(self, now: int, snapshot: Snapshot) -> None:
        while self._seen and not now - self._length <= self._seen[0][0] <= now:
            del self._seen[0]  # also when the clock was set back
        if not self._seen or now - self._seen[-1][0] >= self._length // 16:
            self._seen.append((now, snapshot.xmax))

    def old(self, snapshot: Snapshot) -> set[int]:
        """All that are older than `length`, and perhaps some that are not: without a memory, all of them."""
        known = self._seen[0][1] if self._seen else snapshot.xmax
        return {one for one in snapshot.under_way if one < known}
