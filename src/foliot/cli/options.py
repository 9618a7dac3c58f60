"""The options that several commands share, and how each is read."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from foliot.app import Foliot
from foliot.cli.settings import Settings, resolve
from foliot.domain.instant import Duration, Instant, duration, parse_rfc3339
from foliot.domain.pauses import whats_named
from foliot.errors import InvalidInput

T = TypeVar("T")


MOST_LOOKS = 20
"""How often a list continues a search that the store cut short, before it asks the operator to."""


class WrongUsage(Exception):
    """The command line is wrong: exit 2."""


def legible(given: str | None) -> str | None:
    """Refuses bytes that are not text in the terminal's encoding: Python gives them as surrogates, which no store
    accepts."""
    if given is not None and not given.isascii() and any("\ud800" <= letter <= "\udfff" for letter in given):
        raise WrongUsage(f"{given!r:.80} is not text in UTF-8; type it again")
    return given


def _legible_all(given: list[str] | None) -> list[str] | None:
    return given and [legible(one) or "" for one in given]


AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="App module or file: module:app, or app.py. [env: FOLIOT_APP]",
        metavar="APP",
        callback=legible,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Store URL: sqlite:///path, or postgresql://... [env: FOLIOT_STORE]",
        metavar="URL",
        callback=legible,
    ),
]
Json = typer.Option("--json", help="Print JSON; times are RFC 3339 in UTC.")
JsonOption = Annotated[bool, Json]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Reason for the audit log. Required.", callback=legible)
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Name for the audit log. Default: the system user.", callback=legible)
]
GraceOption = Annotated[
    str, typer.Option("--grace", help="Time that running attempts have to finish after SIGTERM.", metavar="DURATION")
]
RecycleOption = Annotated[
    str,
    typer.Option(
        "--recycle-after",
        help="Time that a cancelled or timed-out handler has to return before its worker process is replaced.",
        metavar="DURATION",
    ),
]
QueuesOption = Annotated[
    str | None,
    typer.Option("--queues", help="Queues to serve, as a,b. Default: all queues of the app.", metavar="NAMES"),
]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="Label of this worker that runs can require: gpu, region=eu. Repeatable.", metavar="LABEL"
    ),
]
SlotsOption = Annotated[
    int, typer.Option("--slots", min=1, max=10_000, help="Maximum number of active runs per worker.")
]
ReserveOption = Annotated[
    float,
    typer.Option(
        "--reserve",
        min=0.0,
        max=0.95,
        help="Share of the slots that catch-up and backfill runs leave free for live runs.",
    ),
]
ReservedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reserve-slots",
        help="Slots reserved for runs of one queue: mail=2. Repeatable.",
        metavar="QUEUE=SLOTS",
        callback=_legible_all,
    ),
]
HeadroomOption = Annotated[
    float,
    typer.Option(
        "--headroom",
        min=0.0,
        max=0.95,
        help="Share of the slots that tenants at or over their fair share leave free for the others.",
    ),
]
WhatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--what",
        help="Parts to pause or resume: creation, retries, claims. Repeatable, or as a,b.",
        metavar="WHAT",
        callback=_legible_all,
    ),
]
ForOption = Annotated[str | None, typer.Option("--for", help="End the pause after this time: 2h.", metavar="DURATION")]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="End the pause at this time: 2026-04-03T02:00:00Z.", metavar="TIME")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show a preview and change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Show progress until the backfill ends or is paused.")]
OverrideOption = Annotated[
    bool, typer.Option("--override", help="Act against the advice: completed work may be done a second time.")
]

# Filters of runs and of schedules: one place for the words of each.
RunJobOption = Annotated[str | None, typer.Option("--job", help="Only runs of this job.", callback=legible)]
RunScheduleOption = Annotated[
    str | None, typer.Option("--schedule", help="Only runs of this schedule.", callback=legible)
]
RunTenantOption = Annotated[str | None, typer.Option("--tenant", help="Only runs of this tenant.", callback=legible)]
RunQueueOption = Annotated[str | None, typer.Option("--queue", help="Only runs in this queue.", callback=legible)]
RunPrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="Only runs whose id starts with this.", callback=legible)
]
RunStateOption = Annotated[
    list[str] | None,
    typer.Option("--state", help="Only runs in these states: dead, running, … Repeatable, or as a,b."),
]
RunSinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only runs scheduled at or after this time: 2026-04-03T02:00:00Z.",
        metavar="TIME",
        callback=legible,
    ),
]
RunUntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", help="Only runs scheduled before this time: 2026-04-03T06:00:00Z.", metavar="TIME", callback=legible
    ),
]
ScheduleJobOption = Annotated[str | None, typer.Option("--job", help="Only schedules of this job.", callback=legible)]
ScheduleTenantOption = Annotated[
    str | None, typer.Option("--tenant", help="Only schedules of this tenant.", callback=legible)
]
CursorOption = Annotated[
    str | None,
    typer.Option(
        "--cursor",
        help="Continue after this cursor, from the end of the previous page.",
        metavar="CURSOR",
        callback=legible,
    ),
]
ReplayRateOption = Annotated[
    str | None,
    typer.Option(
        "--rate", help="Runs that become due per unit of time: 50/s, 500/m. Default: all at once.", metavar="RATE"
    ),
]
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name of a schedule.", callback=legible)]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Start of the period. Default: now.", metavar="TIME", callback=legible),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="Format of the log on stderr: json, text, or off (no lines for runs). Default: text in a terminal, json "
        "elsewhere. [env: FOLIOT_LOG_FORMAT]",
        metavar="FORMAT",
        callback=legible,
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        help="Least severe level to log: info or warning. Default: info. [env: FOLIOT_LOG_LEVEL]",
        metavar="LEVEL",
        callback=legible,
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Serve Prometheus metrics on this port; 0 picks a free port and logs it.",
        metavar="PORT",
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", help="Address on which metrics are served.", metavar="HOST")
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        help="Address to listen on. Any address but localhost requires a token.",
        metavar="HOST",
        callback=legible,
    ),
]
PublicUrlOption = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        help="URL that browsers use when a proxy is in front: https://foliot.example.com.",
        metavar="URL",
        callback=legible,
    ),
]
ProxiesOption = Annotated[
    str | None,
    typer.Option(
        "--trusted-proxies",
        help="Networks of proxies whose X-Forwarded-For header is trusted: 127.0.0.1,172.16.0.0/12.",
        metavar="NETWORKS",
        callback=legible,
    ),
]
SupervisedOption = Annotated[int | None, typer.Option("--supervised-by", hidden=True, metavar="PID")]


def read_reserved(given: list[str] | None) -> dict[str, int]:
    """Reserved slots by queue."""
    found: dict[str, int] = {}
    for text in given or ():
        queue, _, most = text.partition("=")
        if not queue or not most.isascii() or not most.isdigit():
            raise WrongUsage(f"--reserve-slots {text!r:.80}: give a queue and a number of slots, as in mail=2")
        if queue in found:
            raise WrongUsage(f"--reserve-slots names {queue} twice; give it once")
        found[queue] = int(most)
    return found


def settings_of(app: str | None, store: str | None) -> Settings:
    return resolve(app, store, os.environ, Path.cwd())


def with_store(app: str | None, store: str | None, body: Callable[[Foliot], Awaitable[T]]) -> T:
    """Runs `body` with the app, on a store that exists already, and closes it."""
    loaded = settings_of(app, store).existing()  # outside of any event loop: an app may use its plain verbs

    async def begin() -> T:
        try:
            return await body(loaded)
        finally:
            await loaded.close_async()

    return asyncio.run(begin())


def stated_reason(reason: str | None) -> str:
    if reason is None or not reason.strip():
        raise WrongUsage('--reason is required: add --reason "..." for the audit log')
    return reason


def acting(actor: str | None) -> str:
    if actor:
        return actor
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return f"uid:{os.getuid()}"


def read_duration(text: str, option: str) -> Duration:
    try:
        return duration(text)
    except InvalidInput as error:
        raise WrongUsage(f"{option}: {error}") from None


def read_instant(text: str, option: str) -> Instant:
    try:
        return parse_rfc3339(text)
    except InvalidInput:
        raise WrongUsage(f"{option} {text!r:.80}: write it as 2026-04-03T02:00:00Z") from None


def read_cursor(given: str | None) -> int | None:
    """The number of a cursor."""
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise WrongUsage(
            f"--before: {given!r:.40} is not a cursor; use the cursor printed at the end of the previous page"
        )
    return int(given)


def read_whats(given: list[str] | None) -> list[str] | None:
    """The parts to pause or resume; None without the option."""
    found = [word.strip() for text in given or () for word in text.split(",")]
    try:
        return [str(what) for what in whats_named(found)] if found else None
    except InvalidInput as error:
        raise WrongUsage(f"--what: {error}") from None


class Ending(NamedTuple):
    """The end of a pause, as given: a length or an instant."""

    length: Duration | None
    at: Instant | None

    async def instant(self, foliot: Foliot) -> Instant | None:
        return self.at if self.length is None else await foliot.operate.now_async() + self.length


def read_ending(length: str | None, until: str | None) -> Ending:
    if length is not None and until is not None:
        raise WrongUsage("give --for or --until, not both")
    try:
        end = None if until is None else parse_rfc3339(until)
    except InvalidInput as error:
        raise WrongUsage(f"--until: {error}") from None
    return Ending(None if length is None else read_duration(length, "--for"), end)
