"""How fast the backlog may drain beside live work. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foliot.dispatch.admission import decide_ticks
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.run import Lane
from foliot.domain.schedule import TickDecision, TickFacts

STEP: Duration = 50 * MILLISECOND
"""What is allowed within this time is fired together, if it fits into a batch: one batch costs the store about as much
with fifty runs as with one."""
SAVED: Duration = 250 * MILLISECOND
"""What was allowed and could not be used is kept for this long: a round that comes late makes nobody slower, and a
pause makes no burst."""
UNLIMITED: Final = 1 << 30

_FINE = 1_000
"""Times in here are counted in thousandths of a microsecond, in whole ones: when some may go, they do go then."""
_LONG_AGO = -(1 << 72)


class PacedDecisions:
    """Decides as `decide_ticks` does, and lets no more ticks be caught up than are allowed.

    A tick is caught up when its schedule's `missed_after` says that it was missed. That may be seconds after its time,
    when it is not backlog yet. A tick that was decided before is not counted again."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.caught_up = 0

    def __call__(self, facts: Sequence[TickFacts], now: Instant) -> list[TickDecision]:
        return [self._paced(*pair) for pair in zip(facts, decide_ticks(facts, now), strict=True)]

    def _paced(self, fact: TickFacts, decision: TickDecision) -> TickDecision:
        goes = decision.verdict == "fire" or decision.instead is not None
        if fact.decided or fact.attempt or not goes or decision.lane is not Lane.CATCH_UP:
            return decision
        if self.caught_up >= self._allowed:
            return TickDecision(fact.number, "later")
        self.caught_up += 1
        return decision


class Pace:
    """At most so many in a second, as evenly as batches of a sensible size allow.

    Kept as the generic cell rate algorithm does: one number, the time up to which everything that was let through is
    paid for. So nothing has to be counted while nothing happens, and the rate can change at any moment.
    """

    def __init__(self, batch: int) -> None:
        """`batch`: what is allowed goes as soon as there is that much of it, or what `STEP` allows."""
        self._batch = batch
        self._each = 0
        """The time that one pays for; 0 when there is no rate."""
        self._paid_until = _LONG_AGO

    def keep_to(self, rate: float | None) -> None:
        """From now on so many in a second; None: as many as there are."""
        self._each = 0 if rate is None else max(round(SECOND * _FINE / rate), 1)

    def allows(self, now: Instant) -> int:
        """How many may go now. None while it is too few for a batch."""
        if not self._each:
            return UNLIMITED
        allowed = (now * _FINE + self._saved() - self._paid(now)) // self._each
        return allowed if allowed >= self._worth() else 0

    def spend(self, count: int, now: Instant) -> None:
        """So many went."""
        if self._each:
            self._paid_until = self._paid(now) + count * self._each

    def next_at(self, now: Instant) -> Instant:
        """When some may go; not later than now when they may already."""
        if not self._each:
            return now
        # What is worth going costs no more than can be saved, so it is there before everything is paid for.
        return -(-(self._paid(now) + self._worth() * self._each - self._saved()) // _FINE)

    def _worth(self) -> int:
        return max(1, min(self._batch, STEP * _FINE // self._each))

    def _saved(self) -> int:
        return max(SAVED * _FINE, self._each)

    def _paid(self, now: Instant) -> int:
        # Never further ahead than it can have come by itself: the rate was raised since, or the clock set back.
        self._paid_until = min(self._paid_until, now * _FINE + self._saved())
        return max(self._paid_until, now * _FINE)
