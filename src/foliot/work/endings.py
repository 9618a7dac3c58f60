"""How attempts end: first what can be told by itself (a Finding), then what the ledger says, then the decision.

found      what the attempt was asked comes first, then what its handler said, then what befell it
concluded  the ledger is asked where there can be one, and the pure decisions speak
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from foliot.clock import Clock
from foliot.domain.decisions import (
    NOTHING_KNOWN,
    Next,
    after_check,
    after_failure,
    after_loss,
    contact,
    unless_in_doubt,
)
from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant, duration, instant
from foliot.domain.ledger import EffectState, EffectView, Facts, Stage, stage_of
from foliot.domain.run import Ending, Phase
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.suspicion import Suspicion
from foliot.errors import Cancelled, InvalidInput, ItemsFailed, Locked, LostOwnership, Permanent, RetryAfter
from foliot.work.attempt import Attempt, Stop
from foliot.work.check import verdict_of
from foliot.work.describe import clean, describe, headline
from foliot.work.desk import Ask, Desks, blocking
from foliot.work.effects import Book
from foliot.work.hiding import Hide, Hider, as_it_is
from foliot.work.outbox import HOPELESS

MOST_RESULT = 64 * 1024

Chance = Callable[[], float]
T = TypeVar("T")

_PAUSES = (50 * MILLISECOND, 500 * MILLISECOND, 5 * SECOND)
"""How long to wait before the ledger is asked once more. A store that does not answer now cannot be told how the
attempt ended either, so that waiting for it costs little."""
_FOR_A_KEY: Duration = 15 * SECOND
_LONGEST_FOR_A_KEY: Duration = 5 * MINUTE
"""How long a run waits that is locked with a key which its worker does not have: each time twice as long."""
_encode = msgspec.json.Encoder().encode


class Unreadable(Exception):
    """The payload does not fit the handler: its code never ran."""


class Finding(NamedTuple):
    """How an attempt ended, as far as that can be told without the ledger."""

    outcome: Outcome
    error: str | None = None
    event: Event | None = None
    """What follows; None when that is to be decided as after a failure."""
    reason: Reason | None = None
    not_before: Instant | None = None
    result: bytes | None = None
    scope: str | None = None
    refused: bool = False
    """A check has spoken, and says no."""


_NOT_COMMITTED = Finding(Outcome.FAILED, "the transaction that completes this run was not committed")


# --------------------------------------------------------------------------------------------- what the attempt tells


def found(attempt: Attempt, error: BaseException | None, result: Any, clock: Clock) -> Finding:
    """Whatever happens, something is found: without an ending the attempt would keep its slot and its lease for ever.

    Classifying an error runs code of its author: attributes, `__class__`, `__instancecheck__`. What is wrong there
    makes the attempt one that failed.
    """
    hide = hider(attempt)
    try:
        finding = _found(attempt, error, result, clock, hide)
    except BaseException as fault:
        told = headline(fault if error is None else error, hide)
        text = clean(f"{told}\nClassifying its outcome failed: {describe(fault, hide)}")
        finding = Finding(Outcome.FAILED, text)
    batches = None if attempt.context is None else attempt.context._batches
    if batches is not None and finding.error is not None and finding.outcome in (Outcome.FAILED, Outcome.PERMANENT):
        batches.broke(finding.error.splitlines()[0])
    return finding


def hider(attempt: Attempt) -> Hider:
    """Takes the attempt's secrets out of texts."""
    return Hider(attempt.claimed, attempt.handler.secrets)


