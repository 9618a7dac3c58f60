"""Standing rules: applying declarations, pausing, triggering, and what each schedule shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, replace
from typing import Any, NamedTuple

from foliot.domain.fingerprint import former_of, has_content, is_applied
from foliot.domain.identity import run_id, tick_name, trigger_name
from foliot.domain.instant import Instant, rfc3339
from foliot.domain.pauses import Pause, What
from foliot.domain.policy import Policy, policy_from_json, policy_to_json
from foliot.domain.run import Kept, Lane, Origin
from foliot.domain.schedule import (
    FORMAT,
    Applied,
    Armed,
    Declaration,
    Edit,
    Fingerprint,
    NewTick,
    Rearming,
    Release,
    Schedule,
    ScheduleView,
)
from foliot.domain.standing import EndedTick
from foliot.domain.state import OCCUPYING, Reason, State
from foliot.domain.store.scheduling import NOTHING_SETTLED
from foliot.errors import Conflict, ScheduleChanged, TickTaken, UnknownName
from foliot.store.verbs import latest, pausing, releases
from foliot.store.verbs.following import Wanted, end, make_ticks, runs_ended
from foliot.store.verbs.transaction import Row, Transaction, longs

_COLUMNS = [field.name for field in fields(Schedule)]
"""The queries give them in this order."""
_POLICY, _FAULT = _COLUMNS.index("policy"), _COLUMNS.index("fault")
ReadPayload = Callable[[bytes, str], bytes]
"""Arguments as they are without encryption, where this process has the key; by payload and job."""


def as_stored(payload: bytes, job: str) -> bytes:
    return payload


class _Version(NamedTuple):
    """What is compared of a stored schedule."""

    fault: str | None
    source: str
    applied: Fingerprint


def schedule_of(row: Row) -> Schedule:
    """One unreadable row must not stop the others: it gets the default policy, and says so as its fault."""
    columns = list(row)
    try:
        columns[_POLICY] = policy_from_json(columns[_POLICY])
    except ValueError as error:
        columns[_POLICY] = Policy()
        columns[_FAULT] = columns[_FAULT] or f"the policy cannot be read: {error}"
    return Schedule(*columns)


async def apply(
    tx: Transaction,
    declarations: Sequence[Declaration],
    prune: bool,
    actor: str,
    source: str,
    release: Release,
    note: str = "",
    fresh: bool = False,
    standing: Sequence[Declaration] = (),
    read: ReadPayload = as_stored,
    settled: Mapping[str, str] = NOTHING_SETTLED,
) -> Applied:
    applied = Applied(unchanged=list(settled))
    await tx.lock_all()
    await tx.lock([declaration.id for declaration in declarations])
    known = await _versions(tx)
    _check_settled(settled, await settled_schedules(tx, source) if settled else {})
    edited = await edits(tx)
    by_hash = {one.id for one in declarations if one.id in known and is_applied(one, known[one.id].applied)}
    by_content = await _by_content(tx, declarations, known, edited, read)
    # Of an edited schedule the content does not show whether a newer release declares the edited fields otherwise.
    certain = by_hash | (by_content - edited.keys())
    same = by_hash | by_content
    # Releases compare these with the stored fingerprint, so the same declaration has the stored one.
    stated = _stored_formers(settled, known)
    stated |= {one.id: known[one.id].applied.former if one.id in same else former_of(one) for one in declarations}
    newer = await releases.enter(tx, release, stated)
    rules = {one.id: one.rule for one in declarations}
    # Edited, or applied by a release that gave the same declaration another rule: the ticks are those of the stored.
    standing_otherwise = edited.keys() | {one.id for one in standing if one.rule != rules.get(one.id)}
    changed: list[Declaration] = []
    kept: list[Declaration] = []
    adopted: list[Declaration] = []
    for declaration in declarations:
        version = known.get(declaration.id)
        if fresh and version is not None and (version.source != source or declaration.id not in same):
            raise Conflict(f"a schedule {declaration.id!r} was created just before this request; edit that schedule")
        if version is not None and version.source != source:
            applied.refused[declaration.id] = version.source
        elif declaration.id not in certain and (declaration.id, version.applied.former if version else "") in newer:
            applied.outdated.append(declaration.id)
        elif version is not None and declaration.id in same:
            applied.unchanged.append(declaration.id)
            kept += [declaration] if declaration.id not in standing_otherwise else []
            adopted += [declaration] if version.applied.format < declaration.format else []
        else:
            (applied.created if version is None else applied.changed).append(declaration.id)
            changed.append(declaration)
    await tx.run_each("put_fingerprint", [(one.fingerprint, one.format, one.id) for one in adopted])
    lead = f"{note}: " if note else ""
    notes = {one.id: lead + _keeping(edited[one.id]) for one in adopted if one.id in by_content & edited.keys()}
    kept += await _still_standing(tx, standing, standing_otherwise & set(applied.unchanged))
    applied.overwritten.extend(one.id for one in changed if one.id in edited)
    await put(tx, changed, source)
    notes |= {one.id: lead + (_overwriting(edited[one.id]) if one.id in edited else "") + one.rule for one in changed}
    await tx.audit_each(actor, "apply", notes.items())
    await tx.run("drop_edits", ids=applied.overwritten)
    created = set(applied.created)
    for declaration in changed:
        if declaration.id in created and declaration.paused is not None:
            await pause(tx, declaration.id, None, actor, declaration.paused)
    # Also an unchanged one may need its next run: it was set aside by a release that could not read its rule.
    await arm(tx, [*changed, *kept])
    for declaration in (*changed, *kept):
        fault = known[declaration.id].fault if declaration.id in known else None
        if fault is not None or declaration.fault is not None:
            await tx.run("set_fault", id=declaration.id, fault=declaration.fault)
    applied.vanished.extend(_vanished(known, source, {one.id for one in declarations} | settled.keys()))
    if prune:
        for name in applied.vanished:
            if (name, known[name].applied.former) in newer:
                continue  # not dropped by this release: added by a newer one
            await delete(tx, name, actor, f"{lead}no longer declared")
            applied.pruned.append(name)
        await releases.remove(tx, release, applied.pruned)
    return applied


async def find_unchanged(tx: Transaction, settled: Mapping[str, str], source: str, release: Release) -> Applied | None:
    """What `apply` answers where all declarations are settled and the release is entered with them: it writes nothing
    then, and needs no write transaction. None: something is to be written."""
    known = await _versions(tx)
    _check_settled(settled, await settled_schedules(tx, source))
    if not await releases.is_entered(tx, release, _stored_formers(settled, known)):
        return None
    return Applied(unchanged=list(settled), vanished=_vanished(known, source, settled.keys()))


async def settled_schedules(tx: Transaction, source: str) -> dict[str, str]:
    declared = await tx.all("declared_schedules", source=source, format=FORMAT)
    pending = {row[0] for row in await tx.all("all_waiting")}
    delayed = [row[0] for row in declared if row[2]]
    pending.update(row[0] for row in (await tx.all("unended_ticks", ids=delayed) if delayed else ()))
    pending.difference_update(await edits(tx))
    return {row[0]: row[1] for row in declared if row[0] in pending}


def _check_settled(settled: Mapping[str, str], stored: Mapping[str, str]) -> None:
    if not settled.items() <= stored.items():
        raise ScheduleChanged(min(name for name, declared in settled.items() if stored.get(name) != declared))


def _stored_formers(settled: Mapping[str, str], known: Mapping[str, _Version]) -> dict[str, str]:
    return {name: known[name].applied.former for name in settled}


def _vanished(known: Mapping[str, _Version], source: str, declared: Set[str]) -> list[str]:
    """A process that never declared a schedule cannot have dropped it. One made at run time has no fingerprint."""
    return sorted(
        name
        for name, version in known.items()
        if version.applied.former and version.source == source and name not in declared
    )


async def _still_standing(tx: Transaction, standing: Sequence[Declaration], edited: Set[str]) -> list[Declaration]:
    """What operators made of a schedule has ticks of its own: those that the caller counted, unless it was edited again
    meanwhile, which armed it anew."""
    wanted = {one.id: one for one in standing if one.id in edited}
    stored = [schedule_of(row) for row in await tx.all("schedules_by_id", ids=sorted(wanted))] if wanted else []
    return [wanted[one.id] for one in stored if (wanted[one.id].rule, wanted[one.id].policy) == (one.rule, one.policy)]


async def edits(tx: Transaction) -> dict[str, Edit]:
    """What operators made of schedules, by id: few, and read whole."""
    return {row[0]: Edit(row[1], row[2], tuple(row[3].split(","))) for row in await tx.all("all_edits")}


def _overwriting(edit: Edit) -> str:
    return f"replaced the edit by {edit.actor} ({', '.join(edit.fields)}): "


def _keeping(edit: Edit) -> str:
    """A declaration that changed in edited fields alone cannot be distinguished from one that did not change."""
    return (
        f"kept the edit by {edit.actor} ({', '.join(edit.fields)}): an older release applied the declaration, and "
        "only edited fields differ from it"
    )


async def fingerprints(tx: Transaction, source: str, after: str, limit: int) -> dict[str, Fingerprint]:
    rows = await tx.all("fingerprints_after", source=source, after=after, limit=limit)
    return {name: Fingerprint(*applied) for name, *applied in rows}


async def otherwise(tx: Transaction, schedule: str) -> list[str]:
    version = (await _versions(tx)).get(schedule)
    if version is None:
        raise UnknownName(f"there is no schedule {schedule!r}")
    return await releases.otherwise(tx, schedule, version.applied.former)


async def _versions(tx: Transaction) -> dict[str, _Version]:
    rows = await tx.all("schedule_versions")
    return {name: _Version(fault, source, Fingerprint(*applied)) for name, fault, source, *applied in rows}


async def _by_content(
    tx: Transaction,
    declarations: Sequence[Declaration],
    known: Mapping[str, _Version],
    edited: Mapping[str, Edit],
    read: ReadPayload,
) -> set[str]:
    """The declarations whose fingerprints show nothing, and whose schedules are as declared but for edited fields."""
    undecided = {
        one.id: one for one in declarations if one.id in known and is_applied(one, known[one.id].applied) is None
    }
    if not undecided:
        return set()
    found = set()
    for row in await tx.all("schedules_by_id", ids=sorted(undecided)):
        stored, wanted = schedule_of(row), undecided[row[0]]
        stored = replace(stored, payload=read(stored.payload, stored.job))
        wanted = replace(wanted, payload=read(wanted.payload, wanted.job))
        if has_content(wanted, stored, edited[stored.id].fields if stored.id in edited else None):
            found.add(stored.id)
    return found


async def delete(tx: Transaction, schedule: str, actor: str, note: str) -> None:
    await tx.lock([schedule])
    await _retire_waiting(tx, schedule, f"the schedule was removed by {actor}")
    if not await tx.run("delete_schedule", id=schedule):
        raise UnknownName(f"there is no schedule {schedule!r}")
    await tx.run("drop_edits", ids=[schedule])
    await pausing.release_ticks(tx, [schedule])
    await pausing.forget(tx, f"schedule:{schedule}")
    await runs_ended(tx, {schedule})  # what waits for its turn goes on without it
    await tx.audit(actor, "delete", schedule, note)


async def put(tx: Transaction, changed: Sequence[Declaration], source: str) -> None:
    """Writes templates, and brings their waiting runs in line with them.

    A waiting tick that is due was promised, and stays: the new rule says what follows it. So does one that the new rule
    has too, with what operators said of it. Any other lies ahead, and the new rule has no such tick: it goes.
    """
    await tx.run_each("put_schedule", [_template(declaration, source, tx.now) for declaration in changed])
    waiting = await _waiting(tx, [declaration.id for declaration in changed])
    for declaration in changed:
        for number, nominal, fire_at in waiting.get(declaration.id, ()):
            if nominal == declaration.first:
                fire_at = declaration.first_fire_at or nominal
                await tx.run_each("schedule_armed", [_armed(declaration, None)])
            elif nominal > tx.now:
                await tx.run("forget_runs", numbers=longs([number]))
                continue
            useful = declaration.policy.useful_until
            until = None if useful is None else nominal + useful
            await tx.run("refresh_tick", number=number, id=declaration.id, fire_at=fire_at, useful_until=until)
            await tx.stir([number])


def _template(declaration: Declaration, source: str, now: Instant) -> tuple[Any, ...]:
    """The values of `put_schedule`, by place."""
    return (
        declaration.id,
        declaration.job,
        declaration.rule,
        declaration.payload,
        policy_to_json(declaration.policy),
        declaration.options,
        declaration.delay,
        declaration.queue,
        declaration.priority,
        declaration.tenant,
        declaration.owner,
        declaration.runbook,
        declaration.changes,
        former_of(declaration),
        now,
        declaration.after,
        source,
        declaration.over,
        declaration.fingerprint,
        declaration.format,
    )


async def _waiting(tx: Transaction, schedules: Sequence[str]) -> dict[str, list[tuple[int, Instant, Instant]]]:
    """Number, nominal and fire time of the runs that wait, by schedule."""
    found: dict[str, list[tuple[int, Instant, Instant]]] = {}
    for schedule, number, nominal, fire_at in await tx.all("waiting_ticks", ids=list(schedules)):
        found.setdefault(schedule, []).append((number, nominal, fire_at))
    return found


async def arm(tx: Transaction, declarations: Sequence[Declaration]) -> None:
    """Makes each schedule's next run, unless one waits already, or one is busy that will make it when it ends."""
    delayed = [declaration.id for declaration in declarations if declaration.delay is not None]
    busy = {row[0] for row in await tx.all("unended_ticks", ids=delayed)} if delayed else set()
    waiting = await _waiting(tx, [declaration.id for declaration in declarations])
    lacking: list[Declaration] = []
    wanted: list[Wanted] = []
    for declaration in declarations:
        useful = declaration.policy.useful_until
        if declaration.delay is not None:
            if declaration.id in busy:
                continue
            due = tx.now + declaration.delay
            first = NewTick(due, None, due, None if useful is None else due + useful)
        elif declaration.first is None or declaration.id in waiting:
            continue
        else:
            until = None if useful is None else declaration.first + useful
            fire_at = declaration.first_fire_at or declaration.first
            first = NewTick(declaration.first, declaration.first_since, fire_at, until)
        lacking.append(declaration)
        wanted.append(Wanted(declaration.id, first))
    if not wanted:
        return
    names = [tick_name(one.schedule, one.tick.nominal) for one in wanted]
    taken = {row[0] for row in await tx.all("names_taken", names=names)}
    taken -= await tx.free_names(taken)
    for one, name in zip(wanted, names, strict=True):
        if name in taken:
            # Only the rule knows what comes after it, so the caller has to count on.
            raise TickTaken(one.schedule, one.tick.nominal)
    made = await make_ticks(tx, wanted)
    await tx.run_each(
        "schedule_armed", [_armed(one, new.name) for one, new in zip(lacking, made, strict=True) if new is not None]
    )


