"""Hours of the day in a zone: whether they have come, when they come next, and where work that keeps to them ends."""

from __future__ import annotations

from functools import lru_cache

from foliot.domain.backfill import Window
from foliot.domain.instant import LAST, Duration, Instant
from foliot.domain.rule import Rule
from foliot.timing.cron import cron

_MOST_DAYS = 1_000
"""Work that needs more windows than this ends at a time that nobody can name."""


@lru_cache(maxsize=1_000)
def _edges(window: Window) -> tuple[Rule, Rule]:
    """Two rules of time, so that gaps and folds of the zone are theirs to know. InvalidInput for an unknown zone."""
    opens, closes = (cron(f"{minute} {hour} * * *", tz=window.tz) for hour, minute in (window.opens, window.closes))
    return opens, closes


def checked_window(window: Window) -> Window:
    """The window, or a clear refusal of its zone."""
    _edges(window)
    return window


def opens_at(window: Window, now: Instant) -> Instant:
    """`now` while it is open, or else when it opens next."""
    opens, closes = _edges(window)
    opened, closed = opens.previous(now + 1), closes.previous(now + 1)
    if opened is not None and (closed is None or opened > closed):
        return now
    following = opens.next(now)
    return LAST if following is None else following


def ends_at(window: Window | None, now: Instant, length: Duration) -> Instant | None:
    """When work of this length is done that begins now and rests while the window is closed; None when too far off."""
    if window is None:
        return now + length if now + length <= LAST else None
    _, closes = _edges(window)
    for _ in range(_MOST_DAYS):
        begin = opens_at(window, now)
        close = closes.next(begin)
        if close is None or length <= close - begin:
            return begin + length
        length -= close - begin
        now = close
    return None
