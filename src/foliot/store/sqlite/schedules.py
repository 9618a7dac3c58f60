"""Standing rules: applying declarations, pausing, triggering, and what each schedule shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foliot.domain.identity import run_id, tick_name, trigger_name
from foliot.domain.instant import Instant
from foliot.domain.policy import Policy, policy_from_json, policy_to_json
from foliot.domain.run import Kept, Lane, Origin
from foliot.domain.schedule import Applied, Declaration, NewTick, Schedule, ScheduleView
from foliot.domain.state import OCCUPYING, Reason, State
from foliot.errors import TickTaken, UnknownName
from foliot.store.sqlite import following
from foliot.store.sqlite.transaction import Row, Transaction, carray


def schedule_of(row: Row) -> Schedule:
    """One unreadable row must not stop the others: it gets the default policy, and says so as its fault."""
    columns: list[Any] = list(row)
    try:
        columns[4] = policy_from_json(columns[4])
    except ValueError as error:
        columns[4] = Policy()
        columns[-1] = columns[-1] or f"its policy cannot be read: {error}"
    return Schedule(*columns)


def apply(tx: Transaction, declarations: Sequence[Declaration], prune: bool, actor: str) -> Applied:
    applied = Applied()
    known = {row[0]: (row[1], row[2]) for row in tx.all("schedule_versions")}
    for declaration in declarations:
        fingerprint, fault = known.get(declaration.id, (None, None))
        changed = fingerprint != declaration.fingerprint
        if changed:
            _put(tx, declaration)
            tx.audit(actor, "apply", declaration.id, declaration.rule)
        # Also an unchanged one may need its next run: it was set aside by a release that could not read its rule.
        _arm(tx, declaration)
        if fault is not None and not changed:
            tx.run("clear_fault", id=declaration.id)
        kinds = {True: applied.changed, False: applied.unchanged}
        (applied.created if fingerprint is None else kinds[changed]).append(declaration.id)
    declared = {declaration.id for declaration in declarations}
    # A schedule made at run time has no fingerprint: code never declared it, so code cannot have dropped it.
    applied.vanished.extend(sorted(name for name, (print_, _) in known.items() if print_ and name not in declared))
    if prune:
        for name in applied.vanished:
            _retire_waiting(tx, name, f"the schedule was removed by {actor}")
            tx.run("delete_schedule", id=name)
            tx.audit(actor, "delete", name, "no longer declared")
            applied.pruned.append(name)
    return applied


def _put(tx: Transaction, declaration: Declaration) -> None:
    """Writes the template, and brings its waiting run in line with it.

    A waiting tick that is due was promised, and stays: the new rule says what follows it. So does one that the new rule
    has too, with what operators said of it. Any other lies ahead, and the new rule has no such tick: it goes.
    """
    tx.run(
        "put_schedule",
        id=declaration.id,
        job=declaration.job,
        rule=declaration.rule,
        payload=declaration.payload,
        policy=policy_to_json(declaration.policy),
        options=declaration.options,
        delay=declaration.delay,
        queue=declaration.queue,
        priority=declaration.priority,
        tenant=declaration.tenant,
        owner=declaration.owner,
        runbook=declaration.runbook,
        changes=declaration.changes,
        fingerprint=declaration.fingerprint,
        now=tx.now,
    )
    for number, nominal, fire_at in tx.all("waiting_ticks", id=declaration.id):
        if nominal == declaration.first:
            fire_at = declaration.first_fire_at or nominal
        elif nominal > tx.now:
            tx.run("drop_runs", numbers=carray([number]))
            continue
        useful = declaration.policy.useful_until
        until = None if useful is None else nominal + useful
        tx.run("refresh_tick", number=number, id=declaration.id, fire_at=fire_at, useful_until=until)
        tx.stir([number])


def _arm(tx: Transaction, declaration: Declaration) -> None:
    """Makes the schedule's next run, unless one waits already, or one is busy that will make it when it ends."""
    useful = declaration.policy.useful_until
    if declaration.delay is not None:
        if tx.value("unended_ticks", id=declaration.id):
            return
        due = tx.now + declaration.delay
        first = NewTick(due, None, due, None if useful is None else due + useful)
    elif declaration.first is None or tx.all("waiting_ticks", id=declaration.id):
        return
    else:
        until = None if useful is None else declaration.first + useful
        fire_at = declaration.first_fire_at or declaration.first
        first = NewTick(declaration.first, declaration.first_since, fire_at, until)
    if tx.value("name_exists", name=tick_name(declaration.id, first.nominal)):
        # Only the rule knows what comes after it, so the caller has to count on.
        raise TickTaken(declaration.id, first.nominal)
    made = following.make_tick(tx, declaration.id, first)
    if made is not None:
        tx.run("schedule_made", id=declaration.id, name=made[1])


