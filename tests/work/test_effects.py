from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foliot.domain.instant import SECOND
from foliot.domain.ledger import Effect, EffectState, Stage
from foliot.domain.policy import Policy
from foliot.domain.state import Event, Outcome, Reason
from foliot.errors import InvalidInput, LostOwnership, Maybe, RetryAfter, StoreError
from foliot.work.attempt import Stop
from foliot.work.context import Context
from foliot.work.handler import Handler
from tests.tiers import by_tier
from tests.work.fakes import Bench, Gate, begin, run, until
from tests.work.lives import Life

Body = Callable[[Any], None]


def pay(body: Body, **declared: Any) -> list[Callable[..., Any]]:
    """The same handler twice: with an effect around the body, in a thread and in the loop."""

    def in_thread(ctx: Context) -> None:
        with ctx.effect("payout", 7, **declared) as effect:
            body(effect)

    async def in_loop(ctx: Context) -> None:
        async with ctx.effect("payout", 7, **declared) as effect:
            body(effect)

    return [in_thread, in_loop]


def both(test: Callable[..., None]) -> Any:
    return pytest.mark.parametrize("kind", [0, 1], ids=["thread", "loop"])(test)


def failing(effect: Any) -> None:
    raise OSError("the bank hung up")


# --------------------------------------------------------------------------------------------------- what is remembered


@both
def test_an_effect_is_written_down_before_it_begins_and_after_it_is_done(kind):
    life: Any = None

    def body(effect: Any) -> None:
        assert life.ledger == {"payout 7": "started"}
        assert (effect.needed, effect.state, effect.key) == (True, "started", "pay@monday/payout/7")
        effect.result = {"receipt": 3}

    life = Life(pay(body)[kind])
    ending = life.attempt()
    assert (ending.event, ending.stage) == (Event.COMPLETED, None)
    assert life.ledger == {"payout 7": "done"}
    assert life.lines[0].result == b'{"receipt":3}'


@both
def test_what_an_earlier_attempt_did_is_recalled_and_not_done_again(kind):
    recalled = []

    def body(effect: Any) -> None:
        recalled.append((effect.needed, effect.result, effect.state))
        if effect.needed:
            effect.result = "R-1"

    life = Life(pay(body)[kind])
    life.attempt()
    assert life.attempt().event is Event.COMPLETED
    assert recalled == [(True, None, "started"), (False, "R-1", "done")]


@both
def test_a_rerun_has_the_idempotency_key_and_the_ledger_of_its_first_run(kind):
    keys = []
    life = Life(pay(lambda effect: keys.append((effect.key, effect.needed)))[kind])
    life.attempt()
    life.run = life.run._replace(number=2, name="pay@monday#r1", lineage=1, attempt=1)
    life.attempt()
    assert keys == [("pay@monday/payout/7", True), ("pay@monday/payout/7", False)]
    assert life.last.context.lineage == life.last.context.dedupe_key == "pay@monday"


def test_an_effect_that_is_done_is_not_needed_a_second_time_in_the_same_attempt():
    needed = []

    async def job(ctx: Context) -> None:
        for _ in range(2):
            async with ctx.effect("payout", 7) as effect:
                needed.append(effect.needed)

    Life(job).attempt()
    assert needed == [True, False]


def test_effects_nest_and_run_side_by_side():
    async def one(ctx: Context, key: int) -> None:
        async with ctx.effect("payout", key) as outer, ctx.effect("mail", key) as inner:
            await asyncio.sleep(0)
            assert outer.needed
            assert inner.needed

    async def job(ctx: Context) -> None:
        await asyncio.gather(*(one(ctx, key) for key in range(20)))

    life = Life(job)
    assert life.attempt().event is Event.COMPLETED
    assert set(life.ledger.values()) == {"done"}
    assert len(life.ledger) == 40


def test_two_at_once_with_one_key_are_refused_and_only_one_is_done():
    entered = []

    async def one(ctx: Context) -> None:
        async with ctx.effect("payout", 7, idempotent=True):
            entered.append(1)
            await asyncio.sleep(0)

    async def job(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="payout 7 is open in this attempt already"):
            await asyncio.gather(one(ctx), one(ctx))

    Life(job).attempt()
    assert entered == [1]


