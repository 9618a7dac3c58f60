"""`foliot up`: scheduler, worker and web as child processes, and their live activity."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.text import Text

from foliot import __version__, bootstrap
from foliot.app import Foliot
from foliot.cli import account, logs, opening
from foliot.cli.account import Account, Line
from foliot.cli.follow import Follower
from foliot.cli.options import (
    AppOption,
    GraceOption,
    HeadroomOption,
    HostOption,
    JsonOption,
    LabelsOption,
    LogFormatOption,
    LogLevelOption,
    ProxiesOption,
    PublicUrlOption,
    QueuesOption,
    RecycleOption,
    ReservedOption,
    ReserveOption,
    SlotsOption,
    StoreOption,
    WrongUsage,
    read_duration,
    read_reserved,
    settings_of,
)
from foliot.cli.output import complain, console, print_json_line
from foliot.cli.processes import AFTER_GRACE, GRACE, HOST, PORT, RECYCLE_AFTER, SLOTS, queues_of
from foliot.cli.settings import Settings
from foliot.cli.supervisor import Child, Supervisor
from foliot.cli.words import counted
from foliot.clock import SystemClock
from foliot.domain.instant import SECOND, Duration
from foliot.domain.labels import checked_labels
from foliot.domain.policy import checked_public_url
from foliot.errors import FoliotError, InvalidInput
from foliot.net import networks

if TYPE_CHECKING:
    from foliot.web.settings import WebSettings

LOOK_EVERY = 0.2
SHARE = 4
"""Polls take at most this fraction (1/SHARE) of the time."""
QUIET_AFTER: Duration = 15 * SECOND


def up(
    app: AppOption = None,
    store: StoreOption = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Number of worker processes.")] = 1,
    slots: SlotsOption = SLOTS,
    reserve: ReserveOption = bootstrap.RESERVE,
    headroom: HeadroomOption = bootstrap.HEADROOM,
    reserve_slots: ReservedOption = None,
    queues: QueuesOption = None,
    label: LabelsOption = None,
    grace: GraceOption = GRACE,
    recycle_after: RecycleOption = RECYCLE_AFTER,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    host: HostOption = HOST,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="Port to listen on; 0 picks a free port. Default: 8300, or a free port if 8300 is in use.",
            metavar="PORT",
        ),
    ] = None,
    public_url: PublicUrlOption = None,
    trusted_proxies: ProxiesOption = None,
    web: Annotated[bool, typer.Option("--web/--no-web", help="Serve the HTTP API and the dashboard.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run scheduler, worker and dashboard together. Prints their activity. Press Ctrl-C to stop gracefully."""
    settings = settings_of(app, store)
    if public_url is not None:
        settings = replace(settings, public_url=checked_public_url(public_url))  # for all of the processes
    if settings.app is None:
        raise WrongUsage("no app is given: use --app module:app, --app app.py, or FOLIOT_APP")
    length = read_duration(grace, "--grace")
    read_duration(recycle_after, "--recycle-after")
    loaded = settings.load()  # here too, so that a mistake in it is reported once, and not by each child
    bootstrap.make_channels(settings.alerts)  # for the same reason
    if loaded.store.file is None and not loaded.store.is_server:
        raise InvalidInput("processes cannot share a store in memory: give a file, --store sqlite:///foliot.db")
    served = queues_of(loaded, queues)
    having = [word for one in checked_labels(label or ()) for word in ("--label", one)]
    reserved = bootstrap.checked_reserved(read_reserved(reserve_slots), served, slots)
    having += [word for queue, most in reserved.items() for word in ("--reserve-slots", f"{queue}={most}")]
    ending = ["--grace", grace, "--recycle-after", recycle_after]
    log = logs.chosen(log_format, log_level, settings, supervised=True)
    telling = ["--log-format", log.format, "--log-level", logging.getLevelName(log.level).lower()]
    share = ["--slots", str(slots), "--reserve", str(reserve), "--headroom", str(headroom)]
    children = _children(settings, workers, telling, [*share, "--queues", ",".join(served), *having, *ending])
    served_at = access = None
    if web:
        from foliot.web.settings import WebSettings  # other commands need not import it

        proxies = networks(trusted_proxies or "", "--trusted-proxies")
        access = WebSettings(host, public_url=settings.public_url, trusted_proxies=proxies)
        chosen = _chosen_port(host, port)
        children.append(_web(settings, host, chosen.port, grace, trusted_proxies))
        served_at = chosen._replace(address=settings.public_url or chosen.address) if chosen.port else None
    asyncio.run(_Up(loaded, settings, children, length, as_json, served_at, access).run())


class _Port(NamedTuple):
    """Where the dashboard is, and why it is not at the default port."""

    port: int
    address: str
    why: str = ""


def _children(settings: Settings, workers: int, telling: Sequence[str], options: Sequence[str]) -> list[Child]:
    # Which store, they know from FOLIOT_STORE: on a command line everybody could read its password.
    where = ["--app", settings.app or "", "--supervised-by", str(os.getpid()), *telling]
    begin = [sys.executable, "-m", "foliot"]
    names = ["worker"] if workers == 1 else [f"worker {number}" for number in range(1, workers + 1)]
    work = [*begin, "worker", *where, *options]
    return [Child("scheduler", [*begin, "scheduler", *where]), *(Child(name, work) for name in names)]


def _web(settings: Settings, host: str, port: int, grace: str, trusted_proxies: str | None) -> Child:
    where = ["--app", settings.app or "", "--supervised-by", str(os.getpid())]
    listening = ["--host", host, "--port", str(port), "--grace", grace]
    listening += ["--trusted-proxies", trusted_proxies] if trusted_proxies is not None else []
    return Child("web", [sys.executable, "-m", "foliot", "web", *where, *listening])


