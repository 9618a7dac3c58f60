"""Herds of ticks, made ready before they are due, so that handing them off takes no longer than a few round trips.

Many schedules have ticks at the same moment, and each needs a decision, a successor and a few writes. A scheduler does
all of that a little ahead, in transactions that then wait, and commit just before that moment. No claim takes their
runs before it has come. No other transaction sees them until then. If they roll back, the ticks are fired as usual.

While they wait, these transactions lock rows of ticks that are due soon, and their schedules, of which no other run
exists. A transaction that changes one of those waits. The shards are locked at the very end, so that other firings go
on, and their epochs are compared then: a scheduler that was replaced meanwhile hands nothing off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any, Protocol, TypeVar

from foliot.domain.fairness import FairShares, Placing
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant
from foliot.domain.store import CALLED_FOR, Decide, Fired, Lease, shard_of
from foliot.errors import FoliotError, LostOwnership
from foliot.store.postgres import preparing
from foliot.store.postgres.transaction import PostgresTransaction, Work
from foliot.store.verbs.firing import Firing
from foliot.store.verbs.transaction import Row

AHEAD: Duration = 750 * MILLISECOND
"""How long before its time a herd is made ready: longer than that takes, and longer than a dispatcher sleeps."""
HAND_OFF: Duration = 80 * MILLISECOND
"""How long before its time a herd is handed off: longer than that takes, and claiming it."""
PATIENCE: Duration = 400 * MILLISECOND
"""For so long after its time a herd waits to be fired."""
HERD = 20
"""Fewer ticks of one moment are fired as fast without all this."""
LARGE = 4_000
"""The number of ticks of one moment from which they are made ready earlier, by FURTHEST before it. Fewer are ready in
AHEAD. Where they recur each second, preparing them sooner would delay the ticks of the second before."""
FURTHEST: Duration = 2 * SECOND
PART, MOST = 250, 5_000
"""Ticks in one transaction: no fewer if there are several, and no more."""
EARLY: Duration = 20 * MILLISECOND
"""The server's clock is waited for as long as this, should it be behind ours."""
LATEST: Duration = 150 * MILLISECOND
"""With less time than this left, preparing a herd delays it."""
_KNOWN_FOR = 0.25
"""Seconds in which the dispatcher, which fired one tick of a herd, fires the others that went with it."""
_IDLE = "SET LOCAL idle_in_transaction_session_timeout = '3s'"
"""A stopped process must not delay the next owner of its shards: shorter than a lease. And longer than a herd waits."""

Entry = tuple[Instant, int]
T = TypeVar("T")

_log = logging.getLogger("foliot.store")


class Server(Protocol):
    """What this module needs of the store."""

    shard_count: int

    @property
    def ahead(self) -> int:
        """How many connections transactions may hold that wait for their time."""

    @property
    def lead(self) -> Duration:
        """Zero where nothing is handed off before its time."""

    async def write(self, work: Work[T], *, lazily: bool = False, hot: bool = False) -> T: ...
    async def look_again(self, tx: PostgresTransaction, query: str, /, **values: Any) -> Row: ...


class _Abandoned(Exception):
    """It does not come to it: everything is rolled back."""


