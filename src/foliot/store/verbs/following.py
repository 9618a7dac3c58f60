"""What follows, in the same transaction, when a run of a schedule ends, is parked, or needs its next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from foliot.domain.identity import tick_name
from foliot.domain.instant import Duration, Instant
from foliot.domain.policy import policy_from_json
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import NewTick
from foliot.domain.state import Reason, State
from foliot.store.verbs.transaction import Transaction, longs


class Wanted(NamedTuple):
    """A tick of a schedule that is to be made."""

    schedule: str
    tick: NewTick
    lane: Lane = Lane.LIVE
    fired_at: Instant | None = None
    is_decided: bool = False
    """Its schedule has decided about it already."""


class Made(NamedTuple):
    number: int
    name: str


async def make_ticks(tx: Transaction, wanted: Sequence[Wanted]) -> list[Made | None]:
    """Inserts the runs of ticks; None for one that exists already, which is not expected: an event says so."""
    if not wanted:
        return []
    names = [tick_name(one.schedule, one.tick.nominal) for one in wanted]
    taken = {row[0] for row in await tx.all("names_taken", names=names)}
    made = [
        None if name in taken else Made(number, name)
        for number, name in zip(await tx.numbers(len(names)), names, strict=True)
    ]
    rows = []
    for one, new, name in zip(wanted, made, names, strict=True):
        if new is None:
            await tx.event("tick_exists", one.schedule, f"{name} exists already and is not created again")
        else:
            tick = one.tick
            times = (tick.fire_at, tick.nominal, tick.since, tick.useful_until, one.fired_at)
            rows.append((new.number, name, Origin.SCHEDULED, one.lane, *times, one.schedule))
    await tx.run_each("insert_tick", rows)
    await tx.added([row[0] for row in rows])
    return made


End = tuple[int, State, Instant, str | None, str | None, Instant | None, int | None]
"""Number, verdict, when, reason, detail; for ticks that share a row, up to which one, and how many."""


async def end(tx: Transaction, ends: Sequence[End], tried: Collection[int]) -> None:
    """Runs that no attempt owns come to their end, but for those among `tried` of which an effect is still open: an
    attempt that is not made any more cannot settle it, and a person has to."""
    rows = await tx.all("left_open", numbers=longs(tried)) if tried else ()
    parked = {row[0] for row in rows}
    for number, _, _, reason, detail, _, _ in ends:
        if number in parked:
            why = f"the run was about to end ({reason}), and one of its effects has no recorded outcome"
            text = f"{why}: {detail}" if detail else why
            await unend(tx, number, State.AMBIGUOUS, None, 0, Reason.EFFECT, text)
    ending = [one for one in ends if one[0] not in parked]
    if ending:
        await tx.run_each("end_run", ending)
        await tx.run("drop_runs", numbers=longs([one[0] for one in ending]))


async def stop(
    tx: Transaction, numbers: Collection[int], reason: Reason, note: str | None, state: State = State.CANCELLED
) -> tuple[set[int], list[int]]:
    """Ends those that nobody has begun. Returns these; and those that somebody is at, who can be asked to stop."""
    waiting = {row[0]: row[1] for row in await tx.all("stoppable_runs", numbers=longs(numbers))}
    ends: list[End] = [(number, state, tx.now, reason, note, None, 1) for number in waiting]
    if ends:
        await end(tx, ends, [number for number, tried in waiting.items() if tried])
    return set(waiting), [number for number in numbers if number not in waiting]


async def ask_to_stop(tx: Transaction, numbers: Collection[int], reason: Reason, note: str) -> set[int]:
    """Asks the workers that have these. Returns those that have an owner."""
    owners = await tx.all("owners_of", numbers=longs(numbers))
    for number, worker in owners:
        await tx.run("ask_to_stop", number=number, worker=worker, reason=reason, note=note)
    return {row[0] for row in owners}


async def unend(
    tx: Transaction,
    number: int,
    state: State,
    retry_at: Instant | None,
    spent: int,
    reason: str | None,
    detail: str | None,
    deaths: int | None = None,
) -> None:
    """The attempt is over, and its run is not. One that waits for its check is stored as retrying."""
    checking = state is State.VERIFYING
    stored = State.RETRYING if checking else state
    await tx.run_each("unend_run", [(number, stored, retry_at, spent, reason, detail, checking, deaths)])


async def end_cancelled(tx: Transaction, numbers: Collection[int]) -> list[int]:
    """Somebody asked for these to stop while an attempt owned them. Now that none does, they end; returns the rest."""
    if not numbers or not await tx.value("any_cancellation"):
        return list(numbers)
    asked = await tx.all("cancelled_among", numbers=longs(numbers))
    ended = [row[0] for row in asked]
    ends = [(number, State.CANCELLED, tx.now, reason, note, None, None) for number, reason, note, _ in asked]
    await end(tx, ends, ended)
    await tx.run("drop_cancellations", numbers=longs(ended))
    schedules = {row[3] for row in asked if row[3] is not None}
    if schedules:
        await runs_ended(tx, schedules)
    return [number for number in numbers if number not in ended]


async def runs_ended(tx: Transaction, schedules: Collection[str]) -> None:
    """Runs of these schedules ended or were parked.

    1. The first that waits for its turn is due again, and is decided upon anew when it fires; so are all runs of
       other schedules that wait for a result of these.
    2. A schedule of fixed delay gets its next run, counted from now by the store's clock; it always has exactly one
       pending or busy run, so a run that was triggered by hand does not start a second chain.
    """
    await tx.lock(schedules)
    listed = list(schedules)
    await tx.stir([row[0] for row in await tx.all("release_held", schedules=listed, now=tx.now)])
    await tx.stir([row[0] for row in await tx.all("release_downstream", schedules=listed, now=tx.now)])
    for schedule, delay, policy in await tx.all("delayed_schedules", schedules=listed):
        due, useful = tx.now + delay, _useful_until(policy)
        while await tx.all("names_taken", names=[tick_name(schedule, due)]):
            due += 1  # a run that was made and ended within this very moment has the name already
        tick = NewTick(due, None, due, None if useful is None else due + useful)
        [made] = await make_ticks(tx, [Wanted(schedule, tick)])
        if made is not None:
            await tx.run("schedule_made", id=schedule, name=made.name)


def _useful_until(policy: bytes) -> Duration | None:
    """A policy that cannot be read is its schedule's fault, which firing tells; the chain goes on."""
    try:
        return policy_from_json(policy).useful_until
    except ValueError:
        return None
