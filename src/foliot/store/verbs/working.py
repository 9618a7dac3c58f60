"""From handed-off work to a recorded outcome: claims, endings, heartbeats."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from foliot.domain.decisions import too_late
from foliot.domain.identity import attempt_id, run_id
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.state import TERMINAL, UNCHARGED, Outcome, Reason, State, after
from foliot.domain.store import Beat
from foliot.errors import LostOwnership
from foliot.store.verbs.following import end_cancelled, runs_ended
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs

_CHUNKS_AT_ONCE = 64
_firing_order = attrgetter("fire_at", "number")
_HELD_FOR = 250 * MILLISECOND
"""How long a run that somebody's transaction holds is left alone."""
_ALIVE = MINUTE
"""A worker that was heard of within this time counts as one that may know a job."""


async def claim(tx: Transaction, worker: int, queues: Sequence[str], jobs: Sequence[str], limit: int) -> list[Claimed]:
    """Takes chunks in order until the limit is reached; a chunk that is larger than what is left is taken in part."""
    if await tx.one("is_live_instance", number=worker) is None:
        raise LostOwnership(f"worker {worker} was declared dead; it has to register anew")
    claimed: list[Claimed] = []
    known = list(jobs)
    token = 0
    chunks = await tx.all("ready_chunks", queues=list(queues), jobs=known, now=tx.now, limit=_CHUNKS_AT_ONCE)
    for chunk in chunks:
        if len(claimed) >= limit:
            break
        token = token or await tx.token()
        numbers = await _take_numbers(tx, chunk, limit - len(claimed))
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
        )
        # A chunk is in firing order; the engine returns its rows by number.
        claimed.extend(sorted(map(Claimed._make, rows), key=_firing_order))
        if len(rows) < len(numbers):
            await _set_aside(tx, chunk, numbers)
    if claimed:
        await tx.run(
            "add_claim",
            token=token,
            worker=worker,
            now=tx.now,
            open=len(claimed),
            numbers=tx.packed(run.number for run in claimed),
        )
    return claimed


async def _take_numbers(tx: Transaction, chunk: Row, limit: int) -> array[int]:
    numbers = tx.unpacked(chunk[3])
    if len(numbers) > limit:
        await tx.run("shrink_chunk", n=chunk[0], numbers=tx.packed(numbers[limit:]))
        return numbers[:limit]
    await tx.run("drop_chunk", n=chunk[0])
    return numbers


async def put_aside(tx: Transaction) -> None:
    """For engines that claim in one statement: looks at what claims left over."""
    for chunk in await tx.all("aside_chunks"):
        await tx.run("drop_chunk", n=chunk[0])
        await _set_aside(tx, chunk, tx.unpacked(chunk[3]))


async def _set_aside(tx: Transaction, chunk: Row, numbers: array[int]) -> None:
    """Some runs of a chunk were not claimed. Ended ones need nothing. Those that are too late end here; those of jobs
    which this worker does not know wait in a chunk of their own for a worker that does; those that are not due, because
    the clock was set back since they were fired, wait in one until they are, and those that somebody's open transaction
    has its hands on, for a little while. Whatever else is pending was moved or replaced: its owner is told, because
    this chunk may be why it was passed over."""
    _, lane, fired_at, _, queue, priority, _ = chunk
    waiting: dict[tuple[str | None, int], list[int]] = {}
    late: list[int] = []
    schedules: set[str] = set()
    found = await tx.all("unclaimed_runs", numbers=longs(numbers), fired_at=fired_at, queue=queue)
    others = set(numbers) - {row[0] for row in found}
    moved: list[int] = []
    for number, fire_at, own_queue in await tx.all("pending_among", numbers=longs(others)) if others else ():
        if fire_at <= fired_at and own_queue == queue:
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
        else:
            waiting.setdefault((job, 0), []).append(number)
    if late:
        await tx.run_each("end_run", [(n, State.SKIPPED, tx.now, Reason.TOO_LATE, None, None, None) for n in late])
        await tx.run("drop_runs", numbers=longs(late))
        await runs_ended(tx, schedules)
    for (job, ready_at), left in waiting.items():
        common = {"queue": queue, "lane": lane, "priority": priority, "fired_at": fired_at}
        await tx.run("add_job_chunk", job=job, ready_at=ready_at, numbers=tx.packed(left), **common)
        if job is not None:
            await _report_unknown(tx, job)


async def _report_unknown(tx: Transaction, job: str) -> None:
    unknown = not await tx.value("job_is_known", job=job, since=tx.now - _ALIVE)
    if unknown and not await tx.value("event_since", subject=job, kind="unknown_job", since=tx.now - HOUR):
        await tx.event("unknown_job", job, f"no live worker knows the job {job!r}; its due runs wait for one that does")


