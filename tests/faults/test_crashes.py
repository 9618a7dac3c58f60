"""Workers that are killed at every boundary of an attempt, for real, on both engines: see the crash table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from foliot import Foliot
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.operate.advising import Guidance, guidance
from tests.faults import till
from tests.faults.crash_table import CRASHES, Crash, unhurried
from tests.faults.processes import Fleet
from tests.faults.till import Bank, Point, make_till
from tests.tiers import FULL
from tests.waiting import until

pytestmark = pytest.mark.faults

TILL = Path(till.__file__)
AT_ONCE = 4
"""Workers that are started together."""


def chosen(crashes: Sequence[Crash]) -> dict[str, list[Crash]]:
    """By store, the crashes that are played there. `make test-full` plays the whole table on both stores. `make test`
    plays each crash, and on each store every point and every job: the pairs of store, point and job are all there."""
    if FULL:
        return {"sqlite": list(crashes), "postgres": list(crashes)}
    by_store: dict[str, list[Crash]] = {"sqlite": [], "postgres": []}
    for number, crash in enumerate(crashes):
        by_store[("sqlite", "postgres")[number % 2]].append(crash)
    for store in by_store.values():
        for crash in crashes:
            if all(crash.point is not one.point for one in store) or all(crash.job != one.job for one in store):
                store.append(crash)
    return by_store


PLAYED = chosen(CRASHES)


class Found(NamedTuple):
    run: RunView
    advice: Guidance | None


class Scene:
    """All crashes on one store, each with a queue, a bank and a worker of its own, so that none disturbs another."""

    def __init__(self, folder: Path, store: str | None, crashes: Sequence[Crash]) -> None:
        self.folder = folder
        self.crashes = crashes
        self.fleet = Fleet(folder, store, TILL_BANKS=str(folder))
        self.runs: dict[Crash, str] = {}
        self.noticed: dict[Crash, Found] = {}
        self.ended: dict[Crash, RunView] = {}

    def bank(self, crash: Crash) -> Bank:
        return Bank(self.folder, CRASHES.index(crash))

    def play(self) -> None:
        """1. Everything is promised and handed off. 2. Each worker dies. 3. The watch notices; there is no other
        worker. 4. With a fresh worker, all that goes on by itself ends."""
        self.fleet.ask(self._promise)
        self.fleet.start_scheduler(app=TILL)
        self._wait_until("all is handed off", lambda run: run.state is State.READY)
        for start in range(0, len(self.crashes), AT_ONCE):
            self._kill_some(self.crashes[start : start + AT_ONCE])
        self._wait_until("the watch has noticed", lambda run: run.state is not State.RUNNING)
        self.noticed = self.fleet.ask(self._look)
        self._start_worker(None, self.crashes)
        self._wait_until("all have ended", lambda run: run.state in TERMINAL | PARKED)
        self.ended = {crash: found.run for crash, found in self.fleet.ask(self._look).items()}

    async def _promise(self, _client: Foliot) -> None:
        app = make_till(self.folder, _nowhere, self.fleet.store)
        for crash in self.crashes:
            case = CRASHES.index(crash)
            self.runs[crash] = (await app.jobs[crash.job].using(queue=f"case-{case}").now_async(case=case)).id
        await app.close_async()

    def _kill_some(self, crashes: Sequence[Crash]) -> None:
        names = [self._start_worker(crash.point, [crash]) for crash in crashes]
        for crash, name in zip(crashes, names, strict=True):
            assert self.fleet.alive.pop(name).wait() == -signal.SIGKILL, crash.id

    def _start_worker(self, dies_at: Point | None, crashes: Sequence[Crash]) -> str:
        name = f"dies {dies_at}: {crashes[0].id}"
        queues = ",".join(f"case-{CRASHES.index(crash)}" for crash in crashes)
        options = ("worker", "--app", str(TILL), "--queues", queues)
        self.fleet.start(name, "foliot", *options, TILL_DIES_AT=dies_at or "")
        return name

    def _wait_until(self, what: str, holds: Callable[[RunView], bool]) -> None:
        """Asks for one run after the other: each that holds is not asked for again."""
        for run_id in self.runs.values():
            until(lambda run_id=run_id: holds(self.fleet.run(run_id)), f"{what}, and {run_id} is the next")  # type: ignore[misc]

    async def _look(self, app: Foliot) -> dict[Crash, Found]:
        store = await app.opened()
        cards, now, found = await store.jobs(), await store.now(), {}
        for crash, run_id in self.runs.items():
            run = unhurried(await app.operate.run_async(run_id))
            found[crash] = Found(run, guidance(run, cards.get(run.job), now))
        return found


async def _nowhere(_point: Point) -> None: ...


@pytest.fixture(scope="module")
def scene_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Scene]]:
    """The scene of a store, played once, when the first test asks for it."""
    made: dict[str, Scene] = {}

    def played(store: str) -> Scene:
        if store not in made:
            dsn = None
            if store == "postgres":
                server = request.getfixturevalue("postgres")
                server.create_database("till")
                dsn = server.dsn("till")
            made[store] = Scene(tmp_path_factory.mktemp("till"), dsn, PLAYED[store])
            made[store].play()
        return made[store]

    yield played
    for scene in made.values():
        scene.fleet.close()


@pytest.mark.parametrize(
    ("store", "crash"),
    [
        pytest.param(store, crash, id=f"{store}-{crash.id}", marks=pytest.mark.needs(store))
        for store, crashes in PLAYED.items()
        for crash in crashes
    ],
)
def test_what_is_known_after_a_crash_and_how_it_ends(
    scene_on: Callable[[str], Scene], store: str, crash: Crash
) -> None:
    scene = scene_on(store)
    assert crash in scene.ended, "the scene was not played to its end"
    run, advice = scene.noticed[crash]
    known = (None, None) if advice is None else (advice.advice.recovery, advice.advice.action)
    assert (run.state, *known) == (crash.state, crash.recovery, crash.action)
    crash.holds(scene.ended[crash], scene.bank(crash))
