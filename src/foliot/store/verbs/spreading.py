"""Ticks over many members: their runs are made in chunks, and the tick waits for all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from foliot.domain.identity import member_name, member_of_run, members_range, run_id, series_name
from foliot.domain.instant import Instant
from foliot.domain.members import (
    Interval,
    Lacking,
    Member,
    MembersChanged,
    MemberSet,
    Spread,
    Standing,
    completeness,
    gathered,
    is_whole,
    spread_from,
    start_within,
)
from foliot.domain.policy import Policy, policy_from_json
from foliot.domain.run import RunView
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import PARKED, PENDING, Event, Reason, State, after, read_state
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import following
from foliot.store.verbs.rows import handed_off
from foliot.store.verbs.schedules import schedule_of
from foliot.store.verbs.transaction import Transaction, longs

CHUNK = 500
"""Most members that one firing transaction makes runs for: others that are due wait for no more than that."""


class Made(NamedTuple):
    """What a tick made of its members, this time."""

    runs: int = 0
    more: bool = False
    is_held: bool = False
    """Somebody is changing the set: to be tried again."""
    nobody: str | None = None
    """Why it made none at all."""


async def spread(tx: Transaction, schedule: str, tick: TickFacts, decision: TickDecision, most: int) -> Made:
    """Runs for the next members, by their keys, so many at most. When there are no more, the tick waits for them."""
    assert tick.over is not None
    is_free = bool(await tx.value("share_member_set", member_set=tick.over))
    if not is_free or not most:
        await tx.run_each("tick_decided", [(decision.lane, tick.number)])
        return Made(more=is_free, is_held=not is_free)
    row = await tx.one("spreading_tick", number=tick.number)
    assert row is not None  # it is due, and locked
    so_far = spread_from(row[0])
    found = await tx.all("members_after", member_set=tick.over, after=so_far.last, limit=most)
    keys = [key for key, _, _ in found]
    if not keys and not so_far.made:
        return Made(nobody=f"{tick.over} has no members")
    lane = decision.lane
    made = await _insert(tx, schedule, tick, keys, decision, is_tenant=not row[1])
    now_at = Spread(keys[-1] if keys else so_far.last, so_far.made + len(keys)).encoded()
    if len(keys) == most:
        await tx.run_each("tick_spreads", [(now_at, lane, tick.number)])
        return Made(made, True)
    await tx.run_each("tick_is_spread", [(now_at, lane, tx.now, tick.number)])
    return Made(made, False)


async def _insert(
    tx: Transaction, schedule: str, tick: TickFacts, keys: Sequence[str], decision: TickDecision, *, is_tenant: bool
) -> int:
    """A member is its runs' tenant, unless their schedule belongs to one."""
    names = {key: member_name(tick.id, key) for key in keys}
    taken = {row[0] for row in await tx.all("names_taken", names=list(names.values()))}
    fresh = [key for key in keys if names[key] not in taken]
    await tx.run_each("put_series", [(series_name(schedule, key), schedule, key) for key in fresh])
    numbers = await tx.numbers(len(fresh)) if fresh else ()
    rows = []
    for number, key in zip(numbers, fresh, strict=True):
        series = series_name(schedule, key)
        fire_at = tick.fire_at + start_within(series, tick.nominal, decision.spread_within) - tick.nominal
        tenant = key if is_tenant else None
        rows.append((number, names[key], series, tenant, decision.lane, fire_at, tick.number))
    await tx.run_each("insert_member_run", rows)
    await tx.added(list(numbers))
    return len(fresh)


# ----------------------------------------------------------------------------------------------------- coming to an end


async def at_rest(tx: Transaction) -> tuple[list[tuple[int, str]], list[str]]:
    """Reads the ticks of which no member's run is under way: those to end, with their schedules; and the names of those
    to be counted again."""
    found = []
    for number, name, schedule, _ in await tx.all("gathering_ticks"):
        if not await _is_any_under_way(tx, run_id(number, name)):
            found.append((number, schedule))
    changed = [row[0] for row in await tx.all("recounts_at_rest")]
    return found, [tick for tick in changed if not await _is_any_under_way(tx, tick)]


async def gather(tx: Transaction, ticks: Sequence[tuple[int, str]]) -> int:
    """Ends these, if they are as they were: each says how many of its members were done."""
    schedules = {schedule for _, schedule in ticks}
    await tx.lock(schedules)
    wanted = {number for number, _ in ticks}
    ended: set[str] = set()
    for number, name, schedule, policy in await tx.all("gathering_ticks"):
        if number in wanted and not await _is_any_under_way(tx, run_id(number, name)):
            await _end(tx, number, await _states(tx, run_id(number, name)), _complete(policy))
            ended.add(schedule)
    if ended:
        await following.runs_ended(tx, ended)
    return len(ended)


