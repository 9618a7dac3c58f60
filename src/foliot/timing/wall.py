"""The base of rules that are promises about wall clocks: a pattern, a zone, and a policy for gaps and folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import date
from typing import Any, ClassVar, NamedTuple

from foliot.domain.instant import DAY, SECOND, Instant
from foliot.domain.rule import Rule
from foliot.timing.combine import Composable, Composed
from foliot.timing.dst import VIXIE, Dst, Fold, Gap
from foliot.timing.resolver import Pattern, Step, nearest
from foliot.timing.zones import Zone, zone

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400


class WallRule(Composable):
    """A rule whose subclass, a frozen dataclass with the fields `tz` and `dst`, calls `settle` when it is made."""

    __slots__ = ("_fold", "_gap", "_is_elapsed", "_pattern", "_zone")

    dst_default: ClassVar[Dst] = VIXIE
    """The policy of new rules of this class."""

    dst: Dst
    _pattern: Pattern
    _zone: Zone
    _gap: Gap
    _fold: Fold
    _is_elapsed: bool

    def settle(self, pattern: Pattern, is_interval: bool) -> None:
        """Completes a rule. `is_interval`: it means elapsed time, unless its policy says never."""
        where = zone(self.tz)
        gap, fold = self.dst.settled(is_interval)
        # A frozen value may still be completed while it is being made.
        settle = object.__setattr__
        settle(self, "tz", where.name)
        settle(self, "_pattern", pattern)
        settle(self, "_zone", where)
        settle(self, "_gap", gap)
        settle(self, "_fold", fold)
        settle(self, "_is_elapsed", (gap, fold) != (self.dst.gap, self.dst.fold))

    @property
    def tables(self) -> frozenset[str]:
        """The zones' tables, unless it keeps to UTC."""
        return frozenset() if self.tz == "UTC" else frozenset({"tzdata"})

    @property
    def zones(self) -> frozenset[str]:
        """Its own, also when that is UTC."""
        return frozenset({self.tz})

    def next(self, after: Instant) -> Instant | None:
        """The first tick strictly after `after`; None when there is none any more."""
        return self._nearest(after // SECOND + 1, 1)

    def previous(self, before: Instant) -> Instant | None:
        """The last tick strictly before `before`."""
        return self._nearest((before - 1) // SECOND, -1)

    def wall(self, tick: Instant) -> str | None:
        """The wall time of a tick; None for a rule that runs in both passes of a fold: its wall times do come again."""
        if self._fold is Fold.BOTH:
            return None
        local, second_pass = self._zone.local(tick // SECOND)
        return local.isoformat() + ("/2" if second_pass else "")

    @property
    def is_elapsed(self) -> bool:
        """Whether it runs on through gap and fold, because it means elapsed time."""
        return self._is_elapsed

    @property
    def pace(self) -> int | None:
        """The seconds between two of its ticks, where it counts elapsed time from a start."""
        return None

    def policy_words(self) -> str:
        """The policy for changes of the clocks, where it is not the default: ` (gap=skip)`. The clocks of UTC never
        change."""
        chosen = self.dst.differing(self.dst_default) if self.tz != "UTC" else {}
        return f" ({', '.join(f'{name}={value}' for name, value in chosen.items())})" if chosen else ""

    def asked(self, low: int, high: int) -> Iterator[int]:
        """The wall times, in seconds, that it asks for from `low` on and before `high`, whatever the clocks do."""
        wall = self._pattern.nearest(low, 1)
        while wall is not None and wall < high:
            yield wall
            wall = self._pattern.nearest(wall + 1, 1)

    def instants(self, wall: int) -> list[int]:
        """The instants, in seconds, that its zone and policy give to one wall time: none, one or two."""
        once = Once(wall)
        found: list[int] = []
        second: int | None = wall - 2 * _DAY
        while second is not None:
            second = nearest(once, self._zone, self._gap, self._fold, second, 1)
            if second is not None:
                found.append(second)
                second += 1
        return found

    def _nearest(self, second: int, step: Step) -> Instant | None:
        found = nearest(self._pattern, self._zone, self._gap, self._fold, second, step)
        return None if found is None else found * SECOND

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is made anew: what was settled is not part of the value."""
        return type(self), tuple(getattr(self, one.name) for one in fields(self) if one.init)  # type: ignore[arg-type]


def chosen_policies(rule: Rule) -> list[dict[str, str]]:
    """The policies of the rules whose ticks a rule has, each once, as its settings that are no default."""
    if isinstance(rule, WallRule):
        return [rule.dst.differing(rule.dst_default)]
    policies = [policy for part in rule.kept for policy in chosen_policies(part)] if isinstance(rule, Composed) else []
    return [policy for number, policy in enumerate(policies) if policy not in policies[:number]]


class Once(NamedTuple):
    """The pattern of one wall time."""

    wall: int

    def nearest(self, wall: int, step: Step) -> int | None:
        return self.wall if (self.wall - wall) * step >= 0 else None


def begin_of(year: int) -> Instant:
    """An instant before a year has begun anywhere."""
    return (date(year, 1, 1).toordinal() - _EPOCH - 2) * DAY
