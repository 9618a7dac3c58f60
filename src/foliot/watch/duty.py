"""Duties: what one instance of the fleet does for all, for as long as the store says that it is this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from foliot.clock import Clock
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.store import Duty, Lease
from foliot.errors import FoliotError

ASK_EVERY: Duration = SECOND
RENEW_EVERY: Duration = 2 * SECOND

_log = logging.getLogger("foliot.watch")

Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""A loop that ends when the event is set; cancelled when the duty is lost."""


class LeaseStore(Protocol):
    """What is needed of a store."""

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None: ...

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]: ...

    async def release(self, leases: Sequence[Lease]) -> None: ...


class OnDuty:
    """Asks for the duty, does the work while it has it, and steps down at once when it has lost it.

    Two that believe to have it at the same time do no harm, because every write names what it expects; they would only
    do the same work twice.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        duty: Duty,
        *,
        owner: int,
        work: Work,
        lease_ttl: Duration = 5 * SECOND,
        every: Duration = ASK_EVERY,
        renew_every: Duration = RENEW_EVERY,
    ) -> None:
        """`every`: how often the lease is asked for. `renew_every`: how often it is renewed; at least twice in its
        length."""
        self._every = every
        self._renew_every = max(every, renew_every)
        self._store = store
        self._clock = clock
        self._duty = duty
        self._owner = owner
        self._work = work
        self._lease_ttl = lease_ttl
        self._lease: Lease | None = None
        self._held_until: Instant = 0
        self._working: asyncio.Task[None] | None = None
        self._failing = False

    @property
    def held(self) -> bool:
        """What this instance believes; the store knows better."""
        return self._lease is not None

    async def run_once(self, stop: asyncio.Event) -> None:
        """Takes or renews the lease; begins or ends the work. A clock that is fenced gives it up."""
        if self._clock.fenced:
            await self.release()
            return
        asked_at = self._clock.monotonic()
        try:
            self._lease = await self._ask()
        except Exception:
            # Perhaps it was renewed, perhaps not: it was ours up to when the lease that we know of ends.
            if self._lease is not None and asked_at >= self._held_until:
                self._lease = None
                await self._step_down()
            raise
        if self._lease is None:
            await self._step_down()
            return
        self._held_until = asked_at + self._lease_ttl
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work(stop))

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. An error of the store never ends the loop."""
        try:
            while not stop.is_set():
                try:
                    await self.run_once(stop)
                    self._failing = False
                except Exception:
                    if not self._failing:
                        _log.warning("leasing duty %s failed, retrying", self._name, exc_info=True)
                    self._failing = True
                await rest(self._clock, self._every if self._lease is None else self._renew_every, stop)
        finally:
            try:
                await self.release()
            except FoliotError as error:
                _log.warning("releasing duty %s failed, its lease will expire: %s", self._name, error)

    async def release(self) -> None:
        """Ends the work, and lets somebody else have the duty at once."""
        await self._step_down()
        lease, self._lease = self._lease, None
        if lease is not None:
            await self._store.release([lease])

    @property
    def _name(self) -> str:
        return self._duty.name.lower()

    async def _ask(self) -> Lease | None:
        if self._lease is None:
            return await self._store.take(self._duty, self._owner, self._lease_ttl)
        renewed = await self._store.renew([self._lease], self._lease_ttl, self._lease.high_water)
        if not renewed:
            _log.warning("duty %s is now held by another instance", self._name)
        return renewed[0] if renewed else None

    async def _step_down(self) -> None:
        working, self._working = self._working, None
        if working is None:
            return
        working.cancel()
        [ended] = await asyncio.gather(working, return_exceptions=True)
        if isinstance(ended, Exception):
            _log.error("duty %s failed", self._name, exc_info=ended)


async def repeat(
    look: Callable[[], Awaitable[object]], every: Duration, clock: Clock, stop: asyncio.Event, failing: str
) -> None:
    """Looks until `stop` is set. An error never ends the loop; of errors that follow one another the first is told."""
    told = False
    while not stop.is_set():
        try:
            await look()
            told = False
        except Exception:
            if not told:
                _log.warning("%s", failing, exc_info=True)
            told = True
        await rest(clock, every, stop)


async def rest(clock: Clock, length: Duration, stop: asyncio.Event) -> None:
    """Sleeps until the next beat of periodic work that is done `length` so often, or until `stop` is set."""
    if stop.is_set():
        return
    sleeping = asyncio.ensure_future(clock.beat(length))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        stopping.cancel()
