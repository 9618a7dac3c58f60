"""The dispatcher: owns shards, keeps their near future in wheels, and hands off what is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from foliot.clock import Clock
from foliot.dispatch.admission import decide_ticks
from foliot.dispatch.balance import Balance
from foliot.dispatch.cells import lease_through, next_lease_at
from foliot.dispatch.counters import DispatchCounters
from foliot.dispatch.lanes import Pace, PacedDecisions
from foliot.dispatch.retabling import RetablingStore, retable
from foliot.dispatch.shards import HeldShard, Shards, Window
from foliot.dispatch.wheel import Entry
from foliot.domain.decisions import store_pause
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.lanes import BURST, DueKind
from foliot.domain.run import Lane
from foliot.domain.signals import Tracer
from foliot.domain.store import CALLED_FOR, DispatchStore, Fired, shard_of
from foliot.errors import FoliotError, LostOwnership, StoreError

RENEW_EVERY: Duration = SECOND
SHARE_EVERY: Duration = SECOND
"""How often the fleet is looked at, and shards are taken or given up."""
HURRY_EVERY: Duration = 100 * MILLISECOND
"""The same, while other schedulers are about to release our shards: until we take them, no scheduler fires them."""
LOOK_EVERY: Duration = 250 * MILLISECOND
"""Arrivals are read at least this often; `version` only makes it sooner. Of a store that calls, see `CALLED_FOR`."""
POLL_EVERY: Duration = 20 * MILLISECOND
"""How often `version` is asked while waiting, of a store that does not call; and how long a backlog may be fired before
anything else has its turn."""
REST = 2
MOST_REST: Duration = 3 * MILLISECOND
"""After a batch that was not full, and after a look, the dispatcher rests REST times as long as that took, but
not longer than this. What falls due or arrives meanwhile goes in one batch: each batch costs the store, and every
worker that it wakes, about as much with ten runs as with one, and a machine that is busy with batches of one is late
with all of them."""
AHEAD = 2
"""What may be handed off before its time is, when the first of it is due within the store's lead divided by this, and
with it all that is due within the whole lead: so it goes in few batches, and a moment in which nothing of ours gets
the processor makes nothing late."""
LATE_BATCH = 200
"""Of the backlog no more is fired at once: what is live may fall due meanwhile, and waits for it."""
HERD_BATCH = 200
HERD_REST = 3
MOST_HERD_REST: Duration = 60 * MILLISECOND
FRESH_FOR: Duration = SECOND
"""Nor of a herd, for so long after something fresh was due beside it. And after each batch of it the dispatcher rests
HERD_REST times as long as that took: it is fired faster than workers take it anyway, and what is fresh needs the store
and the processor, too."""
LATE_PIECE = 2_000
"""No more of it is loaded at once, and no more than twice as much is in memory, of each shard: likewise."""
_BREATH: Duration = MILLISECOND // 2
"""What cannot be fired although it is due is not tried again sooner than this."""

_LONG_AGO: Instant = -(1 << 62)

_log = logging.getLogger("foliot.dispatch")

T = TypeVar("T")


class DispatcherStore(DispatchStore, RetablingStore, Protocol):
    """What the dispatcher needs of a store."""

    def version(self) -> int: ...
    def when_new(self, callback: Callable[[], None]) -> bool: ...


class Dispatcher:
    """Fires the pending runs of any number of shards.

    It looks at the fleet once per second, and takes its share. What it holds it renews, watches and fires together;
    see `Shards` for what is in memory, and why nothing is missing there. The store knows better than this memory who
    owns what: it says so in `renew` and in `fire`, and then what was lost is dropped, and the rest goes on.

    What is late by more than a minute, or was due before this scheduler took its shard, is the backlog. It is loaded
    and fired beside what is live, at the rate of the catch-up lane, of which each scheduler has the share of the shards
    that it holds; without a rate, whenever nothing live is due. A burst is fired then, too, before the backlog, and
    without that rate. A live run waits for no more of them than one small batch. See `foliot.domain.lanes`.
    """

    def __init__(
        self,
        store: DispatcherStore,
        clock: Clock,
        *,
        owner: int,
        lease_ttl: Duration = 5 * SECOND,
        slice_size: int = 50_000,
        batch: int = 500,
        burst: int = BURST,
        tracer: Tracer | None = None,
    ) -> None:
        """`slice_size` is how much of each shard's window is in memory at most, late arrivals and the backlog apart.
        `burst` is the most live runs that may be due and wait to be handed off."""
        self.counters = DispatchCounters()
        self._store = store
        self._clock = clock
        self._owner = owner
        self._lease_ttl = lease_ttl
        self._batch = batch
        self._tracer = tracer
        self._most = batch
        # A whole slice in one go would keep due runs waiting for as long as it takes to read it.
        self._piece = min(slice_size, max(batch, slice_size // 10))
        self._room = slice_size - self._piece
        self._late_piece = min(self._piece, LATE_PIECE)
        self._pace = Pace(min(batch, LATE_BATCH))
        self._shards = Shards(store.shard_count, burst)
        self._balance = Balance(owner)
        self._version: int | None = None
        self._shared_at = _LONG_AGO
        self._share_every = SHARE_EVERY
        self._renewed_at = _LONG_AGO
        self._looked_at = _LONG_AGO
        self._store_behind: Duration = 0
        self._rests_until = _LONG_AGO
        self._fresh_at = _LONG_AGO
        """When something was last due beside a herd or a burst, and went before the rest of it."""
        self._has_had_turn = False
        """Whether that was the last batch: then it is the herd's turn."""
        self._herd_rests_until = _LONG_AGO
        self._burst_rests_until = _LONG_AGO
        self._looks_again = _LONG_AGO
        self._look_every = LOOK_EVERY
        """Shorter where the next look falls on a beat of this process's periodic work."""
        self._renew_every = RENEW_EVERY
        """Likewise."""
        self._beat: Duration = SECOND
        """How long after the beginning of this round the next beat is."""
        self._is_called = False
        self._stop: asyncio.Event | None = None
        self._failure: Exception | None = None
        """Of a firing while something else was asked for."""
        self._sleeper: asyncio.Future[None] | None = None
        self._failures = 0
        self._busy: list[Entry] = []
        """Entries that another transaction locked: tried again with the next look."""
        self._retabling: str | None = None
        """Where to go on with the ticks that newer tables may move; None when all were looked at."""

    @property
    def shards(self) -> frozenset[int]:
        """What this dispatcher believes to own; the store knows better."""
        return frozenset(self._shards)

    @property
    def waiting(self) -> int:
        """How many runs are in memory."""
        return self._shards.waiting()

    def next_event(self) -> Instant | None:
        """When the next run is due, or the next cells are to be leased, if no promise is made before."""
        if not self._shards:
            return None
        moments = (
            next_lease_at(min(self._shards.marks())),
            self._shards.next_at(),
            self._shards.next_burst(),
            self._next_overdue(),
        )
        return min(moment for moment in moments if moment is not None)

    async def run_once(self) -> Instant:
        """One round; returns when the next one is wanted (a time that has come already: at once).

        1. Renew the leases every second, or sooner when the next cells must be leased ahead.
        2. Look at the fleet every second, and take or give up shards. What was just taken is renewed once more, which
           gives it its first window.
        3. Read arrivals when anything was committed since the last look, and now and then in any case.
        4. Load the next piece of a leased window while there is room for it; of the past, when the rest has enough.
        5. Fire what is due, batch after batch, for a little while: what is live, a batch of a burst or of the backlog,
           and again.
           Also in between: what is due waits for none of this.
        6. Let the store make ready what falls due within a moment.
        7. After a takeover, see whether ticks were computed with older tables of zones and holidays, page by page.

        Shards that the store says are not ours are dropped; the next round looks at the fleet, and goes on. While the
        clock is fenced, nothing is held.
        """
        now, self._beat = self._clock.now(), self._clock.until_beat(SECOND)
        if self._clock.fenced:
            await self.release()
            return now + SHARE_EVERY
        try:
            # First, or leases that ended while this process slept would seem to be free, and be taken again.
            await self._renew(now)
            await self._fire_due(now)
            await self._share(now)
            if not self._shards:
                return min(now, self._shared_at) + self._share_every
            await self._renew(now)
            await self._fire_due(now)
            await self._look(now)
            await self._load()
            more = await self._fire_due(now)
            self._store.look_ahead(self._shards.leases(), decide_ticks)
            if self._retabling is not None:
                self._retabling = await retable(self._store, self._retabling)
                more = more or self._retabling is not None
        except LostOwnership as lost:
            self._lose(lost.shards or self.shards, lost)
            return now
        return self._clock.now() if more or self._to_load() else self._next_wanted()

    async def run(self, stop: asyncio.Event) -> None:
        """Rounds until `stop` is set (noticed within 20 ms of the clock). An error of the store never ends the loop."""
        self._is_called, self._stop = self._store.when_new(self._called), stop
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._called())
        try:
            while not stop.is_set():
                try:
                    wanted = await self.run_once()
                    self._recovered()
                    await self._wait(wanted, stop)
                except Exception as error:
                    await self._back_off(error, stop)
        finally:
            stopping.cancel()

    async def release(self, shards: Collection[int] | None = None) -> None:
        """Releases these shards, or all, so that the next owner does not wait for the leases to end."""
        leases = self._shards.drop(self.shards if shards is None else shards)
        if shards is None:
            self._failure = None  # it was about what we had
        if leases:
            await self._store.release(leases)

    # ------------------------------------------------------------------------------------------------------------ steps

    async def _renew(self, now: Instant) -> None:
        """Prolongs all leases, and opens the next window of each when it is time."""
        if not self._shards:
            return
        marks = self._shards.marks()
        # A clock that went back must not lower the mark: what is loaded stays loaded.
        mark = max(*marks, lease_through(now - self._store_behind))
        if marks == {mark} and not _passed(self._renewed_at, self._renew_every, now):
            return
        if marks != {mark} and not self._shards.has_fresh():
            # The new window is loaded as of the cursor of arrivals: that must not lie far back, as after a sleep.
            await self._look(now)
        rate = (await self._meanwhile(self._store.lane_rates())).get(Lane.CATCH_UP)
        self._pace.keep_to(None if rate is None else rate * len(self._shards) / self._store.shard_count)
        asked_at = self._clock.now()
        renewed = await self._meanwhile(self._store.renew(self._shards.leases(), self._lease_ttl, mark))
        self._renewed_at, self._renew_every = now, self._beat
        lost = self._shards.renew(renewed)
        if renewed:
            # Measured every second, so that a clock which jumped is believed no longer than that.
            self._store_behind = max(0, asked_at - (renewed[0].until - self._lease_ttl))
        if lost:
            raise LostOwnership("they were not renewed", lost)

    async def _share(self, now: Instant) -> None:
        """Takes the shards that are for this scheduler to have, and gives up what is more than its share."""
        if self._has_the_only_one() or not _passed(self._shared_at, self._share_every, now):
            return
        standing = await self._meanwhile(self._store.standing(self._owner, self._lease_ttl))
        plan = self._balance.plan(standing, now)
        await self.release(plan.release)
        # What the store says is ours and we do not have: the answer to its taking was lost, or we dropped it.
        ours = [shard for shard, owner in standing.shards if owner == self._owner and shard not in plan.release]
        for shard in [*ours, *plan.take]:
            if shard not in self._shards:
                await self._take(shard)
        # Noted once everything succeeded: what failed is tried again as soon as the loop has backed off.
        self._shared_at = now
        self._share_every = HURRY_EVERY if plan.is_waiting else self._beat

    def _has_the_only_one(self) -> bool:
        """One shard cannot be shared, so its owner need not ask."""
        return self._store.shard_count == len(self._shards) == 1

    async def _take(self, shard: int) -> None:
        lease = await self._store.take(shard, self._owner, self._lease_ttl)
        if lease is None:
            return  # another scheduler took it first
        self.counters.takeovers += 1
        self._shards.hold(lease, taken_at=lease.until - self._lease_ttl)
        self._version, self._retabling = None, ""

    async def _look(self, now: Instant) -> None:
        # Asked before reading: what is committed during the reading then shows as a difference at the next look.
        version = self._store.version()
        if not _passed(self._looked_at, self._look_every, now) and (
            version == self._version or now < self._looks_again
        ):
            return
        arrivals = await self._meanwhile(
            self._store.arrivals(self._shards.leases(), self._shards.cursor), may_look=False
        )
        self._shards.add_arrivals(arrivals)
        self.counters.arrivals += len(arrivals.number)
        self._version, self._looked_at = version, now
        # On each beat, and between two beats as often as the store leaves out calls.
        self._look_every = self._beat // -(-self._beat // CALLED_FOR) if self._is_called else LOOK_EVERY
        self._looks_again = self._rested(now)
        busy, self._busy = self._busy, []
        self._shards.put_back(busy)

    async def _load(self) -> None:
        """One piece of one window; overdue cells are streamed this way, however many there are. Nothing is fired
        meanwhile: firing may cut the very window in two that is being loaded."""
        found = self._to_load()
        if found is None:
            return
        held, window = found
        limit = self._late_piece if window.wheel is held.backlog else self._piece
        cells = await self._store.load(held.lease, window.loaded_to, limit, window.until)
        if cells.last <= window.loaded_to and not cells.exhausted:
            raise StoreError("the store returned no runs of a window that is not exhausted")
        held.add(window, cells)

    def _to_load(self) -> tuple[HeldShard, Window] | None:
        return self._shards.to_load(self._room, self._late_piece)

    async def _fire_due(self, began: Instant) -> bool:
        """Fires until nothing is due or allowed, or its time is used up. True when more may be due already. Raises what
        went wrong with firing since it was last asked."""
        self._tell_failure()
        while await self._fire_live() or await self._fire_burst() or await self._fire_backlog():
            now = self._clock.now()
            if not began <= now < began + POLL_EVERY:
                return True
            if self._shards.has_herd() or self._shards.has_burst():
                await self._look(now)  # so much is fired for seconds, and what comes meanwhile does not wait for it
                self._tell_failure()
        return False

    def _tell_failure(self) -> None:
        failure = self._failure
        if failure is None:
            return
        if not isinstance(failure, LostOwnership):  # what is lost is known until it is dropped
            self._failure = None
        raise failure

    async def _meanwhile(self, asked: Coroutine[Any, Any, T], *, may_look: bool = True) -> T:
        """Awaits a store elsewhere, and meanwhile reads arrivals and fires due runs. Otherwise a run that is promised
        for now would wait for the few round trips of each second.

        Nothing asked for may depend on the wheels. Reading arrivals moves the cursor, which `Shards` allows at any
        moment but two: while arrivals are read (`may_look`), and before a taken shard has its first mark. A look ends
        before the answer is used: a renewal that raises the mark then finds the newer cursor. The answer is used
        although a firing failed, since the store may not give it twice: `_fire_due` raises the failure."""
        if not self._is_called:
            return await asked
        asking = asyncio.ensure_future(asked)
        asking.add_done_callback(lambda _: self._called())
        try:
            while not asking.done():
                wait = SHARE_EVERY
                if self._may_fire():
                    due, now = self._next_due(), self._clock.now()
                    if due is not None and due <= now:
                        await self._try(self._fire_early)
                        due, now = max(due, self._clock.now() + _BREATH), self._clock.now()
                    if due is not None:
                        wait = min(wait, due - now)
                    if may_look and self._is_news() and not self._shards.has_fresh():
                        if now >= self._looks_again:
                            await self._try(partial(self._look, now))
                            continue
                        wait = min(wait, self._looks_again - now)
                if not asking.done():
                    await self._sleep(wait)
        except BaseException:  # cancelled, or the store was closed
            asking.cancel()
            await asyncio.wait({asking})
            raise
        return await asking

    def _may_fire(self) -> bool:
        return self._failure is None and not self._clock.fenced and not (self._stop is not None and self._stop.is_set())

    async def _try(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except Exception as error:
            self._failure = error

    async def _fire_early(self) -> bool:
        return await self._fire_live() or await self._fire_burst()

    async def _fire_live(self) -> bool:
        """One batch. True when it was full: more may be due already."""
        # Whatever woke us (timers wake early here and there): the clock is read again before firing.
        now = self._clock.now()
        self._shards.age(now - self._store_behind)
        if now < self._rests_until <= now + MOST_REST:
            return False
        due, is_all = self._due(now)
        soon, is_all_soon, kind = self._soon(now, len(due)) if is_all else ([], True, DueKind.LIVE)
        if not due and not soon:
            return False
        if self._shards.has_burst():
            self._fresh_at = now
        await self._fire(due, now, soon, kind)
        if not is_all_soon:
            return True
        if not is_all:
            after = self._clock.now()
            if not self._has_had_turn and self._is_fresh_beside_herd(after):
                self._herd_rests_until = after + min(HERD_REST * max(after - now, 0), MOST_HERD_REST)
            return True
        self._rests_until = self._rested(now)
        return False

    def _due(self, now: Instant) -> tuple[list[Entry], bool]:
        """The next batch, and whether nothing more is due. Beside a herd, what is fresh has its own batches, in turns
        with smaller ones of the herd."""
        clock = now - self._store_behind
        is_resting = self._is_resting_from_herd(now)
        fresh = self._shards.fresh(clock, self._most) if is_resting or not self._has_had_turn else []
        self._has_had_turn = bool(fresh)
        if fresh:
            self._fresh_at = now
            return fresh, False
        if is_resting and not self._has_fresh(clock):
            return [], True
        most = min(self._most, HERD_BATCH) if self._is_fresh_beside_herd(now) else self._most
        due = self._shards.due(clock, most)
        return due, len(due) < most

    def _has_fresh(self, clock: Instant) -> bool:
        """Whether something is due that is not of the herd: a whole batch, which would be another one."""
        first = self._shards.next_fresh()
        return first is not None and first <= clock

    def _soon(self, now: Instant, due: int) -> tuple[list[Entry], bool, DueKind]:
        """What may be handed off before its time, once that is worth a batch, or beside what is due; whether it is all;
        and of which kind the batch is then. What is due is live: nothing of a burst goes with it."""
        clock, begin, most = now - self._store_behind, self._next_soon(), self._most - due
        if begin is None or (begin > clock and not due):
            return [], True, DueKind.LIVE
        soon = self._shards.soon(clock + self._store.lead, most)
        if len(soon) < most or not self._shards.is_burst_by(clock + self._store.lead, beside=len(soon)):
            return soon, len(soon) < most, DueKind.LIVE
        if due:
            self._shards.put_back(soon)
            return [], False, DueKind.LIVE
        return soon, False, DueKind.BURST

    def _next_soon(self) -> Instant | None:
        """When the next batch of it is to go; None when nothing waits for it. Beside a herd, nothing goes early."""
        lead = self._store.lead
        first = None if not lead or self._shards.has_herd() else self._shards.next_soon()
        return None if first is None else first - lead // AHEAD

    def _is_fresh_beside_herd(self, now: Instant) -> bool:
        return self._shards.has_herd() and not _passed(self._fresh_at, FRESH_FOR, now)

    def _is_resting_from_herd(self, now: Instant) -> bool:
        return now < self._herd_rests_until <= now + MOST_HERD_REST and self._shards.has_herd()

    async def _fire_burst(self) -> bool:
        """One batch. True when there may be more. Beside what is live, it is a small one, and the dispatcher rests from
        the burst after it, as it does from a herd."""
        now = self._clock.now()
        if now < self._burst_rests_until <= now + MOST_HERD_REST:
            return False
        is_alone = _passed(self._fresh_at, FRESH_FOR, now)
        most = self._most if is_alone else min(self._most, HERD_BATCH)
        burst = self._shards.burst(now - self._store_behind, most)
        if not burst:
            return False
        await self._fire(burst, now, kind=DueKind.BURST)
        if not is_alone:
            after = self._clock.now()
            self._burst_rests_until = after + min(HERD_REST * max(after - now, 0), MOST_HERD_REST)
        return len(burst) == most

    async def _fire_backlog(self) -> bool:
        """One batch, as large as the rate allows. True when there may be more."""
        now = self._clock.now()
        most = min(self._most, LATE_BATCH, self._pace.allows(now))
        late = self._shards.overdue(now - self._store_behind, most)
        if not late:
            return False
        fired = await self._fire(late, now, kind=DueKind.BACKLOG)
        # What was moved, or cannot be fired now, was no load on anybody.
        self._pace.spend(len(late) - fired.early - fired.stale - len(fired.busy), now)
        return len(late) == most

    def _rested(self, since: Instant) -> Instant:
        """When the dispatcher has rested from what it began then and has just done."""
        now = self._clock.now()
        return now + min(REST * max(now - since, 0), MOST_REST)

    async def _fire(
        self, due: list[Entry], now: Instant, soon: Sequence[Entry] = (), kind: DueKind = DueKind.LIVE
    ) -> Fired:
        count, entries = self._store.shard_count, [*due, *soon]
        leases = self._shards.leases({shard_of(number, count) for _, number in entries})
        began = self._clock.monotonic()
        try:
            # Of the backlog, no more was taken than the rate allows.
            paced = None if kind is DueKind.BACKLOG else PacedDecisions(self._pace.allows(now))
            fired = await self._store.fire(leases, due, self._shards.cursor, paced or decide_ticks, soon, kind)
        except (FoliotError, asyncio.CancelledError):
            # Nothing was fired. After LostOwnership the wheels of what was lost are dropped as a whole.
            self._shards.put_back(entries)
            raise
        except Exception:
            # Not the store's fault but a run's: smaller batches, until the one that cannot be fired stands alone. It is
            # left out here, stays pending, and is tried again by the next owner.
            self._most = max(len(entries) // 2, 1)
            if len(entries) > 1:
                self._shards.put_back(entries)
            else:
                _log.exception("firing run %d failed, skipping it", entries[0][1])
            raise
        if paced is not None:
            self._pace.spend(paced.caught_up, now)
        self._shards.put_behind(fired.paced)
        self._shards.put_off(fired.patient)
        if len(fired.patient) == len(entries):
            return fired  # it was known before that all of it has to wait
        self._most = min(self._most * 2, self._batch)
        took = self._clock.monotonic() - began
        self.counters.add(due, fired, took)
        if self._tracer is not None:
            self._tracer.fired(now, now + took, fired)
        # Read before the call, so never more than the store's clock really lags. It keeps a host whose clock is fast
        # from asking again and again: a refused run has fire_at > fired.at, so fire_at + lag lies after `now`.
        self._store_behind = max(0, now - fired.at)
        self._shards.put_back(fired.again)
        self._busy += fired.busy
        for fault in fired.faults:
            _log.warning("schedule set aside: %s", fault)
        return fired

    # ---------------------------------------------------------------------------------------------------------- between

    def _next_wanted(self) -> Instant:
        wanted = min(self._renewed_at + self._renew_every, self._looked_at + self._look_every)
        if not self._has_the_only_one():
            wanted = min(wanted, self._shared_at + self._share_every)
        due, late = self._next_due(), self._next_overdue()
        if due is not None:
            wanted = min(wanted, due)
        return wanted if late is None else min(wanted, late)

    def _next_due(self) -> Instant | None:
        """When the next batch of what is live, or of a burst, can be fired; None when nothing waits for it."""
        due, soon, burst = self._next_live(), self._next_soon(), self._shards.next_burst()
        if due is not None and soon is not None:
            due = min(due, soon)
        live = None if due is None else max(due + self._store_behind, self._rests_until)
        if burst is None:
            return live
        burst = max(burst + self._store_behind, self._burst_rests_until)
        return burst if live is None else min(live, burst)

    def _next_live(self) -> Instant | None:
        """When the next live entry is due; those of a herd are when the dispatcher has rested from it."""
        if not self._is_resting_from_herd(self._clock.now()):
            return self._shards.next_at()
        fresh, herd = self._shards.next_fresh(), self._herd_rests_until - self._store_behind
        return herd if fresh is None else min(fresh, herd)

    def _next_overdue(self) -> Instant | None:
        """When the backlog may go on; None when nothing of it is in memory."""
        due = self._shards.next_overdue()
        return None if due is None else max(due + self._store_behind, self._pace.next_at(self._clock.now()))

    async def _wait(self, wanted: Instant, stop: asyncio.Event) -> None:
        """Sleeps until the time has come or something was committed.

        A store that does not call is asked for its version only after a sleep: on a busy store it differs at every
        look, and asking first would make this loop spin. One that calls may have called during the round, so it is
        asked first, but not before the dispatcher has rested from its last look.
        """
        await asyncio.sleep(0)  # a backlog is fired without pause, but others on this event loop have their turn
        # By passing time: a clock that goes back meanwhile must not stretch the wait.
        until, longest = self._clock.monotonic() + SHARE_EVERY, SHARE_EVERY if self._is_called else POLL_EVERY
        while not stop.is_set() and self._clock.monotonic() < until:
            now = self._clock.now()
            step = min(wanted - now, longest)
            if self._is_called and self._is_news():
                step = min(step, self._looks_again - now)
            if step <= 0:
                return
            await self._sleep(step)
            if self._clock.now() >= self._looks_again and self._is_news():
                return

    def _is_news(self) -> bool:
        return bool(self._shards) and self._store.version() != self._version

    async def _sleep(self, length: Duration) -> None:
        """Until the time has passed, or the store calls."""
        if not self._is_called:
            await self._clock.sleep(length)
            return
        loop = asyncio.get_running_loop()
        self._sleeper = sleeper = loop.create_future()
        timer = loop.call_later(length / SECOND, _wake, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()

    def _called(self) -> None:
        if self._sleeper is not None:
            _wake(self._sleeper)

    def _lose(self, shards: Collection[int], why: LostOwnership) -> None:
        """New epochs are in the store, or will be. Whatever the wheels hold, a new owner loads it too."""
        failure, self._failure = self._failure, None
        if isinstance(failure, LostOwnership):
            shards = {*shards, *(failure.shards or self.shards)}
        lost = self._shards.drop(shards)
        self.counters.lost += len(lost)
        self._shared_at = _LONG_AGO
        _log.warning("released shards %s (%s), leasing them again if free", sorted(one.shard for one in lost), why)

    async def _back_off(self, error: Exception, stop: asyncio.Event) -> None:
        """Notes the first failure of a burst, and waits longer after each."""
        if not self._failures:
            _log.warning("dispatcher round failed, retrying", exc_info=True)
        self._failures += 1
        self.counters.failures += 1
        left = store_pause(self._failures, error)
        while left > 0 and not stop.is_set():
            await self._clock.sleep(min(left, POLL_EVERY))
            left -= POLL_EVERY

    def _recovered(self) -> None:
        if self._failures:
            _log.warning("dispatcher recovered after %d failures", self._failures)
            self._failures = 0


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _passed(since: Instant, length: Duration, now: Instant) -> bool:
    """Whether `length` has passed; also when the clock went back, or it would wait for as long as it went."""
    return not since <= now < since + length
