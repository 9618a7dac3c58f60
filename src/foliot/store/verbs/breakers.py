"""Circuit breakers, shared by the fleet: what attempts found out about their destinations. See `domain.breaker`."""

from __future__ import annotations

from collections.abc import Iterable

from foliot.domain.breaker import BREAKER, CLOSED, SPREAD, Breaker, Contact, after_contact, breaker_slot
from foliot.domain.gates import Gate, Need
from foliot.domain.state import Reason, State
from foliot.store.verbs.following import runs_ended, unend
from foliot.store.verbs.transaction import Transaction, longs

_AT_ONCE = 1_000


async def heard(tx: Transaction, contacts: Iterable[Contact]) -> None:
    """In the order of destinations, so that two who finish never wait for one another."""
    by_destination: dict[str, list[Contact]] = {}
    for contact in contacts:
        by_destination.setdefault(contact.destination, []).append(contact)
    for destination, told in sorted(by_destination.items()):
        if not all(contact.answered for contact in told):
            # What is not there cannot be locked: of two first failures at one moment each would count as the first.
            await tx.run("add_breaker", destination=destination, now=tx.now)
        row = await tx.one("lock_breaker", destination=destination)
        before = CLOSED if row is None else Breaker(*row)
        after = before
        for contact in told:
            after = after_contact(after, contact, tx.now)
        if after != before:
            await _change(tx, destination, before, after)


async def _change(tx: Transaction, destination: str, before: Breaker, after: Breaker) -> None:
    if after == CLOSED:
        await close(tx, destination)
        return
    await tx.run_each("put_breaker", [(destination, *after)])
    if after.every != before.every and after.every is not None:
        # Probes are counted from now, also one that has its time already.
        slot, at = breaker_slot(destination), tx.now + after.every
        await tx.run_each("put_slot", [tuple(probe_need(destination, after))])
        planned = [row[0] for row in await tx.all("retime_probe", slot=slot, at=at)]
        await tx.stir(planned)
        await tx.run("start_probes", name=slot, at=at + after.every if planned else at)
    if after.is_open and not before.is_open:
        detail = f"{after.failures} attempts in a row failed; the runs of the destination are held, except for probes"
        await tx.event("breaker_opened", destination, detail)


async def close(tx: Transaction, destination: str) -> bool:
    """What waited comes back, a little spread."""
    row = await tx.one("drop_breaker", destination=destination)
    if row is None or row[0] is None:
        return row is not None
    slot = breaker_slot(destination)
    await tx.run("forget_slot", name=slot)  # first: nobody is to be let in as a probe any more
    released = await tx.all("release_spread", slot=slot, now=tx.now, spread=SPREAD)
    await tx.stir([one[0] for one in released])
    await tx.event("breaker_closed", destination, f"the destination answers again; released {len(released)} held runs")
    return True


def probe_need(destination: str, breaker: Breaker) -> Need:
    return Need(breaker_slot(destination), 1, breaker.every)


async def open_breakers(tx: Transaction) -> dict[str, Breaker]:
    return {row[0]: Breaker(*row[1:]) for row in await tx.all("open_breakers")}


def shown(destination: str, breaker: Breaker) -> Gate:
    """As a limit that nobody set."""
    detail = f"open: {breaker.failures} failures in a row"
    return Gate(
        f"{BREAKER}{destination}", every=breaker.every, source="breaker", changed_at=breaker.changed_at, note=detail
    )


async def is_anybody_hopeless(tx: Transaction) -> bool:
    return bool(await tx.value("any_hopeless", now=tx.now))


async def give_up(tx: Transaction) -> int:
    """Runs that were held for a destination until they are too old to be tried again."""
    rows = await tx.all("hopeless_runs", now=tx.now, limit=_AT_ONCE)
    schedules = {row[1] for row in rows if row[1] is not None}
    await tx.lock(schedules)
    # An effect of an earlier attempt may be open: no attempt is made any more that could settle it.
    in_doubt = {row[0] for row in await tx.all("left_open", numbers=longs([row[0] for row in rows]))} if rows else ()
    for number, _, slot in rows:
        detail = f"{slot.removeprefix(breaker_slot(''))} did not answer for as long as this run may wait"
        if number in in_doubt:
            await unend(
                tx,
                number,
                State.AMBIGUOUS,
                None,
                0,
                Reason.EFFECT,
                (f"the outcome of an effect is unknown, and {detail}"),
            )
        else:
            await unend(tx, number, State.DEAD, None, 0, Reason.DESTINATION_DOWN, detail)
    if schedules:
        await runs_ended(tx, schedules)
    return len(rows)
