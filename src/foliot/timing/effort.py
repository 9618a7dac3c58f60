"""How much an answer may cost. Rules within rules would multiply their searches, so all that one question leads to
draws on the same store of steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from foliot.domain.instant import DAY, Duration

MOST_STEPS = 100_000
"""Ticks of parts that one question may ask for in vain: half a second or so."""

FURTHEST: Duration = 146_097 * DAY
"""How far a search goes: dates and weekdays, and with them the zones' rules, repeat every 400 years."""

_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextmanager
def effort() -> Iterator[list[int]]:
    """What may still be spent: a fresh store for the outermost question, the same one for all those inside it."""
    left = _left.get()
    if left is not None:
        yield left
        return
    left = [MOST_STEPS]
    token = _left.set(left)
    try:
        yield left
    finally:
        _left.reset(token)
