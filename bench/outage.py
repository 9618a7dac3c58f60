"""`python -m bench outage`: what becomes of live work while the backlog of an outage drains.

Forty thousand customers have one run each every quarter of an hour, and the scheduler was gone for 25 minutes: 100,000
runs are overdue when it starts, and the others go on falling due. On each engine, in this order: the live load alone;
the live load beside the backlog, at the rate that was chosen; the same without a rate. What is told: how late live runs
start, how fast the backlog drains, and whether every run ran once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.company import Company, Witness
from bench.fleet import APP
from bench.jobs import NOTE, class_id, noop
from bench.outage_plot import plot
from foliot import bootstrap
from foliot.domain.gates import Gate, stated_gate
from foliot.domain.instant import MINUTE, SECOND, Instant, to_datetime
from foliot.domain.run import Lane, RunView
from foliot.domain.state import State
from foliot.domain.store import Store

CUSTOMERS, EVERY = 40_000, 15 * MINUTE
OUTAGE = 25 * MINUTE
LEAD = 2 * SECOND
"""From the moment at which both processes are there to the first live run."""
PATIENCE = 120.0
"""Seconds without an ending, after which something is wrong."""
AFTERMATH = 0.1
"""Seconds in which what a standstill has left behind is done."""
DISK = Path("/var/tmp")
"""Not in memory, where /tmp may be."""


@dataclass(slots=True)
class Story:
    """One load on one engine."""

    engine: str
    name: str
    rate: float | None
    """The one that was chosen for the catch-up lane."""
    promised: int
    live: list[tuple[float, float]] = field(default_factory=list)
    """For each live run: the second at which it was due, and how many milliseconds later it started; by time."""
    late: list[float] = field(default_factory=list)
    """For each overdue run: the second at which it was handed off; by time."""
    started: list[float] = field(default_factory=list)
    """The same, when it started."""
    ended: int = 0
    early: int = 0
    standstills: list[tuple[float, float]] = field(default_factory=list)
    """From which second to which the machine stood still."""

    def lateness(self, share: float, *, undisturbed: bool = False) -> float:
        """`undisturbed`: of those that did not wait while the machine stood still, or just after."""
        ordered = sorted(late for due, late in self.live if not undisturbed or not self._is_caught(due, late))
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def _is_caught(self, due: float, late: float) -> bool:
        return any(due < ended + AFTERMATH and began < due + late / 1_000 for began, ended in self.standstills)

    @property
    def drained_at(self) -> float | None:
        """Overdue runs handed off in a second, from the first to the last."""
        return len(self.late) / (self.late[-1] - self.late[0]) if self.late else None


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench outage", description=__doc__)
    parser.add_argument("--engine", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--overdue", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1_500, help="runs per second of the catch-up lane")
    parser.add_argument("--seconds", type=int, default=45, help="length of the live load alone")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    company, stories = Company(), []
    for engine in given.engine or ("sqlite", "postgres"):
        for found in _stories(engine, given.overdue, given.rate, given.seconds):
            stories.append(found)
            print(_told(found), flush=True)
    others = company.share()
    print(f"meanwhile, other processes used {'?' if others is None else format(others, '.0%')} of the machine")
    shape = {"others": others, "stories": [asdict(story) for story in stories]}
    (given.out / "outage.json").write_text(json.dumps(shape) + "\n", "utf-8")
    plot(stories, given.out / "outage.png")


def _told(story: Story) -> str:
    late = " / ".join(f"{story.lateness(share):.1f}" for share in (0.5, 0.99, 1.0))
    text = f"{story.engine:9} {story.name:22} live p50 / p99 / max {late} ms"
    stood = sum(ended - began for began, ended in story.standstills)
    text += f" (p99 {story.lateness(0.99, undisturbed=True):.1f} but for {stood:.2f} s of standstill)" if stood else ""
    if story.drained_at is not None:
        text += f"; {len(story.late):,} overdue at {story.drained_at:,.0f}/s"
        text += f" ({story.drained_at / story.rate:.1%} of the rate)" if story.rate else ""
    return f"{text}; {story.ended:,} of {story.promised:,} ended, {story.early} early"


def _stories(engine: str, overdue: int, rate: int, seconds: int) -> Iterator[Story]:
    with _store(engine) as url:
        yield asyncio.run(_played(url, Story(engine, "quiet", None, 0), 0, seconds))
        length = overdue // rate + 10
        yield asyncio.run(_played(url, Story(engine, f"catching up at {rate:,}/s", rate, 0), overdue, length))
        yield asyncio.run(_played(url, Story(engine, "catching up, no rate", None, 0), overdue, length // 2))


@contextmanager
def _store(engine: str) -> Iterator[str]:
    if engine == "sqlite":
        with tempfile.TemporaryDirectory(dir=DISK) as folder:
            yield f"sqlite:///{folder}/foliot.db"
        return
    from tests.servers.postgres import PostgresServer

    with PostgresServer(directory=DISK, settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        yield server.dsn()


async def _played(url: str, story: Story, overdue: int, seconds: int) -> Story:
    """1. Promise what is overdue. 2. Start the processes, and promise the live load as soon as they are there: they
    have the backlog to do then. 3. Wait until all of it has ended."""
    store = bootstrap.make_store(url)
    await store.open()
    try:
        if story.rate is not None:
            await store.set_limit(stated_gate("lane:catch-up", rate=f"{story.rate:g}/s"), actor="bench")
        else:
            await store.set_limit(Gate("lane:catch-up"), actor="bench")
        before, _ = await store.last_positions()
        now = time.time_ns() // 1_000
        await _promise(store, [now - MINUTE - OUTAGE + place * OUTAGE // overdue for place in range(overdue)])
        with _processes(url) as running:
            while len(await store.instances()) < len(running):  # noqa: ASYNC110 - they are in other processes
                await asyncio.sleep(0.05)
            began = time.time_ns() // 1_000
            due = [began + LEAD + place * EVERY // CUSTOMERS for place in range(seconds * SECOND * CUSTOMERS // EVERY)]
            await _promise(store, due)
            story.promised = overdue + len(due)
            with Witness() as witness:
                # Nothing is asked meanwhile: this machine has two cores, and they are wanted.
                await asyncio.sleep(max(due[-1] / SECOND - time.time(), 0) + 1.0)
            story.standstills = [
                (one.began - began / SECOND, one.ended - began / SECOND) for one in witness.standstills
            ]
            _judge(story, await _ended(store, before, story.promised), began)
        return story
    finally:
        await store.close()


async def _promise(store: Store, times: list[Instant]) -> None:
    for start in range(0, len(times), 1_000):
        await store.promise(
            [
                noop.promise_at(to_datetime(fire_at), class_id=class_id(start + offset), note=NOTE)
                for offset, fire_at in enumerate(times[start : start + 1_000])
            ]
        )


@contextmanager
def _processes(url: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """As a user would start them; should the bench be killed, they end by themselves."""
    begin = [sys.executable, "-m", "foliot"]
    where = ["--app", str(APP), "--supervised-by", str(os.getpid())]
    running = [
        subprocess.Popen(
            [*begin, role, *where, *options],
            env={**os.environ, "FOLIOT_STORE": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for role, options in {"scheduler": (), "worker": ("--slots", "200")}.items()
    ]
    try:
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


async def _ended(store: Store, position: int, count: int) -> list[RunView]:
    """What ended after a position, as soon as there is so much of it."""
    found: list[RunView] = []
    heard = time.monotonic()
    while len(found) < count and time.monotonic() - heard < PATIENCE:
        await asyncio.sleep(1.0)
        while page := await store.ended_since(position, 2_000):
            found, position, heard = found + page, page[-1].position, time.monotonic()
    return found


def _judge(story: Story, runs: list[RunView], began: Instant) -> None:
    for run in runs:
        assert run.started_at is not None
        assert run.fired_at is not None
        started = (run.started_at - began) / SECOND
        if run.lane is Lane.LIVE:
            story.live.append(((run.fire_at - began) / SECOND, (run.started_at - run.fire_at) / 1_000))
        else:
            story.late.append((run.fired_at - began) / SECOND)
            story.started.append(started)
        story.early += run.started_at < run.fire_at
    story.ended = len({run.number for run in runs if run.state is State.SUCCEEDED})
    for times in (story.live, story.late, story.started):
        times.sort()
