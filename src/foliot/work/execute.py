"""The pipeline over one attempt: start, decode, perform, classify. It reads the clock and chance; it touches no store.

Every way in which a handler can end comes out as exactly one Ending; None stands for an attempt that never began.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from foliot.clock import Clock
from foliot.domain.decisions import Next, after_failure
from foliot.domain.instant import SECOND, Duration, Instant, duration, instant
from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Event, Outcome, Reason
from foliot.errors import Cancelled, InvalidInput, Permanent, RetryAfter
from foliot.timing.binding import binding_in
from foliot.work.attempt import Attempt, Stop
from foliot.work.context import Context

MOST_RESULT = 64 * 1024
MOST_ERROR = 8 * 1024
"""Bytes of UTF-8."""

Chance = Callable[[], float]

_encode = msgspec.json.Encoder().encode


async def execute(attempt: Attempt, clock: Clock, chance: Chance) -> Ending | None:
    """One attempt of an async handler, inside the task that is its own."""
    if attempt.asked():
        return never_began(attempt, clock.now())
    try:
        arguments = _start(attempt, clock)
        result = await attempt.handler.function(**arguments)
    except BaseException as error:  # also SystemExit: a handler's verdict about itself, not about the worker
        return _concluded(attempt, error, None, clock, chance)
    if attempt.asked():
        return _concluded(attempt, None, result, clock, chance)
    return _completed(attempt, result, clock.now())


def execute_in_thread(attempt: Attempt, clock: Clock, chance: Chance) -> Ending | None:
    """One attempt of a sync handler, inside a thread of the worker's pool."""
    if attempt.asked():
        return never_began(attempt, clock.now())
    try:
        arguments = _start(attempt, clock)
        if attempt.asked() and attempt.context is not None:
            attempt.context._stopping = True  # asked while the context was being made
        result = attempt.handler.function(**arguments)
        if inspect.iscoroutine(result):
            result.close()
            raise Permanent(
                f"{attempt.handler.name} returned a coroutine that nobody awaits; declare it with async def"
            )
    except BaseException as error:
        return _concluded(attempt, error, None, clock, chance)
    return _concluded(attempt, None, result, clock, chance)


class _Unreadable(Exception):
    """The payload does not fit the handler: its code never ran."""


def _start(attempt: Attempt, clock: Clock) -> dict[str, Any]:
    """The arguments of the call; from here on the attempt has begun, and costs one when it fails."""
    attempt.begun_at = begun_at = clock.monotonic()
    attempt.started_at = started_at = clock.now()
    arguments_of = attempt.handler.arguments
    try:
        arguments = arguments_of.decode(attempt.claimed.payload, _bound(attempt.claimed))
    except InvalidInput as error:
        raise _Unreadable(str(error)) from None
    if arguments_of.context is not None:
        timeout = attempt.policy.timeout
        attempt.context = Context(attempt.claimed, clock, started_at + timeout, begun_at + timeout)
        arguments[arguments_of.context] = attempt.context
    return arguments


def _bound(claimed: Claimed) -> dict[str, str] | None:
    """Arguments that the run has from its tick."""
    found = binding_in(claimed.options) if claimed.options is not None else None
    if found is None:
        return None
    return found.values(claimed.id, claimed.fire_at if claimed.nominal is None else claimed.nominal, claimed.since)


def never_began(attempt: Attempt, now: Instant) -> Ending | None:
    """What to record of an attempt that was asked to stop while it waited for its turn; None to give it back."""
    if attempt.stop is not Stop.CANCEL:
        return None
    return _ending(attempt, Next(Event.CANCEL, reason=Reason.REQUESTED), Outcome.CANCELLED, now)


def _completed(attempt: Attempt, result: Any, now: Instant) -> Ending:
    claimed = attempt.claimed
    if result is None:
        return Ending(
            claimed.number, claimed.token, claimed.attempt, Event.COMPLETED, Outcome.SUCCEEDED, attempt.started_at, now
        )
    kept, remark = _result(result)
    return _ending(attempt, Next(Event.COMPLETED), Outcome.SUCCEEDED, now, remark, kept)


def _result(result: Any) -> tuple[bytes | None, str | None]:
    """A result is a convenience: one that cannot be kept does not turn success into failure."""
    try:
        encoded = _encode(result)
    except BaseException as error:  # whatever the code of its author's classes raises
        return None, _clean(f"note: the result was not kept: {_headline(error)}")
    if len(encoded) > MOST_RESULT:
        return None, f"note: the result was not kept: {len(encoded):,} bytes of JSON are more than {MOST_RESULT:,}"
    return encoded, None


def _concluded(attempt: Attempt, error: BaseException | None, result: Any, clock: Clock, chance: Chance) -> Ending:
    """An ending, whatever happens: without one the attempt would keep its slot and its lease for ever.

    Classifying an error runs code of its author: attributes, `__class__`, `__instancecheck__`. What is wrong there
    makes the attempt one that failed.
    """
    now = clock.now()
    lasted = 0 if attempt.begun_at is None else clock.monotonic() - attempt.begun_at
    try:
        return _ended(attempt, error, result, now, lasted, chance)
    except BaseException as fault:
        told = _headline(fault if error is None else error)
        text = _clean(f"{told}\nHow it ended could not be classified: {_describe(fault)}")
        return _ending(attempt, _next(attempt, Outcome.FAILED, now, chance), Outcome.FAILED, now, text)


