"""The cron rule: an expression, a zone, and what to do where the zone's clocks are changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from foliot.errors import InvalidRule
from foliot.timing.dst import VIXIE, Dst, dst
from foliot.timing.elapsed import Every, every
from foliot.timing.expression import Sixth, checked_text, read
from foliot.timing.fields import FieldPattern, Fields
from foliot.timing.wall import WallRule, begin_of
from foliot.timing.words import describe


@dataclass(frozen=True, slots=True)
class Cron(WallRule):
    """A cron expression, read on the wall clocks of a zone."""

    expression: str
    tz: str = "UTC"
    dst: Dst = VIXIE
    sixth: Sixth | None = None
    seed: str = ""
    """What `H` hashes: the id of the schedule, once it has one."""
    fields: Fields = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen value may still be completed while it is being made.
        fields, pattern = _known(checked_text(self.expression), self.sixth, self.seed)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "expression", " ".join(self.expression.split()))
        self.settle(pattern, fields.is_interval)
        if fields.years is not None and self.next(begin_of(fields.years[0])) is None:
            raise InvalidRule(f"this rule can never fire: in {self.tz} its wall times do not exist; give other times")

    def named(self, schedule: str) -> Cron:
        """The same rule, with `H` settled for one schedule."""
        return Cron(self.expression, self.tz, self.dst, self.sixth, schedule) if self.fields.is_spread else self

    def shape(self) -> dict[str, Any]:
        """As JSON; what is left out has its default."""
        extra = {"six": self.sixth, "id": self.seed} | self.dst.encoded()
        return {"cron": self.expression, "tz": self.tz} | {name: value for name, value in extra.items() if value}

    def explain(self) -> str:
        """The rule in plain words."""
        return describe(self.fields, self.tz, self.seed) + self.policy_words()


@lru_cache(maxsize=2_000)
def _known(expression: str, sixth: Sixth | None, seed: str) -> tuple[Fields, FieldPattern]:
    """Schedules by the thousand share a few expressions, and then what was read and found of them."""
    fields = read(expression, sixth, seed)
    return fields, FieldPattern(fields)


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
    interval_like: str | None = None,
    seconds: bool = False,
    year: bool = False,
) -> Cron | Every:
    """By the calendar: `cron("0 2 * * *", tz="Europe/Paris")`, with Vixie's meaning.

    `gap` and `fold` say what becomes of a wall time that does not exist, or exists twice; `preset` takes another
    scheduler's answers. Six fields are ambiguous: `seconds=True` or `year=True` says what the sixth one is.
    """
    policy = dst(preset, gap, fold, interval_like)
    if isinstance(expression, str) and [word.lower() for word in expression.split(maxsplit=1)[:1]] == ["@every"]:
        if policy is not VIXIE:
            raise InvalidRule("@every counts elapsed time, which has no gaps and folds; leave the policy out")
        return every(expression.strip()[6:].strip())
    if seconds and year and len(str(expression).split()) != 7:
        raise InvalidRule("seconds=True and year=True require seven fields: second, the five cron fields, year")
    return Cron(expression, tz, policy, "seconds" if seconds else "year" if year else None)
