"""What a handler does outside, its items and its check: on a real store, with everything around it, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foliot import Context, Foliot, Verdict, after, cron, every
from foliot.domain.ledger import Begun, Effect, Stage
from foliot.domain.state import Outcome, Reason, State
from foliot.errors import InvalidInput
from foliot.testing import virtual_time


def make_app() -> Foliot:
    return Foliot("sqlite:///:memory:", backoff="1s")


def test_a_settlement_that_fails_on_the_way_pays_everybody_once_and_says_so():
    app = make_app()
    paid: list[int] = []

    @app.job(effects=("payout",))
    def settle(ctx: Context, accounts: int) -> None:
        for account in ctx.each(range(accounts)):
            with ctx.effect("payout", account) as payout:
                if payout.needed:
                    paid.append(account)
                    payout.result = {"receipt": account}
            if account == 3 and ctx.attempt == 1:
                raise ConnectionError("after the payout")

    @settle.verify
    def everybody_was_paid(accounts: int) -> Verdict:
        return Verdict(len(set(paid)) == accounts, f"{len(set(paid))} of {accounts} accounts")

    with virtual_time(app) as world:
        kept = settle.now(accounts=6)
        world.run_for("1m")
        found = world.run(kept.id)
        assert (found.state, found.detail) == (State.VERIFIED, "6 of 6 accounts")
        assert paid == [0, 1, 2, 3, 4, 5]
        assert [(str(one.outcome), one.stage) for one in found.attempts] == [
            ("failed", Stage.AFTER_EFFECT),
            ("succeeded", None),
            ("succeeded", Stage.CHECK),
        ]
        assert [str(batch) for batch in found.batches] == ["6 of 6"]
        assert {str(one.state) for one in found.effects} == {"done"}


@pytest.mark.parametrize("declared", [{}, {"idempotent": True}, {"probe": lambda key: {"found": key}}])
def test_a_worker_that_dies_inside_an_effect_leaves_a_maybe_for_whoever_can_settle_it(declared):
    app = make_app()
    begun: list[int] = []

    @app.job(effects=("payout",), lease="30s")
    async def pay(ctx: Context) -> Any:
        async with ctx.effect("payout", 7, **declared) as payout:
            if payout.needed:
                begun.append(ctx.attempt)
                if ctx.attempt == 1:
                    await ctx._clock.sleep(3_600_000_000)
        return payout.result

    with virtual_time(app) as world:
        kept = pay.now()
        world.run_for("1s")
        world.kill_worker()
        world.add_worker()
        world.run_for("10m")
        found = world.run(kept.id)
        if not declared:
            assert (found.state, found.reason, begun) == (State.AMBIGUOUS, Reason.EFFECT, [1])
        else:
            assert found.state is State.SUCCEEDED
            assert begun == ([1, 2] if "idempotent" in declared else [1])
            assert found.result == (None if "idempotent" in declared else b'{"found":"%b/payout/7"}' % kept.id.encode())


def test_an_attempt_that_times_out_inside_an_effect_is_not_tried_again_and_one_before_it_is():
    app = make_app()

    @app.job(timeout="10s", effects=("payout",))
    async def pay(ctx: Context, inside: bool) -> None:
        if ctx.attempt == 1 and not inside:
            await asyncio.sleep(3600)
        async with ctx.effect("payout", 7):
            if ctx.attempt == 1:
                await asyncio.sleep(3600)

    with virtual_time(app) as world:
        runs = [pay.now(inside=True), pay.now(inside=False)]
        world.run_for("10m")
        inside, before = [world.run(kept.id) for kept in runs]
        assert (inside.state, inside.attempts[0].outcome) == (State.AMBIGUOUS, Outcome.TIMED_OUT)
        assert inside.attempts[0].stage is Stage.INSIDE_EFFECT
        assert (before.state, before.attempts[0].stage) == (State.SUCCEEDED, Stage.BEFORE_EFFECT)


def test_what_is_in_doubt_is_put_to_the_check_and_its_word_settles_the_ledger():
    app = make_app()

    @app.job(effects=("payout",))
    def pay(ctx: Context) -> None:
        with ctx.effect("payout", 7):
            raise ConnectionError("did it arrive?")

    @pay.verify
    def it_arrived() -> bool:
        return True

    with virtual_time(app) as world:
        kept = pay.now()
        world.run_for("1m")
        found = world.run(kept.id)
        assert found.state is State.VERIFIED
        assert [str(one.state) for one in found.effects] == ["done"]


@pytest.mark.parametrize(("answer", "state"), [(False, State.UNVERIFIED), (None, State.UNVERIFIED)])
def test_a_check_that_says_no_or_nothing_leaves_the_run_unverified(answer, state):
    app = make_app()

    @app.job
    async def pay() -> None: ...

    @pay.verify
    async def look() -> Any:
        return answer

    with virtual_time(app) as world:
        kept = pay.now()
        world.run_for("1h")
        found = world.run(kept.id)
        assert found.state is state
        assert found.reason == (Reason.CHECK if answer is False else Reason.CHECK_FAILED)
        assert len(found.attempts) == (2 if answer is False else 4)


def test_a_worker_that_dies_in_a_check_costs_only_the_check():
    app = make_app()
    worked: list[int] = []

    @app.job(lease="30s")
    async def pay() -> None:
        worked.append(1)

    @pay.verify
    async def look(ctx: Context) -> bool:
        if ctx.attempt == 2:
            await asyncio.sleep(3600)
        return True

    with virtual_time(app) as world:
        kept = pay.now()
        world.run_for("1s")
        assert world.run(kept.id).state is State.VERIFYING
        world.kill_worker()
        world.add_worker()
        world.run_for("10m")
        assert (world.run(kept.id).state, worked) == (State.VERIFIED, [1])


def test_items_that_a_dying_worker_had_told_are_not_done_again():
    app = make_app()
    seen: list[tuple[int, int]] = []

    @app.job(lease="30s")
    async def load(ctx: Context) -> None:
        async for item in ctx.each(range(5)):
            seen.append((ctx.attempt, item))
            if ctx.attempt == 1 and item == 3:
                await ctx._clock.sleep(3_600_000_000)

    with virtual_time(app) as world:
        kept = load.now()
        world.run_for("30s")
        found = world.run(kept.id)
        assert [str(batch) for batch in found.batches] == ["3 of 5"]
        world.kill_worker()
        world.add_worker()
        world.run_for("10m")
        assert world.run(kept.id).state is State.SUCCEEDED
        assert [item for attempt, item in seen if attempt == 2] == [3, 4]


def test_a_sync_handler_with_many_effects_does_not_let_virtual_time_run_away():
    app = make_app()

    @app.job
    def pay(ctx: Context) -> None:
        for key in range(30):
            with ctx.effect("payout", key):
                pass

    with virtual_time(app) as world:
        began = world.clock.now()
        kept = pay.now()
        world.run_for("1s")
        run = world.run(kept.id)
        assert (run.state, run.finished_at) == (State.SUCCEEDED, began)


def test_an_async_handler_with_many_effects_ends_at_the_moment_at_which_it_began():
    app = make_app()

    @app.job
    async def pay(ctx: Context) -> None:
        for key in range(30):
            async with ctx.effect("payout", key):
                pass

    with virtual_time(app) as world:
        kept = pay.now()
        world.run_for("1h")
        found = world.run(kept.id)
        assert found.started_at == found.finished_at


# ------------------------------------------------------------------------------------------------------------ declaring


def test_a_schedule_of_a_job_with_effects_says_what_becomes_of_overlap_and_missed_ticks():
    app = make_app()

    @app.job(effects=("payout",))
    def pay() -> None: ...

    with pytest.raises(InvalidInput, match='add overlap="skip" and catch_up="once"'):
        app.schedule("pay", pay, cron("0 2 * * *"))
    with pytest.raises(InvalidInput, match='add catch_up="once"'):
        app.schedule("pay", pay, every("1h"), overlap="skip")
    app.schedule("pay", pay, every("1h"), overlap="skip", catch_up="all")


def test_the_job_or_the_app_may_have_said_it_already():
    app = Foliot("sqlite:///:memory:", overlap="skip")

    @app.job(effects=("payout",), catch_up="once")
    def pay() -> None: ...

    app.schedule("pay", pay, every("1h"))


def test_a_job_that_says_that_it_has_no_effects_need_not():
    app = make_app()

    @app.job(effects=())
    def quiet() -> None: ...

    @app.job
    def silent() -> None: ...

    app.schedule("quiet", quiet, every("1h"))
    app.schedule("silent", silent, after("1h"))


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_a_worker_that_dies_inside_an_effect_of_an_item_leaves_on_record_how_much_was_to_be_done(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each effect brings the item that it belongs to, and the first one the size of the batch."""
    app = make_app()
    keys: Any = range(6)

    @app.job(effects=("payout",))
    async def in_loop(ctx: Context) -> None:
        async for account in ctx.each(keys, name="accounts"):
            async with ctx.effect("payout", f"invoice of {account}") as payout:
                if payout.needed and account == 3:
                    raise TimeoutError("no answer")

    @app.job(effects=("payout",))
    def beside(ctx: Context) -> None:
        for account in ctx.each(keys, name="accounts"):
            with ctx.effect("payout", f"invoice of {account}") as payout:
                if payout.needed and account == 3:
                    raise TimeoutError("no answer")

    begun: list[Any] = []
    with virtual_time(app) as world:
        begin_effect = world.store.begin_effect

        async def noted(number: int, token: int, effect: Effect) -> Begun:
            begun.append((effect.item, effect.sizes))
            return await begin_effect(number, token, effect)

        monkeypatch.setattr(world.store, "begin_effect", noted)
        kept = (in_loop if where == "loop" else beside).now()
        world.run_for("1m")
        found = world.run(kept.id)
        assert found.state is State.AMBIGUOUS
        assert begun == [(("accounts", str(n)), (("accounts", 6),) if n == 0 else ()) for n in range(4)]
        [batch] = found.batches
        assert (batch.name, str(batch), batch.in_doubt, batch.failed, batch.left) == ("accounts", "3 of 6", 1, 0, 2)
        kept = app.operate.reconcile(
            kept.id, effects=["payout:invoice of 3=done"], evidence="bank statement 17", actor="ana", then="resume"
        )
        assert kept.outcome == "resumed"
        world.run_for("1m")
        found = world.run(kept.id)
        assert (found.state, [str(batch) for batch in found.batches]) == (State.SUCCEEDED, ["6 of 6"])
