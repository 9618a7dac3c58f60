"""The only place that knows which concrete parts go together."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from foliot.clock import Clock, DisciplinedClock, SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.alerts import AlertSettings, Rules, Severity
from foliot.domain.instant import SECOND, Duration
from foliot.domain.redaction import redacted_text
from foliot.domain.signals import Tracer, wants_traces
from foliot.domain.store import Duty, JobCard, Schema, Store
from foliot.errors import FoliotError, InvalidInput, StoreError
from foliot.logs import guard
from foliot.store.sqlite import SqliteStore
from foliot.watch.alarm import Alarm
from foliot.watch.backfilling import Backfiller
from foliot.watch.channels import Hook, channels
from foliot.watch.clocks import ClockWatch
from foliot.watch.duty import OnDuty, Work
from foliot.watch.heralding import Channel, Herald, Message
from foliot.watch.journal import Journal, as_text
from foliot.watch.pinging import Pinger
from foliot.watch.reaper import Reaper
from foliot.watch.retention import Retention
from foliot.watch.sealing import Sealer
from foliot.watch.sentry import Sentry
from foliot.watch.telling import Telling as Telling
from foliot.work.blockade import RECYCLED as RECYCLED
from foliot.work.blockade import EndProcess
from foliot.work.handler import Handler
from foliot.work.pings import Ping
from foliot.work.room import HEADROOM as HEADROOM
from foliot.work.room import RESERVE as RESERVE
from foliot.work.room import checked_reserved as checked_reserved
from foliot.work.worker import Worker

DEFAULT_STORE = "sqlite:///foliot.db"
BEAT_EVERY: Duration = 5 * SECOND
"""How often a scheduler says that it lives, also while another one owns the shard."""
RECYCLE_AFTER: Duration = 10 * SECOND
"""How long a handler that was told to stop, and shares its worker's process, may go on before that is given up."""

PING_EVERY: Duration = 60 * SECOND
"""How often an outside watcher hears that all is well."""
TEST_MESSAGE = Message("[foliot] a test", "This is a test of how alerts are told.", Severity.NOTICE, False, ())

_log = logging.getLogger("foliot")
guard()


def make_store(url: str | None, clock: Clock | None = None, keys: Sequence[str] = ()) -> Store:
    """The store behind a URL; it is not open yet. Without one, FOLIOT_STORE says which, and else `foliot.db` here. With
    keys, what it is given is stored locked."""
    return with_keys(_plain_store(url, clock), keys)


def with_keys(store: Store, keys: Sequence[str]) -> Store:
    if not keys:
        return store
    from foliot.store.keyring import Keyring  # its library is an extra, which not everybody has
    from foliot.store.locked import locked_store

    return locked_store(store, Keyring(keys))


def encryption_keys(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """As an app states them; without that, as FOLIOT_ENCRYPTION_KEYS does, with commas between."""
    if given is None:
        given = os.environ.get("FOLIOT_ENCRYPTION_KEYS", "")
    keys = given.split(",") if isinstance(given, str) else list(given)
    return tuple(key.strip() if isinstance(key, str) else key for key in keys if key != "")


def new_key() -> str:
    from foliot.store import keyring

    return keyring.new_key()


def _plain_store(url: str | None, clock: Clock | None) -> Store:
    url = url or os.environ.get("FOLIOT_STORE") or DEFAULT_STORE
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and separator and path.startswith("/") and len(path) > 1:
        file, _, words = path[1:].partition("?")
        if words not in ("", "migrate=auto", "migrate=never"):
            raise InvalidInput(f"?{words} in the store's URL: a file may have migrate=auto or migrate=never")
        return SqliteStore(file, clock, migrates=words != "migrate=never")
    if scheme in ("postgresql", "postgres") and separator:
        return _server_store(url, clock)
    raise InvalidInput(
        f"{_without_password(url)!r:.80} is not a store; write sqlite:///foliot.db for a file here, "
        f"sqlite:////var/lib/foliot.db for one anywhere, sqlite:///:memory: for tests, or "
        f"postgresql://user@host/database"
    )


def _server_store(url: str, clock: Clock | None) -> Store:
    try:
        from foliot.store.postgres import PostgresStore  # its driver is an extra, which not everybody has
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise InvalidInput(
            f"{_without_password(url)!r:.80}: the driver for PostgreSQL is not installed here; "
            f'pip install "foliot[postgres]"'
        ) from None
    return PostgresStore(url, clock)


def _without_password(url: str) -> str:
    return re.sub(r"(://[^/@]*?):[^/]*@", r"\1:***@", url)


async def open_store(store: Store) -> None:
    """Opens it; a file that cannot be made or reached is a StoreError that says which."""
    try:
        await store.open()
    except OSError as error:
        raise StoreError(
            f"the store {store.name} cannot be opened: {error.strerror or error}; "
            f"give a path in a folder that exists or can be made, and that this user may write to"
        ) from error


async def migrate_store(store: Store) -> Schema:
    """Brings its tables to this release; answers how they stood before."""
    try:
        return await store.migrate()
    except OSError as error:
        raise StoreError(f"{store.name} cannot be made: {error.strerror or error}") from error


def make_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    clock: Clock | None = None,
    queues: Sequence[str] = ("default",),
    labels: Sequence[str] = (),
    slots: int = 100,
    beat_store: Store | None = None,
    version: str = "",
    release: str = "",
    isolates: bool = False,
    reserve: float = RESERVE,
    headroom: float = HEADROOM,
    reserved: Mapping[str, int] | None = None,
    recycle_after: Duration | None = None,
    end_process: EndProcess | None = None,
    telling: Telling | None = None,
    ping: Ping | None = None,
) -> Worker:
    return Worker(
        store,
        clock or SystemClock(),
        handlers,
        queues=queues,
        labels=labels,
        slots=slots,
        beat_store=beat_store,
        version=version,
        release=release,
        isolates=isolates,
        reserve=reserve,
        headroom=headroom,
        reserved=reserved,
        recycle_after=recycle_after,
        end_process=end_process,
        recorder=None if telling is None else telling.journal,
        tracer=None if telling is None else telling.tracer,
        ping=ping,
    )


