"""An honest little store for the dispatcher: the port's contract in memory, with its own clock and its own memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from foliot.clock import ManualClock
from foliot.domain.identity import tick_name
from foliot.domain.instant import Duration, Instant
from foliot.domain.lanes import DueKind
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Armed, NewTick, Rearming, Schedule, TickFacts
from foliot.domain.store import Arrivals, Cells, Decide, Fired, Lease, Shard, Standing, shard_of
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
class Held:
    """Who has a shard."""

    owner: int | None = None
    epoch: int = 0
    until: Instant = 0


@dataclass
class FakeStore:
    """`made` and `told` are what the tests look at; `calls` names every verb that was used."""

    clock: ManualClock
    rows: dict[int, Row] = field(default_factory=dict)
    fired: list[tuple[Instant, Instant, int]] = field(default_factory=list)
    """(the store's clock, fire time, number), in order."""
    ahead: list[tuple[Instant, Instant, int]] = field(default_factory=list)
    """The same, of what was handed off before its time."""
    batches: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    trouble: dict[str, list[Exception]] = field(default_factory=dict)
    """What the next calls of a verb shall raise, before they do anything."""
    commits: int = 0
    sequence: int = 0
    stirred: list[tuple[int, int]] = field(default_factory=list)
    shard_count: int = 1
    lead: Duration = 0
    held: dict[int, Held] = field(default_factory=dict)
    schedulers: dict[int, Instant] = field(default_factory=dict)
    """When each was heard of."""
    catch_up_rate: float | None = None
    """Runs per second of the whole fleet."""
    looked_ahead: list[tuple[Instant, set[int]]] = field(default_factory=list)
    """When, and with the leases of which shards."""
    kinds: list[tuple[DueKind, int]] = field(default_factory=list)
    """What was fired, in order, and as what."""
    fired_with: list[set[int]] = field(default_factory=list)
    """The shards whose leases came with each firing."""

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

    def when_new(self, callback: Callable[[], None]) -> bool:
        return False

    def version(self) -> int:
        self._called("version")
        return self.commits

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        self._called("standing")
        now = self.clock.now()
        self.schedulers[owner] = now
        self.commits += 1
        shards = [Shard(number, self.owner_of(number)) for number in range(self.shard_count)]
        return Standing(shards, sorted(one for one, heard in self.schedulers.items() if heard > now - ttl))

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        self._called("take")
        held = self.held.setdefault(shard, Held())
        if self.owner_of(shard) not in (None, owner):
            return None
        held.owner, held.epoch, held.until = owner, held.epoch + 1, self.clock.now() + ttl
        self.commits += 1
        return Lease(shard, owner, held.epoch, held.until, BEGINNING, self.cursor())

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        self._called("renew")
        mine = [lease for lease in leases if not self._lost([lease])]
        until = self.clock.now() + ttl
        for lease in mine:
            self.held[lease.shard].until = until
        self.commits += 1
        return [lease._replace(until=until, high_water=max(lease.high_water, high_water)) for lease in mine]

    async def release(self, leases: Sequence[Lease]) -> None:
        self._called("release")
        for lease in leases:
            if not self._lost([lease]):
                self.held[lease.shard].owner = None
                self.commits += 1

    def look_ahead(self, leases: Sequence[Lease], decide: Decide) -> None:
        self.looked_ahead.append((self.clock.now(), {lease.shard for lease in leases}))

    async def lane_rates(self) -> dict[Lane, float | None]:
        self._called("lane_rates")
        return {Lane.CATCH_UP: self.catch_up_rate}

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None = None) -> Cells:
        self._called("load")
        below = lease.high_water if until is None else min(until, lease.high_water)
        rows = sorted(
            (row.fire_at, row.number)
            for row in self.rows.values()
            if row.state in ("pending", "ready")
            and row.fire_at < below
            and row.number <= -lease.cursor
            and shard_of(row.number, self.shard_count) == lease.shard
        )
        page = [entry for entry in rows if entry > start][:limit]
        kept = [entry for entry in page if self.rows[entry[1]].state == "pending"]
        self.loaded.append(len(kept))
        return Cells(*_arrays(kept), last=page[-1] if page else start, exhausted=len(page) < limit)

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        self._called("arrivals")
        marks = {lease.shard: lease.high_water for lease in leases}
        numbers = [number for number in self.rows if number > -cursor]
        numbers += [number for sequence, number in self.stirred if sequence > -cursor]
        told = [
            (row.fire_at, row.number)
            for row in (self.rows[number] for number in numbers)
            if row.state == "pending" and row.fire_at < marks.get(shard_of(row.number, self.shard_count), BEGINNING)
        ]
        return Arrivals(*_arrays(told), cursor=self.cursor())

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        self._called("fire")
        if lost := self._lost(leases):
            raise LostOwnership("somebody else owns them", lost)
        entries = [*due, *soon]
        assert {shard_of(number, self.shard_count) for _, number in entries} <= {lease.shard for lease in leases}
        self.fired_with.append({lease.shard for lease in leases})
        now = self.clock.now()
        patient = [entry for entry in soon if self.rows[entry[1]].schedule is not None]
        again = [entry for entry in soon if entry[0] > now + self.lead]
        ahead = [entry for entry in soon if entry not in patient and entry not in again and self._fires(*entry)]
        for _, number in ahead:
            self.rows[number].state = "ready"
            self.ahead.append((now, self.rows[number].fire_at, number))
            self.kinds.append((kind, number))
        again += [entry for entry in due if entry[0] > now]
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
        self.batches.append(len(entries))
        self.kinds += [(kind, row.number) for row in valid]
        self.commits += 1
        stale = len(reached) - len(valid)
        fired = Fired(now, len(valid) + len(ahead), len(due) - len(reached), stale, 0, 0, created, [])
        return fired._replace(again=again, ahead=len(ahead), patient=patient)

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        return []  # its schedules keep to elapsed time

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        raise AssertionError("there is nothing to move")

    # Its own

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.trouble.get(verb):
            raise self.trouble[verb].pop(0)

    def cursor(self) -> int:
        """Runs downwards: whoever compares cursors finds out that they mean something only to the store."""
        return -self.sequence

    def owner_of(self, shard: int) -> int | None:
        """None when it is free."""
        held = self.held.get(shard)
        return None if held is None or held.until <= self.clock.now() else held.owner

    def _lost(self, leases: Sequence[Lease]) -> set[int]:
        return {
            lease.shard
            for lease in leases
            if (lease.owner, lease.epoch) != (self.held[lease.shard].owner, self.held[lease.shard].epoch)
        }

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
