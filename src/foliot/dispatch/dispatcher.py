"""The dispatcher: owns a shard, keeps its near future in the wheel, and hands off what is due."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from foliot.clock import Clock
from foliot.dispatch.admission import decide_ticks
from foliot.dispatch.cells import lease_through, next_lease_at
from foliot.dispatch.retabling import RetablingStore, retable
from foliot.dispatch.wheel import Entry, Wheel
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.store import DispatchStore, Fired, Lease
from foliot.errors import FoliotError, LostOwnership, StoreError

RENEW_EVERY: Duration = SECOND
TAKE_EVERY: Duration = SECOND
"""How often a shard that somebody else holds is asked for."""
LOOK_EVERY: Duration = 250 * MILLISECOND
"""Arrivals are read at least this often; `version` only makes it sooner."""
POLL_EVERY: Duration = 20 * MILLISECOND
"""How often `version` is asked while waiting, and how long a backlog may be fired before anything else has its turn."""
FIRST_BACKOFF: Duration = 50 * MILLISECOND
LONGEST_BACKOFF: Duration = 5 * SECOND

_BEGINNING: Entry = (-(1 << 63), -1)

_log = logging.getLogger("foliot.dispatch")


class DispatcherStore(DispatchStore, RetablingStore, Protocol):
    """What the dispatcher needs of a store."""

    def version(self) -> int: ...


@dataclass(slots=True)
class DispatchCounters:
    """What happened since the start of this process, for metrics."""

    fired: int = 0
    early_refused: int = 0
    stale: int = 0
    skipped: int = 0
    held: int = 0
    created: int = 0
    faults: int = 0
    takeovers: int = 0
    lost: int = 0
    failures: int = 0
    """Times the store could not do what was asked."""

    def add(self, fired: Fired) -> None:
        self.fired += fired.handed_off
        self.early_refused += fired.early
        self.stale += fired.stale
        self.skipped += fired.skipped
        self.held += fired.held
        self.created += fired.created
        self.faults += len(fired.faults)


class Dispatcher:
    """Fires the pending runs of one shard.

    It is in one of two states. *Without a lease* it holds nothing, and asks for the shard now and then. *With a lease*
    the wheel holds a part of what is pending below the lease's high-water mark: everything up to `_loaded_to` that was
    visible at the cursor of the lease, and everything that `arrivals` told up to `_cursor`. Only the store knows
    whether the lease is still true; it says so in `renew` and in `fire`, and then everything here is dropped.
    """

    def __init__(
        self,
        store: DispatcherStore,
        clock: Clock,
        *,
        owner: int,
        shard: int = 0,
        lease_ttl: Duration = 5 * SECOND,
        slice_size: int = 50_000,
        batch: int = 1_000,
    ) -> None:
        self.counters = DispatchCounters()
        self._store = store
        self._clock = clock
        self._owner = owner
        self._shard = shard
        self._lease_ttl = lease_ttl
        self._slice_size = slice_size
        self._batch = batch
        self._most = batch
        # A whole slice in one go would keep due runs waiting for as long as it takes to read it.
        self._piece = min(slice_size, max(batch, slice_size // 10))
        self._wheel = Wheel()
        self._lease: Lease | None = None
        self._loaded_to = _BEGINNING
        self._window_open = False
        self._cursor = 0
        self._version: int | None = None
        self._asked_at: Instant = _BEGINNING[0]
        self._renewed_at: Instant = 0
        self._looked_at: Instant = 0
        self._store_behind: Duration = 0
        self._failures = 0
        self._retabling: str | None = None
        """Where to go on with the ticks that newer tables may move; None when all were looked at."""

    @property
    def lease(self) -> Lease | None:
        """What this dispatcher believes to own; the store knows better."""
        return self._lease

    @property
    def waiting(self) -> int:
        """How many runs are in memory."""
        return len(self._wheel)

    def next_event(self) -> Instant | None:
        """When something can happen if nobody makes a new promise: a run is due, or the next cells are to be leased."""
        if self._lease is None:
            return None
        due = self._wheel.next_at()
        ahead = next_lease_at(self._lease.high_water)
        return ahead if due is None else min(due, ahead)

    async def run_once(self) -> Instant:
        """One round; returns when the next one is wanted (a time that has come already: at once).

        1. Without a lease, ask for the shard; while somebody else holds it, no more than once per second.
        2. Renew the lease every second, or sooner when the next cells must be leased ahead.
        3. Read arrivals when anything was committed since the last look, and every 250 ms in any case.
        4. Load the next piece of the leased window while there is room for it.
        5. Fire what is due, batch after batch, for a little while.
        6. After a takeover, see whether ticks were computed with older tables of zones and holidays, page by page.

        When the store says that somebody else owns the shard, everything is dropped and the next round asks again.
        """
        now = self._clock.now()
        if self._lease is None and not await self._take(now):
            return min(now, self._asked_at) + TAKE_EVERY
        try:
            await self._renew(now)
            await self._look(now)
            await self._load()
            more = await self._fire_due(now)
            if self._retabling is not None:
                self._retabling = await retable(self._store, self._retabling)
                more = more or self._retabling is not None
        except LostOwnership:
            # A new owner's epoch is in the store. Whatever the wheel holds, the new owner has loaded it too.
            self.counters.lost += 1
            _log.warning("shard %d is owned by another scheduler now", self._shard)
            self._drop()
            return now
        return self._clock.now() if more or self._may_load() else self._next_wanted()

    async def run(self, stop: asyncio.Event) -> None:
        """Rounds until `stop` is set (noticed within 20 ms of the clock). An error of the store never ends the loop."""
        while not stop.is_set():
            try:
                wanted = await self.run_once()
                self._recovered()
                await self._wait(wanted, stop)
            except Exception:
                await self._back_off(stop)

    async def release(self) -> None:
        """Gives the shard up at once, so that whoever comes next need not wait for the lease to end."""
        lease = self._lease
        self._drop()
        if lease is not None:
            await self._store.release(lease)

    # ------------------------------------------------------------------------------------------------------------ steps

    async def _take(self, now: Instant) -> bool:
        if not _passed(self._asked_at, TAKE_EVERY, now):
            return False
        lease = await self._store.take(self._shard, self._owner, self._lease_ttl)
        if lease is None:
            self._asked_at = now
            return False
        self.counters.takeovers += 1
        self._drop()
        # Its mark is at the beginning of time: the window from there on is open, and `_renew` gives it an end.
        self._lease, self._cursor, self._window_open = lease, lease.cursor, True
        self._retabling = ""
        return True

    async def _renew(self, now: Instant) -> None:
        """Prolongs the lease, and opens the next window when it is time.

        A window is loaded as of the cursor that arrivals had come to when its mark was raised. What became visible up
        to there is in its cells; what came later is told by `arrivals`, which goes on from that very cursor, below
        the raised mark. So no run is told by neither. A backlog that is still being loaded then is loaded on as of
        the new cursor, and may bring runs that arrivals told before: such twins leave the wheel together, and a run
        that is handed off twice all the same is claimed once.
        """
        lease = self._held()
        # A clock that went back must not lower the mark: what is loaded stays loaded.
        mark = max(lease.high_water, lease_through(now - self._store_behind))
        if mark == lease.high_water and not _passed(self._renewed_at, RENEW_EVERY, now):
            return
        renewed = await self._store.renew(lease, self._lease_ttl, mark)
        self._renewed_at = now
        # Measured every second, so that a clock which jumped is believed no longer than that.
        self._store_behind = max(0, now - (renewed.until - self._lease_ttl))
        if mark == lease.high_water:
            self._lease = renewed._replace(cursor=lease.cursor)
            return
        self._lease = renewed._replace(cursor=self._cursor)
        if not self._window_open:
            # All below the old mark is loaded, or told by arrivals: go on from the mark, not from the last run.
            self._loaded_to, self._window_open = (lease.high_water, -1), True

    async def _look(self, now: Instant) -> None:
        # Asked before reading: what is committed during the reading then shows as a difference at the next look.
        version = self._store.version()
        if version == self._version and not _passed(self._looked_at, LOOK_EVERY, now):
            return
        arrivals = await self._store.arrivals(self._held(), self._cursor)
        self._wheel.add_arrivals(arrivals)
        self._cursor, self._version, self._looked_at = arrivals.cursor, version, now

    async def _load(self) -> None:
        """One piece of the window; overdue cells are streamed this way, however many there are."""
        if not self._may_load():
            return
        cells = await self._store.load(self._held(), self._loaded_to, self._piece)
        if cells.last <= self._loaded_to and not cells.exhausted:
            raise StoreError("the store gives nothing of a window that it says is not exhausted")
        self._wheel.add_cells(cells)
        self._loaded_to, self._window_open = cells.last, not cells.exhausted

    def _may_load(self) -> bool:
        return self._window_open and self._wheel.loaded + self._piece <= self._slice_size

    async def _fire_due(self, began: Instant) -> bool:
        """Fires until a batch was not full or its time is used up. True when more may be due already."""
        while True:
            # Whatever woke us (timers wake early here and there): the clock is read again before firing.
            now = self._clock.now()
            most = self._most
            due = self._wheel.due(now - self._store_behind, most)
            if not due:
                return False
            await self._fire(due, now)
            if len(due) < most:
                return False
            if not began <= self._clock.now() < began + POLL_EVERY:
                return True

    async def _fire(self, due: list[Entry], now: Instant) -> None:
        try:
            fired = await self._store.fire(self._held(), due, self._cursor, decide_ticks)
        except (FoliotError, asyncio.CancelledError):
            # Nothing was fired. After LostOwnership the wheel is dropped as a whole.
            self._wheel.put_back(due)
            raise
        except Exception:
            # Not the store's fault but a run's: smaller batches, until the one that cannot be fired stands alone. It is
            # left out here, stays pending, and is tried again by the next owner.
            self._most = max(len(due) // 2, 1)
            if len(due) > 1:
                self._wheel.put_back(due)
            else:
                _log.exception("run %d cannot be fired; it is left out", due[0][1])
            raise
        self._most = min(self._most * 2, self._batch)
        self.counters.add(fired)
        # Read before the call, so never more than the store's clock really lags. It keeps a host whose clock is fast
        # from asking again and again: a refused run has fire_at > fired.at, so fire_at + lag lies after `now`.
        self._store_behind = max(0, now - fired.at)
        if fired.early:
            self._wheel.put_back(entry for entry in due if entry[0] > fired.at)
        for fault in fired.faults:
            _log.warning("schedule set aside: %s", fault)

    # ---------------------------------------------------------------------------------------------------------- between

    def _next_wanted(self) -> Instant:
        wanted = min(self._renewed_at + RENEW_EVERY, self._looked_at + LOOK_EVERY)
        due = self._wheel.next_at()
        return wanted if due is None else min(wanted, due + self._store_behind)

    async def _wait(self, wanted: Instant, stop: asyncio.Event) -> None:
        """Sleeps until the time has come or something was committed.

        The version is asked only after a sleep: on a busy store it differs at every look, and asking first would
        make this loop spin.
        """
        await asyncio.sleep(0)  # a backlog is fired without pause, but others on this event loop have their turn
        # Slept, not read from the clock: a clock that goes back meanwhile must not stretch the wait.
        slept = 0
        while not stop.is_set() and slept < TAKE_EVERY:
            step = min(wanted - self._clock.now(), POLL_EVERY)
            if step <= 0:
                return
            await self._clock.sleep(step)
            slept += step
            if self._lease is not None and self._store.version() != self._version:
                return

    def _held(self) -> Lease:
        if self._lease is None:
            raise LostOwnership(f"shard {self._shard} is not ours")
        return self._lease

    def _drop(self) -> None:
        self._lease = None
        self._wheel.clear()
        self._loaded_to = _BEGINNING
        self._window_open = False
        self._version = None

    async def _back_off(self, stop: asyncio.Event) -> None:
        """Notes the first failure of a burst, and waits longer after each."""
        if not self._failures:
            _log.warning("the dispatcher of shard %d failed, and tries again", self._shard, exc_info=True)
        self._failures += 1
        self.counters.failures += 1
        left = min(LONGEST_BACKOFF, FIRST_BACKOFF << min(self._failures - 1, 20))
        while left > 0 and not stop.is_set():
            await self._clock.sleep(min(left, POLL_EVERY))
            left -= POLL_EVERY

    def _recovered(self) -> None:
        if self._failures:
            _log.warning("the dispatcher of shard %d works again, after %d failures", self._shard, self._failures)
            self._failures = 0


def _passed(since: Instant, length: Duration, now: Instant) -> bool:
    """Whether `length` has passed; also when the clock went back, or it would wait for as long as it went."""
    return not since <= now < since + length
