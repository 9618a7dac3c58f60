"""begin_effect, end_effect, items: what attempts did outside, written down before and after."""

from __future__ import annotations

import pytest

from foliot.domain.instant import SECOND
from foliot.domain.ledger import BatchView, EffectState, Facts, Item, ItemState, Settles
from foliot.domain.ledger import Stage as Where
from foliot.domain.run import Claimed, Progress
from foliot.domain.state import Reason, State
from foliot.errors import LostOwnership
from tests.contract.stage import START, Stage

STARTED, DONE, NOT_DONE = EffectState.STARTED, EffectState.DONE, EffectState.NOT_DONE


async def tried_again(stage: Stage, run: Claimed) -> Claimed:
    await stage.finish(stage.failed(run, 0))
    await stage.fire()
    [again] = [one for one in await stage.claim() if one.number == run.number]
    return again


# -------------------------------------------------------------------------------------------------------------- effects


async def test_an_effect_is_written_down_before_it_begins(stage: Stage) -> None:
    run = await stage.running("order")
    begun = await stage.begin(run, undo="refund")
    assert (begun.before, begun.lineage) == (None, "order#1")
    [effect] = (await stage.run(run)).effects
    assert (effect.state, effect.run, effect.attempt, effect.token) == (STARTED, run.number, 1, run.token)
    assert (effect.started_at, effect.ended_at, effect.undo, effect.settles) == (START, None, "refund", None)


