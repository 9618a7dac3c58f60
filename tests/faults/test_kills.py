"""kill -9 of anything, at any moment, under load: nothing acknowledged is lost, early, doubled or unexplained."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.domain.instant import MILLISECOND
from foliot.domain.run import RunView
from foliot.domain.state import PENDING, Outcome, State
from tests.faults import judge
from tests.faults.processes import Fleet, eventually

pytestmark = pytest.mark.faults

ROUNDS = 60 if os.environ.get("FOLIOT_TORTURE") else 4


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, CAMPUS_SCHEDULES="1")
    yield fleet
    fleet.close()


async def everything(store: str) -> tuple[dict[str, RunView], dict[tuple[str, int], Outcome | None], int]:
    app = Foliot(store)
    runs = await judge.read_runs(app)
    attempts: dict[tuple[str, int], Outcome | None] = {}
    for run in runs.values():
        if run.attempt == 1 and run.state is State.SUCCEEDED:
            attempts[run.id, 1] = Outcome.SUCCEEDED
        elif run.attempt:
            for one in (await app.operate.run_async(run.id)).attempts:
                attempts[run.id, one.attempt] = one.outcome
    early = (await app.operate.counts_async())["early"]
    await app.close_async()
    return runs, attempts, early


async def unended(store: str) -> int:
    app = Foliot(store)
    counts = await app.operate.counts_async()
    await app.close_async()
    # Each of the six schedules always has its one next run.
    return sum(counts[str(state)] for state in (*PENDING, State.READY, State.RUNNING, State.HELD)) - 6


async def ticked(store: str) -> bool:
    """Whether all schedules have rows enough to prove anything: what was missed together shares one."""
    app = Foliot(store)
    rows = [await app.operate.runs_async(schedule=f"tick-{number}", limit=50) for number in range(5)]
    await app.close_async()
    return min(map(len, rows)) > 12


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("all_at_once", [True, False], ids=["all at once", "one at a time"])
def test_nothing_acknowledged_is_lost_early_or_doubled_whatever_is_killed(fleet: Fleet, all_at_once: bool) -> None:
    chance = random.Random(7 + all_at_once)
    before: dict[str, RunView] = {}

    for round_ in range(ROUNDS):
        start_what_is_missing(fleet, producing_from=round_ * 1_000_000)
        held = promised_so_far(fleet)
        eventually(partial(more_than, fleet, held), within=30, what=f"a new promise in round {round_}")
        # Fault tests are about real time: the kill falls anywhere between a process's start and its full work.
        time.sleep(chance.uniform(0.2, 2.0))
        if all_at_once:
            fleet.kill_all()
        else:
            fleet.kill(chance.choice(sorted(fleet.alive)))
        if round_ == ROUNDS // 2:
            before, _, _ = asyncio.run(everything(fleet.store))
    if "producer" in fleet.alive:
        fleet.kill("producer")
    start_what_is_missing(fleet)
    eventually(lambda: asyncio.run(unended(fleet.store)) <= 0, within=90, what="the backlog drained: " + fleet.log.name)
    eventually(lambda: asyncio.run(ticked(fleet.store)), within=60, what="ticks enough to prove anything")
    fleet.kill_all()

    runs, attempts, early = asyncio.run(everything(fleet.store))
    promised = judge.acknowledged(fleet.acknowledged)
    log = judge.read_log(fleet.log)
    assert len(promised) > 100, "too little load to prove anything"
    judge.judge_promises(runs, promised)
    judge.judge_executions(log, attempts)
    judge.judge_verdicts_kept(before, runs)
    for number in range(5):
        assert judge.judge_ticks(runs, f"tick-{number}", 200 * MILLISECOND) > 10
    judge.judge_ticks(runs, "latest", 500 * MILLISECOND)
    assert early == 0


def start_what_is_missing(fleet: Fleet, producing_from: int | None = None) -> None:
    if "scheduler" not in fleet.alive:
        fleet.start_scheduler()
    for worker in ("worker-1", "worker-2"):
        if worker not in fleet.alive:
            fleet.start_worker(worker, "--slots", "50")
    if producing_from is not None and "producer" not in fleet.alive:
        fleet.start("producer", "-m", "tests.faults.producer", str(fleet.acknowledged), str(producing_from))


def promised_so_far(fleet: Fleet) -> int:
    return fleet.acknowledged.stat().st_size if fleet.acknowledged.exists() else 0


def more_than(fleet: Fleet, held: int) -> bool:
    return promised_so_far(fleet) > held
