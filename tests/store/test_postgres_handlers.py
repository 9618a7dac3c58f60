"""The ledger and the end of a run inside a transaction that the handler began itself, with whatever library."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from foliot.domain.ledger import Begun, Effect, EffectState, Settles, Traits, traits_to_json
from foliot.domain.run import Claimed, Phase
from foliot.domain.state import State
from foliot.domain.store import JobCard, OpenTransaction
from foliot.errors import InvalidInput, LostOwnership
from foliot.portal import finished
from tests.store.callers import Caller, School, Undone, with_each_library

T = TypeVar("T")

PAY = Effect("pay", "7", undo="refund")
STARTED, DONE = EffectState.STARTED, EffectState.DONE


async def asked(caller: Caller, opened: OpenTransaction, question: Coroutine[Any, Any, T]) -> T:
    """Where the library lives."""
    if opened.is_blocking:
        answer: T = await caller._do(finished, question)
        return answer
    return await question


async def begun(caller: Caller, opened: OpenTransaction, run: Claimed, effect: Effect = PAY) -> Begun:
    return await asked(caller, opened, opened.begin_effect(run.number, run.token, effect))


async def ended(caller: Caller, opened: OpenTransaction, run: Claimed, effect: Effect = PAY) -> None:
    await asked(caller, opened, opened.end_effect(run.number, run.token, effect, DONE, b'{"receipt":12}', None))


@with_each_library
async def test_the_ledger_and_the_end_of_the_run_are_the_callers_transaction(school: School, caller: Caller) -> None:
    run = await school.running("order")
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        assert (await begun(caller, opened, run)).before is None
        await ended(caller, opened, run)
        [line] = await asked(caller, opened, opened.ledger_of(run.number))
        assert (line.state, line.result, line.undo, line.attempt) == (DONE, b'{"receipt":12}', "refund", 1)
        assert await asked(caller, opened, opened.finish(0, school.succeeded(run, result=b'"all"')))
        assert await school.state(run) is State.RUNNING
    view = await school.run(run)
    assert (view.state, view.result, view.reason) == (State.SUCCEEDED, b'"all"', "committed")
    assert view.effects == [line]


async def test_nothing_of_it_is_left_when_the_caller_rolls_back(school: School, caller: Caller) -> None:
    run = await school.running("order")
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        await begun(caller, opened, run)
        await ended(caller, opened, run)
        await asked(caller, opened, opened.finish(0, school.succeeded(run)))
        raise Undone
    assert (await school.state(run), await school.ledger(run)) == (State.RUNNING, [])


async def test_an_attempt_that_lost_its_run_can_neither_begin_nor_end_anything(school: School, caller: Caller) -> None:
    run = await school.running("order")
    await school.store.lose([school.lost(run)])
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        await begun(caller, opened, run)
        with pytest.raises(LostOwnership):
            await asked(caller, opened, opened.ledger_of(run.number))
        raise Undone
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        assert not await asked(caller, opened, opened.finish(0, school.succeeded(run)))
        raise Undone
    assert (await school.state(run), await school.ledger(run)) == (State.RETRYING, [])


@pytest.mark.parametrize("settles", [None, Settles.IDEMPOTENT, Settles.PROBE])
async def test_a_maybe_is_told_as_the_stores_own_verbs_tell_it(
    school: School, caller: Caller, settles: Settles | None
) -> None:
    effect = Effect("pay", "7", settles)
    run = await school.running()
    await school.store.begin_effect(run.number, run.token, effect)
    await school.finish(school.failed(run, 0))
    await school.fire()
    [again] = await school.claim()
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        found = await begun(caller, opened, again, effect)
        await asked(caller, opened, opened.ledger_of(again.number))
    assert found.before is not None
    assert found.before.attempt == 1
    [line] = (await school.run(again)).effects
    assert line.attempt == (2 if settles is Settles.IDEMPOTENT else 1)


@pytest.mark.parametrize("by_code", [True, False])
async def test_a_run_of_a_job_with_a_check_is_put_to_it(school: School, caller: Caller, by_code: bool) -> None:
    """Its attempt knows that there is one; or somebody who completes it in SQL does not, and the job's card does."""
    neighbour = await school.promise("neighbour")
    run = await school.running("order")
    if not by_code:
        card = JobCard("job", b"{}", "default", traits=traits_to_json(Traits(checked=True)))
        await school.store.register("worker", version="", queues=["default"], slots=1, jobs=[card])
    ending = school.checkable(run, result=b"1") if by_code else school.succeeded(run, result=b"1")
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        await asked(caller, opened, opened.finish(0, ending))
    view = await school.run(run)
    assert (view.state, view.result, [one.outcome for one in view.attempts]) == (State.VERIFYING, b"1", ["succeeded"])
    assert await school.finish(school.succeeded(run)) == []
    [check] = await school.claim()
    assert (check.number, check.phase) == (run.number, Phase.CHECK)
    assert await school.state(neighbour) is State.RUNNING


async def test_what_is_no_connection_is_refused(school: School) -> None:
    with pytest.raises(InvalidInput, match="cannot be used for promises"):
        school.store.transaction(object())


async def test_an_effect_keeps_nobody_waiting_before_the_transaction_ends(school: School, caller: Caller) -> None:
    await school.promise("neighbour")
    run = await school.running("order")
    [neighbour] = [one for one in await school.store.runs() if one.id == "neighbour#1"]
    opened = school.store.transaction(caller.connection)
    async with caller.transaction():
        await begun(caller, opened, run)
        await ended(caller, opened, run)
        again = await begun(caller, opened, run)
        assert again.before is not None
        assert (again.before.state, again.before.result) == (DONE, b'{"receipt":12}')
        kept = await school.store.cancel(neighbour.id, actor="ada", note="now")
        assert kept.outcome == "asked"
        raise Undone
