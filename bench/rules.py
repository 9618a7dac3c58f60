"""Rules of time: how fast the next occurrence is found, beside two other engines, on the same rules and starts.

*Warm* is one rule that is asked again and again, as a schedule is. *Cold* is a new rule for every question; its
expression is one that the process has seen before. *First* is a new rule with an expression that was never seen, so
reading and checking it is measured, too. Zones are always loaded already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from foliot.domain.instant import SECOND, instant
from foliot.errors import InvalidRule
from foliot.timing.cron import _known, cron
from foliot.timing.fields import _in_month

State = Literal["warm", "cold", "first"]

RULES = (
    "* * * * *", "*/2 * * * *", "*/5 * * * *", "*/10 * * * *", "*/15 * * * *", "0,30 * * * *", "5 * * * *",
    "0 * * * *", "0 */2 * * *", "0 */6 * * *", "0 0 * * *", "30 2 * * *", "15 14 * * *", "0 9,17 * * *",
    "0 9 * * 1-5", "*/15 9-17 * * 1-5", "0 22 * * 1-5", "5 4 * * sun", "0 0 * * 0", "0 8-10 * * *", "0 0 1 * *",
    "0 0 15 * *", "0 0 1,15 * *", "0 6 1-7 * *", "0 0 1 1 *", "0 0 1 */3 *", "0 12 * * 2,4", "23 0-20/2 * * *",
    "0 0 * 6-8 *", "45 23 28-31 * *",
)  # fmt: skip
"""Thirty that people write. All three engines understand them, and mean the same."""

RARE = ("0 0 29 2 *", "0 0 29 2 1", "0 0 * 2 1#5", "0 0 31 * 5L", "0 0 L-30 * *", "59 23 31 12 *")
BAD = ("0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 L-30 2 *", "," * 1_000_000, "*/0 * * * *", "9" * 900 + " * * * *")
ZONES = ("UTC", "America/New_York")
STATES: tuple[State, ...] = ("warm", "cold", "first")
START = datetime(2026, 1, 1, 0, 0, 30)

Ask = Callable[[int], None]
"""Finds so many occurrences, one after another."""


@dataclass(slots=True)
class RuleSpeed:
    """Microseconds per occurrence of each rule, by engine, in one zone, warm or cold."""

    zone: str
    state: State
    ours: list[float] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.zone}, {self.state}"

    def throughput(self, engine: str) -> float:
        """Ours to theirs over all rules together: each rule is asked equally often."""
        return sum(self.others[engine]) / sum(self.ours)

    def worst(self, engine: str) -> tuple[float, str]:
        """The rule on which we gain least."""
        pairs = zip(self.others[engine], self.ours, RULES, strict=True)
        return min((theirs / ours, rule) for theirs, ours, rule in pairs)


def compare_rules(seconds: float) -> list[RuleSpeed]:
    """`seconds` for each rule, zone and temperature, shared by the engines, which take turns."""
    found = []
    for zone in ZONES:
        for state in STATES:
            speed = RuleSpeed(zone, state)
            for rule in RULES:
                _compare(speed, rule, seconds)
            found.append(speed)
    return found


def slowest_answer() -> tuple[float, str]:
    """The longest that a rare rule takes to be made and answered, or a bad one to be refused: milliseconds, and which.

    The best of three: the machine has other things to do, too."""
    return max((min(_answer(rule, zone) for _ in range(3)), rule[:30]) for zone in ZONES for rule in RARE + BAD)


def _answer(rule: str, zone: str) -> float:
    _known.cache_clear()
    began = time.perf_counter()
    with suppress(InvalidRule):
        cron(rule, tz=zone).next(instant(START.replace(tzinfo=ZoneInfo("UTC"))))
    return (time.perf_counter() - began) * 1_000


def _compare(speed: RuleSpeed, rule: str, seconds: float) -> None:
    engines = _warm(rule, speed.zone) if speed.state == "warm" else _cold(rule, speed.zone, speed.state == "first")
    rounds = 3
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, ask in engines.items():
            spent = _per_answer(ask, seconds / rounds / len(engines))
            best[name] = min(spent, best.get(name, spent))
    speed.ours.append(best.pop("foliot"))
    for name, spent in best.items():
        speed.others.setdefault(name, []).append(spent)


def _per_answer(ask: Ask, seconds: float) -> float:
    """Microseconds per occurrence."""
    count, batch = 0, 20
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or not count:
        ask(batch)
        count += batch
    return spent / count * 1_000_000


def _warm(rule: str, zone: str) -> dict[str, Ask]:
    from croniter import croniter
    from cronsim import CronSim

    start = START.replace(tzinfo=ZoneInfo(zone))
    sim, ours, others = CronSim(rule, start), cron(rule, tz=zone), croniter(rule, start)
    begin = last = instant(start)
    end = begin + 20 * 366 * 86_400 * SECOND

    def ask(count: int) -> None:
        nonlocal last
        following = ours.next
        for _ in range(count):
            found = following(last)
            # The same twenty years again and again, as a process that lives for long would see neighbouring times.
            last = found if found is not None and found < end else begin

    def ask_sim(count: int) -> None:
        nonlocal sim
        for _ in range(count):
            if next(sim).year > 2045:
                sim = CronSim(rule, start)

    def ask_croniter(count: int) -> None:
        for _ in range(count):
            if others.get_next(datetime).year > 2045:
                others.set_current(start)

    return {"foliot": ask, "cronsim": ask_sim, "croniter": ask_croniter}


def _cold(rule: str, zone: str, forget: bool) -> dict[str, Ask]:
    from croniter import croniter
    from cronsim import CronSim

    start = START.replace(tzinfo=ZoneInfo(zone))
    begin = instant(start)

    def repeated(answer: Callable[[], Any]) -> Ask:
        def ask(count: int) -> None:
            for _ in range(count):
                answer()

        return ask

    def first() -> None:
        _known.cache_clear()
        _in_month.cache_clear()
        cron(rule, tz=zone).next(begin)

    return {
        "foliot": repeated(first if forget else lambda: cron(rule, tz=zone).next(begin)),
        "cronsim": repeated(lambda: next(CronSim(rule, start))),
        "croniter": repeated(lambda: croniter(rule, start).get_next(datetime)),
    }
