"""`foliot scheduler`, `foliot worker` and `foliot web`: one process each, until a signal stops it.

The first SIGTERM or SIGINT stops it gracefully, within the grace; the second ends it at once. A supervised process
ends when its supervisor is gone. None of this depends on the event loop, which a handler may block.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from foliot import __version__, bootstrap
from foliot.app import Foliot
from foliot.cli import logs, opening
from foliot.cli.options import (
    AppOption,
    GraceOption,
    HeadroomOption,
    HostOption,
    LabelsOption,
    LogFormatOption,
    LogLevelOption,
    MetricsHostOption,
    MetricsPortOption,
    ProxiesOption,
    PublicUrlOption,
    QueuesOption,
    RecycleOption,
    ReservedOption,
    ReserveOption,
    SlotsOption,
    StoreOption,
    SupervisedOption,
    WrongUsage,
    read_duration,
    read_reserved,
    settings_of,
)
from foliot.cli.output import complain
from foliot.domain.identity import checked_name
from foliot.domain.instant import SECOND, Duration, spell
from foliot.domain.labels import checked_labels
from foliot.domain.schedule import Applied
from foliot.domain.store import DEFAULT_QUEUE
from foliot.errors import FoliotError
from foliot.net import networks

T = TypeVar("T")

GRACE = "10s"
RECYCLE_AFTER = spell(bootstrap.RECYCLE_AFTER)
SLOTS = 100
METRICS_HOST = "127.0.0.1"
HOST, PORT, MOST_BODY = "127.0.0.1", 8300, 1 << 20
"""Defaults of `foliot web`; `foliot.web.settings` is imported only by the process that serves."""
SETTLE_EVERY = 60.0
"""Seconds between two looks at whether the store's schedules are those of the app."""
LAST_ACT: Duration = 2 * SECOND
"""How long a process whose event loop is blocked may take to record the attempts that end with it."""
AFTER_GRACE: Duration = bootstrap.LONGEST_END + LAST_ACT + SECOND
"""How much longer than its grace a process may take to end in order. The last act has the end of that time."""

_log = logging.getLogger("foliot")


def scheduler(
    app: AppOption = None,
    store: StoreOption = None,
    apply: Annotated[
        bool, typer.Option("--apply/--no-apply", help="Apply the schedules that the app declares.")
    ] = True,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = METRICS_HOST,
    supervised_by: SupervisedOption = None,
) -> None:
    """Run a scheduler. It fires due runs and recovers runs of lost workers. SIGTERM stops it gracefully."""
    settings = settings_of(app, store)
    log = logs.chosen(log_format, log_level, settings, supervised=supervised_by is not None)
    loaded = settings.load()
    _begin("scheduler", loaded, log, supervised_by)
    telling = _telling("scheduler", loaded, log, metrics_port, metrics_host)
    cards = [job.handler.card() for job in loaded.jobs.values()]

    async def run(stop: asyncio.Event) -> None:
        opened = await opening.opened(loaded, stop)
        applies = apply and bool(loaded.jobs)
        outdated = await _apply(loaded) if applies else []
        settling = asyncio.create_task(_settle(loaded, outdated)) if applies else None
        try:
            await bootstrap.run_scheduler(
                opened,
                stop,
                cards=cards,
                version=__version__,
                release=loaded.release,
                anchor=settings.audit_anchor,
                telling=telling,
                alerts=settings.alerts,
                hooks=loaded.alert_hooks,
                guard=loaded.guard,
            )
        finally:
            if settling is not None:
                settling.cancel()

    _until_told(loaded, run, AFTER_GRACE, supervised_by, telling)


def _telling(role: str, app: Foliot, log: logs.Log, port: int | None, host: str) -> bootstrap.Telling:
    return bootstrap.make_telling(
        role,
        version=__version__,
        write=logs.write if log.tells_runs else None,
        is_text=log.format == "text",
        level=log.level,
        tracer=app.tracer,
        port=port,
        host=host,
    )


async def _apply(loaded: Foliot) -> list[str]:
    """Answers which were left to a newer release."""
    applied = await loaded.apply_async()
    for name, source in applied.refused.items():
        _log.warning("schedule %s not applied: a schedule of this name belongs to source %s", name, source)
    if applied.vanished:
        _log.warning("schedules in the store that the app no longer declares: %s", ", ".join(applied.vanished))
    for schedule, required in applied.lacking.items():
        _log.warning(
            "schedule %s requires schedule %s, which does not exist: its ticks wait until their cutoff",
            schedule,
            required,
        )
    return _tell_applied(applied, [])


