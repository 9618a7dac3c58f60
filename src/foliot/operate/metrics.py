"""What the store knows of the whole fleet, for Prometheus: one process tells it for all of them.

What waits is counted whenever somebody asks. What takes the store long to count (every run, every schedule) is counted
again only after twenty times as long as that took: a look costs no more than a twentieth of the time, however large the
store is, and `foliot_measured_age_seconds` says how old these numbers are.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from foliot.domain import metrics
from foliot.domain.alerts import KINDS, silence
from foliot.domain.breaker import BREAKER
from foliot.domain.gates import GateView
from foliot.domain.instant import SECOND, Instant
from foliot.domain.metrics import MOST_SERIES, OTHER, Names
from foliot.domain.state import State
from foliot.domain.store import Instance, Store
from foliot.domain.store.measuring import Backlog, ScheduleAge
from foliot.exposition import CONTENT_TYPE as CONTENT_TYPE
from foliot.exposition import Told, rendered

PART = 20
"""Counting takes no more than one part in so many of the time."""
LEAST_REST = 5.0
"""Seconds; nobody needs these more often."""

LIVE = [state for state in State if state < State.SUCCEEDED or state >= State.UNVERIFIED]


class Slow(NamedTuple):
    """What takes long to count."""

    at: float
    took: float
    live: Mapping[State, int]
    schedules: Sequence[ScheduleAge]

    def is_fresh(self, now: float) -> bool:
        return now - self.at < max(self.took * PART, LEAST_REST)


class FleetMetrics:
    """Remembers where it stands between two looks; several who ask at once share one."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[Store]],
        *,
        most_series: int = MOST_SERIES,
        tenants: int = 0,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tenants`: for so many of those who wait most it tells how many of their runs do."""
        self._opened = opened
        self._most = most_series
        self._tenants = tenants
        self._passed = passed
        self._jobs = Names(most_series)
        self._position: int | None = None
        self._ended: Counter[tuple[str, str]] = Counter()
        self._attempts: Counter[str] = Counter()
        self._slow: Slow | None = None
        self._looking = asyncio.Lock()

    async def render(self) -> bytes:
        async with self._looking:
            return rendered(await self._told())

    async def _told(self) -> list[Told]:
        store = await self._opened()
        await self._follow(store)
        slow = await self._measured(store)
        now, backlog = await store.now(), await store.backlog()
        found = [
            *self._of_runs(backlog, now),
            (metrics.ALERTS_OPEN, await _alerts(store, backlog, now)),
            (metrics.ALERT_RUNS, _alert_runs(backlog)),
            *_of_fleet(await store.instances()),
            *self._of_limits(await store.limits()),
            *self._of_schedules(slow, now),
            (metrics.MEASURED_AGE, self._passed() - slow.at),
        ]
        if self._tenants:
            waiting = await store.tenants_waiting(self._tenants)
            found.append((metrics.TENANT_WAITING, {(one.tenant or "",): float(one.waiting) for one in waiting}))
        return found

    async def _follow(self, store: Store) -> None:
        """Counts what has ended since the last look; each run once."""
        self._position, ended = await store.ended_counts(self._position)
        for one in ended:
            job = self._jobs.of(one.job)
            self._ended[job, str(one.state)] += one.runs
            self._attempts[job] += one.attempts

    async def _measured(self, store: Store) -> Slow:
        if self._slow is None or not self._slow.is_fresh(self._passed()):
            began = self._passed()
            live, schedules = await store.live_counts(), await store.schedule_ages()
            ended = self._passed()
            self._slow = Slow(ended, ended - began, live, schedules)
        return self._slow

    def _of_runs(self, backlog: Backlog, now: Instant) -> Iterator[Told]:
        yield metrics.RUNS_EARLY, backlog.early
        yield metrics.OVERDUE, backlog.overdue
        yield metrics.ENDED, {names: float(count) for names, count in self._ended.items()}
        yield metrics.SPENT, {(job,): float(count) for job, count in self._attempts.items()}
        parked = ((one.job, one.state, one.runs) for one in backlog.parked)
        yield metrics.PERSON, _summed(((self._jobs.of(job), str(state)), runs) for job, state, runs in parked)
        queues = Names(self._most)
        yield metrics.QUEUE_WAITING, _summed(((queues.of(one.queue),), one.waiting) for one in backlog.queues)
        ages = (((queues.of(one.queue),), max(now - one.oldest, 0) / SECOND) for one in backlog.queues)
        yield metrics.QUEUE_OLDEST, _longest(ages)
        yield metrics.LANE_WAITING, {(str(lane),): float(count) for lane, count in backlog.lanes.items()}

    def _of_schedules(self, slow: Slow, now: Instant) -> Iterator[Told]:
        yield metrics.RUNS, {(str(state),): float(slow.live.get(state, 0)) for state in LIVE}
        standings = Counter(_standing(one) for one in slow.schedules)
        yield metrics.SCHEDULES, {(name,): float(standings[name]) for name in ("active", "paused", "set_aside")}
        # By name, so that the same ones are told again and again; of the rest, the one that was longest of no use.
        names = Names(self._most)
        ages = ((one.schedule, one.useful_at or one.made_at) for one in slow.schedules if _standing(one) != "paused")
        yield metrics.USEFUL_AGE, _longest(((names.of(name),), max(now - at, 0) / SECOND) for name, at in ages)

    def _of_limits(self, limits: Sequence[GateView]) -> Iterator[Told]:
        broken = [one for one in limits if one.gate.name.startswith(BREAKER)]
        others = [one for one in limits if not one.gate.name.startswith(BREAKER)]
        places, names = Names(self._most), Names(self._most)
        yield (
            metrics.BREAKER_OPEN,
            _summed(((places.of(one.gate.name.removeprefix(BREAKER)),), 1) for one in broken),
        )
        named = [(names.of(_limit_name(one)), one) for one in others]
        yield metrics.LIMIT_USED, _summed(((name,), one.used) for name, one in named)
        yield metrics.LIMIT_WAITING, _summed(((name,), one.waiting) for name, one in named)


def _standing(one: ScheduleAge) -> str:
    return "set_aside" if one.is_faulty else "paused" if one.is_paused else "active"


def _limit_name(view: GateView) -> str:
    """Keys are as many as there are customers, and tenants too: both are told together."""
    name = view.gate.name
    return next((f"{kind}{OTHER}" for kind in ("key:", "tenant:") if name.startswith(kind)), name)


async def _alerts(store: Store, backlog: Backlog, now: Instant) -> dict[tuple[str, ...], float]:
    """With the one that nobody can open who does not live: that nobody watches."""
    found: dict[tuple[str, ...], float] = {names: float(count) for names, count in backlog.alerts.items()}
    silent = silence((await store.recall()).looked_at, now)
    if silent is not None:
        found[str(silent.kind), str(KINDS[silent.kind].severity)] = 1.0
    return found


def _alert_runs(backlog: Backlog) -> dict[tuple[str, ...], float]:
    return {names: float(runs) for names, runs in backlog.alert_runs.items()}


def _of_fleet(instances: Iterable[Instance]) -> Iterator[Told]:
    found = Counter((one.role, one.version) for one in instances)
    yield metrics.INSTANCES, {names: float(count) for names, count in found.items()}


def _summed(series: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for names, value in series:
        found[names] = found.get(names, 0.0) + value
    return found


def _longest(series: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for names, value in series:
        found[names] = max(found.get(names, 0.0), value)
    return found