async def remember_recounts(tx: Transaction, numbers: Sequence[int]) -> None:
    """Marks live runs that an operator changes: the ticks of members' runs among them are to be counted again."""
    await tx.run("remember_recounts", numbers=longs(numbers))


async def recount(tx: Transaction, ticks: Sequence[str]) -> int:
    """Counts the members of these ticks again and updates the rows of those that are over or parked, unless a member's
    run is under way. Returns how many it counted."""
    counted = 0
    for tick in sorted(ticks):
        # Marks are locked before runs are read: an operator who changes a marked run meanwhile waits for this one.
        numbers = [row[0] for row in await tx.all("lock_recounts", tick=tick)]
        if numbers and not await _is_any_under_way(tx, tick):
            states = await _states(tx, tick)
            incomplete = await tx.one("incomplete_tick", tick=tick)
            if incomplete is None:
                reason = None if is_whole(states) else Reason.PARTIAL
                await tx.run("recount_tick", tick=tick, detail=completeness(states), reason=reason)
            else:
                await _recount_parked(tx, states, *incomplete)
            await tx.run("drop_recounts", numbers=longs(numbers))
            counted += 1
    return counted


async def _recount_parked(tx: Transaction, states: dict[State, int], number: int, policy: bytes | None) -> None:
    """Of a tick that is parked because too few members were done. If enough are done now, it no longer needs attention:
    `gather` ends it. A deleted schedule has no policy: enough are all then."""
    complete = 1.0 if policy is None else _complete(policy)
    if gathered(states, complete) is Event.CHECK_REFUSED:
        await tx.run("recount_incomplete", number=number, detail=completeness(states))
    else:
        await gather_again(tx, number, State.UNVERIFIED)


async def _is_any_under_way(tx: Transaction, tick: str) -> bool:
    first, last = members_range(tick)
    return bool(await tx.value("is_any_under_way", first=first, last=last))


async def _end(tx: Transaction, number: int, states: dict[State, int], complete: float | None) -> None:
    state = after(State.VERIFYING, gathered(states, complete))
    if state in PARKED:
        await following.unend(tx, number, state, None, 0, Reason.INCOMPLETE, completeness(states))
    else:
        reason = None if is_whole(states) else Reason.PARTIAL
        await following.end(tx, [(number, state, tx.now, reason, completeness(states), None, None)], ())


def _complete(policy: bytes | None) -> float | None:
    """A policy that cannot be read is its schedule's fault, which firing tells."""
    try:
        return (Policy() if policy is None else policy_from_json(policy)).complete
    except ValueError:
        return None


async def _states(tx: Transaction, tick: str) -> dict[State, int]:
    first, last = members_range(tick)
    found: Counter[State] = Counter()
    for state, count in await tx.all("states_of_members", first=first, last=last):
        found[State(state)] += count
    return dict(found)


async def cancel_members(tx: Transaction, tick: str, reason: Reason, note: str) -> None:
    """A tick over many members is to end: what nobody has begun of these ends with it, the others are asked to stop."""
    first, last = members_range(tick)
    rows = await tx.all("live_members", first=first, last=last)
    await tx.lock({row[1] for row in rows})
    detail = f"with {tick}" + (f": {note}" if note else "")
    ended, busy = await following.stop(tx, [row[0] for row in rows], reason, detail)
    await following.ask_to_stop(tx, busy, reason, detail)
    series = {row[1] for row in rows if row[0] in ended}
    if series:
        await following.runs_ended(tx, series)


async def gather_again(tx: Transaction, number: int, state: State) -> bool:
    """Whether it is a tick over many members: it counts them anew then."""
    return bool(await tx.run("gather_again", number=number, state=state))


# ---------------------------------------------------------------------------------------------------------- the members


async def _alone(tx: Transaction, member_set: str) -> None:
    """Two who bring one set to what they know do so one after the other; and no tick makes runs of it meanwhile."""
    await tx.lock_all()
    await tx.all("lock_member_set", member_set=member_set)


async def change(
    tx: Transaction, member_set: str, add: Sequence[str], remove: Sequence[str], source: str, actor: str, note: str
) -> MembersChanged:
    await _alone(tx, member_set)
    known = {row[0] for row in await tx.all("known_members", member_set=member_set, keys=[*add, *remove])}
    fresh = [key for key in dict.fromkeys(add) if key not in known]
    gone = [key for key in dict.fromkeys(remove) if key in known]
    await tx.run_each("put_member", [(member_set, key, tx.now, source) for key in fresh])
    skipped = await _leave(tx, member_set, gone) if gone else 0
    if fresh or gone:
        told = ", ".join([*(f"+{key}" for key in fresh[:_TOLD]), *(f"-{key}" for key in gone[:_TOLD])])
        more = max(len(fresh) - _TOLD, 0) + max(len(gone) - _TOLD, 0)
        told += f" and {more:,} more" if more else ""
        await tx.audit(actor, "members", member_set, f"{told}: {note}" if note else told)
    return MembersChanged(len(fresh), len(gone), skipped)