async def _settle(loaded: Foliot, outdated: list[str]) -> None:
    """Compares the schedules every minute: after a rollback, a process of the older release may still be running."""
    while True:
        await asyncio.sleep(SETTLE_EVERY)
        try:
            outdated = _tell_applied(await loaded.settle_async(), outdated)
        except FoliotError as error:  # the next round is soon
            _log.warning("comparing schedules with the app failed, retrying in %.0f s: %s", SETTLE_EVERY, error)
        except Exception:  # a bug, here or in the store; stale schedules are no reason to stop firing
            _log.exception("comparing schedules with the app failed, retrying in %.0f s", SETTLE_EVERY)


def _tell_applied(applied: Applied, told: list[str]) -> list[str]:
    for verb, names in (("created", applied.created), ("changed", applied.changed)):
        if names:
            _log.info("schedules %s: %s", verb, ", ".join(names))
    if fresh := sorted(set(applied.outdated) - set(told)):
        _log.warning(
            "schedules not applied, because a newer release that is running declares them differently: %s",
            ", ".join(fresh),
        )
    return applied.outdated


def worker(
    app: AppOption = None,
    store: StoreOption = None,
    queues: QueuesOption = None,
    label: LabelsOption = None,
    slots: SlotsOption = SLOTS,
    reserve: ReserveOption = bootstrap.RESERVE,
    headroom: HeadroomOption = bootstrap.HEADROOM,
    reserve_slots: ReservedOption = None,
    grace: GraceOption = GRACE,
    recycle_after: RecycleOption = RECYCLE_AFTER,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = METRICS_HOST,
    supervised_by: SupervisedOption = None,
) -> None:
    """Run a worker, which executes the app's jobs. SIGTERM stops it gracefully, within the grace.

    Exit 75 means: restart it, because a handler could not be stopped.
    """
    settings = settings_of(app, store)
    if settings.app is None:
        raise WrongUsage("a worker needs the app with its jobs: give --app module:app, --app app.py, or FOLIOT_APP")
    length = read_duration(grace, "--grace")
    patience = read_duration(recycle_after, "--recycle-after")
    log = logs.chosen(log_format, log_level, settings, supervised=supervised_by is not None)
    loaded = settings.load()
    served, labels = queues_of(loaded, queues), checked_labels(label or ())
    reserved = bootstrap.checked_reserved(read_reserved(reserve_slots), served, slots)
    _begin("worker", loaded, log, supervised_by)
    telling = _telling("worker", loaded, log, metrics_port, metrics_host)
    handlers = {name: job.handler for name, job in loaded.jobs.items()}

    async def run(stop: _Stop) -> bootstrap.Left:
        opened = await opening.opened(loaded, stop)
        left = await bootstrap.run_worker(
            opened,
            handlers,
            stop,
            grace=length,
            queues=served,
            labels=labels,
            slots=slots,
            reserve=reserve,
            headroom=headroom,
            reserved=reserved,
            version=__version__,
            release=loaded.release,
            recycle_after=patience,
            end_process=lambda code: os._exit(_exit_code(code, supervised_by)),
            at_last=stop.keep,
            telling=telling,
            alerts=settings.alerts,
            hooks=loaded.alert_hooks,
            guard=loaded.guard,
        )
        if left.executing:
            complain(f"interrupted {', '.join(left.executing)}: their handlers did not return within the grace")
            telling.close()
            sys.stdout.flush()
            # At once: the event loop would wait for those tasks, and the interpreter for those threads.
            os._exit(_exit_code(left.exit_code, supervised_by))
        return left

    left = _until_told(loaded, run, length + AFTER_GRACE, supervised_by, telling)
    raise typer.Exit(_exit_code(left.exit_code, supervised_by))


def _exit_code(code: int, supervised_by: int | None) -> int:
    """The exit code for our own supervisor, which knows 77; any other supervisor would restart a drained worker."""
    return 0 if code == bootstrap.DRAINED and supervised_by is None else code


