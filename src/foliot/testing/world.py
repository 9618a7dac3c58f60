"""Virtual time: days of a scheduler's life in milliseconds.

    with virtual_time(app, start=datetime(2026, 4, 1, tzinfo=UTC)) as world:
        send_reminder.at(starts - timedelta(hours=24), class_id=7)
        world.run_for("2d")
        assert [run.state for run in world.runs()] == [State.SUCCEEDED]

A world has schedulers, workers and a watch. Time stands still while anything can happen, then jumps to the next moment
at which something will: a due run, a deadline, a sleeper, a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from foliot import bootstrap
from foliot.app import Foliot
from foliot.clock import ManualClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.alerts import Alert, AlertFilter
from foliot.domain.instant import SECOND, Duration, Instant, duration, instant, to_datetime
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.state import State
from foliot.domain.store import EventRow, Store
from foliot.job import Length
from foliot.work.settle import tasks, waits_in_real_time
from foliot.work.worker import Worker

T = TypeVar("T")

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_TURNS = 10_000
"""Rounds at one moment, after which something must be going in a circle."""


class World:
    """An app with everything around it that makes its promises come true, in one process, at one's own pace."""

    def __init__(
        self, app: Foliot, store: Store, clock: ManualClock, *, slots: int = 100, labels: Iterable[str] | None = None
    ) -> None:
        self.app = app
        self.store = store
        self.clock = clock
        self.schedulers: list[Dispatcher] = []
        self.workers: list[Worker] = []
        self._slots = slots
        self._labels = None if labels is None else tuple(labels)
        self._reaper = bootstrap.make_reaper(store, clock=clock)
        self._reap_at: Instant = clock.now()
        self._orphans = False
        self._backfiller = bootstrap.make_backfiller(store, clock=clock)
        self._fill_at: Instant = clock.now()
        self._alarm = bootstrap.make_alarm(store, clock=clock)
        self._watch: Duration | None = None
        self._look_at: Instant = clock.now()
        self._runner = asyncio.Runner()

    # What a test does

    @property
    def now(self) -> datetime:
        return to_datetime(self.clock.now())

    def run_for(self, length: Length) -> None:
        """Lets time pass, and everything happen that is due in it."""
        self.call(self._run_until(self.clock.now() + duration(length)))

    def run_until(self, moment: datetime) -> None:
        self.call(self._run_until(instant(moment)))

    def outage(self, length: Length) -> None:
        """Every process dies, time passes, and everything is started again."""
        schedulers, workers = len(self.schedulers), len(self.workers)
        while self.workers:
            self.kill_worker()
        self.schedulers.clear()
        self.clock.advance(duration(length))
        self.call(self._start(schedulers, workers))

    def kill_worker(self, which: int = 0) -> None:
        """A worker vanishes in the middle of whatever it does: nothing that it knew is told to anybody."""
        worker = self.workers.pop(which)
        for attempt in list(worker.running):
            if attempt.task is not None:
                attempt.task.cancel()
        self._orphans = True
        self.call(asyncio.sleep(0))

    def add_worker(self) -> Worker:
        self.call(self._start(0, 1))
        return self.workers[-1]

    def kill_scheduler(self, which: int = 0) -> None:
        """A scheduler vanishes with its leases."""
        self.schedulers.pop(which)

    def add_scheduler(self) -> Dispatcher:
        self.call(self._start(1, 0))
        return self.schedulers[-1]

    def runs(self, *, schedule: str | None = None, job: str | None = None, limit: int = 10_000) -> list[RunView]:
        """All runs, oldest first."""
        found = self.call(self.store.runs(schedule=schedule, job=job, limit=limit))
        return list(reversed(found))

    def run(self, run_id: str) -> RunView:
        return self.call(self.store.run(run_id))

    def states(self, **filters: Any) -> list[State]:
        return [run.state for run in self.runs(**filters)]

    def schedule(self, schedule_id: str) -> ScheduleView:
        return self.call(self.store.schedule(schedule_id))

    def events(self) -> list[EventRow]:
        return self.call(self.store.events_since(0, 10_000))

    def watch(self, every: Length = "10s") -> None:
        """From now on the watch looks so often for what should make an alert, while a scheduler lives to do so. A look
        costs a millisecond or two: for days of virtual time choose a longer one."""
        self._watch = duration(every)
        self._look_at = self.clock.now()

    def alerts(self, *, everything: bool = False) -> list[Alert]:
        """Those that are open, oldest first; with `everything`, also those that are resolved. What `operate.alerts`
        derives by itself (that nobody watches) is in that alone."""
        return list(reversed(self.call(self.store.alerts(AlertFilter(everything=everything), limit=10_000))))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs async code in the world's own event loop."""
        return self._runner.run(work)

    # How it turns

    def start(self) -> None:
        self.call(self._begin())

    async def _begin(self) -> None:
        await self.app.apply_async()
        await self._start(1, 1)

    async def _start(self, schedulers: int, workers: int) -> None:
        telling = bootstrap.Telling("world", tracer=self.app.tracer)
        for _ in range(schedulers):
            instance = await self.store.register("scheduler", version="", queues=(), slots=0, jobs=())
            made = bootstrap.make_dispatcher(self.store, instance.number, clock=self.clock, telling=telling)
            self.schedulers.append(made)
        handlers = {name: job.handler for name, job in self.app.jobs.items()}
        queues = sorted({handler.queue for handler in handlers.values()} | {"default"})
        labels = self._labels if self._labels is not None else self._labels_named()
        for _ in range(workers):
            worker = bootstrap.make_worker(
                self.store,
                handlers,
                clock=self.clock,
                queues=queues,
                labels=labels,
                slots=self._slots,
                telling=telling,
            )
            await worker.start()
            self.workers.append(worker)

    def _labels_named(self) -> list[str]:
        """All that jobs and schedules need."""
        jobs = [job.handler.policy.labels for job in self.app.jobs.values()]
        schedules = [declared.policy.labels for declared in self.app.declarations()]
        return sorted({label for labels in (*jobs, *schedules) for label in labels})

    async def _run_until(self, end: Instant) -> None:
        self._fill_at = self.clock.now()  # somebody may have started a backfill meanwhile
        while True:
            await self._turn()
            following = self._next_event()
            if await self._beat_before(end + 1 if following is None else min(following, end + 1)):
                continue
            if following is None or following > end:
                break
            # A moment that has come and could not be used (a lease that somebody else holds) must not stop the clock.
            self.clock.set(max(following, self.clock.now() + 1))
        self.clock.set(end)
        await self._turn()

    async def _beat_before(self, moment: Instant) -> bool:
        """Hearts beat while nothing else happens. True when something came of it: somebody was asked to stop."""
        while True:
            beats = [worker.heartbeat.due_at for worker in self.workers if worker.running]
            if not beats or min(beats) >= moment:
                return False
            self.clock.set(max(min(beats), self.clock.now() + 1))
            before = self._activity()
            for worker in self.workers:
                if worker.heartbeat.due_at <= self.clock.now():
                    await worker.heartbeat.run_once()
                    # All else came to rest before. A beat brings only requests to stop; the next turn obeys them.
                    if waits_in_real_time(worker) or self._is_any_awake():
                        await worker.settle()
            await asyncio.sleep(0)  # the event loop looks at its sockets
            if self._activity() != before:
                return True

    def _is_any_awake(self) -> bool:
        """Whether an async handler waits for something other than this clock: a thread of its own, a socket."""
        return sum(len(tasks(worker)) for worker in self.workers) > self.clock.sleeping

    def _activity(self) -> list[object]:
        return [
            (worker.begun, worker.ended, worker.outbox.finished, worker.number, [one.stop for one in worker.running])
            for worker in self.workers
        ]

    async def _turn(self) -> None:
        """Everything that can happen at this moment."""
        for _ in range(_MOST_TURNS):
            if not await self._round():
                return
        raise RuntimeError(
            f"the simulated processes do not become idle at {self.now.isoformat()}: a handler or "
            "schedule may start work without end"
        )

    async def _round(self) -> bool:
        version = self.store.version()
        now = self.clock.now()
        if now >= self._reap_at:
            self._reap_at = await self._reaper.run_once()
            self._orphans = self._orphans and bool(await self.store.silent(now))
        if self.schedulers and (now >= self._fill_at or self._backfiller.is_busy):
            self._fill_at = await self._backfiller.run_once()
        for scheduler in self.schedulers:
            while await scheduler.run_once() <= now and scheduler.shards:
                pass
        busy = False
        for worker in self.workers:
            if worker.heartbeat.due_at <= now:
                await worker.heartbeat.run_once()
            # Settled first: what ends at this moment is told at this moment.
            await worker.settle()
            busy |= await worker.run_once()
            await worker.settle()
        if self.app.member_sets:
            # What the reaper does within a second of real time.
            busy |= bool(await self.store.gather())
        again = busy or self.store.version() != version
        if self._watch is not None and self.schedulers and now >= self._look_at:
            # After everybody has said that they live; what it writes is no reason for another round.
            await self._alarm.run_once()
            self._look_at = now + self._watch
        return again

    def _next_event(self) -> Instant | None:
        """The next moment at which anything can happen; hearts beat in between."""
        moments = [scheduler.next_event() for scheduler in self.schedulers]
        moments.append(self.clock.next_sleeper())
        moments.extend(worker.next_deadline() for worker in self.workers)
        if self._orphans:
            moments.append(self._reap_at)
        if self.schedulers:
            moments.append(self._backfiller.next_event())
            moments.append(None if self._watch is None else self._look_at)
        held = sum(len(scheduler.shards) for scheduler in self.schedulers)
        if self.schedulers and (len(self.schedulers) > 1 or held < self.store.shard_count):
            # They look at one another once per second: shards that were lost are taken, and others move.
            moments.append(self.clock.now() + SECOND)
        return min((moment for moment in moments if moment is not None), default=None)

    def close(self) -> None:
        while self.workers:
            self.kill_worker()
        self.call(self.store.close())
        self._runner.close()


@contextmanager
def virtual_time(
    app: Foliot, *, start: datetime = DEFAULT_START, slots: int = 100, labels: Iterable[str] | None = None
) -> Iterator[World]:
    """Puts the app on a store in memory and on a clock that moves only when told to; gives it back as it was."""
    clock = ManualClock(instant(start))
    store = bootstrap.make_store("sqlite:///:memory:", clock, app.encryption_keys, app.audit_keys)
    asyncio.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock, slots=slots, labels=labels)
        world.start()
        try:
            yield world
        finally:
            world.close()
