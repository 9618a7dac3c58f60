"""Lockable values, as they are stored, row by row: for whoever changes the keys."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.locking import Place, Relocked, Stored
from foliot.domain.store import JobCard
from foliot.errors import InvalidInput
from foliot.store.verbs import watching
from foliot.store.verbs.acts import ActVerbs
from foliot.store.verbs.transaction import Transaction

_LOOKED_AT = {
    Place.RUNS: "stored_runs",
    Place.SCHEDULES: "stored_schedules",
    Place.BACKFILLS: "stored_backfills",
    Place.EFFECTS: "stored_effects",
    Place.HISTORY: "stored_history",
}
_CHANGED = {
    Place.RUNS: "change_stored_run",
    Place.SCHEDULES: "change_stored_schedule",
    Place.BACKFILLS: "change_stored_backfill",
    Place.EFFECTS: "change_stored_effect",
    Place.HISTORY: "change_stored_history",
}


async def stored(tx: Transaction, place: Place, after: int | str, limit: int) -> list[Stored]:
    return [Stored(*row) for row in await tx.all(_LOOKED_AT[place], after=after, limit=limit)]


async def store_anew(tx: Transaction, place: Place, changes: Sequence[tuple[Stored, Stored]]) -> int:
    """Each names what it expects: zero rows means that somebody changed, moved or ended it meanwhile."""
    changed = 0
    for before, now in changes:
        values = {"payload": now.payload, "checkpoint": now.checkpoint, "result": now.result}
        expected = {"was_payload": before.payload, "was_checkpoint": before.checkpoint, "was_result": before.result}
        wanted = {name: value for name, value in (values | expected).items() if _has(place, name)}
        changed += await tx.run(_CHANGED[place], position=before.position, **wanted)
    return changed


def _has(place: Place, name: str) -> bool:
    """Which of them its rows have."""
    what = name.removeprefix("was_")
    if place is Place.EFFECTS:
        return what == "result"
    if place in (Place.SCHEDULES, Place.BACKFILLS):
        return what == "payload"
    return what != "checkpoint" or place is Place.RUNS


class LockVerbs(ActVerbs):
    """The same as methods."""

    async def introduce(self, cards: Sequence[JobCard]) -> None:
        await self.write(lambda tx: watching.put_cards(tx, cards))

    @property
    def keys(self) -> tuple[str, ...]:
        return ()

    async def relock(self, place: Place, after: int | str, limit: int, *, dry_run: bool = False) -> Relocked:
        raise InvalidInput(
            "this process has no encryption keys; set FOLIOT_ENCRYPTION_KEYS (create one with `foliot keys new`)"
        )

    async def stored(self, place: Place, after: int | str, limit: int) -> list[Stored]:
        return await self.read(lambda tx: stored(tx, place, after, limit))

    async def note_rotation(self, *, actor: str, note: str) -> None:
        await self.write(lambda tx: tx.audit(actor, "rotate_keys", "keys", note))

    async def store_anew(self, place: Place, changes: Sequence[tuple[Stored, Stored]]) -> int:
        if not changes:
            return 0
        return await self.write(lambda tx: store_anew(tx, place, changes))
