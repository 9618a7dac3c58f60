"""From wall times to instants: the one place that knows gaps and folds.

A pattern speaks of wall time alone, on a clock that never jumps. A zone is a row of stretches, each with one offset.
Inside a stretch the two are a subtraction apart. Where stretches meet, each side is looked through in *passes*: spans
of wall time, read with one offset. The stretch itself is one; where the policy moves the wall times of a gap, these are
another. So both directions of the search, and every policy, are the same few lines over other passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from foliot.timing.dst import Fold, Gap
from foliot.timing.effort import effort
from foliot.timing.zones import FIRST_SECOND, LAST_SECOND, Stretch, Zone

Step = Literal[1, -1]
"""The direction of a search: 1 into the future, -1 into the past."""

LONGEST_GAP = 3 * 3600
"""A longer gap is a zone that skipped a day: its wall times are gone, and nobody expects them at another hour."""

_NEAR = 2 * 86_400
"""More than two offsets can differ."""


class Pattern(Protocol):
    """Wall times, as seconds since 1970-01-01T00:00:00 on a wall clock that is never changed."""

    def nearest(self, wall: int, step: Step) -> int | None:
        """The pattern's wall time nearest to `wall`, itself included, in one direction; None when there is none."""


class Elapsed(Protocol):
    """The same for a rule that counts elapsed time, as a clock with one offset shows it."""

    def within(self, wall: int, end: int, step: Step) -> int | None:
        """The wall time nearest to `wall`, up to `end`, both included; None when there is none."""

    def day(self, wall: int, step: Step) -> int | None:
        """The begin of the nearest day that may have a time, with any offset; None when there is none."""


def nearest(pattern: Pattern, zone: Zone, gap: Gap, fold: Fold, second: int, step: Step) -> int | None:
    """The tick nearest to the instant `second`, itself included, in one direction; None when there is none.

    1. Look through the stretch that the instant lies in.
    2. Look through the one beside it: in a fold its wall times are, once more, ones that were passed already.
    3. After that, wall times that were passed do not come again: go straight to where the pattern has its next one.
    """
    second = max(second, FIRST_SECOND) if step > 0 else min(second, LAST_SECOND)
    stretch = zone.at(second) if FIRST_SECOND <= second <= LAST_SECOND else None
    crossed = False
    while stretch is not None:
        start = max(second, stretch.start) if step > 0 else min(second, stretch.end - 1)
        wall = pattern.nearest(start + stretch.offset, step)
        if wall is not None:
            found = wall - stretch.offset
            # The usual case: far from both ends, where no policy has a say.
            if (
                stretch.plain_from <= (start if step > 0 else found)
                and (found if step > 0 else start) < stretch.plain_to
            ):
                return found if FIRST_SECOND <= found <= LAST_SECOND else None
        tick = _at_the_edges(pattern, stretch, gap, fold, start, step)
        if tick is not None:
            return tick
        if crossed and wall is None:
            return None
        beside = zone.beside(stretch, step)
        if crossed and wall is not None:
            beside = _leapt(zone, beside, wall - stretch.offset, step)
        stretch, crossed = beside, True
    return None


def nearest_elapsed(
    pattern_at: Callable[[int], Elapsed], zone: Zone, first: int, last: int, second: int, step: Step
) -> int | None:
    """The nearest tick of a rule that counts elapsed time, between the instants `first` and `last`.

    The clocks do not change the count, but all else that such a rule states is about local time. So the rule has a
    pattern for each offset, and each stretch is searched by its own.
    """
    second = max(second, first) if step > 0 else min(second, last)
    stretch = zone.at(second) if first <= second <= last else None
    with effort():  # all stretches together may cost as much as one question
        while stretch is not None and stretch.start <= last and stretch.end > first:
            low, high = max(stretch.start, first), min(stretch.end - 1, last)
            start, end = (max(second, low), high) if step > 0 else (min(second, high), low)
            pattern = pattern_at(stretch.offset)
            wall = pattern.within(start + stretch.offset, end + stretch.offset, step)
            if wall is not None:
                return wall - stretch.offset
            day = pattern.day(end + stretch.offset, step)
            if day is None:
                return None
            stretch = _leapt(zone, zone.beside(stretch, step), day - stretch.offset, step)
    return None


def _leapt(zone: Zone, beside: Stretch | None, second: int, step: Step) -> Stretch | None:
    """The stretch beside, or the one shortly before `second`, where that is further away."""
    if beside is None:
        return None
    target = min(max(second - step * _NEAR, FIRST_SECOND), LAST_SECOND)
    return zone.at(target) if (target - (beside.start if step > 0 else beside.end)) * step > 0 else beside


def _at_the_edges(pattern: Pattern, stretch: Stretch, gap: Gap, fold: Fold, second: int, step: Step) -> int | None:
    """The nearest tick in a stretch, its edges included."""
    ticks = []
    for low, high, offset in _passes(stretch, gap, fold):
        # In wall time, from `second` or from where the pass begins.
        start = max(second + offset, low) if step > 0 else min(second + offset, high - 1)
        wall = pattern.nearest(start, step) if low <= start < high else None
        if wall is not None and low <= wall < high:
            ticks.append(wall - offset)
    if _runs_after_gap(pattern, stretch, gap) and (stretch.start - second) * step >= 0:
        ticks.append(stretch.start)
    ticks = [tick for tick in ticks if FIRST_SECOND <= tick <= LAST_SECOND]
    return (min(ticks) if step > 0 else max(ticks)) if ticks else None


def _passes(stretch: Stretch, gap: Gap, fold: Fold) -> Iterator[tuple[int, int, int]]:
    """Spans of wall time, and the offset that turns each into instants of this stretch."""
    start, end, offset, opens, closes, _, _ = stretch
    low, high = start + offset, end + offset
    if fold is Fold.FIRST and opens < 0:
        yield low - opens, high, offset
    elif fold is Fold.SECOND and closes < 0:
        yield low, high + closes, offset
    else:
        yield low, high, offset
    if gap is Gap.SHIFT_FORWARD and 0 < opens <= LONGEST_GAP:
        yield low - opens, low, offset - opens
    if gap is Gap.SHIFT_BACKWARD and 0 < closes <= LONGEST_GAP:
        yield high, high + closes, offset + closes


def _runs_after_gap(pattern: Pattern, stretch: Stretch, gap: Gap) -> bool:
    """Whether a wall time of the pattern fell into the gap that this stretch begins with."""
    if gap is not Gap.RUN_AFTER or not 0 < stretch.opens <= LONGEST_GAP:
        return False
    low = stretch.start + stretch.offset
    wall = pattern.nearest(low - stretch.opens, 1)
    return wall is not None and wall < low