def _found(attempt: Attempt, error: BaseException | None, result: Any, clock: Clock, hide: Hide) -> Finding:
    if attempt.stop is not None and _heeded(attempt, error):
        return stopped(attempt, attempt.stop, error, clock, hide)
    if error is None:
        return _answered(result, hide) if attempt.claimed.phase is not None else _succeeded(attempt, result, hide)
    if isinstance(error, Unreadable):
        return Finding(Outcome.PERMANENT, clean(str(error)), Event.GAVE_UP, Reason.BAD_PAYLOAD)
    if isinstance(error, Locked):
        # Nothing was done, and nothing is wrong with it: it costs no attempt, and waits for a worker that has the key.
        not_before = clock.now() + min(_FOR_A_KEY << min(attempt.claimed.attempt - 1, 10), _LONGEST_FOR_A_KEY)
        return Finding(Outcome.INTERRUPTED, str(error), Event.RETRY_GRANTED, Reason.LOCKED, not_before)
    if isinstance(error, Cancelled):
        return Finding(Outcome.CANCELLED, describe(error, hide), Event.CANCEL, Reason.REQUESTED)
    if isinstance(error, asyncio.CancelledError) and _cancelled_from_outside(attempt):
        # Nobody in this room asked for it: the process is being shut down around the drain.
        return Finding(Outcome.INTERRUPTED, describe(error, hide), Event.GIVEN_BACK)
    return _failed(attempt, error, clock.now(), hide)


def _succeeded(attempt: Attempt, result: Any, hide: Hide) -> Finding:
    event = Event.COMPLETED if attempt.handler.check is None else Event.CHECK_DUE
    kept, remark = result_of(result, hide)
    return Finding(Outcome.SUCCEEDED, remark, event, result=kept)


def result_of(result: Any, hide: Hide) -> tuple[bytes | None, str | None]:
    """A result is a convenience: one that cannot be kept does not turn success into failure."""
    if result is None:
        return None, None
    try:
        encoded = _encode(result)
    except BaseException as error:  # whatever the code of its author's classes raises
        return None, clean(f"note: the result was not stored: {headline(error, hide)}")
    if is_too_deep(encoded):
        return None, f"note: the result was not stored: it is nested more than {MOST_DEPTH} levels deep"
    if len(encoded) > MOST_RESULT:
        return None, (f"note: the result was not stored: {len(encoded):,} bytes of JSON are more than {MOST_RESULT:,}")
    return encoded, None


def _answered(answer: Any, hide: Hide) -> Finding:
    """What a check said."""
    try:
        ok, scope = verdict_of(answer)
    except InvalidInput as error:
        return Finding(Outcome.FAILED, clean(hide(str(error))))
    scope = None if scope is None else hide(scope)
    if ok:
        return Finding(Outcome.SUCCEEDED, None, Event.CHECK_PASSED, scope=scope)
    return Finding(
        Outcome.FAILED,
        f"the check rejected the result: {scope}" if scope else "the check rejected the result",
        refused=True,
    )


def _heeded(attempt: Attempt, error: BaseException | None) -> bool:
    """Whether an attempt that was asked to stop is to be recorded as stopped.

    A thread that never looked at its context and came to its own end has simply ended, and a proven completion is
    not thrown away. Two exceptions: past its deadline it has timed out whatever it did (and past a last warning it has
    stalled), and a run that somebody wanted cancelled is not tried again because its last attempt failed.
    """
    if attempt.stop is Stop.TIMEOUT or attempt.asked_at is not None or attempt.saw_stop():
        return True
    return isinstance(error, Cancelled) or (attempt.stop is Stop.CANCEL and error is not None)


def stopped(attempt: Attempt, stop: Stop, error: BaseException | None, clock: Clock, hide: Hide = as_it_is) -> Finding:
    """What is found of an attempt that was asked to stop, and has stopped."""
    text = None if error is None or isinstance(error, Cancelled | asyncio.CancelledError) else describe(error, hide)
    if stop is Stop.CANCEL:
        return Finding(Outcome.CANCELLED, text, Event.CANCEL, Reason.REQUESTED)
    if stop is Stop.TIMEOUT:
        since = attempt.begun_at
        detail = f"timed out after {(clock.monotonic() - since if since is not None else 0) / SECOND:g} s"
        return Finding(Outcome.TIMED_OUT, detail + (f"\n{text}" if text else ""))
    if stop is Stop.STALL:
        since = attempt.moved_at()
        detail = f"stalled: no progress for {(clock.monotonic() - since if since is not None else 0) / SECOND:g} s"
        return Finding(Outcome.STALLED, detail + (f"\n{text}" if text else ""))
    # Drained, or taken away: the run is due again at once and nothing was spent. If it was taken away, the token has
    # gone with it, and the store refuses this ending.
    return Finding(Outcome.INTERRUPTED, text, Event.GIVEN_BACK)