def make_dispatcher(
    store: Store, owner: int, *, clock: Clock | None = None, telling: Telling | None = None
) -> Dispatcher:
    return Dispatcher(store, clock or SystemClock(), owner=owner, tracer=None if telling is None else telling.tracer)


def make_reaper(
    store: Store, *, clock: Clock | None = None, telling: Telling | None = None, ping: Ping | None = None
) -> Reaper:
    return Reaper(store, clock or SystemClock(), random.random, None if telling is None else telling.journal, ping)


def make_alarm(
    store: Store,
    *,
    clock: Clock | None = None,
    rules: Rules | None = None,
    healthy: Callable[[], None] | None = None,
) -> Alarm:
    return Alarm(store, clock or SystemClock(), rules, healthy)


def make_herald(store: Store, channels: Sequence[Channel], *, clock: Clock | None = None) -> Herald:
    return Herald(store, clock or SystemClock(), channels)


def make_channels(alerts: AlertSettings, hooks: Sequence[Hook] = ()) -> list[Channel]:
    """The ways to people. InvalidInput when an address is none, or what it needs is not installed."""
    return channels(alerts.urls, hooks)


async def send_test(alerts: AlertSettings) -> dict[str, str | None]:
    """Sends a message through each address; answers by its name, without secrets, what went wrong."""
    told: dict[str, str | None] = {}
    for channel in make_channels(alerts):
        try:
            await asyncio.wait_for(channel.send(TEST_MESSAGE), 30)
            told[channel.name] = None
        except Exception as error:
            told[channel.name] = str(error) or type(error).__name__
    return told


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


def make_sentry(store: Store, herald: Herald, *, clock: Clock | None = None) -> Sentry:
    return Sentry(store, clock or SystemClock(), herald)


def make_backfiller(store: Store, *, clock: Clock | None = None) -> Backfiller:
    return Backfiller(store, clock or SystemClock())


def make_sealer(store: Store, *, clock: Clock | None = None, anchor: str | None = None) -> Sealer:
    """`anchor`: the file that the head of the audit's chain is written to, now and then."""
    return Sealer(store, clock or SystemClock(), None if anchor is None else partial(append_line, anchor))


