"""Items and checkpoints under every outcome that a worker records: no finished item is repeated."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foliot import Foliot
from foliot.domain.state import PARKED, TERMINAL, Outcome, State
from foliot.errors import Conflict
from tests.faults import judge, repeating
from tests.faults.processes import Fleet
from tests.tiers import by_tier, only_in_full
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(repeating.__file__)
RUNS = by_tier(50, 978)
"""While workers are shut down at random moments; 22 more follow that meet each outcome."""
IN_PROCESSES = by_tier(0, 40)
"""How many of these runs have a process of their own."""
RESTARTS = by_tier(3, 20)
ITEMS = 40
ENDS: list[dict[str, Any]] = [{"timeout": "2s"}, {"stall_after": "1s", "on_stall": "cancel"}, {}]
"""What ends an attempt that waits; without a limit, the test cancels it."""
HERE = ("each_in_thread", "each_in_loop", "checkpoint_in_thread", "checkpoint_in_loop")
APART = ("each_in_process", "checkpoint_in_process")
LIVE = [state for state in State if state not in TERMINAL | PARKED]
WHY: dict[str, Any] = {"reason": "the test wants it", "actor": "test"}


class Work(NamedTuple):
    """A run to be promised. `settings`: limits that end an attempt which waits."""

    job: str
    plan: Sequence[tuple[str, int]]
    settings: dict[str, Any]
    cancels: bool
    """Whether the test cancels it when it waits."""


@pytest.fixture(params=["sqlite", only_in_full("postgres")])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


@pytest.mark.timeout(by_tier(600, 3_600))
def test_no_finished_item_is_repeated_whatever_ends_an_attempt(fleet: Fleet, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    folder.mkdir()
    chance = random.Random(23)
    works = {f"work-{number}": drawn(chance, number) for number in range(RUNS)}
    more = {f"work-{RUNS + number}": work for number, work in enumerate(surely())}
    runs = fleet.ask(lambda app: promised(app, works, folder))
    strain = Strain(fleet, folder, runs, {name for name, work in (works | more).items() if work.cancels})
    fleet.start_scheduler(app=APP)
    for worker in range(2):
        start_worker(fleet, worker, chance)
    for _ in range(RESTARTS):
        enough = strain.begun + chance.randint(1, 2 * RUNS // RESTARTS)
        until(lambda enough=enough: strain.look() >= enough or strain.is_over(), "more attempts have begun")  # type: ignore[misc]
        restart(fleet, chance.randrange(2), chance)
    runs |= fleet.ask(lambda app: promised(app, more, folder))
    blocking = {name for name, work in more.items() if work.plan[0][0] == "block"}
    until(lambda: blocking <= strain.waiting(), "threads that do not react to a request to stop have begun")
    until(lambda: strain.look() and strain.has_ended(set(more) - blocking), "the runs beside them have ended")
    for worker in range(2):
        restart(fleet, worker, chance)
    until(strain.is_over, "every run has ended, is dead or was cancelled")
    while fleet.ask(lambda app: taken_up(app, runs)):
        until(strain.is_over, "runs that were dead or cancelled have ended, too")
    judge_all(fleet, folder)


def drawn(chance: random.Random, number: int) -> Work:
    """Up to three faults, each in an attempt of its own."""
    is_apart = number < IN_PROCESSES
    job = chance.choice(APART if is_apart else HERE)
    faults = ["raise", "raise", "permanent", "wait", "wait"] + ["item"] * (2 * job.startswith("each"))
    plan = [(chance.choice(faults), chance.randrange(ITEMS)) for _ in range(chance.randint(1, 3))]
    settings = {} if is_apart else chance.choice(ENDS)  # a process takes a while to start
    return Work(job, plan, settings, not settings)


def surely() -> Iterator[Work]:
    """A run for each job and each outcome. No worker is shut down before it comes to that. Threads that block end with
    their process."""
    for job in HERE:
        if job.endswith("thread"):
            yield Work(job, [("block", 20)], {}, False)
        yield from (Work(job, [(fault, 20)], {}, False) for fault in ("raise", "permanent"))
        yield from (Work(job, [("wait", 20)], settings, not settings) for settings in ENDS)


async def promised(app: Foliot, works: dict[str, Work], folder: Path) -> dict[str, str]:
    """The runs, by names of works."""
    jobs = {name: app.jobs.get(name) or app.job(name=name)(_unknown) for name in HERE + APART}
    runs: dict[str, str] = {}
    for name, work in works.items():
        arguments: dict[str, Any] = {"folder": str(folder), "name": name, "plan": work.plan, "items": ITEMS}
        runs[name] = (await jobs[work.job].using(**work.settings).now_async(**arguments)).id
    return runs


async def _unknown(**_arguments: Any) -> None: ...


class Strain:
    """Looks at how far the runs are, and cancels those that are to be cancelled."""

    def __init__(self, fleet: Fleet, folder: Path, runs: dict[str, str], cancels: set[str]) -> None:
        self._fleet = fleet
        self._folder = folder
        self._runs = runs
        self._cancels = cancels
        self._waited = 0

    @property
    def begun(self) -> int:
        """How many attempts have begun."""
        return len(self._lines(repeating.BEGUN))

    def waiting(self) -> set[str]:
        """Attempts that have come to a fault that waits."""
        self.look()
        return set(self._lines(repeating.WAITING))

    def look(self) -> int:
        waiting = self._lines(repeating.WAITING)
        new, self._waited = waiting[self._waited :], len(waiting)
        for name in self._cancels.intersection(new):
            with suppress(Conflict):  # a shutdown of its worker came first, and the run has ended since
                self._fleet.ask(lambda app, name=name: app.operate.cancel_async(self._runs[name], **WHY))  # type: ignore[misc]
        return self.begun

    def has_ended(self, names: set[str]) -> bool:
        """Whether these runs have ended, are dead or were cancelled."""
        live = self._fleet.ask(lambda app: app.operate.runs_async(states=LIVE, limit=5_000))
        return {self._runs[name] for name in names}.isdisjoint(run.id for run in live)

    def is_over(self) -> bool:
        self.look()
        return not self._fleet.ask(lambda app: app.operate.runs_async(states=LIVE, limit=1))

    def _lines(self, name: str) -> list[str]:
        path = self._folder / name
        return path.read_text().splitlines() if path.exists() else []


def start_worker(fleet: Fleet, number: int, chance: random.Random) -> None:
    grace = chance.choice(["0s", "100ms"])
    fleet.start_worker(f"worker-{number}", "--grace", grace, "--slots", "50", app=APP)


def restart(fleet: Fleet, number: int, chance: random.Random) -> None:
    """A worker that was started just before may not yet take the signal into its own hands. One that a slow machine
    keeps from ending in order exits with 1, after its heartbeat's thread has made the record."""
    assert fleet.kill(f"worker-{number}", signal.SIGTERM) in (0, 1, -signal.SIGTERM)
    start_worker(fleet, number, chance)


