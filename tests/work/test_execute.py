from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, MINUTE, SECOND, instant
from foliot.domain.policy import Policy
from foliot.domain.run import Ending
from foliot.domain.state import Event, Outcome, Reason
from foliot.errors import Cancelled, Permanent, RetryAfter
from foliot.work.attempt import Attempt, Stop
from foliot.work.context import Context
from foliot.work.describe import MOST_ERROR
from foliot.work.desk import StoreDesks
from foliot.work.endings import MOST_RESULT
from foliot.work.execute import execute, execute_in_thread
from foliot.work.handler import Handler
from tests.work.fakes import START, FakeStore, Liar, claimed

DESKS = StoreDesks(FakeStore(), lambda: 1)
POLICY = Policy(attempts=3, backoff=8 * SECOND, timeout=MINUTE)


def attempt_of(function, payload=b"{}", policy=POLICY, stop=None, retry_on=None, give_up_on=None, **more):
    handler = Handler.of(function, name="job", policy=policy, retry_on=retry_on, give_up_on=give_up_on)
    attempt = Attempt(claimed(payload=payload, **more), handler, policy)
    attempt.stop = stop
    return attempt


def ending_of(function, *args, **more) -> Any:
    attempt = attempt_of(function, *args, **more)
    clock = ManualClock(START)
    if attempt.handler.is_async:
        return asyncio.run(execute(attempt, clock, lambda: 0.5, DESKS))
    return execute_in_thread(attempt, clock, lambda: 0.5, DESKS)


def raising(error):
    def job():
        raise error

    async def async_job():
        raise error

    return [job, async_job]


def test_a_return_is_success():
    async def job(x: int) -> None: ...

    ending = ending_of(job, b'{"x":1}')
    assert ending == Ending(1, 10, 1, Event.COMPLETED, Outcome.SUCCEEDED, START, START)


def test_a_result_is_kept_as_json():
    async def job(x: int) -> dict[str, int]:
        return {"twice": 2 * x}

    assert ending_of(job, b'{"x":2}').result == b'{"twice":4}'


@pytest.mark.parametrize("result", [object(), "x" * MOST_RESULT, "\ud800"])
def test_a_result_that_cannot_be_kept_does_not_turn_success_into_failure(result):
    ending = ending_of(lambda: result)
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, None)
    assert ending.error.startswith("note: the result was not stored")


def test_a_failure_is_tried_again_after_the_backoff():
    for job in raising(ValueError("no")):
        ending = ending_of(job)
        assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.FAILED)
        assert ending.retry_at == START + 4 * SECOND  # half of the first ceiling
        assert ending.error.startswith("ValueError: no\n")


def test_the_last_attempt_exhausts_the_run():
    ending = ending_of(raising(ValueError())[1], spent=2, attempt=3)
    assert (ending.event, ending.reason, ending.retry_at) == (Event.EXHAUSTED, Reason.ATTEMPTS, None)


def test_age_is_counted_from_the_nominal_time():
    policy = POLICY.merged({"give_up_after": MINUTE})
    ending = ending_of(raising(ValueError())[1], policy=policy, nominal=START - HOUR, fire_at=START)
    assert (ending.event, ending.reason) == (Event.EXHAUSTED, Reason.TOO_OLD)


def test_permanent_means_not_again():
    for job in raising(Permanent("no such account")):
        ending = ending_of(job)
        assert (ending.event, ending.outcome, ending.reason) == (Event.GAVE_UP, Outcome.PERMANENT, Reason.PERMANENT)


def test_give_up_on_makes_errors_permanent_and_retry_on_all_others():
    job = raising(KeyError("x"))[1]
    assert ending_of(job, give_up_on=LookupError).outcome is Outcome.PERMANENT
    assert ending_of(job, retry_on=LookupError).outcome is Outcome.FAILED
    assert ending_of(job, retry_on=OSError).outcome is Outcome.PERMANENT
    assert ending_of(job, retry_on=LookupError, give_up_on=KeyError).outcome is Outcome.PERMANENT