def append_line(file: str, line: str) -> None:
    """Durably, and whole or not at all, also where others add to the same file."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, f"{line}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def make_tracer(provider: Any = None) -> Tracer | None:
    """Who traces with a provider of the app's; without one, by the environment, or nobody. That traces cannot be made
    is no reason not to work."""
    if provider is None and not wants_traces(os.environ):
        return None
    try:
        from foliot.watch import tracing  # OpenTelemetry is an extra, which not everybody has
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        if provider is not None:
            raise InvalidInput('tracer_provider needs OpenTelemetry; pip install "foliot[otel]"') from None
        _log.warning('nothing is traced: OpenTelemetry is not installed here; pip install "foliot[otel]"')
        return None
    if provider is not None:
        return tracing.tracer_of(provider)
    try:
        return tracing.tracer_from_environment()
    except Exception as error:  # whatever an exporter makes of its variables
        _log.warning("nothing is traced: %s", error)
        return None


def make_telling(
    role: str,
    *,
    version: str = "",
    write: Callable[[bytes], object] | None = None,
    is_text: bool = False,
    level: int = logging.INFO,
    tracer: Tracer | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
) -> Telling:
    """What a process tells. `write`: where the lines of its log go; None: there is none."""
    journal = None
    if write is not None:
        style = as_text if is_text else None
        journal = Journal(write, style=style, level=level, clean_text=redacted_text, clock=SystemClock().now)
    return Telling(role, version, journal=journal, tracer=tracer, port=port, host=host)


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
) -> None:
    """A scheduler process, from its registration until `stop` is set and its shards and duties are given up.

    One that the store has declared dead meanwhile (its host slept, say) enters anew: nobody counts on the old number.
    """
    clock = _disciplined(store, clock or SystemClock())
    chosen, pinger = alerts or AlertSettings(), Pinger()
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
            watch = [reaper.run, *_watching(beside or store, clock, chosen, channels, pinger)]
            await _schedule(store, instance.number, dispatcher, clock, stop, anchor, watch)
    finally:
        await asyncio.to_thread(pinger.close)
        if beside is not None:
            await beside.close()


def _watching(
    store: Store, clock: Clock, alerts: AlertSettings, channels: Sequence[Channel], pinger: Pinger
) -> list[Work]:
    """What whoever has the watch does beside the reaper: each loop for itself, so that none waits for another."""
    healthy = None if alerts.ping is None else _Heartbeat(pinger, alerts.ping, clock)
    return [
        make_alarm(store, clock=clock, rules=alerts.rules, healthy=healthy).run,
        make_herald(store, channels, clock=clock).run,
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
        async with _measuring(store, clock, "scheduler", lambda: number):
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


def _disciplined(store: Store, clock: Clock) -> Clock:
    return DisciplinedClock(clock) if store.has_own_clock else clock


@asynccontextmanager
async def _measuring(store: Store, clock: Clock, role: str, instance: Callable[[], int | None]) -> AsyncIterator[None]:
    """While it lasts, the clock is measured against the store's; the first time before anything else is done."""
    if not isinstance(clock, DisciplinedClock):
        yield
        return
    watch = ClockWatch(store, clock, role, platform.node(), instance)
    await watch.try_once()
    measuring = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        measuring.cancel()


async def _beat(store: Store, number: int, clock: Clock, over: asyncio.Event) -> None:
    while not over.is_set():
        await clock.sleep(BEAT_EVERY)
        try:
            if not (await store.beat(number, [])).known:
                _log.warning("scheduler %d was declared dead; it enters anew", number)
                over.set()
        except FoliotError as error:  # the next one is not far
            _log.warning("the scheduler's heartbeat failed: %s", error)
        except Exception:  # a bug, here or in the store; without a heartbeat a scheduler that works would seem dead
            _log.exception("the scheduler's heartbeat failed")


class Left(NamedTuple):
    """How a worker left."""

    executing: list[str]
    """Runs whose threads outlived everything: only `os._exit` ends them."""
    recycled: bool
    """It left because of such a handler, and another process is to take its place at once."""
    drained: bool = False
    """An operator wanted it to leave: nobody is to take its place."""

    @property
    def exit_code(self) -> int:
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
    telling: Telling | None = None,
    alerts: AlertSettings | None = None,
    hooks: Sequence[Hook] = (),
) -> Left:
    """A worker process, from its registration until `stop` is set and it is drained.

    It also leaves by itself, in order, when a handler goes on that cannot be ended alone. When that handler blocks the
    event loop there is no order to keep to: `end_process` is called, if this process is nothing else. The heartbeat
    has a handle of its own, because one long request must not keep the worker from saying that it lives.
    """
    beat_store = store.again()
    if beat_store is not None:
        await open_store(beat_store)
    disciplined = _disciplined(store, clock or SystemClock())
    pinger = Pinger()
    sentry = make_sentry(store, make_herald(store, make_channels(alerts or AlertSettings(), hooks), clock=disciplined))
    worker = make_worker(
        store,
        handlers,
        clock=disciplined,
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
    try:
        if telling is not None:
            telling.worker(disciplined, worker)
        await worker.start()
        async with (
            _measuring(store, disciplined, "worker", lambda: worker.number),
            _standing_guard(store, worker, sentry),
        ):
            working = asyncio.create_task(worker.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if working.done():
                await working  # it ends by itself to be recycled, or when it cannot go on, and then this raises
            drained = worker.has_left and not stop.is_set()
            executing = await worker.drain(grace)
            await working
            return Left(executing, worker.recycling and not stop.is_set(), drained)
    finally:
        await asyncio.to_thread(pinger.close)
        if beat_store is not None:
            await worker.heartbeat.stop()
            await beat_store.close()


@asynccontextmanager
async def _standing_guard(store: Store, worker: Worker, sentry: Sentry) -> AsyncIterator[None]:
    """While it lasts, this worker may be the one that notices when nobody watches."""
    assert worker.number is not None
    over = asyncio.Event()
    timing = {"lease_ttl": 60 * SECOND, "every": 20 * SECOND}
    duty = OnDuty(store, worker.clock, Duty.SENTRY, owner=worker.number, work=sentry.run, **timing)
    guarding = asyncio.create_task(duty.run(over))
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(guarding, return_exceptions=True)
