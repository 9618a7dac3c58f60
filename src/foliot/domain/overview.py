"""How everything stands, at a glance: how promises were kept, what waits, who is there. Values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foliot.domain.instant import MINUTE, Instant
from foliot.domain.ledger import Facts
from foliot.domain.run import Lane, RunView
from foliot.domain.state import State


class Tally(NamedTuple):
    """How ended runs kept their promises. Only what had a time to keep counts: ticks, members' runs, delayed runs; what
    a person, a backfill or a rerun made does not. A tick over many members is counted as its members are."""

    on_time: int = 0
    late: int = 0
    """Kept, and first begun more than a minute after its time."""
    missed: int = 0
    """Not run, because nobody was there in time."""
    skipped: int = 0
    """Not run on purpose."""
    cancelled: int = 0
    settled: int = 0
    """A person answered for it."""
    failed: int = 0
    """Waits for a person now, and its last attempt ended in this time. One that is tried again, and succeeds, has not
    failed; nor was it late for that."""

    @property
    def kept(self) -> int:
        return self.on_time + self.late

    @property
    def promised(self) -> int:
        return self.kept + self.missed + self.failed


def added(tallies: Iterable[Tally]) -> Tally:
    return Tally(*map(sum, zip(*tallies, Tally(), strict=True)))


def minute_of(when: Instant) -> int:
    return when // MINUTE


class LaneBacklog(NamedTuple):
    """What was handed off in one lane, and waits for a worker."""

    waiting: int
    since: Instant | None
    """When the first of it was handed off."""


class Holding(NamedTuple):
    """A shard, or a duty (below zero), that an instance holds."""

    shard: int
    owner: int
    until: Instant


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the store says at one moment."""

    now: Instant
    hour: Tally
    day: Tally
    counted_at: Instant | None
    """The last minute in which an ending was counted; None: nothing was counted yet."""
    running: int
    retrying: int
    held: int
    lanes: Mapping[Lane, LaneBacklog] = field(default_factory=dict)
    overdue: int = 0
    """Due, and not handed off yet; no more than are looked at."""
    overdue_since: Instant | None = None
    parked: Mapping[State, int] = field(default_factory=dict)
    early: int = 0
    """Starts before their time: must be 0."""
    coming: Mapping[int, int] = field(default_factory=dict)
    """By minute from now, how many fall due; no more than are looked at."""
    last_tick: Instant | None = None
    """The latest nominal time that any schedule has decided upon."""
    holdings: tuple[Holding, ...] = ()
    at_work: Mapping[int, int] = field(default_factory=dict)
    """By worker, how many runs it has."""

    @property
    def waiting(self) -> int:
        return sum(lane.waiting for lane in self.lanes.values())

    @property
    def oldest(self) -> Instant | None:
        """Since when the first run that is due has waited for a worker."""
        return min((lane.since for lane in self.lanes.values() if lane.since is not None), default=None)


class ParkedGroup(NamedTuple):
    """Runs that wait for a person: of one schedule and member, or of one job, in one state, for one reason."""

    state: State
    schedule: str | None
    member: str | None
    job: str | None
    """Only of runs without a schedule."""
    tenant: str | None
    reason: str | None
    size: int
    first: int
    """The number of the oldest run."""
    newest: int


class ParkedRun(NamedTuple):
    """A run that waits for a person, or runs, with what advice depends on; its effects are those without an end."""

    view: RunView
    facts: Facts
    begun: bool
    """A handler may have done something."""
    parked_at: Instant
    """When its last attempt ended; when it was due, where there was none."""
