"""The loads: each on a fresh database, for one peer, once. What repeats them by turns is `bench.peers.measure`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bench.peers.adapters import ANSWERING, Broken, Program, Samples, Team
from bench.peers.peers import Peer
from bench.peers.yard import Database, Yard

FAR = 30 * 86_400
"""Seconds from now to where jobs lie that have nothing to do with what is measured."""
LEAD = 6.0
"""Seconds to settle the database and to start the workers, between the last promise and the first due job."""
SETTLE = 2.0
"""Of these, what workers have for themselves once they are ready."""
WARM = 10.0
"""Seconds that schedules tick before they are counted."""
GRACE = 3.0
"""Seconds after the last due time, or tick, at which what has not started counts as not started in time."""
CALLERS = 32
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 3
    bulk: int = 50_000
    promising: float = 4.0
    """Seconds, for bulk and for single promises each."""
    burst: int = 20_000
    patience: float = 60.0
    """Seconds for a burst; what has not finished by then is not waited for."""
    rates: tuple[int, ...] = (500, 2_000)
    seconds: float = 10.0
    pending: int = 1_000_000
    fewer: int = 100_000
    """Pending jobs for peers that would take longer than `filling` for so many."""
    filling: float = 60.0
    schedules: int = 1_000
    ticking: float = 20.0

    def quick(self) -> Sizes:
        return replace(
            self,
            rounds=1,
            bulk=10_000,
            promising=1.0,
            burst=5_000,
            patience=30.0,
            seconds=4.0,
            pending=100_000,
            fewer=10_000,
            filling=10.0,
            schedules=200,
            ticking=6.0,
        )


@dataclass(frozen=True, slots=True)
class Promises:
    """Per second. `bulk` is None for a peer without batches."""

    bulk: float | None
    single: float
    together: float
    """With `CALLERS` at a time."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Jobs that were all due at one moment; seconds after it."""

    count: int
    started: int
    last_start: float
    last_finish: float | None
    """None when not all had finished when patience ended."""
    early: int

    @property
    def start_rate(self) -> float:
        return self.started / self.last_start if self.started else 0.0

    @property
    def finish_rate(self) -> float | None:
        return self.count / self.last_finish if self.last_finish else None


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds from due to start, sorted, of everything that fell due."""

    count: int
    missing: int
    """Not started in time. They are in `late` with what they had waited by then, as if the last due were the ones
    missing: less than the truth, if anything."""
    late: list[float] = field(repr=False)
    early: int
    pending: int = 0

    def quantile(self, share: float) -> float:
        return self.late[min(int(share * len(self.late)), len(self.late) - 1)] if self.late else math.nan


def promises(yard: Yard, peer: Peer, program: Program, sizes: Sizes) -> Promises:
    with yard.fresh(peer.id) as database:
        program.ask(database.dsn, "setup")
        due = int((time.time() + FAR) * 1_000)
        bulk = None
        if peer.has_batches:
            done = program.ask(database.dsn, "promise", count=sizes.bulk, due=due, rate=0, seconds=sizes.promising)
            bulk = done["count"] / done["seconds"]
        rates = []
        for callers in (1, CALLERS):
            done = program.ask(database.dsn, "single", due=due, seconds=sizes.promising, callers=callers)
            rates.append(done["count"] / done["seconds"])
        return Promises(bulk, *rates)


def burst(yard: Yard, peer: Peer, program: Program, sizes: Sizes) -> Burst:
    # A peer that takes very long to fill is given less to do: its rate is the same.
    count = min(sizes.burst, peer.fill_rate * 40)
    with _loaded(yard, peer, program, count) as load:
        until = load.due + sizes.patience
        finished = load.database.wait_until_finished(peer.unfinished, until)
        samples = load.team.collect()
        while finished and len(samples.start) < count and time.time() < until:  # struck off before it ran
            time.sleep(0.5)
            samples = load.team.collect()
    last = max(samples.start, default=until * 1_000) / 1_000
    return Burst(
        count=count,
        started=len(samples.start),
        last_start=last - load.due,
        last_finish=max(finished, last) - load.due if finished else None,
        early=_early(samples),
    )


def steady(
    yard: Yard,
    peer: Peer,
    program: Program,
    sizes: Sizes,
    rate: int,
    template: Template | None = None,
    *,
    is_held: bool = False,
) -> Lateness:
    """`is_held`: meanwhile somebody's transaction keeps the server from forgetting anything, as a backup's does."""
    count = int(rate * sizes.seconds)
    with (
        _loaded(yard, peer, program, count, rate, template) as load,
        load.database.snapshot() if is_held else nullcontext(),
    ):
        end = load.due + sizes.seconds + GRACE
        time.sleep(max(0.0, end - time.time()))
        samples = load.team.collect()
    pairs = zip(samples.start, samples.due, strict=True)
    late = [start - due for start, due in pairs if start <= end * 1_000]
    missing = max(0, count - len(late))
    late += [(end - load.due - place / rate) * 1_000 for place in range(count - missing, count)]
    return Lateness(count, missing, sorted(late), _early(samples), template.pending if template else 0)


class Template(NamedTuple):
    """A database with jobs pending, to be copied."""

    name: str
    pending: int


def fill(database: Database, program: Program, sizes: Sizes) -> Template:
    """Far-future jobs: many, or fewer for a peer that would take too long; Broken when even those take too long."""
    program.ask(database.dsn, "setup")
    due = int((time.time() + FAR) * 1_000)
    done = program.ask(database.dsn, "promise", count=sizes.fewer, due=due, rate=200, seconds=2 * sizes.filling)
    pending = int(done["count"])
    if pending < sizes.fewer:
        raise Broken(f"made only {pending:,} of {sizes.fewer:,} pending jobs in {done['seconds']:.0f} s")
    if done["seconds"] * sizes.pending / sizes.fewer < sizes.filling:
        rest = sizes.pending - sizes.fewer
        done = program.ask(database.dsn, "promise", count=rest, due=due, rate=200, seconds=2 * sizes.filling)
        pending += int(done["count"])
    database.settle()
    return Template(database.name, pending)


def recurring(yard: Yard, peer: Peer, program: Program, sizes: Sizes) -> Lateness:
    with yard.fresh(peer.id) as database:
        program.ask(database.dsn, "setup")
        with program.team(database.dsn, peer.tickers, sizes.schedules) as team:
            begin = math.ceil(time.time() + WARM)
            end = begin + sizes.ticking
            time.sleep(max(0.0, end + GRACE - time.time()))
            samples = team.collect()
    pairs = zip(samples.start, samples.due, strict=True)
    late = sorted(start - due for start, due in pairs if begin * 1_000 <= due < end * 1_000)
    expected = int(sizes.schedules * sizes.ticking)
    return Lateness(expected, max(0, expected - len(late)), late, _early(samples))


def _early(samples: Samples) -> int:
    return sum(start < due for start, due in zip(samples.start, samples.due, strict=True))


class _Load(NamedTuple):
    database: Database
    due: int
    """When the first job is due, in seconds since 1970."""
    team: Team


@contextmanager
def _loaded(
    yard: Yard, peer: Peer, program: Program, count: int, rate: int = 0, template: Template | None = None
) -> Iterator[_Load]:
    """1. Promise, with due times that leave enough time for what follows. 2. Start the workers, and let them settle.

    A machine that was too slow for that gets more time, and a fresh database."""
    lead = LEAD + count / peer.fill_rate
    for _ in range(_TRIES):
        with yard.fresh(peer.id, *([template.name] if template else [])) as database:
            if template is None:
                program.ask(database.dsn, "setup")
            due = math.ceil(time.time() + lead)
            program.ask(database.dsn, "promise", count=count, due=due * 1_000, rate=rate, seconds=ANSWERING)
            database.settle()
            with program.team(database.dsn, peer.workers) as team:
                if time.time() + SETTLE <= due:
                    yield _Load(database, due, team)
                    return
        lead *= 2
    raise Broken(f"{count:,} jobs and {peer.workers} workers were not ready within {lead / 2:.0f} s")
