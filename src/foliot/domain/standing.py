"""How a schedule stands: what its latest runs say about it. Values, and the reckoning. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from foliot.domain.conditions import WAITING, is_stuck
from foliot.domain.identity import run_id
from foliot.domain.instant import Duration, Instant
from foliot.domain.listing import MOST, lowered
from foliot.domain.run import WISHES, Lane, Origin, RunView
from foliot.domain.schedule import Edit, Schedule, ScheduleView
from foliot.domain.state import PARKED, Reason, State
from foliot.errors import InvalidInput

STRIP = 30
"""Ticks that are looked back at."""
IN_A_ROW = 3
"""So many failures one after another are a person's business."""
LOOKED_AT = 250
"""Schedules that are looked at for one page, where only their runs know whether they are wanted."""


class Mark(StrEnum):
    """What became of one tick, in a word."""

    KEPT = "kept"
    LATE = "late"
    """Kept, and begun later than its schedule calls missed."""
    RETRIED = "retried"
    """Kept, and not by its first attempt."""
    PARTIAL = "partial"
    """Over, and not done for all members."""
    SKIPPED = "skipped"
    """Not run on purpose: overlap, a pause, a person."""
    MISSED = "missed"
    """Not run, because nobody was there in time."""
    FAILED = "failed"
    """It waits for a person."""
    SETTLED = "settled"
    """It had failed, and a person answered for it."""


class EndedTick(NamedTuple):
    """What an ended run says of its schedule: a page of schedules is made of thousands, so that it is no whole view."""

    number: int
    name: str | None
    state: State
    origin: Origin
    nominal: Instant
    since: Instant | None
    attempt: int
    spent: int
    reason: str | None
    fired_at: Instant | None
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant
    span_count: int

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)


Told = RunView | EndedTick

_MISSED = frozenset({Reason.MISFIRE, Reason.TOO_LATE})
_OVERLAP = frozenset({Reason.OVERLAP, Reason.COALESCED, Reason.REPLACED})
USEFUL = frozenset({State.SUCCEEDED, State.VERIFIED})


def mark_of(view: Told, missed_after: Duration, jitter: Duration = 0) -> Mark | None:
    """None for a run that is not over. Lateness counts from the nominal time, whatever held it up since; a tick that
    jitter moved is not late for that."""
    if view.state in PARKED:
        return Mark.FAILED
    if view.state is State.RECONCILED:
        return Mark.SETTLED
    if view.state is State.SKIPPED:
        return Mark.MISSED if view.reason in _MISSED else Mark.SKIPPED
    if view.state is State.CANCELLED:
        return Mark.SKIPPED
    if view.state not in USEFUL:
        return None
    if view.reason == Reason.PARTIAL:
        return Mark.PARTIAL
    if tries(view) > 1:
        return Mark.RETRIED
    return Mark.LATE if (begun_after(view) or 0) > missed_after + jitter else Mark.KEPT


def tries(view: Told) -> int:
    """How many attempts it took that count. Of one that was verified, the last one was its check."""
    return max(view.attempt - 1, 1) if view.state is State.VERIFIED else view.spent


def begun_after(view: Told) -> Duration | None:
    """Returns how long after its nominal time a run began.

    None if it never began, and for backfills and reruns: their nominal times are in the past.
    """
    begun = view.started_at or view.claimed_at
    return None if begun is None or view.origin in WISHES else begun - view.nominal


