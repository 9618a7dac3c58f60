"""A run that kills its workers is found and set aside, and those beside it are charged nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.recovery import Action
from foliot.domain.run import Kept, RunView
from foliot.domain.state import TERMINAL, Outcome, Reason, State
from foliot.operate.advising import Guidance
from tests.faults import venom
from tests.faults.processes import Fleet, eventually

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

APP = str(Path(venom.__file__))
PATIENCE = 120
"""Seconds; only a failing test, or a busy host, takes that long."""
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
    promised = [("sting", {}), *(("neighbour", {"n": n}) for n in range(venom.NEIGHBOURS))]
    poison, *neighbours = asyncio.run(promise(fleet, promised, begun))
    fleet.start("scheduler", "-m", "foliot", "scheduler", "--app", APP)
    for life in range(1, 5):
        worker = fleet.start(f"worker-{life}", "-m", "foliot", "worker", "--app", APP, "--slots", "50")
        assert worker.wait(PATIENCE) == -signal.SIGKILL, f"in its life {life} it met the poison"
        del fleet.alive[f"worker-{life}"]
        late = [("neighbour", {"n": life * 100 + n}) for n in range(MORE)]
        neighbours += asyncio.run(promise(fleet, late, begun))
    fleet.start("last", "-m", "foliot", "worker", "--app", APP, "--slots", "50")
    eventually(lambda: asyncio.run(all_ended(fleet, neighbours)), within=PATIENCE, what="all neighbours have ended")
    assert fleet.fallen() == [], "nobody died any more"
    judge(*asyncio.run(look(fleet, poison, neighbours)))


async def promise(fleet: Fleet, wanted: list[tuple[str, dict[str, Any]]], begun: Path) -> list[str]:
    app = Foliot(fleet.store)
    copies = {name: app.job(job.handler.function) for name, job in venom.app.jobs.items()}
    kept: list[Kept] = [await copies[name].now_async(begun=str(begun), **given) for name, given in wanted]
    await app.close_async()
    return [one.id for one in kept]


async def all_ended(fleet: Fleet, ids: list[str]) -> bool:
    app = Foliot(fleet.store)
    ended = {run.id for run in await app.operate.runs_async(limit=1_000) if run.state in TERMINAL}
    await app.close_async()
    return ended >= set(ids)


async def look(fleet: Fleet, poison: str, neighbours: list[str]) -> tuple[RunView, Guidance | None, list[RunView]]:
    app = Foliot(fleet.store)
    others = [await app.operate.run_async(one) for one in neighbours]
    found = await app.operate.run_async(poison), await app.operate.advice_async(poison), others
    await app.close_async()
    return found


def judge(poison: RunView, advice: Guidance | None, neighbours: list[RunView]) -> None:
    assert (poison.state, poison.reason, poison.deaths) == (State.DEAD, Reason.POISON, 3)
    assert [one.outcome for one in poison.attempts] == [Outcome.LOST] * 4
    assert poison.spent == 3, "the first death could have been anybody's"
    assert advice is not None
    assert (advice.advice.action, "3 workers died" in advice.lead) == (Action.RECONCILE, True)
    assert {run.state for run in neighbours} == {State.SUCCEEDED}
    assert {run.spent for run in neighbours} == {1}, "each was charged for its success alone"
    assert any(run.attempt > 1 for run in neighbours), "nobody was there when it died"
