"""The ticks of a bounded interval, either way round, each with where the time begins that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from foliot.domain.instant import Instant
from foliot.domain.rule import Rule


class Interval(NamedTuple):
    """Ticks from `start` on and before `end`."""

    start: Instant
    end: Instant

    def forward(self, rule: Rule, after: Instant | None = None) -> Iterator[tuple[Instant, Instant | None]]:
        """Oldest first, those after `after`."""
        tick = rule.next(self.start - 1 if after is None else max(after, self.start - 1))
        before = None if tick is None else rule.previous(tick)
        while tick is not None and tick < self.end:
            yield tick, self._begins(tick, before)
            tick, before = rule.next(tick), tick

    def backward(self, rule: Rule, before: Instant | None = None) -> Iterator[tuple[Instant, Instant | None]]:
        """Newest first, those before `before`."""
        tick = rule.previous(self.end if before is None else min(before, self.end))
        while tick is not None and tick >= self.start:
            earlier = rule.previous(tick)
            yield tick, self._begins(tick, earlier)
            tick = earlier

    def _begins(self, tick: Instant, before: Instant | None) -> Instant | None:
        """Before its first tick a rule has none: what was asked for is all that this one can stand for."""
        if before is not None:
            return before
        return self.start if self.start < tick else None
