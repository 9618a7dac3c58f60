"""Who is there, and who fell silent."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import msgspec

from foliot.domain.identity import attempt_id, run_id
from foliot.domain.instant import WEEK, Duration, Instant
from foliot.domain.ledger import Facts, traits_from_json
from foliot.domain.policy import Policy, policy_from_json
from foliot.domain.run import Loss, Phase, SilentAttempt
from foliot.domain.state import PENDING, PUT_TO_CHECK, Outcome, State, after
from foliot.domain.store import Instance, JobCard, Wish, check_of
from foliot.errors import InvalidInput, UnknownName
from foliot.store import process
from foliot.store.verbs import gates, ledger
from foliot.store.verbs.following import end_cancelled, runs_ended, unend
from foliot.store.verbs.recovering import hand_off_check
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs
from foliot.store.verbs.working import close_claims


async def silent(tx: Transaction, beat_before: Instant) -> list[SilentAttempt]:
    attempts: list[SilentAttempt] = []
    for worker, host, pid, birth, beat_at, gone_at, leaving_at, slots in await tx.all("working_instances"):
        gone = host is None or gone_at is not None or process.is_gone(host, pid, birth)
        # A beat from the future was made by a clock that has been set back since: it says nothing.
        if not gone and beat_before <= beat_at <= tx.now:
            continue
        claimed = await _claimed(tx, worker, beat_at, gone)
        if slots is not None:
            claimed = [one._replace(slots=slots) for one in claimed]
        if leaving_at is not None:
            claimed = [one._replace(ending=one.ending or Outcome.INTERRUPTED) for one in claimed]
        forced = await _forced(tx, worker) if claimed else set()
        # The operator decided after whatever the worker recorded.
        claimed = [one._replace(ending=Outcome.CANCELLED) if one.number in forced else one for one in claimed]
        attempts += claimed
    return await _with_facts(tx, attempts)


async def _forced(tx: Transaction, worker: int) -> set[int]:
    """The runs of a worker whose cancellation an operator forced."""
    return {number for number, forced in await tx.all("cancellations_of", worker=worker) if forced}


async def attempts_of(tx: Transaction, worker: int) -> list[SilentAttempt]:
    return await _with_facts(tx, await _claimed(tx, worker, tx.now, gone=False))


async def _claimed(tx: Transaction, worker: int, beat_at: Instant, gone: bool) -> list[SilentAttempt]:
    attempts: list[SilentAttempt] = []
    for token, numbers in await tx.all("claims_of", worker=worker):
        rows = await tx.all("claimed_runs", numbers=tx.unpacked(numbers), token=token)
        attempts.extend(_silent(row, worker, beat_at, gone) for row in rows)
    return attempts


async def _with_facts(tx: Transaction, attempts: Sequence[SilentAttempt]) -> list[SilentAttempt]:
    numbers = [one.number for one in attempts]
    facts = await ledger.facts_of(tx, numbers)
    losses = {row[0]: row[1] for row in await tx.all("losses_of", numbers=longs(numbers))} if numbers else {}
    return [one._replace(facts=facts.get(one.number, one.facts), losses=losses.get(one.number, 0)) for one in attempts]


def _silent(row: Row, worker: int, beat_at: Instant, gone: bool) -> SilentAttempt:
    *known, phase, deaths, ending, tenant, queue = row
    ended_as = None if ending is None else Outcome(ending)
    said = (*known, beat_at, gone, worker, phase, deaths, ended_as, Facts(), tenant, queue)
    slots, losses = 1, 0  # read later, for all at once
    return SilentAttempt._make((*said, slots, losses))


async def lose(tx: Transaction, losses: Sequence[Loss]) -> int:
    closed: defaultdict[int, list[int]] = defaultdict(list)
    schedules: set[str] = set()
    workers: set[int] = set()
    pending: list[int] = []
    lost: list[int] = []
    for loss in sorted(losses, key=attrgetter("token")):  # everybody locks claims in this order
        row = await tx.one("lost_run", number=loss.number, token=loss.token)
        if row is None:
            continue  # it finished, or somebody else lost it, before we could: its verdict stands
        if loss.facts is not None and not await _is_all_known(tx, loss.number, loss.facts):
            continue  # it did something more before it vanished: the next look decides, and knows that
        _, name, worker, schedule, phase = row
        state = after(State.RUNNING if phase is None else State.VERIFYING, loss.event)
        ended = (loss.number, loss.attempt, loss.token, None, tx.now, loss.outcome, loss.error, loss.stage, loss.reason)
        await tx.run("add_attempts", worker=worker, endings=as_json([ended]))
        identifier = run_id(loss.number, name)
        detail = f"{attempt_id(identifier, loss.attempt)} on worker {worker}: {loss.error}"
        await tx.event(str(loss.outcome), identifier, detail)
        if loss.event in PUT_TO_CHECK:
            await _put_to_check(tx, loss)
        else:
            charge = int(loss.charged)
            await unend(tx, loss.number, state, loss.retry_at, charge, loss.reason, loss.error, loss.deaths)
        lost.append(loss.number)
        closed[loss.token].append(loss.number)
        workers.add(worker)
        if loss.event in PUT_TO_CHECK:
            continue
        if state in PENDING or state is State.VERIFYING:
            pending.append(loss.number)
        elif schedule is not None:
            schedules.add(schedule)
    await tx.stir(await end_cancelled(tx, pending))
    await tx.run("drop_cancellations", numbers=longs(lost))
    await close_claims(tx, closed)
    for worker in workers:
        # An instance without claims that fell silent has nothing left to say under this number.
        if not await tx.value("open_claims_of", worker=worker):
            await tx.run("end_instance", number=worker, now=tx.now)
    if schedules:
        await runs_ended(tx, schedules)
    return len(lost)


async def _is_all_known(tx: Transaction, number: int, facts: Facts) -> bool:
    """Whether the ledger still has the effects that the decision was about: it was read in another transaction, maybe
    just before the last effect began."""
    now = (await ledger.facts_of(tx, [number])).get(number, Facts())
    return (now.done, now.open, now.maybe) == (facts.done, facts.open, facts.maybe)


async def _put_to_check(tx: Transaction, loss: Loss) -> None:
    """Nobody knows whether its work was done: its check is asked first."""
    values = {"phase": Phase.DOUBT, "result": None, "started_at": None, "detail": loss.error}
    row = await tx.one("put_to_check", number=loss.number, **values)
    assert row is not None  # it is locked
    await hand_off_check(tx, loss.number, *row)


async def jobs(tx: Transaction) -> dict[str, JobCard]:
    return {row[0]: JobCard(*row) for row in await tx.all("all_jobs")}


class Identity(NamedTuple):
    """Which process it is that enters."""

    host: str
    pid: int
    birth: str


def _this_process() -> Identity:
    return Identity(process.this_host(), os.getpid(), process.birth_of(os.getpid()))


async def put_cards(tx: Transaction, cards: Sequence[JobCard]) -> None:
    rows = [(c.name, c.policy, c.queue, c.owner, c.runbook, c.changes, tx.now, c.traits) for c in cards]
    await tx.run_each("put_job", rows)


async def register(
    tx: Transaction,
    role: str,
    version: str,
    queues: Sequence[str],
    slots: int,
    cards: Sequence[JobCard],
    release: str,
    labels: Sequence[str],
    reserved: Mapping[str, int],
    identity: Identity | None = None,
    *,
    recycles: bool = False,
) -> Instance:
    await _tidy_instances(tx)
    host, pid, birth = identity or _this_process()
    number = await tx.value(
        "add_instance",
        role=role,
        host=host,
        pid=pid,
        birth=birth,
        version=version,
        queues=as_json(list(queues)),
        jobs=as_json([name for card in cards for name in _taken(card)]),
        slots=slots,
        now=tx.now,
        release=release,
        labels=as_json(list(labels)),
        reserved=as_json(dict(reserved)),
        recycles=recycles,
    )
    await put_cards(tx, cards)
    if cards:
        await gates.declare_jobs(tx, {card.name: _policy(card) for card in cards})
    entered = Instance(number, role, host, pid, version, tx.now, tx.now, tuple(queues), slots)
    return replace(entered, labels=tuple(labels), reserved=dict(reserved), recycles=recycles)


def _policy(card: JobCard) -> Policy:
    try:
        return policy_from_json(card.policy)
    except InvalidInput:  # whoever executes its runs tells that
        return Policy()


def _taken(card: JobCard) -> list[str]:
    """What a worker that knows the job can take of it."""
    checked = traits_from_json(card.traits).checked
    return [card.name, check_of(card.name)] if checked else [card.name]


async def _tidy_instances(tx: Transaction) -> None:
    """A killed process never says goodbye: those that are known to be gone, and own nothing, are ended here.

    Of those that own runs this is recorded: the watch may be on a host that cannot see their processes."""
    for number, host, pid, birth in await tx.all("unended_instances"):
        if process.is_gone(host, pid, birth):
            owns = await tx.value("open_claims_of", worker=number)
            await tx.run("record_gone" if owns else "end_instance", number=number, now=tx.now)
    await tx.run("forget_instances", before=tx.now - WEEK)


async def retire(tx: Transaction, instance: int) -> None:
    await tx.run("end_instance", number=instance, now=tx.now)


async def instances(tx: Transaction) -> list[Instance]:
    """Those that have not ended in order, nor are known to be gone."""
    living = []
    for row in await tx.all("live_instances"):
        number, role, host, pid, version, started_at, beat_at, queues, slots, ended_at, birth, *more = row
        if not process.is_gone(host, pid, birth):
            low, high, fenced, labels, reserved, wish, note, recycles = more
            known = Instance(number, role, host, pid, version, started_at, beat_at, _listed(queues), slots)
            kept = msgspec.json.decode(reserved, type=dict[str, int])
            known = replace(known, ended_at=ended_at, labels=_listed(labels), reserved=kept)
            known = replace(known, wish=None if wish is None else Wish(wish), wish_note=note, recycles=bool(recycles))
            living.append(replace(known, offset_low=low, offset_high=high, fenced=bool(fenced)))
    return living


def _listed(stored: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(stored, type=list[str]))


async def wish(tx: Transaction, worker: int, wanted: Wish | None, actor: str, note: str) -> bool:
    row = await tx.one("lock_worker", number=worker)
    if row is None:
        raise UnknownName(f"worker {worker} does not exist or has ended; see foliot workers list")
    if row[0] == wanted:
        return False
    await tx.run("wish_worker", number=worker, wish=wanted, note=None if wanted is None else f"{actor}: {note}")
    await tx.audit(actor, "resume" if wanted is None else wanted, f"worker:{worker}", note)
    return True


async def report_clock(tx: Transaction, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
    await tx.run("report_clock", number=instance, low=low, high=high, fenced=fenced)
