"""A handler that does not react is ended, for real: with its worker's process, or its own and all that it started."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foliot.bootstrap import RECYCLED
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, Reason, State
from tests.cli.support import is_alive, process, run
from tests.faults import blocking, stubborn
from tests.faults.processes import Fleet
from tests.tiers import full_only, only_in_full
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(stubborn.__file__)
BLOCKING = Path(blocking.__file__)
GAVE_UP = "exited because a handler could not be stopped; restarting"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def outcomes(run: RunView) -> list[Outcome | None]:
    return [attempt.outcome for attempt in run.attempts]


def assert_timed_out_first(run: RunView) -> None:
    """On a slow machine an attempt that does not hang may time out as well."""
    assert outcomes(run) == [Outcome.TIMED_OUT] * (len(run.attempts) - 1) + [Outcome.SUCCEEDED]
    assert len(run.attempts) > 1


def test_a_worker_gives_itself_up_for_a_thread_that_cannot_be_ended(fleet: Fleet, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    hanging = fleet.promise("hang_once", place=str(tmp_path / "hung"))
    taking = fleet.promise("take", gate=str(gate))
    fleet.start_scheduler(app=APP)
    worker = fleet.start_worker("worker", "--grace", "10m", "--recycle-after", "300ms", app=APP)
    until(lambda: "a thread cannot be stopped alone" in fleet.output.read_text(), "the worker gives itself up")
    gate.write_text("taken")
    assert outcomes(fleet.succeeded(taking)) == [Outcome.SUCCEEDED], "it ended normally, in that worker"
    assert worker.wait() == RECYCLED
    del fleet.alive["worker"]
    fleet.start_worker("another", app=APP)
    assert_timed_out_first(fleet.succeeded(hanging))


def test_a_supervisor_replaces_a_worker_for_a_handler_that_blocks_its_event_loop(fleet: Fleet, tmp_path: Path) -> None:
    waited, blocked = tmp_path / "waited", tmp_path / "blocked"
    beside = fleet.promise("wait_beside", place=str(waited))
    options = ("--store", fleet.store, "--grace", "10m", "--recycle-after", "300ms", "--json")
    with process(tmp_path, "up", "--app", APP, *options) as up:

        def worker_says() -> list[str]:
            return [line["what"] for line in up.lines() if line.get("process") == "worker"]

        until(waited.exists, "the other handler runs")
        blocking = fleet.promise("block_once", place=str(blocked))
        until(lambda: GAVE_UP in worker_says(), "the supervisor says that the worker gave itself up")
        assert_timed_out_first(fleet.succeeded(blocking))
        run = fleet.succeeded(beside)
        assert outcomes(run) == [Outcome.LOST, Outcome.SUCCEEDED]
        assert run.spent == 1, "the loss was not its fault, and cost it nothing"
        first, _ = up.started("worker")
        assert not is_alive(first)
        assert up.end() == 0
    assert "attempt 1 of block_once blocks the event loop of its worker (at" in up.err.read_text()
    assert "time.sleep(3_600)" in up.err.read_text(), "the log shows where it is"


def test_a_process_of_a_handler_ends_with_its_worker_and_with_all_that_it_started(fleet: Fleet, tmp_path: Path) -> None:
    note = tmp_path / "note"

    def family() -> list[int]:
        return [int(pid) for pid in note.read_text().split()] if note.exists() else []

    lingering = fleet.promise("linger", place=str(note))
    fleet.start_scheduler(app=APP)
    fleet.start_worker("killed", app=APP)
    until(lambda: len(family()) == 2, "the handler runs")
    killed = family()
    assert all(map(is_alive, killed))
    fleet.kill("killed")
    until(lambda: not any(map(is_alive, killed)), "nothing is left of the handler")
    fleet.start_worker("ended", "--grace", "0s", app=APP)
    until(lambda: len(family()) == 2 and family() != killed, "the handler runs again, in another worker")
    assert fleet.kill("ended", signal.SIGTERM) == 0
    assert not any(map(is_alive, family()))
    run = fleet.run(lingering)
    assert outcomes(run) == [Outcome.LOST, Outcome.INTERRUPTED]
    assert run.spent == 0, "neither the loss nor the interruption was charged"


@pytest.fixture(params=["sqlite", only_in_full("postgres")])
def forced(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A fleet on each store, whose handlers write down when they begin."""
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    (tmp_path / "begun").mkdir()
    yield fleet
    fleet.close()


def begin(fleet: Fleet, folder: Path, hanging: str) -> tuple[str, dict[str, str]]:
    """A run that is to be cancelled, and by name two others that go on until their process ends. All have begun."""
    begun = folder / "begun"

    def await_begun(*names: str) -> None:
        until(lambda: {f"{name}-1" for name in names} <= {path.name for path in begun.iterdir()}, f"{names} have begun")

    others = {name: fleet.promise("block", folder=str(begun), name=name, lives=1) for name in ("one", "two")}
    await_begun(*others)  # before it, which may keep its worker from claiming more
    hangs = fleet.promise(hanging, folder=str(begun), name="hangs", lives=9)
    await_begun("hangs")
    return hangs, others


def force(fleet: Fleet, hangs: str) -> Any:
    answer = run(
        *("runs", "cancel", hangs, "--force", "--yes", "--json", "--reason", "hangs", "--actor", "ada"),
        *("--store", fleet.store),
    )
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def assert_ended_alone(fleet: Fleet, folder: Path, hangs: str, others: dict[str, str]) -> None:
    """One is cancelled, and the others were interrupted at no cost."""
    until(lambda: fleet.run(hangs).state is State.CANCELLED, "the run is cancelled")
    view = fleet.run(hangs)
    assert (view.reason, view.detail, outcomes(view)) == (Reason.OPERATOR, "hangs", [Outcome.CANCELLED])
    for one in map(fleet.succeeded, others.values()):
        assert outcomes(one) == [Outcome.INTERRUPTED, Outcome.SUCCEEDED]
        assert (one.spent, one.deaths) == (1, None), "only the success was charged"
    begun = folder / "begun"
    assert not (begun / "overlap").exists(), (begun / "overlap").read_text()
    assert not (begun / "hangs-2").exists(), "it was not tried again"


def test_an_operator_ends_a_thread_with_its_process_and_the_other_runs_start_again(
    forced: Fleet, tmp_path: Path
) -> None:
    forced.start_scheduler(app=BLOCKING)
    worker = forced.start_worker("worker", "--grace", "10m", "--recycle-after", "10m", app=BLOCKING)
    hangs, others = begin(forced, tmp_path, "block")
    shown = force(forced, hangs)
    assert (shown["id"], shown["outcome"], shown["process"]["pid"]) == (hangs, "forced", worker.pid)
    assert {one["id"] for one in shown["process"]["others"]} == set(others.values())
    assert worker.wait() == RECYCLED
    del forced.alive["worker"]
    assert not is_alive(worker.pid)
    forced.start_worker("another", app=BLOCKING)
    assert_ended_alone(forced, tmp_path, hangs, others)


@full_only
def test_a_supervisor_replaces_a_worker_whose_event_loop_is_blocked_when_an_operator_forces_a_cancellation(
    forced: Fleet, tmp_path: Path
) -> None:
    options = ("--store", forced.store, "--grace", "10m", "--recycle-after", "10m", "--json")
    with process(tmp_path, "up", "--app", BLOCKING, *options) as up:
        hangs, others = begin(forced, tmp_path, "block_loop")
        force(forced, hangs)
        assert_ended_alone(forced, tmp_path, hangs, others)
        first, _ = up.started("worker")
        assert not is_alive(first)
        assert up.end() == 0