@pytest.mark.parametrize(
    ("delay", "retry_at"),
    [
        ("10m", START + 10 * MINUTE),
        (90, START + 90 * SECOND),
        (timedelta(hours=1), START + HOUR),
        (datetime(2030, 1, 1, tzinfo=UTC), instant(datetime(2030, 1, 1, tzinfo=UTC))),
        (0, START + 4 * SECOND),
        ("soon", START + 4 * SECOND),
        (datetime(2030, 1, 1), START + 4 * SECOND),
    ],
)
def test_retry_after_is_honoured_and_an_unreadable_delay_costs_only_the_delay(delay, retry_at):
    ending = ending_of(raising(RetryAfter(delay))[1], retry_on=OSError)
    assert (ending.event, ending.outcome, ending.retry_at) == (Event.RETRY_GRANTED, Outcome.FAILED, retry_at)


class RateLimited(RetryAfter):
    def __init__(self) -> None:
        Exception.__init__(self, "429")  # and not RetryAfter's, so it has no delay


def test_a_retry_after_without_its_delay_is_a_failure_that_is_tried_again():
    for job in raising(RateLimited()):
        ending = ending_of(job, retry_on=OSError)
        assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.FAILED)
        assert "RateLimited: 429" in ending.error


def test_a_payload_that_does_not_fit_is_a_dead_letter_and_the_handler_never_runs():
    async def job(x: int) -> None:
        pytest.fail("it ran")

    ending = ending_of(job, b'{"x":"one"}')
    assert (ending.event, ending.outcome, ending.reason) == (Event.GAVE_UP, Outcome.PERMANENT, Reason.BAD_PAYLOAD)
    assert "Expected `int`, got `str`" in ending.error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")])
def test_nothing_that_a_handler_raises_stops_the_worker(error):
    for job in raising(error):
        assert ending_of(job).outcome is Outcome.FAILED


def test_a_handler_that_says_cancelled_is_cancelled():
    for job in raising(Cancelled()):
        ending = ending_of(job)
        assert (ending.event, ending.outcome, ending.reason) == (Event.CANCEL, Outcome.CANCELLED, Reason.REQUESTED)


def test_a_cancellation_of_the_handlers_own_making_is_a_failure():
    assert ending_of(raising(asyncio.CancelledError())[1]).outcome is Outcome.FAILED


def cancelled_from_outside(*, draining):
    async def job() -> None:
        await asyncio.sleep(3600)

    async def scene() -> Any:
        attempt = attempt_of(job)
        attempt.draining = draining
        attempt.task = task = asyncio.ensure_future(execute(attempt, ManualClock(START), lambda: 0.5, DESKS))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    return asyncio.run(scene())


def test_a_task_that_is_cancelled_although_nobody_asked_has_failed_and_pays_for_it():
    ending = cancelled_from_outside(draining=False)
    assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.FAILED)
    assert "CancelledError" in ending.error


def test_a_task_that_is_cancelled_while_its_worker_drains_gives_the_run_back():
    ending = cancelled_from_outside(draining=True)
    assert (ending.event, ending.outcome) == (Event.GIVEN_BACK, Outcome.INTERRUPTED)


def test_what_never_began_is_given_back_or_cancelled_but_never_run():
    def job() -> None:
        pytest.fail("it ran")

    assert ending_of(job, stop=Stop.DRAIN) is None
    assert ending_of(job, stop=Stop.LOST) is None
    ending = ending_of(job, stop=Stop.CANCEL)
    assert (ending.event, ending.started_at) == (Event.CANCEL, None)


def stopped_in_a_thread(stop, *, looks=False, error=None):
    attempt: Any = None

    def job(ctx: Context) -> str:
        attempt.ask_to_stop(stop)
        if looks:
            assert ctx.cancelled
        if error:
            raise error
        return "done"

    attempt = attempt_of(job)
    ending: Any = execute_in_thread(attempt, ManualClock(START), lambda: 0.5, DESKS)
    return ending.outcome


def test_a_thread_that_never_looked_has_simply_ended():
    assert stopped_in_a_thread(Stop.CANCEL) is Outcome.SUCCEEDED
    assert stopped_in_a_thread(Stop.DRAIN) is Outcome.SUCCEEDED
    assert stopped_in_a_thread(Stop.DRAIN, error=ValueError()) is Outcome.FAILED