def _ended(
    attempt: Attempt, error: BaseException | None, result: Any, now: Instant, lasted: Duration, chance: Chance
) -> Ending:
    """Classifies: what the attempt was asked comes first, then what its handler said, then what befell it."""
    if attempt.stop is not None and _heeded(attempt, error):
        return _stopped(attempt, attempt.stop, error, now, lasted, chance)
    if error is None:
        return _completed(attempt, result, now)
    if isinstance(error, _Unreadable):
        verdict = Next(Event.GAVE_UP, reason=Reason.BAD_PAYLOAD)
        return _ending(attempt, verdict, Outcome.PERMANENT, now, _clean(str(error)))
    if isinstance(error, Cancelled):
        return _ending(attempt, Next(Event.CANCEL, reason=Reason.REQUESTED), Outcome.CANCELLED, now, _describe(error))
    if isinstance(error, asyncio.CancelledError) and _cancelled_from_outside(attempt):
        # Nobody in this room asked for it: the process is being shut down around the drain.
        return _ending(attempt, Next(Event.GIVEN_BACK), Outcome.INTERRUPTED, now, _describe(error))
    return _failed(attempt, error, now, chance)


def _heeded(attempt: Attempt, error: BaseException | None) -> bool:
    """Whether an attempt that was asked to stop is to be recorded as stopped.

    A thread that never looked at its context and came to its own end has simply ended, and a proven completion is
    not thrown away. Two exceptions: past its deadline it has timed out whatever it did, and a run that somebody
    wanted cancelled is not tried again because its last attempt failed.
    """
    if attempt.stop is Stop.TIMEOUT or attempt.saw_stop():
        return True
    return isinstance(error, Cancelled) or (attempt.stop is Stop.CANCEL and error is not None)


def _stopped(
    attempt: Attempt, stop: Stop, error: BaseException | None, now: Instant, lasted: Duration, chance: Chance
) -> Ending:
    text = None if error is None or isinstance(error, Cancelled | asyncio.CancelledError) else _describe(error)
    if stop is Stop.CANCEL:
        return _ending(attempt, Next(Event.CANCEL, reason=Reason.REQUESTED), Outcome.CANCELLED, now, text)
    if stop is Stop.TIMEOUT:
        text = f"timed out after {lasted / SECOND:g} s" + (f"\n{text}" if text else "")
        return _ending(attempt, _next(attempt, Outcome.TIMED_OUT, now, chance), Outcome.TIMED_OUT, now, text)
    # Drained, or taken away: the run is due again at once and nothing was spent. If it was taken away, the token has
    # gone with it, and the store refuses this ending.
    return _ending(attempt, Next(Event.GIVEN_BACK), Outcome.INTERRUPTED, now, text)


def _failed(attempt: Attempt, error: BaseException, now: Instant, chance: Chance) -> Ending:
    handler, text = attempt.handler, _describe(error)
    if isinstance(error, RetryAfter):
        try:
            not_before = _not_before(error, now)
        except InvalidInput as fault:  # a delay that cannot be read must not cost the run its retry
            not_before, text = None, _clean(f"{fault}\n{text}")
        verdict = _next(attempt, Outcome.FAILED, now, chance, not_before)
        return _ending(attempt, verdict, Outcome.FAILED, now, text)
    permanent = isinstance(error, (Permanent, *handler.give_up_on)) or (
        handler.retry_on and not isinstance(error, handler.retry_on)
    )
    outcome = Outcome.PERMANENT if permanent else Outcome.FAILED
    return _ending(attempt, _next(attempt, outcome, now, chance), outcome, now, text)


def _not_before(error: RetryAfter, now: Instant) -> Instant:
    return instant(error.delay) if isinstance(error.delay, datetime) else now + duration(error.delay)


def _next(attempt: Attempt, outcome: Outcome, now: Instant, chance: Chance, not_before: Instant | None = None) -> Next:
    claimed = attempt.claimed
    return after_failure(
        attempt.policy,
        outcome,
        spent=claimed.spent + 1,
        due_at=claimed.fire_at if claimed.nominal is None else claimed.nominal,
        now=now,
        chance=chance(),
        not_before=not_before,
    )


def _ending(
    attempt: Attempt,
    verdict: Next,
    outcome: Outcome,
    now: Instant,
    error: str | None = None,
    result: bytes | None = None,
) -> Ending:
    claimed = attempt.claimed
    return Ending(
        claimed.number,
        claimed.token,
        claimed.attempt,
        verdict.event,
        outcome,
        attempt.started_at,
        now,
        verdict.retry_at,
        verdict.reason,
        error,
        result,
    )


def _cancelled_from_outside(attempt: Attempt) -> bool:
    """Only while the worker shuts down. Otherwise the handler cancelled itself, or let a CancelledError of its own
    making escape: an ordinary failure, since whatever costs no attempt would be tried again for ever."""
    return attempt.draining and attempt.task is not None and attempt.task.cancelling() > 0


def _describe(error: BaseException) -> str:
    """Type and message first, then the traceback of the handler's own frames, its newest end kept when it is long."""
    headline = _headline(error)
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frames)) if frames is not None else ""
    except BaseException:
        trace = ""
    room = MOST_ERROR - len(headline.encode()) - 1
    return f"{headline}\n{_clean(trace, room, keep_end=True)}" if trace else headline


def _headline(error: BaseException) -> str:
    """Type and message; the type alone when the error's own code cannot tell them."""
    try:
        text = "".join(traceback.format_exception_only(error))
    except BaseException:
        text = type.__repr__(type(error))  # not the metaclass's own
    return _clean(text, MOST_ERROR // 4)


def _clean(text: str, most: int = MOST_ERROR, *, keep_end: bool = False) -> str:
    """Text that any store can hold: valid UTF-8 without NUL, and not longer than `most` bytes."""
    data = text.replace("\0", "").encode("utf-8", "replace")
    if len(data) > most:
        dots = "…".encode()
        data = dots + data[len(dots) - most :] if keep_end else data[: most - len(dots)] + dots
    return data.decode("utf-8", "ignore").strip()
