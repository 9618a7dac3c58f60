"""What attempts did outside: effects written down before and after, and items of batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from foliot.domain.identity import first_of_lineage, run_id
from foliot.domain.ledger import (
    BatchView,
    Begun,
    Effect,
    EffectState,
    EffectView,
    Facts,
    Item,
    Settles,
)
from foliot.errors import LostOwnership
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs

_FAILURES_SHOWN = 20


async def begin_effect(tx: Transaction, number: int, token: int, effect: Effect) -> Begun:
    row = await _owned(tx, number, token)
    lineage, first = row[3], first_of_lineage(run_id(row[0], row[1]))
    found = await tx.one("effect_of", lineage=lineage, name=effect.name, key=effect.key)
    before = None if found is None else effect_view(found)
    if before is None or _begins_anew(before, effect, token):
        await _put(tx, row, token, effect)
    if effect.sizes:
        await tx.run("put_batches", batches=as_json([(number, *size) for size in effect.sizes]))
    return Begun(before, first)


async def look_at_effect(tx: Transaction, number: int, effect: Effect) -> Begun:
    """As `begin_effect`, of which nothing is written yet: whoever does so is refused there if the run is not his."""
    row = await tx.one("find_live", number=number, name=None)
    if row is None:
        raise LostOwnership(f"run {number} has ended, so the store refused the write; the handler should return")
    lineage = await lineage_of(tx, number)
    found = await tx.one("effect_of", lineage=lineage, name=effect.name, key=effect.key)
    return Begun(None if found is None else effect_view(found), first_of_lineage(run_id(row[0], row[1])))


def _begins_anew(before: EffectView, effect: Effect, token: int) -> bool:
    """Whether an effect that is in the ledger already may simply be begun: it did not happen, this very attempt began
    it, or doing it twice does it once, by what was said then and is said now."""
    if before.state is EffectState.NOT_DONE:
        return True
    if before.state is EffectState.DONE:
        return False
    return before.token == token or before.settles is effect.settles is Settles.IDEMPOTENT


async def end_effect(
    tx: Transaction,
    number: int,
    token: int,
    effect: Effect,
    state: EffectState,
    result: bytes | None,
    note: str | None,
) -> None:
    row = await _owned(tx, number, token)
    if state is EffectState.STARTED:
        await _put(tx, row, token, effect)
        return
    await tx.run(
        "end_effect",
        lineage=row[3],
        name=effect.name,
        key=effect.key,
        state=state,
        now=tx.now,
        result=result,
        note=note,
        run=number,
        attempt=row[2],
        token=token,
    )


async def _owned(tx: Transaction, number: int, token: int) -> Row:
    row = await tx.one("owned_run", number=number, token=token)
    if row is None:
        raise LostOwnership(
            f"the attempt with token {token} no longer owns run {number}: its lease expired, or it has ended; "
            "the store refused the write, and the handler should return"
        )
    return row


async def _put(tx: Transaction, row: Row, token: int, effect: Effect) -> None:
    await tx.run(
        "put_effect",
        lineage=row[3],
        name=effect.name,
        key=effect.key,
        settles=effect.settles,
        run=row[0],
        attempt=row[2],
        token=token,
        now=tx.now,
        undo=effect.undo,
        batch=None if effect.item is None else effect.item[0],
        item=None if effect.item is None else effect.item[1],
    )


async def ledger_of(tx: Transaction, number: int) -> list[EffectView]:
    return await effects_of(tx, await lineage_of(tx, number))


async def effects_of(tx: Transaction, lineage: int) -> list[EffectView]:
    return [effect_view(row) for row in await tx.all("effects_of", lineage=lineage)]


async def lineage_of(tx: Transaction, number: int) -> int:
    return int(await tx.value("lineage_of", number=number))


async def maybes(tx: Transaction, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
    rows = await tx.all("maybes", job=job, effect=effect, limit=limit)
    return [(run_id(row[0], row[1]), effect_view(row[2:])) for row in rows]


async def facts_of(tx: Transaction, numbers: Collection[int]) -> dict[int, Facts]:
    """What the ledger says of live runs."""
    if not numbers:
        return {}
    rows = await tx.all("ledger_facts", numbers=longs(numbers))
    return {row[0]: Facts(row[1], row[2], row[3], row[4], bool(row[5]), row[6]) for row in rows}


async def settle(tx: Transaction, lineage: int, name: str, key: str, state: EffectState, note: str) -> bool:
    """On a person's word; answers whether the ledger has such an effect."""
    values = {"lineage": lineage, "name": name, "key": key, "state": state, "now": tx.now, "note": note}
    return bool(await tx.run("settle_effect", **values))


async def settle_maybes(tx: Transaction, lineage: int, state: EffectState, note: str) -> int:
    """What only a person can settle; a probe, or doing it again, settles the rest."""
    return await tx.run("settle_maybes", lineage=lineage, state=state, now=tx.now, note=note)


async def settle_open(tx: Transaction, lineage: int, state: EffectState, note: str) -> int:
    """All that has no end, on the word of a check of the whole run."""
    return await tx.run("settle_open", lineage=lineage, state=state, now=tx.now, note=note)


# ---------------------------------------------------------------------------------------------------------------- items


async def done_items(tx: Transaction, number: int, batch: str) -> set[str]:
    lineage = await lineage_of(tx, number)
    return {row[0] for row in await tx.all("done_items", lineage=lineage, batch=batch)}


async def put_items(tx: Transaction, items: Sequence[tuple[int, Item]]) -> None:
    """Keeps items of live runs, each with the number of its run. The last report of an item counts, except that an item
    that is done stays done."""
    if not items:
        return
    latest = {(run, item.batch, item.key): (item.state, item.error) for run, item in items}
    sizes = {(run, item.batch): (item.of,) for run, item in items}
    await tx.run("put_items", items=as_json([key + rest for key, rest in latest.items()]), now=tx.now)
    await tx.run("put_batches", batches=as_json([key + rest for key, rest in sizes.items()]))


async def batches_of(tx: Transaction, lineages: Collection[int]) -> dict[int, list[BatchView]]:
    """By lineage. 1. Count the items that loops recorded. 2. Where that is not all of them, count by effects, too."""
    found: dict[int, list[BatchView]] = {}
    if not lineages:
        return found
    for lineage, name, size, done, failed in await tx.all("batches_of", lineages=longs(lineages)):
        found.setdefault(lineage, []).append(BatchView(name, size, int(done), int(failed), []))
    short = [lineage for lineage, batches in found.items() if any(one.of is None or one.is_short for one in batches)]
    rows = await tx.all("items_by_effects", lineages=longs(short)) if short else []
    by_effects = {(row[0], row[1]): (int(row[2]), int(row[3]), int(row[4])) for row in rows}
    for lineage, batches in found.items():
        for place, batch in enumerate(batches):
            in_doubt, done, failed = by_effects.get((lineage, batch.name), (0, 0, 0))
            counted = batch._replace(done=batch.done + done, failed=batch.failed - failed, in_doubt=in_doubt)
            batches[place] = batch = counted
            if batch.failed:
                rows = await tx.all("failed_items", lineage=lineage, batch=batch.name, limit=_FAILURES_SHOWN)
                batches[place] = batch._replace(failures=[(row[0], row[1]) for row in rows])
    return found


def effect_view(row: Row) -> EffectView:
    name, key, state, settles, run, attempt, token, started_at, ended_at, result, note, undo = row
    return EffectView(
        name,
        key,
        EffectState(state),
        None if settles is None else Settles(settles),
        run,
        attempt,
        token,
        started_at,
        ended_at,
        result,
        note,
        undo,
    )