def test_a_thread_that_saw_the_request_and_returned_has_stopped_not_succeeded():
    assert stopped_in_a_thread(Stop.CANCEL, looks=True) is Outcome.CANCELLED
    assert stopped_in_a_thread(Stop.DRAIN, looks=True) is Outcome.INTERRUPTED
    assert stopped_in_a_thread(Stop.LOST, looks=True) is Outcome.INTERRUPTED


def test_past_its_deadline_a_thread_has_timed_out_whatever_it_did():
    assert stopped_in_a_thread(Stop.TIMEOUT) is Outcome.TIMED_OUT
    assert stopped_in_a_thread(Stop.TIMEOUT, error=ValueError()) is Outcome.TIMED_OUT


def test_a_run_that_was_to_be_cancelled_is_not_tried_again_because_it_failed():
    assert stopped_in_a_thread(Stop.CANCEL, error=ValueError()) is Outcome.CANCELLED


def test_a_coroutine_that_nobody_awaits_is_told_to_the_author():
    async def inner() -> None: ...

    ending = ending_of(lambda: inner())
    assert ending.outcome is Outcome.PERMANENT
    assert "returned a coroutine, which a plain function cannot await" in ending.error


class Nasty(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Untraceable(Exception):
    @property
    def __traceback__(self):  # type: ignore[override]
        raise RuntimeError("it does not say where")


class Indecisive(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError("it cannot say whose it is")


class Undecided(Exception, metaclass=Indecisive): ...


@pytest.mark.parametrize("error", [Exiting, Liar, Untraceable, RateLimited])
@pytest.mark.parametrize("stop", [None, *Stop])
def test_an_error_that_misbehaves_while_it_is_looked_at_still_ends_the_attempt(error, stop):
    attempt: Any = None

    async def job() -> None:
        attempt.stop = stop
        raise error

    def in_a_thread() -> None:
        attempt.stop = stop
        raise error

    attempt = attempt_of(job)
    first: Any = asyncio.run(execute(attempt, ManualClock(START), lambda: 0.5, DESKS))
    attempt = attempt_of(in_a_thread)
    second: Any = execute_in_thread(attempt, ManualClock(START), lambda: 0.5, DESKS)
    if stop is None:
        for ending in (first, second):
            assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.FAILED)
            assert error.__name__ in ending.error


def test_what_cannot_be_classified_is_a_failure_within_the_runs_attempts():
    first = ending_of(raising(ValueError("no"))[1], give_up_on=Undecided)
    assert (first.outcome, first.retry_at) == (Outcome.FAILED, START + 4 * SECOND)
    assert first.error.startswith("ValueError: no\nClassifying its outcome failed: RuntimeError: it cannot say")
    last = ending_of(raising(ValueError("no"))[1], give_up_on=Undecided, spent=2, attempt=3)
    assert (last.event, last.reason) == (Event.EXHAUSTED, Reason.ATTEMPTS)


@pytest.mark.parametrize(
    "error",
    [ValueError("x" * 100_000), ValueError("lone \ud800 and \0 nul"), Nasty(), ExceptionGroup("g", [ValueError("a")])],
)
def test_an_errors_text_is_bounded_valid_utf8_without_nul(error):
    text = ending_of(raising(error)[1]).error
    assert len(text.encode("utf-8")) <= MOST_ERROR
    assert "\0" not in text
    assert type(error).__name__ in text


def test_a_long_traceback_keeps_its_newest_end():
    def deeper(n: int) -> None:
        if n == 0:
            raise ValueError("at the bottom")
        (deeper if n % 2 else lambda m: deeper(m))(n - 1)

    text = ending_of(lambda: deeper(300)).error
    assert text.startswith("ValueError: at the bottom\n…")
    assert text.endswith("ValueError: at the bottom")
    assert len(text.encode()) <= MOST_ERROR


def test_the_traceback_begins_in_the_handlers_own_code():
    text = ending_of(raising(ValueError("no"))[1]).error
    assert "execute.py" not in text.replace("test_execute.py", "")
    assert "in async_job" in text
