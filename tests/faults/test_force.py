"""What does not heed is ended, for real: threads with their worker's process, processes with all that they started."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, State
from tests.cli.support import is_alive, process, until
from tests.faults import stubborn

pytestmark = pytest.mark.faults

APP = Path(stubborn.__file__)
QUICK = ("--grace", "8s", "--recycle-after", "300ms", "--json")


class Scene:
    """One store, as a client of it sees it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'store.db'}"

    def promise(self, job: str, **arguments: Any) -> str:
        async def make() -> str:
            app = Foliot(self.url)
            copy = app.job(stubborn.app.jobs[job].handler.function)
            kept = await copy.now_async(**arguments)
            await app.close_async()
            return kept.id

        return asyncio.run(make())

    def run(self, run_id: str) -> RunView:
        async def look() -> RunView:
            app = Foliot(self.url)
            found = await app.operate.run_async(run_id)
            await app.close_async()
            return found

        return asyncio.run(look())

    def outcomes(self, run_id: str) -> list[Outcome | None]:
        return [attempt.outcome for attempt in self.run(run_id).attempts]

    def start(self, folder: Path) -> Any:
        return process(folder, "up", "--app", APP, "--store", self.url, *QUICK)


def test_a_worker_is_replaced_for_a_thread_that_cannot_be_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    hanging = scene.promise("hang_once", place=str(tmp_path / "was-here"))
    long = scene.promise("take", seconds=3.0)
    with scene.start(tmp_path) as up:
        until(lambda: scene.run(hanging).state is State.SUCCEEDED, "the run that hung is done")
        until(lambda: scene.run(long).state is State.SUCCEEDED, "the other one is done")
        assert scene.outcomes(hanging) == [Outcome.TIMED_OUT, Outcome.SUCCEEDED]
        assert scene.run(long).attempt == 1, "it ended normally, in the worker that gave itself up"
        assert len(up.started("worker")) == 2
        told = [line["what"] for line in up.lines() if line.get("process") == "worker"]
        assert "gave itself up for a handler that could not be ended; starts again" in told
        assert not is_alive(up.started("worker")[0])


def test_a_process_dies_with_its_worker_and_takes_along_all_that_it_started(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    note = tmp_path / "note"
    scene.promise("linger", place=str(note))
    with scene.start(tmp_path) as up:
        until(lambda: note.exists() and len(note.read_text().split()) == 2, "the handler runs")
        family = [int(pid) for pid in note.read_text().split()]
        assert all(map(is_alive, family))
        os.kill(up.started("worker")[0], signal.SIGKILL)
        until(lambda: not any(map(is_alive, family)), "nothing is left of it", patience=5.0)


def test_a_worker_that_ends_in_order_leaves_no_process_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    note = tmp_path / "note"
    lingering = scene.promise("linger", place=str(note))
    with process(tmp_path, "up", "--app", APP, "--store", scene.url, "--grace", "0s", "--json") as up:
        until(lambda: note.exists() and len(note.read_text().split()) == 2, "the handler runs")
        family = [int(pid) for pid in note.read_text().split()]
        assert up.end() == 0
        assert not any(map(is_alive, family))
    assert scene.outcomes(lingering) == [Outcome.INTERRUPTED]
    assert scene.run(lingering).spent == 0