class Herd:
    """Ticks of one moment, in a transaction that waits for it."""

    def __init__(
        self,
        server: Server,
        at: Instant,
        numbers: Sequence[int],
        leases: Sequence[Lease],
        decide: Decide,
        placing: Placing,
        next_workers: Callable[[], str],
        ahead: Duration = AHEAD,
    ) -> None:
        """`next_workers`: workers to call for it, in turn, by queue: see `foliot.fire_runs`. `ahead`: how long before
        its time it is begun."""
        self.at = at
        self.entries: frozenset[Entry] = frozenset()
        """What goes with it, once it is ready: no more than was asked for."""
        self.ready = asyncio.Event()
        self._server = server
        self._numbers = numbers
        self._leases = leases
        self._decide = decide
        self._placing = placing
        self._next_workers = next_workers
        self._ahead = ahead
        self._was_begun = False
        self._head_start = HAND_OFF if server.lead else 0
        self.clock = _StoreClock(at, moves=False)
        self._call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Fired] = asyncio.create_task(
            server.write(self._wait_and_fire, lazily=True, hot=True), name=f"ticks of {at}"
        )
        self.task.add_done_callback(_log_failure)

    async def fire(self) -> Fired | None:
        """None when nothing was fired. LostOwnership when a shard has another owner."""
        self._go()
        try:
            fired = await asyncio.shield(self.task)
        except LostOwnership:
            raise
        except Exception:
            return None  # the caller fires them as usual, and gets the error
        self._placing.keep()
        return fired._replace(at=self.clock.now())

    def is_over(self, now: Instant) -> bool:
        """It came to nothing, or what it handed off was not called for in time."""
        if not self.task.done():
            return False
        return self.task.cancelled() or self.task.exception() is not None or now >= self.at + AHEAD

    def _go(self) -> None:
        if not self._call.done():
            self._call.set_result(None)

    def abandon(self) -> None:
        if not self._call.done():
            self._call.set_exception(_Abandoned)
            self._call.exception()  # retrieved, also when no caller waits for it yet

    async def _wait_and_fire(self, tx: PostgresTransaction) -> Fired:
        if self._was_begun:
            raise _Abandoned  # it had to go back, and there is no time to try again
        self._was_begun = True
        firing = await self._made_ready(tx)
        self.ready.set()
        await self._be_called(tx)
        await self._reach(tx)
        tx.now = max(tx.now, self.at)
        await firing.write()
        if self._head_start:
            await tx.one("call_for_chunks", at=self.at, whom=self._next_workers())
        return Fired(tx.now, firing.handed_off, 0, 0, 0, 0, firing.created, [])

    async def _made_ready(self, tx: PostgresTransaction) -> Firing:
        await tx.plainly(_IDLE)
        tx.now = self.at
        firing = await preparing.prepare(tx, self._numbers, self._decide, self._placing)
        if firing is None:
            raise _Abandoned
        going = (number for numbers in firing.groups.values() for number in numbers)
        self.entries = frozenset((firing.rows[number].fire_at, number) for number in going)
        if firing.soonest is None or firing.soonest > self.at + CALLED_FOR:
            tx.rings.discard("arrivals")
        return firing

    async def _be_called(self, tx: PostgresTransaction) -> None:
        """By a firing, or by the time."""
        loop = asyncio.get_running_loop()
        timers = [loop.call_later((self._ahead + PATIENCE) / SECOND, self.abandon)]
        if self._head_start:
            [now] = await self._server.look_again(tx, "look")
            timers.append(loop.call_later((self.at - self._head_start - now) / SECOND, self._go))
        try:
            await self._call
        finally:
            for timer in timers:
                timer.cancel()

    async def _reach(self, tx: PostgresTransaction) -> None:
        """The store's clock decides, inside the transaction. Whether the shards are still ours, and whether anything is
        limited meanwhile, is asked with it; the shards are locked then."""
        while True:
            now, owned, is_limited = await self._server.look_again(tx, "hold_now", **under(self._leases))
            lost = {lease.shard for lease in self._leases} - set(owned)
            if lost:
                raise LostOwnership(f"shards {sorted(lost)} are no longer owned under these epochs", lost)
            begin = self.at - self._head_start
            if is_limited or not begin - EARLY <= now <= self.at + PATIENCE or now == tx.now < begin:
                raise _Abandoned  # too early even to wait for, too late, or by a clock that stands still
            tx.now = now
            self.clock = _StoreClock(now, moves=bool(self._head_start))
            if now >= begin:
                return
            await asyncio.sleep((begin - now) / SECOND)


class _StoreClock:
    """What time it is at the store, by what it said last."""

    def __init__(self, said: Instant, *, moves: bool) -> None:
        """`moves`: it is not virtual."""
        self._said = said
        self._heard = time.monotonic() if moves else None

    def now(self) -> Instant:
        return self._said + (round((time.monotonic() - self._heard) * SECOND) if self._heard is not None else 0)


