"""kill -9 of anything, at any moment, under load: nothing acknowledged is lost, early, doubled or unexplained."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.domain.instant import MILLISECOND
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, TERMINAL, Outcome, State
from tests.faults import judge
from tests.faults.processes import Fleet
from tests.tiers import by_tier
from tests.waiting import until

pytestmark = pytest.mark.faults

ROUNDS = by_tier(3, 8, 60)
LIVE = [state for state in State if state not in TERMINAL | PARKED]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, CAMPUS_SCHEDULES="1")
    yield fleet
    fleet.close()


async def everything(app: Foliot) -> tuple[dict[str, RunView], dict[tuple[str, int], Outcome | None], int]:
    runs = await judge.read_runs(app)
    attempts: dict[tuple[str, int], Outcome | None] = {}
    for run in runs.values():
        if run.attempt == 1 and run.state is State.SUCCEEDED:
            attempts[run.id, 1] = Outcome.SUCCEEDED
        elif run.attempt:
            for one in (await app.operate.run_async(run.id)).attempts:
                attempts[run.id, one.attempt] = one.outcome
    return runs, attempts, (await app.operate.counts_async())["early"]


async def is_drained(app: Foliot) -> bool:
    """Whether no run that a producer promised is still to end. Schedules always have a next run."""
    return not await app.operate.runs_async(job="record", states=LIVE, limit=1)


async def has_ticked(app: Foliot) -> bool:
    """Whether all schedules have rows enough to prove anything: ticks that were missed together share one."""
    rows = [await app.operate.runs_async(schedule=f"tick-{number}", limit=50) for number in range(5)]
    return min(map(len, rows)) > 12


@pytest.mark.timeout(by_tier(600, 1_800))
@pytest.mark.parametrize("all_at_once", [True, False], ids=["all at once", "one at a time"])
def test_nothing_acknowledged_is_lost_early_or_doubled_whatever_is_killed(fleet: Fleet, all_at_once: bool) -> None:
    chance = random.Random(7 + all_at_once)
    before: dict[str, RunView] = {}

    for round_ in range(ROUNDS):
        start_what_is_missing(fleet, producing_from=round_ * 1_000_000)
        wait_for_promises(fleet, chance)
        if all_at_once:
            fleet.kill_all()
        else:
            fleet.kill(chance.choice(sorted(fleet.alive)))
        if round_ == ROUNDS // 2:
            before, _, _ = fleet.ask(everything)
    if "producer" in fleet.alive:
        fleet.kill("producer")
    start_what_is_missing(fleet)
    wait_until_drained(fleet)
    fleet.kill_all()
    judge_all(fleet, before)


def start_what_is_missing(fleet: Fleet, producing_from: int | None = None, schedulers: int = 1) -> None:
    for number in range(schedulers):
        if f"scheduler-{number}" not in fleet.alive:
            fleet.start_scheduler(f"scheduler-{number}")
    for number in range(2):
        if f"worker-{number}" not in fleet.alive:
            fleet.start_worker(f"worker-{number}", "--slots", "50")
    if producing_from is not None and "producer" not in fleet.alive:
        fleet.start("producer", "tests.faults.producer", str(fleet.acknowledged), str(producing_from))


def promised_so_far(fleet: Fleet) -> int:
    return len(judge.acknowledged(fleet.acknowledged)) if fleet.acknowledged.exists() else 0


def wait_for_promises(fleet: Fleet, chance: random.Random) -> None:
    """Until a random number of promises more is acknowledged: the fault then falls anywhere between the start of a
    process and its full work."""
    enough = promised_so_far(fleet) + chance.randint(1, 300)
    until(lambda: promised_so_far(fleet) >= enough, f"the store has acknowledged {enough} promises")


def wait_until_drained(fleet: Fleet) -> None:
    until(lambda: fleet.ask(is_drained), "no promise is still to be kept")
    until(lambda: fleet.ask(has_ticked), "the schedules have ticked enough to prove anything")


def judge_all(fleet: Fleet, before: dict[str, RunView]) -> None:
    runs, attempts, early = fleet.ask(everything)
    promised = judge.acknowledged(fleet.acknowledged)
    assert len(promised) > 100, "too little load to prove anything"
    judge.judge_promises(runs, promised)
    judge.judge_executions(judge.read_log(fleet.log), attempts)
    judge.judge_verdicts_kept(before, runs)
    for number in range(5):
        assert judge.judge_ticks(runs, f"tick-{number}", 200 * MILLISECOND) > 10
    judge.judge_ticks(runs, "latest", 500 * MILLISECOND)
    assert early == 0
