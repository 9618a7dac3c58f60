"""Limits: what a run needs before it may be handed off, and who may go, who waits, and until when. Pure.

A *gate* is a limit: at most N at a time, or N in a time. A *slot* counts what runs have taken of it. The store locks
the slots, asks here, and writes the answer. The transaction that ends a run frees its slots and lets the next one in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from foliot.domain.identity import checked_name, checked_tenant
from foliot.domain.instant import LAST, MILLISECOND, Duration, Instant, duration, spell
from foliot.errors import InvalidInput

KEY, RATE, DESTINATION, EACH_TENANT = "key:", "rate:", "to:", "tenant:*"
CATCH_UP, BACKFILL = "lane:catch-up", "lane:backfill"
LANES = (CATCH_UP, BACKFILL)
"""A whole lane may be limited, or one thing in it: `lane:backfill/job:X`. The scheduler keeps the rate of catch-up
without slots: it loads a backlog only as fast as that."""

RESERVED_FOR: Duration = 500 * MILLISECOND
"""Of the runs that wait for a rate, those that start within this time have their times already. They keep the rate also
if the scheduler is late. A change of the rate gives them other times."""

GRAIN: Duration = 5 * MILLISECOND
"""A rate above 200/s is kept on average over this time: the starts that it allows in it may come at once. Runs are
handed off in batches, and to give each run of a batch a time of its own would cost more than to start it."""

_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d*\s*[a-z]+)\s*", re.IGNORECASE)


class Rate(NamedTuple):
    """N starts in a time, evenly: one in `every` microseconds."""

    every: Duration

    @classmethod
    def parse(cls, text: Any) -> Rate:
        """`"10/s"`, `"100/m"`, `"5000/h"`, `"1/10s"`."""
        found = _RATE.fullmatch(text) if isinstance(text, str) else None
        try:
            if found is None or int(found[1]) == 0:
                raise InvalidInput("not a count and a time")
            unit = found[2].strip()
            length = duration(unit if unit[0].isdigit() else f"1{unit}")
            if length == 0:
                raise InvalidInput("the time is zero")
            return cls(max(1, length // int(found[1])))
        except InvalidInput as error:
            raise InvalidInput(f'rate={text!r:.80}: write a count and a unit of time, as "10/s" or "500/h"') from error

    @property
    def per_second(self) -> float:
        return 1_000_000 / self.every

    def __str__(self) -> str:
        for unit, length in (("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)):
            if length % self.every == 0:
                return f"{length // self.every}/{unit}"
        return f"1/{spell(self.every)}" if self.every >= MILLISECOND else f"{round(1_000_000 / self.every)}/s"


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit, by the name of what it is about."""

    name: str
    most: int | None = None
    """Runs at a time."""
    every: Duration | None = None
    """Microseconds from one start to the next."""
    burst: int | None = None
    """Starts at once, where the rate was not used before; None: one."""
    weight: float | None = None
    """Of a tenant: its share among others."""
    source: str = "operator"
    changed_at: Instant = 0
    note: str = ""

    @property
    def limits(self) -> bool:
        return self.most is not None or self.every is not None


class GateView(NamedTuple):
    """A limit, and how it stands. Keys that are taken are shown as limits that runs brought with them."""

    gate: Gate
    used: int
    """Runs that have a slot now."""
    waiting: int
    """Runs that are held for it."""


class Wants(NamedTuple):
    """What a run's own settings ask for."""

    key: str | None = None
    key_limit: int = 1
    destination: str | None = None


class Need(NamedTuple):
    """One slot that a run must have."""

    name: str
    most: int
    every: Duration | None = None
    """Of a rate: the slot is one of the few that have their time already."""
    slack: Duration = 0


@dataclass(slots=True)
class Taken:
    """How a slot stands."""

    used: int = 0
    tat: Instant = 0
    """By GCRA, the theoretical arrival time: when the next one would be on time."""


class Verdict(NamedTuple):
    """Who waits, waits for one slot; `at`: it has its time already."""

    waits_for: str | None = None
    at: Instant | None = None
    detail: str | None = None
    """Of what is no slot: why it waits."""

    @property
    def goes(self) -> bool:
        return self.waits_for is None


GO = Verdict()


def key_slot(key: str, tenant: str | None) -> str:
    """Keys are a tenant's own, where there is one."""
    return f"{KEY}{key}" if tenant is None else f"{KEY}{key}[{tenant}]"