class Ahead:
    """What one process knows of ticks to come, and the herds of them that it has made ready."""

    def __init__(self, server: Server, shares: FairShares, next_workers: Callable[[], str]) -> None:
        self._server = server
        self._shares = shares
        self._next_workers = next_workers
        self._moments: dict[Instant, set[int]] = {}
        """Ticks that are loaded, by their time."""
        self._order: list[Instant] = []
        """The same times, as a heap."""
        self._large: list[Instant] = []
        """Those with at least LARGE ticks, likewise."""
        self._near: dict[Instant, set[int]] = {}
        """Ticks that are due within a moment, or were just now."""
        self.herds: list[Herd] = []
        self._gone: set[Entry] = set()
        """What went with a herd before it was called for."""
        self._gone_at = 0.0
        self._clock = _StoreClock(0, moves=False)

    def note(self, entries: Iterable[Row]) -> None:
        """What was loaded or arrived: time, number, and whether it is a tick."""
        for at, number, is_tick in entries:
            if is_tick:
                if at not in self._moments:
                    self._moments[at] = set()
                    heappush(self._order, at)
                moment = self._moments[at]
                moment.add(number)
                if len(moment) == LARGE and at not in self._large:
                    heappush(self._large, at)

    def look(self, leases: Sequence[Lease], decide: Decide, now: Instant) -> None:
        """Makes ready what is due within a moment."""
        self.herds = [herd for herd in self.herds if not herd.is_over(now)]
        # Nearly in the order of time: thousands of them are not looked through in each round.
        for at in list(takewhile(lambda at: at < now - SECOND, self._near)):
            del self._near[at]
        while self._large and self._large[0] <= now + FURTHEST:
            self._come_near(heappop(self._large), leases, decide, now, FURTHEST)
        while self._order and self._order[0] <= now + AHEAD:
            self._come_near(heappop(self._order), leases, decide, now, AHEAD)

    def _come_near(self, at: Instant, leases: Sequence[Lease], decide: Decide, now: Instant, ahead: Duration) -> None:
        """Begins a herd of what was noted for this moment since it last came near."""
        numbers = self._moments.pop(at, set())
        self._near.setdefault(at, set()).update(numbers)
        if at > now + LATEST and len(numbers) >= HERD:
            self._begin(at, numbers, leases, decide, ahead)

    def is_tick(self, entry: Entry) -> bool:
        """As far as is known."""
        return entry[1] in self._near.get(entry[0], ())

    def _begin(
        self, at: Instant, numbers: Collection[int], leases: Sequence[Lease], decide: Decide, ahead: Duration
    ) -> None:
        by_shard = {lease.shard: lease for lease in leases}
        ours = sorted(number for number in numbers if shard_of(number, self._server.shard_count) in by_shard)
        room = max(self._server.ahead - len(self.herds), 0)
        parts = min(room, -(-len(ours) // PART))
        for place in range(parts):
            part = ours[place::parts][:MOST]
            shards = {shard_of(number, self._server.shard_count) for number in part}
            held = [by_shard[shard] for shard in sorted(shards)]
            placing = Placing(self._shares)
            self.herds.append(Herd(self._server, at, part, held, decide, placing, self._next_workers, ahead))

    async def fire(self, due: Sequence[Entry]) -> tuple[Fired | None, list[Entry]]:
        """All herds whose time has come, and what is left to be fired of what is due. None when there was no herd.

        All of them, also those of which nothing is among what is due: a firing must not wait for their locks."""
        if not self.herds and not self._gone:
            return None, list(due)
        fired = await self._fire_herds(max(at for at, _ in due)) if due else None
        if time.monotonic() > self._gone_at + _KNOWN_FOR:
            self._gone.clear()
        left = [entry for entry in due if entry not in self._gone]
        self._gone.difference_update(due)
        if fired is None and len(left) < len(due):
            fired = Fired(self._clock.now(), 0, 0, 0, 0, 0, 0, [])
        return fired, left

    async def _fire_herds(self, until: Instant) -> Fired | None:
        due = [herd for herd in self.herds if herd.at <= until]
        self.herds = [herd for herd in self.herds if herd.at > until]
        found: Fired | None = None
        for herd, fired in zip(due, await asyncio.gather(*(herd.fire() for herd in due)), strict=True):
            if fired is not None:
                found = fired if found is None else together(found, fired)
                self._gone |= herd.entries
                self._gone_at = time.monotonic()
                self._clock = herd.clock
        return found

    def abandon(self) -> None:
        for herd in self.herds:
            herd.abandon()
        self._gone.clear()

    async def close(self) -> None:
        """Nothing is under way afterwards."""
        herds, self.herds = self.herds, []
        here = [herd.task for herd in herds if herd.task.get_loop() is asyncio.get_running_loop()]
        for task in here:
            task.cancel()
        await asyncio.gather(*here, return_exceptions=True)


def under(leases: Sequence[Lease]) -> dict[str, object]:
    """Whose shards these are, and under which epochs: values for queries."""
    return {
        "owner": leases[0].owner if leases else 0,
        "shards": [lease.shard for lease in leases],
        "epochs": [lease.epoch for lease in leases],
    }


def together(one: Fired, other: Fired) -> Fired:
    """Two firings as one; what the later one says of the clock holds."""
    return Fired(
        at=other.at,
        handed_off=one.handed_off + other.handed_off,
        early=one.early + other.early,
        stale=one.stale + other.stale,
        skipped=one.skipped + other.skipped,
        held=one.held + other.held,
        created=one.created + other.created,
        faults=[*one.faults, *other.faults],
        busy=[*one.busy, *other.busy],
        again=[*one.again, *other.again],
        ahead=one.ahead + other.ahead,
        patient=[*one.patient, *other.patient],
        paced=[*one.paced, *other.paced],
        skipped_for=Counter(one.skipped_for) + Counter(other.skipped_for),
        held_for=Counter(one.held_for) + Counter(other.held_for),
    )


def _log_failure(task: asyncio.Task[Fired]) -> None:
    """Logs the error of a herd that no caller waits for."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, _Abandoned):
        level = logging.DEBUG if isinstance(error, FoliotError) else logging.WARNING
        _log.log(level, "preparing or handing off a burst of ticks failed, handing them off one by one", exc_info=error)