async def taken_up(app: Foliot, runs: dict[str, str]) -> int:
    """Retries what is dead, and reruns what was cancelled: both go on where the attempt before them ended. A rerun does
    not inherit a checkpoint. Answers how many runs go on."""
    seen, count = await judge.read_runs(app), 0
    for name, run in runs.items():
        if seen[run].state is State.DEAD:
            await app.operate.retry_async(run, **WHY)
            count += 1
        elif seen[run].state is State.CANCELLED and seen[run].job.startswith("each"):
            runs[name] = (await app.operate.rerun_async(run, **WHY)).id
            count += 1
    return count


def judge_all(fleet: Fleet, folder: Path) -> None:
    overlap = folder / "overlap"
    assert not overlap.exists(), overlap.read_text()
    outcomes: Counter[Outcome | None] = Counter()
    for run in fleet.ask(judge.read_runs).values():
        view = fleet.run(run.id)
        assert view.state in (State.SUCCEEDED, State.CANCELLED), view
        outcomes.update(one.outcome for one in view.attempts)
    paths = list(folder.glob("work-*"))
    repeated = {path.name: items for path in paths if (items := repeats(path))}
    shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    assert not repeated, f"{len(repeated)} of {len(paths)} runs repeated items ({shown}): {list(repeated.items())[:5]}"
    assert Outcome.LOST not in outcomes
    expected = {"failed", "permanent", "timed_out", "stalled", "cancelled", "interrupted"}
    assert expected <= set(map(str, outcomes)), f"too little went wrong to prove anything: {shown}"
    print(f"no item of {len(paths)} runs was repeated ({shown})")


def repeats(path: Path) -> list[int]:
    """The items that were begun although they had been kept."""
    kept: set[int] = set()
    found: list[int] = []
    for line in path.read_text().splitlines():
        what, _, item = line.partition(" ")
        if what == "kept" and item != "None":
            kept.add(int(item))
        elif what == "begin" and int(item) in kept:
            found.append(int(item))
    return found
