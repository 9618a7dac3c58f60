"""From handed-off work to a recorded outcome: claims, endings, heartbeats."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from foliot.domain.decisions import TOO_LATE, too_late
from foliot.domain.fairness import UNRANKED, is_put_off
from foliot.domain.identity import attempt_id, run_id
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, Instant
from foliot.domain.labels import can_take, labelled, parted
from foliot.domain.ledger import EffectState
from foliot.domain.policy import labels_of
from foliot.domain.run import Claimed, Ending, Lane, Phase, Progress
from foliot.domain.state import PUT_TO_CHECK, TERMINAL, UNCHARGED, Event, Outcome, Reason, State, after
from foliot.domain.store import ALIVE, Beat, Wish
from foliot.errors import LostOwnership
from foliot.store.verbs import breakers, ledger, pausing
from foliot.store.verbs.following import end, end_cancelled, runs_ended, unend
from foliot.store.verbs.recovering import hand_off_check
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs

_CHUNKS_AT_ONCE = 64
_firing_order = attrgetter("fire_at", "number")
_HELD_FOR = 250 * MILLISECOND
"""How long a run that somebody's transaction holds is left alone."""
_WITHOUT_WORKER = 5 * MINUTE
"""How long a check waits for a worker that has it."""


class Within(NamedTuple):
    """The tenant that a claim is bound to, and the chunks that have runs of it."""

    tenant: str | None
    chunks: Sequence[int]


async def claim(
    tx: Transaction,
    worker: int,
    queues: Sequence[str],
    jobs: Sequence[str],
    limit: int,
    suspects: bool,
    backlog: int | None = None,
    put_off: int | None = None,
    labels: Sequence[str] = (),
    within: Within | None = None,
) -> list[Claimed]:
    """Takes chunks in order until a limit is reached; a chunk that is larger than what is left is taken in part. One
    run under suspicion at most, under a token of its own. `within`: leaves runs of other tenants in their chunks."""
    if await tx.one("is_live_instance", number=worker) is None:
        raise LostOwnership(f"worker {worker} was marked dead; it must register again")
    claimed: list[Claimed] = []
    known = list(jobs)
    tokens: dict[bool, int] = {}
    late = limit if backlog is None else backlog
    put_off = limit if put_off is None else put_off
    broken = list(await breakers.open_breakers(tx))
    paused = await pausing.of_claims(tx)
    takes = known + await _labelled(tx, known, labels) if labels else known
    wanted = {"queues": list(queues), "jobs": takes, "now": tx.now, "suspects": suspects, "limit": _CHUNKS_AT_ONCE}
    waiting: bool | None = None
    found_by = "ready_chunks" if put_off > 0 else "ready_light_chunks"
    if within is not None:
        found_by, wanted = "ready_chunks_among", wanted | {"named": longs(within.chunks)}
    for chunk in await tx.all(found_by, most_lane=Lane.BACKFILL if late > 0 else Lane.LIVE, **wanted):
        room = limit - len(claimed) if chunk[1] == Lane.LIVE else min(limit - len(claimed), late)
        if room <= 0:
            break
        room = min(room, put_off - len(claimed)) if is_put_off(chunk[8]) else room
        if room <= 0:
            continue  # behind it there may be one of somebody who has had less
        alone = bool(chunk[7])
        if alone and (not suspects or True in tokens):
            continue
        foreign = frozenset[int]() if within is None else await _foreign(tx, chunk, within.tenant)
        numbers = await _take_numbers(tx, chunk, room, foreign)
        if not numbers:
            continue  # another claim took them after the search
        token = tokens.get(alone) or await tx.token()
        tokens[alone] = token
        waiting = bool(await tx.value("any_waiting")) if waiting is None else waiting
        rows = await tx.all(
            "claim_runs",
            numbers=longs(numbers),
            token=token,
            worker=worker,
            lane=chunk[1],
            fired_at=chunk[2],
            now=tx.now,
            jobs=known,
            queue=chunk[4],
            broken=broken,
            paused=paused,
            version=chunk[9],
            waiting=waiting,
        )
        # A chunk is in firing order; the engine returns its rows by number.
        claimed.extend(sorted(map(Claimed._make, rows), key=_firing_order))
        late -= 0 if chunk[1] == Lane.LIVE else len(rows)
        if len(rows) < len(numbers):
            await _set_aside(tx, chunk, numbers)
    for token in tokens.values():
        taken = [run.number for run in claimed if run.token == token]
        if taken:
            await tx.run("add_claim", token=token, worker=worker, now=tx.now, open=len(taken), numbers=tx.packed(taken))
    return claimed