async def test_what_is_done_is_not_begun_again_and_tells_its_result(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    stage.clock.advance(SECOND)
    await stage.end(run, result=b'"receipt 12"')
    again = await tried_again(stage, run)
    before = (await stage.begin(again)).before
    assert before is not None
    assert (before.state, before.result, before.attempt, before.ended_at) == (
        DONE,
        b'"receipt 12"',
        1,
        START + SECOND,
    )
    assert (await stage.run(run)).effects == [before]


async def test_a_maybe_of_an_earlier_attempt_is_told_and_left_as_it_is(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    again = await tried_again(stage, run)
    before = (await stage.begin(again)).before
    assert before is not None
    assert before.is_maybe
    assert (await stage.run(run)).effects == [before]


async def test_a_maybe_that_may_be_done_twice_begins_anew(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run, settles=Settles.IDEMPOTENT)
    again = await tried_again(stage, run)
    before = (await stage.begin(again, settles=Settles.IDEMPOTENT)).before
    assert before is not None
    [effect] = (await stage.run(run)).effects
    assert (before.attempt, effect.attempt, effect.state) == (1, 2, STARTED)


async def test_a_maybe_begun_without_a_declaration_is_not_made_harmless_by_a_later_one(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    again = await tried_again(stage, run)
    await stage.begin(again, settles=Settles.IDEMPOTENT)
    [effect] = (await stage.run(run)).effects
    assert (effect.attempt, effect.is_maybe) == (1, True)


async def test_an_effect_that_did_not_happen_begins_anew(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.end(run, NOT_DONE, note="declined")
    assert (await stage.run(run)).effects[0].note == "declined"
    again = await tried_again(stage, run)
    await stage.begin(again)
    [effect] = (await stage.run(run)).effects
    assert (effect.state, effect.attempt, effect.note, effect.ended_at) == (STARTED, 2, None, None)


async def test_a_probe_settles_a_maybe_either_way(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run, settles=Settles.PROBE)
    await stage.begin(run, key="8", settles=Settles.PROBE)
    again = await tried_again(stage, run)
    await stage.end(again, DONE, result=b"1", note="found by its probe")
    await stage.end(again, STARTED, key="8")
    assert await stage.ledger(run) == [("pay", "7", DONE), ("pay", "8", STARTED)]
    assert [effect.attempt for effect in (await stage.run(run)).effects] == [2, 2]


async def test_a_stale_attempt_can_neither_begin_nor_end_an_effect(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.store.lose([stage.lost(run)])
    for key in ("7", "8"):
        with pytest.raises(LostOwnership):
            await stage.begin(run, key=key)
        with pytest.raises(LostOwnership):
            await stage.end(run, key=key)
    assert await stage.ledger(run) == [("pay", "7", STARTED)]


async def test_ledgers_of_runs_are_apart(stage: Stage) -> None:
    one, other = await stage.running("a"), await stage.running("b")
    await stage.begin(one)
    await stage.begin(other)
    await stage.end(one)
    assert await stage.ledger(one) == [("pay", "7", DONE)]
    assert await stage.ledger(other) == [("pay", "7", STARTED)]
    assert [effect.key for effect in await stage.store.ledger_of(other.number)] == ["7"]


async def test_the_ledger_stays_with_a_run_that_ended(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run)
    await stage.end(run)
    await stage.finish(stage.succeeded(run))
    assert await stage.ledger(run) == [("pay", "7", DONE)]


async def test_whoever_judges_a_silent_attempt_knows_what_its_ledger_says(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run, key="done")
    await stage.end(run, key="done")
    await stage.begin(run, key="open", settles=Settles.PROBE)
    await stage.begin(run, key="maybe")
    items = (Item("", "a", ItemState.DONE), Item("", "b", ItemState.FAILED, "no"))
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, b"1", items)])
    stage.clock.advance(60 * SECOND)
    [silent] = await stage.store.silent(stage.now)
    assert silent.facts == Facts(done=1, open=1, maybe=1, items=1, checkpoint=True)


async def test_maybes_of_runs_that_wait_for_a_person_are_found_by_job_and_name(stage: Stage) -> None:
    waiting, running = await stage.ambiguous("a"), await stage.running("b")
    await stage.begin(running)
    found = await stage.store.maybes(None, None, 10)
    assert [(run, effect.name, effect.key) for run, effect in found] == [(waiting.id, "pay", "7")]
    assert len(await stage.store.maybes("job", "pay", 10)) == 1
    assert await stage.store.maybes("other", None, 10) == []
    assert await stage.store.maybes(None, "mail", 10) == []


# ---------------------------------------------------------------------------------------------------------------- items


async def said(stage: Stage, run: Claimed, *items: Item) -> frozenset[int]:
    progress = Progress(run.number, run.token, START, None, None, items)
    return (await stage.store.beat(await stage.worker(), [progress])).unheard


async def test_items_are_kept_with_the_beat_and_skipped_by_the_next_attempt(stage: Stage) -> None:
    run = await stage.running()
    done, failed = Item("", "a", ItemState.DONE, None, 3), Item("", "b", ItemState.FAILED, "no", 3)
    assert await said(stage, run, done, failed) == frozenset()
    assert (await stage.run(run)).batches == [BatchView("", 3, 1, 1, [("b", "no")])]
    again = await tried_again(stage, run)
    assert await stage.store.done_items(again.number, "") == {"a"}
    assert await stage.store.done_items(again.number, "other") == set()


async def test_an_item_that_failed_may_be_done_later_and_what_is_done_stays_so(stage: Stage) -> None:
    run = await stage.running()
    await said(stage, run, Item("", "a", ItemState.FAILED, "no"), Item("", "b", ItemState.DONE))
    await said(stage, run, Item("", "a", ItemState.DONE), Item("", "b", ItemState.FAILED, "late"))
    [batch] = (await stage.run(run)).batches
    assert (batch.done, batch.failed, str(batch)) == (2, 0, "2 of 2")


async def test_items_of_an_attempt_that_lost_its_run_are_not_heard(stage: Stage) -> None:
    run = await stage.running()
    await stage.running("other")  # so that the worker itself is not given up
    await stage.store.lose([stage.lost(run)])
    assert await said(stage, run, Item("", "a", ItemState.DONE)) == {run.number}
    assert await stage.store.done_items(run.number, "") == set()


# --------------------------------------------------------------------------------------------------------------- budget


async def test_retries_beyond_a_jobs_budget_wait_for_the_next_hour(stage: Stage) -> None:
    runs = [await stage.running(key) for key in "abcde"]
    for run in runs:
        await stage.finish(stage.failed(run, SECOND, retries_per_hour=2))
    views = [await stage.run(run) for run in runs]
    hour = 3600 * SECOND
    assert [(view.fire_at - START, view.reason) for view in views] == [
        (SECOND, None),
        (SECOND, None),
        (hour, "budget"),
        (hour, "budget"),
        (2 * hour, "budget"),
    ]
    assert all(view.state is State.RETRYING for view in views)
    stage.clock.set(START + 3 * hour)
    later = await stage.running("f")
    await stage.finish(stage.failed(later, SECOND, retries_per_hour=2))
    assert (await stage.run(later)).fire_at == START + 3 * hour + SECOND


async def test_an_attempt_remembers_its_stage_its_reason_and_how_far_it_came(stage: Stage) -> None:
    run = await stage.running()
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, b'{"done":3}', None)])
    await stage.finish(stage.failed(run, stage=Where.AFTER_EFFECT, reason=Reason.FAILED))
    [attempt] = (await stage.run(run)).attempts
    assert (attempt.stage, attempt.reason, attempt.progress) == (Where.AFTER_EFFECT, "failed", b'{"done":3}')
    assert (await stage.run(run)).reason == "failed"


async def test_an_effect_can_be_begun_while_other_runs_of_the_claim_go_on(stage: Stage) -> None:
    for key in "abc":
        await stage.promise(key)
    await stage.fire()
    first, second, third = await stage.claim()
    await stage.begin(first)
    assert await stage.finish(stage.succeeded(second), stage.succeeded(third)) == []
    await stage.end(first)
    assert await stage.finish(stage.succeeded(first)) == []
    assert await stage.state(first) is State.SUCCEEDED


async def test_a_loss_that_does_not_know_of_the_last_effect_changes_nothing(stage: Stage) -> None:
    run = await stage.running()
    [silent] = await stage.store.silent(stage.now + 1)
    await stage.begin(run)
    assert await stage.store.lose([stage.lost(run, retry_at=stage.now, facts=silent.facts)]) == 0
    assert (await stage.run(run)).state is State.RUNNING
    [silent] = await stage.store.silent(stage.now + 1)
    assert await stage.store.lose([stage.lost(run, retry_at=stage.now, facts=silent.facts)]) == 1
