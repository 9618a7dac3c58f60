"""A small honest fake of the verbs that a worker uses: tokens fence, endings are kept, failures can be put in.

Contract and end-to-end tests use the real store; here the worker is alone.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from foliot.clock import ManualClock
from foliot.domain.identity import first_of_lineage
from foliot.domain.instant import SECOND, Instant
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView, Item, ItemState, Settles
from foliot.domain.policy import Policy
from foliot.domain.run import Claimed, Ending, Lane, Progress
from foliot.domain.state import Event, Outcome
from foliot.domain.store import Beat, Instance, JobCard, Offer, Wish
from foliot.errors import LostOwnership
from foliot.work.context import Context
from foliot.work.handler import Handler
from foliot.work.worker import Worker
from tests.waiting import HANG, until_async
from tests.waiting import until as until_open

START: Instant = 1_775_000_000_000_000


FLOOD = "flood"
"""The tenant that has had its share."""


class FakeStore:
    url: str | None = None

    def __init__(self) -> None:
        self.ready: list[Claimed] = []
        self.owned: dict[int, Claimed] = {}
        self.finished: list[Ending] = []
        self.fenced: list[Ending] = []
        self.given_back: list[Claimed] = []
        self.beats: list[tuple[int, list[Progress]]] = []
        self.cancel: list[int] = []
        self.recycling: list[bool] = []
        """Of each start, whether it ends its process for a forced cancellation."""
        self.force: list[int] = []
        """Those of `cancel` that an operator forces."""
        self.notes: list[tuple[str, str, str]] = []
        self.registered: list[tuple[str, tuple[str, ...], int, tuple[JobCard, ...]]] = []
        self.retired: list[int] = []
        self.dead: set[int] = set()
        self.leaving: set[int] = set()
        """Workers that said that their process is shutting down."""
        self.wishes: dict[int, Wish | None] = {}
        self.claims: list[int] = []
        self.finishes: list[int] = []
        self.offers: list[Offer] = []
        self.passed_on: list[Claimed] = []
        """What the next `finish_and_claim` claims."""
        self.failing: dict[str, Exception] = {}
        """By verb: what it raises until this is cleared."""
        self.slow: dict[str, asyncio.Event] = {}
        """By verb: what it waits for before it answers."""
        self.effects: dict[int, dict[tuple[str, str], EffectView]] = {}
        """By lineage: its ledger."""
        self.items: dict[int, dict[tuple[str, str], Item]] = {}
        self.reads = 0
        """How often somebody asked for a ledger."""
        self.suspects: list[bool] = []
        self.labels: tuple[str, ...] = ()
        self.backlogs: list[int | None] = []
        self._numbers = itertools.count(1)
        self._instances = itertools.count(1)
        self._version = 0

    def hand_off(self, job: str, arguments: Mapping[str, Any] | bytes = b"{}", **more: Any) -> Claimed:
        number = next(self._numbers)
        payload = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)
        run = claimed(number=number, job=job, payload=payload, **more)
        self.ready.append(run)
        self._version += 1
        return run

    async def _turn(self, verb: str) -> None:
        if verb in self.slow:
            await self.slow[verb].wait()
        if verb in self.failing:
            raise self.failing[verb]
        # A claim that takes nothing writes nothing. Else each claim would be the reason for the next one.
        self._version += verb != "claim"

    def when_new(self, callback: Callable[[], None]) -> bool:
        return False

    def version(self) -> int:
        return self._version

    async def register(
        self,
        role: str,
        *,
        version: str,
        queues: Sequence[str],
        slots: int,
        jobs: Sequence[JobCard],
        release: str = "",
        labels: Sequence[str] = (),
        reserved: Mapping[str, int] | None = None,
        recycles: bool = False,
    ) -> Instance:
        await self._turn("register")
        self.recycling.append(recycles)
        self.registered.append((role, tuple(queues), slots, tuple(jobs)))
        return Instance(next(self._instances), role, "here", 1, version, START, START, tuple(queues), slots)

    async def retire(self, instance: int) -> None:
        await self._turn("retire")
        self.retired.append(instance)

    async def instances(self) -> list[Instance]:
        return []

    async def report_clock(self, instance: int, low: int, high: int, fenced: bool) -> None:
        raise AssertionError("a worker does not measure its clock itself")

    async def claim(
        self,
        worker: int,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        suspects: bool = True,
        backlog: int | None = None,
        put_off: int | None = None,
        labels: Sequence[str] = (),
        ahead: int = 0,
        called: bool = False,
    ) -> list[Claimed]:
        await self._turn("claim")
        self.labels = tuple(labels)
        self.ahead, self.called = ahead, called
        self.claims.append(limit)
        self.backlogs.append(backlog)
        self.suspects.append(suspects)
        # Unlike the real store it hands out jobs that no worker registered: a worker must cope with that too.
        known = {card.name for *_, cards in self.registered for card in cards}
        fitting = [run for run in self.ready if run.job in jobs or run.job not in known]
        fitting = [run for run in fitting if not queues or (run.queue or "default") in queues]
        suspected = [run for run in fitting if run.deaths is not None]
        for run in suspected[1 if suspects else 0 :]:
            fitting.remove(run)
        live = [run for run in fitting if run.lane == Lane.LIVE and run.tenant != FLOOD]
        live += [run for run in fitting if run.tenant == FLOOD][
            : None if put_off is None else max(put_off - len(live), 0)
        ]
        taken = (live + [run for run in fitting if run.lane != Lane.LIVE][:backlog])[:limit]
        self.ready = [run for run in self.ready if run not in taken]
        self.owned.update((run.number, run) for run in taken)
        self._version += bool(taken)
        return taken

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        await self._turn("finish")
        refused = [e for e in endings if e.number not in self.owned or self.owned[e.number].token != e.token]
        for ending in endings:
            if ending in refused:
                continue
            if ending.report is not None:
                self._keep(ending.report)
            run = self.owned.pop(ending.number)
            self.finished.append(ending)
            if ending.event is Event.GIVEN_BACK:
                self.ready.append(run._replace(token=run.token + 1, attempt=run.attempt + 1))
        self.fenced.extend(refused)
        self.finishes.append(len(endings))
        return refused

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        self.offers.append(offer)
        refused = await self.finish(worker, endings)
        claimed, self.passed_on = self.passed_on, []
        self.owned.update((run.number, run) for run in claimed)
        return refused, claimed

    async def give_back(self, worker: int, claimed: Sequence[Claimed]) -> int:
        await self._turn("give_back")
        for run in claimed:
            if self.owned.pop(run.number, None):
                self.given_back.append(run)
                if run.deaths is not None:
                    self.ready.append(run._replace(token=run.token + 1))
        return len(claimed)

    async def beat(
        self, worker: int, progress: Sequence[Progress], *, patient: bool = False, leaving: bool = False
    ) -> Beat:
        await self._turn("beat")
        if leaving:
            self.leaving.add(worker)
        self.beats.append((worker, list(progress)))
        unheard = set()
        for word in progress:
            if not self._keep(word):
                unheard.add(word.number)
        cancel = [n for n in self.cancel if n in self.owned]
        forced = frozenset(self.force).intersection(cancel)
        return Beat(worker not in self.dead, cancel, frozenset(unheard), self.wishes.get(worker), forced)

    def _keep(self, report: Progress) -> bool:
        run = self.owned.get(report.number)
        if run is None or run.token != report.token:
            return False
        if report.checkpoint is not None:
            self.owned[report.number] = run._replace(checkpoint=report.checkpoint)
        for item in report.items:
            self.items.setdefault(_lineage(run), {})[item.batch, item.key] = item
        return True

    # The ledger, as the contract has it.

    def _mine(self, number: int, token: int) -> Claimed:
        run = self.owned.get(number)
        if run is None or run.token != token:
            raise LostOwnership("somebody else owns it now")
        return run

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        await self._turn("begin_effect")
        run = self._mine(number, token)
        before = self.effects.get(_lineage(run), {}).get((effect.name, effect.key))
        if before is None or _begins_anew(before, effect, token):
            self._write(run, effect, EffectState.STARTED, None, None)
        await self._lose_answer("begin_effect")
        return Begun(before, first_of_lineage(run.id))

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        await self._turn("end_effect")
        self._write(self._mine(number, token), effect, state, result, note)
        await self._lose_answer("end_effect")

    async def _lose_answer(self, verb: str) -> None:
        if f"{verb} answered" in self.failing:
            raise self.failing[f"{verb} answered"]

    def _write(self, run: Claimed, effect: Effect, state: EffectState, result: bytes | None, note: str | None) -> None:
        ended_at = None if state is EffectState.STARTED else START
        line = EffectView(
            *(effect.name, effect.key, state, effect.settles, run.number, run.attempt, run.token, START, ended_at),
            *(result, note, effect.undo),
        )
        self.effects.setdefault(_lineage(run), {})[effect.name, effect.key] = line

    async def done_items(self, number: int, batch: str) -> set[str]:
        await self._turn("done_items")
        kept = self.items.get(_lineage(self.owned[number]), {}).values()
        return {item.key for item in kept if item.batch == batch and item.state is ItemState.DONE}

    async def ledger_of(self, number: int) -> list[EffectView]:
        self.reads += 1
        await self._turn("ledger_of")
        return list(self.effects.get(_lineage(self.owned[number]), {}).values()) if number in self.owned else []

    async def has_ended(self, number: int, token: int) -> bool:
        return any((ending.number, ending.token) == (number, token) for ending in self.finished)

    def transaction(self, connection: Any = None) -> Any:
        raise AssertionError("this store has no connection to lend")

    async def maybes(self, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
        raise AssertionError("a worker does not ask what waits for people")

    async def note(self, kind: str, subject: str, detail: str) -> None:
        await self._turn("note")
        self.notes.append((kind, subject, detail))

    async def wish(self, worker: int, wish: Wish | None, *, actor: str, note: str) -> bool:
        await self._turn("wish")
        self.wishes[worker] = wish
        return True

    def take_away(self) -> None:
        """Declares every attempt lost: what its worker still says of it is fenced."""
        self.owned.clear()

    @property
    def reports(self) -> list[Progress]:
        """Those that came with endings."""
        return [ending.report for ending in self.finished if ending.report is not None]

    @property
    def outcomes(self) -> list[Outcome]:
        return [ending.outcome for ending in self.finished]


def _lineage(run: Claimed) -> int:
    return run.number if run.lineage is None else run.lineage


def _begins_anew(before: EffectView, effect: Effect, token: int) -> bool:
    if before.state is EffectState.STARTED:
        return before.token == token or before.settles is effect.settles is Settles.IDEMPOTENT
    return before.state is EffectState.NOT_DONE


def claimed(
    number: int = 1, job: str = "job", payload: bytes = b"{}", *, fire_at: Instant = START, **more: Any
) -> Claimed:
    values: dict[str, Any] = {
        "name": None,
        "token": 10,
        "attempt": 1,
        "spent": 0,
        "nominal": None,
        "since": None,
        "schedule": None,
        "revision": None,
        "tenant": None,
        "queue": "default",
        "priority": 0,
        "origin": 1,
        "lane": 0,
        "options": None,
        "checkpoint": None,
    }
    return Claimed(number=number, job=job, payload=payload, fire_at=fire_at, **(values | more))


class Bench:
    """A worker on a fake store in virtual time, with the functions that it is to know."""

    def __init__(self, *functions: Callable[..., Any] | Handler, policy: Policy | None = None, **worker: Any) -> None:
        self.clock = ManualClock(START)
        self.store = FakeStore()
        policy = policy or Policy(timeout=10 * SECOND)
        known = [one if isinstance(one, Handler) else Handler.of(one, policy=policy) for one in functions]
        handlers = {handler.name: handler for handler in known}
        self.worker: Any = Worker(self.store, self.clock, handlers, chance=lambda: 0.5, **worker)

    async def work(self, *, patience: float = HANG) -> None:
        """Goes round until nothing more can happen without the clock. A test that keeps threads waiting has no
        `patience`: else they are waited for."""
        for _ in range(100):
            await self.worker.settle(patience=patience)
            if not await self.worker.run_once():
                return
        raise AssertionError("the worker never comes to rest")

    async def advance(self, length: int) -> None:
        self.clock.advance(length)
        await self.work()


async def until(happened: Callable[[], object]) -> None:
    """For what other threads and processes do, in real time."""
    await until_async(happened, "the worker or its store has done it")


def run(scene: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(scene)
    finally:  # the threads of a test that failed must not keep the process from its end
        while gates:
            gates.pop().open.set()


gates: list[Gate] = []
"""Those of the test that runs."""


class Liar(Exception):
    """Breaks whoever asks what it is: `isinstance` does, except for a class that it really has."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("it does not say what it is")


class Gate:
    """A thread that works until it is let go, or until it looks at its context."""

    def __init__(self) -> None:
        gates.append(self)
        self.open = threading.Event()
        self.begun = threading.Semaphore(0)

    def ignorant(self) -> None:
        self.begun.release()
        assert self.open.wait(HANG)

    def polite(self, ctx: Context) -> None:
        self.begun.release()

        def is_open() -> bool:
            ctx.check()
            return self.open.is_set()

        until_open(is_open, "the test lets the thread go")


async def occupy(bench: Bench, gate: Gate, count: int) -> None:
    """Threads of the pool that are busy although the worker counts them as free: what it begins may have to wait."""
    for _ in range(count):
        bench.worker.pool.submit(gate.ignorant)
        await asyncio.to_thread(gate.begun.acquire)


async def begin(bench: Bench, gate: Gate, count: int = 1) -> None:
    await bench.worker.run_once()
    for _ in range(count):
        await asyncio.to_thread(gate.begun.acquire)