async def _labelled(tx: Transaction, jobs: Sequence[str], labels: Sequence[str]) -> list[str]:
    """What waits for labels, and that a worker with these can take."""
    return [row[0] for row in await tx.all("labelled_chunks") if can_take(row[0], jobs, labels)]


Group = tuple[str, int, int, str | None, int, int, int]
"""What the runs of a chunk have in common: queue, lane, priority, the workers it is for (None: all that know the
job), the number of a run that is to be tried alone (0: none), the version, and the rank among chunks of one lane and
priority.

The version of a run counts its changes: it was moved, it was replaced, or an attempt ended and it goes on. A claim
takes a run only in the version that its chunk names. So a chunk from before a change claims nothing, and a run that was
changed is decided upon and handed off again."""


def whom_for(check: str | None, job: str, options: bytes | None) -> str | None:
    """Whom a run is handed off for: whoever knows its job, or has its check, or one of these with labels."""
    needed = labels_of(options)
    return labelled(check or job, needed) if needed else check


def chunks_of(
    tx: Transaction, groups: Mapping[Group, Sequence[int]], most: int = 1 << 30, *, at: Instant = 0
) -> list[tuple[object, ...]]:
    """Rows for `add_handoff`; `at`, if that is still to come."""
    fired_at = max(tx.now, at)
    return [
        (queue, lane, priority, fired_at, tx.packed(numbers[start : start + most]), label, alone > 0, version, rank)
        for (queue, lane, priority, label, alone, version, rank), numbers in groups.items()
        for start in range(0, len(numbers), most)
    ]


async def chunks_within(
    tx: Transaction, tenant: str | None, queues: Sequence[str], jobs: Sequence[str], labels: Sequence[str]
) -> list[int]:
    """The first chunks that a worker bound to a tenant can take runs of, by their numbers."""
    known, found = list(jobs), list[int]()
    takes = known + await _labelled(tx, known, labels) if labels else known
    wanted = {"queues": list(queues), "jobs": takes, "now": tx.now, "suspects": True, "limit": -1}
    for chunk in await tx.all("ready_chunks", most_lane=Lane.BACKFILL, **wanted):
        if len(await _foreign(tx, chunk, tenant)) < len(tx.unpacked(chunk[3])):
            found.append(chunk[0])
        if len(found) == _CHUNKS_AT_ONCE:
            break
    return found


async def _foreign(tx: Transaction, chunk: Row, tenant: str | None) -> frozenset[int]:
    """The runs of a chunk that wait for workers of other tenants. Runs that no longer wait are left out, so that the
    claim removes them from the chunk."""
    rows = await tx.all("pending_of_others", numbers=longs(tx.unpacked(chunk[3])), tenant=tenant)
    return frozenset(row[0] for row in rows)


async def _take_numbers(tx: Transaction, chunk: Row, limit: int, foreign: Collection[int] = ()) -> array[int]:
    """Takes up to `limit` runs of a chunk, in its order, and leaves the others in it."""
    numbers = tx.unpacked(chunk[3])
    taken = array("q", [number for number in numbers if number not in foreign][:limit]) if foreign else numbers[:limit]
    if len(taken) == len(numbers):
        await tx.run("drop_chunk", n=chunk[0])
    elif taken:
        left = set(numbers).difference(taken)
        await tx.run("shrink_chunk", n=chunk[0], numbers=tx.packed(number for number in numbers if number in left))
    return taken


