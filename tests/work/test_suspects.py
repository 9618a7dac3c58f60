"""Runs that may kill their worker: how many it executes together, and which of them have a process of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.instant import HOUR, SECOND
from foliot.domain.policy import Policy
from foliot.domain.run import Phase
from foliot.domain.state import Event, Outcome, Reason
from foliot.work.handler import Handler
from tests.tiers import only_in_full
from tests.work import commons
from tests.work.fakes import Bench, run, until
from tests.work.test_isolation import Prison, prison

PATIENT = Policy(timeout=HOUR)


class Line:
    """Async runs that wait until the test ends them, each by its place in the order in which they began."""

    def __init__(self, **worker: Any) -> None:
        self.open: list[asyncio.Event] = []
        self.bench = Bench(self.work, policy=PATIENT, **worker)

    async def work(self) -> None:
        gate = asyncio.Event()
        self.open.append(gate)
        await gate.wait()

    @property
    def begun(self) -> int:
        return len(self.open)

    async def end(self, *places: int) -> None:
        for place in places:
            self.open[place].set()
        await asyncio.sleep(0)
        await self.bench.work()


@pytest.mark.parametrize(("losses", "together"), [(2, 8), (3, 4), (4, 2), (5, 1), (9, 1)])
def test_each_loss_halves_how_many_suspected_runs_a_worker_executes_together(losses: int, together: int) -> None:
    async def scene() -> None:
        line = Line(slots=16)
        await line.bench.worker.start()
        for _ in range(12):
            line.bench.store.hand_off("work", deaths=0, losses=losses)
        await line.bench.work()
        assert line.begun == together
        await line.end(0)
        assert line.begun == together + 1, "one has ended, so another one may begin"

    run(scene())


def test_runs_without_suspicion_begin_beside_as_many_suspected_ones_as_there_may_be() -> None:
    async def scene() -> None:
        line = Line(slots=16)
        await line.bench.worker.start()
        for _ in range(5):
            line.bench.store.hand_off("work", deaths=0, losses=5)
        for _ in range(15):
            line.bench.store.hand_off("work")
        await line.bench.work()
        assert line.begun == 16, "one suspected run, and all others"

    run(scene())


def test_a_worker_that_executes_as_many_suspected_runs_as_it_may_asks_for_others_only() -> None:
    async def scene() -> None:
        line = Line(slots=16)
        await line.bench.worker.start()
        for _ in range(3):
            line.bench.store.hand_off("work", deaths=0, losses=2)
        await line.bench.work()
        for _ in range(6):
            line.bench.store.hand_off("work", deaths=0, losses=2)
        await line.bench.work()
        assert (line.begun, line.bench.store.suspects[-1]) == (8, False)
        assert line.bench.store.given_back == []

    run(scene())


def test_a_suspected_run_that_does_not_fit_is_given_back_and_one_of_fewer_losses_begins() -> None:
    async def scene() -> None:
        line = Line(slots=16)
        await line.bench.worker.start()
        line.bench.store.hand_off("work", deaths=0, losses=5)
        await line.bench.work()
        for losses in (6, 2):
            line.bench.store.hand_off("work", deaths=0, losses=losses)
        await line.bench.work()
        assert line.begun == 1
        for _ in range(2):
            await line.bench.advance(5 * SECOND)
        assert line.begun == 2
        assert [run.losses for run in line.bench.store.given_back] == [6, 6], "after the looks that found nothing else"
        await line.end(0)
        assert line.begun == 3

    run(scene())


def test_a_suspected_run_counts_until_the_store_has_its_outcome() -> None:
    """If the next one began before, and killed the worker, that loss would be counted for both."""

    async def scene() -> None:
        line = Line(slots=16)
        await line.bench.worker.start()
        heard = line.bench.store.slow["finish"] = asyncio.Event()
        for _ in range(2):
            line.bench.store.hand_off("work", deaths=0, losses=5)
        await line.bench.worker.run_once()
        await asyncio.sleep(0)
        line.open[0].set()
        for _ in range(5):
            await line.bench.worker.run_once()
            await asyncio.sleep(0)
        assert line.begun == 1
        heard.set()
        await line.bench.work()
        assert line.begun == 2

    run(scene())


def test_a_suspect_of_a_release_before_counts_as_lost_twice() -> None:
    async def scene() -> None:
        line = Line(slots=4)
        await line.bench.worker.start()
        for _ in range(3):
            line.bench.store.hand_off("work", deaths=0, losses=0)
        await line.bench.work()
        assert line.begun == 2

    run(scene())


# ----------------------------------------------------------------------------------------------- processes of their own


@asynccontextmanager
async def isolating(folder: Path, handler: Handler, **worker: Any) -> AsyncIterator[Prison]:
    """A worker whose store other processes can open."""
    async with prison(handler, **worker) as made:
        made.store.url = f"sqlite:///{folder}/foliot.db"
        yield made


def shared(name: str) -> Handler:
    return commons.app.jobs[name].handler


def lost_before(deaths: int = 0) -> dict[str, int]:
    return {"deaths": deaths, "losses": 4}


def test_a_run_that_may_be_poison_has_a_process_of_its_own_and_runs_without_suspicion_have_none(tmp_path: Path) -> None:
    async def scene() -> None:
        async with isolating(tmp_path, shared("where"), slots=8) as made:
            suspect = made.store.hand_off("where", **lost_before())
            made.store.hand_off("where")
            endings = {ending.number: ending for ending in await made.ended(2)}
            assert [ending.outcome for ending in endings.values()] == [Outcome.SUCCEEDED] * 2
            apart = endings.pop(suspect.number)
            assert apart.result != next(iter(endings.values())).result

    run(scene())


@pytest.mark.parametrize("how", [only_in_full("exit"), "segfault", only_in_full("kill")])
def test_the_death_of_that_process_is_the_runs_own_loss(how: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with isolating(tmp_path, shared("fall"), slots=8) as made:
            made.store.hand_off("fall", {"how": how}, **lost_before())
            made.store.hand_off("fall", {"how": how}, **lost_before(deaths=2))
            first, last = sorted(await made.ended(2), key=lambda ending: ending.number)
            assert (first.event, first.outcome, first.reason, first.deaths) == (
                *(Event.RETRY_GRANTED, Outcome.LOST, Reason.LOST, 1),
            )
            assert (last.event, last.outcome, last.reason, last.deaths) == (
                *(Event.GAVE_UP, Outcome.LOST, Reason.POISON, 3),
            )
            assert "the handler's process" in (first.error or "")

    run(scene())


def test_an_ordinary_failure_in_that_process_clears_the_suspicion(tmp_path: Path) -> None:
    async def scene() -> None:
        async with isolating(tmp_path, shared("fail"), slots=8) as made:
            made.store.hand_off("fail", **lost_before(deaths=2))
            [ending] = await made.ended()
            assert (ending.event, ending.outcome, ending.deaths) == (Event.RETRY_GRANTED, Outcome.FAILED, None)

    run(scene())


def test_no_more_runs_than_the_worker_may_start_processes_are_tried_in_one(tmp_path: Path) -> None:
    async def scene() -> None:
        async with isolating(tmp_path, shared("halt"), slots=8, processes=2) as made:
            for _ in range(3):
                made.store.hand_off("halt", **lost_before())
            await made.begun(2)
            for _ in range(3):
                await made.worker.run_once()
            assert (made.worker.taken, len(made.store.ready)) == (2, 1)

    run(scene())


def test_a_job_that_no_other_process_can_import_is_tried_in_the_worker_one_run_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def hidden(n: int) -> None:
        begun.append(n)
        await asyncio.Event().wait()

    async def scene() -> None:
        async with isolating(tmp_path, hidden.handler, slots=8) as made:
            for n in range(2):
                made.store.hand_off("hidden", {"n": n}, **lost_before())
            await until(lambda: begun)
            for _ in range(3):
                await made.worker.run_once()
            assert begun == [0]

    with caplog.at_level(logging.WARNING, "foliot.work"):
        run(scene())
    assert "cannot be isolated in a separate process" in caplog.text


def test_a_job_whose_app_cannot_be_imported_a_second_time_is_tried_in_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moody.py").write_text(
        "import os\n"
        "from foliot import Foliot\n"
        "app = Foliot('sqlite:///:memory:')\n"
        "@app.job\n"
        "def work() -> int: return os.getpid()\n"
        "if 'FOLIOT_ATTEMPT' in os.environ: raise RuntimeError('not here')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import moody  # type: ignore[import-not-found]

    async def scene() -> None:
        async with isolating(tmp_path, moody.work.handler, slots=8) as made:
            made.store.hand_off("work", **lost_before())
            [ending] = await made.ended()
            assert (ending.outcome, ending.event) == (Outcome.SUCCEEDED, Event.COMPLETED)
            assert len(made.store.given_back) == 1, "the attempt that never began costs nothing"

    run(scene())


def test_a_check_under_suspicion_is_made_in_the_worker(tmp_path: Path) -> None:
    async def scene() -> None:
        handler = shared("where").checked_by(lambda: True, {})
        async with isolating(tmp_path, handler, slots=8) as made:
            made.store.hand_off("where", phase=Phase.CHECK, **lost_before())
            [ending] = await made.ended()
            assert ending.event is Event.CHECK_PASSED

    run(scene())
