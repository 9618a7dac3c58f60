"""What every rule can do with other rules: or, and, without, between two instants, outside of windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from foliot.domain.instant import FIRST, LAST, Duration, Instant, duration, instant, rfc3339, spell
from foliot.domain.rule import Horizon
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing.effort import FURTHEST, effort

PRESENT: Instant = instant(datetime(2026, 1, 1, tzinfo=UTC))
"""The year in which this was written: rules read no clock."""


class Composable:
    """The base of all rules: their common answers, and their operators."""

    __slots__ = ()

    @property
    def delay(self) -> Duration | None:
        """None: the ticks are on the calendar."""
        return None

    @property
    def tz(self) -> str:
        """Elapsed time is shown in UTC."""
        return "UTC"

    @property
    def tables(self) -> frozenset[str]:
        """None, for elapsed time."""
        return frozenset()

    @property
    def zones(self) -> frozenset[str]:
        """None: elapsed time is the same everywhere."""
        return frozenset()

    @property
    def horizon(self) -> Horizon | None:
        """None: it is known for ever."""
        return None

    def next(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`."""
        raise NotImplementedError

    def previous(self, before: Instant) -> Instant | None:
        """The last tick strictly before `before`."""
        raise NotImplementedError

    def wall(self, tick: Instant) -> str | None:
        """None: elapsed time promises instants."""
        return None

    def named(self, schedule: str) -> Composable:
        """This rule itself, where it spreads nothing by hash."""
        return self

    def shape(self) -> dict[str, Any]:
        """The rule as what JSON can hold; `codec` reads it back."""
        raise NotImplementedError

    def encode(self) -> str:
        """One line of JSON, for the store."""
        return json.dumps(self.shape(), separators=(",", ":"), ensure_ascii=False)

    def explain(self) -> str:
        """The rule in plain words."""
        raise NotImplementedError

    def has(self, moment: Instant) -> bool:
        """Whether it has a tick at this very instant. Rules made of others ask these, and search for nothing."""
        return self.next(moment - 1) == moment

    def __or__(self, other: Composable) -> Union:
        """The ticks of either; one that both have is one tick."""
        return Union((*_parts(Union, self), *_parts(Union, other)))

    def __and__(self, other: Composable) -> Intersection:
        """The ticks that both have, at the same instant."""
        return Intersection((*_parts(Intersection, self), *_parts(Intersection, other)))

    def __sub__(self, other: Composable) -> Exclusion:
        """The ticks of this rule that the other does not have."""
        return Exclusion(checked(self), checked(other))

    def between(self, start: datetime | None = None, end: datetime | None = None) -> Bounded:
        """The ticks from `start` on, itself included, and before `end`."""
        with refused_as_rule():
            return Bounded(
                checked(self), None if start is None else instant(start), None if end is None else instant(end)
            )

    def outside(self, opening: Composable, length: str | float | timedelta) -> Outside:
        """The ticks that do not fall into a blackout window, which begins at each tick of `opening`.

        `cron("*/5 * * * *").outside(cron("0 22 * * *", tz="Europe/Paris"), "8h")`
        """
        with refused_as_rule():
            return Outside(checked(self), checked(opening), duration(length))


@contextmanager
def refused_as_rule() -> Iterator[None]:
    """Whatever is wrong with a part of a rule makes it an InvalidRule."""
    try:
        yield
    except InvalidInput as problem:
        raise InvalidRule(str(problem)) from None