def gate_names(
    *, job: str, tenant: str | None, queue: str, schedule: str | None, destination: str | None, lane: str
) -> Iterable[str]:
    """The names under which a run may be limited, one for each thing that it is about."""
    about = [f"job:{job}", f"queue:{queue}"]
    if tenant is not None:
        about.append(f"tenant:{tenant}")
    if schedule is not None:
        about.append(f"schedule:{schedule}")
    if destination is not None:
        about.append(f"{DESTINATION}{destination}")
    yield from about
    if lane != "live":
        yield f"lane:{lane}"
        yield from (f"lane:{lane}/{one}" for one in about)


def needs(gates: Mapping[str, Gate], names: Iterable[str]) -> list[Need]:
    """The slots of the limits that apply, by the names of a run, in the order in which they are locked."""
    found: list[Need] = []
    for name in names:
        gate, each = gates.get(name), each_of(name)
        if each is not None and (gate is None or not gate.limits):
            gate = gates.get(each)  # a tenant of which only the weight is said is one of them, too
        if gate is None:
            continue
        if gate.most is not None:
            found.append(Need(name, gate.most))
        if gate.every is not None:
            found.append(rate_need(name, gate.every, gate.burst or 1))
    return sorted(found)


def each_of(name: str) -> str | None:
    """The limit of each tenant, in the same lane, that a tenant's own goes before; None for what is no tenant's."""
    lane = next((f"{lane}/" for lane in LANES if name.startswith(f"{lane}/")), "")
    return f"{lane}{EACH_TENANT}" if name.startswith(f"{lane}tenant:") else None


def slotted(gate: Gate) -> Gate:
    """What runs take slots for: all of a limit, but for the rate of catch-up."""
    return replace(gate, every=None, burst=None) if gate.name == CATCH_UP else gate


