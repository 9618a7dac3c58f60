"""Schedules that operators change at run time: an edit names the revision that it saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foliot.domain.instant import SECOND, Instant, rfc3339
from foliot.domain.schedule import Declaration, Schedule
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import reading, schedules
from foliot.store.verbs.transaction import Transaction

OPERATOR = "operator"
"""The source of what operators made: nobody declares it again, so an edit of it is no drift."""
_CHANGES = ("apply", "edit")


async def edit(
    tx: Transaction, edited: Declaration, revision: int, fields: Sequence[str], actor: str, note: str
) -> int:
    await tx.lock_all()
    await tx.lock([edited.id])
    known = await _at(tx, edited.id, revision)
    made_here = known.source == OPERATOR
    as_applied = replace(edited, fingerprint=known.fingerprint, format=known.format, former=known.former)
    wanted = edited if made_here else as_applied
    await schedules.put(tx, [wanted], known.source)
    await schedules.arm(tx, [wanted])
    if wanted.fault is not None:
        await tx.run("set_fault", id=wanted.id, fault=wanted.fault)
    if not made_here:
        before = (await schedules.edits(tx)).get(edited.id)
        changed = sorted({*fields, *(before.fields if before else ())})
        await tx.run("put_edit", schedule=edited.id, at=tx.now, actor=actor, fields=",".join(changed))
    await tx.audit(actor, "edit", edited.id, note)
    return known.revision + 1


async def delete(tx: Transaction, schedule: str, revision: int | None, actor: str, note: str) -> None:
    if revision is not None:
        await tx.lock([schedule])
        await _at(tx, schedule, revision)
    await schedules.delete(tx, schedule, actor, note)


async def _at(tx: Transaction, schedule: str, revision: int) -> Schedule:
    """The schedule, if nobody has changed it since."""
    rows = await tx.all("schedules_by_id", ids=[schedule])
    if not rows:
        raise UnknownName(f"there is no schedule {schedule!r}")
    known = schedules.schedule_of(rows[0])
    if known.revision != revision:
        since = [row for row in await reading.audit_of(tx, schedule) if row.action in _CHANGES]
        told = "".join(
            f"; {row.actor} changed it at {rfc3339(row.at - row.at % SECOND)}: {row.note}" for row in since[-1:]
        )
        raise Conflict(
            f"schedule {schedule!r} is at revision {known.revision}, not at {revision}{told}; read it again and "
            "repeat your change"
        )
    return known


def _second(at: Instant) -> str:
    return rfc3339(at - at % SECOND)