def _armed(declaration: Declaration, name: str | None) -> tuple[Any, ...]:
    return name, declaration.tables, declaration.first_wall, declaration.id


async def _retire_waiting(tx: Transaction, schedule: str, detail: str) -> None:
    """Removes the waiting run of a schedule that goes. A tick that was due leaves a row that says why it did not run;
    one that lies ahead leaves none, so that it can exist again if the schedule is declared again."""
    waiting = (await _waiting(tx, [schedule])).get(schedule, [])
    due = [number for number, nominal, _ in waiting if nominal <= tx.now]
    ending = (State.SKIPPED, tx.now, Reason.REVISED, detail, None, None)
    await end(tx, [(number, *ending) for number in due], due)
    await tx.run("forget_runs", numbers=longs([number for number, nominal, _ in waiting if nominal > tx.now]))


async def pause(tx: Transaction, schedule: str, until: Instant | None, actor: str, note: str) -> None:
    await tx.lock([schedule])
    if not await tx.run("pause_schedule", id=schedule, now=tx.now, until=until, actor=actor, note=note):
        raise UnknownName(f"there is no schedule {schedule!r}")
    await pausing.release_ticks(tx, [schedule])
    await tx.audit(actor, "pause", schedule, note)


async def resume(tx: Transaction, schedule: str, actor: str, note: str, catch_up: bool) -> None:
    await tx.lock([schedule])
    if not await tx.run("resume_schedule", id=schedule, now=tx.now, catch_up=catch_up):
        raise UnknownName(f"there is no schedule {schedule!r}")
    await pausing.release_ticks(tx, [schedule])
    await runs_ended(tx, {schedule})  # what waited for its turn goes on
    await tx.audit(actor, "resume", schedule, f"{note} (with catch-up)" if catch_up else note)


