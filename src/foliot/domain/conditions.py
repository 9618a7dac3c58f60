"""Conditions: what its times say of a run, beside its state. Shown, counted, alerted on, never stored. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from foliot.domain.instant import Duration, Instant, parse_rfc3339
from foliot.domain.policy import Policy, choices_from_json, policy_from_json
from foliot.domain.run import RunView
from foliot.domain.state import State
from foliot.errors import InvalidInput

if TYPE_CHECKING:
    from foliot.domain.store.values import JobCard


class Condition(StrEnum):
    """In the order in which they are told."""

    LATE = "late"
    """It began, or still waits, longer after its time than its policy calls missed."""
    STUCK = "stuck"
    """Alive, and silent about its progress for longer than its policy allows."""
    HEARTBEAT_STALE = "heartbeat-stale"
    """Its worker was not heard of for half of its lease: two beats or so were missed."""
    OVERLAPPING = "overlapping"
    """Another run of the same schedule, and member, is at work beside it."""


WAITING = frozenset({State.SCHEDULED, State.RETRYING, State.HELD, State.READY})
"""Nobody is at work on it, and somebody should be once it is due."""


def policy_of(view: RunView, card: JobCard | None) -> Policy:
    """The settings that a run goes by; what cannot be read has the ones below it, as in the rest of the house."""
    policy = job_policy(card)
    try:
        return policy.merged(choices_from_json(view.options))
    except InvalidInput:
        return policy


def job_policy(card: JobCard | None) -> Policy:
    try:
        return policy_from_json(None if card is None else card.policy)
    except InvalidInput:
        return Policy()


def conditions(view: RunView, policy: Policy, now: Instant, beat_at: Instant | None = None) -> list[Condition]:
    """What holds of one run by itself. `beat_at`: when its worker was last heard of; None when that is not known."""
    found = []
    if lateness(view, now) > policy.missed_after:
        found.append(Condition.LATE)
    if is_stuck(view, policy, now):
        found.append(Condition.STUCK)
    if view.state is State.RUNNING and beat_at is not None and now - beat_at > policy.lease // 2:
        found.append(Condition.HEARTBEAT_STALE)
    return found


def lateness(view: RunView, now: Instant) -> Duration:
    """How long after its time a run began, or how long it has waited since; zero for one that is over."""
    if view.state in WAITING:
        return max(now - view.fire_at, 0)
    return view.late_by or 0 if view.state is State.RUNNING else 0


Series = tuple[str | None, str | None]


def series_of(view: RunView) -> Series:
    return view.schedule, view.member


def crowded(views: Iterable[RunView]) -> frozenset[Series]:
    """The schedules, and members, that have more than one run at work among these."""
    busy = Counter(series_of(view) for view in views if view.state is State.RUNNING and view.schedule is not None)
    return frozenset(series for series, count in busy.items() if count > 1)


def overlapping(views: Iterable[RunView]) -> set[int]:
    """The numbers of those runs beside which another one of the same schedule, and member, is at work."""
    listed = list(views)
    busy = crowded(listed)
    return {view.number for view in listed if view.state is State.RUNNING and series_of(view) in busy}


def all_conditions(
    view: RunView,
    cards: Mapping[str, JobCard],
    beats: Mapping[int, Instant],
    busy: frozenset[Series],
    now: Instant,
) -> tuple[Condition, ...]:
    """What holds of one run, also beside others: `busy` are the series that have several at work."""
    beat = None if view.worker is None else beats.get(view.worker)
    found = conditions(view, policy_of(view, cards.get(view.job)), now, beat)
    if view.state is State.RUNNING and series_of(view) in busy:
        found.append(Condition.OVERLAPPING)
    return tuple(found)


def silent_for(view: RunView, now: Instant) -> Duration | None:
    """How long a running attempt has said nothing of its progress; None when it has not begun."""
    if view.state is not State.RUNNING or view.started_at is None:
        return None
    return max(now - max(view.started_at, said_at(view.progress) or 0), 0)


def is_stuck(view: RunView, policy: Policy, now: Instant) -> bool:
    silence = silent_for(view, now)
    return policy.stall_after is not None and silence is not None and silence > policy.stall_after


def said_at(progress: bytes | None) -> Instant | None:
    """When an attempt last said how far it is."""
    try:
        at = json.loads(progress or b"null")["at"]
        return parse_rfc3339(at) if isinstance(at, str) else int(at)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
