"""Making promises, and changing them before they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foliot.domain.forcing import check_can_be_forced
from foliot.domain.identity import generation, made_at, promise_stem, run_id, run_number
from foliot.domain.instant import Instant, rfc3339
from foliot.domain.run import Kept, OnConflict, Promise
from foliot.domain.state import PARKED, Event, Reason, State, after
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import following, spreading
from foliot.store.verbs.transaction import Transaction


class Found(NamedTuple):
    """A run that exists under the wanted name or number."""

    number: int
    name: str | None
    state: State
    fire_at: Instant
    live: bool
    worker: int | None = None
    schedule: str | None = None

    @property
    def id(self) -> str:
        return run_id(self.number, self.name)

    def kept(self, outcome: str) -> Kept:
        return Kept(self.number, self.name, outcome, self.state, self.fire_at)


async def promise(tx: Transaction, promises: Sequence[Promise]) -> list[Kept]:
    if all(one.key is None for one in promises):
        return await _insert(tx, promises, [None] * len(promises), "made")
    return [
        await _promise_keyed(tx, one) if one.key is not None else (await _insert(tx, [one], [None], "made"))[0]
        for one in promises
    ]


async def promise_as(tx: Transaction, promises: Sequence[Promise], actor: str, note: str) -> list[Kept]:
    """What an operator promises is written down; what stays as it was is not."""
    kept = await tx.promise(promises)
    words = {"replaced": f"{note} (replaced)".strip()}
    await tx.audit_each(
        actor, "promise", [(one.id, words.get(one.outcome, note)) for one in kept if one.outcome != "kept"]
    )
    return kept


async def _insert(
    tx: Transaction, promises: Sequence[Promise], names: Sequence[str | None], outcome: str
) -> list[Kept]:
    if not promises:
        return []
    numbers = await tx.numbers(len(promises))
    await tx.run_each(
        "insert_promise",
        (
            (number, name, p.priority, p.job, p.payload, p.fire_at, p.useful_until, p.tenant, p.queue, p.options)
            for number, p, name in zip(numbers, promises, names, strict=True)
        ),
    )
    return [
        Kept(number, name, outcome, State.SCHEDULED, p.fire_at)
        for number, p, name in zip(numbers, promises, names, strict=True)
    ]


async def _promise_keyed(tx: Transaction, wanted: Promise) -> Kept:
    """1. No promise with this key: make the first. 2. One exists: `on_conflict` says what happens to it."""
    assert wanted.key is not None
    stem = promise_stem(wanted.key, wanted.tenant)
    latest, found = await _latest(tx, stem)
    if found is None:
        return (await _insert(tx, [wanted], [f"{stem}1"], "made"))[0]
    ended = not found.live
    forgotten = ended and wanted.unique_for is not None and made_at(found.number) + wanted.unique_for < tx.now
    if forgotten:
        return (await _insert(tx, [wanted], [f"{stem}{latest + 1}"], "made"))[0]
    match wanted.on_conflict:
        case OnConflict.KEEP:
            return found.kept("kept")
        case OnConflict.ERROR:
            raise Conflict(
                f"the key {wanted.key!r} has a promise already: {found.id} is {found.state}; use another key"
            )
        case OnConflict.REPLACE:
            return await _replace(tx, found, wanted)
        case OnConflict.RENEW:
            if not ended and found.state not in PARKED:
                raise Conflict(
                    f"{found.id} is still {found.state}, so {wanted.key!r} cannot be renewed yet; move, replace or "
                    f"cancel it, or renew it once it has ended"
                )
            return (await _insert(tx, [wanted], [f"{stem}{latest + 1}"], "renewed"))[0]


async def _latest(tx: Transaction, stem: str) -> tuple[int, Found | None]:
    """The newest generation below a stem."""
    best: tuple[int, Found | None] = (0, None)
    for number, name, state, fire_at, live in await tx.all("generations", stem=stem, stem_end=stem[:-1] + "$"):
        which = generation(name, stem)
        if which is not None and which > best[0]:
            best = which, Found(number, name, State(state), fire_at, bool(live))
    return best


async def _replace(tx: Transaction, found: Found, wanted: Promise) -> Kept:
    found = await by_id(tx, found.id, locked=True)
    changed = found.live and await tx.run(
        "replace_promise",
        number=found.number,
        job=wanted.job,
        payload=wanted.payload,
        fire_at=wanted.fire_at,
        useful_until=wanted.useful_until,
        priority=wanted.priority,
        queue=wanted.queue,
        options=wanted.options,
    )
    if not changed:
        raise Conflict(
            f'{found.id} is {found.state} and can no longer be replaced; on_conflict="renew" creates the next '
            "generation after it has ended"
        )
    await tx.stir([found.number])
    return Kept(found.number, found.name, "replaced", State.SCHEDULED, wanted.fire_at)


async def move(
    tx: Transaction, key: str, tenant: str | None, fire_at: Instant, actor: str | None = None, note: str = ""
) -> Kept:
    found = await by_id(tx, (await _by_key(tx, key, tenant)).id, locked=True)
    if not (found.live and await tx.run("move_promise", number=found.number, fire_at=fire_at)):
        raise Conflict(f"{found.id} is {found.state} and can no longer be moved; only runs that have not started can")
    await tx.stir([found.number])
    if actor is None:  # by the app; the audit log has those by people
        await tx.event("moved", found.id, f"from {rfc3339(found.fire_at)} to {rfc3339(fire_at)}")
    else:
        await tx.audit(actor, "move", found.id, f"to {rfc3339(fire_at)}: {note}" if note else f"to {rfc3339(fire_at)}")
    return Kept(found.number, found.name, "moved", State.SCHEDULED, fire_at)


async def cancel_promise(tx: Transaction, key: str, tenant: str | None, actor: str, note: str) -> Kept:
    return await _cancel(tx, (await _by_key(tx, key, tenant)).id, actor, note, Reason.REQUESTED)


async def cancel(tx: Transaction, identifier: str, actor: str, note: str, *, force: bool = False) -> Kept:
    return await _cancel(tx, identifier, actor, note, Reason.OPERATOR, force=force)


async def _cancel(
    tx: Transaction, identifier: str, actor: str, note: str, reason: Reason, *, force: bool = False
) -> Kept:
    found = await by_id(tx, identifier)
    if found.schedule is not None:
        await tx.lock([found.schedule])
    found = await by_id(tx, identifier, locked=True)
    if not found.live or found.state in PARKED:
        raise Conflict(f"{found.id} is {found.state} already")
    is_spread = await tx.value("spreads", number=found.number)
    if found.state is State.VERIFYING and not is_spread:
        raise Conflict(
            f"{found.id} is verifying: its work is done and only its check remains, so it cannot be cancelled"
        )
    if force:
        await _check_can_be_forced(tx, found)
    await tx.audit(actor, "force_cancel" if force else "cancel", found.id, note)
    if found.state is State.RUNNING:
        await tx.run("ask_to_stop", number=found.number, worker=found.worker, reason=reason, note=note)
        if force:
            await tx.run("force_stop", number=found.number, now=tx.now)
        return found.kept("forced" if force else "asked")
    if await _withdraw(tx, found, note or reason):
        return found.kept("withdrawn")._replace(state=State.SCHEDULED)
    if is_spread:
        await spreading.cancel_members(tx, found.id, reason, note)
    ended = after(found.state, Event.CANCEL)
    await following.end(tx, [(found.number, ended, tx.now, reason, note or None, None, None)], [found.number])
    if found.schedule is not None:
        await following.runs_ended(tx, {found.schedule})
    if await tx.one("find_live", number=found.number, name=None) is not None:
        return Kept(found.number, found.name, "parked", after(found.state, Event.MAYBE_FOUND), found.fire_at)
    return Kept(found.number, found.name, "cancelled", ended, found.fire_at)


async def _check_can_be_forced(tx: Transaction, found: Found) -> None:
    row = None if found.worker is None else await tx.one("worker_recycles", worker=found.worker)
    check_can_be_forced(found.id, found.state, found.worker, recycles=None if row is None else bool(row[0]))


async def skip(tx: Transaction, identifier: str, actor: str, note: str) -> Kept:
    found = await by_id(tx, identifier)
    if found.schedule is not None:
        await tx.lock([found.schedule])
    found = await by_id(tx, identifier, locked=True)
    attempt, withdrawn = (await tx.one("begun_of", number=found.number) if found.live else None) or (0, None)
    if not found.live or found.state in PARKED:
        raise Conflict(f"{found.id} is {found.state} already")
    if attempt or found.state in (State.RUNNING, State.VERIFYING):
        raise Conflict(
            f"{found.id} is {found.state} and has started; only runs that have not started can be skipped: cancel "
            "it instead"
        )
    if withdrawn is not None:
        return found.kept("withdrawn")
    await tx.audit(actor, "skip", found.id, note)
    if await _withdraw(tx, found, note):
        return found.kept("withdrawn")._replace(state=State.SCHEDULED)
    ended = after(found.state, Event.SKIP)
    await following.end(tx, [(found.number, ended, tx.now, Reason.OPERATOR, note, None, 1)], [])
    if found.schedule is not None:
        await following.runs_ended(tx, {found.schedule})
    return Kept(found.number, found.name, "skipped", ended, found.fire_at)


async def _withdraw(tx: Transaction, found: Found, note: str) -> bool:
    """Whether it carries its schedule on: then it is skipped by whoever fires, who knows what follows it."""
    if not await tx.run("withdraw_tick", number=found.number, note=note, now=tx.now):
        return False
    await tx.stir([found.number])
    return True


async def _by_key(tx: Transaction, key: str, tenant: str | None) -> Found:
    _, found = await _latest(tx, promise_stem(key, tenant))
    if found is None:
        raise UnknownName(f"there is no promise with the key {key!r}" + (f" for tenant {tenant!r}" if tenant else ""))
    return found


async def by_id(tx: Transaction, identifier: str, *, locked: bool = False) -> Found:
    """Locked, a live run stays as it is until this transaction has ended."""
    number = run_number(identifier)
    row = await tx.one("lock_live" if locked else "find_live", number=number, name=identifier)
    if row is not None:
        return Found(row[0], row[1], State(row[2]), row[3], True, row[4], row[5])
    row = await tx.one("find_ended", number=number, name=identifier)
    if row is not None:
        return Found(row[0], row[1], State(row[2]), row[3], False)
    raise UnknownName(f"there is no run {identifier!r}")
