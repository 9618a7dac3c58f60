"""backlog, ended_counts, live_counts, schedule_ages: what metrics are made of."""

from __future__ import annotations

from collections import Counter

from foliot.domain.instant import HOUR, MINUTE, SECOND
from foliot.domain.run import Lane
from foliot.domain.state import State
from foliot.domain.store import QueueView
from foliot.domain.store.measuring import EndedCount, Parked
from tests.contract.stage import START, Stage, declared, fires_hourly, holds


async def test_what_waits_is_counted_where_it_waits(stage: Stage) -> None:
    await stage.promise()
    await stage.promise(queue="mail")
    await stage.fire()
    await stage.promise(after=HOUR)
    stage.clock.advance(MINUTE)
    await stage.promise()
    found = await stage.store.backlog()
    assert found.queues == [QueueView("default", 1, START), QueueView("mail", 1, START)]
    assert dict(found.lanes) == {Lane.LIVE: 2}
    assert found.overdue == 1, "neither what waits for a worker nor what is to come"
    assert (found.parked, found.early) == ([], 0)


async def test_what_is_claimed_or_held_is_not_overdue(stage: Stage) -> None:
    await stage.running()
    await stage.apply(declared("held", START))
    await stage.fire(holds)
    assert (await stage.store.backlog()).overdue == 0
    assert await live(stage) == {State.RUNNING: 1, State.HELD: 1}


async def test_what_waits_for_a_person_is_counted_by_job(stage: Stage) -> None:
    for ending in (Stage.died, Stage.died, Stage.puzzled):
        await stage.finish(ending(stage, await stage.running()))
    parked = (await stage.store.backlog()).parked
    assert sorted(parked) == [Parked("job", State.DEAD, 2), Parked("job", State.AMBIGUOUS, 1)]


async def test_every_ending_is_counted_once_by_whoever_goes_on_from_where_it_stood(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running()))
    position, before = await stage.store.ended_counts(None)
    assert before == [], "what ended before anybody looked"
    for ending in (Stage.succeeded, Stage.succeeded, Stage.stopped):
        await stage.finish(ending(stage, await stage.running()))
    position, counted = await stage.store.ended_counts(position)
    assert sorted(counted) == [EndedCount("job", State.SUCCEEDED, 2, 2), EndedCount("job", State.CANCELLED, 1, 1)]
    assert (await stage.store.ended_counts(position))[1] == []


async def test_live_runs_are_counted_by_state(stage: Stage) -> None:
    await stage.promise()
    await stage.fire()
    await stage.promise(after=HOUR)
    await stage.finish(stage.succeeded(await stage.running()))
    counted, found = await stage.store.counts(), await live(stage)
    assert found == {State(State[name.upper()]): count for name, count in counted.items() if count and name in NAMES}


NAMES = {str(state) for state in State}


async def live(stage: Stage) -> dict[State, int]:
    return {state: count for state, count in Counter(await stage.store.live_counts()).items() if count}


async def test_a_schedule_is_as_old_as_its_last_useful_run(stage: Stage) -> None:
    await stage.apply(declared("nightly", START), declared("paused", START + HOUR))
    await stage.store.pause("paused", until=None, actor="ana", note="a test")
    await stage.fire(fires_hourly)
    [made] = [one for one in await stage.store.schedule_ages() if one.schedule == "nightly"]
    assert (made.useful_at, made.made_at) == (None, START)
    [run] = await stage.claim()
    stage.clock.advance(3 * SECOND)
    await stage.finish(stage.succeeded(run))
    nightly, paused = await stage.store.schedule_ages()
    assert (nightly.schedule, nightly.useful_at, nightly.is_paused, nightly.is_faulty) == (
        *("nightly", START + 3 * SECOND, False, False),
    )
    assert (paused.schedule, paused.is_paused) == ("paused", True)
