"""A worker process, from its registration until it is drained."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from foliot.bootstrap.clocks import disciplined, measuring
from foliot.bootstrap.parts import make_channels, make_herald, make_sentry, make_worker
from foliot.bootstrap.stores import open_store
from foliot.clock import Clock, SystemClock
from foliot.domain.alerts import AlertSettings
from foliot.domain.instant import SECOND, Duration
from foliot.domain.store import Duty, Store, Wish
from foliot.net import AddressGuard
from foliot.watch.channels import Hook
from foliot.watch.duty import OnDuty
from foliot.watch.pinging import Pinger
from foliot.watch.sentry import Sentry
from foliot.watch.telling import Telling
from foliot.work.blockade import DRAINED, RECYCLED, EndProcess
from foliot.work.handler import Handler
from foliot.work.room import HEADROOM, RESERVE
from foliot.work.worker import Worker

RECYCLE_AFTER: Duration = 10 * SECOND
"""How long a handler that was told to stop, and shares its worker's process, may go on before that is given up."""


class Left(NamedTuple):
    """How a worker left."""

    executing: list[str]
    """Runs whose handlers go on: only `os._exit` ends them. They are recorded as interrupted."""
    recycled: bool
    """It left because of such a handler, and another process is to take its place at once, unless it was `drained`."""
    drained: bool = False
    """An operator wanted it to leave: nobody is to take its place."""

    @property
    def exit_code(self) -> int:
        if self.drained:
            return DRAINED
        return RECYCLED if self.recycled else 0


async def run_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    stop: asyncio.Event,
    *,
    grace: Duration,
    queues: Sequence[str],
    slots: int,
    labels: Sequence[str] = (),
    version: str = "",
    release: str = "",
    clock: Clock | None = None,
    reserve: float = RESERVE,
    headroom: float = HEADROOM,
    reserved: Mapping[str, int] | None = None,
    recycle_after: Duration = RECYCLE_AFTER,
    end_process: EndProcess | None = None,
    at_last: Callable[[Callable[[Duration], object]], object] | None = None,
    telling: Telling | None = None,
    alerts: AlertSettings | None = None,
    hooks: Sequence[Hook] = (),
    guard: AddressGuard | None = None,
) -> Left:
    """A worker process, from its registration until `stop` is set and it is drained.

    It also leaves by itself, in order, when a handler goes on that cannot be ended alone; without a grace when an
    operator forced its cancellation. When that handler blocks the
    event loop there is no order to keep to: `end_process` is called, if this process is nothing else. The heartbeat
    has a handle of its own, because one long request must not keep the worker from saying that it lives.

    `at_last` is given the last act of a process that is about to end although its event loop is blocked: it records
    the running attempts as interrupted, and takes at most the time that it is given. When handlers go on after the
    drain, `end_process` is called before their leases end.
    """
    beat_store = store.again()
    if beat_store is not None:
        await open_store(beat_store)
    own = disciplined(store, clock or SystemClock())
    pinger = Pinger(guard or AddressGuard())
    chosen = alerts or AlertSettings()
    herald = make_herald(store, make_channels(chosen, hooks), clock=own, public_url=chosen.public_url)
    sentry = make_sentry(store, herald)
    worker = make_worker(
        store,
        handlers,
        clock=own,
        queues=queues,
        labels=labels,
        slots=slots,
        beat_store=beat_store,
        version=version,
        release=release,
        isolates=True,
        reserve=reserve,
        headroom=headroom,
        reserved=reserved,
        recycle_after=recycle_after,
        end_process=end_process,
        telling=telling,
        ping=pinger.ping,
    )
    code = 1
    try:
        if at_last is not None:
            at_last(worker.heartbeat.record_interrupted)
        if telling is not None:
            telling.worker(own, worker)
        await worker.start()
        async with (
            measuring(store, own, "worker", lambda: worker.number),
            _standing_guard(store, worker, sentry),
        ):
            working = asyncio.create_task(worker.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if working.done():
                await working  # it ends by itself to be recycled, or when it cannot go on, and then this raises
            # Also where a handler made it leave sooner: who is wanted away must not come back for that.
            drained = worker.wish is Wish.DRAIN and not stop.is_set()
            executing = await worker.drain(0 if worker.recycling_now else grace)
            await working
            left = Left(executing, worker.recycling and not stop.is_set(), drained)
            code = left.exit_code
            return left
    finally:
        if worker.running and end_process is not None:
            _end_within(worker.policies.shortest_lease // 3, end_process, code)
        await asyncio.to_thread(pinger.close)
        if beat_store is not None:
            await worker.heartbeat.stop()
            await beat_store.close()


def _end_within(length: Duration, end_process: EndProcess, code: int) -> None:
    """The heartbeat ends with this process, and then the leases: no handler may go on longer, whatever else has to be
    closed before."""
    timer = threading.Timer(length / SECOND, end_process, (code,))
    timer.daemon = True
    timer.start()


@asynccontextmanager
async def _standing_guard(store: Store, worker: Worker, sentry: Sentry) -> AsyncIterator[None]:
    """While it lasts, this worker may be the one that notices when nobody watches."""
    assert worker.number is not None
    timing = {"lease_ttl": 60 * SECOND, "every": 20 * SECOND}
    duty = OnDuty(store, worker.clock, Duty.SENTRY, owner=worker.number, work=sentry.run, **timing)
    guarding = asyncio.create_task(duty.run(asyncio.Event()))
    try:
        yield
    finally:
        guarding.cancel()  # it rests by the clock; a worker that leaves does not wait for that
        await asyncio.gather(guarding, return_exceptions=True)
