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
MORE = 3
"""Neighbours that come between two deaths."""


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

    def neighbour(n: int) -> str:
        return fleet.promise("neighbour", n=n, begun=str(begun))

    poison = fleet.promise("sting", begun=str(begun))
    neighbours = [neighbour(n) for n in range(venom.NEIGHBOURS)]
    fleet.start_scheduler(app=APP)
    for life in range(1, 5):
        fleet.start_worker("worker", "--slots", "50", app=APP)
        assert fleet.alive.pop("worker").wait() == -signal.SIGKILL, f"the poison did not end worker {life}"
        neighbours += [neighbour(life * 100 + n) for n in range(MORE)]
    fleet.start_worker("last", "--slots", "50", app=APP)
    until(lambda: fleet.run(poison).state is State.DEAD, "the watch sets the poison aside")
    ended = [fleet.succeeded(one) for one in neighbours]
    assert fleet.fallen() == [], "a worker died although the poison was set aside"
    judge(*fleet.ask(lambda app: look(app, poison)), ended)


async def look(app: Foliot, poison: str) -> tuple[RunView, Guidance | None]:
    return await app.operate.run_async(poison), await app.operate.advice_async(poison)


def judge(poison: RunView, advice: Guidance | None, neighbours: list[RunView]) -> None:
    assert (poison.state, poison.reason, poison.deaths) == (State.DEAD, Reason.POISON, 3)
    assert [one.outcome for one in poison.attempts] == [Outcome.LOST] * 4
    assert poison.spent == 3, "each neighbour could have been the cause of the first death"
    assert advice is not None
    assert (advice.advice.action, "3 workers died" in advice.lead) == (Action.RECONCILE, True)
    assert {run.state for run in neighbours} == {State.SUCCEEDED}
    assert {run.spent for run in neighbours} == {1}, "each was charged for its success alone"
    assert any(run.attempt > 1 for run in neighbours), "no neighbour was executed when it died"