async def put_aside(tx: Transaction) -> None:
    """For engines that claim in one statement: looks at what claims left over."""
    for chunk in await tx.all("aside_chunks"):
        await tx.run("drop_chunk", n=chunk[0])
        await _set_aside(tx, chunk, tx.unpacked(chunk[3]))


async def _set_aside(tx: Transaction, chunk: Row, numbers: array[int]) -> None:
    """Some runs of a chunk were not claimed. Ended ones need nothing. Those that are too late end here; those of jobs
    which this worker does not know wait in a chunk of their own for a worker that does; those that are not due, because
    the clock was set back since they were fired, wait in one until they are, and those that somebody's open transaction
    has its hands on, for a little while. Those whose destination does not answer, or that are paused, are fired anew,
    and held. Whatever
    else is pending was moved or replaced: its owner is told, because this chunk may be why it was passed over."""
    _, lane, fired_at, _, queue, priority, label, alone, rank, version = chunk
    # A check, or what needs labels, stays whose it is.
    is_for_some = label is not None and not {"?", "@"}.isdisjoint(label)
    waiting: dict[tuple[str | None, int], list[int]] = {}
    late: list[int] = []
    schedules: set[str] = set()
    broken = await _bound_in_vain(tx, numbers) | await _paused(tx, numbers)
    found = await tx.all("unclaimed_runs", numbers=longs(numbers), fired_at=fired_at, queue=queue, version=version)
    others = set(numbers) - {row[0] for row in found}
    moved: list[int] = []
    unfired: list[int] = []
    for number, fire_at, own_queue, own in await tx.all("pending_among", numbers=longs(others)) if others else ():
        if fire_at <= fired_at and own_queue == queue and version in (None, own):
            waiting.setdefault((None, tx.now + _HELD_FOR), []).append(number)
        else:
            moved.append(number)
    await tx.stir(moved)
    # Nobody who claims waits for somebody's transaction: what needs a schedule that is held has to.
    wanted = {row[3] for row in found if row[3] is not None and too_late(row[2], tx.now)}
    held = await tx.lock_free(wanted)
    for number, job, useful_until, schedule, fire_at in found:
        if schedule in held:
            waiting.setdefault((None, tx.now + _HELD_FOR), []).append(number)
        elif too_late(useful_until, tx.now):
            late.append(number)
            schedules.update((schedule,) if schedule else ())
        elif fire_at > tx.now:
            waiting.setdefault((None, fire_at), []).append(number)
        elif number in broken:
            unfired.append(number)
        else:
            waiting.setdefault((label if is_for_some else job, 0), []).append(number)
    if unfired:
        await tx.run("unfire_runs", numbers=longs(unfired))
        await tx.stir(unfired)
    if late:
        detail = f"{TOO_LATE}, while it waited for a worker"
        await end(tx, [(n, State.SKIPPED, tx.now, Reason.TOO_LATE, detail, None, None) for n in late], late)
        await runs_ended(tx, schedules)
    for (job, ready_at), left in waiting.items():
        common = {"queue": queue, "lane": lane, "priority": priority, "rank": rank, "fired_at": fired_at}
        common["version"] = version
        wanted_by = label if is_for_some else job
        await tx.run("add_job_chunk", job=wanted_by, ready_at=ready_at, numbers=tx.packed(left), alone=alone, **common)
        if job is not None and not is_for_some:
            await _report_missing(tx, job)


async def _bound_in_vain(tx: Transaction, numbers: array[int]) -> set[int]:
    """Those whose destination does not answer."""
    broken = list(await breakers.open_breakers(tx))
    return {row[0] for row in await tx.all("broken_among", numbers=longs(numbers), broken=broken)} if broken else set()


