"""Parts: each made of the concrete ones that it needs."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from foliot.clock import Clock, SystemClock
from foliot.dispatch.dispatcher import Dispatcher
from foliot.domain.alerts import AlertSettings, Rules, Severity
from foliot.domain.instant import Duration
from foliot.domain.redaction import redacted_text
from foliot.domain.signals import Tracer, wants_traces
from foliot.domain.store import Store
from foliot.errors import InvalidInput
from foliot.net import SETTING, AddressGuard, networks
from foliot.watch.alarm import Alarm
from foliot.watch.backfilling import Backfiller
from foliot.watch.channels import Hook, channels
from foliot.watch.heralding import Channel, Herald, Message
from foliot.watch.journal import Journal, as_text
from foliot.watch.reaper import Reaper
from foliot.watch.sealing import Sealer
from foliot.watch.sentry import Sentry
from foliot.watch.telling import Telling
from foliot.work.blockade import EndProcess
from foliot.work.handler import Handler
from foliot.work.pings import Ping
from foliot.work.room import HEADROOM, RESERVE
from foliot.work.worker import Worker

_log = logging.getLogger("foliot")

TEST_MESSAGE = Message("[foliot] test message", "This is a test of alert notifications.", Severity.NOTICE, False, ())


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


def make_herald(
    store: Store, channels: Sequence[Channel], *, clock: Clock | None = None, public_url: str | None = None
) -> Herald:
    """`public_url`: of the dashboard, which messages link to."""
    return Herald(store, clock or SystemClock(), channels, public_url=public_url)


def make_channels(alerts: AlertSettings, hooks: Sequence[Hook] = ()) -> list[Channel]:
    """The ways to people. InvalidInput when an address is none, or what it needs is not installed."""
    return channels(alerts.urls, hooks)


async def send_test(alerts: AlertSettings) -> dict[str, str | None]:
    """Sends a message through each address; answers by its name, without secrets, what went wrong."""
    told: dict[str, str | None] = {}
    link = "" if alerts.public_url is None else f"\nlink: {alerts.public_url.rstrip('/')}/alerts"
    for channel in make_channels(alerts):
        try:
            await asyncio.wait_for(channel.send(TEST_MESSAGE._replace(body=TEST_MESSAGE.body + link)), 30)
            told[channel.name] = None
        except Exception as error:
            told[channel.name] = str(error) or type(error).__name__
    return told


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


def make_guard() -> AddressGuard:
    """A guard that allows the networks of FOLIOT_PRIVATE_NETWORKS beside public addresses."""
    return AddressGuard(networks(os.environ.get(SETTING, "")))


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
        _log.warning('tracing disabled, OpenTelemetry is not installed; pip install "foliot[otel]"')
        return None
    if provider is not None:
        return tracing.tracer_of(provider)
    try:
        return tracing.tracer_from_environment()
    except Exception as error:  # whatever an exporter makes of its variables
        _log.warning("tracing disabled: %s", error)
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
