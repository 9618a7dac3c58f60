"""Compares promises with those that were kept in their place."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from foliot.domain.run import Kept, Promise, Promised, differing

_log = logging.getLogger("foliot")


class _Store(Protocol):
    async def promised(self, numbers: Sequence[int]) -> Mapping[int, Promised]: ...


async def compared(store: _Store, wanted: Sequence[Promise], kept: Sequence[Kept]) -> list[Kept]:
    """The answers; those to keys that exist with another job, arguments or time say so. Logs a warning for each."""
    again = [one.number for one in kept if one.outcome == "kept"]
    if not again:
        return list(kept)
    stored = await store.promised(again)
    answers = []
    for promise, answer in zip(wanted, kept, strict=True):
        before = stored.get(answer.number) if answer.outcome == "kept" else None
        differs = () if before is None else differing(promise, before)
        if differs:
            _log.warning(
                "key %r was promised again with another %s, keeping %s unchanged: use another key, or "
                "on_conflict='replace'",
                promise.key,
                " and another ".join(differs),
                answer.id,
            )
        answers.append(answer._replace(differs=differs))
    return answers
