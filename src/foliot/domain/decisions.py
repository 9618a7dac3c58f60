"""The decisions of Foliot, pure: everything that they depend on is an argument, also `now` and chance."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from foliot.domain.instant import LAST, Duration, Instant
from foliot.domain.policy import CatchUp, OnLost, Policy
from foliot.domain.state import Event, Outcome, Reason


class Next(NamedTuple):
    """What happens to a run after an attempt that did not succeed."""

    event: Event
    retry_at: Instant | None = None
    reason: Reason | None = None


def retry_delay(policy: Policy, spent: int, chance: float) -> Duration:
    """Exponential backoff with full jitter: anywhere between zero and a ceiling that doubles, up to the cap.

    `spent` counts the failed attempt. The whole range is used, because a crowd that fails together must not come
    back together; `chance` in [0, 1) picks the place.
    """
    # 2 ** 63 microseconds is longer than any cap: a larger exponent would only build a huge integer.
    ceiling = min(policy.backoff_cap, policy.backoff << min(max(spent - 1, 0), 63))
    return int(ceiling * chance)


def after_failure(
    policy: Policy,
    outcome: Outcome,
    *,
    spent: int,
    due_at: Instant,
    now: Instant,
    chance: float,
    not_before: Instant | None = None,
) -> Next:
    """What follows an attempt that failed, timed out, stalled or was lost; `spent` counts it already.

    1. A permanent error is not tried again.
    2. Neither is a run that has spent its attempts, or whose next try would come after `give_up_after`.
    3. Otherwise it is tried again: after the backoff, and never before what the destination asked for.
    """
    if outcome is Outcome.PERMANENT:
        return Next(Event.GAVE_UP, reason=Reason.PERMANENT)
    if spent >= policy.attempts:
        return Next(Event.EXHAUSTED, reason=Reason.ATTEMPTS)
    retry_at = min(max(now + retry_delay(policy, spent, chance), not_before or 0), LAST)
    if policy.give_up_after is not None and retry_at > due_at + policy.give_up_after:
        return Next(Event.EXHAUSTED, reason=Reason.TOO_OLD)
    return Next(Event.RETRY_GRANTED, retry_at=retry_at)


def after_loss(policy: Policy, *, spent: int, due_at: Instant, now: Instant, chance: float) -> Next:
    """What follows an attempt whose worker vanished, for a job that declares no effects (`untracked`)."""
    if policy.on_lost is OnLost.ASK:
        return Next(Event.MAYBE_FOUND, reason=Reason.LOST)
    return after_failure(policy, Outcome.LOST, spent=spent, due_at=due_at, now=now, chance=chance)


def is_lost(*, beat_at: Instant, watched_since: Instant, lease: Duration, gone: bool, now: Instant) -> bool:
    """Whether a silent attempt's lease has ended.

    A process that is known to have ended renews nothing any more. Otherwise silence counts only while somebody
    listened: after an absence of the watch every lease gets one full period first. A beat from the future was made by
    a clock that has been set back since, and says nothing.
    """
    heard_at = max(beat_at, watched_since) if beat_at <= now else watched_since
    return gone or heard_at + lease < now


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


def too_late(useful_until: Instant | None, now: Instant) -> bool:
    """Whether starting now would help nobody any more."""
    return useful_until is not None and now > useful_until


class Recovery(StrEnum):
    """How safe it is to try a run again, from what is known of its last attempt."""

    CLEAN = "clean"
    RESUMABLE = "resumable"
    REWRITABLE = "rewritable"
    UNTRACKED = "untracked"
    MAYBE = "maybe"


def recovery_class(
    *, begun: bool, tracked: bool, effects_open: int, effects_done: int, checkpoint: bool, rewritable: bool
) -> Recovery:
    """The recovery class of a run whose attempt did not succeed; the most dangerous truth wins.

    An effect that began and has no recorded end may have escaped, whatever else is known. A job that declares no
    effects is untracked once its handler has begun: the ledger is blind there, and says so.
    """
    if effects_open:
        return Recovery.MAYBE
    if not begun:
        return Recovery.CLEAN
    if checkpoint:
        return Recovery.RESUMABLE
    if rewritable:
        return Recovery.REWRITABLE
    if not tracked:
        return Recovery.UNTRACKED
    return Recovery.RESUMABLE if effects_done else Recovery.CLEAN
