"""A worker claims what was handed off, begins it, watches its deadlines, and has its outcome recorded.

    run_once   once around: watch deadlines, tell the store what ended, claim what the free slots can take, begin it
    run        the thin loop around run_once; wakes when an attempt ends, when anything was committed, at deadlines
    drain      see drain.py

Everything goes by the clock that it is given, and nothing in `run_once` sleeps: virtual time can call it. One run
costs one asyncio task, no timer and no await of the store; claims and endings travel in batches.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from foliot.clock import Clock
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.labels import checked_labels
from foliot.domain.run import Claimed, Ending, Lane
from foliot.domain.signals import Recorder, Tracer
from foliot.domain.state import Event
from foliot.domain.store import DEFAULT_QUEUE, Beat, Wish
from foliot.errors import InvalidInput, LostOwnership
from foliot.work import pings
from foliot.work.alarm import Alarm
from foliot.work.appointments import Appointments
from foliot.work.attempt import Attempt, Stop
from foliot.work.attempts import Attempts
from foliot.work.blockade import RECYCLED, Blockade, EndProcess
from foliot.work.deadlines import HEED, Deadlines
from foliot.work.desk import StoreDesks
from foliot.work.drain import drain
from foliot.work.endings import may_have_ledger
from foliot.work.exchange import Exchange
from foliot.work.execute import execute, execute_in_thread, never_began
from foliot.work.handler import Handler
from foliot.work.heartbeat import Heartbeat
from foliot.work.isolate import IsolatedAttempt, NotIsolable, execute_isolated
from foliot.work.outbox import HOPELESS, Outbox, Pause, WorkerStore
from foliot.work.pings import Ping
from foliot.work.policies import Policies
from foliot.work.room import HEADROOM, RESERVE, Room, checked_reserved
from foliot.work.settle import settle
from foliot.work.standby import Standbys
from foliot.work.traced import traced, traced_in_thread

_LIVELY: Duration = SECOND
"""How long after the last work the store is asked every millisecond whether anything is new."""
_LIVELY_LOOK, _IDLE_LOOK = 0.001, 0.005
"""Seconds between two looks at the store's version."""
_LONGEST_REST: Duration = SECOND
"""Between two looks of a worker whose store calls when there is something new: a call may be lost."""
_DEADLINE_LOOK = 0.02
"""Seconds between two looks at deadlines while a claim waits for the store."""
_FIRST = 500
"""Most runs that a worker asks for at first which had nothing to do: others may have nothing to do either."""
_AHEAD = 2
"""Of its free slots a worker gives one in so many to what is still to come: what is due now finds the others."""
_CLAIM_ANYWAY: Duration = SECOND
"""A worker with free slots claims this often even if nothing seems to be new: a hint that is lost costs a second."""

_log = logging.getLogger("foliot.work")


