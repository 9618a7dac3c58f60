"""Workers that vanish with many runs, in virtual time: when the runs go on, and what suspicion makes wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.state import Outcome, State
from foliot.testing import World, virtual_time

CROWD = 100
LEASE = timedelta(seconds=30)


class Office:
    """Jobs that go on until the test lets them end, and what executes at the moment."""

    def __init__(self) -> None:
        self.app = Foliot(backoff="1s", backoff_cap="1s")
        self.begun: Counter[int] = Counter()
        self.executing: dict[int, asyncio.Event] = {}
        self.world: World
        self.job: Any = self.app.job(attempts=1)(self.work)

    async def work(self, n: int) -> int:
        self.begun[n] += 1
        self.executing[n] = gate = asyncio.Event()
        try:
            await gate.wait()
        finally:
            del self.executing[n]
        return n

    def promise(self, numbers: range) -> None:
        for n in numbers:
            self.job.using(key=f"run-{n}").now(n=n)
        self.world.run_for("1s")

    def kill_all_workers(self, length: timedelta = LEASE) -> None:
        """Another worker is there already. A lease later, and a little more, all is as it stays."""
        self.world.add_worker()
        self.world.kill_worker(0)
        assert not self.executing
        self.world.run_for(length + timedelta(seconds=5))

    def end(self, numbers: list[int]) -> None:
        async def open_gates() -> None:
            for n in numbers:
                self.executing[n].set()

        self.world.call(open_gates())
        self.world.run_for("1s")

    def end_all(self) -> int:
        """Ends what executes until nothing does; answers how often that was done."""
        rounds = 0
        while self.executing:
            self.end(list(self.executing))
            rounds += 1
        return rounds


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    with virtual_time(made.app, slots=CROWD) as world:
        made.world = world
        yield made


def outcomes(office: Office, n: int) -> list[Outcome | None]:
    return [attempt.outcome for attempt in office.world.run(f"run-{n}#1").attempts]


def test_all_runs_of_a_killed_worker_are_running_again_within_one_lease_and_five_seconds(office: Office) -> None:
    office.promise(range(CROWD))
    office.kill_all_workers()
    assert len(office.executing) == CROWD
    assert set(office.begun.values()) == {2}
    assert office.end_all() == 1
    assert office.world.states() == [State.SUCCEEDED] * CROWD


def test_after_a_second_loss_half_of_the_slots_execute_the_runs_and_ordinary_ones_go_on_beside_them(
    office: Office,
) -> None:
    office.promise(range(CROWD))
    office.kill_all_workers()
    office.kill_all_workers()
    assert len(office.executing) == CROWD // 2
    office.promise(range(CROWD, CROWD + 30))
    assert set(range(CROWD, CROWD + 30)) <= set(office.executing), "runs without suspicion wait for nothing"
    first = [n for n in office.executing if n < CROWD]
    office.end(first[:10])
    assert len([n for n in office.executing if n < CROWD]) == CROWD // 2, "each one that ends makes room for another"
    office.end_all()
    assert office.world.states() == [State.SUCCEEDED] * (CROWD + 30)


def test_a_run_that_waits_under_suspicion_says_so_and_the_doctor_counts_it(office: Office) -> None:
    office.promise(range(CROWD))
    for _ in range(3):
        office.kill_all_workers()
    executing = len(office.executing)
    assert executing == CROWD // 2, "half of them were lost twice, and half three times"
    operate = office.app.operate
    counts = office.world.call(office.world.store.counts())
    assert counts["suspected"] == CROWD - executing
    waiting = next(n for n in range(CROWD) if n not in office.executing)
    losses = outcomes(office, waiting).count(Outcome.LOST)
    text = operate.story(f"run-{waiting}#1")[-1].text
    assert text == (
        f"suspected of crashing workers: lost {losses} times in a row; a worker with 100 slots executes at most "
        f"{100 >> (losses - 1)} such runs together"
    )


def test_three_kills_of_the_whole_fleet_make_no_run_dead_and_cost_none_an_attempt(office: Office) -> None:
    office.promise(range(CROWD))
    for _ in range(3):
        office.kill_all_workers()
    office.end_all()
    assert office.world.states() == [State.SUCCEEDED] * CROWD
    for n in range(CROWD):
        run = office.world.run(f"run-{n}#1")
        assert run.spent == 1, "the success alone was charged"
        assert outcomes(office, n)[:-1] in ([Outcome.LOST] * 2, [Outcome.LOST] * 3)


def test_a_run_that_was_lost_twice_and_then_failed_is_under_no_suspicion(office: Office) -> None:
    office.promise(range(1))
    office.kill_all_workers()
    office.kill_all_workers()
    assert office.world.run("run-0#1").deaths == 0
    office.end_all()
    office.world.run_for("1s")
    assert office.world.run("run-0#1").deaths is None
