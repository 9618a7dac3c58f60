"""What people decide about runs that came to no good end, and about doing them again."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.fairness import UNRANKED
from foliot.domain.identity import first_of_lineage, rerun_stem, run_id, run_number
from foliot.domain.instant import Instant
from foliot.domain.labels import labelled
from foliot.domain.ledger import EffectState, EffectView, Settled, Then, is_unfinished
from foliot.domain.policy import labels_of
from foliot.domain.run import Kept, Lane, Phase
from foliot.domain.state import PARKED, TERMINAL, Event, Reason, State, after, stored_state
from foliot.domain.store import check_of
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import following, ledger, spreading
from foliot.store.verbs.promises import Found, by_id
from foliot.store.verbs.transaction import Transaction, longs

_NAMED = 5
"""At most this many effects are named in an audit entry."""


async def retry(tx: Transaction, identifier: str, actor: str, note: str, override: bool, action: str = "retry") -> Kept:
    found = await _parked(tx, identifier, "retried")
    lineage = await ledger.lineage_of(tx, found.number)
    await _refuse_busy(tx, found, lineage)
    open_effects = [one for one in await ledger.effects_of(tx, lineage) if one.state is EffectState.STARTED]
    overridden = override and bool(note)
    if found.state is State.AMBIGUOUS and not overridden:
        raise Conflict(
            f"{found.id} is ambiguous: its effect may have happened. Find out first whether it happened; to retry "
            "the run anyway, give an override and a reason"
        )
    if any(one.is_maybe for one in open_effects) and not overridden:
        raise Conflict(
            f"{found.id} has an effect that started and has no recorded outcome: {open_effects[0].name} "
            f"{open_effects[0].key}. Find out first whether it happened; to retry the run anyway, give an "
            "override and a reason"
        )
    if overridden and open_effects:
        await ledger.settle_maybes(tx, lineage, EffectState.NOT_DONE, f"{actor} overrode the advice: {note}")
    await tx.audit(actor, action, found.id, _with_override(note, overridden and bool(open_effects)))
    return await _revive(tx, found, "retried")


async def _revive(tx: Transaction, found: Found, outcome: str) -> Kept:
    due = after(found.state, Event.RETRY_ORDERED)
    await tx.run("revive_run", number=found.number, state=stored_state(found.state), due=due, now=tx.now)
    await tx.stir([found.number])
    return Kept(found.number, found.name, outcome, due, tx.now)


async def recheck(tx: Transaction, identifier: str, actor: str, note: str) -> Kept:
    found = await _parked(tx, identifier, "verified again")
    if found.state is State.DEAD:
        raise Conflict(f"{found.id} is dead: it has no result to check; retry or reconcile the run")
    if found.state is State.SETTLED:
        raise Conflict(
            f"{found.id} is settled: part of its work is not done, so it cannot be checked yet; resume the run first"
        )
    await _refuse_busy(tx, found, await ledger.lineage_of(tx, found.number))
    if await spreading.gather_again(tx, found.number, found.state):
        await tx.audit(actor, "verify", found.id, note)
        return Kept(found.number, found.name, "rechecked", after(found.state, Event.RECHECK_ORDERED), found.fire_at)
    phase = Phase.DOUBT if found.state is State.AMBIGUOUS else Phase.CHECK
    row = await tx.one("recheck_run", number=found.number, state=found.state, phase=phase, now=tx.now)
    assert row is not None  # it is locked
    await tx.audit(actor, "verify", found.id, note)
    await hand_off_check(tx, found.number, *row)
    return Kept(found.number, found.name, "rechecked", after(found.state, Event.RECHECK_ORDERED), found.fire_at)


async def hand_off_check(
    tx: Transaction,
    number: int,
    queue: str,
    lane: int,
    priority: int,
    job: str,
    alone: bool,
    options: bytes | None,
    version: int,
) -> None:
    """Straight to the workers that have the job's check, and the labels that the run needs."""
    whom = labelled(check_of(job), labels_of(options))
    chunk = (queue, lane, priority, tx.now, tx.packed([number]), whom, bool(alone), version, UNRANKED)
    await tx.run_each("add_handoff", [chunk])