async def finish(tx: Transaction, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """1. Compare each token with the store's; what does not match is fenced. 2. Terminal endings move to history.
    3. The others go on: to a retry, back to the hand-off, or to a person. 4. What follows: claims close, waiters are
    released, fixed delays get their next run."""
    endings = [ending._replace(error=_visible(ending.error)) for ending in endings]
    numbers = array("q", [ending.number for ending in endings])
    tokens = longs({ending.token for ending in endings})
    owned = {
        number: (token, schedule)
        for number, token, schedule in await tx.all("owned_runs", numbers=longs(numbers), tokens=tokens)
    }
    ended: list[tuple[Ending, State]] = []
    going_on: list[Ending] = []
    fenced: list[Ending] = []
    schedules: set[str] = set()
    closed: defaultdict[int, list[int]] = defaultdict(list)
    matched: set[int] = set()
    for ending in endings:
        token, schedule = owned.get(ending.number, (None, None))
        if token != ending.token:
            if not await tx.value("told_already", number=ending.number, token=ending.token):
                fenced.append(ending)  # its lease was lost: another attempt owns the run, or has ended it
            continue
        if ending.number in matched:
            continue  # said twice in one breath
        matched.add(ending.number)
        closed[token].append(ending.number)
        state = after(State.RUNNING, ending.event)
        if state in TERMINAL:
            ended.append((ending, state))
        else:
            going_on.append(ending)
        if schedule is not None and state not in (State.RETRYING, State.SCHEDULED):
            schedules.add(schedule)
    await _end(tx, worker, ended)
    await _go_on(tx, worker, going_on)
    await close_claims(tx, closed)
    if await tx.value("any_cancellation"):
        await tx.run("drop_cancellations", numbers=longs(matched))
    if schedules:
        await runs_ended(tx, schedules)
    if fenced:
        await _fence(tx, worker, fenced)
    return fenced


def _visible(error: str | None) -> str | None:
    """A NUL ends a text in some engines and is refused by others; its symbol says the same."""
    return error.replace("\0", "\N{SYMBOL FOR NULL}") if error and "\0" in error else error


async def _end(tx: Transaction, worker: int, ended: Sequence[tuple[Ending, State]]) -> None:
    """Runs that end with their attempt. A success is told by the history row alone."""
    if not ended:
        return
    await _remember(tx, worker, [ending for ending, state in ended if state is not State.SUCCEEDED])
    rows = [
        (e.number, state, e.started_at, e.finished_at, *await _why(tx, e, state), e.result and e.result.decode())
        for e, state in ended
    ]
    await tx.run("end_attempts", endings=as_json(rows))
    await tx.run("drop_runs", numbers=longs(array("q", [ending.number for ending, _ in ended])))


async def _why(tx: Transaction, ending: Ending, state: State) -> tuple[str | None, str | None]:
    """Reason and detail. Whoever asked a run to stop said why; the worker only knows that somebody did."""
    asked = await tx.one("cancellation_of", number=ending.number) if state is State.CANCELLED else None
    return (ending.reason, ending.error) if asked is None else (asked[0], asked[1])


async def _remember(tx: Transaction, worker: int, endings: Iterable[Ending]) -> None:
    rows = [(e.number, e.attempt, e.token, e.started_at, e.finished_at, e.outcome, e.error) for e in endings]
    if rows:
        await tx.run("add_attempts", worker=worker, endings=as_json(rows))


async def _go_on(tx: Transaction, worker: int, endings: Sequence[Ending]) -> None:
    """Runs that live on after their attempt."""
    await _remember(tx, worker, endings)
    pending = []
    for ending in endings:
        state = after(State.RUNNING, ending.event)
        spent = 0 if ending.outcome in UNCHARGED else 1
        detail = ending.error.splitlines()[0] if ending.error else None
        await tx.run_each("unend_run", [(ending.number, state, ending.retry_at, spent, ending.reason, detail)])
        if state in (State.RETRYING, State.SCHEDULED):
            pending.append(ending.number)
        elif ending.reason is Reason.BAD_PAYLOAD:
            await tx.event(
                "run_set_aside", run_id(ending.number, await _name_of(tx, ending.number)), ending.error or "bad payload"
            )
    await tx.stir(await end_cancelled(tx, pending))


async def _name_of(tx: Transaction, number: int) -> str | None:
    row = await tx.one("find_live", number=number, name=None)
    return row[1] if row else None


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
        told = f"worker {worker} finished {attempt_id(identifier, ending.attempt)} after its lease was lost; refused"
        await tx.event("fenced", identifier, told)
    # The lost attempt has its row already, under this token: the refused write is told beside it, not over it.
    rows = [(e.number, e.attempt, -e.token, e.started_at, e.finished_at, e.outcome, e.error) for e in refused]
    await tx.run("add_attempts", worker=worker, endings=as_json(rows))


async def give_back(tx: Transaction, worker: int, claimed: Sequence[Claimed]) -> int:
    """Straight back to the hand-off: the run was due, fired and decided upon, and nothing of that has changed."""
    by_token: dict[int, list[int]] = {}
    for run in claimed:
        by_token.setdefault(run.token, []).append(run.number)
    returned: dict[int, tuple[str, int, int]] = {}
    for token, numbers in by_token.items():
        rows = await tx.all("give_back_runs", numbers=longs(numbers), token=token)
        await close_claims(tx, {token: [row[0] for row in rows]})
        returned |= {number: (queue, lane, priority) for number, queue, lane, priority in rows}
    groups: dict[tuple[str, int, int], list[int]] = {}
    for number in await end_cancelled(tx, list(returned)):
        groups.setdefault(returned[number], []).append(number)
    chunks = [(queue, lane, priority, tx.now, tx.packed(back)) for (queue, lane, priority), back in groups.items()]
    await tx.run_each("add_handoff", chunks)
    return len(returned)


async def beat(tx: Transaction, worker: int, progress: Sequence[Progress]) -> Beat:
    known = bool(await tx.run("beat_instance", number=worker, now=tx.now))
    if known and progress:
        await tx.run_each("add_progress", ((p.started_at, p.note, p.checkpoint, p.number, p.token) for p in progress))
    return Beat(known, [row[0] for row in await tx.all("cancellations_of", worker=worker)])
