"""The port between schedules and rules of time: what any rule can be asked. `timing/` holds the rules themselves."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from foliot.domain.instant import Duration, Instant


@runtime_checkable
class Rule(Protocol):
    """A rule of time. Pure: the same question always has the same answer; nothing here reads a clock."""

    @property
    def delay(self) -> Duration | None:
        """For a fixed-delay rule, the time between the end of one run and the start of the next; else None.

        A rule with a delay has no calendar: its ticks are made by the ends of runs, not by `next`.
        """

    def next(self, after: Instant) -> Instant | None:
        """The first nominal time strictly after `after`; None when there is none any more."""

    def previous(self, before: Instant) -> Instant | None:
        """The last nominal time strictly before `before`; None when there was none."""

    def encode(self) -> str:
        """One line of JSON that `foliot.timing.decode` reads back to an equal rule. Stored with the schedule."""

    def explain(self) -> str:
        """The rule in plain words, zone included."""
