"""How PostgreSQL finds what is pending, and hands it off: by snapshots, and one statement for plain runs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from foliot.domain.fairness import UNRANKED, FairShares, Heads, Placing
from foliot.domain.instant import MILLISECOND, MINUTE, Duration, Instant
from foliot.domain.lanes import DueKind, live_until
from foliot.domain.store import Arrivals, Cells, Decide, Fired, Lease, shard_of
from foliot.errors import LostOwnership, StoreError
from foliot.store.postgres import ahead, snapshot
from foliot.store.postgres.ahead import Ahead
from foliot.store.postgres.connection import is_unanswered
from foliot.store.postgres.snapshot import Ages, Snapshot
from foliot.store.postgres.transaction import PostgresTransaction, Work
from foliot.store.verbs import dispatching, firing, sharing
from foliot.store.verbs.dispatching import NOTHING, HandedOff
from foliot.store.verbs.transaction import Row, Transaction

CHUNK = 200
"""Most runs in one hand-off chunk: their numbers fit into the row itself."""

LEAD: Duration = 40 * MILLISECOND
"""How long before its time a plain run is handed off and claimed, at most. A process that waits for the processor waits
for less, as a rule."""
SLOT: Duration = 8 * MILLISECOND
"""Runs due within this time share a chunk. A worker that could not take it before takes it when the last run is due."""
SHARE = 50
"""Runs that are to come for which one worker is called, before the next one is."""
CALLED = 16
"""Most workers that are called by their numbers in one message."""

_HERD = 0.05
"""Seconds."""
_FORGETS_EVERY = 5.0
"""Seconds: stirs that are read are few, and plain firing deletes most of them."""

UNTOLD_FOR: Duration = 9 * MINUTE
"""A run whose cell is loaded, at most six minutes before its time, and that arrivals never named, was inserted longer
ago than this: the schema's `near()` is a quarter of an hour."""

Entry = tuple[Instant, int]
T = TypeVar("T")

_NOTHING = Fired(0, 0, 0, 0, 0, 0, 0, [])


def _from(turn: int, workers: list[int]) -> list[int]:
    first = turn % len(workers)
    return workers[first:] + workers[:first]


class Server(Protocol):
    """What this module needs of the store."""

    shard_count: int

    @property
    def ahead(self) -> int: ...
    @property
    def lead(self) -> Duration: ...
    async def look_again(self, tx: PostgresTransaction, query: str, /, **values: Any) -> Row: ...
    async def statement(self, query: str, /, **values: Any) -> list[Row]: ...
    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T: ...
    async def read(self, work: Work[T]) -> T: ...
    def heard(self, who: set[str]) -> None: ...