def _failed(attempt: Attempt, error: BaseException, now: Instant, hide: Hide) -> Finding:
    handler, text = attempt.handler, describe(error, hide)
    if isinstance(error, RetryAfter):
        try:
            return Finding(Outcome.FAILED, text, not_before=_not_before(error, now))
        except InvalidInput as fault:  # a delay that cannot be read must not cost the run its retry
            return Finding(Outcome.FAILED, clean(f"{fault}\n{text}"))
    permanent = isinstance(error, (Permanent, *handler.give_up_on)) or (
        handler.retry_on and not isinstance(error, (ItemsFailed, *handler.retry_on))
    )
    return Finding(Outcome.PERMANENT if permanent else Outcome.FAILED, text)


def _not_before(error: RetryAfter, now: Instant) -> Instant:
    return instant(error.delay) if isinstance(error.delay, datetime) else now + duration(error.delay)


def _cancelled_from_outside(attempt: Attempt) -> bool:
    """Only while the worker shuts down. Otherwise the handler cancelled itself, or let a CancelledError of its own
    making escape: an ordinary failure, since whatever costs no attempt would be tried again for ever."""
    return attempt.draining and attempt.task is not None and attempt.task.cancelling() > 0


# ------------------------------------------------------------------------------------------------- what the ledger says


def may_have_ledger(attempt: Attempt) -> bool:
    """Whether anything can be in the ledger of its run. A first attempt knows by itself; a check changes nothing."""
    claimed, context = attempt.claimed, attempt.context
    if attempt.handler.arguments.context is None or claimed.phase is not None:
        return False
    if claimed.attempt > 1 or claimed.lineage is not None or attempt.isolated:  # another process has its context
        return True
    return context is not None and context._book is not None and context._book.touched


async def concluded(attempt: Attempt, finding: Finding, clock: Clock, chance: Chance, desks: Desks, ask: Ask) -> Ending:
    """The ending of an attempt that has ended at this moment.

    A run that was completed by its handler's transaction has ended with that, whatever the handler did after; said
    again, that changes nothing. Whether a transaction of the handler's own was committed, only the store knows: a
    success that was not is none, and one that was cannot be undone by what is said here.
    """
    completion = None if attempt.context is None else attempt.context._completion
    if completion is not None and completion.is_certain:
        return completion.ending._replace(contact=contact(attempt.policy, Outcome.SUCCEEDED))
    if completion is not None and finding.outcome is Outcome.SUCCEEDED:
        finding = _NOT_COMMITTED
    now = clock.now()
    facts, loose_ends = NOTHING_KNOWN, ""
    # What was taken away is fenced, whatever it says.
    if attempt.stop is not Stop.LOST and may_have_ledger(attempt):
        facts, loose_ends = await _read(attempt, clock, desks, ask)
    return decided(attempt, finding, facts, now, chance, loose_ends)


async def _read(attempt: Attempt, clock: Clock, desks: Desks, ask: Ask) -> tuple[Facts, str]:
    claimed, context = attempt.claimed, attempt.context
    book = None if context is None else context._book
    book = book or Book(desks(claimed), claimed.token)
    batches = None if context is None else context._batches
    checkpoint = claimed.checkpoint if context is None else context._checkpoint
    items = 0 if batches is None else batches.done
    try:
        lines = await ask(_closed(book, clock))
    except BaseException:  # also the end of this loop: what is known here must do
        is_first = claimed.attempt == 1 and claimed.lineage is None
        return book.facts(is_first=is_first)._replace(items=items, checkpoint=checkpoint is not None), ""
    return Facts.of(lines, items, checkpoint is not None), _loose_ends(lines)


async def _closed(book: Book, clock: Clock) -> list[EffectView]:
    for pause in _PAUSES:
        try:
            return await book.closed()
        except (LostOwnership, *HOPELESS):
            raise
        except Exception:
            await clock.sleep(pause)
    return await book.closed()


def _loose_ends(lines: Sequence[EffectView]) -> str:
    open_ones = [f"{one.name} {one.key}" for one in lines if one.state is EffectState.STARTED]
    if not open_ones:
        return ""
    if len(open_ones) == 1:
        return f"{open_ones[0]} started and has no recorded outcome"
    return f"{open_ones[0]} and {len(open_ones) - 1} more started and have no recorded outcome"