async def reconcile(
    tx: Transaction,
    identifier: str,
    settled: Sequence[Settled],
    actor: str,
    evidence: str,
    note: str,
    then: Then | None,
) -> Kept:
    """1. Record the answers. 2. Look which effects are in doubt, and whether work is left. 3. Close, resume or park."""
    found = await _parked(tx, identifier, "reconciled", waiting=True)
    lineage = await ledger.lineage_of(tx, found.number)
    for one in settled:
        detail = f"{actor}: {evidence}"
        if not await ledger.settle(tx, lineage, one.name, one.key, one.state, detail):
            raise Conflict(f"the ledger of {found.id} has no effect {one.name} {one.key}; no change was made")
    effects = await ledger.effects_of(tx, lineage)
    in_doubt = [one for one in effects if one.state is EffectState.STARTED]
    batches = (await ledger.batches_of(tx, [lineage])).get(lineage, [])
    returned = found.state in (State.UNVERIFIED, State.VERIFYING)
    unfinished = is_unfinished(effects, batches, returned=returned)
    await tx.audit(actor, "reconcile", found.id, _noted(settled, evidence, note, then))
    if then is Then.CLOSE:
        return await _close(tx, found, evidence, note, unfinished=unfinished or bool(in_doubt))
    if in_doubt and (then is Then.RESUME or not settled):
        raise Conflict(_unanswered(found, in_doubt))
    if then is Then.RESUME:
        return await _resume(tx, found, lineage, evidence)
    if in_doubt:
        return found.kept("recorded")
    if unfinished:
        return (await _park_settled(tx, found, evidence)).kept("settled")
    await _end_reconciled(tx, found, evidence)
    return Kept(found.number, found.name, "reconciled", State.RECONCILED, found.fire_at)


def _noted(settled: Sequence[Settled], evidence: str, note: str, then: Then | None) -> str:
    named = [f"{one.name}:{one.key}={one.state}" for one in settled[:_NAMED]]
    if len(settled) > _NAMED:
        named.append(f"{len(settled) - _NAMED:,} more")
    parts = (", ".join(named), then and f"then {then}", note, evidence and f"evidence: {evidence}")
    return "; ".join(part for part in parts if part)


def _unanswered(found: Found, in_doubt: Sequence[EffectView]) -> str:
    first, more = in_doubt[0], len(in_doubt) - 1
    others = f" and {more:,} more" if more else ""
    return (
        f"{found.id}: the state of {first.name}:{first.key}{others} is missing, and no change was made. "
        f"Give {first.name}:{first.key}=done or =not_done, or close the run with a reason"
    )


async def _close(tx: Transaction, found: Found, evidence: str, note: str, *, unfinished: bool) -> Kept:
    if not note:
        raise Conflict(f"{found.id}: closing a run without doing its remaining work requires a reason")
    if not unfinished:
        await _end_reconciled(tx, found, evidence or note)
    else:
        detail = "; ".join(filter(None, (evidence, f"the remaining work is not needed: {note}")))
        await _end_reconciled(tx, found, detail, Reason.NOT_NEEDED)
    return Kept(found.number, found.name, "closed", State.RECONCILED, found.fire_at)


async def _resume(tx: Transaction, found: Found, lineage: int, evidence: str) -> Kept:
    if found.state is State.VERIFYING:
        raise Conflict(f"{found.id} waits for its check and cannot be resumed: the check decides its next state")
    await _refuse_busy(tx, found, lineage)
    return await _revive(tx, await _park_settled(tx, found, evidence), "resumed")


async def _park_settled(tx: Transaction, found: Found, evidence: str) -> Found:
    if found.state is State.VERIFYING:
        after(found.state, Event.SETTLED)
        await following.unend(tx, found.number, State.AMBIGUOUS, None, 0, Reason.SETTLED, evidence)
        if found.schedule is not None:
            await following.runs_ended(tx, {found.schedule})
    else:
        state = found.state if found.state is State.SETTLED else after(found.state, Event.SETTLED)
        assert state is State.SETTLED
        await tx.run("settle_run", number=found.number, state=stored_state(found.state), detail=evidence)
    return found._replace(state=State.SETTLED)


async def _end_reconciled(tx: Transaction, found: Found, evidence: str, reason: Reason = Reason.OPERATOR) -> None:
    state = after(found.state, Event.RECONCILED)
    await tx.run_each("end_run", [(found.number, state, tx.now, reason, evidence, None, None)])
    await tx.run("drop_runs", numbers=longs([found.number]))
    if found.schedule is not None:
        await following.runs_ended(tx, {found.schedule})


