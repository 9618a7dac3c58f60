"""Dead letters: looked at page by page, and replayed in bulk, each judged by itself."""

from __future__ import annotations

from collections.abc import Sequence

from foliot.domain.decisions import TOO_LATE
from foliot.domain.identity import run_id
from foliot.domain.instant import Duration, Instant
from foliot.domain.ledger import EffectState, Facts
from foliot.domain.replay import OPEN_EFFECT, DeadFilter, DeadLetter, Fate, Replayed, fate_of
from foliot.store.verbs import ledger, spreading
from foliot.store.verbs.rows import view_of
from foliot.store.verbs.transaction import Row, Transaction, longs

_GONE = "the run is no longer dead"
_PROBLEMS = {Fate.TOO_LATE: TOO_LATE, Fate.REFUSED: OPEN_EFFECT}


async def dead(tx: Transaction, wanted: DeadFilter, after: int, limit: int) -> list[DeadLetter]:
    """By number, those after `after`."""
    asked = wanted._asdict() | {"schedule": wanted.series}
    del asked["member"]
    views = [view_of(row) for row in await tx.all("dead_runs", **asked, after=after, limit=limit)]
    numbers = [view.number for view in views]
    facts = await ledger.facts_of(tx, numbers)
    known = {row[0]: row for row in await tx.all("dead_known", numbers=longs(numbers))}
    return [DeadLetter(view, facts[view.number], bool(known[view.number][1]), known[view.number][2]) for view in views]


async def replay(
    tx: Transaction,
    numbers: Sequence[int],
    due_at: Instant,
    every: Duration,
    override: bool,
    actor: str,
    note: str,
) -> list[Replayed]:
    """1. Their schedules are locked, and they. 2. Each is judged as it is now. 3. Those that may go are due one after
    another, in the lane backfill."""
    wanted = longs(numbers)
    await tx.lock({row[0] for row in await tx.all("schedules_among", numbers=wanted) if row[0] is not None})
    rows = {row[0]: row for row in await tx.all("dead_among", numbers=wanted)}
    facts = await ledger.facts_of(tx, list(rows))
    busy = {row[0]: run_id(row[1], row[2]) for row in await tx.all("busy_kin", numbers=wanted)}
    due = max(due_at, tx.now)
    replayed_runs: list[Replayed] = []
    going: list[Row] = []
    for number in numbers:
        one = _judged(tx, rows.get(number), facts.get(number, Facts()), busy.get(number), number, override)
        if one.fate is Fate.REPLAYED:
            one = one._replace(fire_at=due)
            going.append(rows[number])
            due += every
        replayed_runs.append(one)
    await _revive(tx, [(one.fire_at, one.number) for one in replayed_runs if one.fate is Fate.REPLAYED])
    if override:
        for row in going:
            await ledger.settle_maybes(tx, row[3], EffectState.NOT_DONE, f"{actor} overrode the advice: {note}")
    await tx.audit_each(actor, "replay", [(run_id(row[0], row[1]), note) for row in going])
    return replayed_runs


def _judged(tx: Transaction, row: Row | None, facts: Facts, busy: str | None, number: int, override: bool) -> Replayed:
    if row is None:
        return Replayed(number, Fate.PASSED_OVER, _GONE)
    if busy is not None:
        return Replayed(number, Fate.PASSED_OVER, f"the rerun {busy} has not ended")
    fate = fate_of(row[2], facts, tx.now, override=override)
    return Replayed(number, fate, _PROBLEMS.get(fate))


async def _revive(tx: Transaction, due: Sequence[tuple[Instant | None, int]]) -> None:
    numbers = [number for _, number in due]
    await tx.run_each("replay_run", due)
    await spreading.remember_recounts(tx, numbers)
    await tx.stir(numbers)
