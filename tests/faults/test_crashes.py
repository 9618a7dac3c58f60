"""Workers that are killed at every boundary of an attempt, for real, on both engines: see the crash table."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from foliot import Foliot
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.operate.advising import Guidance, guidance
from tests.faults import till
from tests.faults.crash_table import CRASHES, Crash
from tests.faults.processes import Fleet, eventually
from tests.faults.till import Bank, Point, make_till

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

TILL = str(Path(till.__file__))
AT_ONCE = 4
"""Workers that are started together."""
PATIENCE = 120
"""Seconds; only a failing test, or a busy host, takes that long."""


class Found(NamedTuple):
    run: RunView
    advice: Guidance | None


class Scene:
    """All crashes on one store, each with a queue, a bank and a worker of its own, so that none disturbs another."""

    def __init__(self, folder: Path, store: str | None) -> None:
        self.folder = folder
        self.fleet = Fleet(folder, store, TILL_BANKS=str(folder))
        self.runs: dict[Crash, str] = {}
        self.noticed: dict[Crash, Found] = {}
        self.ended: dict[Crash, RunView] = {}

    def bank(self, crash: Crash) -> Bank:
        return Bank(self.folder, CRASHES.index(crash))

    def play(self) -> None:
        """1. Everything is promised and handed off. 2. Each worker dies. 3. The watch notices; nobody else is there.
        4. With a fresh worker, whatever goes on by itself ends."""
        asyncio.run(self._promise())
        self.fleet.start("scheduler", "-m", "foliot", "scheduler", "--app", TILL)
        self._wait_for("all is handed off", lambda run: run.state is State.READY)
        for start in range(0, len(CRASHES), AT_ONCE):
            self._kill_some(CRASHES[start : start + AT_ONCE])
        self._wait_for("the watch has noticed", lambda run: run.state is not State.RUNNING)
        self.noticed = asyncio.run(self._look())
        self._start_worker(None, CRASHES)
        self._wait_for("all have ended", lambda run: run.state in TERMINAL | PARKED)
        self.ended = {crash: found.run for crash, found in asyncio.run(self._look()).items()}

    async def _promise(self) -> None:
        app = make_till(self.folder, _nowhere, self.fleet.store)
        for case, crash in enumerate(CRASHES):
            self.runs[crash] = (await app.jobs[crash.job].using(queue=f"case-{case}").now_async(case=case)).id
        await app.close_async()

    def _kill_some(self, crashes: list[Crash]) -> None:
        names = [self._start_worker(crash.point, [crash]) for crash in crashes]
        for crash, name in zip(crashes, names, strict=True):
            try:
                assert self.fleet.alive.pop(name).wait(PATIENCE) == -signal.SIGKILL, crash.id
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{crash.id}: the worker never came there") from None

    def _start_worker(self, dies_at: Point | None, crashes: Sequence[Crash]) -> str:
        name = f"dies {dies_at}: {crashes[0].id}"
        self.fleet.environment["TILL_DIES_AT"] = dies_at or ""
        queues = ",".join(f"case-{CRASHES.index(crash)}" for crash in crashes)
        self.fleet.start(name, "-m", "foliot", "worker", "--app", TILL, "--queues", queues)
        return name

    def _wait_for(self, what: str, holds: Callable[[RunView], bool]) -> None:
        def all_hold() -> bool:
            return all(holds(found.run) for found in asyncio.run(self._look()).values())

        eventually(all_hold, within=PATIENCE, what=what)

    async def _look(self) -> dict[Crash, Found]:
        app = Foliot(self.fleet.store)
        store = await app.opened()
        cards, now, found = await store.jobs(), await store.now(), {}
        for crash, run_id in self.runs.items():
            run = await app.operate.run_async(run_id)
            # One that is due again at once is handed off again at once: what was advised in the moment between.
            was = State.RETRYING if run.state is State.READY and run.attempt else run.state
            found[crash] = Found(replace(run, state=was), guidance(replace(run, state=was), cards.get(run.job), now))
        await app.close_async()
        return found


async def _nowhere(_point: Point) -> None: ...


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    if server is not None:
        server.create_database("till")
    scene = Scene(tmp_path_factory.mktemp("till"), server and server.dsn("till"))
    try:
        scene.play()
        yield scene
    finally:
        scene.fleet.close()


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.id)
def test_what_is_known_after_a_crash_and_how_it_ends(scene: Scene, crash: Crash) -> None:
    run, advice = scene.noticed[crash]
    known = (None, None) if advice is None else (advice.advice.recovery, advice.advice.action)
    assert (run.state, *known) == (crash.state, crash.recovery, crash.action)
    crash.holds(scene.ended[crash], scene.bank(crash))
