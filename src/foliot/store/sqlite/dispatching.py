"""From durable promise to handed-off work: shard leases, cells, arrivals, and the firing transaction."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from foliot.domain.decisions import too_late
from foliot.domain.identity import run_id
from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Schedule, TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.domain.store import DEFAULT_QUEUE, Arrivals, Cells, Decide, Fired, Lease
from foliot.errors import LostOwnership
from foliot.store.sqlite import following, process
from foliot.store.sqlite.schedules import schedule_of
from foliot.store.sqlite.transaction import Row, Transaction, carray, packed, unpacked

CHUNK = 500
"""Most runs in one hand-off chunk."""

LATE = MINUTE
"""A delayed run later than this rides the catch-up lane, so that backlog does not delay live work."""

_BEGINNING: Instant = -(1 << 62)

Group = tuple[str, int, int]
"""Queue, lane, priority: what a chunk has in common."""


def take(tx: Transaction, shard: int, owner: int, ttl: Duration) -> tuple[Lease | None, HandedOff]:
    row = tx.one("shard_row", shard=shard)
    if row is not None:
        holder, _, until, _, host, pid, birth, ended_at = row
        # A lease that ends later than any could was made by a clock that has been set back since: it says nothing.
        held = holder is not None and tx.now < until <= tx.now + ttl and ended_at is None
        if held and holder != owner and not process.is_gone(host, pid, birth):
            return None, NOTHING
    epoch = tx.one(
        "take_shard",
        shard=shard,
        owner=owner,
        epoch=row[1] if row else 0,
        until=tx.now + ttl,
        high_water=_BEGINNING,
    )
    if epoch is None:
        return None, NOTHING
    cursor = tx.value("last_number")
    # What was stirred before this moment is read with the cells.
    tx.run("forget_stirs", cursor=cursor)
    return Lease(shard, owner, epoch[0], tx.now + ttl, _BEGINNING, cursor), _handed_off(tx)


def renew(tx: Transaction, lease: Lease, ttl: Duration, high_water: Instant) -> Lease:
    until, raised = tx.now + ttl, max(lease.high_water, high_water)
    if not tx.run(
        "renew_shard", shard=lease.shard, owner=lease.owner, epoch=lease.epoch, until=until, high_water=raised
    ):
        raise LostOwnership(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")
    tx.run("beat_instance", number=lease.owner, now=tx.now)
    return lease._replace(until=until, high_water=raised)


def release(tx: Transaction, lease: Lease) -> None:
    tx.run("release_shard", shard=lease.shard, owner=lease.owner, epoch=lease.epoch)


class HandedOff(NamedTuple):
    """What chunks named when a shard was taken over: a new owner must not hand it off a second time.

    It stays true for as long as the lease does: only the owner adds to chunks, and only what it has loaded before. A
    run that has come back since then (a retry, a move) has a later fire time, or is told by `arrivals`.
    """

    at: Instant
    numbers: frozenset[int]

    def has(self, fire_at: Instant, number: int) -> bool:
        return fire_at <= self.at and number in self.numbers


NOTHING = HandedOff(_BEGINNING, frozenset())


def _handed_off(tx: Transaction) -> HandedOff:
    return HandedOff(tx.now, frozenset(number for (blob,) in tx.all("handed_off") for number in unpacked(blob)))


def load(tx: Transaction, lease: Lease, start: tuple[Instant, int], limit: int, handed_off: HandedOff) -> Cells:
    rows = tx.all(
        "load_cells",
        fire_at=start[0],
        number=start[1],
        high_water=lease.high_water,
        cursor=lease.cursor,
        limit=limit,
    )
    kept = [row for row in rows if not handed_off.has(*row)] if handed_off.numbers else rows
    return Cells(
        array("q", [row[0] for row in kept]),
        array("q", [row[1] for row in kept]),
        last=rows[-1][:2] if rows else start,
        exhausted=len(rows) < limit,
    )


def arrivals(tx: Transaction, lease: Lease, cursor: int) -> Arrivals:
    last = tx.value("last_number")
    if last == cursor:
        return Arrivals(array("q"), array("q"), cursor)
    bounds = {"cursor": cursor, "last": last, "high_water": lease.high_water}
    rows = tx.all("arrived_new", **bounds) + tx.all("arrived_again", **bounds)
    return Arrivals(array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows]), last)


def fire(tx: Transaction, lease: Lease, due: Sequence[tuple[Instant, int]], cursor: int, decide: Decide) -> Fired:
    """1. The epoch is still mine, or nothing happens. 2. What the clock has not reached is refused. 3. Rows that are no
    longer pending at that time are passed over. 4. Ticks are decided, too late runs end. 5. The rest is handed off."""
    if tx.one("own_shard", shard=lease.shard, owner=lease.owner, epoch=lease.epoch) is None:
        raise LostOwnership(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")
    reached = [entry for entry in due if entry[0] <= tx.now]
    rows = {row[0]: row for row in tx.all("due_runs", numbers=carray([number for _, number in reached]))}
    firing = _Firing(tx)
    ticks: list[int] = []
    for fire_at, number in reached:
        row = rows.get(number)
        if row is None or row[1] != fire_at:
            firing.stale += 1  # moved, cancelled, claimed or decided meanwhile; a moved one has another entry
            continue
        del rows[number]  # once, also when the wheel names it twice
        if row[6] is not None:
            ticks.append(number)
            firing.rows[number] = row
        elif too_late(row[5], tx.now):
            firing.skip(number, Reason.TOO_LATE, None)
        else:
            firing.hand_off(row)
    firing.decide_ticks(ticks, decide)
    firing.write()
    tx.run("forget_stirs", cursor=cursor)
    return Fired(
        at=tx.now,
        handed_off=firing.handed_off,
        early=len(due) - len(reached),
        stale=firing.stale,
        skipped=firing.skipped,
        held=firing.held,
        created=firing.created,
        faults=firing.faults,
    )


class _Firing:
    """What one firing transaction gathers before it writes."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.rows: dict[int, Row] = {}
        """The due rows of ticks."""
        self.groups: dict[Group, list[int]] = {}
        self.skips: list[tuple[int, State, Instant, Reason, str | None, Instant | None, int]] = []
        self.stale = self.handed_off = self.skipped = self.held = self.created = 0
        self.faults: list[str] = []

    def hand_off(self, row: Row, lane: int | None = None) -> None:
        number, fire_at, queue, own_lane, priority, _, _ = row
        if lane is None:
            lane = Lane.CATCH_UP if own_lane == Lane.LIVE and self.tx.now - fire_at > LATE else own_lane
        self.groups.setdefault((queue or DEFAULT_QUEUE, lane, priority), []).append(number)
        self.handed_off += 1

    def skip(
        self, number: int, reason: Reason, detail: str | None, until: Instant | None = None, count: int = 1
    ) -> None:
        self.skips.append((number, State.SKIPPED, self.tx.now, reason, detail, until, count))

    def decide_ticks(self, numbers: list[int], decide: Decide) -> None:
        """One run per schedule at a time: what the first decision does is a fact for the second."""
        waiting = numbers
        while waiting:
            first: dict[str, int] = {}
            rest: list[int] = []
            for number in waiting:
                schedule = self.rows[number][6]
                if schedule in first:
                    rest.append(number)
                else:
                    first[schedule] = number
            facts = _facts(self.tx, first)
            for fact, decision in zip(facts, decide(facts, self.tx.now), strict=True):
                self._carry_out(fact, decision, self.rows[fact.number])
            self._end_skipped()
            waiting = rest

    def _carry_out(self, fact: TickFacts, decision: TickDecision, row: Row) -> None:
        schedule = row[6]
        match decision.verdict:
            case "fire":
                self.tx.run_each("tick_fired", [(self.tx.now, decision.lane, fact.number)])
                self.hand_off(row, decision.lane)
            case "hold":
                self.tx.run_each("tick_held", [(decision.reason, decision.detail, fact.number)])
                self.held += 1
            case _:
                assert decision.reason is not None
                self.skip(fact.number, decision.reason, decision.detail, decision.span_until, decision.span_count)
        made: str | None = None
        if decision.instead is not None:
            late = following.make_tick(self.tx, schedule, decision.instead, lane=decision.lane, fired_at=self.tx.now)
            if late is not None:
                self.hand_off((late[0], *row[1:]), decision.lane)
                made = late[1]
        if decision.successor is not None:
            successor = following.make_tick(self.tx, schedule, decision.successor)
            if successor is not None:
                self.created += 1
                made = successor[1]
        if decision.fault is not None:
            self.faults.append(schedule)
            self.tx.event("schedule_set_aside", schedule, decision.fault)
        if fact.schedule is not None and decision.evaluated_through is not None:
            walls = (decision.last_wall, decision.next_wall, decision.tables)
            told = (decision.evaluated_through, made, decision.fault, *walls, schedule)
            self.tx.run_each("schedule_evaluated", [told])
        elif fact.schedule is not None and (made or decision.fault):
            self.tx.run_each("schedule_noted", [(made, decision.fault, schedule)])

    def _end_skipped(self) -> None:
        """What does not run ends here, and sets free whatever was held for it."""
        if not self.skips:
            return
        self.tx.run_each("end_run", self.skips)
        self.tx.run("drop_runs", numbers=carray([skip[0] for skip in self.skips]))
        schedules = {self.rows[skip[0]][6] for skip in self.skips if skip[0] in self.rows}
        if schedules:
            following.runs_ended(self.tx, schedules)
        self.skipped += len(self.skips)
        self.skips.clear()

    def write(self) -> None:
        self._end_skipped()
        self.tx.run_each(
            "add_handoff",
            [
                (queue, lane, priority, self.tx.now, packed(numbers[start : start + CHUNK]))
                for (queue, lane, priority), numbers in self.groups.items()
                for start in range(0, len(numbers), CHUNK)
            ],
        )


