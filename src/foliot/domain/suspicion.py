"""The rule of suspicion: how a run is executed that was lost with its worker again and again. Pure.

A worker that dies takes all its runs with it, and any one of them may be the cause. `losses` counts how often in a row
a run was lost; an attempt that ends in any other way than by a loss or an interruption sets it to 0.

    0, 1          no suspicion: the run is handed off at once, together with all others
    n >= 2        a worker executes at most slots / 2^(n-1) runs with n or more losses together, and at least one
    from APART_FROM losses on, where that number is one: the attempt has a process of its own, beside which the worker
                  executes other runs. If that process dies, the run was lost alone. Only such a death counts as poison.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from foliot.domain.state import Outcome

SUSPECTED_FROM = 2
"""Losses in a row. The first common loss raises no suspicion."""
APART_FROM = 3
"""Losses in a row before an attempt has a process of its own, also in a worker with few slots. A loss from then on can
cost the run an attempt; three restarts of a fleet by SIGKILL must cost it none."""


class Suspicion(NamedTuple):
    """What is known of a run that may have killed a worker."""

    losses: int = 0
    """How often in a row it was lost."""
    deaths: int | None = None
    """How many processes died that executed this run alone; None: it is under no suspicion."""

    def lost(self, *, alone: bool, isolated: bool) -> Suspicion:
        """The same after one more loss. `alone`: its own process died. `isolated`: its job always has a process of its
        own, so that it cannot have killed its worker."""
        losses = self.losses + 1
        if alone:
            return Suspicion(losses, (self.deaths or 0) + 1)
        if isolated or (self.deaths is None and losses < SUSPECTED_FROM):
            return Suspicion(losses, self.deaths)
        return Suspicion(losses, self.deaths or 0)


def losses_in(outcomes: Iterable[Outcome | None]) -> int:
    """The losses at the end of a run's attempts, in their order. An interruption, and the refused report of an attempt
    that was lost before, say nothing; None stands for one that still runs."""
    losses = 0
    for outcome in outcomes:
        if outcome is Outcome.LOST:
            losses += 1
        elif outcome not in (Outcome.INTERRUPTED, Outcome.FENCED, None):
            losses = 0
    return losses


def most_together(slots: int, losses: int) -> int:
    """The largest number of runs with `losses` or more losses that a worker executes together."""
    return max(slots >> min(max(losses - 1, 0), slots.bit_length()), 1)


def may_begin(slots: int, executing: Collection[int], losses: int) -> bool:
    """Whether a worker may begin another suspected run. `executing`: the losses of those that it executes."""
    if not executing:
        return True
    levels = range(SUSPECTED_FROM, max(min(losses, slots.bit_length() + 1), SUSPECTED_FROM) + 1)
    return all(sum(other >= level for other in executing) < most_together(slots, level) for level in levels)


def is_tried_apart(slots: int, losses: int) -> bool:
    """Whether a worker with this number of slots executes the run in a process of its own."""
    return losses >= APART_FROM and most_together(slots, losses) == 1