async def _paused(tx: Transaction, numbers: array[int]) -> set[int]:
    """Those that somebody paused since they were handed off."""
    paused = await pausing.of_claims(tx)
    return {row[0] for row in await tx.all("paused_among", numbers=longs(numbers), paused=paused)} if paused else set()


async def report_waiting(tx: Transaction) -> None:
    """What only some workers can take, and none of them is there: told, because nobody who claims sees it. Checks that
    have waited for long are given up, because their runs keep a schedule busy: a person has to look instead. Keys that
    nobody has any more are forgotten."""
    await tx.run("tidy_slots")
    for (whom,) in await tx.all("wanted_jobs", before=tx.now - ALIVE):
        is_there = await _report_missing(tx, whom)
        if not is_there and parted(whom)[0].endswith("?"):
            await _give_up_checks(tx, whom)


async def _give_up_checks(tx: Transaction, whom: str) -> None:
    for n, fired_at, stored, *of_chunk in await tx.all("stale_chunks", job=whom, before=tx.now - _WITHOUT_WORKER):
        queue, version = of_chunk
        numbers = longs(tx.unpacked(stored))
        schedules = {row[0] for row in await tx.all("schedules_among", numbers=numbers) if row[0] is not None}
        await tx.lock(schedules)
        await tx.run("drop_chunk", n=n)
        waiting = await tx.all("unclaimed_runs", numbers=numbers, fired_at=fired_at, queue=queue, version=version)
        for row in waiting:
            in_doubt = await tx.value("phase_of", number=row[0]) == Phase.DOUBT
            state = after(State.VERIFYING, Event.MAYBE_FOUND if in_doubt else Event.CHECK_REFUSED)
            await unend(tx, row[0], state, None, 0, Reason.CHECK_FAILED, _without_check(whom))
        if schedules:
            await runs_ended(tx, schedules)


def _without_check(whom: str) -> str:
    check, labels = parted(whom)
    having = f", with the labels {', '.join(labels)}," if labels else ""
    return f"no live worker{having} has registered the check of {check[:-1]} for a long time"


async def _report_missing(tx: Transaction, whom: str) -> bool:
    """Whether some live worker takes what is handed off for these; told once an hour where none does."""
    job, needed = parted(whom)
    known = await tx.all("workers_knowing", job=job, since=tx.now - ALIVE)
    if any(set(needed) <= set(json.loads(labels)) for (labels,) in known):
        return True
    name, kind = job.removesuffix("?"), "missing_labels" if known else "unknown_job"
    if not await tx.value("event_since", subject=name, kind=kind, since=tx.now - HOUR):
        if known:
            await tx.event("missing_labels", name, _missing_labels(job, needed))
        else:
            await tx.event("unknown_job", name, _unknown(job))
    return False


def _unknown(job: str) -> str:
    name = job.removesuffix("?")
    if job != name:
        return f"no live worker has registered the check of job {name!r}; its verifying runs wait"
    return f"no live worker has registered job {name!r}; its due runs wait"


def _missing_labels(job: str, needed: Sequence[str]) -> str:
    name = job.removesuffix("?")
    waiting = "its due runs wait" if job == name else "its verifying runs wait"
    return f"no live worker of job {name!r} has the labels {', '.join(needed)}; {waiting}"


