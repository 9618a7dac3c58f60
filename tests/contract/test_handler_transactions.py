"""Transactions in a handler's hands: business rows, the ledger, promises and the end of the run are one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foliot.domain.instant import HOUR
from foliot.domain.ledger import Effect, EffectState, Item, ItemState
from foliot.domain.run import Claimed, Progress, Promise
from foliot.domain.state import State
from foliot.domain.store import OpenTransaction
from foliot.errors import StoreError
from tests.contract.stage import Stage

PAY = Effect("pay", "7")


async def executed(transaction: OpenTransaction, statement: str) -> None:
    answer: Any = transaction.connection.execute(statement)
    if not transaction.is_blocking:
        await answer


async def begun(stage: Stage) -> OpenTransaction:
    transaction = stage.store.transaction()
    await transaction.begin()
    return transaction


async def rows(stage: Stage) -> int:
    """Looks at the handler's table, from outside."""
    transaction = await begun(stage)
    try:
        if transaction.is_blocking:
            return int(transaction.connection.execute("SELECT count(*) FROM revenue").get)
        return int(await transaction.connection.fetchval("SELECT count(*) FROM revenue"))
    finally:
        await transaction.roll_back()


@pytest.fixture
def run(stage: Stage, runner: asyncio.Runner) -> Claimed:
    return runner.run(_run(stage))


async def _run(stage: Stage) -> Claimed:
    transaction = await begun(stage)
    await executed(transaction, "DROP TABLE IF EXISTS revenue")
    await executed(transaction, "CREATE TABLE revenue (day text PRIMARY KEY)")
    await transaction.commit()
    return await stage.running("books")


async def worked(stage: Stage, run: Claimed, transaction: OpenTransaction) -> bool:
    """A row, an effect, a promise, and the end of the run."""
    await executed(transaction, "INSERT INTO revenue VALUES ('2026-04-03')")
    assert (await transaction.begin_effect(run.number, run.token, PAY)).lineage == "books#1"
    await transaction.end_effect(run.number, run.token, PAY, EffectState.DONE, b"12", None)
    assert [one.state for one in await transaction.ledger_of(run.number)] == [EffectState.DONE]
    promise = Promise("job", b"{}", stage.now + HOUR, key="next")
    if transaction.is_blocking:
        stage.store.promise_within(transaction.connection, [promise])
    else:
        await stage.store.promise_within_async(transaction.connection, [promise])
    return await transaction.finish(await stage.worker(), stage.succeeded(run, result=b"150"))


async def test_items_that_were_reported_before_it_are_part_of_it(stage: Stage, run: Claimed) -> None:
    report = Progress(run.number, run.token, stage.now, None, None, (Item("", "a", ItemState.DONE),))
    transaction = await begun(stage)
    assert await transaction.finish(await stage.worker(), stage.succeeded(run, report=report))
    await transaction.roll_back()
    assert await stage.store.done_items(run.number, "") == set()
    transaction = await begun(stage)
    assert await transaction.finish(await stage.worker(), stage.succeeded(run, report=report))
    await transaction.commit()
    assert await stage.store.done_items(run.number, "") == {"a"}


async def test_all_of_it_is_there_once_it_is_committed(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    assert await worked(stage, run, transaction)
    await transaction.commit()
    view = await stage.run(run)
    assert (view.state, view.result, await stage.ledger(run)) == (
        State.SUCCEEDED,
        b"150",
        [("pay", "7", EffectState.DONE)],
    )
    assert (await rows(stage), await stage.state("next#1")) == (1, State.SCHEDULED)


async def test_nothing_of_it_is_there_when_it_is_rolled_back(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    assert await worked(stage, run, transaction)
    await transaction.roll_back()
    assert (await stage.state(run), await stage.ledger(run), await rows(stage)) == (State.RUNNING, [], 0)
    assert [one.id for one in await stage.store.runs()] == [run.id]
    assert await stage.finish(stage.succeeded(run)) == []


async def test_an_attempt_that_lost_its_run_cannot_end_it_here_either(stage: Stage, run: Claimed) -> None:
    await stage.store.lose([stage.lost(run)])
    transaction = await begun(stage)
    assert not await transaction.finish(await stage.worker(), stage.succeeded(run))
    await transaction.roll_back()
    assert await stage.state(run) is State.RETRYING


async def test_an_ending_that_was_committed_here_and_is_said_again_changes_nothing(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    await transaction.finish(await stage.worker(), stage.succeeded(run, result=b"1"))
    await transaction.commit()
    assert await stage.finish(stage.succeeded(run, result=b"2")) == []
    assert (await stage.run(run)).result == b"1"


async def test_a_run_with_a_check_is_put_to_it(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    assert await transaction.finish(await stage.worker(), stage.checkable(run, result=b"1"))
    await transaction.commit()
    assert (await stage.run(run)).state is State.VERIFYING
    assert len(await stage.claim()) == 1


async def test_to_roll_back_twice_does_no_harm(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    await transaction.roll_back()
    await transaction.roll_back()
    assert await rows(stage) == 0


async def test_an_attempt_whose_end_is_recorded_cannot_end_its_run_a_second_time(stage: Stage, run: Claimed) -> None:
    await stage.finish(stage.failed(run))
    transaction = await begun(stage)
    assert not await transaction.finish(await stage.worker(), stage.succeeded(run))
    await transaction.roll_back()
    assert await stage.state(run) is State.RETRYING


async def test_a_transaction_that_was_ended_inside_its_block_completes_nothing(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    await executed(transaction, "INSERT INTO revenue VALUES ('2026-04-03')")
    await executed(transaction, "ROLLBACK")
    with pytest.raises(StoreError, match="the handler ended the transaction inside its block, so it does"):
        await transaction.finish(await stage.worker(), stage.succeeded(run))
    await transaction.roll_back()
    assert (await stage.state(run), await rows(stage)) == (State.RUNNING, 0)


async def test_an_effect_that_was_done_in_the_transaction_is_known_there(stage: Stage, run: Claimed) -> None:
    transaction = await begun(stage)
    await transaction.begin_effect(run.number, run.token, PAY)
    await transaction.end_effect(run.number, run.token, PAY, EffectState.DONE, b"12", None)
    before = (await transaction.begin_effect(run.number, run.token, PAY)).before
    await transaction.roll_back()
    assert before is not None
    assert (before.state, before.result) == (EffectState.DONE, b"12")
