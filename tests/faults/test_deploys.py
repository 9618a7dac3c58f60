"""Workers that are shut down while handlers do not stop: their attempts are interrupted, and cost nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from foliot.domain.state import Outcome
from tests.faults import blocking
from tests.faults.processes import Fleet
from tests.tiers import by_tier, full_only
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(blocking.__file__)
HANDLERS = by_tier(
    {"block": 2, "ignore": 2, "swallow": 2},
    {"block": 12, "ignore": 12, "swallow": 12, "isolate": 2},
)
"""How many runs of each."""
LIVES = by_tier(1, 3)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


def test_runs_whose_handlers_do_not_stop_survive_graceful_restarts_at_no_cost(fleet: Fleet, tmp_path: Path) -> None:
    restart(fleet, tmp_path, [handler for handler, count in HANDLERS.items() for _ in range(count)], LIVES)


@full_only
def test_a_run_that_blocks_the_event_loop_of_its_worker_survives_a_graceful_restart_at_no_cost(
    fleet: Fleet, tmp_path: Path
) -> None:
    restart(fleet, tmp_path, ["block_loop"], 1, code=1)


def restart(fleet: Fleet, folder: Path, handlers: Sequence[str], lives: int, code: int = 0) -> None:
    """Each worker gets SIGTERM while an attempt of each run goes on. The next one already waits for work then, as in
    a rolling deploy, and no attempt may begin in it before the process of the old one has ended."""
    begun = folder / "begun"
    begun.mkdir()
    names = [f"{handler}{number}" for number, handler in enumerate(handlers)]
    runs = [
        fleet.promise(handler, folder=str(begun), name=name, lives=lives)
        for handler, name in zip(handlers, names, strict=True)
    ]
    fleet.start_scheduler(app=APP)
    fleet.start_worker("worker-1", "--grace", "0s", app=APP)
    for life in range(1, lives + 1):
        here = {f"{name}-{life}" for name in names}
        until(lambda here=here: here <= {path.name for path in begun.iterdir()}, "each run has begun")  # type: ignore[misc]
        fleet.start_worker(f"worker-{life + 1}", "--grace", "0s", app=APP)
        until(lambda: workers(fleet) == 2, "the next worker waits for work")
        assert fleet.kill(f"worker-{life}", signal.SIGTERM) == code
    for run in map(fleet.succeeded, runs):
        assert [one.outcome for one in run.attempts] == [Outcome.INTERRUPTED] * lives + [Outcome.SUCCEEDED]
        assert (run.spent, run.deaths) == (1, None), "only the success was charged"
    assert not (begun / "overlap").exists(), (begun / "overlap").read_text()


def workers(fleet: Fleet) -> int:
    """How many workers are there."""
    return sum(one.role == "worker" for one in fleet.ask(lambda app: app.operate.instances_async()))
