"""Due work, from promise to history: everything at one moment, or spread evenly over some time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.fleet import Stuck, Watcher, fleet
from bench.jobs import NOTE, app, class_id, noop
from bench.raw import Raw, now
from foliot import bootstrap
from foliot.domain.instant import SECOND, Instant, to_datetime
from foliot.domain.run import Promise

LEAD = 3.5
"""Seconds from the first promise of a few to the moment at which they are due; many get more."""
SETTLE = 1.0
"""Seconds between the last process being ready and the first due run: the wheel is loaded by then."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Burst:
    """Runs that were all due at one moment."""

    count: int
    last_start: float
    """Seconds after the moment."""
    last_finish: float
    """Likewise, until the last ending was durable: what the ceiling counts, too."""
    early: int
    tries: int = 1

    @property
    def start_rate(self) -> float:
        return self.count / self.last_start

    @property
    def finish_rate(self) -> float:
        return self.count / self.last_finish


@dataclass(frozen=True, slots=True)
class Steady:
    """Runs that fell due one after another; how late each of them started, in milliseconds, sorted."""

    lateness: list[float]
    early: int
    tries: int = 1

    def quantile(self, share: float) -> float:
        return self.lateness[min(int(share * len(self.lateness)), len(self.lateness) - 1)]


def burst(path: Path, count: int, slots: int) -> Burst:
    drained = _drained(path, slots, count, lambda due: [due] * count)
    return Burst(
        count=count,
        last_start=(max(started for _, started in drained.times) - drained.due) / SECOND,
        last_finish=(drained.recorded - drained.due) / SECOND,
        early=sum(started < fire_at for fire_at, started in drained.times),
        tries=drained.tries,
    )


def steady(path: Path, rate: int, seconds: float, slots: int) -> Steady:
    count = int(rate * seconds)
    drained = _drained(path, slots, count, lambda due: [due + place * SECOND // rate for place in range(count)])
    late = sorted((started - fire_at) / 1_000 for fire_at, started in drained.times)
    return Steady(late, sum(one < 0 for one in late), drained.tries)


def together(parts: list[Steady]) -> Steady:
    return Steady(sorted(late for part in parts for late in part.lateness), sum(part.early for part in parts))


class _Drained(NamedTuple):
    times: list[tuple[Instant, Instant]]
    """When each run was due, and when it started."""
    due: Instant
    recorded: Instant
    """When the last of them was in history."""
    tries: int


def _drained(path: Path, slots: int, count: int, spread: Callable[[Instant], list[Instant]]) -> _Drained:
    """1. Promise, with due times that leave enough time for what follows. 2. Start the processes, and let them load.
    3. Wait until everything has ended. A machine that was too slow for 1 and 2 gets more time, and tries again."""
    with Raw(path):
        pass  # makes the tables
    lead = LEAD + count / 25_000
    for tried in range(1, _TRIES + 1):
        # The watcher is there from the beginning: a log that nobody has open any more is removed, and grows anew.
        with Watcher(path) as watcher:
            due = now() + int(lead * SECOND)
            times = spread(due)
            promise(path, times)
            before = watcher.ended()
            with fleet(path, watcher, slots) as running:
                is_ready = now() + int(SETTLE * SECOND) <= due
                time.sleep(max(0.0, (times[-1] - now()) / SECOND))
                recorded = running.wait_for(before + count, patience=60.0)
            if is_ready:
                return _Drained(watcher.times_since(before), due, recorded, tried)
        lead *= 2
    raise Stuck(f"{count} promises and two processes were not ready within {lead / 2:.0f} s")


def promise(path: Path, times: list[Instant]) -> None:
    """Through the app, as a user would."""
    app.store = bootstrap.make_store(f"sqlite:///{path}")
    try:
        for start in range(0, len(times), 1_000):
            app.promise_many(made(times[start : start + 1_000], start))
    finally:
        app.close()


def made(times: list[Instant], place: int = 0) -> list[Promise]:
    return [
        noop.promise_at(to_datetime(fire_at), class_id=class_id(place + offset), note=NOTE)
        for offset, fire_at in enumerate(times)
    ]
