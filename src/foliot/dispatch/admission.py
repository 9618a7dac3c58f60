"""Admission: what happens to a due run of a schedule. Pure; called inside the firing transaction.

Facts propose, the slot decides: the store reads the facts under the lock of the firing transaction, so nobody can
change them between the decision and its effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from foliot.dispatch.occurrence import MOST_COUNTED, Occurrence
from foliot.domain.decisions import Misfire, misfire, too_late
from foliot.domain.identity import tick_name
from foliot.domain.instant import SECOND, Duration, Instant, spell
from foliot.domain.policy import CatchUp, Overlap
from foliot.domain.rule import Rule
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import NewTick, Schedule, TickDecision, TickFacts
from foliot.domain.state import Reason
from foliot.timing import Overdue, decode

COUNTED_PER_BATCH = 50_000
"""Missed ticks that one firing transaction counts, all its schedules together: a quarter of a second of work.

Without this bound a thousand schedules after a week of silence would count for minutes, inside the write lock."""

LEAST_COUNTED = 10
"""What a schedule may count even when the others have used the batch's share up."""

SHORTEST_REPEAT: Duration = SECOND
"""A fixed delay that is skipped comes back no sooner: a paused `after("1ms")` must not fill the history with skips."""


def decide_ticks(facts: Sequence[TickFacts], now: Instant) -> list[TickDecision]:
    """Decides a batch, in its order.

    The facts were all read before any of the batch was decided. So what one decision fires makes its schedule busy
    for the ones after it, here, as it would have had they come in two transactions.
    """
    decisions: list[TickDecision] = []
    busy: dict[str, str] = {}
    left = COUNTED_PER_BATCH
    for fact in facts:
        schedule = fact.schedule
        if schedule is not None and fact.occupied_by is None and schedule.id in busy:
            fact = fact._replace(occupied_by=busy[schedule.id])
        decision = decide_tick(fact, now, most_counted=max(LEAST_COUNTED, min(MOST_COUNTED, left)))
        left -= decision.span_count
        if schedule is not None and decision.instead is not None:
            busy[schedule.id] = tick_name(schedule.id, decision.instead.nominal)
        elif schedule is not None and decision.verdict == "fire":
            busy[schedule.id] = fact.id
        decisions.append(decision)
    return decisions


def decide_tick(facts: TickFacts, now: Instant, *, most_counted: int = MOST_COUNTED) -> TickDecision:
    """Decides about one due run. Never raises: one bad schedule never stops the others.

    1. The template is gone: the run stands for itself.
    2. It was decided before (a retry, or handed back by a worker): its successor exists, overlap was judged.
    3. Somebody ordered it (by hand, a rerun): it obeys overlap, and no tick follows from it.
    4. Its schedule has a fixed delay: no calendar, so no catch-up.
    5. It is a tick. Its rule cannot be read: it was promised, so it is judged alone, and the fault is told.
    6. Somebody asked that it shall not run: skipped, alone.
    7. Its schedule is paused: skipped, and with it whatever else fell due.
    8. By its lateness it is live, or missed; if missed, the catch-up policy speaks.

    Whatever stays behind in time is too late in every one of these cases, once its `useful_until` has passed.
    """
    schedule = facts.schedule
    if schedule is None:
        return _too_late_alone(facts) if too_late(facts.useful_until, now) else _fire(facts)
    try:
        if facts.attempt > 0:
            return _again(facts, schedule, now)
        if facts.origin is not Origin.SCHEDULED:
            return _ordered(facts, schedule, now)
        if schedule.delay is not None:
            return _delayed(facts, schedule, schedule.delay, now)
        rule = _rule(schedule.rule)
        if rule.delay is not None:
            return _delayed(facts, schedule, rule.delay, now)
        tick = Occurrence(facts, schedule, rule, now, most_counted)
        return tick.remembered(_tick(tick))
    except Exception as problem:
        # Whatever a rule does wrong (also one that reads well and fails later) is a fault of its schedule alone. The
        # wall time that it was made for is remembered: it must not run again when the rule can be read.
        decision = _faulty(facts, schedule, now, problem)
        return replace(decision, last_wall=schedule.next_wall or schedule.last_wall, tables=schedule.tables)


@lru_cache(maxsize=10_000)
def _rule(text: str) -> Rule:
    """Rules are values, so one that was read serves all of its ticks."""
    return decode(text)


# ---------------------------------------------------------------------------------------- runs that are not fresh ticks


