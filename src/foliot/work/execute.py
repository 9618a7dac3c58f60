"""The pipeline over one attempt: start, decode, perform, conclude. It reads the clock and chance; of the store it sees
only the attempt's own desk.

Every way in which a handler can end comes out as exactly one Ending; None stands for an attempt that never began.
"""

from __future__ import annotations

import inspect
from typing import Any

from foliot.clock import Clock
from foliot.domain.decisions import contact
from foliot.domain.instant import Instant
from foliot.domain.ledger import Facts
from foliot.domain.locking import DAMAGED, LOCKED, is_shut, why_shut
from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Event, Outcome, Reason
from foliot.errors import InvalidInput, Locked, Permanent
from foliot.portal import finished
from foliot.timing.binding import binding_in
from foliot.work.attempt import Attempt, Stop
from foliot.work.context import Context
from foliot.work.desk import Ask, Desks
from foliot.work.endings import (
    Chance,
    Finding,
    Unreadable,
    concluded,
    decided,
    found,
    from_thread,
    hider,
    may_have_ledger,
    result_of,
    uninterrupted,
)

__all__ = ["Chance", "execute", "execute_in_thread", "never_began", "unbegun"]

_SHUT = LOCKED[:8]
"""Arguments are an object otherwise: its first letter is another."""
_CANCELLED = Finding(Outcome.CANCELLED, None, Event.CANCEL, Reason.REQUESTED)
_NOTHING = Facts()


async def execute(attempt: Attempt, clock: Clock, chance: Chance, desks: Desks) -> Ending | None:
    """One attempt of an async handler, inside the task that is its own."""
    if attempt.stop is not None:
        return await unbegun(attempt, clock, chance, desks, uninterrupted)
    try:
        arguments = _start(attempt, clock, desks)
        result = await attempt.handler.function(**arguments)
    except BaseException as error:  # also SystemExit: a handler's verdict about itself, not about the worker
        return await concluded(attempt, found(attempt, error, None, clock), clock, chance, desks, uninterrupted)
    if attempt.stop is None and attempt.claimed.phase is None and not may_have_ledger(attempt):
        return _completed(attempt, result, clock.now())
    return await concluded(attempt, found(attempt, None, result, clock), clock, chance, desks, uninterrupted)


def execute_in_thread(attempt: Attempt, clock: Clock, chance: Chance, desks: Desks) -> Ending | None:
    """One attempt of a sync handler, inside a thread of the worker's pool."""
    ask = from_thread(desks, attempt)
    if attempt.asked():
        return finished(unbegun(attempt, clock, chance, desks, ask))
    try:
        arguments = _start(attempt, clock, desks)
        if attempt.asked() and attempt.context is not None:
            attempt.context._stopping = True  # asked while the context was being made
        result = attempt.handler.function(**arguments)
        if inspect.iscoroutine(result):
            result.close()
            raise Permanent(
                f"{attempt.handler.name} returned a coroutine, which a plain function cannot await; declare the "
                "handler with async def"
            )
    except BaseException as error:
        return finished(concluded(attempt, found(attempt, error, None, clock), clock, chance, desks, ask))
    if attempt.stop is None and attempt.claimed.phase is None and not may_have_ledger(attempt):
        return _completed(attempt, result, clock.now())
    return finished(concluded(attempt, found(attempt, None, result, clock), clock, chance, desks, ask))


def _start(attempt: Attempt, clock: Clock, desks: Desks) -> dict[str, Any]:
    """The arguments of the call; from here on the attempt has begun, and costs one when it fails."""
    attempt.begun_at = begun_at = clock.monotonic()
    attempt.started_at = started_at = clock.now()
    handler, claimed = attempt.handler, attempt.claimed
    arguments_of = handler.arguments
    if claimed.payload[:8] == _SHUT or (claimed.checkpoint is not None and is_shut(claimed.checkpoint)):
        _refuse_shut(claimed)
    try:
        arguments = arguments_of.decode(claimed.payload, _bound(claimed))
    except InvalidInput as error:
        raise Unreadable(str(error)) from None
    if arguments_of.context is not None:
        timeout = attempt.policy.timeout
        deadline, ends_at = started_at + timeout, begun_at + timeout
        attempt.context = Context(
            *(claimed, clock, deadline, ends_at, desks, handler.effects, started_at, handler.check is not None),
            hide=hider(attempt),
        )
        arguments[arguments_of.context] = attempt.context
    return arguments


def _refuse_shut(claimed: Claimed) -> None:
    """What this process cannot read it cannot do; who has the key can."""
    for data, what in ((claimed.payload, "its arguments"), (claimed.checkpoint, "its checkpoint")):
        if data is not None and is_shut(data):
            told = why_shut(data, what)
            raise Unreadable(told) if data.startswith(DAMAGED) else Locked(told)


def _bound(claimed: Claimed) -> dict[str, str] | None:
    """Arguments that the run has from its tick."""
    found = binding_in(claimed.options) if claimed.options is not None else None
    if found is None:
        return None
    at = claimed.fire_at if claimed.nominal is None else claimed.nominal
    return found.values(claimed.id, at, claimed.since, claimed.member)


def never_began(attempt: Attempt, now: Instant) -> Ending | None:
    """What to record of an attempt that was asked to stop while it waited for its turn; None to give it back.

    Only where there can be no ledger, if it is to be cancelled: an effect of an earlier attempt may be open.
    """
    if attempt.stop is not Stop.CANCEL or attempt.claimed.phase is not None:
        return None
    return decided(attempt, _CANCELLED, _NOTHING, now, _never)


async def unbegun(attempt: Attempt, clock: Clock, chance: Chance, desks: Desks, ask: Ask) -> Ending | None:
    if attempt.stop is Stop.CANCEL and may_have_ledger(attempt):
        return await concluded(attempt, _CANCELLED, clock, chance, desks, ask)
    return never_began(attempt, clock.now())


def _never() -> float:
    raise AssertionError("a cancellation needs no chance of a retry")


def _completed(attempt: Attempt, result: Any, now: Instant) -> Ending:
    """Nothing was asked of it, and nothing can be in its ledger: as most attempts end, so by place and at once."""
    claimed, started_at = attempt.claimed, attempt.started_at
    event = Event.COMPLETED if attempt.handler.check is None else Event.CHECK_DUE
    if result is None and attempt.policy.destination is None:
        return Ending(claimed.number, claimed.token, claimed.attempt, event, Outcome.SUCCEEDED, started_at, now)
    kept, remark = result_of(result, hider(attempt))
    return Ending(
        *(claimed.number, claimed.token, claimed.attempt, event, Outcome.SUCCEEDED, started_at, now),
        error=remark,
        result=kept,
        contact=contact(attempt.policy, Outcome.SUCCEEDED),
    )
