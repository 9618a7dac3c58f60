"""An operator forces the cancellation of a run: its worker hears that, and the end of the worker ends the run."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.instant import SECOND
from foliot.domain.ledger import Settles
from foliot.domain.run import Claimed, Progress
from foliot.domain.state import Outcome, Reason, State
from foliot.errors import Conflict
from foliot.store import process
from foliot.watch.reaper import Reaper
from tests.contract.stage import START, Stage

FORCE: dict[str, Any] = {"actor": "ada", "note": "hangs", "force": True}


async def held(stage: Stage, count: int = 1) -> tuple[int, list[Claimed]]:
    """A worker that ends its process for a forced cancellation, and runs that it executes."""
    worker = await stage.register(recycles=True)
    return worker, [await stage.running(f"class:{number}", worker=worker) for number in range(count)]


async def reap(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch looks when the process of each worker is gone."""
    with monkeypatch.context() as ended:
        ended.setattr(process, "is_gone", lambda *_: True)
        await Reaper(stage.store, stage.clock).run_once()


async def test_a_worker_hears_that_a_cancellation_is_forced(stage: Stage) -> None:
    worker, [run, other] = await held(stage, 2)
    await stage.store.cancel(other.id, actor="ada", note="")
    forced = await stage.store.cancel(run.id, **FORCE)
    assert (forced.outcome, forced.state) == ("forced", State.RUNNING)
    beat = await stage.store.beat(worker, [])
    assert (sorted(beat.cancel), beat.force) == (sorted([run.number, other.number]), {run.number})
    view = await stage.run(run)
    assert (view.cancel_requested, view.cancel_forced) == (True, True)
    assert not (await stage.run(other)).cancel_forced


async def test_a_cancellation_stays_forced_when_the_run_is_cancelled_once_more(stage: Stage) -> None:
    worker, [run] = await held(stage)
    await stage.store.cancel(run.id, actor="ada", note="please")
    assert (await stage.store.beat(worker, [])).force == frozenset()
    await stage.store.cancel(run.id, **FORCE)
    await stage.store.cancel(run.id, actor="bob", note="please")
    assert (await stage.store.beat(worker, [])).force == {run.number}


async def test_a_forced_cancellation_is_in_the_audit_log(stage: Stage) -> None:
    _, [run] = await held(stage)
    await stage.store.cancel(run.id, **FORCE)
    [row] = await stage.store.audit_of(run.id)
    assert (row.actor, row.action, row.note) == ("ada", "force_cancel", "hangs")


async def test_only_a_running_run_is_cancelled_with_force(stage: Stage) -> None:
    kept = await stage.promise("class:7")
    with pytest.raises(Conflict, match="class:7#1 is scheduled: force applies only to a run that a worker executes"):
        await stage.store.cancel(kept.id, **FORCE)
    assert await stage.state(kept) is State.SCHEDULED
    assert await stage.store.audit_of(kept.id) == []


async def test_force_is_refused_where_the_worker_does_not_end_its_process(stage: Stage) -> None:
    """A worker of an earlier release registers without saying that it does, as one over HTTP."""
    run = await stage.running("class:7")
    with pytest.raises(Conflict, match=r"its worker \d+ does not end its process for a forced cancellation"):
        await stage.store.cancel(run.id, **FORCE)
    assert (await stage.store.beat(await stage.worker(), [])).cancel == []
    assert await stage.store.audit_of(run.id) == []


async def test_instances_say_whether_they_end_their_process(stage: Stage) -> None:
    worker, plain = await stage.register(recycles=True), await stage.register()
    assert {one.number: one.recycles for one in await stage.store.instances()} == {worker: True, plain: False}


async def test_a_forced_run_ends_as_cancelled_with_its_process_and_the_others_start_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, [run, other] = await held(stage, 2)
    await stage.store.cancel(run.id, **FORCE)
    await stage.store.beat(worker, [], leaving=True)
    await Reaper(stage.store, stage.clock).run_once()
    assert await stage.state(run) is State.RUNNING, "the process may still do something"
    await reap(stage, monkeypatch)
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail, view.spent) == (State.CANCELLED, Reason.OPERATOR, "hangs", 0)
    assert [one.outcome for one in view.attempts] == [Outcome.CANCELLED]
    view = await stage.run(other)
    assert (view.state, view.spent, view.deaths) == (State.SCHEDULED, 0, None)
    assert [one.outcome for one in view.attempts] == [Outcome.INTERRUPTED]
    stage.clock.advance(SECOND)
    await stage.fire()
    assert [one.number for one in await stage.claim(worker=await stage.register())] == [other.number]


async def test_a_forced_run_that_had_timed_out_ends_as_cancelled(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be a dead letter."""
    worker = await stage.register(recycles=True)
    run = await stage.running("class:7", worker=worker, options=b'{"attempts":1}')
    said = Progress(run.number, run.token, START, None, None, ending=Outcome.TIMED_OUT)
    await stage.store.beat(worker, [said], leaving=True)
    await stage.store.cancel(run.id, **FORCE)
    await reap(stage, monkeypatch)
    assert await stage.state(run) is State.CANCELLED


async def test_a_forced_run_whose_worker_was_killed_ends_as_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, [run] = await held(stage)
    await stage.store.cancel(run.id, **FORCE)
    await reap(stage, monkeypatch)
    view = await stage.run(run)
    assert (view.state, view.spent, view.deaths) == (State.CANCELLED, 0, None)


@pytest.mark.parametrize("settles", [None, Settles.PROBE])
async def test_a_forced_run_with_an_open_effect_is_ambiguous(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, settles: Settles | None
) -> None:
    worker, [run] = await held(stage)
    await stage.begin(run, settles=settles)
    await stage.store.cancel(run.id, **FORCE)
    await stage.store.beat(worker, [], leaving=True)
    await reap(stage, monkeypatch)
    assert await stage.state(run) is State.AMBIGUOUS


async def test_a_forced_run_that_finishes_in_time_keeps_its_verdict(stage: Stage) -> None:
    worker, [run] = await held(stage)
    await stage.store.cancel(run.id, **FORCE)
    assert await stage.finish(stage.succeeded(run), worker=worker) == []
    assert await stage.state(run) is State.SUCCEEDED
    assert (await stage.store.beat(worker, [])).force == frozenset()