async def put_pause(tx: Transaction, name: str, what: What, until: Instant | None, actor: str, note: str) -> Pause:
    """Of a schedule's own ticks, in its row; of anything else, in a row of its own."""
    schedule = name.removeprefix("schedule:") if name.startswith("schedule:") else None
    if schedule is None or what is not What.CREATION:
        if schedule is not None and not await tx.all("schedules_by_id", ids=[schedule]):
            raise UnknownName(f"there is no schedule {schedule!r}")
        return await pausing.pause(tx, name, what, until, actor, note)
    await pause(tx, schedule, until, actor, note)
    [row] = await tx.all("schedules_by_id", ids=[schedule])
    return Pause(name, what, schedule_of(row).paused_at or tx.now, until, actor, note)


async def end_pause(tx: Transaction, name: str, what: What, actor: str, note: str, catch_up: bool) -> Pause | None:
    if not name.startswith("schedule:") or what is not What.CREATION:
        return await pausing.resume(tx, name, what, actor, note, catch_up)
    schedule = name.removeprefix("schedule:")
    await tx.lock([schedule])
    rows = await tx.all("schedules_by_id", ids=[schedule])
    if not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    found = schedule_of(rows[0])
    if not found.paused(tx.now):
        return None
    await resume(tx, schedule, actor, note, catch_up)
    told = found.paused_by or "", found.paused_note or ""
    return Pause(name, what, found.paused_at or tx.now, found.paused_until, *told)


