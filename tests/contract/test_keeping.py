"""keep_days, tidy: what has outlived its term goes, and nothing else."""

from __future__ import annotations

import pytest

from foliot.domain.instant import DAY, HOUR
from foliot.domain.overview import Tally
from foliot.domain.state import State
from foliot.errors import UnknownName
from tests.contract.stage import Stage


async def test_what_has_outlived_its_term_goes_and_nothing_else(stage: Stage) -> None:
    await stage.store.set_keep_days(None, actor="ana", note="for now")
    run = await stage.running("old:1")
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [again] = await stage.claim()
    await stage.begin(again)
    await stage.end(again)
    await stage.finish(stage.succeeded(again))
    await stage.finish(stage.died(await stage.running("dead:1")))
    await stage.ambiguous("doubt:1")
    await stage.promise("later:1", after=300 * DAY)
    await stage.store.note("kind", "old", "detail")
    stage.clock.advance(10 * DAY)
    await stage.finish(stage.succeeded(await stage.running("new:1")))
    await stage.store.note("kind", "new", "detail")
    await stage.store.tidy()
    assert await stage.state("old:1#1") is State.SUCCEEDED, "for ever"

    await stage.store.set_keep_days(9, actor="ana", note="the disk is small")
    assert await stage.store.keep_days() == 9
    await stage.store.tidy()
    with pytest.raises(UnknownName):
        await stage.run("old:1#1")
    assert await stage.ledger("doubt:1#1") != []
    kept = {view.id: view.state for view in await stage.store.runs()}
    assert kept == {
        "dead:1#1": State.DEAD,
        "doubt:1#1": State.AMBIGUOUS,
        "later:1#1": State.SCHEDULED,
        "new:1#1": State.SUCCEEDED,
    }
    assert [event.subject for event in await stage.events("kind")] == ["new"]
    assert [row.action for row in await stage.store.audit_of("history")] == ["keep", "keep"]
    assert (await stage.promise("old:1")).outcome == "made", "its name is free again"


async def test_what_is_dropped_was_counted_before_and_counting_goes_on_after(stage: Stage) -> None:
    await stage.store.set_keep_days(1, actor="ana", note="")
    for _ in range(3):
        await stage.finish(stage.succeeded(await stage.running()))
    stage.clock.advance(DAY - HOUR)
    await stage.store.tidy()
    assert (await stage.store.pulse()).day == Tally(on_time=3)
    stage.clock.advance(2 * HOUR)
    await stage.store.tidy()
    await stage.finish(stage.succeeded(await stage.running()))
    await stage.store.tidy()
    assert (await stage.store.pulse()).hour == Tally(on_time=1)
