"""Ticks of the past that are made into runs: started, made, halted and looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foliot.domain.backfill import (
    Backfill,
    BackfillProgress,
    BackfillState,
    FillTick,
    NewBackfill,
    Pace,
    Taken,
    UnderWay,
    checked_turn,
    paced,
    refuse_ended,
    repaced,
    stored_window,
)
from foliot.domain.gates import Rate
from foliot.domain.identity import tick_name
from foliot.domain.instant import FIRST, LAST, Instant
from foliot.domain.state import Reason, State, read_state
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import following
from foliot.store.verbs.transaction import Row, Transaction

_PAUSED, _RUNNING, _CANCELLED = BackfillState.PAUSED, BackfillState.RUNNING, BackfillState.CANCELLED


def _backfill(row: Row) -> Backfill:
    number, schedule, state, version, start, end, newest_first, cursor, total, made, existed = row[:11]
    every, at_once, hours, pace_at, stop_after, forgiven, reason = row[11:18]
    job, rule, revision, actor, note, made_at, ended_at, first_number, last_number = row[18:27]
    return Backfill(
        number=number,
        schedule=schedule,
        state=BackfillState(state),
        version=version,
        start=start,
        end=end,
        newest_first=bool(newest_first),
        cursor=cursor,
        total=total,
        made=made,
        existed=existed,
        pace=Pace(None if every is None else Rate(every), at_once, stored_window(hours)),
        pace_at=pace_at,
        stop_after=stop_after,
        forgiven=forgiven,
        reason=reason,
        job=job,
        rule=rule,
        revision=revision,
        actor=actor,
        note=note,
        made_at=made_at,
        ended_at=ended_at,
        first_number=first_number,
        last_number=last_number,
    )


def _paced_as(pace: Pace) -> dict[str, Any]:
    """A pace in its stored form."""
    return {
        "every": None if pace.rate is None else pace.rate.every,
        "at_once": pace.at_once,
        "hours": None if pace.window is None else str(pace.window),
    }


async def start(tx: Transaction, wanted: NewBackfill, actor: str, note: str) -> Backfill:
    """One at a time for each tick: what is made twice at once would be counted twice."""
    await tx.lock([wanted.schedule])
    span = {"schedule": wanted.schedule, "start": wanted.start, "end": wanted.end}
    other = await tx.one("unended_backfills", **span)
    if other is not None:
        raise Conflict(
            f"backfill {other[0]} of {wanted.schedule!r} is running and includes ticks of this interval; wait "
            "until it ends, or cancel it"
        )
    row = await tx.one(
        "start_backfill",
        **span,
        revision=wanted.revision,
        newest_first=wanted.newest_first,
        cursor=wanted.end if wanted.newest_first else wanted.start - 1,
        total=wanted.total,
        **_paced_as(wanted.pace),
        stop_after=wanted.stop_after,
        actor=actor,
        note=note,
        now=tx.now,
    )
    if row is None:
        if not await tx.all("schedules_by_id", ids=[wanted.schedule]):
            raise UnknownName(f"there is no schedule {wanted.schedule!r}")
        raise Conflict(f"the schedule {wanted.schedule!r} changed after the preview; preview the backfill again")
    made = await get(tx, row[0])
    await tx.audit(actor, "backfill", made.subject, note)
    await tx.audit(actor, "backfill", wanted.schedule, f"backfill {made.number}: {note}")
    return made


async def get(tx: Transaction, number: int, *, locked: bool = False) -> Backfill:
    row = await tx.one("lock_backfill" if locked else "backfill_row", number=number)
    if row is None:
        raise UnknownName(f"there is no backfill {number}")
    return _backfill(row)


async def listed(tx: Transaction, schedule: str | None, limit: int) -> list[Backfill]:
    return [_backfill(row) for row in await tx.all("backfill_rows", schedule=schedule, limit=limit)]


async def taken(tx: Transaction, schedule: str, ticks: Sequence[Instant]) -> list[Taken]:
    if not ticks:
        return []
    names = {tick_name(schedule, tick): tick for tick in ticks}
    found = {
        names[name]: Taken(names[name], name, read_state(state, reason), reason)
        for name, state, reason in await tx.all("taken_names", names=list(names))
    }
    for tick, merged in (await _merged(tx, schedule, ticks)).items():
        found.setdefault(tick, merged)
    return [found[tick] for tick in ticks if tick in found]


async def _merged(tx: Transaction, schedule: str, ticks: Sequence[Instant]) -> dict[Instant, Taken]:
    """Ticks that have no row of their own, because one run answered for several."""
    rows = await tx.all("merged_ticks", schedule=schedule, first=min(ticks), last=max(ticks))
    return {
        tick: Taken(tick, name, State(state), reason)
        for name, nominal, span_until, state, reason in rows
        for tick in ticks
        if nominal <= tick <= span_until
    }


async def make(tx: Transaction, number: int, version: int, ticks: Sequence[FillTick], most: int) -> Backfill | None:
    """1. Nobody changed it since the ticks were chosen, or nothing happens. 2. What exists is passed over and counted.
    3. The rest becomes runs, up to `most`; the cursor stands behind the last one that was decided upon."""
    await tx.lock([(await get(tx, number)).schedule])
    backfill = await get(tx, number, locked=True)
    if backfill.version != version or backfill.state is not _RUNNING:
        return None  # somebody else made these, or a person stopped it
    existing = {one.nominal for one in await taken(tx, backfill.schedule, [tick.nominal for tick in ticks])}
    new: list[FillTick] = []
    existed, cursor = 0, backfill.cursor
    for tick in ticks:
        if tick.nominal in existing:
            existed += 1
        elif len(new) < most:
            new.append(tick)
        else:
            break
        cursor = tick.nominal
    numbers = await _insert(tx, backfill, new)
    every = backfill.pace.rate.every if backfill.pace.rate is not None else 0
    await tx.run(
        "advance_backfill",
        number=number,
        cursor=cursor,
        made=len(new),
        existed=existed,
        pace_at=paced(backfill.pace_at, every, tx.now, len(new)),
        first=min([*numbers, *_known(backfill.first_number)], default=None),
        last=max([*numbers, *_known(backfill.last_number)], default=None),
    )
    return await get(tx, number)


def _known(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)


async def _insert(tx: Transaction, backfill: Backfill, ticks: Sequence[FillTick]) -> Sequence[int]:
    if not ticks:
        return []
    numbers = await tx.numbers(len(ticks))
    rows = [
        (number, tick_name(backfill.schedule, tick.nominal), tx.now, tick.nominal, tick.since, backfill.number)
        for number, tick in zip(numbers, ticks, strict=True)
    ]
    await tx.free_names([row[1] for row in rows])
    await tx.run_each("insert_backfilled", rows)
    await tx.added(numbers)
    return numbers


async def halt(tx: Transaction, number: int, version: int, state: BackfillState, reason: str | None) -> bool:
    backfill = await get(tx, number, locked=True)
    if backfill.version != version or backfill.state is not _RUNNING:
        return False  # a person, or another maker, was here first
    await _turn(tx, backfill, state, reason, backfill.forgiven)
    if state is _PAUSED:
        await tx.event("backfill_paused", backfill.schedule, f"backfill {number}: {reason}")
    return True


async def _turn(
    tx: Transaction, backfill: Backfill, state: BackfillState, reason: str | None, forgiven: Instant | None
) -> None:
    ended_at = None if state in (_RUNNING, _PAUSED) else tx.now
    await tx.run(
        "turn_backfill", number=backfill.number, state=state, reason=reason, ended_at=ended_at, forgiven=forgiven
    )


async def change(
    tx: Transaction, number: int, state: BackfillState | None, pace: Mapping[str, Any], actor: str, note: str
) -> Backfill:
    await tx.lock([(await get(tx, number)).schedule])
    backfill = await get(tx, number, locked=True)
    if pace:
        refuse_ended(backfill)
        wanted = backfill.pace._replace(**pace)
        await tx.run("pace_backfill", number=number, pace_at=repaced(backfill, wanted, tx.now), **_paced_as(wanted))
    if state is not None:
        state = checked_turn(backfill, state)
        # Whoever has it go on has looked at what failed before.
        forgiven = backfill.cursor if state is _RUNNING else backfill.forgiven
        await _turn(tx, backfill, state, note if state is _PAUSED else None, forgiven)
        if state is _CANCELLED:
            await _end_unbegun(tx, backfill, note)
    await tx.audit(actor, _ACTIONS[state], backfill.subject, _told(pace, note))
    return await get(tx, number)


_ACTIONS = {None: "pace", _PAUSED: "pause", _RUNNING: "resume", _CANCELLED: "cancel"}


def _told(pace: Mapping[str, Any], note: str) -> str:
    shown = ", ".join(f"{name.replace('_', ' ')} {'any' if value is None else value}" for name, value in pace.items())
    return f"{shown}: {note}" if shown else note


async def _end_unbegun(tx: Transaction, backfill: Backfill, note: str) -> None:
    """What no worker has begun ends here; what was begun goes on."""
    rows = await tx.all("unbegun_backfilled", **_of(backfill))
    numbers = [row[0] for row in rows]
    await following.end(
        tx, [(number, State.CANCELLED, tx.now, Reason.OPERATOR, note, None, None) for number in numbers], ()
    )
    if numbers:
        await following.runs_ended(tx, {backfill.schedule})


async def under_way(tx: Transaction) -> list[UnderWay]:
    found = [_backfill(row) for row in await tx.all("running_backfills")]
    return [
        UnderWay(
            one,
            int(await tx.value("count_unfinished", **_of(one))),
            await _failures(tx, one) if one.made else 0,
            tx.now,
        )
        for one in found
    ]


async def _failures(tx: Transaction, backfill: Backfill) -> int:
    """How many came to no good end since the last good one, in the order in which they are made.

    Those are few, and are counted first; history is asked for the last good one only when they could be too many."""
    low, high = _beyond(backfill, backfill.forgiven)
    failed = int(await tx.value("count_failed", **_of(backfill), low=low, high=high))
    if backfill.stop_after is None or failed < backfill.stop_after:
        return failed
    good = await tx.one("earliest_good" if backfill.newest_first else "latest_good", **_of(backfill))
    if good is None:
        return failed
    nearer = _beyond(backfill, good[0])
    low, high = max(low, nearer[0]), min(high, nearer[1])
    return int(await tx.value("count_failed", **_of(backfill), low=low, high=high))


def _beyond(backfill: Backfill, tick: Instant | None) -> tuple[Instant, Instant]:
    """The bounds of what comes after a tick, in the backfill's order."""
    if tick is None:
        return FIRST, LAST
    return (FIRST, tick) if backfill.newest_first else (tick, LAST)


async def progress(tx: Transaction, number: int) -> BackfillProgress:
    backfill = await get(tx, number)
    rows = await tx.all("count_backfilled", **_of(backfill))
    return BackfillProgress(backfill, {State(state): int(count) for state, count in rows}, tx.now)


def _of(backfill: Backfill) -> dict[str, Any]:
    """What tells a backfill's runs from all others."""
    return {
        "schedule": backfill.schedule,
        "first": backfill.first_number or 0,
        "last": backfill.last_number or 0,
        "start": backfill.start,
        "end": backfill.end,
    }
