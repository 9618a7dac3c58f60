"""Reconciling a run of which work is left: settled, and then resumed or closed; never dropped."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.alerts import AlertFilter, Brewing, Kind, Rules, weigh
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.ledger import BatchView, Effect, EffectState, Item, ItemState, Settled, Then
from foliot.domain.listing import RunFilter
from foliot.domain.run import Claimed, OnConflict, Progress
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.store.measuring import Parked
from foliot.domain.survey import Asked, Conclusion
from foliot.errors import Conflict
from foliot.watch.runs import parked as parked_alerts
from tests.contract.stage import START, Stage

DONE, NOT_DONE, STARTED = EffectState.DONE, EffectState.NOT_DONE, EffectState.STARTED
WHO: dict[str, Any] = {"actor": "ada", "evidence": "statement of April 3"}
ACCOUNTS = 6


def answer(state: EffectState, *keys: str) -> list[Settled]:
    return [Settled("pay", key, state) for key in keys]


async def cut_off(stage: Stage, key: str | None = "order", *, recorded: int = 1, done: int = 3) -> Claimed:
    """A run over six accounts whose process died while it paid one of them. It had paid `done` accounts; heartbeats
    reported `recorded` of these."""
    run = await stage.running(key)
    for account in range(done + 1):
        await stage.begin(run, key=str(account), item=("accounts", str(account)), sizes=(("accounts", ACCOUNTS),))
        if account < done:
            await stage.end(run, key=str(account))
    items = tuple(Item("accounts", str(account), ItemState.DONE, None, ACCOUNTS) for account in range(recorded))
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, None, items)])
    await stage.finish(stage.ending(run, Event.MAYBE_FOUND, Outcome.LOST, reason=Reason.EFFECT, error="killed"))
    return run


async def settled(stage: Stage, key: str | None = "order") -> Claimed:
    run = await cut_off(stage, key)
    kept = await stage.store.reconcile(run.id, settled=answer(DONE, "3"), **WHO)
    assert (kept.outcome, kept.state) == ("settled", State.SETTLED)
    return run


async def batches(stage: Stage, run: Claimed) -> list[BatchView]:
    return (await stage.run(run)).batches


# --------------------------------------------------------------------------------------------------------------- counts


async def test_items_are_counted_by_the_effects_that_a_killed_process_left_on_record(stage: Stage) -> None:
    run = await cut_off(stage)
    [batch] = await batches(stage, run)
    assert batch == BatchView("accounts", ACCOUNTS, 3, 0, [], in_doubt=1)
    assert batch.done + batch.in_doubt + batch.left == ACCOUNTS
    await stage.store.reconcile(run.id, settled=answer(DONE, "3"), **WHO)
    [batch] = await batches(stage, run)
    assert (batch.done, batch.in_doubt, batch.left) == (4, 0, 2)


async def test_an_item_that_did_not_happen_is_not_done_although_no_heartbeat_told_of_any(stage: Stage) -> None:
    run = await cut_off(stage, recorded=0)
    await stage.store.reconcile(run.id, settled=answer(NOT_DONE, "3"), **WHO)
    [batch] = await batches(stage, run)
    assert (batch.done, batch.in_doubt, batch.left) == (3, 0, 3)


async def test_an_item_with_two_effects_is_done_when_both_are(stage: Stage) -> None:
    run = await stage.running()
    for name, key in (("pay", "0"), ("mail", "0"), ("pay", "1")):
        await stage.begin(run, name, key, item=("accounts", key), sizes=(("accounts", 3),))
        await stage.store.end_effect(run.number, run.token, Effect(name, key), EffectState.DONE, None, None)
    [batch] = await batches(stage, run)
    assert (batch.done, batch.in_doubt, batch.left) == (1, 0, 2)


async def test_an_item_with_two_effects_of_one_name_is_done_when_both_are(stage: Stage) -> None:
    run = await stage.running()
    for key, item in (("0", "0"), ("0/fee", "0"), ("1", "1"), ("1/fee", "1")):
        await stage.begin(run, key=key, item=("accounts", item), sizes=(("accounts", 3),))
        if item == "0":
            await stage.end(run, key=key)
    await stage.finish(stage.ending(run, Event.MAYBE_FOUND, Outcome.LOST, reason=Reason.EFFECT, error="killed"))
    counts = [await batches(stage, run)]
    for key, state in (("1", DONE), ("1/fee", NOT_DONE)):
        await stage.store.reconcile(run.id, settled=answer(state, key), **WHO)
        counts.append(await batches(stage, run))
    assert [(batch.done, batch.in_doubt, batch.left) for [batch] in counts] == [(1, 1, 1), (1, 1, 1), (1, 0, 2)]


async def test_failures_are_listed_as_they_are_counted(stage: Stage) -> None:
    run = await stage.running()
    for name, key in (("pay", "3"), ("mail", "0")):
        await stage.begin(run, name, key, item=("accounts", key), sizes=(("accounts", ACCOUNTS),))
    items = (Item("accounts", "3", ItemState.FAILED, "timeout", ACCOUNTS),)
    report = Progress(run.number, run.token, START, None, None, items)
    await stage.finish(stage.ending(run, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.EFFECT, report=report))
    stage.clock.advance(MINUTE)
    await stage.store.reconcile(run.id, settled=[Settled("pay", "3", DONE), Settled("mail", "0", NOT_DONE)], **WHO)
    # Account 3 was paid, but no mail was sent.
    assert await batches(stage, run) == [BatchView("accounts", ACCOUNTS, 0, 1, [("3", "timeout")])]


async def test_an_item_that_failed_after_its_effect_was_done_has_failed(stage: Stage) -> None:
    run = await cut_off(stage)
    stage.clock.advance(MINUTE)
    await stage.store.reconcile(run.id, settled=answer(DONE, "3"), then=Then.RESUME, **WHO)
    stage.clock.advance(MINUTE)
    await stage.fire()
    [again] = await stage.claim()
    items = (Item("accounts", "3", ItemState.FAILED, "no receipt", ACCOUNTS),)
    await stage.store.beat(await stage.worker(), [Progress(again.number, again.token, START, None, None, items)])
    [batch] = await batches(stage, run)
    assert (batch.done, batch.failed, batch.failures) == (3, 1, [("3", "no receipt")])


async def test_an_item_that_failed_in_its_effect_is_in_doubt_until_a_person_has_answered(stage: Stage) -> None:
    run = await stage.running()
    await stage.begin(run, key="3", item=("accounts", "3"), sizes=(("accounts", ACCOUNTS),))
    items = (Item("accounts", "3", ItemState.FAILED, "timeout", ACCOUNTS),)
    report = Progress(run.number, run.token, START, None, None, items)
    await stage.finish(stage.ending(run, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.EFFECT, report=report))
    assert await batches(stage, run) == [BatchView("accounts", ACCOUNTS, 0, 0, [], in_doubt=1)]
    stage.clock.advance(MINUTE)
    await stage.store.reconcile(run.id, settled=answer(DONE, "3"), **WHO)
    assert await batches(stage, run) == [BatchView("accounts", ACCOUNTS, 1, 0, [])]


async def test_an_effect_outside_of_a_loop_counts_for_no_item(stage: Stage) -> None:
    run = await cut_off(stage, recorded=3)
    [before] = await batches(stage, run)
    other = await stage.running("other")
    await stage.begin(other, key="summary")
    await stage.end(other, key="summary")
    items = (Item("accounts", "0", ItemState.DONE, None, ACCOUNTS),)
    await stage.store.beat(await stage.worker(), [Progress(other.number, other.token, START, None, None, items)])
    assert await batches(stage, other) == [BatchView("accounts", ACCOUNTS, 1, 0, [])]
    assert await batches(stage, run) == [before]


# --------------------------------------------------------------------------------------------------------------- parked


async def test_a_run_with_items_left_stays_parked_and_listed_once_its_effects_are_settled(stage: Stage) -> None:
    run = await settled(stage)
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail) == (State.SETTLED, "settled", "statement of April 3")
    for wanted in (RunFilter(needs_person=True), RunFilter(states=(State.SETTLED,))):
        assert [one.view.id for one in (await stage.store.list_runs(wanted)).runs] == [run.id]
    assert (await stage.store.list_runs(RunFilter(states=(State.AMBIGUOUS,)))).runs == []
    assert [one.id for one in await stage.store.runs(states=[State.SETTLED], limit=9)] == [run.id]


async def test_settled_runs_are_counted_apart_from_ambiguous_ones(stage: Stage) -> None:
    await settled(stage, "a")
    await cut_off(stage, "b")
    counts = await stage.store.counts()
    assert (counts["settled"], counts["ambiguous"]) == (1, 1)
    pulse = await stage.store.pulse()
    assert (pulse.parked[State.SETTLED], pulse.parked[State.AMBIGUOUS]) == (1, 1)
    assert sorted((await stage.store.backlog()).parked) == [
        Parked("job", State.AMBIGUOUS, 1),
        Parked("job", State.SETTLED, 1),
    ]


async def test_what_needs_a_person_says_how_much_is_left_of_each_run(stage: Stage) -> None:
    first, second = await settled(stage, "a"), await cut_off(stage, "b")
    known = await stage.store.parked([first.number, second.number])
    assert [(one.view.state, one.view.batches[0].done, one.view.batches[0].left) for one in known] == [
        (State.SETTLED, 4, 2),
        (State.AMBIGUOUS, 3, 2),
    ]
    assert [(one.facts.done, one.facts.maybe, one.facts.undone) for one in known] == [(4, 0, 0), (3, 1, 0)]


async def test_an_effect_that_did_not_happen_leaves_work_to_do(stage: Stage) -> None:
    run = await stage.ambiguous()
    kept = await stage.store.reconcile(run.id, settled=answer(NOT_DONE, "7"), **WHO)
    assert kept.outcome == "settled"
    kept = await stage.store.reconcile(run.id, settled=answer(DONE, "7"), **WHO)
    assert (kept.outcome, await stage.state(run)) == ("reconciled", State.RECONCILED)


async def test_a_dead_run_with_items_left_is_settled_and_not_ended(stage: Stage) -> None:
    run = await stage.running()
    items = (Item("accounts", "0", ItemState.DONE, None, ACCOUNTS),)
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, None, items)])
    await stage.finish(stage.died(run))
    assert (await stage.store.reconcile(run.id, settled=[], **WHO)).outcome == "settled"


async def test_a_batch_of_unknown_size_may_have_items_left(stage: Stage) -> None:
    run = await stage.running()
    items = (Item("accounts", "0", ItemState.DONE),)
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, None, items)])
    await stage.finish(stage.died(run))
    assert (await stage.store.reconcile(run.id, settled=[], **WHO)).outcome == "settled"


async def test_a_run_is_not_reconciled_while_an_effect_of_it_has_no_answer(stage: Stage) -> None:
    run = await stage.running("order")
    for key in ("7", "8"):
        await stage.begin(run, key=key)
    await stage.finish(stage.puzzled(run))
    for then in (None, Then.RESUME):
        with pytest.raises(Conflict, match="the state of pay:7 and 1 more is missing, and no change was made"):
            await stage.store.reconcile(run.id, settled=[], then=then, **WHO)
    with pytest.raises(Conflict, match="the state of pay:8 is missing"):
        await stage.store.reconcile(run.id, settled=answer(DONE, "7"), then=Then.RESUME, **WHO)
    assert await stage.ledger(run) == [("pay", "7", STARTED), ("pay", "8", STARTED)]
    kept = await stage.store.reconcile(run.id, settled=answer(DONE, "7"), **WHO)
    assert (kept.outcome, kept.state) == ("recorded", State.AMBIGUOUS)
    assert await stage.ledger(run) == [("pay", "7", DONE), ("pay", "8", STARTED)]
    assert [row.action for row in await stage.store.audit_of(run.id)] == ["reconcile"]


async def test_a_run_that_waits_for_its_check_is_settled_too(stage: Stage) -> None:
    run = await stage.running()
    items = (Item("accounts", "0", ItemState.DONE, None, ACCOUNTS),)
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, None, items)])
    await stage.begin(run)
    await stage.finish(stage.ending(run, Event.DOUBTED, Outcome.LOST, reason=Reason.EFFECT))
    with pytest.raises(Conflict, match="waits for its check"):
        await stage.store.reconcile(run.id, settled=answer(DONE, "7"), then=Then.RESUME, **WHO)
    assert (await stage.store.reconcile(run.id, settled=answer(DONE, "7"), **WHO)).outcome == "settled"
    assert await stage.state(run) is State.SETTLED
    assert await stage.claim(jobs=["job?"]) == [], "its check is not made any more"


async def test_a_settled_run_has_no_result_to_verify(stage: Stage) -> None:
    run = await settled(stage)
    with pytest.raises(Conflict, match="part of its work is not done"):
        await stage.store.recheck(run.id, actor="ada", note="because")


async def test_the_answers_of_a_settled_run_are_not_in_doubt(stage: Stage) -> None:
    run = await settled(stage)
    rerun: dict[str, Any] = {"repair": False, "repeat": (), "override": False, "actor": "ada", "note": "because"}
    await stage.store.rerun(run.id, **rerun)
    assert await stage.state(run) is State.RECONCILED


async def test_a_promise_by_the_key_of_a_settled_run_keeps_it(stage: Stage) -> None:
    run = await settled(stage)
    kept = await stage.promise("order", after=HOUR, on_conflict=OnConflict.KEEP)
    assert (kept.number, kept.outcome, kept.state) == (run.number, "kept", State.SETTLED)
    assert (await stage.promise("order", after=HOUR, on_conflict=OnConflict.RENEW)).outcome == "renewed"


async def test_a_settled_run_is_stored_as_releases_before_it_read_it(stage: Stage) -> None:
    """They know no state 23: one row with it would break every list, metric and look of the watch of theirs."""
    run = await settled(stage)
    store: Any = stage.store
    row = await store.read(lambda tx: tx.one("live_run", number=run.number, name=run.id))
    assert row[2] == State.AMBIGUOUS


# ---------------------------------------------------------------------------------------------------- resume and close


async def test_a_resumed_run_does_the_rest_and_what_is_done_stays_done(stage: Stage) -> None:
    run = await cut_off(stage)
    kept = await stage.store.reconcile(run.id, settled=answer(DONE, "3"), then=Then.RESUME, **WHO)
    assert (kept.outcome, kept.state) == ("resumed", State.RETRYING)
    await stage.fire()
    [again] = await stage.claim()
    assert (again.number, again.attempt) == (run.number, 2)
    for account in range(ACCOUNTS):
        begun = await stage.begin(again, key=str(account))
        assert (begun.before is not None and begun.before.state is DONE) == (account < 4)
    [row] = await stage.store.audit_of(run.id)
    assert (row.action, row.note) == ("reconcile", "pay:3=done; then resume; evidence: statement of April 3")


async def test_a_settled_run_is_resumed_without_an_override(stage: Stage) -> None:
    run = await settled(stage)
    kept = await stage.store.retry(run.id, actor="ada", note="because", override=False)
    assert kept.state is State.RETRYING
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail, view.fire_at) == (State.RETRYING, None, None, stage.now)


async def test_the_rest_is_closed_with_a_reason_that_stays_with_the_run(stage: Stage) -> None:
    run = await settled(stage)
    with pytest.raises(Conflict, match="requires a reason"):
        await stage.store.reconcile(run.id, settled=[], then=Then.CLOSE, **WHO)
    assert await stage.state(run) is State.SETTLED
    given = {**WHO, "evidence": "", "note": "the accounts are closed"}
    kept = await stage.store.reconcile(run.id, settled=[], then=Then.CLOSE, **given)
    assert (kept.outcome, kept.state) == ("closed", State.RECONCILED)
    view = await stage.run(run)
    assert (view.state, view.reason, view.detail) == (
        State.RECONCILED,
        Reason.NOT_NEEDED,
        "the remaining work is not needed: the accounts are closed",
    )
    assert view.batches == [BatchView("accounts", ACCOUNTS, 4, 0, [])]


async def test_a_run_can_be_closed_although_nobody_will_ever_know_of_an_effect(stage: Stage) -> None:
    run = await stage.ambiguous()
    await stage.store.reconcile(run.id, settled=[], then=Then.CLOSE, note="the bank has no records", **WHO)
    view = await stage.run(run)
    assert (view.state, view.reason) == (State.RECONCILED, Reason.NOT_NEEDED)
    assert await stage.ledger(run) == [("pay", "7", STARTED)]


async def test_a_run_that_killed_its_workers_is_tried_alone_when_it_is_resumed(stage: Stage) -> None:
    run = await stage.running()
    items = (Item("accounts", "0", ItemState.DONE, None, ACCOUNTS),)
    await stage.store.beat(await stage.worker(), [Progress(run.number, run.token, START, None, None, items)])
    await stage.store.lose([stage.lost(run, Event.GAVE_UP, deaths=3)._replace(reason=Reason.POISON)])
    assert (await stage.store.reconcile(run.id, settled=[], **WHO)).outcome == "settled"
    await stage.store.retry(run.id, actor="ada", note="mended", override=False)
    await stage.fire()
    assert await stage.claim(suspects=False) == []
    [again] = await stage.claim()
    assert again.deaths == 0


# --------------------------------------------------------------------------------------------------------------- alerts


async def test_the_alert_of_the_doubt_resolves_and_one_of_the_rest_opens_until_that_is_resumed(stage: Stage) -> None:
    run = await cut_off(stage)
    assert await look(stage) == [Kind.AMBIGUOUS]
    await stage.store.reconcile(run.id, settled=answer(DONE, "3"), **WHO)
    assert await look(stage) == [Kind.SETTLED]
    await stage.store.retry(run.id, actor="ada", note="because", override=False)
    assert await look(stage) == []


async def look(stage: Stage) -> list[Kind]:
    """The open alerts about parked runs after the watch has looked."""
    survey = await stage.store.survey(Asked())
    verdict = weigh(survey.alerts, [parked_alerts(survey.subjects, {})], Brewing(), Rules(), survey.now)
    assert await stage.store.conclude(survey.version, Conclusion(b"{}", verdict.opens, resolves=verdict.resolves))
    return [alert.kind for alert in await stage.store.alerts(AlertFilter())]