def _again(facts: TickFacts, schedule: Schedule, now: Instant) -> TickDecision:
    if not too_late(facts.useful_until, now):
        return _fire(facts, lane=facts.lane)
    # The end of a fixed-delay run makes the next one, also this end.
    fixed = schedule.delay is not None and facts.origin is Origin.SCHEDULED
    return _too_late_alone(facts, _after_delay(facts, schedule, schedule.delay or 0, now) if fixed else None)


def _ordered(facts: TickFacts, schedule: Schedule, now: Instant) -> TickDecision:
    if too_late(facts.useful_until, now):
        return _too_late_alone(facts)
    if _overlaps(facts, schedule):
        return _skip(facts, Reason.OVERLAP, _still_active(facts))
    return _fire(facts)


def _delayed(facts: TickFacts, schedule: Schedule, delay: Duration, now: Instant) -> TickDecision:
    """A run of a fixed delay makes its successor when it ends. One that is skipped ends here, so it does so here."""
    successor = _after_delay(facts, schedule, delay, now)
    if schedule.paused(now):
        return _skip(facts, Reason.PAUSED, _paused(schedule), successor, facts.nominal)
    if too_late(facts.useful_until, now):
        return _too_late_alone(facts, successor)
    if _overlaps(facts, schedule):
        return _skip(facts, Reason.OVERLAP, _still_active(facts), successor, facts.nominal)
    return _fire(facts, through=facts.nominal)


def _after_delay(facts: TickFacts, schedule: Schedule, delay: Duration, now: Instant) -> NewTick:
    nominal = now + max(delay, SHORTEST_REPEAT)
    useful = schedule.policy.useful_until
    return NewTick(nominal, facts.nominal, nominal, None if useful is None else nominal + useful)


def _faulty(facts: TickFacts, schedule: Schedule, now: Instant, problem: Exception) -> TickDecision:
    """The tick itself was promised while the rule could be read; what its other policies say still holds."""
    fault = f"{type(problem).__name__}: {problem}"
    if facts.withdrawn is not None:
        return _skip(facts, Reason.OPERATOR, facts.withdrawn, through=facts.nominal, fault=fault)
    if schedule.paused(now):
        return _skip(facts, Reason.PAUSED, _paused(schedule), through=facts.nominal, fault=fault)
    if too_late(facts.useful_until, now):
        return _skip(facts, Reason.TOO_LATE, _TOO_LATE, through=facts.nominal, fault=fault)
    if _overlaps(facts, schedule):
        return _skip(facts, Reason.OVERLAP, _still_active(facts), through=facts.nominal, fault=fault)
    return _fire(facts, through=facts.nominal, fault=fault)


# ------------------------------------------------------------------------------------------------------ ticks of a rule


def _tick(tick: Occurrence) -> TickDecision:
    if tick.facts.withdrawn is not None:
        return _skip(tick.facts, Reason.OPERATOR, tick.facts.withdrawn, tick.next(), tick.nominal)
    if tick.schedule.paused(tick.now):
        return _skip_through(tick, tick.due_through(tick.now), Reason.PAUSED, _paused(tick.schedule))
    # Lateness counts from the tick's own due time, not from the row's fire time: a run that was held and released is
    # as late as it is, and belongs to the catch-up lane, whenever it was let go.
    match misfire(tick.policy, tick.due_at, tick.now):
        case Misfire.ON_TIME:
            return _live(tick)
        case Misfire.RUN_LATEST:
            return _catch_up_once(tick)
        case Misfire.RUN_EACH:
            return _catch_up_each(tick)
        case Misfire.SKIP:
            return _missed(tick)


def _live(tick: Occurrence) -> TickDecision:
    if too_late(tick.facts.useful_until, tick.now):
        return _too_late(tick)
    if _overlaps(tick.facts, tick.schedule):
        return _skip(tick.facts, Reason.OVERLAP, _still_active(tick.facts), tick.next(), tick.nominal)
    return _fire(tick.facts, successor=tick.next(), through=tick.nominal)


