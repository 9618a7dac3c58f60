"""What contract tests are played on: a store, its clock, and short words for the usual steps of a run's life."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from foliot.clock import ManualClock
from foliot.dispatch import decide_ticks
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, parse_rfc3339
from foliot.domain.ledger import Begun, Effect, EffectState
from foliot.domain.policy import Policy
from foliot.domain.run import Claimed, Ending, Kept, Loss, Promise, RunView
from foliot.domain.schedule import Applied, Declaration, NewTick, TickDecision, TickFacts
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.store import DEFAULT_QUEUE, Cells, EventRow, Fired, JobCard, Lease, Store
from foliot.errors import LostOwnership

START: Instant = parse_rfc3339("2026-04-03T02:00:00Z")
BEGINNING: tuple[Instant, int] = (-(1 << 63), -1)
TTL: Duration = 5 * SECOND
FAR: Instant = START + 3650 * DAY

Entry = tuple[Instant, int]
Judge = Callable[[TickFacts], TickDecision]


def fires(fact: TickFacts) -> TickDecision:
    return TickDecision(fact.number, "fire")


def skips(fact: TickFacts) -> TickDecision:
    return TickDecision(fact.number, "skip", reason=Reason.OVERLAP, detail=fact.occupied_by)


def holds(fact: TickFacts) -> TickDecision:
    return TickDecision(fact.number, "hold", reason=Reason.OVERLAP, detail=fact.occupied_by)


def fires_hourly(fact: TickFacts) -> TickDecision:
    """A schedule that fires, and whose next tick is an hour later; what was tried before has its successor already."""
    following = NewTick(fact.nominal + HOUR, fact.nominal, fact.nominal + HOUR)
    return TickDecision(
        fact.number, "fire", successor=None if fact.attempt else following, evaluated_through=fact.nominal
    )


def deciding(judge: Judge) -> Callable[[Sequence[TickFacts], Instant], list[TickDecision]]:
    return lambda facts, now: [judge(fact) for fact in facts]


def entries(told: Any) -> list[Entry]:
    """The pairs in `Cells` or `Arrivals`."""
    return list(zip(told.fire_at, told.number, strict=True))


def declared(name: str, first: Instant | None, **more: Any) -> Declaration:
    given: dict[str, Any] = {
        "id": name,
        "job": "job",
        "rule": "{}",
        "payload": b"{}",
        "policy": Policy(),
        "options": None,
        "delay": None,
        "first": first,
        "first_fire_at": first,
        "fingerprint": "v1",
    }
    return Declaration(**given | more)


@dataclass
class Stage:
    """One scheduler and one worker, made when they are first needed. Other actors are made by `register`."""

    store: Store
    clock: ManualClock
    _actors: dict[str, int] = field(default_factory=dict)

    @property
    def now(self) -> Instant:
        return self.clock.now()

    # Who is there

    async def register(
        self,
        role: str = "worker",
        jobs: Sequence[str] = ("job",),
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        **more: Any,
    ) -> int:
        cards = [JobCard(name, b"{}", DEFAULT_QUEUE) for name in jobs]
        return (await self.store.register(role, version="test", queues=queues, slots=10, jobs=cards, **more)).number

    async def scheduler(self) -> int:
        return await self._actor("scheduler")

    async def worker(self) -> int:
        return await self._actor("worker")

    async def _actor(self, role: str) -> int:
        if role not in self._actors:
            self._actors[role] = await self.register(role)
        return self._actors[role]

    # Promising

    async def promise(self, key: str | None = None, *, after: Duration = 0, job: str = "job", **more: Any) -> Kept:
        [kept] = await self.store.promise([Promise(job, more.pop("payload", b"{}"), self.now + after, key=key, **more)])
        return kept

    async def apply(self, *declarations: Declaration, prune: bool = False) -> Applied:
        return await self.store.apply(declarations, prune=prune, actor="test")

    # Dispatching

    async def lease(self, owner: int | None = None, high_water: Instant = FAR) -> Lease:
        """The shard, with all cells below the mark leased."""
        lease = await self.store.take(0, owner or await self.scheduler(), TTL)
        assert lease is not None
        return (await self.store.renew([lease], TTL, high_water))[0]

    async def loaded(self, lease: Lease, start: Entry = BEGINNING, limit: int = 100) -> list[Entry]:
        """All that the window holds, slice by slice."""
        found: list[Entry] = []
        while True:
            cells: Cells = await self.store.load(lease, start, limit)
            found += entries(cells)
            if cells.exhausted:
                return found
            assert cells.last > start
            start = cells.last

    async def fire(self, judge: Judge = fires) -> Fired:
        """What a scheduler does that was just started: takes the shard, loads everything, fires what is due."""
        lease = await self.lease()
        due = [entry for entry in await self.loaded(lease) if entry[0] <= self.now]
        return await self.store.fire([lease], due, lease.cursor, deciding(judge))

    async def fire_by_policy(self) -> Fired:
        """The same, with ticks decided upon as a scheduler does it."""
        return await self.fire(lambda fact: decide_ticks([fact], self.now)[0])

    # Working

    async def claim(
        self, limit: int = 100, *, worker: int | None = None, suspects: bool = True, **more: Any
    ) -> list[Claimed]:
        queues, jobs = more.get("queues", [DEFAULT_QUEUE]), more.get("jobs", ["job", "job?"])
        try:
            return await self.store.claim(worker or await self.worker(), queues, jobs, limit, suspects)
        except LostOwnership:
            if worker is not None:
                raise
            del self._actors["worker"]  # declared dead: as a worker does, it registers anew
            return await self.store.claim(await self.worker(), queues, jobs, limit, suspects)

    async def running(self, key: str | None = None, *, worker: int | None = None, **more: Any) -> Claimed:
        """A promise that is due, handed off and claimed."""
        kept = await self.promise(key, **more)
        await self.fire()
        [claimed] = [run for run in await self.claim(worker=worker) if run.id == kept.id]
        return claimed

    async def running_tick(self, name: str = "hourly", judge: Judge = fires) -> Claimed:
        """A schedule whose one tick is due, handed off and claimed."""
        await self.apply(declared(name, self.now))
        await self.fire(judge)
        [claimed] = [run for run in await self.claim() if run.schedule == name]
        return claimed

    async def finish(self, *endings: Ending, worker: int | None = None) -> list[Ending]:
        return await self.store.finish(worker or await self.worker(), endings)

    def ending(self, run: Claimed, event: Event, outcome: Outcome, **more: Any) -> Ending:
        given = {"started_at": self.now, "finished_at": self.now} | more
        return Ending(run.number, run.token, run.attempt, event, outcome, **given)

    def succeeded(self, run: Claimed, **more: Any) -> Ending:
        return self.ending(run, Event.COMPLETED, Outcome.SUCCEEDED, **more)

    def failed(self, run: Claimed, retry_in: Duration = MINUTE, **more: Any) -> Ending:
        given = {"retry_at": self.now + retry_in, "error": "ValueError: no"} | more
        return self.ending(run, Event.RETRY_GRANTED, Outcome.FAILED, **given)

    def died(self, run: Claimed, **more: Any) -> Ending:
        given = {"reason": Reason.ATTEMPTS, "error": "ValueError: no"} | more
        return self.ending(run, Event.EXHAUSTED, Outcome.FAILED, **given)

    def puzzled(self, run: Claimed) -> Ending:
        return self.ending(run, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.LOST, error="who knows")

    def interrupted(self, run: Claimed) -> Ending:
        return self.ending(run, Event.GIVEN_BACK, Outcome.INTERRUPTED)

    def stopped(self, run: Claimed, **more: Any) -> Ending:
        return self.ending(run, Event.CANCEL, Outcome.CANCELLED, reason=Reason.REQUESTED, **more)

    def lost(
        self, run: Claimed, event: Event = Event.RETRY_GRANTED, retry_at: Instant | None = None, **more: Any
    ) -> Loss:
        reason = None if event is Event.RETRY_GRANTED else Reason.LOST
        return Loss(run.number, run.token, run.attempt, event, retry_at, reason, "not heard of", **more)

    # Being uncertain

    async def begin(self, run: Claimed, name: str = "pay", key: str = "7", **more: Any) -> Begun:
        return await self.store.begin_effect(run.number, run.token, Effect(name, key, **more))

    async def end(self, run: Claimed, state: EffectState = EffectState.DONE, key: str = "7", **more: Any) -> None:
        given = {"result": None, "note": None} | more
        await self.store.end_effect(run.number, run.token, Effect("pay", key), state, **given)

    async def ambiguous(self, key: str | None = None) -> Claimed:
        """A run that left an effect open, and needs attention."""
        run = await self.running(key)
        await self.begin(run)
        await self.finish(self.ending(run, Event.MAYBE_FOUND, Outcome.FAILED, reason=Reason.EFFECT, error="cut off"))
        return run

    def checkable(self, run: Claimed, **more: Any) -> Ending:
        """Its handler succeeded, and its result is to be checked."""
        return self.ending(run, Event.CHECK_DUE, Outcome.SUCCEEDED, **more)

    async def checking(self, key: str | None = None, **more: Any) -> Claimed:
        """A run whose check has been claimed."""
        run = await self.running(key)
        await self.finish(self.checkable(run, **more))
        [check] = [one for one in await self.claim() if one.number == run.number]
        return check

    async def ledger(self, what: Kept | Claimed | str) -> list[tuple[str, str, EffectState]]:
        return [(one.name, one.key, one.state) for one in (await self.run(what)).effects]

    # Looking

    async def run(self, what: Kept | Claimed | str) -> RunView:
        return await self.store.run(what if isinstance(what, str) else what.id)

    async def state(self, what: Kept | Claimed | str) -> State:
        return (await self.run(what)).state

    async def events(self, kind: str | None = None) -> list[EventRow]:
        return [row for row in await self.store.events_since(0, 1_000) if kind in (None, row.kind)]

    async def told(self, cursor: int) -> list[Entry]:
        """What a scheduler that holds everything hears after `cursor`; it holds the shard already."""
        lease = Lease(0, await self.scheduler(), 0, 0, FAR, cursor)
        return entries(await self.store.arrivals([lease], cursor))

    async def waiting(self, schedule: str) -> list[RunView]:
        """Runs of a schedule that have not been handed off."""
        found = await self.store.runs(schedule=schedule, states=[State.SCHEDULED, State.HELD])
        return sorted(found, key=lambda run: run.fire_at)