class Composed(Composable):
    """A rule made of others."""

    __slots__ = ("_near",)

    _near: tuple[Instant, Instant | None]
    """The last question and its answer."""

    @property
    def parts(self) -> tuple[Composable, ...]:
        """The rules that it is made of."""
        raise NotImplementedError

    @property
    def kept(self) -> tuple[Composable, ...]:
        """Those whose ticks it has: the others only take some away."""
        return self.parts[:1]

    @property
    def zones(self) -> frozenset[str]:
        return frozenset().union(*(part.zones for part in self.kept))

    @property
    def tz(self) -> str:
        zones = self.zones
        return min(zones) if len(zones) == 1 else "UTC"

    @property
    def tables(self) -> frozenset[str]:
        return frozenset().union(*(part.tables for part in self.parts))

    @property
    def horizon(self) -> Horizon | None:
        """The nearest: from there on, some of its ticks are missing, or too many are left in."""
        return min((part.horizon for part in self.parts if part.horizon is not None), default=None)

    def next(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`. The last answer is remembered, because rules within rules ask again
        and again for what lies before the same tick, and each search would search through all that are inside."""
        asked, tick = getattr(self, "_near", (LAST, None))
        if asked <= after and (tick is None or after < tick):
            return tick
        tick = self.search(after)
        object.__setattr__(self, "_near", (after, tick))
        return tick

    def search(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`."""
        raise NotImplementedError

    def wall(self, tick: Instant) -> str | None:
        """As the rule says whose ticks these are."""
        return self.parts[0].wall(tick)


@dataclass(frozen=True, slots=True)
class Union(Composed):
    """The ticks of any of its rules."""

    rules: tuple[Composable, ...]

    @property
    def parts(self) -> tuple[Composable, ...]:
        return self.rules

    def search(self, after: Instant) -> Instant | None:
        with effort() as left:
            left[0] -= len(self.rules)
            return min((tick for rule in self.rules if (tick := rule.next(after)) is not None), default=None)

    def previous(self, before: Instant) -> Instant | None:
        with effort() as left:
            left[0] -= len(self.rules)
            return max((tick for rule in self.rules if (tick := rule.previous(before)) is not None), default=None)

    def wall(self, tick: Instant) -> str | None:
        """Wall times of different zones cannot be told apart by their text, so only one zone's are compared."""
        if len({part.tz for part in self.rules}) > 1 or any(rule.wall(tick) is None for rule in self.rules):
            return None
        return self.rules[0].wall(tick)

    def has(self, moment: Instant) -> bool:
        return any(rule.has(moment) for rule in self.rules)

    def named(self, schedule: str) -> Union:
        return Union(tuple(rule.named(schedule) for rule in self.rules))

    def shape(self) -> dict[str, Any]:
        return {"any": [rule.shape() for rule in self.rules]}

    def explain(self) -> str:
        return "; or ".join(map(inner_words, self.rules))

    @property
    def kept(self) -> tuple[Composable, ...]:
        return self.rules


@dataclass(frozen=True, slots=True)
class Intersection(Composed):
    """The instants at which all of its rules have a tick."""

    rules: tuple[Composable, ...]

    def __post_init__(self) -> None:
        check_that_it_fires(self)

    @property
    def parts(self) -> tuple[Composable, ...]:
        return self.rules

    def search(self, after: Instant) -> Instant | None:
        """Each rule in turn leaps to the latest candidate, until all agree."""
        candidate = after + 1
        with searching(self, after) as leave_out:
            while True:
                ticks = [rule.next(candidate - 1) for rule in self.rules]
                if None in ticks:
                    return None
                furthest = max(tick for tick in ticks if tick is not None)
                if all(tick == furthest for tick in ticks):
                    return furthest
                candidate = leave_out(furthest)

    def previous(self, before: Instant) -> Instant | None:
        candidate = before - 1
        with searching(self, before) as leave_out:
            while True:
                ticks = [rule.previous(candidate + 1) for rule in self.rules]
                if None in ticks:
                    return None
                furthest = min(tick for tick in ticks if tick is not None)
                if all(tick == furthest for tick in ticks):
                    return furthest
                candidate = leave_out(furthest)

    def has(self, moment: Instant) -> bool:
        return all(rule.has(moment) for rule in self.rules)

    def named(self, schedule: str) -> Intersection:
        return Intersection(tuple(rule.named(schedule) for rule in self.rules))

    def shape(self) -> dict[str, Any]:
        return {"all": [rule.shape() for rule in self.rules]}

    def explain(self) -> str:
        return ", and at the same time ".join(map(inner_words, self.rules))

    @property
    def kept(self) -> tuple[Composable, ...]:
        return self.rules


@dataclass(frozen=True, slots=True)
class Exclusion(Composed):
    """The ticks of one rule that another does not have."""

    rule: Composable
    other: Composable

    def __post_init__(self) -> None:
        check_that_it_fires(self)

    @property
    def parts(self) -> tuple[Composable, ...]:
        return (self.rule, self.other)

    def search(self, after: Instant) -> Instant | None:
        with searching(self, after) as leave_out:
            tick = self.rule.next(after)
            while tick is not None and self.other.has(tick):
                tick = self.rule.next(leave_out(tick))
            return _while_known(self.other, tick)

    def previous(self, before: Instant) -> Instant | None:
        with searching(self, before) as leave_out:
            tick = self.rule.previous(_known(self.other, before))
            while tick is not None and self.other.has(tick):
                tick = self.rule.previous(leave_out(tick))
            return tick

    def has(self, moment: Instant) -> bool:
        return self.rule.has(moment) and not self.other.has(moment) and _known(self.other, moment + 1) > moment

    def named(self, schedule: str) -> Exclusion:
        return Exclusion(self.rule.named(schedule), self.other.named(schedule))

    def shape(self) -> dict[str, Any]:
        return {"of": self.rule.shape(), "without": self.other.shape()}

    def explain(self) -> str:
        return f"{inner_words(self.rule)}, except {inner_words(self.other)}"


@dataclass(frozen=True, slots=True)
class Bounded(Composed):
    """The ticks of a rule from `start` on, and before `end`."""

    rule: Composable
    start: Instant | None
    end: Instant | None

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise InvalidRule(
                f"the end, {rfc3339(self.end)}, is not after the start, {rfc3339(self.start)}; give a later end"
            )
        check_that_it_fires(self, 0 if self.start is None else self.start - 1)

    @property
    def parts(self) -> tuple[Composable, ...]:
        return (self.rule,)

    @property
    def horizon(self) -> Horizon | None:
        """A rule that states its own end is expected to end there, and not before."""
        beyond = self.rule.horizon
        return None if beyond is None or (self.end is not None and self.end <= beyond.end) else beyond

    def search(self, after: Instant) -> Instant | None:
        tick = self.rule.next(after if self.start is None else max(after, self.start - 1))
        return tick if tick is not None and (self.end is None or tick < self.end) else None

    def previous(self, before: Instant) -> Instant | None:
        tick = self.rule.previous(before if self.end is None else min(before, self.end))
        return tick if tick is not None and (self.start is None or tick >= self.start) else None

    def has(self, moment: Instant) -> bool:
        begun = self.start is None or self.start <= moment
        return begun and (self.end is None or moment < self.end) and self.rule.has(moment)

    def named(self, schedule: str) -> Bounded:
        return Bounded(self.rule.named(schedule), self.start, self.end)

    def shape(self) -> dict[str, Any]:
        bounds = {"start": self.start, "end": self.end}
        return {"of": self.rule.shape()} | {name: rfc3339(at) for name, at in bounds.items() if at is not None}

    def explain(self) -> str:
        start = "" if self.start is None else f", from {rfc3339(self.start)}"
        return f"{inner_words(self.rule)}{start}" + ("" if self.end is None else f", before {rfc3339(self.end)}")


@dataclass(frozen=True, slots=True)
class Outside(Composed):
    """The ticks of a rule that fall into no blackout window."""

    rule: Composable
    opening: Composable
    length: Duration

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise InvalidRule("a blackout window needs a length, such as 8h")
        check_that_it_fires(self)

    @property
    def parts(self) -> tuple[Composable, ...]:
        return (self.rule, self.opening)

    def search(self, after: Instant) -> Instant | None:
        with searching(self, after) as leave_out:
            tick = self.rule.next(after)
            while tick is not None and (window := self._window(tick)) is not None:
                tick = self.rule.next(leave_out(window) + self.length - 1)
            return _while_known(self.opening, tick)

    def previous(self, before: Instant) -> Instant | None:
        with searching(self, before) as leave_out:
            tick = self.rule.previous(_known(self.opening, before))
            while tick is not None and (window := self._window(tick)) is not None:
                tick = self.rule.previous(leave_out(window))
            return tick

    def _window(self, tick: Instant) -> Instant | None:
        """When the window opened that a tick falls into. All are equally long, so the last that opened ends last."""
        opened = self.opening.previous(tick + 1)
        return opened if opened is not None and tick < opened + self.length else None

    def has(self, moment: Instant) -> bool:
        is_known = _known(self.opening, moment + 1) > moment
        return is_known and self.rule.has(moment) and self._window(moment) is None

    def named(self, schedule: str) -> Outside:
        return Outside(self.rule.named(schedule), self.opening.named(schedule), self.length)

    def shape(self) -> dict[str, Any]:
        return {"of": self.rule.shape(), "outside": self.opening.shape(), "for": spell(self.length)}

    def explain(self) -> str:
        return f"{inner_words(self.rule)}, except in the {spell(self.length)} after: {inner_words(self.opening)}"


def inner_words(rule: Composable) -> str:
    """The words of a rule that is part of another. A rule made of others stands in brackets, so that words which differ
    only in what belongs together differ."""
    return f"({rule.explain()})" if isinstance(rule, Composed) else rule.explain()


def checked(rule: Composable) -> Composable:
    if not isinstance(rule, Composable):
        raise InvalidRule(f'{rule!r:.80} is not a rule; combine rules such as cron("0 2 * * *") and every("15m")')
    if rule.delay is not None:
        raise InvalidRule(
            "a fixed delay cannot be combined, because the end of each run sets its next tick; use every(...)"
        )
    return rule


def _parts(kind: type[Union] | type[Intersection], rule: Composable) -> tuple[Composable, ...]:
    """`a | b | c` is one union of three."""
    return rule.rules if isinstance(rule, kind) else (checked(rule),)


def check_that_it_fires(rule: Composable, after: Instant | None = None) -> None:
    """From a stated start on, or from the year in which this was written, else from 1970."""
    starts = (PRESENT, 0) if after is None else (min(max(after, FIRST), LAST),)
    if all(rule.next(start) is None for start in starts):
        raise InvalidRule(f"this rule can never fire; change its parts: {rule.explain():.200}")


def _known(left_out: Composable, before: Instant) -> Instant:
    """The earlier of an instant and the end of what is known about the ticks that shall be left out."""
    beyond = left_out.horizon
    return before if beyond is None else min(before, beyond.end)


def _while_known(left_out: Composable, tick: Instant | None) -> Instant | None:
    """A tick that nobody can say is not to be left out is none: better silent, and told, than on the wrong day."""
    return None if tick is None or _known(left_out, tick + 1) <= tick else tick


@contextmanager
def searching(rule: Composed, start: Instant) -> Iterator[Callable[[Instant], Instant]]:
    """A search from tick to tick: gives what it calls with each that it leaves out, and that stops it, loudly."""
    with effort() as left:

        def leave_out(tick: Instant) -> Instant:
            left[0] -= len(rule.parts)
            if left[0] < 0 or abs(tick - start) > FURTHEST:
                raise InvalidRule(
                    f"the other parts exclude all nearby ticks of this rule; simplify it: {rule.explain():.200}"
                )
            return tick

        yield leave_out
