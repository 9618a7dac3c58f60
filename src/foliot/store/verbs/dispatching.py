"""From durable promise to handed-off work: shard leases, cells, arrivals, and the firing transaction."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foliot.domain.decisions import too_late
from foliot.domain.identity import run_id
from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Schedule, TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.domain.store import DEFAULT_QUEUE, Arrivals, Cells, Decide, Fired, Lease, Shard, Standing
from foliot.errors import LostOwnership
from foliot.store import process
from foliot.store.verbs import following
from foliot.store.verbs.following import End, Wanted, unend
from foliot.store.verbs.schedules import schedule_of
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs
from foliot.store.verbs.working import Group, chunks_of

CHUNK = 500
"""Most runs in one hand-off chunk."""

LATE = MINUTE
"""A delayed run later than this rides the catch-up lane, so that backlog does not delay live work."""

BEGINNING: Instant = -(1 << 62)

# --------------------------------------------------------------------------------------------------------------- leases


async def standing(tx: Transaction, owner: int, ttl: Duration, shards: int) -> Standing:
    await tx.run("beat_instance", number=owner, now=tx.now)
    rows = {row[0]: row for row in await tx.all("shard_rows")}
    found = []
    for shard in range(shards):
        row = rows.get(shard)
        found.append(Shard(shard, None if row is None or _is_free(tx, row, ttl) else row[1]))
    living = [
        number
        for number, beat_at, host, pid, birth in await tx.all("live_schedulers")
        if beat_at > tx.now - ttl and not process.is_gone(host, pid, birth)
    ]
    return Standing(found, living)


async def take(tx: Transaction, shard: int, owner: int, ttl: Duration) -> Lease | None:
    row = await tx.one("shard_row", shard=shard)
    if row is not None and row[1] != owner and not _is_free(tx, row, ttl):
        return None
    epoch = await tx.one(
        "take_shard",
        shard=shard,
        owner=owner,
        epoch=row[2] if row else 0,
        until=tx.now + ttl,
        high_water=BEGINNING,
    )
    return None if epoch is None else Lease(shard, owner, epoch[0], tx.now + ttl, BEGINNING, 0)


def _is_free(tx: Transaction, row: Row, ttl: Duration) -> bool:
    _, holder, _, until, host, pid, birth, ended_at = row
    # A lease that ends later than any could was made by a clock that has been set back since: it says nothing.
    held = holder is not None and tx.now < until <= tx.now + ttl and ended_at is None
    return not held or (host is not None and process.is_gone(host, pid, birth))


def leased(leases: Iterable[Lease]) -> str:
    return as_json([(lease.shard, lease.epoch) for lease in leases])


async def renew(tx: Transaction, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
    if not leases:
        return []
    until, owner = tx.now + ttl, leases[0].owner
    renewed = await tx.all("renew_shards", leases=leased(leases), owner=owner, until=until, high_water=high_water)
    held = {row[0] for row in renewed}
    await tx.run("beat_instance", number=owner, now=tx.now)
    return [
        lease._replace(until=until, high_water=max(lease.high_water, high_water))
        for lease in leases
        if lease.shard in held and lease.owner == owner
    ]


async def release(tx: Transaction, leases: Sequence[Lease]) -> None:
    if leases:
        await tx.run("release_shards", leases=leased(leases), owner=leases[0].owner)


async def hold(tx: Transaction, leases: Sequence[Lease]) -> None:
    """First in every firing transaction: whoever takes a shard over waits until this one has ended."""
    if leases:
        owned = await tx.all("owned_shards", leases=leased(leases), owner=leases[0].owner)
        lost = {lease.shard for lease in leases} - {row[0] for row in owned}
        if lost:
            raise LostOwnership(f"shards {sorted(lost)} are no longer owned under these epochs", lost)


# ---------------------------------------------------------------------------------------------------------------- cells


class HandedOff(NamedTuple):
    """What chunks named when a shard was taken over: a new owner must not hand it off a second time.

    It stays true for as long as the lease does: only the owner adds to chunks, and only what it has loaded before. A
    run that has come back since then (a retry, a move) has a later fire time, or is told by `arrivals`.
    """

    at: Instant
    numbers: frozenset[int]

    def has(self, fire_at: Instant, number: int) -> bool:
        return fire_at <= self.at and number in self.numbers


NOTHING = HandedOff(BEGINNING, frozenset())


async def handed_off(tx: Transaction) -> HandedOff:
    chunks = await tx.all("handed_off")
    return HandedOff(tx.now, frozenset(number for (stored,) in chunks for number in tx.unpacked(stored)))


def cells(rows: Sequence[Row], start: tuple[Instant, int], limit: int, before: HandedOff) -> Cells:
    kept = [row for row in rows if not before.has(row[0], row[1])] if before.numbers else rows
    return Cells(
        array("q", [row[0] for row in kept]),
        array("q", [row[1] for row in kept]),
        last=(rows[-1][0], rows[-1][1]) if rows else start,
        exhausted=len(rows) < limit,
    )


def told(rows: Sequence[Row], cursor: int) -> Arrivals:
    return Arrivals(array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows]), cursor)


# --------------------------------------------------------------------------------------------------------------- firing


async def fire(tx: Transaction, leases: Sequence[Lease], due: Sequence[tuple[Instant, int]], decide: Decide) -> Fired:
    """1. The epochs are still mine, or nothing happens. 2. What the clock has not reached is refused. 3. Rows that are
    no longer pending at that time are passed over. 4. Ticks are decided, too late runs end. 5. The rest is handed off.
    """
    await hold(tx, leases)
    reached = [entry for entry in due if entry[0] <= tx.now]
    rows = {row[0]: row for row in await tx.all("due_runs", numbers=longs([number for _, number in reached]))}
    firing = Firing(tx)
    ticks: list[int] = []
    missing = await tx.passed_over({entry for entry in reached if entry[1] not in rows})
    firing.busy += missing
    for fire_at, number in reached:
        row = rows.get(number)
        if row is None or row[1] != fire_at:
            # Moved, cancelled, claimed or decided meanwhile; a moved one has another entry.
            firing.stale += (fire_at, number) not in missing
            continue
        del rows[number]  # once, also when the wheel names it twice
        if row[6] is not None:
            ticks.append(number)
            firing.rows[number] = row
        elif too_late(row[5], tx.now):
            firing.tried.update((number,) if row[9] else ())
            firing.skip(number, Reason.TOO_LATE, None)
        else:
            firing.hand_off(row)
    await firing.decide_ticks(ticks, decide)
    await firing.write()
    return Fired(
        at=tx.now,
        handed_off=firing.handed_off,
        early=len(due) - len(reached),
        stale=firing.stale,
        skipped=firing.skipped,
        held=firing.held,
        created=firing.created,
        faults=firing.faults,
        busy=firing.busy,
    )


class Firing:
    """What one firing transaction gathers before it writes."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.rows: dict[int, Row] = {}
        """The due rows of ticks."""
        self.groups: dict[Group, list[int]] = {}
        self.tried: set[int] = set()
        """Runs that were tried before, and may have effects."""
        self.skips: list[End] = []
        self.stale = self.handed_off = self.skipped = self.held = self.created = 0
        self.faults: list[str] = []
        self.busy: list[tuple[Instant, int]] = []
        """What somebody else has his hands on."""

    def hand_off(self, row: Row, lane: int | None = None) -> None:
        number, fire_at, queue, own_lane, priority, _, _, label, suspected, _ = row
        if lane is None:
            lane = Lane.CATCH_UP if own_lane == Lane.LIVE and self.tx.now - fire_at > LATE else own_lane
        group = (queue or DEFAULT_QUEUE, lane, priority, label, number if suspected else 0)
        self.groups.setdefault(group, []).append(number)
        self.handed_off += 1

    def skip(
        self, number: int, reason: Reason, detail: str | None, until: Instant | None = None, count: int = 1
    ) -> None:
        self.skips.append((number, State.SKIPPED, self.tx.now, reason, detail, until, count))

    async def decide_ticks(self, numbers: list[int], decide: Decide) -> None:
        """One run per schedule at a time: what the first decision does is a fact for the second."""
        held = await self.tx.lock_free({self.rows[number][6] for number in numbers})
        self.busy += [(self.rows[number][1], number) for number in numbers if self.rows[number][6] in held]
        waiting = [number for number in numbers if self.rows[number][6] not in held]
        while waiting:
            first: dict[str, int] = {}
            rest: list[int] = []
            for number in waiting:
                schedule = self.rows[number][6]
                if schedule in first:
                    rest.append(number)
                else:
                    first[schedule] = number
            facts = await _facts(self.tx, first, self.rows)
            self.stale += sum(fact is None for fact in facts.values())
            readable = [fact for fact in facts.values() if fact is not None]
            decisions = decide(readable, self.tx.now) if readable else []
            await self._carry_out(list(zip(readable, decisions, strict=True)))
            await self._end_skipped()
            waiting = rest

    async def _carry_out(self, decided: Sequence[tuple[TickFacts, TickDecision]]) -> None:
        """All decisions of a wave: each kind of write is done once, for all of them."""
        fired: list[tuple[Instant, int, int]] = []
        holds: list[tuple[str | None, str | None, int]] = []
        wanted: list[Wanted] = []
        templates: dict[str, Row] = {}
        for fact, decision in decided:
            row = templates[self.rows[fact.number][6]] = self.rows[fact.number]
            match decision.verdict:
                case "fire":
                    fired.append((self.tx.now, decision.lane, fact.number))
                    self.hand_off(row, decision.lane)
                case "hold":
                    holds.append((decision.reason, decision.detail, fact.number))
                case _:
                    assert decision.reason is not None
                    self.tried.update((fact.number,) if fact.attempt else ())
                    self.skip(fact.number, decision.reason, decision.detail, decision.span_until, decision.span_count)
            if decision.instead is not None:
                wanted.append(Wanted(row[6], decision.instead, decision.lane, self.tx.now))
            if decision.successor is not None:
                wanted.append(Wanted(row[6], decision.successor))
        self.held += len(holds)
        await self.tx.run_each("tick_fired", fired)
        await self.tx.run_each("tick_held", holds)
        last_made: dict[str, str] = {}
        for one, made in zip(wanted, await following.make_ticks(self.tx, wanted), strict=True):
            if made is None:
                continue
            last_made[one.schedule] = made.name  # the successor comes after what is fired instead
            if one.fired_at is None:
                self.created += 1
            else:
                self.hand_off((made.number, *templates[one.schedule][1:7], None, False, False), one.lane)
        await self._tell_schedules(decided, last_made)

    async def _tell_schedules(
        self, decided: Sequence[tuple[TickFacts, TickDecision]], last_made: dict[str, str]
    ) -> None:
        evaluated, noted = [], []
        for fact, decision in decided:
            schedule = self.rows[fact.number][6]
            made = last_made.get(schedule)
            if decision.fault is not None:
                self.faults.append(schedule)
                await self.tx.event("schedule_set_aside", schedule, decision.fault)
            if fact.schedule is not None and decision.evaluated_through is not None:
                walls = (decision.last_wall, decision.next_wall, decision.tables)
                evaluated.append((decision.evaluated_through, made, decision.fault, *walls, schedule))
            elif fact.schedule is not None and (made or decision.fault):
                noted.append((made, decision.fault, schedule))
        await self.tx.run_each("schedule_evaluated", evaluated)
        await self.tx.run_each("schedule_noted", noted)

    async def _end_skipped(self) -> None:
        """What does not run ends here, and sets free whatever was held for it."""
        if not self.skips:
            return
        await following.end(self.tx, self.skips, [skip[0] for skip in self.skips if skip[0] in self.tried])
        schedules = {self.rows[skip[0]][6] for skip in self.skips if skip[0] in self.rows}
        if schedules:
            await following.runs_ended(self.tx, schedules)
        self.skipped += len(self.skips)
        self.skips.clear()

    async def write(self) -> None:
        await self._end_skipped()
        await self.tx.run_each("add_handoff", chunks_of(self.tx, self.groups, CHUNK))