def _facts(tx: Transaction, wanted: dict[str, int]) -> list[TickFacts]:
    listed = following.as_json(list(wanted))
    schedules = {row[0]: schedule_of(row) for row in tx.all("schedules_by_id", ids=listed)}
    busy: dict[str, list[tuple[int, str]]] = {}
    for schedule, number, name in tx.all("busy_runs", schedules=listed):
        busy.setdefault(schedule, []).append((number, run_id(number, name)))
    facts = []
    for row in tx.all("due_ticks", numbers=carray(wanted.values())):
        try:
            facts.append(_fact(row, schedules, busy))
        except ValueError as error:
            _set_aside(tx, row[0], row[1], error)
    return facts


def _fact(row: Row, schedules: dict[str, Schedule], busy: dict[str, list[tuple[int, str]]]) -> TickFacts:
    number, name, origin, nominal, since, fire_at, useful_until, attempt, schedule, lane, withdrawn = row
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


def _set_aside(tx: Transaction, number: int, name: str | None, error: ValueError) -> None:
    """A row that this release cannot read, as a newer one may write it: it waits for a person, and the rest goes on."""
    told = f"the run cannot be read by this release: {error}"
    tx.run_each("unend_run", [(number, State.DEAD, None, 0, Reason.BAD_ROW, told)])
    tx.event("run_set_aside", run_id(number, name), told)
