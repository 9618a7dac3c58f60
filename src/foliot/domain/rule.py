"""The port between schedules and rules of time: what any rule can be asked. `timing/` holds the rules themselves."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from foliot.domain.instant import Duration, Instant


class Horizon(NamedTuple):
    """The end of what is known: beyond it ticks are missing because nobody knows of them, not because none are due."""

    end: Instant
    told: str
    """What ends, and what to do about it."""


@runtime_checkable
class Rule(Protocol):
    """A rule of time. Pure: the same question always has the same answer; nothing here reads a clock."""

    @property
    def delay(self) -> Duration | None:
        """For a fixed-delay rule, the time between the end of one run and the start of the next; else None.

        A rule with a delay has no calendar: its ticks are made by the ends of runs, not by `next`.
        """

    @property
    def tz(self) -> str:
        """The zone in which its dates are read, and its times are shown: `UTC` where it names none."""

    @property
    def tables(self) -> frozenset[str]:
        """The tables of the world that its answers come from, which change with new releases: `tzdata`, `holidays`."""

    @property
    def zones(self) -> frozenset[str]:
        """The zones that its times are read in: several for rules that are joined, none for elapsed time."""

    @property
    def horizon(self) -> Horizon | None:
        """Where its tables end; None when they do not, or the rule ends before."""

    def next(self, after: Instant) -> Instant | None:
        """The first nominal time strictly after `after`; None when there is none any more."""

    def previous(self, before: Instant) -> Instant | None:
        """The last nominal time strictly before `before`; None when there was none."""

    def wall(self, tick: Instant) -> str | None:
        """The wall time that a tick stands for (`2026-11-01T01:30:00`, a `/2` behind it on its second pass).

        It is what a person promised, so it never runs twice, also when a zone changes its offset in between. These
        texts sort by time. None for a rule that means elapsed time: its instants are the promise.
        """

    def named(self, schedule: str) -> Rule:
        """This rule for one schedule: what it spreads by hash (`H`, `spread`) is settled by the schedule's id."""

    def encode(self) -> str:
        """One line of JSON that `foliot.timing.decode` reads back to an equal rule. Stored with the schedule."""

    def explain(self) -> str:
        """The rule in plain words, zone included."""