# ------------------------------------------------------------------------------------------------------ what is a maybe


@both
def test_an_exception_leaves_the_effect_open_and_the_run_waits_for_a_person(kind):
    life = Life(pay(failing)[kind])
    ending = life.attempt()
    assert (ending.event, ending.reason, ending.stage) == (Event.MAYBE_FOUND, Reason.EFFECT, Stage.INSIDE_EFFECT)
    assert ending.outcome is Outcome.FAILED
    assert ending.error is not None
    assert ending.error.startswith("payout 7 started and has no recorded outcome\nOSError: the bank hung up")
    assert life.ledger == {"payout 7": "started"}


def test_the_error_of_an_attempt_counts_its_open_effects():
    async def job(ctx: Context) -> None:
        async with ctx.effect("payout", "7"), ctx.effect("payout", "fee"):
            raise OSError("the bank hung up")

    error = Life(job).attempt().error
    assert error is not None
    assert error.startswith("payout 7 and 1 more started and have no recorded outcome\n")


@both
def test_a_maybe_of_an_earlier_attempt_stops_the_handler_before_it_does_anything(kind):
    done: list[Any] = []
    life = Life(pay(failing)[kind])
    life.attempt()
    life.handler = Handler.of(pay(done.append)[kind], name="pay")
    ending = life.attempt()
    assert done == []
    assert (ending.event, ending.reason) == (Event.MAYBE_FOUND, Reason.EFFECT)
    assert ending.error is not None
    assert "payout 7 started in attempt 1 and has no recorded outcome" in ending.error


@both
def test_an_effect_that_failed_in_this_very_attempt_is_a_maybe_too(kind):
    def in_thread(ctx: Context) -> None:
        with pytest.raises(OSError, match="hung up"), ctx.effect("payout", 7):
            failing(None)
        with pytest.raises(Maybe), ctx.effect("payout", 7):
            pytest.fail("it may have happened")

    async def in_loop(ctx: Context) -> None:
        with pytest.raises(OSError, match="hung up"):
            async with ctx.effect("payout", 7):
                failing(None)
        with pytest.raises(Maybe):
            async with ctx.effect("payout", 7):
                pytest.fail("it may have happened")

    ending = Life([in_thread, in_loop][kind]).attempt()
    assert (ending.event, ending.outcome) == (Event.MAYBE_FOUND, Outcome.SUCCEEDED)


@both
def test_what_is_declared_idempotent_is_done_again_with_the_same_key(kind):
    keys = []

    def body(effect: Any) -> None:
        keys.append(effect.key)
        if len(keys) == 1:
            failing(effect)

    life = Life(pay(body, idempotent=True)[kind])
    first = life.attempt()
    assert (first.event, first.stage) == (Event.RETRY_GRANTED, Stage.INSIDE_EFFECT)
    assert life.attempt().event is Event.COMPLETED
    assert keys == ["pay@monday/payout/7"] * 2


def test_what_was_not_declared_idempotent_when_it_began_is_not_because_it_is_now():
    life = Life(pay(failing)[1])
    life.attempt()
    life.handler = Handler.of(pay(failing, idempotent=True)[1], name="pay")
    ending = life.attempt()
    assert "has no recorded outcome" in str(ending.error)


PROBES: list[tuple[Any, bool, Any]] = [
    (None, True, None),
    (False, True, None),
    (True, False, None),
    ({"id": 3}, False, {"id": 3}),
    (0, False, 0),
]