def _chosen_port(host: str, port: int | None) -> _Port:
    """The port of the dashboard. A given port must be free; the default may be in use, for example by another
    `foliot up`."""
    wanted, why = PORT if port is None else port, ""
    if wanted and not _is_free(host, wanted):
        if port is not None:
            raise InvalidInput(f"port {port} is in use: choose another with --port (0 picks one), or use --no-web")
        wanted, why = 0, f"port {PORT} is in use; choose one with --port"
    if not wanted:  # picked here and not by the child, so that it can be named
        wanted = _free_port(host)
    return _Port(wanted, f"http://{f'[{host}]' if ':' in host else host}:{wanted}/", why)


def _free_port(host: str) -> int:
    try:
        with socket.create_server((host, 0), family=_family(host)) as found:
            return int(found.getsockname()[1])
    except OSError:  # the web itself says what is wrong with the address
        return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_free(host: str, port: int) -> bool:
    """Whether no process listens on the port. The web process reports other problems of the address."""
    try:
        with socket.create_server((host, port), family=_family(host)):
            return True
    except OSError as error:
        return error.errno != errno.EADDRINUSE


class _Up:
    """One supervisor, from its first line to its last."""

    def __init__(
        self,
        app: Foliot,
        settings: Settings,
        children: Sequence[Child],
        grace: Duration,
        as_json: bool,
        served_at: _Port | None = None,
        access: WebSettings | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._children = children
        self._grace = grace
        self._as_json = as_json
        self._served_at = served_at
        self._access = access
        self._console = console()
        self._clock = SystemClock()
        self._account = Account(sys.maxsize if as_json else account.MOST_LINES)
        self._supervisor = Supervisor(children, self._tell_process, output_to_stderr=as_json)
        self._stop = asyncio.Event()
        self._signals = 0
        self._printed_at = self._clock.now()
        self._failing = False
        self._deaf = False

    async def run(self) -> None:
        """1. Open the store, and follow it. 2. Start the children. 3. Print their activity until a signal comes.
        4. Stop them, and print how they end."""
        try:
            await opening.opened(self._app, self._stop)
            await self._check_access()
            follower = Follower(self._app.operate)
            await follower.begin()
            self._greet()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.add_signal_handler(number, self._on_signal)
            self._supervisor.start()
            while not self._stop.is_set():
                await self._look(follower)
            self._say("stopping gracefully: running attempts may finish; press Ctrl-C again to stop at once")
            stopping = asyncio.create_task(self._supervisor.stop(self._grace + AFTER_GRACE))
            while not stopping.done():
                await self._look(follower)
            await stopping
            await self._look(follower)
            self._say("stopped")
        finally:
            self._supervisor.kill()
            await self._app.close_async()

    async def _check_access(self) -> None:
        """Refuses an address that needs a token if there is none: the web process would exit again and again."""
        if self._access is not None and not self._access.is_alone:
            from foliot.web.server import check_address  # imports the web framework

            await check_address(self._app, self._access)

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            self._supervisor.kill()

    async def _look(self, follower: Follower) -> None:
        began = time.monotonic()
        now = self._clock.now()
        try:
            self._print(self._account.tell(await follower.look(now), now))
            if now - self._printed_at > QUIET_AFTER and not self._stop.is_set():
                self._print([await follower.quiet(now)])
            self._failing = False
        except FoliotError as error:  # the children are not hurt by what we cannot see
            if not self._failing:
                complain(f"reading the activity failed, retrying: {error}")
            self._failing = True
        spent = time.monotonic() - began
        pause = max(LOOK_EVERY, SHARE * spent)
        if self._stop.is_set():
            await asyncio.sleep(min(pause, 0.05))
            return
        try:
            await asyncio.wait_for(self._stop.wait(), pause)
        except TimeoutError:
            return

    def _greet(self) -> None:
        where = self._app.store.name
        text = f"foliot {__version__}: {self._settings.app} on {where}"
        if self._as_json:
            shape = {"version": __version__, "app": self._settings.app, "store": where, "kind": "up"}
            shape["web"] = None if self._served_at is None else self._served_at.address
            self._print([account.note(self._clock.now(), text, **shape)])
            return
        jobs, schedules = len(self._app.jobs), self._app.schedule_count
        workers = sum(child.name.startswith("worker") for child in self._children)
        self._console.print(Text(text, style="bold"), soft_wrap=True)
        self._console.print(
            f"{counted(jobs, 'job')}, {counted(schedules, 'schedule')}, "
            f"{counted(workers, 'worker')}; press Ctrl-C to stop gracefully"
        )
        if self._served_at is not None:
            why = f" ({self._served_at.why})" if self._served_at.why else ""
            self._console.print(f"dashboard: {self._served_at.address}{why}", soft_wrap=True, highlight=False)
        self._console.print(account.header())

    def _tell_process(self, name: str, what: str) -> None:
        self._print([account.note(self._clock.now(), f"{name} {what}", kind="process", process=name, what=what)])

    def _say(self, text: str) -> None:
        self._print([account.note(self._clock.now(), text)])

    def _print(self, lines: Sequence[Line]) -> None:
        if self._deaf:
            return
        try:
            for line in lines:
                self._printed_at = self._clock.now()
                self._print_one(line)
            if lines:
                self._console.file.flush()
        except (BrokenPipeError, SystemExit):  # rich turns the one into the other
            # The reader of the output is gone. The children still stop gracefully.
            self._deaf = True
            self._stop.set()

    def _print_one(self, line: Line) -> None:
        if self._as_json:
            print_json_line(line.shape())
            return
        for text in account.rendered(line, self._console.width if self._console.is_terminal else None):
            self._console.print(text, soft_wrap=True)