async def rerun(
    tx: Transaction,
    identifier: str,
    repair: bool,
    repeat: Sequence[str],
    override: bool,
    actor: str,
    note: str,
    lane: Lane,
    due_at: Instant,
) -> Kept:
    """1. The run has ended, or is parked; and so has every other of its lineage. 2. Its ledger has no open end, unless
    somebody answers for that. 3. A parked run is replaced by the new one."""
    await tx.lock_all()  # two at once would choose one name
    found = await by_id(tx, identifier)
    if found.schedule is not None:
        await tx.lock([found.schedule])
    found = await by_id(tx, identifier, locked=True)
    if found.state not in PARKED | TERMINAL:
        raise Conflict(f"{found.id} is {found.state}; only ended runs can be rerun")
    source = await tx.one("rerun_source", number=found.number)
    assert source is not None  # it is one or the other
    lineage = await lineage_number(tx, found.id)
    await _refuse_busy(tx, found, lineage)
    await _answer_for_ledger(tx, found, lineage, repeat, override, actor, note)
    stem = rerun_stem(found.id)
    taken = [row[0] for row in await tx.all("reruns_of", stem=stem, stem_end=stem[:-1] + "s")]
    name = f"{stem}{1 + max((int(one.removeprefix(stem)) for one in taken), default=0)}"
    [number] = await tx.numbers(1)
    due = max(due_at, tx.now)
    _, _, job, payload, schedule, revision, tenant, queue, priority, options, nominal, since, member_set = source
    await tx.run(
        "insert_rerun",
        number=number,
        name=name,
        lane=lane,
        priority=priority,
        job=job,
        payload=payload,
        due=due,
        nominal=nominal,
        since=since,
        schedule=schedule,
        revision=revision,
        tenant=tenant,
        queue=queue,
        options=options,
        lineage=lineage,
        repair=True if repair else None,
        member_set=member_set,
    )
    await tx.added([number])
    await spreading.remember_recounts(tx, [number])
    await tx.audit(actor, "repair" if repair else "rerun", found.id, f"{name}: {note}")
    await tx.audit(actor, "repair" if repair else "rerun", name, f"rerun of {found.id}: {note}")
    if found.live:
        await _end_reconciled(tx, found, f"replaced by rerun {name}")
    return Kept(number, name, "rerun", State.SCHEDULED, due)


async def _refuse_busy(tx: Transaction, found: Found, lineage: int) -> None:
    busy = await tx.one("busy_of_lineage", lineage=lineage)
    if busy is not None:
        raise Conflict(
            f"{run_id(busy[0], busy[1])} is a rerun of {found.id} and has not ended; wait for its end, or cancel it"
        )


async def _answer_for_ledger(
    tx: Transaction, found: Found, lineage: int, repeat: Sequence[str], override: bool, actor: str, note: str
) -> None:
    effects = await ledger.effects_of(tx, lineage)
    unknown = set(repeat) - {one.name for one in effects}
    if unknown:
        raise Conflict(f"the ledger of {found.id} has no effect {sorted(unknown)[0]!r} to repeat")
    open_effects = [one for one in effects if one.state is EffectState.STARTED]
    doubted = await tx.one("doubted_of_lineage", lineage=lineage)
    in_doubt = doubted is not None or bool(open_effects)
    if (in_doubt or repeat) and not (override and note):
        what = (
            "completed work would be done again" if repeat and not in_doubt else "one of its effects may have happened"
        )
        raise Conflict(f"{found.id}: {what}. To rerun the run anyway, give an override and a reason")
    if open_effects:
        await ledger.settle_maybes(tx, lineage, EffectState.NOT_DONE, f"{actor} overrode the advice: {note}")
    if repeat:
        detail = f"{actor} requested the repetition: {note}"
        await tx.run("undo_done", lineage=lineage, names=list(repeat), now=tx.now, note=detail)


async def lineage_number(tx: Transaction, identifier: str) -> int:
    """The number of a lineage's first run, whether the run is that one or repeats it, lives or has ended."""
    first = first_of_lineage(identifier)
    number = run_number(first)
    if number is not None:
        return number
    row = await tx.one("lineage_by_name", name=identifier)
    if row is None:
        raise UnknownName(f"there is no run {identifier!r}")
    return int(row[0])


async def _parked(tx: Transaction, identifier: str, what: str, *, waiting: bool = False) -> Found:
    """Locked, with its schedule, so that whatever follows from its end can be done. `waiting`: or it waits for its
    check, which no worker may have any more."""
    found = await by_id(tx, identifier)
    if found.schedule is not None:
        await tx.lock([found.schedule])
    found = await by_id(tx, identifier, locked=True)
    waits = waiting and found.state is State.VERIFYING and found.worker is None
    if not found.live or (found.state not in PARKED and not waits):
        raise Conflict(f"{found.id} is {found.state}; only dead, unverified, ambiguous and settled runs can be {what}")
    await spreading.remember_recounts(tx, [found.number])
    return found


def _with_override(note: str, overridden: bool) -> str:
    return f"{note} (despite ambiguous effects)" if overridden else note
