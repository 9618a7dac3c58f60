"""A handler that blocks its worker's event loop, for real: nothing in that process could end it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foliot.domain.state import Outcome, State
from tests.cli.support import is_alive, until
from tests.faults.test_force import Scene

pytestmark = pytest.mark.faults


def test_a_worker_is_replaced_for_a_handler_that_blocks_its_event_loop(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    beside = scene.promise("wait_beside", place=str(tmp_path / "waited"))
    with scene.start(tmp_path) as up:
        until(lambda: (tmp_path / "waited").exists(), "the other one runs")
        blocking = scene.promise("block_once", place=str(tmp_path / "blocked"))
        until(lambda: scene.run(blocking).state is State.SUCCEEDED, "the run that blocked is done")
        until(lambda: scene.run(beside).state is State.SUCCEEDED, "the one beside it is done")
        assert scene.outcomes(blocking) == [Outcome.TIMED_OUT, Outcome.SUCCEEDED]
        assert scene.outcomes(beside) == [Outcome.LOST, Outcome.SUCCEEDED]
        assert scene.run(beside).spent == 1, "the loss was not its fault, and cost it nothing"
        assert len(up.started("worker")) == 2
        assert not is_alive(up.started("worker")[0])
        told = [line["what"] for line in up.lines() if line.get("process") == "worker"]
        assert "gave itself up for a handler that could not be ended; starts again" in told
        assert up.end() == 0
    assert "attempt 1 of block_once blocks the event loop of its worker (at" in up.err.read_text()
    assert "time.sleep(3600)" in up.err.read_text(), "the log shows where it is"
