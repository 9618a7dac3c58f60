"""Upstream: a run that needs another schedule's result waits for it, until its cutoff. Pure."""

from __future__ import annotations

from dataclasses import replace

from foliot.domain.instant import LAST, MINUTE, Duration, Instant, rfc3339
from foliot.domain.policy import AtCutoff
from foliot.domain.rule import Rule
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Schedule, TickDecision, TickFacts
from foliot.domain.state import Reason
from foliot.domain.verdicts import skip
from foliot.timing import decode

_LOOK_AGAIN: Duration = MINUTE


def awaited(facts: TickFacts, schedule: Schedule, go: TickDecision, now: Instant) -> TickDecision:
    """`go`, if it fires and has what it needs. What a person ordered by hand waits for nothing."""
    if go.verdict != "fire" or facts.origin in (Origin.MANUAL, Origin.RERUN) or not lacks(facts, schedule):
        return go
    policy = schedule.policy
    cutoff = min(facts.nominal + policy.cutoff, LAST)
    if now < cutoff:
        held = replace(go, verdict="hold", reason=Reason.UPSTREAM, detail=_waits(facts))
        return replace(held, until=cutoff, waits_for=_slot(facts))
    if policy.at_cutoff is AtCutoff.RUN:
        return go
    detail = f"{_missing(facts)} at its cutoff, {rfc3339(cutoff)}"
    return skip(facts, Reason.UPSTREAM, detail, go.successor, go.evaluated_through, go.fault)


def hold_for_upstream(facts: TickFacts, schedule: Schedule, now: Instant) -> TickDecision:
    """Several ticks that were missed, and what the latest of them needs is not there: decided when it is."""
    cutoff = min(max(facts.nominal + schedule.policy.cutoff, now + _LOOK_AGAIN), LAST)
    why = (Lane.CATCH_UP, Reason.UPSTREAM, _waits(facts))
    return TickDecision(facts.number, "hold", *why, until=cutoff, waits_for=_slot(facts))


def lacks(facts: TickFacts, schedule: Schedule, nominal: Instant | None = None) -> bool:
    """Whether what the tick needs is not there: the upstream's last tick that is not after it has no useful result.

    A later result, or one that stands for several ticks, covers those before it.
    """
    upstream = facts.upstream
    if schedule.policy.requires is None or upstream is None or facts.forced:
        return False
    if upstream.rule is None:
        return True
    wanted = _last_tick(decode(upstream.rule), nominal if nominal is not None else facts.nominal, facts.since)
    return wanted is not None and (upstream.useful_through is None or upstream.useful_through < wanted)


def _last_tick(rule: Rule, nominal: Instant, since: Instant | None) -> Instant | None:
    """Of a fixed delay any result will do that is not older than the interval."""
    return since if rule.delay is not None else rule.previous(nominal + 1)


def _slot(facts: TickFacts) -> str:
    assert facts.upstream is not None
    return f"upstream:{facts.upstream.schedule}"


def _missing(facts: TickFacts) -> str:
    assert facts.upstream is not None
    if facts.upstream.rule is None:
        return f"schedule {facts.upstream.schedule} did not exist"
    return f"{facts.upstream.schedule} had no useful result for it"


def _waits(facts: TickFacts) -> str:
    assert facts.upstream is not None
    return f"waits for a useful result of {facts.upstream.schedule}"
