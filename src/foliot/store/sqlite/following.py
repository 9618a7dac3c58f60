"""What follows, in the same transaction, when a run of a schedule ends, is parked, or needs its next."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from foliot.domain.identity import tick_name
from foliot.domain.instant import Instant
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import NewTick
from foliot.domain.state import State
from foliot.store.sqlite.transaction import Transaction, carray


def as_json(values: object) -> str:
    return msgspec.json.encode(values).decode()


def make_tick(
    tx: Transaction, schedule: str, tick: NewTick, *, lane: Lane = Lane.LIVE, fired_at: Instant | None = None
) -> tuple[int, str] | None:
    """Inserts the run of one tick; None when it exists already, which is not expected: an event says so."""
    name = tick_name(schedule, tick.nominal)
    if tx.value("name_exists", name=name):
        tx.event("tick_exists", schedule, f"{name} exists already and is not made a second time")
        return None
    number = tx.numbers(1)
    tx.run(
        "insert_tick",
        number=number,
        name=name,
        origin=Origin.SCHEDULED,
        lane=lane,
        fire_at=tick.fire_at,
        nominal=tick.nominal,
        since=tick.since,
        useful_until=tick.useful_until,
        fired_at=fired_at,
        schedule=schedule,
    )
    return number, name


def end_cancelled(tx: Transaction, numbers: Collection[int]) -> list[int]:
    """Somebody asked for these to stop while an attempt owned them. Now that none does, they end; returns the rest."""
    if not numbers or not tx.value("any_cancellation"):
        return list(numbers)
    asked = tx.all("cancelled_among", numbers=carray(numbers))
    ended = [row[0] for row in asked]
    tx.run_each(
        "end_run", [(number, State.CANCELLED, tx.now, reason, note, None, None) for number, reason, note, _ in asked]
    )
    tx.run("drop_runs", numbers=carray(ended))
    tx.run("drop_cancellations", numbers=carray(ended))
    schedules = {row[3] for row in asked if row[3] is not None}
    if schedules:
        runs_ended(tx, schedules)
    return [number for number in numbers if number not in ended]


def runs_ended(tx: Transaction, schedules: Collection[str]) -> None:
    """Runs of these schedules ended or were parked.

    1. What was held for them is due again, and is decided anew when it fires.
    2. A schedule of fixed delay gets its next run, counted from now by the store's clock; it always has exactly one
       pending or busy run, so a run that was triggered by hand does not start a second chain.
    """
    listed = as_json(list(schedules))
    tx.stir([row[0] for row in tx.all("release_held", schedules=listed)])
    for schedule, delay, useful in tx.all("delayed_schedules", schedules=listed):
        due = tx.now + delay
        while tx.value("name_exists", name=tick_name(schedule, due)):
            due += 1  # a run that was made and ended within this very moment has the name already
        made = make_tick(tx, schedule, NewTick(due, None, due, None if useful is None else due + useful))
        if made is not None:
            tx.run("schedule_made", id=schedule, name=made[1])
