"""What a killed worker costs: a run that kills its workers is found, and the others go on at once and uncharged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.domain.recovery import Action
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, Reason, State
from foliot.operate.advising import Guidance
from tests.faults import venom
from tests.faults.processes import Fleet
from tests.tiers import only_in_full
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(venom.__file__)
CROWD = 100
WHOLE = ("--reserve", "0", "--slots")
"""Options of a worker: all its slots may serve runs that were promised more than two seconds before the scheduler
started, as they are on a slow machine."""


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    folder = tmp_path / "begun"
    folder.mkdir()
    return folder


def test_all_runs_of_a_killed_worker_execute_together_in_the_one_that_is_left(fleet: Fleet, begun: Path) -> None:
    """No run ends before all have begun again, so a worker that tried them one after the other would never come to an
    end."""
    life = venom.LIVES + 1
    runs = [fleet.promise("neighbour", life=life, n=n, begun=str(begun)) for n in range(CROWD)]

    def have_begun(attempt: int) -> bool:
        return {f"{life}-{n}-{attempt}" for n in range(CROWD)} <= set(os.listdir(begun))

    fleet.start_scheduler(app=APP)
    fleet.start_worker("killed", *WHOLE, str(CROWD), app=APP)
    until(lambda: have_begun(1), "the first worker executes all runs")
    fleet.start_worker("left", *WHOLE, str(CROWD), app=APP)
    fleet.kill("killed")
    until(lambda: have_begun(2), "the worker that is left executes all runs")
    (begun / venom.RELEASE).touch()
    for run in map(fleet.succeeded, runs):
        assert [one.outcome for one in run.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]
        assert (run.spent, run.deaths) == (1, None), "the success alone was charged"


@pytest.mark.parametrize("fleet", ["sqlite", only_in_full("postgres")], indirect=True)
def test_a_run_that_kills_its_workers_is_poison_and_its_neighbours_are_charged_nothing(
    fleet: Fleet, begun: Path, request: pytest.FixtureRequest
) -> None:
    def neighbours(life: int) -> list[str]:
        return [fleet.promise("neighbour", life=life, n=n, begun=str(begun)) for n in range(venom.NEIGHBOURS)]

    how = "segfault" if "postgres" in request.node.name else "exit"
    poison = fleet.promise("sting", begun=str(begun), how=how)
    harmed: list[str] = []
    fleet.start_scheduler(app=APP)
    for life in range(1, venom.LIVES + 1):
        harmed += neighbours(life)
        fleet.start_worker("worker", *WHOLE, str(venom.SLOTS), app=APP)
        assert fleet.alive.pop("worker").wait() != 0, f"the poison did not end worker {life}"
        suspect = lost(fleet, poison, life)
        assert (suspect.spent, suspect.deaths) == (0, None if life == 1 else 0)
    beside = neighbours(venom.LIVES + 1)
    fleet.start_worker("last", *WHOLE, str(venom.SLOTS), app=APP)
    until(lambda: fleet.run(poison).state is State.DEAD, "the run is poison")
    until(lambda: {f"{venom.LIVES + 1}-{n}-1" for n in range(venom.NEIGHBOURS)} <= set(os.listdir(begun)), "all began")
    states = {fleet.run(run_id).state for run_id in beside}
    assert states == {State.RUNNING}, "the worker executes others beside the processes that die"
    (begun / venom.RELEASE).touch()
    judge(*fleet.ask(lambda app: look(app, poison)), list(map(fleet.succeeded, harmed)))
    for run in map(fleet.succeeded, beside):
        assert [one.outcome for one in run.attempts] == [Outcome.SUCCEEDED], "the worker outlived the poison"
    assert fleet.fallen() == []


def lost(fleet: Fleet, run_id: str, attempt: int) -> RunView:
    """The run, once the watch has recorded that this attempt was lost."""

    def found() -> RunView | None:
        run = fleet.run(run_id)
        return run if len(run.attempts) == attempt and run.attempts[-1].outcome is Outcome.LOST else None

    run = until(found, f"attempt {attempt} of {run_id} is lost")
    assert run is not None
    return run


async def look(app: Foliot, poison: str) -> tuple[RunView, Guidance | None]:
    return await app.operate.run_async(poison), await app.operate.advice_async(poison)


def judge(poison: RunView, advice: Guidance | None, harmed: list[RunView]) -> None:
    assert (poison.state, poison.reason, poison.deaths) == (State.DEAD, Reason.POISON, 3)
    assert [one.outcome for one in poison.attempts] == [Outcome.LOST] * (venom.LIVES + 3)
    assert poison.spent == 3, "any of its neighbours could have been the cause when a worker died"
    assert advice is not None
    assert (advice.advice.action, "crashed 3 times" in advice.lead) == (Action.RECONCILE, True)
    for run in harmed:
        *before, last = [one.outcome for one in run.attempts]
        assert (set(before), last) == ({Outcome.LOST}, Outcome.SUCCEEDED)
        assert len(before) <= venom.LIVES, "an innocent run is repeated at most as often as a worker dies"
        assert run.spent == 1, "the success alone was charged"
