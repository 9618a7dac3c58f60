"""Values that are stored locked: how they are told from others. Pure; the locks themselves are the store's.

A locked value is a JSON text, because whatever can hold a result can hold that:

    "foliot:locked:KEY:..."      KEY names the key; what follows is for whoever has it
    "foliot:damaged:KEY"         never stored: what a store with that key answers where the lock does not open
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

LOCKED = b'"foliot:locked:'
DAMAGED = b'"foliot:damaged:'
SHOWN_LOCKED, SHOWN_DAMAGED = b'"[encrypted]"', b'"[damaged]"'
SHOWN_SHUT = (SHOWN_LOCKED, SHOWN_DAMAGED)
_MARKED = (LOCKED, DAMAGED)


def is_shut(data: bytes | None) -> bool:
    """Locked or damaged: not to be read here."""
    return data is not None and data.startswith(_MARKED)


def key_of(data: bytes) -> str:
    """The name of the key of a value that is shut."""
    return data.split(b":")[2].strip(b'"').decode("ascii", "replace")[:40]


def shown_shut(data: bytes) -> bytes:
    """A value that is shut, for people."""
    return SHOWN_LOCKED if data.startswith(LOCKED) else SHOWN_DAMAGED


def why_shut(data: bytes, what: str) -> str:
    """In a sentence, with what to do."""
    if data.startswith(DAMAGED):
        return (
            f"{what} cannot be decrypted with its key {key_of(data)}: the stored value was changed, truncated or "
            "swapped; restore it from a backup, or create the promise again"
        )
    return (
        f"{what} is encrypted with the key {key_of(data)}, which this process does not have; add it to "
        "FOLIOT_ENCRYPTION_KEYS of the workers"
    )


class Place(StrEnum):
    """Where values are stored that can be locked."""

    RUNS = "runs"
    SCHEDULES = "schedules"
    BACKFILLS = "backfills"
    EFFECTS = "effects"
    HISTORY = "history"


class Stored(NamedTuple):
    """The lockable values of one row, as they are stored."""

    position: int | str
    """Where the next page begins."""
    number: int
    """Of the run; 0 where there is none."""
    about: str
    """The job; of an effect its name and key."""
    payload: bytes | None
    checkpoint: bytes | None
    result: bytes | None


class Relocked(NamedTuple):
    """What became of one page."""

    looked_at: int
    relocked: int
    passed_over: int
    """Rows that somebody else had its hands on."""
    shut: int
    """Rows that stay as they are, since their key is not here, or they are damaged."""
    position: int | str | None
    """Where to go on; None when there is no more."""
