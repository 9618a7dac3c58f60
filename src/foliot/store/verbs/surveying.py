"""What operators see of all of it at once: pages of schedules with their facts, and the pulse of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from foliot.domain.identity import member_of_series, schedule_of_series
from foliot.domain.instant import DAY, HOUR, MINUTE
from foliot.domain.ledger import EffectView, Facts
from foliot.domain.overview import Holding, LaneBacklog, ParkedGroup, ParkedRun, Pulse
from foliot.domain.run import Lane, RunView
from foliot.domain.schedule import Schedule
from foliot.domain.standing import (
    IN_A_ROW,
    LOOKED_AT,
    Failures,
    ScheduleFacts,
    ScheduleFilter,
    ScheduleOrder,
    SchedulePage,
    checked_schedules,
    read_schedule_cursor,
    schedule_cursor,
    standing,
)
from foliot.domain.state import PARKED, PENDING, State, read_state
from foliot.errors import UnknownName
from foliot.store.verbs import latest, ledger, tallying
from foliot.store.verbs.rows import handed_off, view_of, waiting_chunks, with_ready
from foliot.store.verbs.schedules import edits, schedule_of
from foliot.store.verbs.transaction import Transaction, longs

_PIECE = 250
"""Schedules that are looked at together, where only their runs know whether they are wanted."""
_DUE = 20_000
"""Due runs that are looked at: more than these is a backlog, however large."""
_AHEAD = 15
"""Minutes to come that are counted."""
_ORDERS = {ScheduleOrder.NAME: "schedules_by_name", ScheduleOrder.NEXT: "schedules_by_next"}


async def templates(tx: Transaction, names: Sequence[str] | None) -> list[Schedule]:
    if names is None:
        return [schedule_of(row) for row in await tx.all("schedule_columns")]
    return [schedule_of(row) for row in await tx.all("schedules_by_id", ids=list(names))] if names else []


async def page(tx: Transaction, wanted: ScheduleFilter, cursor: str | None, limit: int, recent: int) -> SchedulePage:
    checked_schedules(wanted, limit)
    due, after = read_schedule_cursor(wanted.order, cursor)
    values = {
        "ids": [row[0] for row in await tx.all("schedules_in_need")] if wanted.needs_person else None,
        "job": wanted.job,
        "tenant": wanted.tenant,
        "needle": wanted.needle,
        "paused": wanted.paused,
        "now": tx.now,
    }
    found: list[tuple[str, str]] = []
    looked, following, complete = 0, cursor, True
    piece = limit + 1 if not wanted.last else _PIECE
    while True:
        rows = await tx.all(_ORDERS[wanted.order], after=after, after_due=due, limit=piece, **values)
        cursors = {row[0]: schedule_cursor(wanted.order, row[1], row[0]) for row in rows}
        kept = await _by_last(tx, list(cursors), wanted) if wanted.last else list(cursors)
        found += [(name, cursors[name]) for name in kept]
        looked += len(rows)
        if len(found) > limit:
            following, complete = found[limit - 1][1], True
            break
        if len(rows) < piece:
            following, complete = None, True
            break
        after, due = rows[-1][0], rows[-1][1]
        if looked >= LOOKED_AT:
            following, complete = cursors[after], False
            break
    return SchedulePage(await facts_of(tx, [name for name, _ in found[:limit]], recent), following, complete)


async def _by_last(tx: Transaction, ids: Sequence[str], wanted: ScheduleFilter) -> list[str]:
    """Those whose last run stands as it is wanted."""
    standings = [standing(one, tx.now) for one in await facts_of(tx, ids, 1, only_last=True)]
    return [one.schedule.id for one in standings if one.last is not None and one.last.state in wanted.last]


async def one(tx: Transaction, schedule: str, recent: int) -> ScheduleFacts:
    found = await facts_of(tx, [schedule], recent)
    if not found:
        raise UnknownName(f"there is no schedule {schedule!r}")
    return replace(
        found[0],
        tenants={row[0]: row[1] for row in await tx.all("parked_by_tenant", id=schedule)},
        backfills=int(await tx.value("backfill_left", id=schedule)),
    )


async def failing(tx: Transaction, limit: int, tenant: str | None) -> list[ScheduleFacts]:
    ids = [row[0] for row in await tx.all("schedules_failing", least=IN_A_ROW, limit=limit, tenant=tenant)]
    return await facts_of(tx, ids, IN_A_ROW)


async def facts_of(tx: Transaction, ids: Sequence[str], recent: int, *, only_last: bool = False) -> list[ScheduleFacts]:
    """A few queries for all of them together; in the order given. `only_last`: as far as tells which run is last."""
    if not ids:
        return []
    listed = list(ids)
    templates = {row[0]: schedule_of(row) for row in await tx.all("schedules_by_id", ids=listed)}
    live = await with_ready(tx, [view_of(row) for row in await tx.all("live_of_schedules", ids=listed)])
    parked = [view_of(row) for row in await tx.all("parked_of_schedules", ids=listed, each=max(recent, 1))]
    ended = await latest.ticks(tx, listed, recent)
    useful = {} if only_last else await latest.useful_at(tx, listed, ended)
    counts: defaultdict[str, dict[tuple[State, Lane], int]] = defaultdict(dict)
    for schedule, state, lane, count in () if only_last else await tx.all("counts_of_schedules", ids=listed):
        counts[schedule][State(state), Lane(lane)] = count
    if any(state in PENDING for by_state in counts.values() for state, _ in by_state):  # `ready` is derived
        numbers = longs(await handed_off(tx))
        for schedule, state, lane, count in await tx.all("ready_of_schedules", numbers=numbers, now=tx.now, ids=listed):
            counts[schedule][State(state), Lane(lane)] -= count
            counts[schedule][State.READY, Lane(lane)] = counts[schedule].get((State.READY, Lane(lane)), 0) + count
    many = [name for name, views in _by_schedule(parked).items() if len(views) >= recent]
    failures = {} if only_last or not many else {row[0]: row[1:] for row in await tx.all("failures_in_a_row", ids=many)}
    workers = sorted({view.worker for view in live if view.worker is not None})
    beats = {row[0]: row[1] for row in await tx.all("beats_of", workers=workers)} if workers else {}
    alive, waiting, edited = _by_schedule(live), _by_schedule(parked), await edits(tx)
    return [
        ScheduleFacts(
            schedule=templates[name],
            live=tuple(alive.get(name, ())),
            parked=tuple(waiting.get(name, ())),
            recent=tuple(ended.get(name, ())),
            counts=counts[name],
            useful_at=useful.get(name),
            beats=beats,
            edit=edited.get(name),
            failures=Failures(*failures[name]) if name in failures else None,
        )
        for name in listed
        if name in templates
    ]


def _by_schedule(views: Iterable[RunView]) -> dict[str | None, list[RunView]]:
    found: defaultdict[str | None, list[RunView]] = defaultdict(list)
    for view in views:
        found[view.schedule].append(view)
    return found


async def parked_groups(tx: Transaction, limit: int) -> list[ParkedGroup]:
    return [_parked_group(*row) for row in await tx.all("parked_groups", limit=limit)]


def _parked_group(
    state: int, series: str | None, job: str | None, tenant: str | None, reason: str | None, *numbers: int
) -> ParkedGroup:
    schedule, member = (None, None) if series is None else (schedule_of_series(series), member_of_series(series))
    return ParkedGroup(read_state(state, reason), schedule, member, job, tenant, reason, *numbers)


async def parked(tx: Transaction, numbers: Sequence[int]) -> list[ParkedRun]:
    wanted = longs(numbers)
    views = {row[0]: view_of(row) for row in await tx.all("live_among", numbers=wanted)}
    facts = await ledger.facts_of(tx, numbers)
    known = {row[0]: row for row in await tx.all("parked_known", numbers=wanted)}
    effects: defaultdict[int, list[EffectView]] = defaultdict(list)
    for row in await tx.all("effects_left_open", numbers=wanted):
        effects[row[0]].append(ledger.effect_view(row[1:]))
    lineages = {row[0]: row[3] for row in known.values()}
    batches = await ledger.batches_of(tx, set(lineages.values()))
    return [
        ParkedRun(
            replace(views[number], effects=effects[number], batches=batches.get(lineages[number], [])),
            facts.get(number, Facts()),
            bool(known[number][1]),
            known[number][2],
        )
        for number in numbers
        if number in views and number in known
    ]


async def pulse(tx: Transaction) -> Pulse:
    claimed = [number for (stored,) in await tx.all("owned_by_workers") for number in tx.unpacked(stored)]
    lanes, waiting = await _lanes(tx)
    waits = await _ready(tx)
    overdue = [row for row in await tx.all("count_overdue", now=tx.now, limit=_DUE) if row[0] not in waiting]
    failed = await tallying.failed_by_minute(tx, DAY)
    ahead = {"now": tx.now, "until": tx.now + _AHEAD * MINUTE, "limit": _DUE}
    return Pulse(
        now=tx.now,
        hour=await tallying.since(tx, HOUR, failed),
        day=await tallying.since(tx, DAY, failed),
        counted_at=await tallying.counted_at(tx),
        running=await tx.value("count_running", numbers=longs(claimed)),
        retrying=await tx.value("count_retrying") - waits.get(State.RETRYING, 0),
        held=await tx.value("count_held"),
        lanes=lanes,
        overdue=len(overdue),
        overdue_since=overdue[0][1] if overdue else None,
        parked=dict.fromkeys(PARKED, 0) | {State(row[0]): row[1] for row in await tx.all("count_parked")},
        early=await tx.value("count_early"),
        coming={int(row[0]): row[1] for row in await tx.all("coming_minutes", **ahead)},
        last_tick=await tx.value("last_tick", now=tx.now),
        holdings=tuple(Holding(*row) for row in await tx.all("held_shards", now=tx.now)),
        at_work={row[0]: int(row[1]) for row in await tx.all("open_by_worker")},
    )


async def _lanes(tx: Transaction) -> tuple[dict[Lane, LaneBacklog], set[int]]:
    """Read through chunks, which are few."""
    found = {lane: LaneBacklog(0, None) for lane in Lane}
    numbers: set[int] = set()
    for lane, fired_at, chunk in await waiting_chunks(tx, "lane_chunks"):
        known = found[Lane(lane)]
        numbers.update(chunk)
        since = fired_at if known.since is None else min(known.since, fired_at)
        found[Lane(lane)] = LaneBacklog(known.waiting + len(chunk), since)
    return found, numbers


async def counts(tx: Transaction) -> dict[str, int]:
    found = {str(state): count for state, count in (await live_counts(tx)).items()}
    found["history"] = await tx.value("count_history")
    found["early"] = await tx.value("count_early")
    suspected = [number for (stored,) in await tx.all("suspected_chunks") for number in tx.unpacked(stored)]
    found["suspected"] = await tx.value("count_suspected", numbers=longs(suspected))
    return found


async def live_counts(tx: Transaction) -> dict[State, int]:
    """By indexes of what is unusual; what is left of all live runs is scheduled."""
    found = dict.fromkeys(State, 0)
    found |= {State(state): count for state, count in await tx.all("count_parked")}
    claimed = [number for (stored,) in await tx.all("owned_by_workers") for number in tx.unpacked(stored)]
    found[State.RUNNING] = await tx.value("count_running", numbers=longs(claimed))
    found[State.HELD] = await tx.value("count_held")
    found[State.RETRYING] = await tx.value("count_retrying")
    found[State.VERIFYING] = await tx.value("count_checked")
    found[State.SCHEDULED] = await tx.value("count_live") - sum(found.values())
    for state, count in (await _ready(tx)).items():
        found[state] -= count
        found[State.READY] += count
    return found


async def _ready(tx: Transaction) -> dict[State, int]:
    """Runs that wait for a worker, by the state that their rows have."""
    numbers = longs(await handed_off(tx))
    return {State(state): count for state, count in await tx.all("count_ready", numbers=numbers, now=tx.now)}
