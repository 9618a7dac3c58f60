"""What firing knows of due runs, read under its locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foliot.domain.identity import member_of_series, run_id, schedule_of_series
from foliot.domain.instant import Instant
from foliot.domain.pauses import Pause, overlaid
from foliot.domain.policy import BlocksUntil
from foliot.domain.run import WISHES, Lane, Origin
from foliot.domain.schedule import Busy, Schedule, TickFacts, Upstream, Waiting
from foliot.domain.state import PARKED, Reason, State
from foliot.domain.store import DEFAULT_QUEUE
from foliot.errors import UnknownName
from foliot.store.verbs.following import unend
from foliot.store.verbs.gates import Candidate
from foliot.store.verbs.schedules import schedule_of
from foliot.store.verbs.transaction import Row, Transaction, longs


class Due(NamedTuple):
    """The row behind an entry of a wheel."""

    number: int
    fire_at: Instant
    queue: str | None
    lane: int
    priority: int
    useful_until: Instant | None
    schedule: str | None
    label: str | None
    """Set for a check: whom it is for."""
    is_suspected: bool
    was_tried: bool
    tenant: str | None
    job: str
    options: bytes | None
    slots: str | None
    is_forced: bool
    due_at: Instant
    """When it was first due, whatever became of it since."""
    over: str | None = None
    """The set of members that it makes runs for."""
    version: int = 0
    """How often it was changed: see `foliot.store.verbs.working.Group`."""

    def candidate(self, lane: Lane) -> Candidate:
        return Candidate(
            self.number,
            self.job,
            self.tenant,
            self.queue,
            None if self.schedule is None else schedule_of_series(self.schedule),
            lane,
            self.options,
            self.slots,
            bool(self.is_forced),
            self.due_at,
            bool(self.was_tried),
        )


_DUE = len(Due._fields)
NOT_MADE = (1 << 63) - 1
"""The number of a run that is only considered: it comes after all runs that exist."""


def due_of(row: Row) -> Due:
    """The row of a tick tells more than this."""
    return Due(*row[:_DUE])


async def due_runs(tx: Transaction, numbers: Iterable[int]) -> dict[int, Due]:
    return {row[0]: Due(*row) for row in await tx.all("due_runs", numbers=longs(numbers))}


async def tick_facts(
    tx: Transaction, wanted: dict[str, int], rows: dict[int, Due], pauses: Sequence[Pause]
) -> tuple[dict[int, TickFacts | None], list[int]]:
    """By run; None for one that is no longer to be decided upon: somebody got there first. Rows that cannot be read are
    set aside. And which runs have to wait, because somebody has his hands on what they require.

    `wanted` are runs by schedule, or by series where those go over members. `rows` were read before these were locked,
    and are brought up to date: where a run is handed off to follows from them."""
    templates = sorted({schedule_of_series(one) for one in wanted})
    schedules = {row[0]: schedule_of(row) for row in await tx.all("schedules_by_id", ids=templates)}
    if pauses:
        schedules = {name: overlaid(one, pauses, DEFAULT_QUEUE, tx.now) for name, one in schedules.items()}
    requires = {
        one: schedules[name].policy.requires for one in wanted if (name := schedule_of_series(one)) in schedules
    }
    needed = {one for one in requires.values() if one is not None}
    held = await tx.lock_free(needed)
    busy = [number for name, number in wanted.items() if requires.get(name) in held]
    wanted = {name: number for name, number in wanted.items() if requires.get(name) not in held}
    listed = list(wanted)
    around = Around(
        schedules,
        await _upstreams(tx, needed),
        await tx.all("busy_runs", schedules=listed, now=tx.now),
        await tx.all("waiting_runs", slots=[f"turn:{schedule}" for schedule in listed]),
    )
    facts: dict[int, TickFacts | None] = dict.fromkeys(wanted.values())
    for row in await tx.all("due_ticks", numbers=longs(wanted.values()), now=tx.now):
        due = rows[row[0]] = due_of(row)
        try:
            facts[due.number] = around.facts_of(row)
        except ValueError as error:
            del facts[due.number]
            await _set_aside(tx, due.number, row[_DUE], error)
    return facts, busy


class Around:
    """What is around the due runs of some schedules: the templates, and who is busy or waits."""

    def __init__(
        self,
        schedules: dict[str, Schedule],
        upstreams: dict[str, Upstream],
        busy: Iterable[Row],
        waiting: Iterable[Row],
    ) -> None:
        self._schedules = schedules
        self._upstreams = upstreams
        self._busy: dict[str, list[Busy]] = {}
        self._waiting: dict[str, list[Waiting]] = {}
        for schedule, number, name, state, phase, lane, nominal, is_let_go, origin in busy:
            parked = State(state) if state in PARKED else None
            if parked is None or _blocks(schedules.get(schedule_of_series(schedule)), parked):
                stoppable = phase is None and state <= State.RUNNING and not _is_wish(origin, lane)
                one = Busy(number, run_id(number, name), stoppable, Lane(lane), nominal or 0, bool(is_let_go), parked)
                self._busy.setdefault(schedule, []).append(one)
        for schedule, number, name, nominal, since, origin, lane in waiting:
            is_wish = _is_wish(origin, lane)
            is_tick = origin == Origin.SCHEDULED and not is_wish
            found = Waiting(number, run_id(number, name), nominal, since, is_tick, Lane(lane), is_wish)
            self._waiting.setdefault(schedule, []).append(found)

    def facts_of(self, row: Row) -> TickFacts:
        """Of a row of `due_ticks`. ValueError when it cannot be read."""
        return self.facts(due_of(row), *row[_DUE:])

    def facts(
        self,
        due: Due,
        name: str | None,
        origin: int,
        nominal: Instant | None,
        since: Instant | None,
        attempt: int,
        withdrawn: str | None,
        decided: bool | None,
        has_checkpoint: bool,
    ) -> TickFacts:
        assert due.schedule is not None
        schedule = self._schedules.get(schedule_of_series(due.schedule))
        requires = None if schedule is None else schedule.policy.requires
        in_order = schedule is not None and schedule.policy.blocks_until is not BlocksUntil.ENDED
        found = (one for one in self._busy.get(due.schedule, ()) if _in_the_way(one, due, in_order))
        busy = tuple(sorted(found, key=lambda one: one.parked is not None))  # what is at work is named first
        return TickFacts(
            number=due.number,
            id=run_id(due.number, name),
            origin=Origin(origin),
            nominal=due.fire_at if nominal is None else nominal,
            since=since,
            fire_at=due.fire_at,
            useful_until=due.useful_until,
            attempt=attempt,
            schedule=schedule,
            occupied_by=busy[0].id if busy else None,
            lane=Lane(due.lane),
            withdrawn=withdrawn,
            busy=busy,
            waiting=tuple(one for one in self._waiting.get(due.schedule, ()) if one.number != due.number),
            decided=bool(decided),
            forced=bool(due.is_forced) or due.label is not None,  # a check needs nobody's leave
            upstream=None if requires is None else self._upstreams[requires],
            over=due.over,
            has_begun=due.over is not None and bool(has_checkpoint),
            member=member_of_series(due.schedule),
        )


def _is_wish(origin: int, lane: int) -> bool:
    return origin in WISHES or lane == Lane.BACKFILL


def _in_the_way(one: Busy, due: Due, in_order: bool) -> bool:
    """Of two that were let go and are about to fire, the first one goes: they must not wait for one another. Better
    lanes come first, unless those behind have to wait for its success (`in_order`)."""
    if one.number == due.number:
        return False
    lanes = (0, 0) if in_order else (one.lane, due.lane)
    return not one.is_let_go or (lanes[0], one.nominal, one.number) < (lanes[1], due.due_at, due.number)


async def trigger_facts(tx: Transaction, schedule: str) -> TickFacts:
    """The facts about a run that a person would order now. Only read."""
    rows = await tx.all("schedules_by_id", ids=[schedule])
    if not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    template = schedule_of(rows[0])
    requires = template.policy.requires
    around = Around(
        {schedule: template},
        await _upstreams(tx, {requires} if requires is not None else set()),
        await tx.all("busy_runs", schedules=[schedule], now=tx.now),
        await tx.all("waiting_runs", slots=[f"turn:{schedule}"]),
    )
    due = Due(
        number=NOT_MADE,
        fire_at=tx.now,
        queue=template.queue,
        lane=Lane.LIVE,
        priority=template.priority,
        useful_until=None,
        schedule=schedule,
        label=None,
        is_suspected=False,
        was_tried=False,
        tenant=template.tenant,
        job=template.job,
        options=template.options,
        slots=None,
        is_forced=False,
        due_at=tx.now,
        over=template.over,
    )
    return around.facts(due, None, Origin.MANUAL, tx.now, None, 0, None, False, False)


async def _upstreams(tx: Transaction, wanted: set[str]) -> dict[str, Upstream]:
    """Locked by now, so that whoever ends a run of theirs sees those that begin to wait for it."""
    if not wanted:
        return {}
    listed = sorted(wanted)
    rules = {row[0]: row[2] for row in await tx.all("schedules_by_id", ids=listed)}
    useful = {row[0]: row[1] for row in await tx.all("last_useful", ids=listed)}
    return {name: Upstream(name, rules.get(name), useful.get(name)) for name in listed}


def _blocks(schedule: Schedule | None, state: State) -> bool:
    """Whether a run that waits for a person is in the way of others."""
    match schedule.policy.blocks_until if schedule is not None else BlocksUntil.ENDED:
        case BlocksUntil.ENDED:
            return False
        case BlocksUntil.SUCCEEDED:
            return state is not State.UNVERIFIED
        case BlocksUntil.VERIFIED:
            return True


async def _set_aside(tx: Transaction, number: int, name: str | None, error: ValueError) -> None:
    """A row that this release cannot read, as a newer one may write it: it waits for a person, and the rest goes on."""
    detail = f"this release cannot read the run: {error}"
    await unend(tx, number, State.DEAD, None, 0, Reason.BAD_ROW, detail)
    await tx.event("run_set_aside", run_id(number, name), detail)