def _retire_waiting(tx: Transaction, schedule: str, detail: str) -> None:
    """Removes the waiting run of a schedule that goes. A tick that was due leaves a row that says why it did not run;
    one that lies ahead leaves none, so that it can exist again if the schedule is declared again."""
    waiting = tx.all("waiting_ticks", id=schedule)
    ending = (State.SKIPPED, tx.now, Reason.REVISED, detail, None, None)
    tx.run_each("end_run", [(number, *ending) for number, nominal, _ in waiting if nominal <= tx.now])
    tx.run("drop_runs", numbers=carray([number for number, _, _ in waiting]))


def pause(tx: Transaction, schedule: str, until: Instant | None, actor: str, note: str) -> None:
    if not tx.run("pause_schedule", id=schedule, now=tx.now, until=until, note=note):
        raise UnknownName(f"there is no schedule {schedule!r}")
    tx.audit(actor, "pause", schedule, note)


def resume(tx: Transaction, schedule: str, actor: str, note: str) -> None:
    if not tx.run("resume_schedule", id=schedule):
        raise UnknownName(f"there is no schedule {schedule!r}")
    tx.audit(actor, "resume", schedule, note)


def trigger(tx: Transaction, schedule: str, actor: str, note: str) -> Kept:
    moment = tx.now
    while tx.value("name_exists", name=trigger_name(schedule, moment)):
        moment += 1  # two people, or two requests of one commit, at one moment
    number, name = tx.numbers(1), trigger_name(schedule, moment)
    made = tx.run(
        "insert_tick",
        number=number,
        name=name,
        origin=Origin.MANUAL,
        lane=Lane.LIVE,
        fire_at=tx.now,
        nominal=tx.now,
        since=None,
        useful_until=None,
        fired_at=None,
        schedule=schedule,
    )
    if not made:
        raise UnknownName(f"there is no schedule {schedule!r}")
    tx.audit(actor, "trigger", schedule, note)
    return Kept(number, name, "made", State.SCHEDULED, tx.now)


def views(tx: Transaction, schedule: str | None) -> list[ScheduleView]:
    rows = (
        tx.all("schedule_columns") if schedule is None else tx.all("schedules_by_id", ids=following.as_json([schedule]))
    )
    if schedule is not None and not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    live: dict[str, list[Row]] = {}
    for row in tx.all("schedule_next", id=schedule):
        live.setdefault(row[0], []).append(row)
    return [_view(tx, schedule_of(row), live.get(row[0], [])) for row in rows]


def _view(tx: Transaction, schedule: Schedule, live: list[Row]) -> ScheduleView:
    waiting: Row | None = None
    active = 0
    for row in live:
        _, _, _, _, _, state, origin, attempt, fired_at = row
        if state in OCCUPYING or fired_at is not None:
            active += 1
        elif origin == Origin.SCHEDULED and attempt == 0:
            waiting = row
    success = tx.one("schedule_last_success", id=schedule.id)
    last = tx.one("schedule_last_run", id=schedule.id)
    return ScheduleView(
        schedule=schedule,
        next_id=run_id(waiting[1], waiting[2]) if waiting else None,
        next_nominal=waiting[3] if waiting else None,
        next_fire_at=waiting[4] if waiting else None,
        last_success_at=success[0] if success else None,
        last_run_id=run_id(last[0], last[1]) if last else None,
        last_run_state=str(State(last[2])) if last else None,
        active=active,
    )
