"""Which lane a due run is handed off in: one rule for promises, ticks, retries and checks. Pure.

A scheduler sorts the due runs of its shards by their due times:

- *Backlog*: due more than `LATE` ago, or more than `HANDOVER` before the scheduler took the shard.
- *Burst*: more than `BURST` live runs are due at the scheduler and not handed off. All of these are the burst. A run
  that falls due later is not part of it.
- *Live*: all others.

Backlog and bursts are handed off in the lane catch-up. Workers claim that lane after the lane live, and leave a share
of their slots free of it. So a later live run waits for neither of them. Only a run of the lane live changes its lane;
a run of the lane backfill keeps it.

The limits of the lane catch-up (rate, concurrency) are for the work of an outage: the backlog obeys them. A burst is
work on time, so it obeys the limits of the lane that it would have had.
"""

from __future__ import annotations

from enum import Enum

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.run import LATE, Lane

HANDOVER: Duration = 2 * SECOND
"""Longer than an ordinary change of schedulers takes: a graceful restart, or a takeover on the same host. Runs that
were due within this time before it stay live."""

BURST = 10_000
"""The most live runs that may be due at one scheduler and wait to be handed off. Thousands of schedules with a tick at
the same second are ordinary live work, and stay below this."""


class DueKind(Enum):
    """What a batch of due runs is. A batch holds runs of one kind."""

    LIVE = "live"
    BURST = "burst"
    BACKLOG = "backlog"


def backlog_before(now: Instant, taken_at: Instant) -> Instant:
    """The due time before which runs of a shard are backlog; `taken_at` is when its scheduler took it. A clock that was
    set back since then says nothing about the takeover."""
    return max(now - LATE, taken_at - HANDOVER) if taken_at <= now else now - LATE


def limited_before(now: Instant, kind: DueKind) -> Instant:
    """The due time before which a run of the lane live obeys the limits of the lane catch-up, and rides it."""
    return now - live_until(DueKind.LIVE if kind is DueKind.BURST else kind)


def lane_of(limited: Lane, kind: DueKind) -> Lane:
    """The lane that a due run is handed off in; `limited` is the lane whose limits it obeys."""
    return Lane.CATCH_UP if limited is Lane.LIVE and kind is DueKind.BURST else limited


def live_until(kind: DueKind) -> Duration:
    """How late a run may be and still be handed off in the lane live. Of the other kinds no run may, also when it is
    handed off a little before its time."""
    return LATE if kind is DueKind.LIVE else -MINUTE