async def finish(tx: Transaction, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """1. Compare each token with the store's; what does not match is fenced. 2. Keep the reports of the others.
    3. Terminal endings move to history. 4. The others go on: to a retry, back to the hand-off, or to a person. 5. What
    follows: claims close, waiters are released, fixed delays get their next run."""
    endings = [ending if ending.error is None else _visible(ending) for ending in endings]
    numbers = array("q", [ending.number for ending in endings])
    tokens = longs({ending.token for ending in endings})
    owned = {row[0]: row[1:] for row in await tx.all("owned_runs", numbers=longs(numbers), tokens=tokens)}
    ended: list[tuple[Ending, State]] = []
    going_on: list[tuple[Ending, State]] = []
    fenced: list[Ending] = []
    schedules: set[str] = set()
    closed: defaultdict[int, list[int]] = defaultdict(list)
    matched: set[int] = set()
    reports: list[Progress] = []
    for ending in endings:
        token, schedule, phase = owned.get(ending.number, (None, None, None))
        if token != ending.token:
            said = {"number": ending.number, "token": ending.token, "outcome": ending.outcome}
            if not await tx.value("told_already", **said):
                fenced.append(ending)  # its lease was lost: another attempt owns the run, or has ended it
            continue
        if ending.number in matched:
            continue  # said twice in one breath
        matched.add(ending.number)
        closed[token].append(ending.number)
        if ending.report is not None:
            reports.append(ending.report)
        state = after(State.RUNNING if phase is None else State.VERIFYING, ending.event)
        if state in TERMINAL:
            ended.append((ending, state))
        else:
            going_on.append((ending, state))
        if schedule is not None and state not in (State.RETRYING, State.SCHEDULED, State.VERIFYING):
            schedules.add(schedule)
    # Schedules first, then slots, as firing takes them: nobody waits for another in a circle.
    await tx.lock(schedules)
    await tx.lock_slots(matched)
    await _keep_reports(tx, reports)
    await _end(tx, worker, ended)
    await _go_on(tx, worker, going_on)
    await close_claims(tx, closed)
    if await tx.value("any_cancellation"):
        await tx.run("drop_cancellations", numbers=longs(matched))
    if schedules:
        await runs_ended(tx, schedules)
    if fenced:
        await _fence(tx, worker, fenced)
    contacts = [ending.contact for ending in endings if ending.contact is not None]
    if contacts:
        await breakers.heard(tx, contacts)
    return fenced


def _visible(ending: Ending) -> Ending:
    """A NUL ends a text in some engines and is refused by others; its symbol says the same."""
    return ending._replace(error=(ending.error or "").replace("\0", "\N{SYMBOL FOR NULL}"))


async def _end(tx: Transaction, worker: int, ended: Sequence[tuple[Ending, State]]) -> None:
    """Runs that end with their attempt. A success is told by the history row alone."""
    if not ended:
        return
    await _remember(tx, worker, [ending for ending, state in ended if state is not State.SUCCEEDED])
    for ending, state in ended:
        if state is State.VERIFIED:
            lineage = await ledger.lineage_of(tx, ending.number)
            await ledger.settle_open(tx, lineage, EffectState.DONE, "the check of the whole run passed")
    rows = [
        (e.number, state, e.started_at, e.finished_at, *await _why(tx, e, state), e.result and e.result.decode())
        for e, state in ended
    ]
    await tx.run("end_attempts", endings=as_json(rows))
    await tx.run("drop_runs", numbers=longs(array("q", [ending.number for ending, _ in ended])))


async def _why(tx: Transaction, ending: Ending, state: State) -> tuple[str | None, str | None]:
    """Reason and detail. Whoever asked a run to stop said why; the worker only knows that somebody did."""
    if state is State.VERIFIED:
        return None, ending.scope
    asked = await tx.one("cancellation_of", number=ending.number) if state is State.CANCELLED else None
    return (ending.reason, ending.error) if asked is None else (asked[0], asked[1])


async def _remember(tx: Transaction, worker: int, endings: Iterable[Ending]) -> None:
    rows = [
        (e.number, e.attempt, e.token, e.started_at, e.finished_at, e.outcome, e.error, e.stage, e.reason)
        for e in endings
    ]
    if rows:
        await tx.run("add_attempts", worker=worker, endings=as_json(rows))


async def _go_on(tx: Transaction, worker: int, endings: Sequence[tuple[Ending, State]]) -> None:
    """Runs that live on after their attempt."""
    await _remember(tx, worker, [ending for ending, _ in endings])
    pending = []
    endings = await _by_budget(tx, endings)
    for ending, state in endings:
        if ending.event in PUT_TO_CHECK:
            await _put_to_check(tx, ending)
            continue
        if ending.event is Event.RETRY_GRANTED and ending.retries_per_hour is not None:
            ending = await _within_budget(tx, ending, ending.retries_per_hour)
        spent = 0 if ending.outcome in UNCHARGED else 1
        await unend(
            tx,
            ending.number,
            state,
            ending.retry_at,
            spent,
            ending.reason,
            _first_line(ending.scope or ending.error),
            ending.deaths,
        )
        if state in (State.RETRYING, State.SCHEDULED, State.VERIFYING):
            pending.append(ending.number)
        elif ending.reason is Reason.BAD_PAYLOAD:
            await tx.event(
                "run_set_aside", run_id(ending.number, await _name_of(tx, ending.number)), ending.error or "bad payload"
            )
    await tx.stir(await end_cancelled(tx, pending))


async def _put_to_check(tx: Transaction, ending: Ending) -> None:
    """Its work is done, or nobody knows: what is known is committed with this, and the check is handed off."""
    phase = Phase.CHECK if ending.event is Event.CHECK_DUE else Phase.DOUBT
    values = {"phase": phase, "result": ending.result, "started_at": ending.started_at}
    row = await tx.one("put_to_check", number=ending.number, detail=_first_line(ending.error), **values)
    assert row is not None  # it is ours
    await hand_off_check(tx, ending.number, *row)


async def _within_budget(tx: Transaction, ending: Ending, per_hour: int) -> Ending:
    """Retries of a job beyond its budget wait for the first hour that has room: the one that is being filled."""
    job = await tx.value("job_of", number=ending.number)
    this_hour = tx.now // HOUR
    row = await tx.one("budget_of", job=job)
    hour, spent = (this_hour, 0) if row is None or row[0] < this_hour else (int(row[0]), int(row[1]))
    if spent >= per_hour:
        hour, spent = hour + 1, 0
    await tx.run("put_budget", job=job, hour=hour, spent=spent + 1)
    if hour == this_hour:
        return ending
    return ending._replace(retry_at=max(ending.retry_at or 0, hour * HOUR), reason=Reason.BUDGET)


def _first_line(text: str | None) -> str | None:
    return text.splitlines()[0] if text else None


async def _name_of(tx: Transaction, number: int) -> str | None:
    row = await tx.one("find_live", number=number, name=None)
    return row[1] if row else None


async def _by_budget(tx: Transaction, endings: Sequence[tuple[Ending, State]]) -> Sequence[tuple[Ending, State]]:
    """In the order of their jobs where budgets are drawn on, so that two who finish never wait for one another."""
    drawing = [one for one in endings if one[0].retries_per_hour is not None]
    if len(drawing) < 2:
        return endings
    jobs = {ending.number: await tx.value("job_of", number=ending.number) for ending, _ in drawing}
    return sorted(endings, key=lambda one: jobs.get(one[0].number, ""))


async def close_claims(tx: Transaction, closed: Mapping[int, Sequence[int]]) -> None:
    """These runs are no longer of these claims; a claim without runs goes."""
    if closed:
        rows = [(token, tx.packed(numbers), len(numbers)) for token, numbers in sorted(closed.items())]
        await tx.run_each("close_claim", rows)
        await tx.run("drop_claims", tokens=longs(closed))


async def _fence(tx: Transaction, worker: int, fenced: Sequence[Ending]) -> None:
    """A late write of an attempt that lost its lease: it changes nothing, and is remembered as refused."""
    refused = [ending._replace(outcome=Outcome.FENCED) for ending in fenced]
    for ending in refused:
        row = await tx.one("find_live", number=ending.number, name=None) or await tx.one(
            "find_ended", number=ending.number, name=None
        )
        identifier = run_id(ending.number, row[1] if row else None)
        detail = f"worker {worker} finished {attempt_id(identifier, ending.attempt)} after its lease expired; refused"
        await tx.event("fenced", identifier, detail)
    # The lost attempt has its row already, under this token: the refused write is told beside it, not over it.
    rows = [
        (e.number, e.attempt, -e.token, e.started_at, e.finished_at, e.outcome, e.error, e.stage, None) for e in refused
    ]
    await tx.run("add_attempts", worker=worker, endings=as_json(rows))


async def give_back(tx: Transaction, worker: int, claimed: Sequence[Claimed]) -> int:
    """Straight back to the hand-off: the run was fired and decided upon, and nothing of that has changed. A standby has
    no slot, and is fired again."""
    by_token: dict[int, list[int]] = {}
    for run in claimed:
        by_token.setdefault(run.token, []).append(run.number)
    returned: dict[int, tuple[Instant, str, int, int, str | None, bool, int]] = {}
    standbys: set[int] = set()
    for token, numbers in by_token.items():
        rows = await tx.all("give_back_runs", numbers=longs(numbers), token=token)
        await close_claims(tx, {token: [row[0] for row in rows]})
        for number, queue, lane, priority, check, alone, job, options, fire_at, version, is_standby in rows:
            standbys.update((number,) if is_standby else ())
            label = whom_for(check, job, options)
            returned[number] = (fire_at, queue, lane, priority, label, bool(alone), version)
    groups: dict[bool, dict[Group, list[int]]] = {True: {}, False: {}}
    going_on = await end_cancelled(tx, list(returned))
    unfired = sorted(standbys.intersection(going_on))
    if unfired:
        await tx.run("unfire_runs", numbers=longs(unfired))
        await tx.stir(unfired)
    for number in going_on:
        if number in standbys:
            continue
        fire_at, queue, lane, priority, label, alone, version = returned[number]
        # They had their turn, and have it again.
        group = queue, lane, priority, label, number if alone else 0, version, UNRANKED
        groups[fire_at <= tx.now].setdefault(group, []).append(number)
    last = max((one[0] for one in returned.values()), default=0)
    await tx.run_each("add_handoff", chunks_of(tx, groups[True]))
    await tx.run_each("add_handoff", chunks_of(tx, groups[False], at=last))  # claimed before their time
    return len(returned)


async def beat(
    tx: Transaction, worker: int, progress: Sequence[Progress], patient: bool, leaving: bool = False
) -> Beat:
    row = await tx.one("beat_worker", number=worker, now=tx.now, leaving_at=tx.now if leaving else None)
    known = row is not None
    unheard: list[int] = []
    if known and progress:
        owned = {"numbers": longs([p.number for p in progress]), "tokens": longs({p.token for p in progress})}
        rows = await tx.all("owned_runs" if patient else "free_runs", **owned)
        tokens = {row[0]: row[1] for row in rows}
        unheard = [p.number for p in progress if tokens.get(p.number) != p.token]
        await _keep_reports(tx, [p for p in progress if tokens.get(p.number) == p.token])
    wish = None if row is None or row[0] is None else Wish(row[0])
    asked = await tx.all("cancellations_of", worker=worker)
    forced = frozenset(number for number, is_forced in asked if is_forced)
    return Beat(known, [number for number, _ in asked], frozenset(unheard), wish, forced)


async def _keep_reports(tx: Transaction, reports: Sequence[Progress]) -> None:
    """Keeps progress, checkpoints and items of attempts that own their runs."""
    if not reports:
        return
    rows = [(p.started_at, p.note, p.checkpoint, p.number, p.token, p.ending) for p in reports]
    await tx.run_each("add_progress", rows)
    await ledger.put_items(tx, [(p.number, item) for p in reports for item in p.items])
