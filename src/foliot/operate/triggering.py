"""What overlap does to a run that a person triggers, before it is made. Pure."""

from __future__ import annotations

from typing import NamedTuple

from foliot.domain.overlap import foreseen
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.errors import Conflict


def refuse_skipped(facts: TickFacts) -> None:
    """Raises Conflict when overlap would skip the run."""
    decision = foreseen(facts)
    if decision.verdict == "skip":
        raise Conflict(
            f"the run would be skipped: {decision.detail} ({_policy(facts)}); wait until that run has ended, or "
            "start beside it with --override-overlap (override_overlap=True)"
        )


class ForeseenTrigger(NamedTuple):
    """What becomes of a run that is triggered now."""

    is_skipped: bool
    words: str


def foreseen_trigger(facts: TickFacts, *, override: bool = False) -> ForeseenTrigger:
    """The answer of overlap to a run that is triggered now."""
    decision = foreseen(facts)
    if override:
        beside = f" beside {facts.occupied_by}" if facts.occupied_by else ""
        return ForeseenTrigger(False, f"the run starts{beside}; overlap, limits and pauses do not hold it")
    match decision.verdict:
        case "skip":
            return ForeseenTrigger(True, f"the run would be skipped: {decision.detail} ({_policy(facts)})")
        case "hold":
            return ForeseenTrigger(False, f"the run waits: {_hold_words(facts, decision)} ({_policy(facts)})")
    return ForeseenTrigger(False, "the run starts now, unless a limit or a pause holds it")


def _hold_words(facts: TickFacts, decision: TickDecision) -> str:
    stopped = [one.id for one in facts.busy if one in decision.replaces]
    if stopped:
        return f"{', '.join(stopped)} is stopped first"
    return f"{facts.occupied_by} is active" if facts.occupied_by else "other runs are earlier in the queue"


def _policy(facts: TickFacts) -> str:
    return "" if facts.schedule is None else f"overlap={facts.schedule.policy.overlap}"
