"""Lists of runs: which are wanted, in which order, and where a page ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.conditions import Condition
from foliot.domain.identity import series_name
from foliot.domain.instant import FIRST, LAST, Instant
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import PARKED, PENDING, State
from foliot.errors import InvalidInput

MOST = 1_000
"""Runs, or schedules, on one page."""
BUDGET = 20_000
"""Rows that are looked at for one page, where no index knows what is wanted: a question never hangs."""
_LONGEST = 500
NONE = "-"
"""As the schedule or the tenant of a filter: only runs that have none. No name begins so."""


class Order(StrEnum):
    NEWEST = "newest"
    """Whatever was made last comes first."""
    SOONEST = "soonest"
    """What is to come, in the order in which it will."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are wanted. Each field narrows; nothing said means all."""

    states: tuple[State, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Runs of which any of these holds. Only what is not over has conditions."""
    schedule: str | None = None
    """Its runs, which are its ticks where it goes over members. NONE: runs without a schedule."""
    member: str | None = None
    """With `schedule`: the runs of this member."""
    job: str | None = None
    tenant: str | None = None
    """NONE: runs without a tenant."""
    queue: str | None = None
    origins: tuple[Origin, ...] = ()
    lanes: tuple[Lane, ...] = ()
    reasons: tuple[str, ...] = ()
    nominal_from: Instant = FIRST
    """Their nominal time lies in `[nominal_from, nominal_to)`."""
    nominal_to: Instant = LAST
    fire_from: Instant = FIRST
    """The same of their fire time: that of the last attempt, where there were several."""
    fire_to: Instant = LAST
    prefix: str | None = None
    """What their names begin with: a key, or a schedule and a part of its tick."""
    text: str | None = None
    """What stands in their names, in what is told of them, or in the error of an attempt; letters may be small or
    large. The whole id of a run finds that one alone."""
    needs_person: bool = False
    """Those that wait for a person."""
    order: Order = Order.NEWEST

    @property
    def series(self) -> str | None:
        """What the wanted runs have in their column `schedule`."""
        if self.schedule is None or self.member is None:
            return self.schedule
        return series_name(self.schedule, self.member)

    @property
    def asked(self) -> frozenset[State]:
        """The states that are wanted."""
        states = frozenset(self.states) or frozenset(State)
        states = states & PARKED if self.needs_person else states
        if self.conditions:
            states &= frozenset({State.SCHEDULED, State.RETRYING, State.HELD, State.READY, State.RUNNING})
        return states & COMING if self.order is Order.SOONEST else states

    @property
    def needle(self) -> str | None:
        """The text, as it is compared."""
        return None if self.text is None else lowered(self.text)


COMING = PENDING | {State.READY, State.HELD, State.VERIFYING}
"""What the wheel has yet to fire, or has just fired."""


class ListedRun(NamedTuple):
    view: RunView
    conditions: tuple[Condition, ...]


class RunPage(NamedTuple):
    runs: list[ListedRun]
    cursor: str | None
    """Where the next page begins; None when there is none."""
    complete: bool
    """False: the search was cut short before the page was full. There may be more from the cursor on."""


def checked(wanted: RunFilter, limit: int) -> RunFilter:
    """The filter, or a refusal that says what is wrong with it."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        raise InvalidInput(f"limit={limit!r:.40}: give 1 to {MOST:,} rows per page, and continue with its cursor")
    if wanted.member is not None and wanted.schedule is None:
        raise InvalidInput(f"member={wanted.member!r:.80} requires schedule=; give both")
    for start, end, what in (
        (wanted.nominal_from, wanted.nominal_to, "nominal"),
        (wanted.fire_from, wanted.fire_to, "fire"),
    ):
        if start >= end:
            raise InvalidInput(f"{what}_from must be before {what}_to; swap them")
    for value, what in ((wanted.text, "text"), (wanted.prefix, "prefix")):
        if value is not None and not 1 <= len(value) <= _LONGEST:
            raise InvalidInput(f"{what}= has {len(value):,} characters; give 1 to {_LONGEST}")
    if wanted.order is Order.SOONEST and (
        wanted.conditions or wanted.needs_person or not set(wanted.states) <= set(COMING)
    ):
        raise InvalidInput(
            "order=soonest lists only scheduled, retrying, held, ready and verifying runs; leave out other "
            "states, conditions and needs_person, or use order=newest"
        )
    return wanted


_SMALL = {ord(letter): ord(letter.lower()) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def lowered(text: str) -> str:
    """Small letters, of the alphabet alone: both engines can do that in the same way."""
    return text.translate(_SMALL)


def matches(wanted: RunFilter, view: RunView, errors: str = "") -> bool:
    """What a list holds, said once more in plain words: tests hold the engines to it. Conditions are apart."""
    told = [view.name or "", view.detail or "", errors]
    return (
        view.state in wanted.asked
        and wanted.schedule in (None, view.schedule)
        and (wanted.schedule is None or wanted.member == view.member)
        and wanted.job in (None, view.job)
        and wanted.tenant in (None, view.tenant)
        and wanted.queue in (None, view.queue)
        and (not wanted.origins or view.origin in wanted.origins)
        and (not wanted.lanes or view.lane in wanted.lanes)
        and (not wanted.reasons or view.reason in wanted.reasons)
        and wanted.nominal_from <= view.nominal < wanted.nominal_to
        and wanted.fire_from <= view.fire_at < wanted.fire_to
        and (wanted.prefix is None or (view.name or "").startswith(wanted.prefix))
        and (wanted.needle is None or any(wanted.needle in lowered(text) for text in told))
    )


# Cursors: opaque to whoever holds them, and plain to whoever looks for a mistake.


def cursor_of(order: Order, view: RunView) -> str:
    return str(view.number) if order is Order.NEWEST else f"{view.fire_at}.{view.number}"


def read_cursor(order: Order, cursor: str | None) -> tuple[Instant, int]:
    """Where to go on: after this fire time and number, or below this number."""
    if cursor is None:
        return (-(1 << 63), -1) if order is Order.SOONEST else (0, (1 << 63) - 1)
    parts = cursor.split(".") if isinstance(cursor, str) else []
    if len(parts) != (1 if order is Order.NEWEST else 2) or not all(_is_number(part) for part in parts):
        raise InvalidInput(
            f"cursor={cursor!r:.60}: not a cursor of this list and order; give the cursor of the previous page"
        )
    return (0, int(parts[0])) if order is Order.NEWEST else (int(parts[0]), int(parts[1]))


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 19 and -(1 << 63) <= int(text) < 1 << 63


def only_tenant(wanted: RunFilter, tenant: str) -> RunFilter:
    """The same for somebody who may see one tenant alone."""
    if wanted.tenant not in (None, tenant):
        raise InvalidInput(f"tenant={wanted.tenant!r:.80}: you may see only runs of {tenant}")
    return replace(wanted, tenant=tenant)