async def trigger(
    tx: Transaction, schedule: str, since: Instant | None, actor: str, note: str, *, override: bool = False
) -> Kept:
    await tx.lock([schedule])
    if not await tx.all("schedules_by_id", ids=[schedule]):
        raise UnknownName(f"there is no schedule {schedule!r}")
    moment = tx.now
    while await tx.all("names_taken", names=[trigger_name(schedule, moment)]):
        moment += 1  # two people, or two requests of one commit, at one moment
    [number] = await tx.numbers(1)
    name = trigger_name(schedule, moment)
    times = (tx.now, tx.now, None if since is None else min(since, tx.now), None, None)
    await tx.run_each("insert_tick", [(number, name, Origin.MANUAL, Lane.LIVE, *times, schedule)])
    if override:
        await tx.run("force_new_run", number=number)
    await tx.added([number])
    await tx.audit(actor, "trigger", schedule, f"overrides overlap: {note}" if override else note)
    return Kept(number, name, "made", State.SCHEDULED, tx.now)


async def computed_otherwise(tx: Transaction, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
    rows = await tx.all("computed_otherwise", tables=list(tables), after=after, limit=limit)
    return [Armed(schedule_of(row[:-1]), row[-1]) for row in rows]


async def rearm(tx: Transaction, rearmings: Sequence[Rearming]) -> int:
    await tx.lock([rearming.schedule for rearming in rearmings])
    return sum([await _rearm(tx, rearming) for rearming in rearmings])


async def _rearm(tx: Transaction, rearming: Rearming) -> bool:
    """A tick that is due was promised, and stays; so does one that somebody moved on from meanwhile."""
    found = (await _waiting(tx, [rearming.schedule])).get(rearming.schedule, [])
    waiting = {nominal: number for number, nominal, _ in found}
    if rearming.nominal not in waiting or rearming.nominal <= tx.now:
        return False
    number, tick = waiting[rearming.nominal], rearming.tick
    name = None if tick is None else tick_name(rearming.schedule, tick.nominal)
    if name is not None and await tx.all("names_taken", names=[name]):
        return False  # it was made and decided before, under other tables
    known = {"id": rearming.schedule, "revision": rearming.revision, "tables": rearming.tables, "wall": rearming.wall}
    if not await tx.run("retabled", **known) or (tick is None and not rearming.has_ended):
        return False
    if tick is None:
        await tx.run("forget_runs", numbers=longs([number]))
    else:
        # In place: the row keeps where its interval begins, and what operators said of it.
        await tx.run(
            "move_tick", number=number, name=name, nominal=tick.nominal, fire_at=tick.fire_at, until=tick.useful_until
        )
        await tx.run("schedule_made", id=rearming.schedule, name=name)
        await tx.stir([number])
    detail = "none: the rule has no further tick" if tick is None else rfc3339(tick.nominal)
    await tx.event("tick_moved", rearming.schedule, f"{rearming.tables}: from {rfc3339(rearming.nominal)} to {detail}")
    return True


async def views(tx: Transaction, schedule: str | None) -> list[ScheduleView]:
    rows = await (tx.all("schedule_columns") if schedule is None else tx.all("schedules_by_id", ids=[schedule]))
    if schedule is not None and not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    live: dict[str, list[Row]] = {}
    for row in await tx.all("schedule_next", id=schedule):
        live.setdefault(row[0], []).append(row)
    ids = [row[0] for row in rows]
    last = await latest.ticks(tx, ids, 1)
    useful = await latest.useful_at(tx, ids, last)
    edited = await edits(tx)
    return [
        _view(schedule_of(row), live.get(row[0], []), useful.get(row[0]), last.get(row[0], []), edited.get(row[0]))
        for row in rows
    ]


def _view(
    schedule: Schedule, live: list[Row], useful_at: Instant | None, last: list[EndedTick], edit: Edit | None
) -> ScheduleView:
    waiting: Row | None = None
    active = 0
    for row in live:
        _, _, _, _, _, state, origin, attempt, fired_at, decided = row
        if state in OCCUPYING or fired_at is not None or decided:
            active += 1
        elif origin == Origin.SCHEDULED and attempt == 0:
            waiting = row
    return ScheduleView(
        schedule=schedule,
        next_id=run_id(waiting[1], waiting[2]) if waiting else None,
        next_nominal=waiting[3] if waiting else None,
        next_fire_at=waiting[4] if waiting else None,
        last_success_at=useful_at,
        last_run_id=last[0].id if last else None,
        last_run_state=str(last[0].state) if last else None,
        active=active,
        edit=edit,
    )
