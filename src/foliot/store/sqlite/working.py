"""From handed-off work to a recorded outcome: claims, endings, heartbeats."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from foliot.domain.decisions import too_late
from foliot.domain.identity import attempt_id, run_id
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.state import TERMINAL, UNCHARGED, Outcome, Reason, State, after
from foliot.domain.store import Beat
from foliot.errors import LostOwnership
from foliot.store.sqlite.following import as_json, end_cancelled, runs_ended
from foliot.store.sqlite.transaction import Row, Transaction, carray, packed, unpacked

_CHUNKS_AT_ONCE = 64
_firing_order = attrgetter("fire_at", "number")
_ALIVE = MINUTE
"""A worker that was heard of within this time counts as one that may know a job."""


def claim(tx: Transaction, worker: int, queues: Sequence[str], jobs: Sequence[str], limit: int) -> list[Claimed]:
    """Takes chunks in order until the limit is reached; a chunk that is larger than what is left is taken in part."""
    if tx.one("is_live_instance", number=worker) is None:
        raise LostOwnership(f"worker {worker} was declared dead; it has to register anew")
    claimed: list[Claimed] = []
    known = as_json(list(jobs))
    token = 0
    chunks = tx.all("ready_chunks", queues=as_json(list(queues)), jobs=known, now=tx.now, limit=_CHUNKS_AT_ONCE)
    for chunk in chunks:
        if len(claimed) >= limit:
            break
        token = token or tx.token()
        numbers = _take_numbers(tx, chunk, limit - len(claimed))
        rows = tx.all(
            "claim_runs",
            numbers=carray(numbers),
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
            _set_aside(tx, chunk, numbers)
    if claimed:
        tx.run(
            "add_claim",
            token=token,
            worker=worker,
            now=tx.now,
            open=len(claimed),
            numbers=packed(run.number for run in claimed),
        )
    return claimed


def _take_numbers(tx: Transaction, chunk: Row, limit: int) -> array[int]:
    numbers = unpacked(chunk[3])
    if len(numbers) > limit:
        tx.run("shrink_chunk", n=chunk[0], numbers=numbers[limit:].tobytes())
        return numbers[:limit]
    tx.run("drop_chunk", n=chunk[0])
    return numbers


def _set_aside(tx: Transaction, chunk: Row, numbers: array[int]) -> None:
    """Some runs of a chunk were not claimed. Moved and ended ones need nothing. Those that are too late end here; those
    of jobs which this worker does not know wait in a chunk of their own for a worker that does; those that are not due,
    because the clock was set back since they were fired, wait in one until they are."""
    _, lane, fired_at, _, queue, priority, _ = chunk
    waiting: dict[tuple[str | None, int], list[int]] = {}
    late: list[int] = []
    schedules: set[str] = set()
    for number, job, useful_until, schedule, fire_at in tx.all(
        "unclaimed_runs", numbers=carray(numbers), fired_at=fired_at, queue=queue
    ):
        if too_late(useful_until, tx.now):
            late.append(number)
            schedules.update((schedule,) if schedule else ())
        elif fire_at > tx.now:
            waiting.setdefault((None, fire_at), []).append(number)
        else:
            waiting.setdefault((job, 0), []).append(number)
    if late:
        tx.run_each("end_run", [(n, State.SKIPPED, tx.now, Reason.TOO_LATE, None, None, None) for n in late])
        tx.run("drop_runs", numbers=carray(late))
        runs_ended(tx, schedules)
    for (job, ready_at), left in waiting.items():
        common = {"queue": queue, "lane": lane, "priority": priority, "fired_at": fired_at}
        tx.run("add_job_chunk", job=job, ready_at=ready_at, numbers=packed(left), **common)
        if job is not None:
            _report_unknown(tx, job)


def _report_unknown(tx: Transaction, job: str) -> None:
    unknown = not tx.value("job_is_known", job=job, since=tx.now - _ALIVE)
    if unknown and not tx.value("event_since", subject=job, kind="unknown_job", since=tx.now - HOUR):
        tx.event("unknown_job", job, f"no live worker knows the job {job!r}; its due runs wait for one that does")


def finish(tx: Transaction, worker: int, endings: Sequence[Ending]) -> list[Ending]:
    """1. Compare each token with the store's; what does not match is fenced. 2. Terminal endings move to history.
    3. The others go on: to a retry, back to the hand-off, or to a person. 4. What follows: claims close, waiters are
    released, fixed delays get their next run."""
    numbers = array("q", [ending.number for ending in endings])
    owned = {number: (token, schedule) for number, token, schedule in tx.all("owned_runs", numbers=carray(numbers))}
    ended: list[tuple[Ending, State]] = []
    going_on: list[Ending] = []
    fenced: list[Ending] = []
    schedules: set[str] = set()
    closed: Counter[int] = Counter()
    matched: set[int] = set()
    for ending in endings:
        token, schedule = owned.get(ending.number, (None, None))
        if token != ending.token:
            if not tx.value("told_already", number=ending.number, token=ending.token):
                fenced.append(ending)  # its lease was lost: another attempt owns the run, or has ended it
            continue
        if ending.number in matched:
            continue  # said twice in one breath
        matched.add(ending.number)
        closed[token] += 1
        state = after(State.RUNNING, ending.event)
        if state in TERMINAL:
            ended.append((ending, state))
        else:
            going_on.append(ending)
        if schedule is not None and state not in (State.RETRYING, State.SCHEDULED):
            schedules.add(schedule)
    _end(tx, worker, ended)
    _go_on(tx, worker, going_on)
    close_claims(tx, closed)
    if tx.value("any_cancellation"):
        tx.run("drop_cancellations", numbers=carray(matched))
    if schedules:
        runs_ended(tx, schedules)
    if fenced:
        _fence(tx, worker, fenced)
    return fenced


def _end(tx: Transaction, worker: int, ended: Sequence[tuple[Ending, State]]) -> None:
    """Runs that end with their attempt. A success is told by the history row alone."""
    if not ended:
        return
    _remember(tx, worker, [ending for ending, state in ended if state is not State.SUCCEEDED])
    rows = [
        (e.number, state, e.started_at, e.finished_at, *_why(tx, e, state), e.result and e.result.decode())
        for e, state in ended
    ]
    tx.run("end_attempts", endings=as_json(rows))
    tx.run("drop_runs", numbers=carray(array("q", [ending.number for ending, _ in ended])))


def _why(tx: Transaction, ending: Ending, state: State) -> tuple[str | None, str | None]:
    """Reason and detail. Whoever asked a run to stop said why; the worker only knows that somebody did."""
    asked = tx.one("cancellation_of", number=ending.number) if state is State.CANCELLED else None
    return (ending.reason, ending.error) if asked is None else (asked[0], asked[1])


def _remember(tx: Transaction, worker: int, endings: Iterable[Ending]) -> None:
    rows = [(e.number, e.attempt, e.token, e.started_at, e.finished_at, e.outcome, e.error) for e in endings]
    if rows:
        tx.run("add_attempts", worker=worker, endings=as_json(rows))


def _go_on(tx: Transaction, worker: int, endings: Sequence[Ending]) -> None:
    """Runs that live on after their attempt."""
    _remember(tx, worker, endings)
    pending = []
    for ending in endings:
        state = after(State.RUNNING, ending.event)
        spent = 0 if ending.outcome in UNCHARGED else 1
        detail = ending.error.splitlines()[0] if ending.error else None
        tx.run_each("unend_run", [(ending.number, state, ending.retry_at, spent, ending.reason, detail)])
        if state in (State.RETRYING, State.SCHEDULED):
            pending.append(ending.number)
        elif ending.reason is Reason.BAD_PAYLOAD:
            tx.event("run_set_aside", run_id(ending.number, _name_of(tx, ending.number)), ending.error or "bad payload")
    tx.stir(end_cancelled(tx, pending))


def _name_of(tx: Transaction, number: int) -> str | None:
    row = tx.one("find_live", number=number, name=None)
    return row[1] if row else None


def close_claims(tx: Transaction, closed: Mapping[int, int]) -> None:
    """So many runs of these claims are no longer theirs; a claim without runs goes."""
    for token, ended in closed.items():
        left = tx.one("close_claim", token=token, ended=ended)
        if left is not None and left[0] <= 0:
            tx.run("drop_claim", token=token)


def _fence(tx: Transaction, worker: int, fenced: Sequence[Ending]) -> None:
    """A late write of an attempt that lost its lease: it changes nothing, and is remembered as refused."""
    refused = [ending._replace(outcome=Outcome.FENCED) for ending in fenced]
    for ending in refused:
        row = tx.one("find_live", number=ending.number, name=None) or tx.one(
            "find_ended", number=ending.number, name=None
        )
        identifier = run_id(ending.number, row[1] if row else None)
        told = f"worker {worker} finished {attempt_id(identifier, ending.attempt)} after its lease was lost; refused"
        tx.event("fenced", identifier, told)
    # The lost attempt has its row already, under this token: the refused write is told beside it, not over it.
    rows = [(e.number, e.attempt, -e.token, e.started_at, e.finished_at, e.outcome, e.error) for e in refused]
    tx.run("add_attempts", worker=worker, endings=as_json(rows))


def give_back(tx: Transaction, worker: int, claimed: Sequence[Claimed]) -> int:
    """Straight back to the hand-off: the run was due, fired and decided upon, and nothing of that has changed."""
    by_token: dict[int, list[int]] = {}
    for run in claimed:
        by_token.setdefault(run.token, []).append(run.number)
    returned: dict[int, tuple[str, int, int]] = {}
    for token, numbers in by_token.items():
        rows = tx.all("give_back_runs", numbers=carray(numbers), token=token)
        close_claims(tx, {token: len(rows)})
        returned |= {number: (queue, lane, priority) for number, queue, lane, priority in rows}
    groups: dict[tuple[str, int, int], list[int]] = {}
    for number in end_cancelled(tx, list(returned)):
        groups.setdefault(returned[number], []).append(number)
    chunks = [(queue, lane, priority, tx.now, packed(back)) for (queue, lane, priority), back in groups.items()]
    tx.run_each("add_handoff", chunks)
    return len(returned)


def beat(tx: Transaction, worker: int, progress: Sequence[Progress]) -> Beat:
    known = bool(tx.run("beat_instance", number=worker, now=tx.now))
    if known and progress:
        tx.run_each("add_progress", ((p.started_at, p.note, p.checkpoint, p.number, p.token) for p in progress))
    return Beat(known, [row[0] for row in tx.all("cancellations_of", worker=worker)])
