"""Values that are stored locked: put in, taken out, and locked anew under another key, on every engine."""

from __future__ import annotations

from typing import Any, cast

from foliot.clock import ManualClock
from foliot.domain.instant import SECOND
from foliot.domain.ledger import Effect, EffectState
from foliot.domain.locking import DAMAGED, Place, is_shut, key_of
from foliot.domain.run import Claimed, Ending, Progress, Promise
from foliot.domain.state import Event, Outcome, State
from foliot.domain.store import Store
from foliot.store.keyring import Keyring
from foliot.store.keys import new_key
from foliot.store.locked import locked_store
from tests.contract.stage import START, Stage, declared

OLD, NEW = new_key(), new_key()
CANARY = b'{"card":"c4nary"}'
EFFECT = Effect("pay", "7")


def locked(store: Store, *keys: str) -> Store:
    return locked_store(store, Keyring(keys))


async def half_done(stage: Stage) -> Claimed:
    """A run with arguments, a checkpoint and an effect that is done."""
    worker = await stage.worker()
    [kept] = await stage.store.promise([Promise("job", CANARY, stage.now, key="k")])
    stage.clock.advance(SECOND)
    await stage.fire()
    [run] = await stage.claim()
    assert run.number == kept.number
    await stage.store.beat(worker, [Progress(run.number, run.token, stage.now, None, CANARY)])
    await stage.store.begin_effect(run.number, run.token, EFFECT)
    await stage.store.end_effect(run.number, run.token, EFFECT, EffectState.DONE, CANARY, None)
    return run


async def finished(stage: Stage, run: Claimed) -> None:
    ending = Ending(
        run.number, run.token, run.attempt, Event.COMPLETED, Outcome.SUCCEEDED, stage.now, stage.now, result=CANARY
    )
    assert await stage.store.finish(await stage.worker(), [ending]) == []


async def all_stored(store: Store) -> list[bytes]:
    rows: list[Any] = []
    for place in Place:
        rows += await store.stored(place, "" if place is Place.SCHEDULES else 0, 100)
    return [value for row in rows for value in (row.payload, row.checkpoint, row.result) if value is not None]


async def test_what_is_locked_is_stored_nowhere_as_it_was_and_comes_out_as_it_was(
    store: Store, clock: ManualClock
) -> None:
    stage = Stage(locked(store, OLD), clock)
    await stage.apply(declared("daily", START + 10**12, payload=CANARY))
    run = await half_done(stage)
    assert run.payload == CANARY
    begun = await stage.store.begin_effect(run.number, run.token, EFFECT)
    assert begun.before is not None
    assert begun.before.result == CANARY
    assert (await stage.store.run("k#1")).payload == CANARY
    await finished(stage, run)
    view = await stage.store.run("k#1")
    assert (view.state, view.payload, view.result) == (State.SUCCEEDED, CANARY, CANARY)
    assert [one.result for one in view.effects] == [CANARY]
    assert [one.schedule.payload for one in await stage.store.schedules()] == [CANARY]
    stored = await all_stored(store)
    assert len(stored) == 5  # the schedule's, its tick's, the run's two, the effect's
    assert all(is_shut(value) and b"c4nary" not in value for value in stored)
    # Without the key, all of it is there, and shut.
    assert is_shut((await store.run("k#1")).payload)


async def test_a_value_opens_only_where_it_was_put(store: Store, clock: ManualClock) -> None:
    stage = Stage(locked(store, OLD), clock)
    run = await half_done(stage)
    [row] = await store.stored(Place.RUNS, 0, 10)
    moved = row._replace(payload=row.checkpoint)
    assert await store.store_anew(Place.RUNS, [(row, moved)]) == 1
    assert (await stage.store.run("k#1")).payload.startswith(DAMAGED)
    assert run.payload == CANARY


async def test_rotation_locks_everything_with_the_first_key_and_is_done_once(store: Store, clock: ManualClock) -> None:
    before = Stage(locked(store, OLD), clock)
    await before.apply(declared("daily", START + 10**12, payload=CANARY))
    await half_done(before)
    after = locked(store, NEW, OLD)
    for place in Place:
        first = "" if place is Place.SCHEDULES else 0
        looked = await after.relock(place, first, 10, dry_run=True)
        changed = await after.relock(place, first, 10)
        assert looked == changed
        assert (await after.relock(place, first, 10)).relocked == 0
    names = {key_of(value) for value in await all_stored(store)}
    assert names == {after.keys[0]}
    assert after.keys[0] not in locked(store, OLD).keys
    only_new = locked(store, NEW)
    assert (await only_new.run("k#1")).payload == CANARY
    assert [one.result for one in (await only_new.run("k#1")).effects] == [CANARY]


async def test_what_was_stored_before_there_were_keys_is_read_and_can_be_locked(
    store: Store, clock: ManualClock
) -> None:
    await half_done(Stage(store, clock))
    after = locked(store, NEW)
    assert (await after.run("k#1")).payload == CANARY
    assert (await after.relock(Place.RUNS, 0, 10)).relocked == 1
    assert is_shut((await store.run("k#1")).payload)


async def test_a_row_that_was_changed_meanwhile_is_passed_over(store: Store, clock: ManualClock) -> None:
    await half_done(Stage(locked(store, OLD), clock))
    [row] = await store.stored(Place.RUNS, 0, 10)
    newer = row._replace(checkpoint=b"1")
    assert await store.store_anew(Place.RUNS, [(row, newer)]) == 1
    assert await store.store_anew(Place.RUNS, [(row, row._replace(checkpoint=b"2"))]) == 0
    assert await store.stored(Place.RUNS, 0, 10) == [newer]


async def test_rows_whose_key_is_gone_are_counted_and_left(store: Store, clock: ManualClock) -> None:
    await half_done(Stage(locked(store, OLD), clock))
    before = await store.stored(Place.RUNS, 0, 10)
    page = await locked(store, NEW).relock(Place.RUNS, 0, 10)
    assert (page.relocked, page.shut) == (0, 1)
    assert await store.stored(Place.RUNS, 0, 10) == before


async def test_pages_follow_one_another(store: Store, clock: ManualClock) -> None:
    plain = Stage(store, clock)
    await store.promise([Promise("job", CANARY, plain.now) for _ in range(5)])
    after, position, relocked = locked(store, NEW), cast("int | str | None", 0), 0
    while position is not None:
        page = await after.relock(Place.RUNS, position, 2)
        position, relocked = page.position, relocked + page.relocked
    assert relocked == 5
