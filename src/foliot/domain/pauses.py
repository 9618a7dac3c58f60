"""Pauses: what an operator stopped for a while, of what, and what that means for ticks and runs. Pure.

A pause is of one thing (`schedule:X`, `job:X`, `queue:X`, `tenant:X`) and of one part of its life. It ends when
somebody resumes it, or by itself at its time: nobody has to act for that, because all compare that time with the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.identity import checked_name, checked_tenant
from foliot.domain.instant import SECOND, Instant, rfc3339
from foliot.domain.schedule import Schedule
from foliot.errors import InvalidInput

KINDS = ("schedule", "job", "queue", "tenant")
SLOT = "pause:"
"""What a run waits for that a pause holds: `pause:claims:job:X`. Nobody ever has a slot of that name."""


class What(StrEnum):
    """What of a thing is paused."""

    CREATION = "creation"
    """Ticks of its schedules: the one that falls due is held, and no other is made. What code promises is kept."""
    RETRIES = "retries"
    """Runs that were tried before: they wait. What is new goes on."""
    CLAIMS = "claims"
    """Everything: nothing of it is handed to a worker. What runs goes on to its end."""


class Pause(NamedTuple):
    """What somebody stopped."""

    name: str
    """`job:report`."""
    what: What
    since: Instant
    until: Instant | None
    """When it ends by itself; None: when it is resumed."""
    actor: str
    note: str

    def in_force(self, now: Instant) -> bool:
        return self.until is None or now < self.until

    @property
    def slot(self) -> str:
        return f"{SLOT}{self.what}:{self.name}"

    @property
    def told(self) -> str:
        """What it is of, and why."""
        return f"{self.name}: {self.note}" if self.note else self.name

    @property
    def words(self) -> str:
        """`job:report is paused by ana until 2026-04-03T06:00:00Z: the disk is full`."""
        return f"{self.name} is {paused_words(self.actor, self.until, self.note)}"


def paused_words(actor: str | None, until: Instant | None, note: str | None) -> str:
    """Who, until when, why: as far as it is known."""
    by = f" by {actor}" if actor else ""
    end = "" if until is None else f" until {rfc3339(until - until % SECOND)}"
    return f"paused{by}{end}" + (f": {note}" if note else "")


def pause_name(kind: str, name: str) -> str:
    """The name of what can be paused, or a refusal that says what can."""
    if kind not in KINDS:
        raise InvalidInput(f"{kind!r:.80} cannot be paused; give one of {', '.join(KINDS)}")
    checked = checked_tenant(name) if kind == "tenant" else checked_name(name, kind)
    return f"{kind}:{checked}"


def whats_named(given: Iterable[str]) -> tuple[What, ...]:
    """Each once, in the order of the enum."""
    wanted = set()
    for one in given:
        if one not in set(What):
            raise InvalidInput(f"{one!r:.80} is not a part that can be paused; give one or more of {', '.join(What)}")
        wanted.add(What(one))
    if not wanted:
        raise InvalidInput(f"give the parts to pause: {', '.join(What)}")
    return tuple(what for what in What if what in wanted)


def holding(pauses: Sequence[Pause], names: Iterable[str], tried: bool, now: Instant) -> Pause | None:
    """Of the pauses of a run's things, the one that keeps it from a worker: of several, the one that lasts longest."""
    mine = set(names)
    whats = {What.CLAIMS, What.RETRIES} if tried else {What.CLAIMS}
    found = [one for one in pauses if one.name in mine and one.what in whats and one.in_force(now)]
    return max(found, key=_lasting) if found else None


def pauses_about(schedule: Schedule, pauses: Iterable[Pause], default_queue: str = "default") -> list[Pause]:
    """Those of a schedule itself, and of its job, queue and tenant."""
    names = {f"schedule:{schedule.id}", *_things(schedule, default_queue)}
    return [one for one in pauses if one.name in names]


def _things(schedule: Schedule, default_queue: str) -> set[str]:
    found = {f"job:{schedule.job}", f"queue:{schedule.queue or default_queue}"}
    return found if schedule.tenant is None else found | {f"tenant:{schedule.tenant}"}


def overlaid(schedule: Schedule, pauses: Sequence[Pause], default_queue: str, now: Instant) -> Schedule:
    """A schedule as firing sees it: paused also when its job, queue or tenant is. Of a pause that has ended by itself,
    its ticks are not made up for, as with a pause of its own."""
    mine = _things(schedule, default_queue)
    found = sorted((one for one in pauses if one.what is What.CREATION and one.name in mine), key=_lasting)
    ended = [one for one in found if not one.in_force(now)]
    if ended and (ended[-1].until or 0) > (schedule.skip_through or 0):
        told = schedule.paused_note if schedule.paused(now) else ended[-1].told
        schedule = replace(schedule, skip_through=ended[-1].until, paused_note=told)
    longest = found[-1] if len(found) > len(ended) else None
    if longest is None or (schedule.paused(now) and _lasting(schedule) >= _lasting(longest)):
        return schedule
    return replace(
        schedule,
        paused_at=longest.since,
        paused_until=longest.until,
        paused_by=longest.actor,
        paused_note=longest.told,
    )


def _lasting(one: Pause | Schedule) -> tuple[bool, Instant]:
    until = one.until if isinstance(one, Pause) else one.paused_until
    return until is None, until or 0