class ScheduleOrder(StrEnum):
    NAME = "name"
    NEXT = "next"
    """By when each is due next; those that have nothing coming are left out."""


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules are wanted. Each field narrows; nothing said means all."""

    text: str | None = None
    """What stands in their names, jobs or owners; letters may be small or large."""
    job: str | None = None
    tenant: str | None = None
    paused: bool | None = None
    """Their creation or claims: by themselves, or by their job, queue or tenant."""
    needs_person: bool = False
    """Runs of theirs, or of their members, wait for a person, or they were set aside."""
    last: tuple[State, ...] = ()
    """How their last run stands."""
    order: ScheduleOrder = ScheduleOrder.NAME

    @property
    def needle(self) -> str | None:
        return None if self.text is None else lowered(self.text)


def checked_schedules(wanted: ScheduleFilter, limit: int) -> ScheduleFilter:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        raise InvalidInput(f"limit={limit!r:.40}: give 1 to {MOST:,} rows per page, and continue with its cursor")
    if wanted.text is not None and not 1 <= len(wanted.text) <= 500:
        raise InvalidInput(f"text= has {len(wanted.text):,} characters; give 1 to 500")
    return wanted


def schedule_cursor(order: ScheduleOrder, due: Instant, name: str) -> str:
    return name if order is ScheduleOrder.NAME else f"{due} {name}"


def read_schedule_cursor(order: ScheduleOrder, cursor: str | None) -> tuple[Instant, str]:
    """Behind which due time, and which name."""
    if cursor is None:
        return -(1 << 62), ""
    if order is ScheduleOrder.NAME:
        return 0, cursor
    due, _, name = cursor.partition(" ")
    if not due.removeprefix("-").isdigit() or len(due) > 19 or not name:
        raise InvalidInput(
            f"cursor={cursor!r:.60}: not a cursor of schedules by next due time; give the cursor of the previous page"
        )
    return int(due), name


class Failures(NamedTuple):
    """Runs that failed one after another, up to now."""

    size: int
    since: Instant
    """When the first of them was due."""


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """What is on record about one schedule. Of one over many members these are its ticks."""

    schedule: Schedule
    live: tuple[RunView, ...] = ()
    """Not over, and not waiting for a person; what a backfill still has waiting is only counted."""
    parked: tuple[RunView, ...] = ()
    """The latest that wait for a person, newest first."""
    recent: tuple[EndedTick, ...] = ()
    """The latest that ended, by their nominal times, newest first."""
    counts: Mapping[tuple[State, Lane], int] = field(default_factory=dict)
    """All that is not over, by state and lane."""
    useful_at: Instant | None = None
    """When its last useful run ended."""
    beats: Mapping[int, Instant] = field(default_factory=dict)
    """When the workers that are at it were last heard of."""
    edit: Edit | None = None
    """None for one that is as it was stated."""
    tenants: Mapping[str | None, int] = field(default_factory=dict)
    """By tenant, how many runs wait for a person, members' too. Only where one schedule is asked for."""
    failures: Failures | None = None
    """Counted by the store where more runs than these may have failed in a row."""
    backfills: int = 0
    """Ticks of backfills that are not over yet, and are still to be made into runs. Likewise."""


class SchedulePage(NamedTuple):
    schedules: list[ScheduleFacts]
    cursor: str | None
    complete: bool
    """False: the search was cut short before the page was full. There may be more from the cursor on."""


class Active(NamedTuple):
    """A run that is at work."""

    view: RunView
    age: Duration
    heard: Duration | None
    """How long ago its worker was last heard of; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one schedule stands. What is said of the past is said of the last thirty ticks or so."""

    facts: ScheduleFacts
    next: RunView | None
    last: Told | None
    """The latest that was decided upon: over, at work, or waiting for a person."""
    active: tuple[Active, ...]
    waiting: int
    """Due, and held or waiting for a worker."""
    waits_since: Instant | None
    retrying: int
    backlog: int
    """Runs of backfills that are not over, and ticks that are still to be made into some."""
    strip: tuple[Mark, ...]
    """Oldest first; a row that stands for many ticks counts for as many."""
    durations: tuple[Duration, ...]
    """How long useful runs took, oldest first."""
    queue_delay: Duration | None
    """From hand-off to a worker: the middle one."""
    lateness: Duration | None
    """Of the last one that began: how long after its nominal time."""
    worst: Duration | None
    ratio: float | None
    """How long a run takes, as a part of the time to the next tick."""
    retries: int
    overlaps: int
    """Ticks that were skipped, merged or replaced because of an earlier one, and runs beside one another now."""
    attempts: int
    useful: int
    partial: int
    """Ticks that were not done for all members."""
    emitted: int
    """Runs that were made, over or not."""
    completed: int
    failures: Failures | None
    """One after another, up to now; None: the last one did not fail."""
    needs: tuple[str, ...]
    """Why a person should look."""

    @property
    def schedule(self) -> Schedule:
        return self.facts.schedule

    @property
    def in_a_row(self) -> int:
        return 0 if self.failures is None else self.failures.size

    @property
    def useful_per_attempt(self) -> float | None:
        return self.useful / self.attempts if self.attempts else None

    @property
    def as_view(self) -> ScheduleView:
        return ScheduleView(
            schedule=self.schedule,
            next_id=None if self.next is None else self.next.id,
            next_nominal=None if self.next is None else self.next.nominal,
            next_fire_at=None if self.next is None else self.next.fire_at,
            last_success_at=self.facts.useful_at,
            last_run_id=None if self.last is None else self.last.id,
            last_run_state=None if self.last is None else str(self.last.state),
            active=len(self.active),
            edit=self.facts.edit,
        )


