"""Dead letters, and what becomes of them when many are replayed at once. Values, and one decision. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from foliot.domain.decisions import too_late
from foliot.domain.identity import series_name
from foliot.domain.instant import Instant
from foliot.domain.ledger import Facts
from foliot.domain.run import RunView


class DeadFilter(NamedTuple):
    """Which dead letters are meant; None: whatever it is."""

    job: str | None = None
    schedule: str | None = None
    """Its runs, which are its ticks where it goes over members. `-`: runs without a schedule."""
    tenant: str | None = None
    """`-`: runs without a tenant."""
    why: str | None = None
    """The reason that they died of, such as `attempts`."""
    since: Instant | None = None
    """Their nominal time lies in `[since, until)`."""
    until: Instant | None = None
    member: str | None = None
    """With `schedule`: the runs of this member."""

    @property
    def series(self) -> str | None:
        """What the dead letters have in their column `schedule`."""
        if self.schedule is None or self.member is None:
            return self.schedule
        return series_name(self.schedule, self.member)


class DeadLetter(NamedTuple):
    """A dead run, and what has to be known before it is tried again."""

    view: RunView
    facts: Facts
    begun: bool
    """A handler may have done something."""
    useful_until: Instant | None


class Fate(StrEnum):
    """What became of one of many runs that were to be replayed or rerun."""

    WOULD = "would"
    """Nothing yet: it was only looked at, and nothing is in the way."""
    REPLAYED = "replayed"
    RERUN = "rerun"
    PASSED_OVER = "passed_over"
    """It is dead no more: somebody got there first."""
    TOO_LATE = "too_late"
    """Its useful time has passed."""
    REFUSED = "refused"
    """It may do harm."""
    FAILED = "failed"
    """The store could not do it."""


class Replayed(NamedTuple):
    """What the store did about one of them."""

    number: int
    fate: Fate
    problem: str | None = None
    fire_at: Instant | None = None
    """When it is due, if it was replayed."""


OPEN_EFFECT = "an effect started and has no recorded outcome"


def fate_of(useful_until: Instant | None, facts: Facts, now: Instant, *, override: bool) -> Fate:
    """As far as the store can tell, at the moment of the replay. Nobody can answer for what is too late: retry it by
    itself, if it is worth that."""
    if too_late(useful_until, now):
        return Fate.TOO_LATE
    return Fate.REFUSED if (facts.maybe or facts.open) and not override else Fate.REPLAYED