class Worker:
    """One worker process's part of the fleet. It is made, started (has a number), draining (claims no more), retired.

    All of it lives in one event loop; `heard` and `fail` may be called from other threads.
    """

    def __init__(
        self,
        store: WorkerStore,
        clock: Clock,
        handlers: Mapping[str, Handler],
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        labels: Iterable[str] = (),
        slots: int = 100,
        threads: int | None = None,
        beat_store: WorkerStore | None = None,
        version: str = "",
        release: str = "",
        chance: Callable[[], float] = random.random,
        isolates: bool = False,
        processes: int | None = None,
        reserve: float = RESERVE,
        headroom: float = HEADROOM,
        reserved: Mapping[str, int] | None = None,
        recycle_after: Duration | None = None,
        end_process: EndProcess | None = None,
        recorder: Recorder | None = None,
        tracer: Tracer | None = None,
        ping: Ping | None = None,
    ) -> None:
        """`isolates`: jobs that ask for a process of their own get one, `processes` at a time; else they run here.
        `labels`: what it has, of what runs may need. `reserve`: the share of its slots, threads and processes that only
        live runs take. `headroom`: the share that tenants leave free who have had theirs. `reserved`: by queue, how
        many of its slots only runs of that queue take.
        `recycle_after`: how long a handler that should have ended may go on before this process is given up for it;
        None where that cannot be done. `end_process`: how to, when the event loop is blocked.
        `recorder`: is told of every attempt. `tracer`: follows each. `ping`: tells an outside watcher what becomes of
        runs that have one; it must not wait."""
        if slots < 1:
            raise InvalidInput(f"slots={slots}: a worker needs at least one")
        self.store = store
        self.clock = clock
        self.handlers = dict(handlers)
        self.queues = tuple(queues)
        self.labels = checked_labels(labels)
        self.slots = slots
        self.number: int | None = None
        """What the store calls this instance; None before `start`. Another one after the store declared it dead."""
        self.draining = False
        self.wish: Wish | None = None
        """What a person wants of it: it takes nothing more then. Heard with a heartbeat."""
        self.last_wish: Wish | None = None
        """What the heartbeat heard last; `wish` follows when the loop turns."""
        self.recycling = False
        """A handler goes on that cannot be ended alone: this process has to end, and another one to take its place."""
        self.recycling_now = False
        """An operator forced a cancellation: it is recycling, and interrupts its other attempts without a grace."""
        self.running: dict[Attempt, None] = {}
        """Attempts that hold a slot, in the order in which they were claimed."""
        self.begun = 0
        self.ended = 0
        self.losses = 0
        """How often the store had declared this worker dead."""
        self.recorder = recorder
        self.tracer = tracer
        self.alarm = Alarm()
        self.appointments = Appointments(clock, self._start, self.give_back, self._tell_soon)
        self._exchange = Exchange(self)
        self.outbox = Outbox(store, clock, self._delivered, self._exchange)
        self.policies = Policies(self.handlers.values(), self.outbox.events.append)
        self.desks = StoreDesks(store, lambda: self.number)
        self.room = Room(
            self.handlers,
            slots=slots,
            threads=threads,
            processes=processes,
            isolates=isolates,
            reserve=reserve,
            headroom=headroom,
            reserved=checked_reserved(reserved or {}, self.queues, slots),
        )
        self.standbys = Standbys(clock, self.room, self.alarm.ring)
        self.attempts = Attempts(
            self.handlers, self.labels, self.policies, self.room, clock, store if isolates else None
        )
        self.pool = ThreadPoolExecutor(self.room.threads, thread_name_prefix="foliot-handler")
        beside = beat_store or store
        self.heartbeat = Heartbeat(self, beside, Blockade(self, beside, recycle_after, end_process))
        self._deadlines = Deadlines(self.running, self.stop, self.outbox.events.append, self.force, recycle_after)
        self._recycles = recycle_after is not None and end_process is not None
        self._version = version
        self._release = release
        self._chance = chance
        self._ping = ping
        self.claiming: asyncio.Task[int] | None = None
        self._claimed_at: Instant = 0
        self._claim_every = _CLAIM_ANYWAY
        """Until the next claim without news. Shorter where that falls on a beat of this process's periodic work."""
        self._claimed_version: int | None = None
        self._left_some = True
        """Whether there was more than the last claim could take, or may have been."""
        self._claim_pause = Pause()
        self._is_awaited = False
        """Whether anybody may wait for what is still to be told."""
        self._seen_version: int | None = None
        self._lively_until: Instant = 0
        self._lost = False
        self._is_called = False
        self._look_at: Instant = 0
        """When the next look around is planned, by the monotonic clock, if the store calls."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0

    # ------------------------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Enters this instance, and what it knows of jobs, into the store."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self.desks.loop = self.loop
        cards = [handler.card() for handler in self.handlers.values()]
        instance = await self.store.register(
            "worker",
            version=self._version,
            queues=self.queues,
            slots=self.slots,
            jobs=cards,
            release=self._release,
            labels=self.labels,
            reserved=self.room.reserved,
            recycles=self._recycles,
        )
        self.number = instance.number
        self._lost = False
        if not self._is_called:
            self._is_called = self.store.when_new(self.alarm.ring)

    async def run_once(self) -> bool:
        """Once around; answers whether anything happened. Waits neither for handlers nor for endings to be recorded.

        Raises only what trying again cannot help: the store was closed, or is none that this release can use.
        """
        if self.outbox.hopeless is not None:
            raise self.outbox.hopeless
        now = self.clock.now()
        number = self.number
        if number is None or self._lost:
            number = await self._register_anew(now)
            if number is None:
                return False
        watched = self._deadlines.watch(self.clock.monotonic())
        kept = self.appointments.keep(self.clock.monotonic())
        if self.standbys:
            self.return_standbys(self.standbys.take_old(self.clock.monotonic()))
        # Before the claim: what is committed meanwhile is news. And before the delivery: asking may let the store's
        # thread run, and nothing should between the delivery and the claim. They leave in the same pass of the loop,
        # so that the store can put both into one transaction.
        self._seen_version = self._ask_version()
        sent = not self._lingers() and self.outbox.deliver(number, now)
        if sent:
            self._is_awaited = False
        claimed = await self._claim(now)
        if sent or claimed:
            self._lively_until = now + _LIVELY
        return watched or kept or sent or claimed > 0

    async def run(self) -> None:
        """Works until it is drained, or has to be because it is `recycling`, or is done with all that it has and is
        wanted to leave. Its heart beats in a thread of its own, until the drain is over."""
        self.heartbeat.start()
        while not self.draining and not self.recycling and not self.has_left:
            await self.run_once()
            # Whatever could be claimed now is claimed: more comes with an ending, a commit, or the time.
            await self.alarm.sleep(self._look)
        self.alarm.ring()  # for the drain, which may be waiting for the ring that woke this loop

    @property
    def has_left(self) -> bool:
        """Somebody wants it to leave, and nothing keeps it any more."""
        return self.wish is Wish.DRAIN and self.idle

    async def drain(self, grace: Duration) -> list[str]:
        """Ends this worker in order; see drain.py. Answers which runs were still executing when it gave up on them."""
        return await drain(self, grace)

    async def _register_anew(self, now: Instant) -> int | None:
        """As a fresh instance, after the store declared this one dead; None when that must be tried again."""
        if self._claim_pause.holds(now):
            return None
        try:
            await self.start()
            if self.wish is not None and self.number is not None:
                # A person wanted that of the worker, not of the number that it had.
                await self.store.wish(
                    self.number,
                    self.wish,
                    actor="foliot",
                    note=("same requested state as before the worker was marked dead"),
                )
        except HOPELESS:
            raise
        except Exception as error:
            self._claim_pause.failed(now, "registering this worker", error)
            return None
        self._claim_pause.succeeded()
        return self.number

    def _look(self) -> float:
        """Rings when `run_once` would find something to do; answers when to look again, in seconds."""
        now = self.clock.now()
        if self._may_have_work(now):
            self.alarm.ring()
        if self._is_called:
            return self._rest(now) / SECOND
        return _LIVELY_LOOK if now < self._lively_until else _IDLE_LOOK

    def _rest(self, now: Instant) -> Duration:
        """How long nothing can be to do, unless the alarm rings. It rings when an attempt ends, when one begins whose
        deadline is nearer, and when the store calls."""
        passed = self.clock.monotonic()
        rests = [self.clock.until_beat(_LONGEST_REST), self._deadlines.nearest - passed]
        pauses = (self.outbox.pause.until, self._claim_pause.until)
        rests += [until - now for until in pauses if until is not None]
        rest = max(min(rests), MILLISECOND)
        self._look_at = passed + rest
        return rest

    def _may_have_work(self, now: Instant) -> bool:
        if self.clock.monotonic() >= self._deadlines.nearest:
            return True
        if self.outbox.pause.until is not None:
            # A delivery that is under way rings when it is over.
            return self.outbox.delivery is None and not self.outbox.pause.holds(now)
        if self._claim_pause.until is not None:
            return not self._claim_pause.holds(now)
        if self._left()[1] <= 0:
            return False
        return self._ask_version() != self._seen_version or not 0 <= now - self._claimed_at < self._claim_every

    def _ask_version(self) -> int | None:
        try:
            return self.store.version()
        except Exception:
            return None  # the claim will say what is wrong

    # ----------------------------------------------------------------------------------------------- claim

    def _left(self) -> tuple[tuple[str, ...], int]:
        """Of which jobs how many runs can begin now: none with a clock that is known to be wrong, nor when a person
        wants it to take nothing."""
        jobs, room = self.room.left()
        return jobs, 0 if self.clock.fenced or self.wish is not None else room

    async def _claim(self, now: Instant) -> int:
        """Takes as much as the free slots and threads can run, and begins it; answers how much that was."""
        if self.claiming is None:
            # What cannot be recorded should not be begun: no claims while endings cannot be delivered.
            has_room = self._left()[1] > 0
            if not has_room or self.draining or self._claim_pause.holds(now) or self.outbox.pause.until is not None:
                return 0
            if self._has_all(now):
                return 0
            is_told = self._is_told(now)
            self._claimed_version = self._seen_version
            if not is_told:  # however often it is called: a call may have been lost
                self._claimed_at, self._claim_every = now, self.clock.until_beat(_CLAIM_ANYWAY)
            most = None if self.running or self._left_some else _FIRST
            self.claiming = asyncio.get_running_loop().create_task(self._claim_and_begin(most, is_told))
        # A caller that stops waiting does not cancel it: what was claimed is begun or given back, never forgotten.
        claiming = self.claiming
        # Deadlines hold while it waits for the store: an attempt past its deadline may hold the lock that it waits for.
        while not (await asyncio.wait({claiming}, timeout=_DEADLINE_LOOK))[0]:
            if self.draining or self.recycling:
                return 0  # the lock may be free only when the drain has interrupted that attempt
            self._deadlines.watch(self.clock.monotonic())
        return claiming.result()

    def _has_all(self, now: Instant) -> bool:
        return self._is_told(now) and self._claimed_version == self._seen_version

    def _is_told(self, now: Instant) -> bool:
        """Whether the last claim left nothing for this worker: if anything came since, it was called for that."""
        return self._is_called and not self._left_some and 0 <= now - self._claimed_at < self._claim_every

    async def _claim_and_begin(self, most: int | None, is_told: bool) -> int:
        """A claim for each turn, of so many runs at most: most workers have one turn."""
        self._left_some, begun = False, 0
        try:
            for queues in self.room.turns(self.queues):
                jobs, limit = self.room.left_in(queues)
                if limit <= 0:
                    self._left_some |= queues == self.queues  # what waits for a queue's own slots takes others, too
                    continue
                # What is to come may be of any queue: whoever claims queue by queue takes it when it is due.
                ahead = 0 if self.room.reserved else limit // _AHEAD
                limit = limit if most is None else min(limit, most)
                claimed = await self._claim_from(queues, jobs, limit, ahead, is_told)
                if claimed is None:
                    break
                begun += claimed
        finally:
            self.claiming = None
            if self.draining:
                self.alarm.ring()
        return begun

    async def _claim_from(
        self, queues: Sequence[str], jobs: Sequence[str], limit: int, ahead: int, is_told: bool
    ) -> int | None:
        """How many were begun; None when there is no use in going on."""
        number, suspects, backlog = self.number, self.attempts.takes_suspects(), self.room.left_for_backlog()
        put_off, asked = self.room.left_for_put_off(), self.clock.monotonic()
        assert number is not None
        try:
            claimed = await self.store.claim(
                number, queues, jobs, limit, suspects, backlog, put_off, self.labels, ahead, is_told
            )
        except LostOwnership:
            self._lose(number)
            return None
        except HOPELESS as error:
            self.fail(error)
            raise
        except Exception as error:
            self._claim_pause.failed(self.clock.now(), "claiming work", error)
            self._left_some = True
            return None
        self._claim_pause.succeeded()
        self._left_some |= len(claimed) >= min(limit, put_off) or len(jobs) < len(self.room.jobs) or not suspects
        if self.draining or self._lost or self.is_too_late(asked):
            self.outbox.unbegun.extend(claimed)
            self._tell_soon()
            return None
        self.begin(claimed)
        # A claim brings one suspected run at most: another one may wait behind it.
        is_next_wanted = any(one.deaths is not None for one in claimed) and self.room.takes_suspects
        self._left_some |= is_next_wanted
        if (len(claimed) >= limit or is_next_wanted) and self._left()[1] > 0:
            self.alarm.ring()  # there was room for more than it asked for
        if backlog is not None and self.room.left_for_backlog():  # some of the backlog ended meanwhile
            self._left_some |= sum(run.lane != Lane.LIVE for run in claimed) >= backlog
        return len(claimed)

    def begin(self, claimed: list[Claimed]) -> None:
        """What was claimed before its time is ours from now on, and begins at it."""
        now = self.clock.monotonic()
        begun: list[Attempt] = []
        for item in claimed:
            attempt = self.attempts.make(item)
            if attempt is None:  # not ours, whatever the store thinks
                self.outbox.unbegun.append(item)
                continue
            if item.standby:
                self.standbys.add(attempt)
                continue
            if item.slot is not None:
                self.standbys.has_slot(attempt)
            begun.append(attempt)
            self._occupy(attempt)
            if item.early:
                self.appointments.add(now + item.early, attempt)
            else:
                self._start(attempt, now)
        if begun:
            self.heartbeat.attend()
        if self.outbox.unbegun:
            self._tell_soon()  # somebody else waits for these, and so does the next one under suspicion
        self.begun += len(claimed)
        if self.recorder is not None and claimed:
            self.recorder.claimed(self.number or 0, begun)

    def begin_now(self, attempt: Attempt, now: Instant) -> None:
        self._occupy(attempt)
        self._start(attempt, now)

    def _occupy(self, attempt: Attempt) -> None:
        self.running[attempt] = None
        self.room.take(attempt)

    def _start(self, attempt: Attempt, now: Instant) -> None:
        """Its time has come. If somebody asked it to stop meanwhile, it finds that out by itself."""
        assert self.loop is not None
        item = attempt.claimed
        if attempt.policy.ping is not None and self._ping is not None and item.phase is None and not attempt.asked():
            pings.began(self._ping, attempt.policy.ping, item)
        if isinstance(attempt, IsolatedAttempt):
            attempt.conducting = self.loop.create_task(self._execute_isolated(attempt))
        elif attempt.handler.is_async:
            attempt.task = self.loop.create_task(self._execute(attempt))
        else:
            attempt.future = self.pool.submit(self._execute_in_thread, attempt)
        self._deadlines.expect(attempt, now)
        self._expect_look()

    def _expect_look(self) -> None:
        """Wakes the loop where a deadline is nearer than the next look around."""
        if self._deadlines.nearest < self._look_at:
            self.alarm.ring()

    def give_back(self, attempt: Attempt) -> None:
        """It waited for its time, and does not begin here. Either somebody else has the time for it; or this process
        stood still when it should have begun, and somebody else may have the run by now."""
        self._end(attempt, None)

    # --------------------------------------------------------------------------------------------- execute

    async def _execute(self, attempt: Attempt) -> None:
        execution = execute(attempt, self.clock, self._chance, self.desks)
        if self.tracer is None:
            self._end(attempt, await execution)
        else:
            self._end(attempt, await traced(self.tracer, attempt, execution))

    def _execute_in_thread(self, attempt: Attempt) -> Ending | None:
        execution = partial(execute_in_thread, attempt, self.clock, self._chance, self.desks)
        ending = execution() if self.tracer is None else traced_in_thread(self.tracer, attempt, execution)
        loop = self.loop
        if loop is not None and not loop.is_closed():  # else the worker is gone, and this attempt's lease will end
            loop.call_soon_threadsafe(self._end, attempt, ending)
        return ending

    async def _execute_isolated(self, attempt: IsolatedAttempt) -> None:
        try:
            ending = await execute_isolated(attempt, self.clock, self._chance, self.desks, self.store.url)
        except NotIsolable as error:
            self.attempts.never_isolate(attempt.claimed.job, error)
            ending = None
        self._end(attempt, ending)

    def _end(self, attempt: Attempt, ending: Ending | None) -> None:
        """The slot is free, and the outcome is on its way; None when the attempt never began."""
        del self.running[attempt]
        self.ended += 1
        self.room.give_back(attempt)
        heir = None if attempt.claimed.slot is None else self._exchange.pass_on(attempt, ending)
        if self.recorder is not None:
            self.recorder.ended(attempt, ending)
        if attempt.claimed.lane != Lane.LIVE or attempt.on_trial:
            self._left_some = True  # another one of the backlog, or under suspicion, may have waited for this
        if ending is None:
            self.outbox.unbegun.append(attempt.claimed)
        else:
            self.outbox.endings.append(attempt.reported(ending))
            if attempt.policy.ping is not None and self._ping is not None:
                pings.ended(self._ping, attempt, ending)
        is_unawaited = self._is_called and heir is not None and self.standbys.is_well_stocked(heir)
        if self.appointments and not self._left_some and ending is not None and _is_unawaited(attempt, ending):
            is_unawaited = True
        if is_unawaited:
            self.appointments.linger()
        else:
            self._tell_soon()

    @property
    def takes_claims(self) -> bool:
        """Whether this worker may begin runs at all."""
        is_leaving = self.draining or self.recycling or self.wish is not None
        return not (is_leaving or self._lost or self.clock.fenced)

    def is_too_late(self, asked: Instant) -> bool:
        """Whether the answer to a claim took as long as a lease: another worker may have the runs. This process may
        have been stopped, and does not know yet that the store declared it dead."""
        return self.clock.monotonic() - asked >= self.policies.shortest_lease

    def return_standbys(self, standbys: Sequence[Attempt]) -> None:
        """These do not begin here: they return to the waiters of their slots."""
        if standbys:
            self.outbox.unbegun.extend(attempt.claimed for attempt in standbys)
            self._tell_soon()

    def _tell_soon(self) -> None:
        """Something is to be told that others may wait for."""
        self._is_awaited = True
        if not self.alarm.ringing:
            self.alarm.ring()

    def _lingers(self) -> bool:
        """Whether all that is to be told waits for company: whatever else wakes this worker, that goes on."""
        return self.appointments.lingering and not (self._is_awaited or self.outbox.is_behind or self.draining)

    def _delivered(self, number: int, beat: Beat | None) -> None:
        if beat is not None:
            self.heard(number, beat)
        if self.room.settle_suspects(self._unheard):
            self._left_some = True  # another one under suspicion may have waited for this
        self.alarm.ring()

    def _unheard(self) -> set[int]:
        """Runs of whose end the store has not heard."""
        return self.outbox.numbers.union(attempt.claimed.number for attempt in self.running)

    # ------------------------------------------------------------------------------------------------ stop

    def stop(self, attempt: Attempt, reason: Stop) -> None:
        """Asks an attempt to stop: a task is cancelled, a thread is told through its context, a process by a message.

        A process that does not heed that is ended soon, whoever asked."""
        attempt.ask_to_stop(reason)
        if attempt.isolated:
            if attempt.asked_at is None:
                attempt.asked_at = self.clock.monotonic()
            self._deadlines.nearest = min(self._deadlines.nearest, attempt.asked_at + HEED)
            self._expect_look()
        elif attempt.future is not None:
            self.withdraw(attempt)
        elif attempt.task is not None and attempt.started_at is not None:
            # A task that has not begun finds the reason when it does; cancelled now, it would end without a word.
            attempt.task.cancel()

    def withdraw(self, attempt: Attempt) -> None:
        """Takes an attempt back that still waits for a thread; nothing happens if it has begun."""
        if attempt.stop is Stop.CANCEL and may_have_ledger(attempt):
            return  # an earlier attempt may have left an effect open: the thread will look first
        if attempt.future is not None and attempt.future.cancel() and attempt in self.running:
            self._end(attempt, never_began(attempt, self.clock.now()))

    def force(self, attempt: Attempt) -> None:
        """Ends an attempt that does not heed: its process is killed, or, when it has none, this one is given up."""
        attempt.forced = True
        if isinstance(attempt, IsolatedAttempt):
            attempt.kill()
            return
        if not self.recycling:
            _log.warning(
                "%s (attempt %d of %s) did not stop, and a %s cannot be stopped alone: claiming no more runs, "
                "exiting with code %d after the other attempts, restart this worker",
                *(attempt.claimed.id, attempt.claimed.attempt, attempt.handler.name),
                "task" if attempt.future is None else "thread",
                RECYCLED,
            )
        self.recycling = True
        self.recycling_now |= attempt.force_at is not None
        self.alarm.ring()

    def heard(self, number: int, beat: Beat) -> None:
        """What the store answered to a heartbeat of instance `number`. May be called from any thread."""
        if beat.known and number == self.number:
            self.last_wish = beat.wish
        if beat.known and not beat.cancel and beat.wish is self.wish:
            return
        if threading.get_ident() == self.thread:
            self._hear(number, beat)
            return
        # Threads are told at once, even if some async handler blocks the loop. Tasks are not: between being marked
        # and being cancelled one could complete, and would be taken for stopped.
        if number == self.number:
            self._note_forced(beat)  # for the heartbeat's thread, which ends the process if the loop is blocked
            for attempt in list(self.running):
                if attempt.future is not None and (not beat.known or attempt.claimed.number in beat.cancel):
                    attempt.ask_to_stop(Stop.CANCEL if beat.known else Stop.LOST)
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._hear, number, beat)

    def fail(self, error: Exception) -> None:
        """Makes `run_once` raise: something without which this worker must not go on has failed. From any thread."""
        self.outbox.hopeless = error
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.alarm.ring)

    def _hear(self, number: int, beat: Beat) -> None:
        if not beat.known:
            self._lose(number)
            return
        if number == self.number and beat.wish is not self.wish:
            self._wished(beat.wish)
        wanted = set(beat.cancel)
        if wanted and self.standbys:
            self.return_standbys(self.standbys.take(wanted))
        for attempt in list(self.running):
            # The store repeats the request with every beat until the attempt ends; a task is cancelled once.
            if attempt.claimed.number in wanted and (attempt.stop is None or attempt.future is not None):
                self.stop(attempt, Stop.CANCEL)
        for attempt in self._note_forced(beat):
            assert attempt.force_at is not None
            self._deadlines.nearest = min(self._deadlines.nearest, attempt.force_at + HEED)
            self.alarm.ring()  # a drain rests until a deadline that it knows

    def _note_forced(self, beat: Beat) -> list[Attempt]:
        """The attempts whose cancellation an operator forces. From any thread: plain assignments only."""
        forced = [attempt for attempt in list(self.running) if attempt.claimed.number in beat.force]
        for attempt in forced:
            if attempt.force_at is None:
                attempt.force_at = self.clock.monotonic()
        return forced

    def _wished(self, wish: Wish | None) -> None:
        told = {
            Wish.DRAIN: "drained: it claims no more runs and exits after its attempts",
            Wish.QUARANTINE: "quarantined: it claims no more runs and keeps running",
            None: "resumed: it claims runs again",
        }
        _log.warning("operator request: worker %s %s", self.number, told[wish])
        self.wish = wish
        if wish is not None:
            self.return_standbys(self.standbys.take_all())
        self.alarm.ring()

    def _lose(self, number: int) -> None:
        """The store declared instance `number` dead, so its runs are somebody else's now."""
        if number != self.number or self._lost:
            return  # the answer was to an instance that this worker is no longer
        self._lost = True
        self.losses += 1
        self.standbys.take_all()
        for attempt in list(self.running):
            self.stop(attempt, Stop.LOST)
        self.alarm.ring()

    # --------------------------------------------------------------------------------------------- metrics

    @property
    def taken(self) -> int:
        """How many slots are in use."""
        return len(self.running)

    @property
    def undelivered(self) -> int:
        """How many endings the store has not been told of yet."""
        return len(self.outbox.endings)

    @property
    def fenced(self) -> int:
        return self.outbox.fenced

    @property
    def heard_at(self) -> Instant | None:
        """The last beat that the store heard."""
        return self.heartbeat.beat_at

    # ---------------------------------------------------------------------------------------- virtual time

    @property
    def idle(self) -> bool:
        """Nothing executes, and the store knows everything that this worker knows."""
        return not self.running and not self.outbox and self.claiming is None and not self.standbys

    def next_deadline(self) -> Instant | None:
        """When `run_once` must be called even if nothing else happens; None when nothing waits for a time."""
        if self.outbox and self.outbox.delivery is None and self.outbox.pause.until is None:
            return self.clock.now()  # something ended since
        nearest = (self._deadlines.next(), self.appointments.next(), self.standbys.next())
        moments = [moment for moment in nearest if moment is not None]
        deadline = self.clock.now() + min(moments) - self.clock.monotonic() if moments else None
        waiting = (deadline, self.outbox.pause.until, self._claim_pause.until)
        return min((moment for moment in waiting if moment is not None), default=None)

    async def settle(self, *, patience: float = 5.0) -> bool:
        """Lets everything happen that can happen without the clock; see settle.py. Answers `idle`."""
        return await settle(self, patience)


def _is_unawaited(attempt: Attempt, ending: Ending) -> bool:
    """Nothing follows from its end, as far as can be told here: what is handed off before its time has neither key nor
    limit, unless a schedule made it."""
    return attempt.claimed.early > 0 and attempt.claimed.schedule is None and ending.event is Event.COMPLETED
