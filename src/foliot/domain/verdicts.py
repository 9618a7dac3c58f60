"""How a decision about a due run is put into words. Pure."""

from __future__ import annotations

from foliot.domain.decisions import TOO_LATE
from foliot.domain.instant import Instant
from foliot.domain.run import Lane
from foliot.domain.schedule import NewTick, TickDecision, TickFacts
from foliot.domain.state import Reason


def fire(
    facts: TickFacts,
    *,
    successor: NewTick | None = None,
    through: Instant | None = None,
    lane: Lane = Lane.LIVE,
    fault: str | None = None,
) -> TickDecision:
    return TickDecision(facts.number, "fire", lane, successor=successor, evaluated_through=through, fault=fault)


def skip(
    facts: TickFacts,
    reason: Reason,
    detail: str,
    successor: NewTick | None = None,
    through: Instant | None = None,
    fault: str | None = None,
) -> TickDecision:
    return TickDecision(
        facts.number,
        "skip",
        reason=reason,
        detail=detail,
        successor=successor,
        evaluated_through=through,
        fault=fault,
    )


def too_late_alone(facts: TickFacts, successor: NewTick | None = None) -> TickDecision:
    return skip(facts, Reason.TOO_LATE, TOO_LATE, successor, None if successor is None else facts.nominal)


def hold_undecided(facts: TickFacts) -> TickDecision:
    """Decided again when it is released: until then nothing has been evaluated."""
    return TickDecision(facts.number, "hold", Lane.CATCH_UP, Reason.OVERLAP, waits_its_turn(facts))


def still_active(facts: TickFacts) -> str:
    if facts.occupied_by is None and facts.waiting:
        return f"{facts.waiting[0].id} is earlier in the queue"
    return _parked(facts) or f"{facts.occupied_by} is still active"


def waits_its_turn(facts: TickFacts) -> str:
    """Said once, when it begins to wait: so it tells who was in its way then."""
    if facts.occupied_by is not None:
        return f"waits for an earlier run: {_parked(facts) or f'{facts.occupied_by} was active'}"
    return (
        f"waits for an earlier run: {facts.waiting[-1].id} is earlier in the queue"
        if facts.waiting
        else "waits for an earlier run"
    )


def _parked(facts: TickFacts) -> str | None:
    """What is in the way may be at work no more: then nothing happens before a person acts."""
    found = next((one for one in facts.busy if one.id == facts.occupied_by), None)
    return f"{found.id} is {found.parked} and needs attention" if found and found.parked is not None else None