def standing(facts: ScheduleFacts, now: Instant) -> Standing:
    upcoming = next_tick(facts)
    told: list[Told] = [view for view in (*facts.live, *facts.parked) if view is not upcoming]
    decided = sorted([*told, *facts.recent], key=lambda view: (view.nominal, view.number), reverse=True)
    active = tuple(_active(view, facts, now) for view in facts.live if view.state in _AT_WORK)
    waiting = [view for view in facts.live if _waits(view, now) and view is not upcoming]
    waiting += [upcoming] if upcoming is not None and _waits(upcoming, now) else []
    strip = _strip(facts, decided)
    useful = [view for view in facts.recent if view.state in USEFUL]
    took = [length for view in reversed(useful) if (length := _took(view)) is not None]
    began = [late for view in decided if view.state in _BEGUN and (late := begun_after(view)) is not None]
    tried = [tries(view) for view in decided]
    delays = [view.claimed_at - view.fired_at for view in useful if view.claimed_at and view.fired_at]
    failures = _in_a_row(decided)
    if facts.failures is not None and failures:
        failures = facts.failures
    return Standing(
        facts=facts,
        next=upcoming,
        last=decided[0] if decided else None,
        active=active,
        waiting=len(waiting),
        waits_since=min((view.fire_at for view in waiting), default=None),
        retrying=_counted(facts, State.RETRYING),
        backlog=facts.backfills
        + sum(count for (state, lane), count in facts.counts.items() if lane is Lane.BACKFILL and state not in PARKED),
        strip=strip,
        durations=tuple(took),
        queue_delay=None if not delays else int(median(delays)),
        lateness=max(began[0], 0) if began else None,
        worst=max([*began, 0]) if began else None,
        ratio=_ratio(took, useful),
        retries=sum([count - 1 for count in tried if count > 1]),
        overlaps=sum(view.span_count for view in facts.recent if view.reason in _OVERLAP) + max(len(active) - 1, 0),
        attempts=sum(tried),
        useful=sum(view.reason != Reason.PARTIAL or view.state is State.VERIFIED for view in useful),
        partial=sum(view.reason == Reason.PARTIAL for view in useful),
        emitted=sum([view.span_count for view in decided]),
        completed=sum([view.span_count for view in facts.recent]),
        failures=failures,
        needs=_needs(facts, 0 if failures is None else failures.size, now),
    )


_AT_WORK = frozenset({State.RUNNING, State.VERIFYING})
_BEGUN = USEFUL | _AT_WORK


def next_tick(facts: ScheduleFacts) -> RunView | None:
    """The run that the rule made last, while it waits: ticks before it that wait for their turn were decided upon."""
    waiting = [
        view
        for view in facts.live
        if view.state in (State.SCHEDULED, State.HELD) and view.origin is Origin.SCHEDULED and view.fired_at is None
    ]
    return max((view for view in waiting if not view.attempt), key=lambda view: view.nominal, default=None)


def _waits(view: RunView, now: Instant) -> bool:
    return view.state in WAITING and view.state is not State.RETRYING and view.fire_at <= now


def _active(view: RunView, facts: ScheduleFacts, now: Instant) -> Active:
    began = view.started_at or view.claimed_at or view.fired_at or view.fire_at
    beat = None if view.worker is None else facts.beats.get(view.worker)
    return Active(view, max(now - began, 0), None if beat is None else max(now - beat, 0))


def _strip(facts: ScheduleFacts, decided: Sequence[Told]) -> tuple[Mark, ...]:
    policy = facts.schedule.policy
    marks: list[Mark] = []
    for view in decided:
        mark = mark_of(view, policy.missed_after, policy.jitter or 0)
        if mark is not None and view.origin is Origin.SCHEDULED:
            marks += [mark] * min(view.span_count, STRIP)
        if len(marks) >= STRIP:
            break
    return tuple(reversed(marks[:STRIP]))


def _in_a_row(decided: Sequence[Told]) -> Failures | None:
    """What was skipped neither failed nor succeeded; what is at work may still do either."""
    due: list[Instant] = []
    for view in decided:
        if isinstance(view, RunView) and view.state in PARKED:
            due.append(view.fire_at)
        elif view.state in USEFUL or view.state is State.RECONCILED:
            break
    return Failures(len(due), min(due)) if due else None


def _took(view: EndedTick) -> Duration | None:
    if view.started_at is None:
        return None
    return max(view.finished_at - view.started_at, 0)


def _ratio(took: Sequence[Duration], useful: Sequence[EndedTick]) -> float | None:
    intervals = [view.nominal - view.since for view in useful if view.since is not None and view.nominal > view.since]
    return median(took) / median(intervals) if took and intervals else None


def _counted(facts: ScheduleFacts, state: State) -> int:
    return sum(count for (found, _), count in facts.counts.items() if found is state)


def _needs(facts: ScheduleFacts, in_a_row: int, now: Instant) -> tuple[str, ...]:
    found = [str(state) for state in sorted(PARKED, reverse=True) if _counted(facts, state)]
    if any(is_stuck(view, facts.schedule.policy, now) for view in facts.live):
        found.append("stuck")
    if in_a_row >= IN_A_ROW:
        found.append("in_a_row")
    if facts.schedule.fault is not None:
        found.append("set_aside")
    return tuple(found)
