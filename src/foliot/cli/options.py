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
"""So often a list goes on by itself after its search was cut short."""


class WrongUsage(Exception):
    """The command line itself is wrong: exit 2."""


def legible(given: str | None) -> str | None:
    """Bytes that are no text in the terminal's encoding arrive as halves of letters, which nothing can store."""
    if given is not None and not given.isascii() and any("\ud800" <= letter <= "\udfff" for letter in given):
        raise WrongUsage(f"{given!r:.80} is not text in UTF-8; type it again")
    return given


def _legible_all(given: list[str] | None) -> list[str] | None:
    return given and [legible(one) or "" for one in given]


AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="Where the jobs are: module:app, or a file. Else FOLIOT_APP.",
        metavar="APP",
        callback=legible,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Which store: sqlite:///path, or postgresql://... Else FOLIOT_STORE.",
        metavar="URL",
        callback=legible,
    ),
]
Json = typer.Option("--json", help="Print JSON; times are RFC 3339 in UTC.")
JsonOption = Annotated[bool, Json]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Why; kept in the audit log. Required.", callback=legible)
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Who acts; by default the user of the system.", callback=legible)
]
GraceOption = Annotated[
    str, typer.Option("--grace", help="How long running work may go on after SIGTERM.", metavar="DURATION")
]
RecycleOption = Annotated[
    str,
    typer.Option(
        "--recycle-after",
        help="How long a handler that was told to stop may go on before its worker is replaced for it.",
        metavar="DURATION",
    ),
]
QueuesOption = Annotated[
    str | None,
    typer.Option("--queues", help="Which queues to serve, as a,b; by default all that the app names.", metavar="NAMES"),
]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="What this worker has, of what runs may need: gpu, region=eu. Repeatable.", metavar="LABEL"
    ),
]
SlotsOption = Annotated[int, typer.Option("--slots", min=1, max=10_000, help="How many runs at a time.")]
ReserveOption = Annotated[
    float,
    typer.Option(
        "--reserve",
        min=0.0,
        max=0.95,
        help="The share of the slots that catch-up and backfill leave free for live runs.",
    ),
]
ReservedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reserve-slots",
        help="Slots that only runs of a queue take: mail=2. Repeatable.",
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
        help="The share of the slots that tenants who have had their share leave free for those who have not.",
    ),
]
WhatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--what",
        help="What of it: creation, retries, claims. Repeatable, or as a,b.",
        metavar="WHAT",
        callback=_legible_all,
    ),
]
ForOption = Annotated[str | None, typer.Option("--for", help="How long: 2h.", metavar="DURATION")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Until when.", metavar="RFC3339")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="json, text, or off: a line for each start and end of a run, on stderr. Else FOLIOT_LOG_FORMAT; else text "
        "in a terminal, and json elsewhere.",
        metavar="FORMAT",
        callback=legible,
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        help="info, or warning for failures alone. Else FOLIOT_LOG_LEVEL; else info.",
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
        help="Serve metrics for Prometheus at this port; 0 picks one, and the log says which.",
        metavar="PORT",
    ),
]
MetricsHostOption = Annotated[
    str, typer.Option("--metrics-host", help="The address that metrics are served at.", metavar="HOST")
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        help="The address to listen on; any but this host's own needs a token.",
        metavar="HOST",
        callback=legible,
    ),
]
PublicUrlOption = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        help="What people type, where a proxy stands in front: https://foliot.example.com.",
        metavar="URL",
        callback=legible,
    ),
]
ProxiesOption = Annotated[
    str | None,
    typer.Option(
        "--trusted-proxies",
        help="Networks of proxies whose X-Forwarded-For names the client: 127.0.0.1,172.16.0.0/12.",
        metavar="NETWORKS",
        callback=legible,
    ),
]
SupervisedOption = Annotated[int | None, typer.Option("--supervised-by", hidden=True, metavar="PID")]


def read_reserved(given: list[str] | None) -> dict[str, int]:
    """By queue, how many slots are kept for it."""
    found: dict[str, int] = {}
    for text in given or ():
        queue, _, most = text.partition("=")
        if not queue or not most.isascii() or not most.isdigit():
            raise WrongUsage(f"--reserve-slots {text!r:.80}: give a queue and a number of slots, as in mail=2")
        if queue in found:
            raise WrongUsage(f"--reserve-slots names {queue} twice")
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
        raise WrongUsage('say why: --reason "..." (the audit log keeps it)')
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
    """Where a page ended."""
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise WrongUsage(f"--before: {given!r:.40} is not a cursor; give the one that the last page ended with")
    return int(given)


def read_whats(given: list[str] | None) -> list[str] | None:
    """What is to be paused or resumed; None where nobody says it."""
    found = [word.strip() for text in given or () for word in text.split(",")]
    try:
        return [str(what) for what in whats_named(found)] if found else None
    except InvalidInput as error:
        raise WrongUsage(f"--what: {error}") from None


class Ending(NamedTuple):
    """When something ends by itself, as it was said."""

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
