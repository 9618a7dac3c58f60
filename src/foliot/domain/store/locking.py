"""Values that are stored locked, and their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.locking import Place, Relocked, Stored
from foliot.domain.store.values import JobCard


class LockStore(Protocol):
    """What is stored locked. All other verbs speak of it unlocked where this process has the key, and else as it is."""

    async def introduce(self, cards: Sequence[JobCard]) -> None:
        """Enters what is known of jobs, as `register` does, before anything of theirs is stored that nobody may see:
        who looks at a run goes by its job's card."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys that this process has: the first one locks. None: nothing is locked here."""

    async def note_rotation(self, *, actor: str, note: str) -> None:
        """Writes into the audit log that somebody begins to lock everything anew, and why."""

    async def relock(self, place: Place, after: int | str, limit: int, *, dry_run: bool = False) -> Relocked:
        """Of the next `limit` rows behind a position, locks with the first key whatever is not; or only counts. A row
        that somebody is at, or changed meanwhile, is passed over. InvalidInput when there are no keys here."""

    async def stored(self, place: Place, after: int | str, limit: int) -> list[Stored]:
        """The lockable values of the next rows behind a position, as they are stored."""

    async def store_anew(self, place: Place, changes: Sequence[tuple[Stored, Stored]]) -> int:
        """Puts values in the place of those that were looked at, where these are still there. Returns of how many rows
        that was so."""
