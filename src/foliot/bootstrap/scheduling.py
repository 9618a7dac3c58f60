"""A scheduler process: dispatcher, watch and duties, from its registration to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from foliot.bootstrap.clocks import disciplined, measuring
from foliot.bootstrap.parts import (
    make_alarm,
    make_backfiller,
    make_channels,
    make_dispatcher,
    make_herald,
    make_reaper,
    make_sealer,
)
from foliot.bootstrap.stores import open_store
from foliot.clock import Clock, SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.alerts import AlertSettings
from foliot.domain.instant import SECOND, Duration
from foliot.domain.store import Duty, JobCard, Store
from foliot.errors import FoliotError
from foliot.net import EVERYWHERE, AddressGuard
from foliot.watch.channels import Hook
from foliot.watch.duty import OnDuty, Work
from foliot.watch.heralding import Channel
from foliot.watch.pinging import Pinger
from foliot.watch.retention import Retention
from foliot.watch.telling import Telling

BEAT_EVERY: Duration = 5 * SECOND
"""How often a scheduler says that it lives, also while another one owns the shard."""
PING_EVERY: Duration = 60 * SECOND
"""How often an outside watcher hears that all is well."""

_log = logging.getLogger("foliot")


async def run_scheduler(
    store: Store,
    stop: asyncio.Event,
    *,
    cards: Sequence[JobCard] = (),
    version: str = "",
    release: str = "",
    clock: Clock | None = None,
    anchor: str | None = None,
    telling: Telling | None = None,
    alerts: AlertSettings | None = None,
    hooks: Sequence[Hook] = (),
    guard: AddressGuard | None = None,
) -> None:
    """A scheduler process, from its registration until `stop` is set and its shards and duties are given up.

    One that the store has declared dead meanwhile (its host slept, say) enters anew: nobody counts on the old number.
    """
    clock = disciplined(store, clock or SystemClock())
    chosen, pinger = alerts or AlertSettings(), Pinger(guard or AddressGuard())
    # Its URL is a setting of this process, so its address may be private. It has a pinger of its own, so that pings to
    # other hosts do not delay it: the outside watcher raises an alarm when it does not come.
    alive = Pinger(EVERYWHERE)
    channels = make_channels(chosen, hooks)
    # A file is read by one reader at a time: whoever looks at everything has another one than whoever fires.
    beside = store.again() if store.file is not None else None
    if beside is not None:
        await open_store(beside)
    try:
        while not stop.is_set():
            instance = await store.register(
                "scheduler", version=version, queues=(), slots=0, jobs=cards, release=release
            )
            dispatcher = make_dispatcher(store, instance.number, clock=clock, telling=telling)
            reaper = make_reaper(store, clock=clock, telling=telling, ping=pinger.ping)
            if telling is not None:
                telling.scheduler(clock, dispatcher, reaper)
            watch = [reaper.run, *_watching(beside or store, clock, chosen, channels, alive)]
            await _schedule(store, instance.number, dispatcher, clock, stop, anchor, watch)
    finally:
        await asyncio.gather(asyncio.to_thread(pinger.close), asyncio.to_thread(alive.close))
        if beside is not None:
            await beside.close()


def _watching(
    store: Store, clock: Clock, alerts: AlertSettings, channels: Sequence[Channel], pinger: Pinger
) -> list[Work]:
    """What whoever has the watch does beside the reaper: each loop for itself, so that none waits for another."""
    healthy = None if alerts.ping is None else _Heartbeat(pinger, alerts.ping, clock)
    return [
        make_alarm(store, clock=clock, rules=alerts.rules, healthy=healthy).run,
        make_herald(store, channels, clock=clock, public_url=alerts.public_url).run,
    ]


async def _schedule(
    store: Store,
    number: int,
    dispatcher: Dispatcher,
    clock: Clock,
    stop: asyncio.Event,
    anchor: str | None,
    watch: Sequence[Work],
) -> None:
    """Under one number, until `stop` is set or the store does not know the number any more."""
    over = asyncio.Event()
    watching = OnDuty(store, clock, Duty.WATCH, owner=number, work=partial(_all_of, watch))
    keeping = (Retention(store, clock).run, make_sealer(store, clock=clock, anchor=anchor).run)
    tidying = OnDuty(store, clock, Duty.RETENTION, owner=number, work=partial(_all_of, keeping))
    filling = OnDuty(store, clock, Duty.BACKFILL, owner=number, work=make_backfiller(store, clock=clock).run)
    beating = asyncio.create_task(_beat(store, number, clock, over))
    stopping = asyncio.create_task(_passed_on(stop, over))
    try:
        async with measuring(store, clock, "scheduler", lambda: number):
            await asyncio.gather(dispatcher.run(over), watching.run(over), tidying.run(over), filling.run(over))
    finally:
        beating.cancel()
        stopping.cancel()
        await dispatcher.release()
        await store.retire(number)


async def _all_of(works: Sequence[Work], stop: asyncio.Event) -> None:
    await asyncio.gather(*(work(stop) for work in works))


async def _passed_on(stop: asyncio.Event, over: asyncio.Event) -> None:
    await stop.wait()
    over.set()


async def _beat(store: Store, number: int, clock: Clock, over: asyncio.Event) -> None:
    while not over.is_set():
        await clock.beat(BEAT_EVERY)
        try:
            if not (await store.beat(number, [])).known:
                _log.warning("scheduler %d was marked dead, registering again", number)
                over.set()
        except FoliotError as error:  # the next one is not far
            _log.warning("scheduler heartbeat failed, retrying: %s", error)
        except Exception:  # a bug, here or in the store; without a heartbeat a scheduler that works would seem dead
            _log.exception("scheduler heartbeat failed, retrying")


class _Heartbeat:
    """Pings the outside watcher once a minute, while looks are concluded."""

    def __init__(self, pinger: Pinger, url: str, clock: Clock) -> None:
        self._pinger, self._url, self._clock = pinger, url, clock
        self._pinged_at: int | None = None

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if self._pinged_at is None or now - self._pinged_at >= PING_EVERY:
            self._pinged_at = now
            self._pinger.ping(self._url)