def rate_need(name: str, every: Duration, burst: int = 1) -> Need:
    slack = max((burst - 1) * every, GRAIN - every)
    return Need(f"{RATE}{name}", max(1, RESERVED_FOR // every), every, min(slack, LAST))


def admit(wanted: Sequence[Need], has: frozenset[str], board: Mapping[str, Taken], now: Instant) -> Verdict:
    """Whether a run may go. If so, what it takes is noted on the board; otherwise one slot is named that it waits for.

    `has`: slots that it was given before: it kept its key from an earlier attempt, or was let in. All or nothing: a run
    that waits for one slot takes none of the others.
    """
    missing = [need for need in wanted if need.name not in has]
    for need in missing:
        if need.every is None and board[need.name].used >= need.most:
            return Verdict(need.name)
    for need in missing:
        if need.every is None:
            continue
        taken = board[need.name]
        at = max(now, taken.tat - need.slack)
        if at > now:
            if taken.used >= need.most:
                return Verdict(need.name)
            [at] = times_of(need, taken, 1, now)
            return Verdict(need.name, at)
    for need in missing:
        taken = board[need.name]
        if need.every is None:
            taken.used += 1
        else:
            taken.tat = max(taken.tat, now) + need.every
    return GO


def admit_all(wanted: Iterable[tuple[Need, int]], board: Mapping[str, Taken], now: Instant) -> bool:
    """Whether there is room for all of a batch: for each slot, the number of runs that need it. If so, the board notes
    that they are taken. If not, nothing is taken, and `admit` decides about each run."""
    asked: dict[str, tuple[Need, int]] = {}
    for need, count in wanted:
        known, before = asked.get(need.name, (need, 0))
        if known != need:
            return False  # two runs with one key, and different limits of it
        asked[need.name] = need, before + count
    for need, count in asked.values():
        taken = board[need.name]
        if need.every is None:
            if taken.used + count > need.most:
                return False
        elif max(taken.tat, now) + (count - 1) * need.every - need.slack > now:
            return False
    for need, count in asked.values():
        if need.every is None:
            board[need.name].used += count
        else:
            board[need.name].tat = max(board[need.name].tat, now) + count * need.every
    return True


def times_of(need: Need, taken: Taken, count: int, now: Instant) -> list[Instant]:
    """The times of the next `count` starts by a rate, which they take. A start may come earlier than its theoretical
    time by the slack. Of a rate above 200/s, the starts of one step come at one moment, so that they are one batch."""
    assert need.every is not None
    first = max(taken.tat, now)
    taken.used += count
    taken.tat = first + count * need.every
    step = GRAIN - need.every
    if step <= 0:
        return [max(now, first + place * need.every - need.slack) for place in range(count)]
    on_time = (first + place * need.every for place in range(count))
    return [max(now, at - need.slack, at - at % step) for at in on_time]


def kept(names: Iterable[str]) -> list[str]:
    """What a run does not give back between two attempts: its key."""
    return [name for name in names if name.startswith(KEY)]


def held_until_its_end(wanted: Iterable[Need]) -> list[str]:
    """What a run that goes keeps; a rate is used up with the start."""
    return [need.name for need in wanted if need.every is None]


def waiting_for(name: str) -> str:
    """In words."""
    if name.startswith(KEY):
        return f"the end of another run with the key {name.removeprefix(KEY)}"
    if name.startswith(f"{RATE}breaker:"):
        return f"an answer of {name.removeprefix(f'{RATE}breaker:')}"
    if name.startswith(RATE):
        return f"the rate limit of {name.removeprefix(RATE)}"
    if name.startswith("upstream:"):
        return f"a useful result of {name.removeprefix('upstream:')}"
    if name.startswith("turn:"):
        return f"the end of the earlier run of {name.removeprefix('turn:')}"
    return f"a slot of {name}"


# ------------------------------------------------------------------------------------------------------ what people say

MOST_AT_A_TIME, MOST_BURST, MOST_WEIGHT = 1_000_000, 10_000, 1_000.0
_MOST_LETTERS = 200
_ABOUT = ("job", "queue", "schedule")


def stated_gate(
    name: str,
    *,
    concurrency: int | None = None,
    rate: str | Rate | None = None,
    burst: int | None = None,
    weight: float | None = None,
    note: str = "",
) -> Gate:
    """A limit as an operator or an app states it, checked. A concurrency of 0 lets no run in."""
    checked_gate_name(name)
    if name == CATCH_UP and burst is not None:
        raise InvalidInput(
            f"{name}: burst={burst!r:.80}: lanes drain evenly and have no burst; give a rate without a burst"
        )
    every = None if rate is None else (rate if isinstance(rate, Rate) else Rate.parse(rate)).every
    if concurrency is None and every is None and weight is None:
        raise InvalidInput(f'{name}: give a concurrency such as 5, or a rate such as "10/s"')
    if concurrency is not None:
        _check_count(name, "concurrency", concurrency, 0, MOST_AT_A_TIME)
    if burst is not None:
        _check_count(name, "burst", burst, 1, MOST_BURST)
        if every is None:
            raise InvalidInput(f"{name}: burst={burst}: a burst requires a rate; give both")
    if weight is not None:
        _check_weight(name, weight)
    return Gate(name, concurrency, every, burst, weight, note=note)


def checked_gate_name(name: str) -> str:
    """What a limit may be about, or a clear refusal."""
    if not isinstance(name, str):
        raise InvalidInput(f"{name!r:.80}: give the name of what is limited, such as job:report")
    if name in LANES:
        return name
    about = next((name.removeprefix(f"{lane}/") for lane in LANES if name.startswith(f"{lane}/")), name)
    if about == EACH_TENANT:
        return name
    kind, _, rest = about.partition(":")
    if kind in _ABOUT:
        checked_name(rest, kind)
    elif kind == "tenant":
        checked_tenant(rest)
    elif kind != "to" or not 1 <= len(rest) <= _MOST_LETTERS or not rest.isprintable():
        raise InvalidInput(
            f"{name!r:.80} is not the name of a limit; use job:X, queue:X, schedule:X, tenant:X, tenant:* (each "
            f"tenant), to:X (destination), {CATCH_UP}, {BACKFILL}, or a subject in a lane, as in {BACKFILL}/job:X"
        )
    return name


def _check_count(name: str, what: str, given: Any, least: int, most: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInput(f"{name}: {what}={given!r:.80}: give a whole number from {least} to {most}")


def _check_weight(name: str, given: Any) -> None:
    if not name.startswith("tenant:"):
        raise InvalidInput(
            f"{name}: weight={given!r:.80}: only tenants have weights: tenant:X, or tenant:* for all others"
        )
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= MOST_WEIGHT:
        raise InvalidInput(f"{name}: weight={given!r:.80}: give a number above 0, up to {MOST_WEIGHT:g}")


def in_words(gate: Gate) -> str:
    """`5 at a time, 10/s (3 at once), weight 2`."""
    said = []
    if gate.most is not None:
        said.append(f"{gate.most:,} at a time")
    if gate.every is not None:
        said.append(str(Rate(gate.every)) + (f" ({gate.burst:,} at once)" if gate.burst else ""))
    if gate.weight is not None:
        said.append(f"weight {gate.weight:g}")
    return ", ".join(said) or "no limit"
