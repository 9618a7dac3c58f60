"""The verb for keys that change: everything that is stored is locked anew, page by page, while work goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from foliot.domain.locking import Place
from foliot.domain.store import Store
from foliot.errors import InvalidInput
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.shapes import Shape

PAGE = 200
"""Rows of one transaction: those who fire and finish wait for no more than that."""
_ROUNDS = 3
"""How often a place is gone through for rows that somebody had its hands on."""


class Rotated(NamedTuple):
    """What became of one place."""

    place: Place
    looked_at: int
    relocked: int
    """With the first key: or would be, where nothing was done."""
    left: int
    """Rows that somebody was at each time: go through it once more."""
    shut: int
    """Rows whose key is not here, or that are damaged."""


class KeyVerbs(Acting):
    """Keys, and what they lock."""

    async def keys_async(self) -> tuple[str, ...]:
        """The names of the keys that are here: the first one locks."""
        return (await self._opened()).keys

    async def rotate_async(
        self,
        *,
        reason: str,
        actor: str,
        history: bool = False,
        dry_run: bool = False,
        on_page: Callable[[Place, int], None] = lambda place, looked_at: None,
    ) -> list[Rotated]:
        """Locks with the first key whatever is stored otherwise: under an older key, or not at all. Live runs,
        schedules, backfills and the ledger; ended runs too with `history`. Done twice, it does nothing."""
        store, who, note = await self._opened(), acting(actor), stated(reason)
        if not store.keys:
            raise InvalidInput(
                "this process has no encryption keys; set FOLIOT_ENCRYPTION_KEYS (create one with `foliot keys new`)"
            )
        if not dry_run:
            await store.note_rotation(actor=who, note=note)
        places = [place for place in Place if history or place is not Place.HISTORY]
        return [await _rotated(store, place, dry_run, on_page) for place in places]


async def _rotated(store: Store, place: Place, dry_run: bool, on_page: Callable[[Place, int], None]) -> Rotated:
    relocked = 0
    for _ in range(_ROUNDS):
        looked_at = left = shut = 0
        position: int | str | None = "" if place is Place.SCHEDULES else 0
        while position is not None:
            page = await store.relock(place, position, PAGE, dry_run=dry_run)
            position = page.position
            looked_at, shut = looked_at + page.looked_at, shut + page.shut
            relocked, left = relocked + page.relocked, left + page.passed_over
            on_page(place, looked_at)
        if not left:
            break
    return Rotated(place, looked_at, relocked, left, shut)


def rotated_shape(told: Rotated) -> Shape:
    return told._asdict() | {"place": str(told.place)}
