"""A worker that is stopped is not a worker that is dead; neither may change what it no longer owns."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from foliot.domain.state import Outcome
from tests.faults import judge
from tests.faults.processes import Fleet
from tests.tiers import only_in_full
from tests.waiting import until

pytestmark = pytest.mark.faults

LONG = "1h"
"""A lease that ends in no test."""


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


def wait_for(what: str, fleet: Fleet, run_id: str) -> None:
    """Until a handler has said so in the log. To read that costs a tenth of a question to the store."""

    def is_said() -> bool:
        lines = judge.read_log(fleet.log) if fleet.log.exists() else []
        return any((line["what"], line["run"]) == (what, run_id) for line in lines)

    until(is_said, f"the log has the {what} of an attempt of {run_id}")


def test_a_worker_that_was_stopped_until_its_lease_ended_cannot_finish_its_run(fleet: Fleet, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run_id = fleet.promise("wait", gate=str(gate))
    fleet.start_scheduler()
    fleet.start_worker("stopped")
    wait_for("start", fleet, run_id)
    stopped = fleet.stop("stopped")
    # Its lease is one second. The worker is stopped until the run is lost, tried again by another worker and done.
    fleet.start_worker("other")
    wait_for("end", fleet, run_id)
    fleet.succeeded(run_id)
    gate.touch()
    stopped.send_signal(signal.SIGCONT)
    until(
        lambda: any(one.outcome is Outcome.FENCED for one in fleet.run(run_id).attempts),
        "the store has refused the end that the stopped worker reported",
    )
    run = fleet.run(run_id)
    outcomes = [one.outcome for one in run.attempts if one.outcome is not Outcome.FENCED]
    # On a slow machine a lease of one second may end more often than once.
    assert outcomes == [Outcome.LOST] * (run.attempt - 1) + [Outcome.SUCCEEDED]
    assert run.attempt > 1
    assert run.result == f'"attempt {run.attempt}"'.encode()
    events = fleet.ask(lambda app: app.operate.events_since_async(0))
    assert [event.kind for event in events if event.subject == run_id] == ["lost"] * (run.attempt - 1) + ["fenced"]


@pytest.mark.parametrize("fleet", ["sqlite", only_in_full("postgres")], indirect=True)
def test_a_run_goes_on_when_its_worker_is_killed_and_when_its_worker_is_terminated(
    fleet: Fleet, tmp_path: Path
) -> None:
    """No lease ends: the process of the killed worker is known to be gone, and the other worker gives its run back."""
    gate = str(tmp_path / "never")
    killed = fleet.promise("wait", queue="victims", lease=LONG, gate=gate)
    left = fleet.promise("wait", queue="leavers", lease=LONG, gate=gate)
    fleet.start_scheduler()
    fleet.start_worker("victim", "--queues", "victims")
    fleet.start_worker("leaving", "--queues", "leavers", "--grace", "0s")
    wait_for("start", fleet, killed)
    wait_for("start", fleet, left)
    assert fleet.kill("victim") == -signal.SIGKILL
    assert fleet.kill("leaving", signal.SIGTERM) == 0
    given_back = fleet.run(left)
    assert given_back.attempts[0].outcome is Outcome.INTERRUPTED
    assert given_back.spent == 0
    fleet.start_worker("other", "--queues", "victims,leavers")
    run = fleet.succeeded(left)
    assert (run.attempt, run.spent) == (2, 1)
    run = fleet.succeeded(killed)
    assert [one.outcome for one in run.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]
    assert "process has ended" in (run.attempts[0].error or "")


def test_a_stopped_scheduler_is_replaced_and_cannot_fire_when_it_wakes(fleet: Fleet) -> None:
    fleet.start_worker()
    fleet.start_scheduler("stopped")
    promised = []

    def another_run_is_done() -> None:
        """This process promises it; processes that had nothing to do fire and start it."""
        promised.append(fleet.promise("greet"))
        wait_for("end", fleet, promised[-1])
        fleet.succeeded(promised[-1])

    another_run_is_done()
    another_run_is_done()
    stopped = fleet.stop("stopped")
    fleet.start_scheduler("other")
    another_run_is_done()
    stopped.send_signal(signal.SIGCONT)
    another_run_is_done()
    assert [fleet.run(run_id).attempt for run_id in promised] == [1] * 4
    assert fleet.ask(lambda app: app.operate.counts_async())["early"] == 0
    assert fleet.fallen() == []