_TOLD = 10
"""Members that the audit names, of each kind."""


async def _leave(tx: Transaction, member_set: str, keys: Sequence[str]) -> int:
    """What was made for them and nobody has begun does not run any more; what runs goes on."""
    await tx.run("drop_members", member_set=member_set, keys=list(keys))
    series = [row[0] for row in await tx.all("series_of_members", member_set=member_set, keys=list(keys))]
    await tx.lock(series)
    numbers = [row[0] for row in await tx.all("waiting_of_series", series=series)]
    detail = f"no longer a member of {member_set}"
    ended, _ = await following.stop(tx, numbers, Reason.REVISED, detail, State.SKIPPED)
    if ended:
        await following.runs_ended(tx, set(series))
    return len(ended)


async def replace(tx: Transaction, member_set: str, keys: Sequence[str], actor: str, note: str) -> MembersChanged:
    """Brings a set to exactly these."""
    await _alone(tx, member_set)
    known = {row[0] for row in await tx.all("all_members", member_set=member_set)}
    wanted = set(keys)
    return await change(tx, member_set, sorted(wanted - known), sorted(known - wanted), actor, actor, note)


async def declare(tx: Transaction, member_set: str, keys: Sequence[str], prune: bool, actor: str) -> MembersChanged:
    """What code says. What was added at run time stays; what code said once, and no longer does, goes with `prune`."""
    await _alone(tx, member_set)
    known: dict[str, str] = {row[0]: row[1] for row in await tx.all("all_members", member_set=member_set)}
    dropped = [key for key, source in known.items() if source == _CODE and key not in set(keys)] if prune else []
    fresh = [key for key in keys if key not in known]
    return await change(tx, member_set, fresh, dropped, _CODE, actor, "declared")


_CODE = "code"


async def members(tx: Transaction, member_set: str, after: str, limit: int) -> list[Member]:
    return [Member(*row) for row in await tx.all("members_after", member_set=member_set, after=after, limit=limit)]


async def member_sets(tx: Transaction) -> list[MemberSet]:
    rows = await tx.all("member_sets")
    return [MemberSet(name, count, tuple(sorted(json.loads(schedules)))) for name, count, schedules in rows]


# ------------------------------------------------------------------------------------------------------ what people see


async def interval(tx: Transaction, tick: RunView) -> Interval | None:
    """How complete a tick is in its members; None for a run that has none."""
    states = await _states(tx, tick.id)
    if not states:
        return None
    first, last = members_range(tick.id)
    bounds = {"first": first, "last": last}
    lacking = [_lacking(*row) for row in await tx.all("lacking_members", limit=_LISTED, **bounds)]
    if states.keys() & PENDING:  # `ready` is derived
        numbers = longs(await handed_off(tx))
        rows = await tx.all("ready_members", numbers=numbers, now=tx.now, **bounds)
        ready = {name: State(state) for name, state in rows}
        moved = Counter({State.READY: len(ready)})
        moved.subtract(Counter(ready.values()))
        states = {state: states.get(state, 0) + moved[state] for state in {*states, *moved}}
        states = {state: count for state, count in states.items() if count}
        lacking = [one._replace(state=State.READY) if one.run in ready else one for one in lacking]
    is_made = tick.state not in (State.SCHEDULED, State.HELD)
    return Interval(tick.id, is_made, states, lacking)


_LISTED = 100


def _lacking(name: str, state: int, reason: str | None, detail: str | None) -> Lacking:
    return Lacking(member_of_run(name), name, read_state(state, reason), reason, detail)


async def standings(
    tx: Transaction, schedule: str, after: str, limit: int, stale_before: Instant | None
) -> list[Standing]:
    over = await _set_of(tx, schedule)
    asked = {"member_set": over, "schedule": schedule, "after": after, "limit": limit, "stale_before": stale_before}
    return [Standing(*row) for row in await tx.all("standings", **asked)]


async def worst_served(tx: Transaction, schedule: str, limit: int) -> list[Standing]:
    over = await _set_of(tx, schedule)
    return [Standing(*row) for row in await tx.all("worst_served", member_set=over, schedule=schedule, limit=limit)]


async def _set_of(tx: Transaction, schedule: str) -> str:
    rows = await tx.all("schedules_by_id", ids=[schedule])
    if not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    over = schedule_of(rows[0]).over
    if over is None:
        raise Conflict(f"{schedule} has no member set; set one with app.schedule(..., over=...)")
    return over
