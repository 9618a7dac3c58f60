"""The firing transaction: what is due is decided upon, and handed off, held, or ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from foliot.domain.decisions import TOO_LATE, too_late
from foliot.domain.fairness import UNRANKED, Placing
from foliot.domain.instant import MILLISECOND, Instant
from foliot.domain.lanes import DueKind, lane_of, limited_before
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Busy, TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.domain.store import DEFAULT_QUEUE, Decide, Fired, Lease
from foliot.store.verbs import following, sharing, spreading
from foliot.store.verbs.dispatching import hold
from foliot.store.verbs.facts import Due, due_runs, tick_facts
from foliot.store.verbs.following import End, Wanted
from foliot.store.verbs.gates import Gatekeeper
from foliot.store.verbs.transaction import Transaction
from foliot.store.verbs.working import Group, chunks_of, whom_for

CHUNK = 500
"""Most runs in one hand-off chunk."""

_LANES = tuple(Lane)
_AGAIN = 250 * MILLISECOND
"""Longer than a claim has its hands on a run."""

Decided = Sequence[tuple[TickFacts, TickDecision]]


async def fire(
    tx: Transaction,
    leases: Sequence[Lease],
    due: Sequence[tuple[Instant, int]],
    decide: Decide,
    placing: Placing,
    kind: DueKind,
) -> Fired:
    """1. The epochs are still mine, or nothing happens. 2. What the clock has not reached is refused. 3. Rows that are
    no longer pending at that time are passed over. 4. Ticks are decided, too late runs end. 5. Who needs a slot takes
    it, or waits. 6. The rest is handed off.
    """
    await hold(tx, leases)
    reached = [entry for entry in due if entry[0] <= tx.now]
    rows = await due_runs(tx, [number for _, number in reached])
    firing = Firing(tx, placing, kind)
    ticks: list[int] = []
    plain: list[tuple[Due, Lane]] = []
    missing = await tx.passed_over({entry for entry in reached if entry[1] not in rows})
    firing.busy += missing
    for fire_at, number in reached:
        row = rows.get(number)
        if row is None or row.fire_at != fire_at:
            # Moved, cancelled, claimed or decided meanwhile; a moved one has another entry.
            firing.stale += (fire_at, number) not in missing
            continue
        del rows[number]  # once, also when the wheel names it twice
        if row.schedule is not None:
            ticks.append(number)
            firing.rows[number] = row
        elif too_late(row.useful_until, tx.now):
            firing.tried.update((number,) if row.was_tried else ())
            firing.skip(number, Reason.TOO_LATE, TOO_LATE)
        else:
            plain.append((row, _LANES[row.lane]))
    await firing.decide_ticks(ticks, decide)
    await firing.hand_off(plain)
    await firing.write()
    return Fired(
        at=tx.now,
        handed_off=firing.handed_off,
        early=len(due) - len(reached),
        stale=firing.stale,
        skipped=firing.skipped_for.total(),
        held=firing.held_for.total() + firing.keeper.held_for.total(),
        created=firing.created,
        faults=firing.faults,
        busy=firing.busy,
        paced=firing.paced,
        again=[*firing.again, *(entry for entry in due if entry[0] > tx.now)],
        skipped_for=firing.skipped_for,
        held_for=firing.held_for + firing.keeper.held_for,
    )


class Firing:
    """What one firing transaction gathers before it writes."""

    def __init__(self, tx: Transaction, placing: Placing, kind: DueKind = DueKind.LIVE) -> None:
        self.tx = tx
        self.placing = placing
        self.kind = kind
        self.keeper = Gatekeeper(tx)
        self.rows: dict[int, Due] = {}
        """The due rows of ticks."""
        self.groups: dict[Group, list[int]] = {}
        self.tenants: dict[int, str] = {}
        self.tried: set[int] = set()
        """Runs that were tried before, and may have effects."""
        self.skips: list[End] = []
        self.stale = self.handed_off = self.created = 0
        self.skipped_for: Counter[str] = Counter()
        self.held_for: Counter[str] = Counter()
        self.faults: list[str] = []
        self.soonest: Instant | None = None
        """Of the successors that were made."""
        self.busy: list[tuple[Instant, int]] = []
        """What somebody else has his hands on."""
        self.again: list[tuple[Instant, int]] = []
        """Ticks that have made runs for some of their members, and go on."""
        self.paced: list[tuple[Instant, int]] = []
        """Ticks that wait for the rate of catch-up."""
        self.spread_runs = 0

    async def hand_off(self, rows: Sequence[tuple[Due, Lane]]) -> Sequence[tuple[Due, Lane]]:
        """Hands off the runs that have their slots, or need none, and holds the others. A check takes nothing more than
        its run. Takes each run with its own lane, and returns it with the lane that it was handed off in."""
        before = limited_before(self.tx.now, self.kind)
        rows = [(row, Lane.CATCH_UP if row.fire_at < before and lane is Lane.LIVE else lane) for row, lane in rows]
        lanes = await self.keeper.limits() if rows else ()
        asking = [one for one in rows if one[1] in lanes or one[0].options is not None or one[0].slots is not None]
        if asking:
            rows = await self._let_through(rows, asking)
        in_lane = {lane: lane_of(lane, self.kind) for lane in Lane}
        handed = [(row, in_lane[lane]) for row, lane in rows]
        groups, tenants = self.groups, self.tenants
        for row, lane in handed:
            number, _, queue, _, priority, _, _, label, is_suspected, _, tenant, job, options, *_ = row
            if options is not None:
                label = whom_for(label, job, options)
            alone = number if is_suspected else 0
            group = (queue or DEFAULT_QUEUE, lane, priority, label, alone, row.version, UNRANKED)
            groups.setdefault(group, []).append(number)
            if tenant is not None:
                tenants[number] = tenant
        self.handed_off += len(handed)
        return handed

    async def _let_through(
        self, rows: Sequence[tuple[Due, Lane]], asking: Sequence[tuple[Due, Lane]]
    ) -> Sequence[tuple[Due, Lane]]:
        candidates = [row.candidate(lane) for row, lane in asking if row.label is None]
        held = {one.number for one in candidates} - await self.keeper.let_through(candidates)
        again = [one for one in asking if one[0].number in self.keeper.busy]
        self.busy += [(row.fire_at, row.number) for row, _ in again if row.schedule is None]
        ticks = [(lane, row.number) for row, lane in again if row.schedule is not None]
        await self.tx.run_each("tick_decided", ticks)
        await self.tx.stir([number for _, number in ticks])
        return [one for one in rows if one[0].number not in held]

    def skip(
        self, number: int, reason: Reason, detail: str | None, until: Instant | None = None, count: int = 1
    ) -> None:
        self.skips.append((number, State.SKIPPED, self.tx.now, reason, detail, until, count))

    async def decide_ticks(self, numbers: list[int], decide: Decide) -> None:
        """One run per schedule at a time: what the first decision does is a fact for the second."""
        held = await self.tx.lock_free({self._schedule(number) for number in numbers})
        self.busy += [(self.rows[number].fire_at, number) for number in numbers if self._schedule(number) in held]
        waiting = [number for number in numbers if self._schedule(number) not in held]
        while waiting:
            first: dict[str, int] = {}
            rest: list[int] = []
            for number in waiting:
                schedule = self._schedule(number)
                if schedule in first:
                    rest.append(number)
                else:
                    first[schedule] = number
            facts, busy = await tick_facts(self.tx, first, self.rows, await self.keeper.pauses())
            self.busy += [(self.rows[number].fire_at, number) for number in busy]
            self.stale += sum(fact is None for fact in facts.values())
            readable = [fact for fact in facts.values() if fact is not None]
            decisions = decide(readable, self.tx.now) if readable else []
            await self.carry_out(list(zip(readable, decisions, strict=True)))
            await self._end_skipped()
            waiting = rest

    def _schedule(self, number: int) -> str:
        schedule = self.rows[number].schedule
        assert schedule is not None  # only ticks are kept here
        return schedule

    async def carry_out(self, decided: Decided) -> None:
        """All decisions of a wave: each kind of write is done once, for all of them."""
        going: list[tuple[Due, Lane]] = []
        spread: list[tuple[TickFacts, TickDecision]] = []
        holds: list[tuple[Any, ...]] = []
        later: list[tuple[Any, ...]] = []
        for fact, decision in decided:
            match decision.verdict:
                case "fire" if fact.over is not None:
                    spread.append((fact, decision))
                case "fire":
                    going.append((self.rows[fact.number], decision.lane))
                case "hold":
                    slot = decision.waits_for or f"turn:{self._schedule(fact.number)}"
                    # What somebody ordered has no successor to be made: it is only its turn that it waits for.
                    is_decided = decision.evaluated_through is not None or fact.origin is not Origin.SCHEDULED
                    why = (decision.reason, decision.detail, slot, is_decided)
                    if decision.until is None:
                        holds.append((*why, fact.number))
                    else:
                        later.append((*why, decision.until, fact.number))
                case "later":
                    self.paced.append((self.rows[fact.number].fire_at, fact.number))
                case _:
                    assert decision.reason is not None
                    self.tried.update((fact.number,) if fact.attempt else ())
                    self.skip(fact.number, decision.reason, decision.detail, decision.span_until, decision.span_count)
        self.held_for.update(str(one[0]) for one in (*holds, *later))
        await self.tx.run_each("tick_held", holds)
        await self.tx.run_each("tick_held_until", later)
        await self.tx.stir([one[-1] for one in later])
        last_made, instead = await self._make(decided)
        handed = await self.hand_off([*going, *instead])
        await self.tx.run_each("tick_fired", [(self.tx.now, lane, row.number) for row, lane in handed])
        await self._spread(spread)
        await self._make_room(decided)
        await self._let_others_go(decided)
        await self._tell_schedules(decided, last_made)

    async def _spread(self, ticks: Decided) -> None:
        """Ticks over many members make runs for the next of these, which fire as others do. All of them together no
        more than fit: who else is due waits for this."""
        for fact, decision in ticks:
            most = max(spreading.CHUNK - self.spread_runs, 0)
            made = await spreading.spread(self.tx, self._schedule(fact.number), fact, decision, most)
            self.created += made.runs
            self.spread_runs += made.runs
            if made.is_held:
                self.busy.append((fact.fire_at, fact.number))
            if made.nobody is not None:
                self.skip(fact.number, Reason.NO_MEMBERS, made.nobody)
            elif made.more:
                self.again.append((fact.fire_at, fact.number))

    async def _make(self, decided: Decided) -> tuple[dict[str, str], list[tuple[Due, Lane]]]:
        """The next runs of schedules: what was made last, by schedule; and what is to be fired in place of others."""
        wanted: list[Wanted] = []
        templates: dict[str, Due] = {}
        for fact, decision in decided:
            schedule = self._schedule(fact.number)
            templates[schedule] = self.rows[fact.number]
            if decision.instead is not None:
                # One over many members is not handed off: it fires by itself, and makes its runs then.
                fired_at = self.tx.now if fact.over is None else None
                wanted.append(Wanted(schedule, decision.instead, decision.lane, fired_at, is_decided=True))
            if decision.successor is not None:
                wanted.append(Wanted(schedule, decision.successor))
        last_made: dict[str, str] = {}
        instead: list[tuple[Due, Lane]] = []
        for one, made in zip(wanted, await following.make_ticks(self.tx, wanted), strict=True):
            if made is None:
                continue
            last_made[one.schedule] = made.name  # the successor comes after what is fired instead
            if one.fired_at is None:
                self.created += 1
                due = one.tick.fire_at
                self.soonest = due if self.soonest is None else min(self.soonest, due)
                if one.is_decided:
                    await self.tx.run_each("tick_decided", [(one.lane, made.number)])
            else:
                fresh = templates[one.schedule]._replace(
                    number=made.number, label=None, is_suspected=False, slots=None, version=0
                )
                instead.append((fresh, one.lane))
        return last_made, instead

    async def _make_room(self, decided: Decided) -> None:
        """What waited and has become one with another, or was passed over, ends; what is replaced is stopped."""
        ends: list[End] = []
        for fact, decision in decided:
            into = f"by {fact.id}" if decision.merged_as is Reason.REPLACED else f"into {fact.id}"
            ends += [
                (one.number, State.SKIPPED, self.tx.now, decision.merged_as, into, None, 1) for one in decision.merges
            ]
            if decision.replaces and not await self._stop(decision.replaces, fact.id, self._schedule(fact.number)):
                await self._look_again(fact, decision)
        spans = [(decision.since, fact.number) for fact, decision in decided if decision.since is not None]
        await self.tx.run_each("tick_spans", spans)
        if ends:
            await following.end(self.tx, ends, [one[0] for one in ends])
            self.skipped_for.update(str(one[3]) for one in ends)

    async def _let_others_go(self, decided: Decided) -> None:
        """Whoever waits although nobody is busy waits for another one that waits: that one goes."""
        idle = {
            self._schedule(fact.number)
            for fact, decision in decided
            if decision.verdict == "hold" and decision.reason is Reason.OVERLAP and fact.waiting and not fact.busy
        }
        if idle:
            rows = await self.tx.all("release_held", schedules=list(idle), now=self.tx.now)
            await self.tx.stir([row[0] for row in rows])

    async def _stop(self, replaced: Sequence[Busy], by: str, schedule: str) -> bool:
        """False when one of them is in somebody's hands, such as those of a worker that is claiming it: it neither
        waits any more, nor has it an owner yet."""
        numbers = [one.number for one in replaced]
        ended, busy = await following.stop(self.tx, numbers, Reason.REPLACED, f"by {by}")
        if ended:
            await following.runs_ended(self.tx, {schedule})
        asked = await following.ask_to_stop(self.tx, busy, Reason.REPLACED, f"by {by}")
        return asked >= set(busy)

    async def _look_again(self, fact: TickFacts, decision: TickDecision) -> None:
        """It waits for their end all the same, and is decided upon once more a little later."""
        slot, at = f"turn:{self._schedule(fact.number)}", self.tx.now + _AGAIN
        await self.tx.run_each("tick_held_until", [(decision.reason, decision.detail, slot, True, at, fact.number)])
        await self.tx.stir([fact.number])

    async def _tell_schedules(self, decided: Decided, last_made: dict[str, str]) -> None:
        evaluated, noted = [], []
        for fact, decision in decided:
            schedule = self._schedule(fact.number)
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
        schedules = {self._schedule(skip[0]) for skip in self.skips if skip[0] in self.rows}
        if schedules:
            await following.runs_ended(self.tx, schedules)
        self.skipped_for.update(str(one[3]) for one in self.skips)
        self.skips.clear()

    async def write(self) -> None:
        await self._end_skipped()
        groups = await sharing.ranked(self.tx, self.placing, self.groups, self.tenants)
        await self.tx.run_each("add_handoff", chunks_of(self.tx, groups, CHUNK))