def _catch_up_once(tick: Occurrence) -> TickDecision:
    """All that is due becomes one run: that of the latest tick, which stands for the whole span.

    Overlap is not a reason to drop what is caught up, so it waits; no successor is made, because the schedule's one
    pending row is the one that waits. Where runs may overlap there is nothing to wait for.
    """
    due = tick.due_through(tick.now)
    alone = due.latest == tick.nominal
    useful_until = tick.facts.useful_until if alone else tick.useful_until(due.latest)
    if too_late(useful_until, tick.now):
        return _skip_through(tick, due, Reason.TOO_LATE, _TOO_LATE)
    if tick.facts.occupied_by is not None and tick.policy.overlap is not Overlap.ALLOW:
        return _hold(tick.facts)
    successor = tick.following(due.following, due.latest)
    if alone:
        return _fire(tick.facts, successor=successor, through=due.latest, lane=Lane.CATCH_UP)
    merged_through = tick.before(due)
    return TickDecision(
        tick.facts.number,
        "skip",
        Lane.CATCH_UP,
        Reason.COALESCED,
        _counted(f"into {tick_name(tick.schedule.id, due.latest)}", due),
        span_until=merged_through if merged_through > tick.nominal else None,
        span_count=due.count if due.capped else due.count - 1,
        instead=tick.new(due.latest, since=tick.since),
        successor=successor,
        evaluated_through=due.latest,
    )


def _catch_up_each(tick: Occurrence) -> TickDecision:
    """Oldest first, one after another, whatever the overlap policy: this one waits until the one before has ended."""
    if too_late(tick.facts.useful_until, tick.now):
        return _too_late(tick)
    if tick.facts.occupied_by is not None:
        return _hold(tick.facts)
    return _fire(tick.facts, successor=tick.next(), through=tick.nominal, lane=Lane.CATCH_UP)


def _missed(tick: Occurrence) -> TickDecision:
    """Ticks that are not caught up share one row; the first one that is not among them comes next, due or not.

    Which those are is `misfire` solved for the due time: later than `missed_after` if nothing is caught up, otherwise
    older than the window (and than `missed_after`: a tick that is on time is never skipped by a short window).
    """
    limit = tick.policy.missed_after
    detail = f"later than {spell(limit)}, and missed ticks are skipped"
    if tick.policy.catch_up is not CatchUp.SKIP:
        limit = max(limit, tick.policy.catch_up_window or 0)
        detail = f"older than the catch-up window of {spell(tick.policy.catch_up_window or 0)}"
    return _skip_through(tick, tick.due_through(tick.now - limit - 1), Reason.MISFIRE, detail)


def _too_late(tick: Occurrence) -> TickDecision:
    """The tick, and those after it that are too late by the same policy, in one row."""
    useful = tick.policy.useful_until
    ended = tick.through(tick.nominal if useful is None else tick.now - useful - 1)
    return _skip_through(tick, ended, Reason.TOO_LATE, _TOO_LATE)


# --------------------------------------------------------------------------------------------------------- the verdicts


_TOO_LATE = "its useful time has passed"


def _fire(
    facts: TickFacts,
    *,
    successor: NewTick | None = None,
    through: Instant | None = None,
    lane: Lane = Lane.LIVE,
    fault: str | None = None,
) -> TickDecision:
    return TickDecision(facts.number, "fire", lane, successor=successor, evaluated_through=through, fault=fault)


def _hold(facts: TickFacts) -> TickDecision:
    """Decided again when it is released: until then nothing has been evaluated."""
    return TickDecision(facts.number, "hold", Lane.CATCH_UP, Reason.OVERLAP, _still_active(facts))


def _skip(
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


def _too_late_alone(facts: TickFacts, successor: NewTick | None = None) -> TickDecision:
    return _skip(facts, Reason.TOO_LATE, _TOO_LATE, successor, None if successor is None else facts.nominal)


def _skip_through(tick: Occurrence, ended: Overdue, reason: Reason, detail: str) -> TickDecision:
    """This tick and all up to `ended.latest` in one row; the schedule goes on with the one that follows."""
    return TickDecision(
        tick.facts.number,
        "skip",
        reason=reason,
        detail=_counted(detail, ended),
        span_until=ended.latest if ended.latest > tick.nominal else None,
        span_count=ended.count,
        successor=tick.following(ended.following, ended.latest),
        evaluated_through=ended.latest,
    )


def _overlaps(facts: TickFacts, schedule: Schedule) -> bool:
    return facts.occupied_by is not None and schedule.policy.overlap is Overlap.SKIP


def _still_active(facts: TickFacts) -> str:
    return f"{facts.occupied_by} is still active"


def _paused(schedule: Schedule) -> str:
    return schedule.paused_note or "the schedule is paused"


def _counted(detail: str, ticks: Overdue) -> str:
    return f"{detail}; at least {ticks.count} ticks, counted no further" if ticks.capped else detail
