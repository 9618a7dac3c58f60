"""The decisions of Foliot, pure: everything that they depend on is an argument, also `now` and chance."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from foliot.domain.breaker import Contact
from foliot.domain.instant import LAST, MILLISECOND, SECOND, Duration, Instant
from foliot.domain.ledger import Facts, Stage, Traits, stage_of
from foliot.domain.policy import CatchUp, OnLost, Policy
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.suspicion import APART_FROM, Suspicion, is_tried_apart
from foliot.errors import StoreFull

NOTHING_KNOWN = Facts()
NO_TRAITS = Traits()
NO_SUSPICION = Suspicion()

FIRST_PAUSE: Duration = 50 * MILLISECOND
LONGEST_PAUSE: Duration = 5 * SECOND
LONGEST_PAUSE_WHILE_FULL: Duration = SECOND // 2
"""A write that fails for lack of space costs the disk nothing, and an operator who made space waits for the next one.
Half a second, so that a scheduler and a worker which pause one after the other go on within a second."""

_WHY_AGAIN = {
    Outcome.FAILED: Reason.FAILED,
    Outcome.TIMED_OUT: Reason.TIMED_OUT,
    Outcome.STALLED: Reason.STALLED,
    Outcome.LOST: Reason.LOST,
}


class Next(NamedTuple):
    """What happens to a run after an attempt that did not succeed."""

    event: Event
    retry_at: Instant | None = None
    reason: Reason | None = None
    charged: bool = True
    """Whether the attempt counts towards those that the run may spend."""
    deaths: int | None = None
    """How many processes died that executed this run alone; None: it is under no suspicion."""


def retry_delay(policy: Policy, spent: int, chance: float) -> Duration:
    """Exponential backoff with full jitter: anywhere between zero and a ceiling that doubles, up to the cap.

    `spent` counts the failed attempt. The whole range is used, because a crowd that fails together must not come
    back together; `chance` in [0, 1) picks the place.
    """
    # 2 ** 63 microseconds is longer than any cap: a larger exponent would only build a huge integer.
    ceiling = min(policy.backoff_cap, policy.backoff << min(max(spent - 1, 0), 63))
    return int(ceiling * chance)


def store_pause(failures: int, error: Exception) -> Duration:
    """How long a scheduler or a worker waits before it asks the store again: twice as long after each failure in a row.
    `failures` counts this one."""
    longest = LONGEST_PAUSE_WHILE_FULL if isinstance(error, StoreFull) else LONGEST_PAUSE
    return min(FIRST_PAUSE << min(max(failures - 1, 0), 30), longest)


def after_failure(
    policy: Policy,
    outcome: Outcome,
    *,
    spent: int,
    due_at: Instant,
    now: Instant,
    chance: float,
    not_before: Instant | None = None,
    facts: Facts = NOTHING_KNOWN,
) -> Next:
    """What follows an attempt that failed, timed out, stalled or was lost; `spent` counts it already.

    1. A permanent error is not tried again.
    2. Neither is a run that has spent the attempts of its stage, or whose next try would come after `give_up_after`.
    3. Otherwise it is tried again: after the backoff, and never before what the destination asked for.

    What the ledger says of effects that may have escaped comes on top: see `unless_in_doubt`.
    """
    if outcome is Outcome.PERMANENT:
        return Next(Event.GAVE_UP, reason=Reason.PERMANENT)
    if spent >= attempts_allowed(policy, stage_of(facts)):
        return Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS)
    retry_at = min(max(now + retry_delay(policy, spent, chance), not_before or 0), LAST)
    if policy.give_up_after is not None and retry_at > due_at + policy.give_up_after:
        return Next(Event.EXHAUSTED, reason=Reason.TOO_OLD)
    reason = Reason.ASKED_TO_WAIT if not_before is not None else _WHY_AGAIN.get(outcome)
    return Next(Event.RETRY_GRANTED, retry_at=retry_at, reason=reason)


def attempts_allowed(policy: Policy, stage: Stage) -> int:
    """How many attempts a run may spend that failed at this stage."""
    allowed = {
        Stage.AFTER_EFFECT: policy.attempts_after_effect,
        Stage.INSIDE_EFFECT: policy.attempts_inside_effect,
    }.get(stage)
    return policy.attempts if allowed is None else allowed


def unless_in_doubt(verdict: Next, facts: Facts, traits: Traits) -> Next:
    """The verdict, unless an effect may have escaped: whatever else is known, that is not hidden.

    An effect that nothing can settle makes the run ambiguous at once. One that the next attempt can settle is left to
    it, but a run that will have no next attempt is ambiguous too. A job's check, where there is one, is asked first.
    """
    goes_on = verdict.event in (Event.RETRY_GRANTED, Event.GIVEN_BACK)
    if facts.maybe or (facts.open and not goes_on):
        event = Event.DOUBTED if traits.checked else Event.MAYBE_FOUND
        return Next(event, reason=Reason.EFFECT, charged=verdict.charged, deaths=verdict.deaths)
    return verdict


def contact(policy: Policy, outcome: Outcome) -> Contact | None:
    """What an attempt found out about its destination. A failure that is tried again counts against it; what was
    stopped, or was permanent, says nothing."""
    if policy.destination is None or policy.breaker_after is None:
        return None
    if outcome not in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.STALLED):
        return None
    answered = outcome is Outcome.SUCCEEDED
    return Contact(policy.destination, answered, policy.breaker_after, policy.breaker_probe, policy.backoff_cap)


def after_loss(
    policy: Policy,
    *,
    spent: int,
    due_at: Instant,
    now: Instant,
    chance: float,
    facts: Facts = NOTHING_KNOWN,
    traits: Traits = NO_TRAITS,
    outcome: Outcome = Outcome.LOST,
    suspicion: Suspicion = NO_SUSPICION,
    slots: int = 1,
    alone: bool = False,
) -> Next:
    """What follows an attempt that was lost; `spent` counts it already, as if it were charged. `suspicion`: what was
    known before. `slots`: those of its worker. `alone`: the attempt's own process died, and its worker lives.

    1. An effect that may have escaped decides before everything else.
    2. A job whose effects are in the ledger goes by that. One that declares nothing, and may not simply be repeated,
       goes by `on_lost`.
    3. An attempt whose worker was shutting down is interrupted: that costs nothing, and raises no suspicion. One whose
       cancellation was forced goes the same way; the request that is stored with the run then ends it.
    4. One that was ended with its worker's process, because it timed out or stalled, is charged like any such attempt.
    5. One that died alone is charged, and its death is counted; with `poison_after` of them it is poison.
    6. One that was lost with its worker may not be the cause. It is charged nothing and tried again at once, under the
       rule of suspicion. Only a loss in a process of its own is charged from the fourth loss in a row on: the worker
       may die of that process, too, and the run must not kill workers for ever.
    """
    known = traits.tracked or traits.repeatable
    if facts.maybe:
        return unless_in_doubt(Next(Event.MAYBE_FOUND), facts, traits)
    if not known and policy.on_lost is OnLost.ASK:
        return Next(Event.DOUBTED if traits.checked else Event.MAYBE_FOUND, reason=Reason.LOST)
    if outcome in (Outcome.INTERRUPTED, Outcome.CANCELLED):
        return unless_in_doubt(Next(Event.GIVEN_BACK, charged=False, deaths=suspicion.deaths), facts, traits)
    after = suspicion.lost(alone=alone, isolated=traits.isolated)
    apart = traits.isolated or is_tried_apart(slots, suspicion.losses)
    if outcome is not Outcome.LOST:
        verdict = after_failure(policy, outcome, spent=spent, due_at=due_at, now=now, chance=chance, facts=facts)
    elif alone and (after.deaths or 0) >= policy.poison_after:
        verdict = Next(Event.GAVE_UP, reason=Reason.POISON, deaths=after.deaths)
    elif alone or (apart and suspicion.losses >= APART_FROM):
        verdict = after_failure(policy, outcome, spent=spent, due_at=due_at, now=now, chance=chance, facts=facts)
        verdict = verdict._replace(deaths=after.deaths)
    else:
        verdict = Next(Event.RETRY_GRANTED, retry_at=now, reason=Reason.LOST, charged=False, deaths=after.deaths)
    return unless_in_doubt(verdict, facts, traits)


def after_check(
    policy: Policy, *, spent: int, in_doubt: bool, now: Instant, chance: float, refused: bool = False
) -> Next:
    """What follows a check that said no (`refused`), or that broke and so said nothing; `spent` counts it already.

    A check that broke is made again while it has tries left: it changes nothing. In doubt, only a yes settles anything.
    """
    if not refused and spent < policy.attempts:
        reason = Reason.CHECK_FAILED
        return Next(Event.RETRY_GRANTED, retry_at=min(now + retry_delay(policy, spent, chance), LAST), reason=reason)
    reason = Reason.CHECK if refused else Reason.CHECK_FAILED
    return Next(Event.MAYBE_FOUND if in_doubt else Event.CHECK_REFUSED, reason=reason)


def is_lost(*, beat_at: Instant, watched_since: Instant, lease: Duration, gone: bool, now: Instant) -> bool:
    """Whether a silent attempt's lease has ended.

    A process that is known to have ended renews nothing any more. Otherwise silence counts only while somebody
    listened: after an absence of the watch every lease gets one full period first. A beat from the future was made by
    a clock that has been set back since, and says nothing.
    """
    heard_at = max(beat_at, watched_since) if beat_at <= now else watched_since
    return gone or heard_at + lease < now


def after_lost_check(
    policy: Policy,
    *,
    in_doubt: bool,
    now: Instant,
    outcome: Outcome = Outcome.LOST,
    suspicion: Suspicion = NO_SUSPICION,
    slots: int = 1,
) -> Next:
    """What follows a check whose worker vanished: it is made again, under the rule of suspicion. One whose worker was
    shutting down is made again, and raises no suspicion.

    A check has no process of its own. Where an attempt would have one, the check is the only suspected run of its
    worker, and that worker's death counts.
    """
    if outcome is Outcome.INTERRUPTED:
        return Next(Event.GIVEN_BACK, charged=False, deaths=suspicion.deaths)
    after = suspicion.lost(alone=is_tried_apart(slots, suspicion.losses), isolated=False)
    if (after.deaths or 0) >= policy.poison_after:
        return Next(Event.MAYBE_FOUND if in_doubt else Event.CHECK_REFUSED, reason=Reason.POISON)
    return Next(Event.RETRY_GRANTED, retry_at=now, reason=Reason.LOST, charged=False, deaths=after.deaths)


class Misfire(StrEnum):
    """What a due tick is, seen from its lateness and its schedule's catch-up policy."""

    ON_TIME = "on_time"
    RUN_LATEST = "run_latest"
    RUN_EACH = "run_each"
    SKIP = "skip"


def misfire(policy: Policy, due_at: Instant, now: Instant) -> Misfire:
    """A tick that is later than `missed_after` was missed; then the catch-up policy speaks."""
    if now - due_at <= policy.missed_after:
        return Misfire.ON_TIME
    if policy.catch_up is CatchUp.SKIP:
        return Misfire.SKIP
    if policy.catch_up_window is not None and now - due_at > policy.catch_up_window:
        return Misfire.SKIP
    return Misfire.RUN_LATEST if policy.catch_up is CatchUp.ONCE else Misfire.RUN_EACH


TOO_LATE = "its useful time has passed"


def too_late(useful_until: Instant | None, now: Instant) -> bool:
    """Whether starting now would help nobody any more."""
    return useful_until is not None and now > useful_until
