from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from foliot import Foliot
from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.ledger import Stage, Traits, traits_from_json
from foliot.domain.policy import Policy
from foliot.domain.run import Phase, Verdict
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.store import check_of
from foliot.errors import InvalidInput, RetryAfter
from foliot.work.attempt import Stop
from foliot.work.context import Context
from foliot.work.handler import Handler
from tests.work.fakes import Bench, run
from tests.work.lives import Life


def settle(ctx: Context, day: date, bank: str = "first") -> str:
    return "settled"


def checked(check: Any, phase: Phase = Phase.CHECK, **more: Any) -> Life:
    """A run of `settle` that is to be checked next."""
    return Life(settle, {"day": "2026-04-03"}, check=check, run={"phase": phase, "attempt": 2} | more)


def test_the_success_of_a_checked_job_is_put_to_its_check():
    ending = Life(settle, {"day": "2026-04-03"}, check=lambda: True).attempt()
    assert (ending.event, ending.outcome) == (Event.CHECK_DUE, Outcome.SUCCEEDED)
    assert (ending.result, ending.stage) == (b'"settled"', None)


def test_so_is_one_without_a_context_or_a_result():
    async def plain() -> None: ...

    assert Life(plain, check=lambda: True).attempt().event is Event.CHECK_DUE


PASSING: list[tuple[Any, str | None]] = [
    (True, None),
    (Verdict(True), None),
    (Verdict(True, "412 of 412 accounts"), "412 of 412 accounts"),
    ((True, "all of them"), "all of them"),
]


@pytest.mark.parametrize(("answer", "scope"), PASSING)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("phase", list(Phase))
def test_a_check_that_says_yes_verifies_the_run_and_says_what_it_looked_at(answer, scope, is_async, phase):
    async def looks() -> Any:
        return answer

    ending = checked(looks if is_async else lambda: answer, phase).attempt()
    assert (ending.event, ending.outcome, ending.stage) == (Event.CHECK_PASSED, Outcome.SUCCEEDED, Stage.CHECK)
    assert (ending.scope, ending.error, ending.result) == (scope, None, None)


@pytest.mark.parametrize(("phase", "event"), [(Phase.CHECK, Event.CHECK_REFUSED), (Phase.DOUBT, Event.MAYBE_FOUND)])
def test_a_check_that_says_no_leaves_the_run_to_people(phase, event):
    ending = checked(lambda: Verdict(False, "410 of 412 accounts"), phase).attempt()
    assert (ending.event, ending.outcome, ending.reason) == (event, Outcome.FAILED, Reason.CHECK)
    assert ending.error == "the check rejected the result: 410 of 412 accounts"


@pytest.mark.parametrize("answer", [None, 1, "yes", (True,), (True, 3), [True, "x"], object()])
def test_anything_else_is_a_check_that_broke_and_is_made_again(answer):
    ending = checked(lambda: answer).attempt()
    assert (ending.event, ending.outcome, ending.reason) == (Event.RETRY_GRANTED, Outcome.FAILED, Reason.CHECK_FAILED)
    assert "return True or False" in str(ending.error)
    assert ending.retries_per_hour is None


def broken() -> bool:
    raise OSError("no line")


def test_a_check_that_breaks_is_made_three_times_and_then_people_are_asked():
    life = checked(broken)
    endings = [life.attempt() for _ in range(3)]
    assert [ending.event for ending in endings] == [Event.RETRY_GRANTED, Event.RETRY_GRANTED, Event.CHECK_REFUSED]
    assert endings[-1].reason is Reason.CHECK_FAILED
    assert checked(broken, Phase.DOUBT, spent=2).attempt().event is Event.MAYBE_FOUND


def test_a_check_may_ask_for_time():
    def early() -> bool:
        raise RetryAfter("1h")

    life = checked(early)
    assert life.attempt().retry_at == life.clock.now() + 3600 * SECOND


@pytest.mark.parametrize("stop", [Stop.DRAIN, Stop.LOST])
def test_a_check_that_is_interrupted_is_given_back(stop):
    life: Any = None

    def looks(ctx: Context) -> bool:
        life.last.ask_to_stop(stop)
        return ctx.cancelled

    life = checked(looks)
    ending = life.attempt()
    assert (ending.event, ending.outcome) == (Event.GIVEN_BACK, Outcome.INTERRUPTED)


