"""Admission: what happens to a due run of a schedule. Pure; called inside the firing transaction.

Facts propose, the slot decides: the store reads the facts under the lock of the firing transaction, so nobody can
change them between the decision and its effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from foliot.dispatch.occurrence import MOST_COUNTED, Occurrence
from foliot.dispatch.upstream import awaited, hold_for_upstream, lacks
from foliot.domain.decisions import TOO_LATE, Misfire, misfire, too_late
from foliot.domain.identity import tick_name
from foliot.domain.instant import SECOND, Duration, Instant, spell
from foliot.domain.overlap import judged
from foliot.domain.pauses import paused_words
from foliot.domain.policy import BlocksUntil, CatchUp, Overlap
from foliot.domain.rule import Rule
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import NewTick, Schedule, TickDecision, TickFacts
from foliot.domain.state import Reason
from foliot.domain.verdicts import fire, hold_undecided, skip, too_late_alone
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
    busy: dict[tuple[str, str | None], str] = {}
    left = COUNTED_PER_BATCH
    for fact in facts:
        schedule = fact.schedule
        series = ("" if schedule is None else schedule.id, fact.member)
        if schedule is not None and fact.occupied_by is None and series in busy:
            fact = fact._replace(occupied_by=busy[series])
        decision = decide_tick(fact, now, most_counted=max(LEAST_COUNTED, min(MOST_COUNTED, left)))
        left -= decision.span_count
        if schedule is not None and decision.instead is not None:
            busy[series] = tick_name(schedule.id, decision.instead.nominal)
        elif schedule is not None and decision.verdict == "fire":
            busy[series] = fact.id
        decisions.append(decision)
    return decisions


def decide_tick(facts: TickFacts, now: Instant, *, most_counted: int = MOST_COUNTED) -> TickDecision:
    """Decides about one due run. Never raises: one bad schedule never stops the others.

    1. The template is gone: the run stands for itself.
    2. It was tried before (a retry, or handed back by a worker): its successor exists, overlap was judged.
    3. Somebody ordered it (by hand, a rerun, a backfill): it obeys overlap, and no tick follows from it.
    4. It was decided before, and has waited since, for its turn or for a slot: its successor exists, too.
    5. Its schedule has a fixed delay: no calendar, so no catch-up.
    6. It is a tick. Its rule cannot be read: it was promised, so it is judged alone, and the fault is told.
    7. Somebody asked that it shall not run: skipped, alone.
    8. Its schedule is paused: it is held. If it was, and nobody wants that made up for: skipped, with all of the pause.
    9. By its lateness it is live, or missed; if missed, the catch-up policy speaks.

    Whatever stays behind in time is too late in every one of these cases, once its `useful_until` has passed.
    """
    schedule = facts.schedule
    if schedule is None:
        return too_late_alone(facts) if too_late(facts.useful_until, now) else fire(facts, lane=facts.lane)
    decision = _decided(facts, schedule, now, most_counted)
    is_spread = facts.over is not None and facts.origin is Origin.SCHEDULED and schedule.policy.jitter > 0
    if decision.verdict != "fire" or not is_spread:
        return decision
    return replace(decision, spread_within=_room(facts, schedule))


def _room(facts: TickFacts, schedule: Schedule) -> Duration:
    """How far jitter may move the members of a tick: never to the next one."""
    try:
        following = _rule(schedule.rule).next(facts.nominal)
    except Exception:  # whatever a rule does wrong is told as its fault, and its members are not spread
        return 0
    jitter = schedule.policy.jitter
    return jitter if following is None else max(0, min(jitter, following - 1 - facts.nominal))


def _decided(facts: TickFacts, schedule: Schedule, now: Instant, most_counted: int) -> TickDecision:
    try:
        if facts.attempt > 0:
            return _again(facts, schedule, now)
        if facts.origin is not Origin.SCHEDULED:
            return _ordered(facts, schedule, now)
        if facts.decided:
            return _released(facts, schedule, now)
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
    in_bulk = facts.lane is Lane.BACKFILL
    if not too_late(facts.useful_until, now):
        go = fire(facts, lane=facts.lane)
        # What was replayed in bulk obeys overlap anew, unless others have to wait for its success in any case.
        return judged(facts, schedule, go) if in_bulk and schedule.policy.blocks_until is BlocksUntil.ENDED else go
    # The end of a fixed-delay run makes the next one, also this end; but for one whose next was made when it died.
    fixed = schedule.delay is not None and facts.origin is Origin.SCHEDULED and not in_bulk
    return too_late_alone(facts, _after_delay(facts, schedule, schedule.delay or 0, now) if fixed else None)


def _released(facts: TickFacts, schedule: Schedule, now: Instant) -> TickDecision:
    if facts.has_begun and not schedule.paused(now):
        return fire(facts, lane=facts.lane)  # it goes through with it: each of its members is judged by itself
    if too_late(facts.useful_until, now):
        return _again(facts, schedule, now)
    if schedule.paused(now) and not facts.forced:
        return _hold_paused(facts, schedule)
    return awaited(facts, schedule, judged(facts, schedule, fire(facts, lane=facts.lane)), now)


def _ordered(facts: TickFacts, schedule: Schedule, now: Instant) -> TickDecision:
    if too_late(facts.useful_until, now):
        return too_late_alone(facts)
    return judged(facts, schedule, fire(facts, lane=facts.lane))


def _delayed(facts: TickFacts, schedule: Schedule, delay: Duration, now: Instant) -> TickDecision:
    """A run of a fixed delay makes its successor when it ends. One that is skipped ends here, so it does so here."""
    successor = _after_delay(facts, schedule, delay, now)
    if schedule.paused(now) and not facts.forced:
        return _hold_paused(facts, schedule)
    if schedule.skip_through is not None and facts.nominal <= schedule.skip_through and not facts.forced:
        return skip(facts, Reason.PAUSED, _paused(schedule), successor, facts.nominal)
    if too_late(facts.useful_until, now):
        return too_late_alone(facts, successor)
    go = fire(facts, through=facts.nominal)
    decision = awaited(facts, schedule, judged(facts, schedule, go), now)
    return replace(decision, successor=successor) if decision.verdict == "skip" else decision


def _after_delay(facts: TickFacts, schedule: Schedule, delay: Duration, now: Instant) -> NewTick:
    nominal = now + max(delay, SHORTEST_REPEAT)
    useful = schedule.policy.useful_until
    return NewTick(nominal, facts.nominal, nominal, None if useful is None else nominal + useful)


def _faulty(facts: TickFacts, schedule: Schedule, now: Instant, problem: Exception) -> TickDecision:
    """The tick itself was promised while the rule could be read; what its other policies say still holds."""
    fault = f"{type(problem).__name__}: {problem}"
    if facts.withdrawn is not None:
        return skip(facts, Reason.OPERATOR, facts.withdrawn, through=facts.nominal, fault=fault)
    if schedule.paused(now):
        return skip(facts, Reason.PAUSED, _paused(schedule), through=facts.nominal, fault=fault)
    if too_late(facts.useful_until, now):
        return skip(facts, Reason.TOO_LATE, TOO_LATE, through=facts.nominal, fault=fault)
    return judged(facts, schedule, fire(facts, through=facts.nominal, fault=fault))


# ------------------------------------------------------------------------------------------------------ ticks of a rule


def _tick(tick: Occurrence) -> TickDecision:
    if tick.facts.withdrawn is not None:
        return skip(tick.facts, Reason.OPERATOR, tick.facts.withdrawn, tick.next(), tick.nominal)
    if tick.schedule.paused(tick.now) and not tick.facts.forced:
        return _hold_paused(tick.facts, tick.schedule)
    through = tick.schedule.skip_through
    if through is not None and tick.due_at <= through and not tick.facts.forced:
        return _skip_through(tick, tick.due_through(through), Reason.PAUSED, _paused(tick.schedule))
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
    go = judged(tick.facts, tick.schedule, fire(tick.facts, successor=tick.next(), through=tick.nominal))
    return awaited(tick.facts, tick.schedule, go, tick.now)


def _catch_up_once(tick: Occurrence) -> TickDecision:
    """All that is due becomes one run: that of the latest tick, which stands for the whole span.

    Overlap is not a reason to drop what is caught up, so it waits; no successor is made, because the schedule's one
    pending row is the one that waits. Where runs may overlap there is nothing to wait for; and of a tick over many
    members each waits for its own turn.
    """
    due = tick.due_through(tick.now)
    alone = due.latest == tick.nominal
    useful_until = tick.facts.useful_until if alone else tick.useful_until(due.latest)
    if too_late(useful_until, tick.now):
        return _skip_through(tick, due, Reason.TOO_LATE, TOO_LATE)
    if tick.is_blocked and tick.policy.overlap is not Overlap.ALLOW and tick.facts.over is None:
        return hold_undecided(tick.facts)
    successor = tick.following(due.following, due.latest)
    if alone:
        go = fire(tick.facts, successor=successor, through=due.latest, lane=Lane.CATCH_UP)
        return awaited(tick.facts, tick.schedule, go, tick.now)
    is_open = tick.now < due.latest + tick.policy.cutoff
    if is_open and lacks(tick.facts, tick.schedule, due.latest):
        return hold_for_upstream(tick.facts, tick.schedule, tick.now)
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
    if tick.is_blocked:
        return hold_undecided(tick.facts)
    go = fire(tick.facts, successor=tick.next(), through=tick.nominal, lane=Lane.CATCH_UP)
    return awaited(tick.facts, tick.schedule, go, tick.now)


def _missed(tick: Occurrence) -> TickDecision:
    """Ticks that are not caught up share one row; the first one that is not among them comes next, due or not.

    Which those are is `misfire` solved for the due time: later than `missed_after` if nothing is caught up, otherwise
    older than the window (and than `missed_after`: a tick that is on time is never skipped by a short window).
    """
    limit = tick.policy.missed_after
    detail = f"more than {spell(limit)} late, and the catch-up policy skips missed ticks"
    if tick.policy.catch_up is not CatchUp.SKIP:
        limit = max(limit, tick.policy.catch_up_window or 0)
        detail = f"older than the catch-up window of {spell(tick.policy.catch_up_window or 0)}"
    return _skip_through(tick, tick.due_through(tick.now - limit - 1), Reason.MISFIRE, detail)


def _too_late(tick: Occurrence) -> TickDecision:
    """The tick, and those after it that are too late by the same policy, in one row."""
    useful = tick.policy.useful_until
    ended = tick.through(tick.nominal if useful is None else tick.now - useful - 1)
    return _skip_through(tick, ended, Reason.TOO_LATE, TOO_LATE)


# --------------------------------------------------------------------------------------------------------- many at once


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


def _hold_paused(facts: TickFacts, schedule: Schedule) -> TickDecision:
    """Nothing is evaluated: what becomes of the ticks of a pause is decided when it ends."""
    detail = paused_words(schedule.paused_by, schedule.paused_until, schedule.paused_note)
    return TickDecision(facts.number, "hold", facts.lane, Reason.PAUSED, detail, until=schedule.paused_until)


def _paused(schedule: Schedule) -> str:
    return schedule.paused_note or "the schedule was paused"


def _counted(detail: str, ticks: Overdue) -> str:
    return f"{detail}; at least {ticks.count} ticks" if ticks.capped else detail
