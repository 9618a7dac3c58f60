"""Pauses of what runs have in common; see `foliot.domain.pauses`. Those of a schedule's own ticks are in its row."""

from __future__ import annotations

from collections.abc import Collection

from foliot.domain.instant import Instant
from foliot.domain.pauses import KINDS, Pause, What
from foliot.store.verbs.following import runs_ended
from foliot.store.verbs.transaction import Row, Transaction


def pause_of(row: Row) -> Pause:
    name, what, *rest = row
    return Pause(name, What(what), *rest)


async def in_the_way(tx: Transaction) -> list[Pause]:
    """All that firing has to know: those that hold, and those whose ticks are not made up for."""
    return [pause_of(row) for row in await tx.all("pauses_now")]


async def of_claims(tx: Transaction) -> list[str]:
    """What claims must not take, as `claims:job:X`."""
    return [row[0] for row in await tx.all("holding_pauses", now=tx.now)]


async def known(tx: Transaction) -> list[Pause]:
    """The same for whoever only looks, with those of schedules' own ticks."""
    return [pause_of(row) for row in await tx.all("all_pauses")]


async def listed(tx: Transaction) -> list[Pause]:
    return [one for one in await known(tx) if one.in_force(tx.now)]


async def pause(tx: Transaction, name: str, what: What, until: Instant | None, actor: str, note: str) -> Pause:
    schedules = await _lock_schedules(tx, name, what)
    since = await tx.value("put_pause", name=name, what=what, now=tx.now, until=until, actor=actor, note=note)
    made = Pause(name, what, since, until, actor, note)
    # Whom it holds already has to hear of another end.
    await _release(tx, made, schedules)
    await tx.audit(actor, "pause", name, f"{what}: {note}")
    return made


async def resume(tx: Transaction, name: str, what: What, actor: str, note: str, catch_up: bool) -> Pause | None:
    schedules = await _lock_schedules(tx, name, what)
    row = await tx.one("drop_pause", name=name, what=what)
    if row is None:
        return None  # nobody paused it, or somebody resumed it first
    ended = pause_of(row)
    await _end(tx, ended, schedules, catch_up)
    was_in_force = ended.in_force(tx.now)
    if was_in_force:
        await tx.audit(actor, "resume", name, f"{what}: {note}" + (" (with catch-up)" if catch_up else ""))
    return ended if was_in_force else None


async def any_ended(tx: Transaction) -> bool:
    return bool(await tx.all("ended_pauses", now=tx.now))


async def forget_ended(tx: Transaction) -> None:
    """Those that have ended by themselves: their schedules are told which ticks fell into them, and they go."""
    for one in map(pause_of, await tx.all("ended_pauses", now=tx.now)):
        schedules = await _lock_schedules(tx, one.name, one.what)
        row = await tx.one("drop_pause", name=one.name, what=one.what)
        if row is not None:
            await _end(tx, pause_of(row), schedules, catch_up=False)


async def forget(tx: Transaction, name: str) -> None:
    """What it was about is gone."""
    for what in What:
        row = await tx.one("drop_pause", name=name, what=what)
        if row is not None:
            await _release(tx, pause_of(row), ())


async def release_ticks(tx: Transaction, schedules: Collection[str]) -> None:
    """What a pause of ticks holds is decided upon anew."""
    rows = await tx.all("release_paused", schedules=list(schedules), now=tx.now)
    await tx.stir([row[0] for row in rows])


async def _lock_schedules(tx: Transaction, name: str, what: What) -> list[str]:
    """Before the pause itself, as whoever fires does: those whose ticks it is about."""
    kind, _, rest = name.partition(":")
    assert kind in KINDS, name
    if what is not What.CREATION or kind == "schedule":
        return []
    found = [row[0] for row in await tx.all("schedules_about", kind=kind, name=rest)]
    await tx.lock(found)
    return found


async def _end(tx: Transaction, ended: Pause, schedules: Collection[str], catch_up: bool) -> None:
    if schedules and not catch_up:
        through = tx.now if ended.until is None else min(ended.until, tx.now)
        await tx.run("skip_through", ids=list(schedules), through=through, note=ended.told)
    await _release(tx, ended, schedules)


async def _release(tx: Transaction, one: Pause, schedules: Collection[str]) -> None:
    if one.what is What.CREATION:
        if schedules:
            await release_ticks(tx, schedules)
            await runs_ended(tx, set(schedules))  # what waited for its turn goes on
    else:
        await tx.stir([row[0] for row in await tx.all("release_waiting", slot=one.slot, now=tx.now)])