def web(
    app: AppOption = None,
    store: StoreOption = None,
    host: HostOption = HOST,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 picks a free port.", metavar="PORT")
    ] = PORT,
    public_url: PublicUrlOption = None,
    trusted_proxies: ProxiesOption = None,
    max_body: Annotated[
        int,
        typer.Option(
            "--max-body", min=1_024, max=1 << 30, help="Largest accepted request body, in bytes.", metavar="BYTES"
        ),
    ] = MOST_BODY,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    grace: GraceOption = GRACE,
    supervised_by: SupervisedOption = None,
) -> None:
    """Serve the HTTP API and the dashboard. SIGTERM stops it gracefully."""
    # Imported here, because other commands should not load the framework.
    from foliot.web.server import serve
    from foliot.web.settings import WebSettings

    length = read_duration(grace, "--grace")
    trusted = networks(trusted_proxies or "", "--trusted-proxies")
    settings = settings_of(app, store)
    public = public_url or settings.public_url
    wanted = WebSettings(host, port, most_body=max_body, public_url=public, trusted_proxies=trusted)
    log = logs.chosen(log_format, log_level, settings, supervised=supervised_by is not None)
    loaded = settings.load() if supervised_by is not None else settings.existing()
    _begin("web", loaded, log, supervised_by)

    async def run(stop: asyncio.Event) -> None:
        await opening.opened(loaded, stop)
        await serve(loaded, wanted, stop, grace=length, ready=lambda address: _log.info("serving %s", address))

    _until_told(loaded, run, length + AFTER_GRACE, supervised_by)


def queues_of(app: Foliot, given: str | None) -> list[str]:
    """The given queues; else every queue that the app's jobs and schedules name."""
    if given is not None:
        named = [name.strip() for name in given.split(",") if name.strip()]
        if not named:
            raise WrongUsage(f"--queues {given!r:.40}: give at least one name")
        return [checked_name(name, "queue") for name in named]
    named_by_jobs = {job.handler.queue for job in app.jobs.values()}
    return sorted({DEFAULT_QUEUE} | named_by_jobs | app.declared_queues)


def _begin(role: str, app: Foliot, log: logs.Log, supervised_by: int | None) -> None:
    # Handlers in threads hold the interpreter for 5 ms at a time by default: more than a run may be late.
    sys.setswitchinterval(0.0003)
    # What is loaded by now stays: a collector that walks all of it after every 700 claims costs a fifth of the rate.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    logs.begin(log, role, supervised=supervised_by is not None)
    if supervised_by is None:
        where = app.store.name
        _log.info("started %s of foliot %s on %s; SIGTERM stops it gracefully", role, __version__, where)


def _until_told(
    app: Foliot,
    run: Callable[[_Stop], Awaitable[T]],
    longest: Duration,
    supervised_by: int | None,
    telling: bootstrap.Telling | None = None,
) -> T:
    """Runs until a signal came or the supervisor is gone, and for `longest` after that at the most."""

    async def begin() -> T:
        stop = _Stop()
        ending = _Ending(asyncio.get_running_loop(), stop, longest)
        signal.signal(signal.SIGTERM, ending.on_signal)
        signal.signal(signal.SIGINT, ending.on_signal)
        if supervised_by is not None:
            threading.Thread(target=ending.watch_parent, args=(supervised_by,), daemon=True).start()
        try:
            return await run(stop)
        finally:
            await app.close_async()

    try:
        return asyncio.run(begin())
    finally:
        if telling is not None:
            telling.close()


class _Stop(asyncio.Event):
    """Set when the process shall end. Holds the last act of a process that cannot stop gracefully."""

    def __init__(self) -> None:
        super().__init__()
        self.last_act: Callable[[Duration], object] | None = None

    def keep(self, last_act: Callable[[Duration], object]) -> None:
        self.last_act = last_act


class _Ending:
    """The shutdown of this process: by signal, or when its supervisor is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: _Stop, longest: Duration) -> None:
        self._loop = loop
        self._stop = stop
        self._longest = longest
        self._told = False

    def on_signal(self, number: int, frame: object) -> None:
        if self._told:
            os._exit(128 + number)
        self._end()

    def watch_parent(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(1)
        if not self._told:
            self._end()

    def _end(self) -> None:
        self._told = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        threading.Thread(target=self._at_last, daemon=True).start()

    def _at_last(self) -> None:
        """A handler that blocks the event loop must not keep the process for ever."""
        end = time.monotonic() + self._longest / SECOND
        time.sleep(max(self._longest - LAST_ACT, 0) / SECOND)
        if self._stop.last_act is not None:
            self._stop.last_act(LAST_ACT)
        time.sleep(max(end - time.monotonic(), 0))
        complain("graceful shutdown timed out: the attempts that were running are interrupted")
        os._exit(1)
