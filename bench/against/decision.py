"""The interval of the median ratio, and the decision. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

PASSED_FROM = 0.95
"""Passed: the lower bound is at least this."""
FAILED_BELOW = 0.97
"""Failed: the upper bound is below this."""
LOOKS = (12, 20, 30, 40)
"""Numbers of pairs after which a comparison may be decided. Each further look would add wrong decisions."""

Decision = Literal["passed", "failed", "undecided", "continue"]


class Interval(NamedTuple):
    low: float
    high: float


def median_interval(ratios: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """An interval that holds the median of the distribution with at least this confidence, whatever its shape.

    The bounds are the k-th smallest and the k-th largest ratio. The median is below the k-th smallest of n ratios with
    the probability that fewer than k of n tosses of a coin show heads. The largest k is taken for which both errors
    together stay within 1 - confidence. None if even k = 1 does not: 95 percent need six ratios.
    """
    rank = interval_rank(len(ratios), confidence)
    if rank == 0:
        return None
    ordered = sorted(ratios)
    return Interval(ordered[rank - 1], ordered[-rank])


def interval_rank(count: int, confidence: float) -> int:
    """The k of `median_interval`. 0 if there is no interval."""
    error, rank = 0.0, 0
    while rank < count // 2:
        error += 2 * math.comb(count, rank) / 2**count
        if error > 1 - confidence:
            break
        rank += 1
    return rank


def decide(ratios: Sequence[float], minimum: int = LOOKS[0], maximum: int = LOOKS[-1]) -> Decision:
    """Judges the ratios so far, if their number is the minimum, the maximum, or one of LOOKS between them."""
    count = len(ratios)
    if count < minimum or (count < maximum and count not in (minimum, *LOOKS)):
        return "continue"
    interval = median_interval(ratios)
    if interval is not None and interval.low >= PASSED_FROM:
        return "passed"
    if interval is not None and interval.high < FAILED_BELOW:
        return "failed"
    return "continue" if count < maximum else "undecided"