def test_a_check_that_never_began_is_given_back_whoever_asked_it_to_stop():
    for stop in Stop:
        assert checked(lambda: True).attempt(stop) is None


def test_a_check_has_a_time_of_its_own_and_not_the_jobs():
    async def scene() -> None:
        async def work() -> None: ...

        async def looks() -> bool:
            await asyncio.sleep(3600)
            return True

        policy = Policy(timeout=10 * SECOND, stall_after=5 * SECOND)
        handler = Handler.of(work, policy=policy).checked_by(looks, {"timeout": "1m", "attempts": 1})
        bench = Bench(handler)
        bench.store.hand_off("work", phase=Phase.CHECK)
        await bench.worker.start()
        await bench.work()
        await bench.advance(50 * SECOND)
        assert bench.store.finished == []
        await bench.advance(10 * SECOND)
        [ending] = bench.store.finished
        assert (ending.event, ending.outcome) == (Event.CHECK_REFUSED, Outcome.TIMED_OUT)
        assert (ending.reason, ending.stage) == (Reason.CHECK_FAILED, Stage.CHECK)

    run(scene())


def test_a_worker_asks_for_the_checks_that_it_has_and_gives_back_those_that_it_has_not():
    def work() -> None: ...

    async def scene() -> None:
        bench = Bench(Handler.of(work).checked_by(lambda: True, {}))
        assert bench.worker.room.jobs == ("work", check_of("work"))
        other = Bench(work)
        other.store.hand_off("work", phase=Phase.CHECK)
        await other.worker.start()
        await other.worker.run_once()
        await other.worker.settle()
        await other.worker.run_once()
        await other.worker.settle()
        assert [claim.phase for claim in other.store.given_back] == [Phase.CHECK]

    run(scene())


def test_a_check_takes_any_of_the_jobs_arguments_by_name_as_the_job_would_see_them():
    seen: list[Any] = []

    def looks(day: date, ctx: Context, bank: str) -> bool:
        seen.append((day, bank, ctx.run_id))
        return True

    checked(looks).attempt()
    assert seen == [(date(2026, 4, 3), "first", "pay@monday")]


def test_a_check_with_a_default_of_its_own_keeps_it_and_one_that_takes_all_gets_all():
    seen: list[Any] = []

    def own(bank: str = "any", more: int = 3) -> bool:
        seen.append((bank, more))
        return True

    def everything(**given: Any) -> bool:
        seen.append(given)
        return True

    checked(own).attempt()
    checked(everything).attempt()
    assert seen == [("any", 3), {"day": date(2026, 4, 3)}]


def test_a_check_that_wants_what_the_job_does_not_have_is_refused_when_it_is_declared():
    with pytest.raises(
        InvalidInput, match="its check has the parameter account, which the job does not have; the job has: day, bank"
    ):
        checked(lambda account: True)


@pytest.mark.parametrize("act", ["ctx.effect('payout', 7)", "ctx.each([1])", "ctx.checkpoint(1)"])
def test_a_check_changes_nothing(act):
    def looks(ctx: Context) -> bool:
        eval(act, {"ctx": ctx})
        return True

    assert "a check must not change anything: use" in str(checked(looks).attempt().error)


# ------------------------------------------------------------------------------------------------------------ declaring


def test_a_check_is_declared_on_the_job_and_both_stay_plain_functions():
    app = Foliot("sqlite:///:memory:")

    @app.job
    def pay(day: int) -> int:
        return day

    @pay.verify
    def first(day: int) -> bool:
        return day == 3

    @app.job
    async def mail() -> None: ...

    @mail.verify(timeout="1m", attempts=2, backoff="10s")
    async def second() -> bool:
        return True

    assert (pay(3), first(3), first(4)) == (3, True, False)
    check = mail.handler.check
    assert check is not None
    assert (check.policy.timeout, check.policy.attempts, check.policy.backoff) == (MINUTE, 2, 10 * SECOND)
    assert traits_from_json(pay.handler.card().traits) == Traits(checked=True)
    with pytest.raises(InvalidInput, match="pay has a check already"):
        pay.verify(first)
    with pytest.raises(InvalidInput, match="a check belongs to the job itself, not to the result of"):
        mail.using(key="x").verify(second)
    settings: Any = {"lease": "1m"}
    with pytest.raises(InvalidInput, match="a check has no setting 'lease'"):
        app.job(name="other")(lambda: None).verify(**settings)(lambda: True)
