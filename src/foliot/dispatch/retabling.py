"""Pending ticks under newer tables: where a zone or a holiday changed, the tick moves to where it belongs now."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from foliot.domain.instant import Instant
from foliot.domain.schedule import Armed, NewTick, Rearming, Schedule
from foliot.timing import decode, jittered
from foliot.timing.tables import is_newer, not_again, stamp_of, stamps

PAGE = 200
"""Schedules that are looked at in one go, some milliseconds of work: what is due must not wait for more."""

_log = logging.getLogger("foliot.dispatch")


class RetablingStore(Protocol):
    """What is needed of a store."""

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]: ...

    async def rearm(self, rearmings: Sequence[Rearming]) -> int: ...


async def retable(store: RetablingStore, after: str) -> str | None:
    """Looks at a page of schedules whose pending tick was computed with other tables than ours.

    Returns where the next page begins; None after the last. Two schedulers that do this at once do no harm: each
    change names the tick and the revision that it replaces.
    """
    page = await store.computed_otherwise(stamps(), after, PAGE)
    rearmings = [rearming for armed in page if (rearming := rearmed(*armed)) is not None]
    moved = await store.rearm(rearmings) if rearmings else 0
    if moved:
        _log.warning("moved %d pending ticks, zone data is now %s", moved, " ".join(stamps()[-1:]))
    return page[-1].schedule.id if page else None


def rearmed(schedule: Schedule, pending: Instant | None) -> Rearming | None:
    """What becomes of a schedule's pending tick. None: it is not ours to judge.

    Counted from where the schedule was evaluated through, not from now: a tick that newer tables put into the past
    was missed, and its catch-up policy has the say.
    """
    if pending is None or schedule.tables is None or schedule.evaluated_through is None:
        return None
    try:
        rule = decode(schedule.rule)
        tables = stamp_of(rule)
        if not is_newer(tables, schedule.tables):
            return None
        nominal = not_again(rule, rule.next(schedule.evaluated_through), schedule.last_wall)
        wall = None if nominal is None else rule.wall(nominal)
        tick = None if nominal is None or nominal == pending else _tick(schedule, nominal, rule.next(nominal))
    except Exception:
        return None  # whatever a rule does wrong: its next firing sets it aside, and says why
    return Rearming(schedule.id, schedule.revision, pending, tick, wall, tables, has_ended=nominal is None)


def _tick(schedule: Schedule, nominal: Instant, following: Instant | None) -> NewTick:
    useful = schedule.policy.useful_until
    fire_at = jittered(schedule.id, nominal, schedule.policy.jitter if schedule.over is None else 0, following)
    # Its interval goes on beginning where it began.
    return NewTick(nominal, None, fire_at, None if useful is None else nominal + useful)