@pytest.mark.parametrize(("answer", "needed", "result"), PROBES)
@pytest.mark.parametrize("is_async", [False, True])
@both
def test_a_probe_says_whether_a_maybe_happened(kind, is_async, answer, needed, result):
    asked, seen = [], []

    def probe(key: str) -> Any:
        asked.append(key)
        return answer

    async def async_probe(key: str) -> Any:
        return probe(key)

    def body(effect: Any) -> None:
        seen.append((effect.needed, effect.result))
        if len(seen) == 1:
            failing(effect)

    life = Life(pay(body, probe=async_probe if is_async else probe)[kind])
    assert life.attempt().event is Event.RETRY_GRANTED
    assert asked == []
    assert life.attempt().event is Event.COMPLETED
    assert asked == ["pay@monday/payout/7"]
    assert seen == [(True, None), (needed, result)]
    assert life.ledger == {"payout 7": "done"}


@both
def test_a_probe_that_breaks_fails_the_attempt_and_leaves_the_effect_for_the_next(kind):
    answers: list[Any] = [TimeoutError("no answer"), True]

    def probe(key: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def body(effect: Any) -> None:
        if effect.needed:
            failing(effect)

    life = Life(pay(body, probe=probe)[kind])
    life.attempt()
    ending = life.attempt()
    assert (ending.event, ending.stage) == (Event.RETRY_GRANTED, Stage.INSIDE_EFFECT)
    assert str(ending.error).startswith("TimeoutError: no answer")
    assert life.ledger == {"payout 7": "started"}
    assert life.attempt().event is Event.COMPLETED


@both
def test_an_effect_that_a_later_attempt_could_settle_is_in_doubt_when_there_is_no_later_attempt(kind):
    life = Life(pay(failing, idempotent=True)[kind], policy=Policy(attempts=1))
    ending = life.attempt()
    assert (ending.event, ending.reason) == (Event.MAYBE_FOUND, Reason.EFFECT)


# ----------------------------------------------------------------------------------------- what is known not to be done


class Refused(Exception): ...


@both
def test_safe_errors_say_that_nothing_happened(kind):
    def body(effect: Any) -> None:
        raise Refused("insufficient funds")

    life = Life(pay(body, safe_errors=(Refused,))[kind])
    ending = life.attempt()
    assert (ending.event, ending.stage) == (Event.RETRY_GRANTED, Stage.BEFORE_EFFECT)
    assert life.ledger == {"payout 7": "not_done"}
    assert life.lines[0].note is not None
    assert life.lines[0].note.endswith("Refused: insufficient funds")


@both
def test_a_handler_that_knows_better_can_say_that_it_was_not_done_and_the_next_attempt_does_it(kind):
    seen = []

    def body(effect: Any) -> None:
        seen.append(effect.needed)
        if len(seen) == 1:
            effect.not_done("the bank is closed")
            raise RetryAfter("1h")

    life = Life(pay(body)[kind])
    ending = life.attempt()
    assert (ending.event, ending.reason) == (Event.RETRY_GRANTED, Reason.ASKED_TO_WAIT)
    assert [line.note for line in life.lines] == ["the bank is closed"]
    assert life.attempt().event is Event.COMPLETED
    assert seen == [True, True]
    assert life.ledger == {"payout 7": "done"}


@both
def test_what_is_known_of_a_repetition_says_nothing_of_the_time_before(kind):
    errors: list[Exception] = [OSError("it may have arrived"), Refused("this one did not")]

    def body(effect: Any) -> None:
        raise errors.pop(0)

    life = Life(pay(body, idempotent=True, safe_errors=Refused)[kind], policy=Policy(attempts=2))
    life.attempt()
    assert life.attempt().event is Event.MAYBE_FOUND
    assert life.ledger == {"payout 7": "started"}


# ----------------------------------------------------------------------------------------------------- endings by stage


def fails_after(ctx: Context) -> None:
    with ctx.effect("payout", 7):
        pass
    raise OSError("later")


def test_a_failure_after_an_effect_has_attempts_of_its_own():
    life = Life(fails_after, policy=Policy(attempts=4, attempts_after_effect=0))
    ending = life.attempt()
    assert (ending.event, ending.reason, ending.stage) == (Event.EXHAUSTED, Reason.ATTEMPTS, Stage.AFTER_EFFECT)


def test_what_earlier_attempts_did_counts_for_the_stage_of_a_later_one():
    def breaks(ctx: Context) -> None:
        raise OSError("at once")

    life = Life(fails_after)
    assert life.attempt().event is Event.RETRY_GRANTED
    life.handler = Handler.of(breaks, name="pay")
    assert life.attempt().stage is Stage.AFTER_EFFECT


def test_a_handler_that_swallows_the_error_of_an_effect_has_not_succeeded():
    async def job(ctx: Context) -> str:
        try:
            async with ctx.effect("payout", 7):
                failing(None)
        except OSError:
            pass
        return "fine"

    ending = Life(job).attempt()
    assert (ending.event, ending.outcome, ending.result) == (Event.MAYBE_FOUND, Outcome.SUCCEEDED, b'"fine"')
    assert ending.error == "payout 7 started and has no recorded outcome"


def test_a_success_that_never_looked_at_an_open_effect_of_an_earlier_attempt_is_none():
    def forgets(ctx: Context) -> None: ...

    life = Life(pay(failing, idempotent=True)[0])
    life.attempt()
    life.handler = Handler.of(forgets, name="pay")
    assert life.attempt().event is Event.MAYBE_FOUND


def test_a_checked_job_is_checked_before_a_person_is_asked():
    life = Life(pay(failing)[0], check=lambda: True)
    assert life.attempt().event is Event.DOUBTED


@pytest.mark.parametrize("kind", [0, 1])
def test_a_run_that_is_cancelled_before_its_turn_is_in_doubt_if_an_earlier_attempt_left_an_effect_open(kind):
    life = Life(pay(failing, idempotent=True)[kind])
    life.attempt()
    ending = life.attempt(Stop.CANCEL)
    assert (ending.event, ending.started_at) == (Event.MAYBE_FOUND, None)


def test_a_payload_that_does_not_fit_any_more_does_not_hide_an_open_effect():
    def wants_more(ctx: Context, day: int) -> None: ...

    life = Life(pay(failing, idempotent=True)[0])
    life.attempt()
    life.handler = Handler.of(wants_more, name="pay")
    ending = life.attempt()
    assert (ending.event, ending.outcome) == (Event.MAYBE_FOUND, Outcome.PERMANENT)


def test_a_retry_names_the_budget_of_its_job_and_nothing_else_does():
    policy = Policy(attempts=2, retries_per_hour=5)
    life = Life(fails_after, policy=policy)
    assert life.attempt().retries_per_hour == 5
    last = life.attempt()
    assert (last.event, last.retries_per_hour) == (Event.EXHAUSTED, None)


def test_nobody_asks_for_a_ledger_that_cannot_be():
    def blind() -> None:
        raise OSError

    def looks(ctx: Context) -> None:
        raise OSError

    life = Life(blind)
    stages = [life.attempt().stage, life.attempt().stage]
    assert (stages, life.store.reads) == ([None, None], 0)
    life = Life(looks)
    assert life.attempt().stage is Stage.BEFORE_EFFECT
    assert life.store.reads == 0
    life.attempt()
    assert life.store.reads == 1


# --------------------------------------------------------------------------------------------------- stores that falter


@both
def test_an_effect_whose_beginning_was_not_confirmed_never_ran_and_is_written_down_as_that(kind):
    done: list[Any] = []
    life = Life(pay(done.append)[kind])
    life.store.failing["begin_effect answered"] = StoreError("the answer was lost")
    ending = life.attempt()
    assert done == []
    assert (ending.event, ending.stage) == (Event.RETRY_GRANTED, Stage.BEFORE_EFFECT)
    assert life.ledger == {"payout 7": "not_done"}
    life.store.failing.clear()
    assert life.attempt().event is Event.COMPLETED
    assert len(done) == 1


@both
def test_an_effect_whose_end_could_not_be_written_is_written_when_the_attempt_ends(kind):
    life: Any = None

    def body(effect: Any) -> None:
        life.store.failing["end_effect"] = StoreError("away for a moment")

    life = Life(pay(body)[kind])

    async def back(length: int) -> None:
        life.store.failing.clear()

    life.clock.sleep = back
    ending = life.attempt()
    assert (ending.event, ending.stage) == (Event.RETRY_GRANTED, Stage.AFTER_EFFECT)
    assert life.ledger == {"payout 7": "done"}


@both
def test_without_a_ledger_what_the_attempt_knows_itself_decides(kind):
    life = Life(pay(failing)[kind])
    life.store.failing["ledger_of"] = StoreError("away")
    assert life.attempt().event is Event.MAYBE_FOUND
    assert life.store.reads == 4


def test_without_a_ledger_earlier_attempts_are_taken_to_have_done_something():
    def looks(ctx: Context) -> None:
        raise OSError

    life = Life(looks, policy=Policy(attempts=4, attempts_after_effect=0), run={"attempt": 2})
    life.store.failing["ledger_of"] = StoreError("away")
    ending = life.attempt()
    assert (ending.event, ending.stage) == (Event.EXHAUSTED, Stage.AFTER_EFFECT)


@both
def test_an_attempt_that_lost_its_run_cannot_begin_an_effect(kind):
    life: Any = None
    done: list[Any] = []

    def in_thread(ctx: Context) -> None:
        life.store.take_away()
        with ctx.effect("payout", 7) as effect:
            done.append(effect)

    async def in_loop(ctx: Context) -> None:
        life.store.take_away()
        with pytest.raises(LostOwnership):
            async with ctx.effect("payout", 7) as effect:
                done.append(effect)
        raise ValueError

    life = Life([in_thread, in_loop][kind])
    life.attempt()
    assert done == []
    assert life.ledger == {}


def test_a_handler_that_is_cancelled_while_its_effect_is_being_written_down_never_ran_it():
    done: list[Any] = []

    async def scene() -> None:
        bench = Bench(Handler.of(pay(done.append)[1], name="pay", policy=Policy(timeout=10 * SECOND)))
        begin_effect = bench.store.begin_effect

        async def commits_all_the_same(*question: Any) -> Any:
            return await asyncio.shield(asyncio.ensure_future(begin_effect(*question)))

        vars(bench.store)["begin_effect"] = commits_all_the_same
        bench.store.slow["begin_effect"] = asyncio.Event()
        bench.store.hand_off("pay")
        await bench.worker.start()
        await bench.worker.run_once()
        await until(lambda: bench.worker.desks.calls)
        bench.worker.stop(next(iter(bench.worker.running)), Stop.DRAIN)
        for _ in range(10):
            await asyncio.sleep(0)
        bench.store.slow["begin_effect"].set()
        await bench.worker.settle()
        await bench.worker.run_once()
        await bench.worker.settle()
        [ending] = bench.store.finished
        assert (ending.event, ending.stage) == (Event.GIVEN_BACK, Stage.BEFORE_EFFECT)
        await bench.work()
        [line] = bench.store.effects[1].values()
        assert (line.state, line.attempt) == (EffectState.DONE, 2)

    run(scene())
    assert len(done) == 1


def test_cancelling_an_attempt_twice_does_not_keep_it_from_ending():
    async def hangs(ctx: Context) -> None:
        await asyncio.sleep(3600)

    async def scene() -> None:
        bench = Bench(hangs)
        bench.store.slow["ledger_of"] = asyncio.Event()
        claim = bench.store.hand_off("hangs", attempt=2)
        bench.store._write(claim, Effect("payout", "7"), EffectState.STARTED, None, None)
        await bench.worker.start()
        await bench.worker.run_once()
        [attempt] = bench.worker.running
        await until(lambda: attempt.started_at)
        bench.worker.stop(attempt, Stop.DRAIN)
        await until(lambda: bench.store.reads)
        attempt.task.cancel()
        await asyncio.sleep(0)
        bench.store.slow["ledger_of"].set()
        await bench.worker.settle()
        await bench.worker.run_once()
        await bench.worker.settle()
        [ending] = bench.store.finished
        assert (ending.event, ending.outcome) == (Event.MAYBE_FOUND, Outcome.INTERRUPTED)

    run(scene())


def test_virtual_time_waits_for_an_answer_of_the_store():
    done: list[Any] = []

    async def scene() -> None:
        bench = Bench(Handler.of(pay(done.append)[1], name="pay"))
        slow = bench.store.slow["begin_effect"] = asyncio.Event()
        bench.store.hand_off("pay")
        await bench.worker.start()
        asyncio.get_running_loop().call_later(0.05, slow.set)
        await bench.work()
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_a_thread_that_is_to_be_cancelled_while_it_waits_looks_at_the_ledger_first():
    gate = Gate()

    async def scene() -> None:
        bench = Bench(gate.ignorant, Handler.of(pay(failing, idempotent=True)[0], name="pay"), threads=1, slots=2)
        bench.store.hand_off("ignorant")
        await bench.worker.start()
        await begin(bench, gate)
        bench.worker.room.threads = 2  # it believes that there is room
        bench.store.hand_off("pay", attempt=2)
        await bench.worker.run_once()
        [_, waiting] = bench.worker.running
        bench.worker.stop(waiting, Stop.CANCEL)
        assert waiting in bench.worker.running
        gate.open.set()
        await bench.work()
        assert bench.store.reads == 1
        assert bench.store.outcomes == [Outcome.SUCCEEDED, Outcome.CANCELLED]

    run(scene())


# ------------------------------------------------------------------------------------------------------ what is refused


def refusal(function: Callable[..., Any], **traits: Any) -> str:
    return str(Life(function, **traits).attempt().error)


def test_the_wrong_kind_of_block_names_the_right_one():
    async def job(ctx: Context) -> None:
        with ctx.effect("payout", 7):
            pytest.fail("it began")

    assert 'write async with ctx.effect("payout", ...)' in refusal(job)


def test_code_in_a_loop_of_its_own_can_use_either_kind():
    async def inner(ctx: Context) -> None:
        async with ctx.effect("payout", 7) as effect:
            assert effect.needed
        with ctx.effect("payout", 8) as effect:
            assert effect.needed

    def job(ctx: Context) -> None:
        asyncio.run(inner(ctx))

    life = Life(job)
    assert life.attempt().event is Event.COMPLETED
    assert life.ledger == {"payout 7": "done", "payout 8": "done"}


def test_an_effect_that_the_job_does_not_declare_is_refused_by_name():
    assert "no effect 'payout': it declares mail, charge" in refusal(pay(failing)[0], effects=("mail", "charge"))
    assert "it declares no effects" in refusal(pay(failing)[0], effects=())


@pytest.mark.parametrize("key", ["", "x" * 301, "a\nb", True, None, 1.5])
def test_a_key_is_a_whole_number_or_a_line_of_text(key):
    def job(ctx: Context) -> None:
        ctx.effect("payout", key)

    assert "cannot be a key of the effect payout" in refusal(job)


def test_a_result_is_set_only_inside_the_block_and_only_when_it_is_needed():
    def job(ctx: Context) -> None:
        with ctx.effect("payout", 7) as effect:
            pass
        with pytest.raises(InvalidInput, match="its block has ended"):
            effect.result = 1
        with ctx.effect("payout", 7) as effect:
            with pytest.raises(InvalidInput, match=r"check `effect\.needed` first"):
                effect.result = 1
            with pytest.raises(InvalidInput, match="only inside its block"):
                effect.not_done("it was, though")

    assert Life(job).attempt().event is Event.COMPLETED


@pytest.mark.parametrize("result", [object(), "x" * 70_000])
def test_a_result_that_cannot_be_kept_is_a_mistake_but_the_effect_is_done(result):
    def body(effect: Any) -> None:
        effect.result = result

    life = Life(pay(body)[0])
    ending = life.attempt()
    assert "payout 7 is done, but its result was not stored" in str(ending.error)
    assert life.ledger == {"payout 7": "done"}


def test_what_takes_an_effect_back_is_kept_by_name():
    def refund() -> None: ...

    life = Life(pay(lambda effect: None, undo=refund)[0])
    life.attempt()
    assert str(life.lines[0].undo).endswith("refund")
    assert "give the function that undoes the effect, or its name" in refusal(pay(failing, undo=3)[0])


def test_other_words_that_make_no_sense_are_refused():
    assert "safe_errors takes exception classes" in refusal(pay(failing, safe_errors=["OSError"])[0])
    assert "probe='bank'" in refusal(pay(failing, probe="bank")[0])


# ----------------------------------------------------------------------------------------------------------- invariants

STEPS = [
    "do",
    "skip",
    "fail before",
    "fail inside",
    "fail after doing",
    "swallow",
    "not done",
    "safe",
    "crash inside",
    "crash after doing",
    "begin unanswered",
    "end unwritten",
    "end unanswered",
]
KINDS: list[dict[str, Any]] = [{}, {"idempotent": True}, {"probe": True}]


class Crash(BaseException):
    """The process is gone: nothing that it knew is told to anybody."""


class World:
    """A bank, and a handler that pays three bills as badly as it is told to."""

    def __init__(self, kinds: list[dict[str, Any]]) -> None:
        self.kinds = kinds
        self.paid: Counter[int] = Counter()
        self.asked: set[str] = set()
        self.steps: list[str] = []
        self.life = Life(self.job, policy=Policy(attempts=100, backoff=SECOND))

    def pay(self, bill: int, key: str) -> None:
        if "idempotent" in self.kinds[bill] and key in self.asked:
            return
        self.asked.add(key)
        self.paid[bill] += 1

    async def job(self, ctx: Context) -> None:
        for bill, step in enumerate(self.steps):
            if step == "fail before":
                raise OSError
            if step != "skip":
                await self.bill(ctx, bill, step)

    async def bill(self, ctx: Context, bill: int, step: str) -> None:
        failing = self.life.store.failing
        declared = dict(self.kinds[bill])
        if "probe" in declared:
            declared["probe"] = lambda key: key in self.asked
        recorded = self.life.ledger.get(f"payout {bill}")
        if step == "begin unanswered":
            failing["begin_effect answered"] = StoreError("lost")
        try:
            async with ctx.effect("payout", bill, safe_errors=(Refused,), **declared) as effect:
                assert not (effect.needed and recorded == "done"), "what is done is not done again"
                if effect.needed:
                    self.act(effect, bill, step)
        except OSError:
            if step != "swallow":
                raise

    def act(self, effect: Any, bill: int, step: str) -> None:
        failing = self.life.store.failing
        if step in ("do", "swallow", "fail after doing", "crash after doing", "end unwritten", "end unanswered"):
            self.pay(bill, effect.key)
        if step == "end unwritten":
            failing["end_effect"] = StoreError("away")
        if step == "end unanswered":
            failing["end_effect answered"] = StoreError("lost")
        if step == "not done":
            effect.not_done("it was not")
        if step == "safe":
            raise Refused
        if step in ("fail inside", "fail after doing", "swallow"):
            raise OSError
        if step.startswith("crash"):
            raise Crash


def open_to_nobody(world: World) -> bool:
    return any(line.is_maybe for line in world.life.open)


@settings(max_examples=by_tier(80, 300, 3_000))
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=3, max_size=3),
    attempts=st.lists(st.lists(st.sampled_from(STEPS), min_size=3, max_size=3), min_size=1, max_size=6),
)
def test_nothing_is_done_twice_and_no_run_succeeds_with_an_open_effect(kinds, attempts):
    world = World(kinds)
    for world.steps in attempts:
        ending = world.life.attempt()
        world.life.store.failing.clear()
        assert all(count == 1 for count in world.paid.values()), world.paid
        if ending.event is Event.COMPLETED:
            assert not world.life.open
            assert all(world.life.ledger[f"payout {bill}"] == "done" for bill in world.paid)
        if any(step.startswith("crash") for step in world.steps):
            ending = ending._replace(event=Event.MAYBE_FOUND if open_to_nobody(world) else Event.RETRY_GRANTED)
        if ending.event is not Event.RETRY_GRANTED:
            break
        assert not open_to_nobody(world)
