"""The tables of the world (zones, holidays) that rules depend on, by release.

A pending tick was computed with some release of them. When a newer one is installed, the tick may lie elsewhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version

from foliot.domain.instant import Instant
from foliot.domain.rule import Rule
from foliot.timing import zones

RRULE = "2"
"""How RRULEs of elapsed time are counted: in elapsed time. A stamp without it was given when they were counted by the
clock. Its pending tick comes as it was promised, and the watch does not compare it with those that are counted now."""
_NAMES = {"tzdata", "holidays", "rrule"}


def releases() -> dict[str, str]:
    """Each table with its release."""
    return {"tzdata": zones.VERSION, "holidays": version("holidays")}


@lru_cache(maxsize=8)
def stamp(tables: frozenset[str]) -> str | None:
    """`tzdata=2026a`, `holidays=0.90 tzdata=2026a`; None for a rule that depends on none."""
    known = releases() | {"rrule": RRULE}
    return " ".join(f"{name}={known[name]}" for name in sorted(tables)) or None


def stamp_of(rule: Rule) -> str | None:
    """What a rule's ticks are computed with, here and now."""
    return stamp(rule.tables)


def stamps() -> list[str]:
    """Every stamp that this process can give."""
    kinds = ({"tzdata"}, {"holidays"}, {"tzdata", "holidays"}, {"rrule", "tzdata"}, {"rrule", "tzdata", "holidays"})
    return [given for kind in kinds if (given := stamp(frozenset(kind))) is not None]


def is_newer(ours: str | None, stored: str) -> bool:
    """Whether some table here is newer than the stored stamp's, and none is older or unknown: an old release, which may
    still run beside a new one, never takes back what the new one computed."""
    here, there = _comparable(ours or ""), _comparable(stored)
    if there.keys() - _NAMES:
        return False
    return all(here[name] >= there[name] for name in here.keys() & there.keys()) and here != there


def is_ahead(stored: str) -> bool:
    """Whether a stored stamp has a newer table than this process."""
    here, there = _comparable(stamp(frozenset(releases())) or ""), _comparable(stored)
    return any(release > here[name] for name, release in there.items() if name in here)


def not_again(rule: Rule, tick: Instant | None, ran: str | None) -> Instant | None:
    """A tick, or the first after it whose wall time is later than one that ran already.

    A zone that sets its clocks back between two releases of the tables has the same wall time twice: once as it was
    known when it ran, and once more as it is known now.
    """
    while tick is not None and ran is not None and (wall := rule.wall(tick)) is not None and wall <= ran:
        tick = rule.next(tick)
    return tick


def _comparable(text: str) -> dict[str, list[tuple[int, str]]]:
    """Versions as what can be compared: numbers as numbers."""
    pairs = (pair.partition("=") for pair in text.split())
    return {
        name: [(int(number or 0), letters) for number, letters in re.findall(r"(\d+)|([a-z]+)", release)]
        for name, _, release in pairs
    }
