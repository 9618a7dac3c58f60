"""Claims in the request that records outcomes: runs that get the freed slots, and standbys.

A claimed run without a slot yet has an empty list of slots. Its worker begins it when one of its own runs gives up the
slot, and names both with the next outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from foliot.domain.run import Claimed, Ending, Lane
from foliot.domain.store import Offer, PassedSlot, StandbyRequest
from foliot.store.sqlite.transaction import SqliteTransaction
from foliot.store.verbs import working
from foliot.store.verbs.gates import Candidate, Gatekeeper
from foliot.store.verbs.transaction import Row, longs
from foliot.store.verbs.working import whom_for

_read = msgspec.json.Decoder(list[str]).decode


async def finish_and_claim(
    tx: SqliteTransaction, worker: int, endings: Sequence[Ending], offer: Offer
) -> tuple[list[Ending], list[Claimed]]:
    """As `WorkStore.finish_and_claim`. Of the runs that were handed off before, too, it claims up to `offer.limit`."""
    await _pass_slots(tx, worker, offer.passed, {ending.number for ending in endings})
    fenced = await working.finish(tx, worker, endings)
    await tx.settle()
    if not (offer.limit or offer.standbys) or await tx.one("is_live_instance", number=worker) is None:
        return fenced, []
    claimed: list[Claimed] = []
    if offer.limit:
        claimed = await working.claim(
            tx, worker, offer.queues, offer.jobs, offer.limit, suspects=False, backlog=offer.backlog, put_off=0
        )
    if offer.standbys:
        claimed += await _take_standbys(tx, worker, offer.queues, offer.standbys)
    return fenced, claimed


async def _pass_slots(
    tx: SqliteTransaction, worker: int, passed: Sequence[PassedSlot], ending: Collection[int]
) -> None:
    """Gives each standby that began the slot of the run that had it. A run in `ending` frees its slot in this request,
    so the standby takes one more until then. Another run loses its slot here."""
    if not passed:
        return
    units: Counter[str] = Counter()
    left: list[int] = []
    await tx.run("standbys_begun", worker=worker, numbers=longs({slot.heir for slot in passed}.union(ending)))
    await tx.lock_slots([slot.holder for slot in passed])
    for slot in passed:
        row = await tx.one("pass_slot", worker=worker, **slot._asdict())
        if row is not None:
            units.update(_read(row[0]))
            left += () if slot.holder in ending else (slot.holder,)
    await tx.run_each("slot_taken", [(count, 0, name) for name, count in sorted(units.items())])
    if left:
        await tx.run("give_up_slots", numbers=longs(left))


async def _take_standbys(
    tx: SqliteTransaction, worker: int, queues: Sequence[str], requests: Sequence[StandbyRequest]
) -> list[Claimed]:
    """Claims the first waiters of each slot, up to the first run that cannot be a standby: no run overtakes another."""
    keeper = Gatekeeper(tx)
    if await keeper.is_any_paused():
        return []
    claimed: list[Claimed] = []
    for request in requests:
        if not await tx.value("may_have_standbys", name=request.slot):
            continue
        waiting = [row[0] for row in await tx.all("next_waiting", slot=request.slot, limit=request.most)]
        wanted = {"numbers": longs(waiting), "job": request.job, "queues": list(queues), "now": tx.now}
        simple = {row[0]: row for row in await tx.all("simple_waiters", **wanted)}
        numbers: list[int] = []
        for number in waiting:
            if number not in simple or not await _may_stand_by(keeper, request, simple[number]):
                break
            numbers.append(number)
        if numbers:
            claimed += await _claim_standbys(tx, worker, request.slot, numbers)
    return claimed


async def _may_stand_by(keeper: Gatekeeper, request: StandbyRequest, row: Row) -> bool:
    """Whether a waiting run needs this slot alone, no labels, and no person if it is lost."""
    number, queue, options, fire_at = row
    if whom_for(None, request.job, options) is not None or b'"on_lost"' in (options or b""):
        return False
    run = Candidate(number, request.job, None, queue, None, Lane.LIVE, options, None, False, fire_at)
    return await keeper.needs_only(run, request.slot)


async def _claim_standbys(tx: SqliteTransaction, worker: int, slot: str, numbers: Sequence[int]) -> list[Claimed]:
    token = await tx.token()
    about = {"token": token, "worker": worker, "now": tx.now, "slot": slot}
    rows = {row[0]: row for row in await tx.all("claim_standbys", numbers=longs(numbers), **about)}
    packed = tx.packed(numbers)
    await tx.run("add_claim", token=token, worker=worker, now=tx.now, open=len(numbers), numbers=packed)
    return [Claimed._make(rows[number]) for number in numbers]