class CellReader:
    """One process's view of the cells: what it had to leave out of a load, and what it must still look for."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._handed_off: dict[int, HandedOff] = {}
        """By shard, when it was last taken; dropped once its past is loaded."""
        self._ages = Ages(UNTOLD_FOR)
        self._overtaken: set[int] = set()
        """Transactions open when cells were loaded, for so long that arrivals may not name their runs."""
        self._looked: dict[int, int] = {}
        """By shard, the cursor of the last load: what was open then is already in `_overtaken`."""
        self._ticks_till = 0.0
        """Until then a batch is believed to have ticks in it."""
        self._told = True
        """Whether there are stirs that the store may forget: we have heard of them."""
        self._forgot_at = time.monotonic()
        self._shares = FairShares()
        self.workers: dict[str, list[int]] = {}
        """Who can be called for work, by queue: all that live and take it, where each knows what any other does, and
        where somebody comes."""
        self._turn = 0
        self.ahead = Ahead(server, self._shares, self._next_workers)

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        """The epoch is committed before the look at chunks, which then sees all that the old owner handed off."""
        lease, is_locked = await self._server.write(lambda tx: _take(tx, shard, owner, ttl))
        if is_locked:
            with contextlib.suppress(StoreError):  # a server may refuse it
                await self._server.statement("end_firing", shard=shard, ttl=ttl)
        if lease is None or shard < 0:
            return lease
        seen = await self._look()
        handed_off: HandedOff = await self._server.read(dispatching.handed_off)
        self._handed_off[shard] = handed_off._replace(at=handed_off.at + LEAD)  # chunks name what is due by then
        return lease._replace(cursor=seen.cursor)

    async def _look(self) -> Snapshot:
        while True:
            [[text]] = await self._server.statement("snapshot")
            seen = snapshot.read(text)
            if seen.life:
                return seen
            await self._server.statement("begin_life")

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None) -> Cells:
        seen = snapshot.at(lease.cursor)
        if self._looked.get(lease.shard) != lease.cursor:
            self._looked[lease.shard] = lease.cursor
            self._overtaken |= self._ages.old(seen)
        rows = await self._server.statement(
            "load_cells",
            shard=lease.shard,
            fire_at=start[0],
            number=start[1],
            below=dispatching.end_of(lease, until),
            snapshot=seen.text,
            limit=limit,
        )
        self.ahead.note(rows)
        before = self._handed_off.get(lease.shard, NOTHING)
        loaded = dispatching.cells(rows, start, limit, before)
        if loaded.exhausted and until is not None:
            # Later windows lie above everything that was handed off before the takeover.
            self._handed_off.pop(lease.shard, None)
        return loaded

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        marks = {lease.shard: lease.high_water for lease in leases}
        shards, before = list(marks), snapshot.at(cursor)
        [[text, now, *columns]] = await self._server.statement("arrived", shards=shards, **before.values)
        seen = snapshot.read(text)
        if before.life and seen.life != before.life:
            # What the cursor has not seen may bear a number that it has.
            raise LostOwnership("the server restarted, and its cursors are lost", set(shards))
        rows: list[Row] = list(zip(*(column or () for column in columns), strict=True))
        if self._told and time.monotonic() > self._forgot_at + _FORGETS_EVERY:
            await self._forget(leases, before)
        self._told = self._told or bool(rows)
        self._ages.note(now, seen)
        ended = {one for one in self._overtaken if one < seen.xmax and one not in seen.under_way}
        if ended:
            rows += await self._server.statement(
                "overtaken", shards=shards, high_water=max(marks.values()), ended=[str(one) for one in ended]
            )
            self._overtaken -= ended
        count = self._server.shard_count
        ours = [row for row in rows if row[0] < marks[shard_of(row[1], count)]]
        self.ahead.note(ours)
        return dispatching.told(ours, seen.cursor)

    async def _forget(self, leases: Sequence[Lease], told: Snapshot) -> None:
        await self._server.statement("forget_stirs", told=told.text, **ahead.under(leases))
        self._told, self._forgot_at = False, time.monotonic()

    def look_ahead(self, leases: Sequence[Lease], decide: Decide, about_now: Instant) -> None:
        self.ahead.look(leases, decide, about_now)

    def abandon(self) -> None:
        """Releases the ticks made ready, so that the next owner does not wait."""
        self.ahead.abandon()

    async def close(self) -> None:
        await self.ahead.close()

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[Entry],
        cursor: int,
        decide: Decide,
        about_now: Instant,
        soon: Sequence[Entry] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        """First what was made ready; the rest after that."""
        ticks = [entry for entry in soon if self.ahead.is_tick(entry)]
        plain = [entry for entry in soon if not self.ahead.is_tick(entry)] if ticks else list(soon)
        made_ready, entries = await self.ahead.fire(list(dict.fromkeys(due)))
        if entries or plain or (made_ready is None and not ticks):
            fired = await self._fire(leases, entries, plain, cursor, decide, about_now, kind)
            fired = fired if made_ready is None else ahead.together(made_ready, fired)
        else:
            fired = made_ready or _NOTHING
        return fired._replace(patient=[*fired.patient, *ticks]) if ticks else fired

    async def _fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[Entry],
        soon: Sequence[Entry],
        cursor: int,
        decide: Decide,
        about_now: Instant,
        kind: DueKind,
    ) -> Fired:
        """Plain runs in one statement, after a look at whose they are if there are tenants; a batch with ticks in it,
        or with what is too late, in one transaction, and what is due soon goes with the next."""
        if due and self._ticks_till > time.monotonic():
            return await self._fire_with_thought(leases, due, soon, decide, kind)
        entries, lead = [*due, *soon], LEAD if soon else 0
        seen, told = snapshot.at(cursor), self._told
        self._told = False  # what is told from now on is not for this firing to forget
        has_forgotten = False
        placing = Placing(self._shares)
        try:
            ranks = await self._ranks(entries, about_now, placing, kind) if self._shares.is_used(about_now) else []
            [row] = await self._fire_runs(leases, entries, seen, told, ranks, lead, kind)
            if row[4]:
                ranks = await self._ranks(entries, about_now, placing, kind)
                [row] = await self._fire_runs(leases, entries, seen, told, ranks, lead, kind)
            now, reached, needs_thought, lost, _, patient = row
            has_forgotten = not lost and not needs_thought
        except StoreError as error:
            if not is_unanswered(error):
                raise  # nothing was fired, and the dispatcher has to know why
            # Whether it was fired is not known. A new owner reads that from the store, and so do we.
            raise LostOwnership(f"the answer to a firing was lost: {error}", {one.shard for one in leases}) from error
        finally:
            self._told = self._told or (told and not has_forgotten)
        if lost:
            raise LostOwnership(f"shards {sorted(lost)} are no longer owned under these epochs", lost)
        if needs_thought:
            # Which may be due by the store's clock alone, and would be offered as soon again and again.
            due = [*due, *(entry for entry in soon if entry[0] <= now)]
            return await self._fire_with_thought(leases, due, [entry for entry in soon if entry[0] > now], decide, kind)
        if told:
            self._forgot_at = time.monotonic()
        placing.keep()
        early = [entry for entry in entries if entry[0] > now + lead]
        waits = set(patient)
        left = [entry for entry in entries if entry[1] in waits]
        coming = sum(now < fire_at <= now + lead for fire_at, _ in soon)
        coming = min(max(coming - len(left), 0), reached)
        if reached > coming:
            self._server.heard({"handoff"})  # the firing itself notified other processes
        return Fired(
            at=now,
            handed_off=reached,
            early=len(early),
            stale=len(entries) - len(early) - len(left) - reached,
            skipped=0,
            held=0,
            created=0,
            faults=[],
            again=early,
            ahead=coming,
            patient=left,
        )

    async def _ranks(
        self, entries: Sequence[tuple[Instant, int]], now: Instant, placing: Placing, kind: DueKind
    ) -> list[int]:
        """Where the runs of a batch stand among those of other tenants; of runs that are gone, anywhere."""
        rows = await self._server.statement(
            "due_tenants", numbers=[number for _, number in entries], late=live_until(kind)
        )
        if self._shares.is_used(now, (tenant for row in rows for tenant in row[6])) and self._shares.is_to_learn(now):
            await self._server.read(lambda tx: sharing.learn(tx, self._shares))
        placed: dict[int, int] = {}
        for queue, lane, priority, own, beside, numbers, tenants in rows:
            ranks = placing.ranks((queue, lane, priority), Heads(own, beside), tenants)
            placed.update(zip(numbers, ranks, strict=True))
        return [placed.get(number, UNRANKED) for _, number in entries]

    async def _fire_with_thought(
        self, leases: Sequence[Lease], due: Sequence[Entry], soon: Sequence[Entry], decide: Decide, kind: DueKind
    ) -> Fired:
        placing = Placing(self._shares)
        fired: Fired = await self._server.write(
            lambda tx: firing.fire(tx, leases, due, decide, placing, kind), lazily=True, hot=True
        )
        placing.keep()
        # Ticks come in herds: where there were some, more follow at once.
        self._ticks_till = time.monotonic() + _HERD if fired.created else 0.0
        return fired._replace(again=[*fired.again, *soon]) if soon else fired

    def _next_workers(self) -> str:
        """Who is to go if there is work for one, and who after that: in turn. By queue, as JSON."""
        self._turn += 1
        return json.dumps({queue: _from(self._turn, workers)[:CALLED] for queue, workers in self.workers.items()})

    async def rehearse(self) -> None:
        await self._fire_runs([], [], snapshot.BEFORE_ALL, True, [], LEAD, DueKind.LIVE)

    async def _fire_runs(
        self,
        leases: Sequence[Lease],
        entries: Sequence[Entry],
        seen: Snapshot,
        told: bool,
        ranks: Sequence[int],
        lead: Duration,
        kind: DueKind,
    ) -> list[Row]:
        return await self._server.statement(
            "fire_runs",
            **ahead.under(leases),
            fire_ats=[fire_at for fire_at, _ in entries],
            numbers=[number for _, number in entries],
            late=live_until(kind),
            chunk=CHUNK,
            life=seen.life,
            told=seen.text if told else None,
            ranks=ranks,
            whom=self._next_workers(),
            lead=lead,
            slot=SLOT,
            share=SHARE,
        )


async def _take(tx: Transaction, shard: int, owner: int, ttl: Duration) -> tuple[Lease | None, bool]:
    """The lease, and whether another transaction, which may be the old owner's, has locked the shard."""
    known = await tx.one("shard_row", shard=shard)
    if known is not None and await tx.one("lock_shard", shard=shard) is None:
        return None, True
    return await dispatching.take(tx, shard, owner, ttl), False