async def uninterrupted(question: Coroutine[Any, Any, T], /) -> T:
    """For a task that is about to end: cancelled once more, it would end without a word, and keep its slot."""
    task = asyncio.get_running_loop().create_task(question)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    return task.result()


def from_thread(desks: Desks, attempt: Attempt) -> Ask:
    """For a thread: how it reaches the event loop in which its desk is."""

    async def ask(question: Coroutine[Any, Any, T], /) -> T:
        return await blocking(desks(attempt.claimed).loop)(question)

    return ask


# ------------------------------------------------------------------------------------------------------------ decisions


def decided(
    attempt: Attempt, finding: Finding, facts: Facts, now: Instant, chance: Chance, loose_ends: str = ""
) -> Ending:
    """Pure, but for chance."""
    claimed, policy = attempt.claimed, attempt.policy
    stage: Stage | None = Stage.CHECK
    if claimed.phase is not None:
        verdict = _after_check(attempt, finding, now, chance)
    else:
        verdict = unless_in_doubt(_following(attempt, finding, facts, now, chance), facts, attempt.handler.traits())
        stage = _stage(attempt, verdict, facts)
    error = finding.error
    if verdict.reason is Reason.EFFECT and loose_ends:
        error = clean(f"{loose_ends}\n{error}" if error else loose_ends)
    granted = verdict.event is Event.RETRY_GRANTED and claimed.phase is None and verdict.reason is not Reason.LOCKED
    return Ending(
        claimed.number,
        claimed.token,
        claimed.attempt,
        verdict.event,
        finding.outcome,
        attempt.started_at,
        now,
        verdict.retry_at,
        verdict.reason,
        error,
        finding.result,
        stage,
        finding.scope,
        policy.retries_per_hour if granted else None,
        contact(policy, finding.outcome) if claimed.phase is None else None,
        # An interruption says nothing about what the run does to its worker.
        deaths=claimed.deaths if finding.outcome is Outcome.INTERRUPTED else verdict.deaths,
    )


def _following(attempt: Attempt, finding: Finding, facts: Facts, now: Instant, chance: Chance) -> Next:
    if finding.event is not None:
        return Next(finding.event, finding.not_before, finding.reason)
    claimed = attempt.claimed
    due_at = claimed.fire_at if claimed.nominal is None else claimed.nominal
    if finding.outcome is Outcome.LOST:  # its own process died, which executed this run alone
        return after_loss(
            attempt.policy,
            spent=claimed.spent + 1,
            due_at=due_at,
            now=now,
            chance=chance(),
            facts=facts,
            traits=attempt.handler.traits(),
            suspicion=Suspicion(claimed.losses, claimed.deaths),
            alone=True,
        )
    return after_failure(
        attempt.policy,
        finding.outcome,
        spent=claimed.spent + 1,
        due_at=due_at,
        now=now,
        chance=chance(),
        not_before=finding.not_before,
        facts=facts,
    )


def _after_check(attempt: Attempt, finding: Finding, now: Instant, chance: Chance) -> Next:
    """A check that was interrupted is given back, and made again; whatever else was no verdict was one that broke."""
    if finding.event in (Event.CHECK_PASSED, Event.GIVEN_BACK):
        return Next(finding.event)
    if finding.reason is Reason.LOCKED:
        return Next(Event.RETRY_GRANTED, finding.not_before, Reason.LOCKED)
    claimed = attempt.claimed
    verdict = after_check(
        attempt.policy,
        spent=claimed.spent + 1,
        in_doubt=claimed.phase == Phase.DOUBT,
        now=now,
        chance=chance(),
        refused=finding.refused,
    )
    if verdict.retry_at is not None and finding.not_before is not None:
        return verdict._replace(retry_at=max(verdict.retry_at, finding.not_before))
    return verdict


def _stage(attempt: Attempt, verdict: Next, facts: Facts) -> Stage | None:
    """Where it ended, unless it ended well. A job without a context, which declares no effects, has no stages."""
    if verdict.event in (Event.COMPLETED, Event.CHECK_DUE):
        return None
    blind = attempt.handler.arguments.context is None and attempt.handler.effects is None
    return None if blind else stage_of(facts)
