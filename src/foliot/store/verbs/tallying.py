"""How promises were kept, counted after the fact: by one duty, some seconds later, never by whoever ends a run."""

from __future__ import annotations

from collections.abc import Mapping

from foliot.domain.instant import DAY, MINUTE
from foliot.domain.overview import Tally, minute_of
from foliot.domain.run import LATE
from foliot.store.verbs.transaction import Transaction

AT_ONCE = 20_000
"""Endings that are counted in one transaction, where they are counted by number: others want to write, too."""
LOOKED_AT = 20_000
"""Runs that wait for a person, the newest, of which the minute of the failure is counted."""
KEPT = 31 * DAY


async def is_any(tx: Transaction) -> bool:
    """Whether anything ended since: a look that writes nothing, and keeps nobody waiting."""
    return bool(await tx.value("is_any_uncounted"))


async def count(tx: Transaction) -> bool:
    """1. Where did the last count come to? 2. How far can this one go? 3. Say so; zero rows: another instance did,
    which believes to have the duty, and has counted these. 4. Count. Answers whether there is more."""
    row = await tx.one("tallied_position")
    position = 0 if row is None else int(row[0])
    found = await tx.one("tally_bound", position=position, limit=AT_ONCE)
    if found is None or found[0] is None:
        return False
    bound, begin, is_more = found
    if not await tx.run("tallied_to", position=position, bound=bound):
        return False
    await tx.run("add_tally", position=begin, bound=bound, late=LATE)
    await tx.run("forget_tally", before=minute_of(tx.now - KEPT))
    return bool(is_more)


async def since(tx: Transaction, length: int, failed: Mapping[int, int]) -> Tally:
    """`failed`: what `failed_by_minute` gives for this length or a longer one."""
    begin = minute_of(tx.now - length)
    row = await tx.one("tally_since", minute=begin)
    assert row is not None
    return Tally(*map(int, row))._replace(failed=sum(count for minute, count in failed.items() if minute > begin))


async def by_minute(tx: Transaction, minutes: int) -> list[tuple[int, Tally]]:
    """The last minutes, the oldest first, also those in which nothing ended or failed."""
    last = minute_of(tx.now)
    found = {int(row[0]): Tally(*map(int, row[1:])) for row in await tx.all("tally_minutes", minute=last - minutes)}
    failed = await failed_by_minute(tx, minutes * MINUTE)
    return [
        (minute, found.get(minute, Tally())._replace(failed=failed.get(minute, 0)))
        for minute in range(last - minutes + 1, last + 1)
    ]


async def failed_by_minute(tx: Transaction, length: int) -> dict[int, int]:
    """How many of the runs that wait for a person now failed in each minute of this length of time."""
    rows = await tx.all("failed_minutes", minute=minute_of(tx.now - length), limit=LOOKED_AT)
    return {int(minute): int(count) for minute, count in rows}


async def counted_at(tx: Transaction) -> int | None:
    row = await tx.one("tally_last")
    return None if row is None or row[0] is None else int(row[0]) * MINUTE