async def _facts(tx: Transaction, wanted: dict[str, int], rows: dict[int, Row]) -> dict[int, TickFacts | None]:
    """By run; None for one that is no longer to be decided upon: somebody got there first. Rows that cannot be read are
    set aside. `rows` were read before the schedules were locked, and are brought up to date: where a run is handed off
    to follows from them."""
    listed = list(wanted)
    schedules = {row[0]: schedule_of(row) for row in await tx.all("schedules_by_id", ids=listed)}
    busy: dict[str, list[tuple[int, str]]] = {}
    for schedule, number, name in await tx.all("busy_runs", schedules=listed):
        busy.setdefault(schedule, []).append((number, run_id(number, name)))
    facts: dict[int, TickFacts | None] = dict.fromkeys(wanted.values())
    for row in await tx.all("due_ticks", numbers=longs(wanted.values()), now=tx.now):
        number, _, _, _, _, fire_at, useful_until, attempt, schedule, lane, _, queue, priority, label, suspected = row
        rows[number] = (number, fire_at, queue, lane, priority, useful_until, schedule, label, suspected, attempt > 0)
        try:
            facts[row[0]] = _fact(row, schedules, busy)
        except ValueError as error:
            del facts[row[0]]
            await _set_aside(tx, row[0], row[1], error)
    return facts


def _fact(row: Row, schedules: dict[str, Schedule], busy: dict[str, list[tuple[int, str]]]) -> TickFacts:
    number, name, origin, nominal, since, fire_at, useful_until, attempt, schedule, lane, withdrawn = row[:11]
    others = [other for busy_number, other in busy.get(schedule, ()) if busy_number != number]
    return TickFacts(
        number=number,
        id=run_id(number, name),
        origin=Origin(origin),
        nominal=fire_at if nominal is None else nominal,
        since=since,
        fire_at=fire_at,
        useful_until=useful_until,
        attempt=attempt,
        schedule=schedules.get(schedule),
        occupied_by=others[0] if others else None,
        lane=Lane(lane),
        withdrawn=withdrawn,
    )


async def _set_aside(tx: Transaction, number: int, name: str | None, error: ValueError) -> None:
    """A row that this release cannot read, as a newer one may write it: it waits for a person, and the rest goes on."""
    told = f"the run cannot be read by this release: {error}"
    await unend(tx, number, State.DEAD, None, 0, Reason.BAD_ROW, told)
    await tx.event("run_set_aside", run_id(number, name), told)
