"""An honest little store for the dispatcher: the port's contract in memory, with its own clock and its own memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from foliot.clock import ManualClock
from foliot.domain.identity import tick_name
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Origin
from foliot.domain.schedule import Armed, NewTick, Rearming, Schedule, TickFacts
from foliot.domain.store import Arrivals, Cells, Decide, Fired, Lease
from foliot.errors import LostOwnership

BEGINNING: Instant = -(1 << 62)


@dataclass
class Row:
    number: int
    fire_at: Instant
    schedule: Schedule | None = None
    nominal: Instant | None = None
    state: str = "pending"


@dataclass
class FakeStore:
    """`made` and `told` are what the tests look at; `calls` names every verb that was used."""

    clock: ManualClock
    rows: dict[int, Row] = field(default_factory=dict)
    fired: list[tuple[Instant, Instant, int]] = field(default_factory=list)
    """(the store's clock, fire time, number), in order."""
    batches: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    trouble: dict[str, list[Exception]] = field(default_factory=dict)
    """What the next calls of a verb shall raise, before they do anything."""
    commits: int = 0
    sequence: int = 0
    stirred: list[tuple[int, int]] = field(default_factory=list)
    owner: int | None = None
    epoch: int = 0
    until: Instant = 0

    # What other processes do

    def promise(self, fire_at: Instant, schedule: Schedule | None = None, nominal: Instant | None = None) -> int:
        self.sequence += 1
        self.rows[self.sequence] = Row(self.sequence, fire_at, schedule, nominal)
        self.commits += 1
        return self.sequence

    def move(self, number: int, fire_at: Instant) -> None:
        self.rows[number].fire_at = fire_at
        self.rows[number].state = "pending"
        self.sequence += 1
        self.stirred.append((self.sequence, number))
        self.commits += 1

    def cancel(self, number: int) -> None:
        self.rows[number].state = "ended"
        self.commits += 1

    def pending(self) -> list[int]:
        return [row.number for row in self.rows.values() if row.state == "pending"]

    # The port

    def version(self) -> int:
        self._called("version")
        return self.commits

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        self._called("take")
        now = self.clock.now()
        if self.owner is not None and self.owner != owner and self.until > now:
            return None
        self.owner, self.epoch, self.until = owner, self.epoch + 1, now + ttl
        self.commits += 1
        return Lease(shard, owner, self.epoch, self.until, BEGINNING, self.sequence)

    async def renew(self, lease: Lease, ttl: Duration, high_water: Instant) -> Lease:
        self._called("renew")
        self._check(lease)
        self.until = self.clock.now() + ttl
        self.commits += 1
        return lease._replace(until=self.until, high_water=max(lease.high_water, high_water))

    async def release(self, lease: Lease) -> None:
        self._called("release")
        if lease.epoch == self.epoch:
            self.owner = None

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int) -> Cells:
        self._called("load")
        rows = sorted(
            (row.fire_at, row.number)
            for row in self.rows.values()
            if row.state in ("pending", "ready") and row.fire_at < lease.high_water and row.number <= lease.cursor
        )
        page = [entry for entry in rows if entry > start][:limit]
        kept = [entry for entry in page if self.rows[entry[1]].state == "pending"]
        self.loaded.append(len(kept))
        return Cells(*_arrays(kept), last=page[-1] if page else start, exhausted=len(page) < limit)

    async def arrivals(self, lease: Lease, cursor: int) -> Arrivals:
        self._called("arrivals")
        numbers = [number for number in self.rows if number > cursor]
        numbers += [number for sequence, number in self.stirred if sequence > cursor]
        rows = [self.rows[number] for number in numbers]
        told = [(r.fire_at, r.number) for r in rows if r.state == "pending" and r.fire_at < lease.high_water]
        return Arrivals(*_arrays(told), cursor=self.sequence)

    async def fire(self, lease: Lease, due: Sequence[tuple[Instant, int]], cursor: int, decide: Decide) -> Fired:
        self._called("fire")
        self._check(lease)
        now = self.clock.now()
        reached = [entry for entry in due if entry[0] <= now]
        valid = [self.rows[number] for fire_at, number in reached if self._fires(fire_at, number)]
        facts = [self._facts(row) for row in valid if row.schedule is not None]
        created = 0
        for fact, decision in zip(facts, decide(facts, now), strict=True):
            if decision.successor is not None:
                self._insert(fact, decision.successor)
                created += 1
        for row in valid:
            row.state = "ready"
            self.fired.append((now, row.fire_at, row.number))
        self.batches.append(len(due))
        self.commits += 1
        stale = len(reached) - len(valid)
        return Fired(now, len(valid), len(due) - len(reached), stale, 0, 0, created, [])

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        return []  # its schedules keep to elapsed time

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        raise AssertionError("there is nothing to move")

    # Its own

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.trouble.get(verb):
            raise self.trouble[verb].pop(0)

    def _check(self, lease: Lease) -> None:
        if (lease.owner, lease.epoch) != (self.owner, self.epoch):
            raise LostOwnership("somebody else owns it")

    def _fires(self, fire_at: Instant, number: int) -> bool:
        row = self.rows[number]
        return row.state == "pending" and row.fire_at == fire_at

    def _facts(self, row: Row) -> TickFacts:
        assert row.schedule is not None
        nominal = row.fire_at if row.nominal is None else row.nominal
        identifier = tick_name(row.schedule.id, nominal)
        return TickFacts(
            row.number, identifier, Origin.SCHEDULED, nominal, None, row.fire_at, None, 0, row.schedule, None
        )

    def _insert(self, fact: TickFacts, tick: NewTick) -> None:
        self.promise(tick.fire_at, fact.schedule, tick.nominal)


def _arrays(entries: Sequence[tuple[Instant, int]]) -> tuple[array[int], array[int]]:
    return array("q", [entry[0] for entry in entries]), array("q", [entry[1] for entry in entries])
