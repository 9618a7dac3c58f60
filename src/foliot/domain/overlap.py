"""Overlap: what becomes of a run that may go, while others of its schedule are busy or wait. Pure."""

from __future__ import annotations

from dataclasses import replace

from foliot.domain.policy import Overlap
from foliot.domain.run import WISHES, Lane, Origin
from foliot.domain.schedule import Schedule, TickDecision, TickFacts, Waiting
from foliot.domain.state import Reason
from foliot.domain.verdicts import fire, skip, still_active, waits_its_turn


def judged(facts: TickFacts, schedule: Schedule, go: TickDecision) -> TickDecision:
    """`go` is what happens if nobody is in the way; whatever else it says (the next tick, how far the schedule was
    evaluated) holds in any case.

    Reruns, backfills and replays are somebody's wish: they wait for their turn where a tick would be skipped or others
    replaced, nobody replaces them, and they take nobody's place in a queue that has a limit.
    A tick that only a backfill is in the way of waits, too: manufactured history must not cost a tick. So does a
    member's run of a tick that is being caught up. A tick over many members is in nobody's way: each of them is judged
    by itself.
    """
    if facts.over is not None:
        return go
    ahead = _ahead(facts, schedule)
    if facts.forced or schedule.policy.overlap is Overlap.ALLOW or not (facts.occupied_by or ahead):
        return go
    if facts.origin in WISHES or facts.lane is Lane.BACKFILL:
        return _held(facts, go)
    patient = _only_backfill(facts) or (facts.member is not None and facts.lane is Lane.CATCH_UP)
    in_line = sum(not one.is_wish for one in facts.waiting)
    match schedule.policy.overlap:
        case Overlap.SKIP if not patient:
            return _skipped(facts, go, still_active(facts))
        case Overlap.QUEUE if not patient and not facts.decided and in_line >= schedule.policy.queue_limit:
            full = f"the overlap queue is full: {in_line} runs wait"
            return _skipped(facts, go, f"{full}, and {still_active(facts)}" if facts.occupied_by else full)
        case Overlap.COALESCE if facts.origin is Origin.SCHEDULED:
            return _coalesced(facts, go, ahead)
        case Overlap.REPLACE if not patient:
            return _replaced(facts, go, ahead)
    return _held(facts, go)


def foreseen(facts: TickFacts) -> TickDecision:
    """The decision about a run that a person orders now: of `facts` with neither calendar nor lateness."""
    go = fire(facts, lane=facts.lane)
    return go if facts.schedule is None else judged(facts, facts.schedule, go)


def _ahead(facts: TickFacts, schedule: Schedule) -> tuple[Waiting, ...]:
    """Who waits before this one, in the order in which those that wait are let go.

    Whoever is let go as the first of them must not find another one ahead, also one that nothing was decided about
    when it began to wait (by hand, a rerun): both would wait for ever.
    """
    mine = (facts.lane, facts.nominal, facts.number)
    ahead = (one for one in facts.waiting if (one.lane, one.nominal, one.number) < mine)
    return tuple(one for one in ahead if not _is_next(one, schedule))


def _is_next(one: Waiting, schedule: Schedule) -> bool:
    """The schedule's pending tick, held by a pause or as one to be caught up. It is in nobody's way: whatever holds it
    may be. And nobody may pass it over: the ticks after it follow from it."""
    return one.is_tick and (schedule.evaluated_through is None or one.nominal > schedule.evaluated_through)


def _only_backfill(facts: TickFacts) -> bool:
    return bool(facts.busy) and all(one.lane is Lane.BACKFILL for one in facts.busy)


def _held(facts: TickFacts, go: TickDecision) -> TickDecision:
    return replace(go, verdict="hold", reason=Reason.OVERLAP, detail=waits_its_turn(facts))


def _skipped(facts: TickFacts, go: TickDecision, detail: str) -> TickDecision:
    return skip(facts, Reason.OVERLAP, detail, go.successor, go.evaluated_through, go.fault)


def _coalesced(facts: TickFacts, go: TickDecision, ahead: tuple[Waiting, ...]) -> TickDecision:
    """All that wait become one, which is the latest, and stands for the whole span."""
    merges = tuple(one for one in ahead if one.is_tick)
    held = _held(facts, go) if facts.occupied_by or len(merges) < len(ahead) else go
    return replace(held, merges=merges, since=merges[0].since if merges else None)


def _replaced(facts: TickFacts, go: TickDecision, ahead: tuple[Waiting, ...]) -> TickDecision:
    """Those that wait are passed over, but for somebody's wish, which has its turn first. Those that nobody has begun
    end at once; others are asked to stop, and this one waits until they have."""
    merges = tuple(one for one in ahead if not one.is_wish)
    passed_over = replace(go, merges=merges, merged_as=Reason.REPLACED)
    if not facts.occupied_by and len(merges) == len(ahead):
        return passed_over
    return replace(_held(facts, passed_over), replaces=tuple(one for one in facts.busy if one.stoppable))
