"""One due tick of a rule, and the questions that admission asks about its neighbours. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, overload

from foliot.domain.instant import Instant
from foliot.domain.policy import Policy
from foliot.domain.rule import Rule
from foliot.domain.schedule import NewTick, Schedule, TickDecision, TickFacts
from foliot.timing import Overdue, jittered, overdue
from foliot.timing.tables import not_again, stamp_of

MOST_COUNTED = 10_000
"""Ticks of one decision are counted up to here: a clock that jumped by years must not hold up the others."""


class Occurrence(NamedTuple):
    """A due tick with its schedule, its rule, and the moment at which it is judged."""

    facts: TickFacts
    schedule: Schedule
    rule: Rule
    now: Instant
    most_counted: int = MOST_COUNTED

    @property
    def policy(self) -> Policy:
        return self.schedule.policy

    @property
    def nominal(self) -> Instant:
        return self.facts.nominal

    @property
    def is_blocked(self) -> bool:
        """Others of its schedule are busy, or wait before it, and nobody let it go all the same."""
        facts = self.facts
        mine = (facts.lane, facts.nominal, facts.number)
        ahead = any((one.lane, one.nominal, one.number) < mine for one in facts.waiting)
        return (facts.occupied_by is not None or ahead) and not facts.forced

    @property
    def since(self) -> Instant | None:
        """Where the tick's interval begins: what the row says, or the tick before it."""
        return self.rule.previous(self.nominal) if self.facts.since is None else self.facts.since

    @property
    def due_at(self) -> Instant:
        """When this tick was due, whatever happened to its row since."""
        return self.fire_at(self.nominal)

    def fire_at(self, nominal: Instant) -> Instant:
        if not self.policy.jitter or self.schedule.over is not None:
            return nominal  # jitter spreads members, where there are any
        return jittered(self.schedule.id, nominal, self.policy.jitter, self.rule.next(nominal))

    def useful_until(self, nominal: Instant) -> Instant | None:
        return None if self.policy.useful_until is None else nominal + self.policy.useful_until

    def next(self) -> NewTick | None:
        """The tick after this one; None when the rule has ended."""
        return self.following(self.rule.next(self.nominal), self.nominal)

    def following(self, nominal: Instant | None, since: Instant) -> NewTick | None:
        """The run that comes next, at `nominal` or, should newer tables say that this wall time ran already, later."""
        if self.schedule.tables is not None and self.schedule.tables != stamp_of(self.rule):
            nominal = not_again(self.rule, nominal, self._wall(since))
        return self.new(nominal, since)

    def remembered(self, decision: TickDecision) -> TickDecision:
        """With the wall times that the schedule's cursor keeps, for rules whose zone may change."""
        through, successor = decision.evaluated_through, decision.successor
        if through is None or not self.rule.tables:
            return decision
        return replace(
            decision,
            last_wall=self._wall(through),
            next_wall=None if successor is None else self.rule.wall(successor.nominal),
            tables=stamp_of(self.rule),
            fault=decision.fault or self._beyond(successor),
        )

    def _beyond(self, successor: NewTick | None) -> str | None:
        """Told once, when the tables end: the rule goes on when newer ones come, and must not end in silence."""
        beyond = self.rule.horizon
        if beyond is None or self.schedule.fault is not None:
            return None
        return beyond.told if successor is None or successor.nominal >= beyond.end else None

    def _wall(self, tick: Instant) -> str | None:
        """Of this tick, what it was made for: its zone may have changed since."""
        return (self.schedule.next_wall if tick == self.nominal else None) or self.rule.wall(tick)

    @overload
    def new(self, nominal: Instant, since: Instant | None) -> NewTick: ...

    @overload
    def new(self, nominal: Instant | None, since: Instant | None) -> NewTick | None: ...

    def new(self, nominal: Instant | None, since: Instant | None) -> NewTick | None:
        if nominal is None:
            return None
        return NewTick(nominal, since, self.fire_at(nominal), self.useful_until(nominal))

    def through(self, horizon: Instant) -> Overdue:
        """The ticks from this one up to `horizon`. This one is always among them: it is what is being decided."""
        return overdue(self.rule, self.nominal, max(self.nominal, horizon), cap=self.most_counted)

    def due_through(self, horizon: Instant) -> Overdue:
        """The ticks from this one whose fire time is not after `horizon`.

        Jitter ends before the next tick begins, so of the ticks whose nominal time has come only the last can still
        be waiting for its fire time; it is left to be the one that follows.
        """
        ticks = self.through(horizon)
        if ticks.latest == self.nominal or self.fire_at(ticks.latest) <= horizon:
            return ticks
        # The count stays at the cap when it was capped: there are still at least as many.
        count = ticks.count if ticks.capped else ticks.count - 1
        return replace(ticks, latest=self.before(ticks), count=count, following=ticks.latest)

    def before(self, ticks: Overdue) -> Instant:
        """The tick before the latest of several.

        Never before this one, which counts as a tick even when the rule no longer has it: it may have been edited.
        """
        before = self.rule.previous(ticks.latest)
        return self.nominal if before is None else max(self.nominal, before)
