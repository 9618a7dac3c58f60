"""A run that kills its workers is found and set aside, and those beside it are charged nothing."""

from __future__ import annotations

import signal
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
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(venom.__file__)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


def test_a_run_that_kills_its_workers_is_set_aside_and_its_neighbours_are_charged_nothing(
    fleet: Fleet, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()

    def neighbours(life: int, count: int) -> list[str]:
        return [fleet.promise("neighbour", life=life, n=n, begun=str(begun)) for n in range(count)]

    poison = fleet.promise("sting", begun=str(begun))
    harmed: list[str] = []
    fleet.start_scheduler(app=APP)
    for life, count in venom.NEIGHBOURS.items():
        beside = neighbours(life, count)
        fleet.start_worker("worker", "--slots", "50", app=APP)
        assert fleet.alive.pop("worker").wait() == -signal.SIGKILL, f"the poison did not end worker {life}"
        # No worker runs now, so each run stays as the watch has left it.
        suspect = lost(fleet, poison, life)
        assert suspect.deaths == life - 1, f"the watch did not charge the right run for the death of worker {life}"
        assert {lost(fleet, one, 1).spent for one in beside} == {0}, f"worker {life}: a neighbour was charged"
        harmed += beside
    assert fleet.run(poison).state is State.DEAD
    late = neighbours(5, 3)
    fleet.start_worker("last", "--slots", "50", app=APP)
    ended = [fleet.succeeded(one) for one in [*harmed, *late]]
    assert fleet.fallen() == [], "a worker died although the poison was set aside"
    judge(*fleet.ask(lambda app: look(app, poison)), ended[: len(harmed)], ended[len(harmed) :])


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


def judge(poison: RunView, advice: Guidance | None, harmed: list[RunView], late: list[RunView]) -> None:
    assert (poison.state, poison.reason, poison.deaths) == (State.DEAD, Reason.POISON, 3)
    assert [one.outcome for one in poison.attempts] == [Outcome.LOST] * 4
    assert poison.spent == 3, "each neighbour could have been the cause of the first death"
    assert advice is not None
    assert (advice.advice.action, "3 workers died" in advice.lead) == (Action.RECONCILE, True)
    for run in harmed:
        assert [one.outcome for one in run.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]
    for run in late:
        assert [one.outcome for one in run.attempts] == [Outcome.SUCCEEDED]
    assert {run.spent for run in [*harmed, *late]} == {1}, "each was charged for its success alone"
