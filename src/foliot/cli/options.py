"""The options that several commands share, and how each is read."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from foliot.app import Foliot
from foliot.cli.settings import Settings, resolve
from foliot.domain.instant import Duration, duration
from foliot.errors import InvalidInput

T = TypeVar("T")


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
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        help="The address to listen on; any but this host's own needs a token.",
        metavar="HOST",
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


def read_cursor(given: str | None) -> int | None:
    """Where a page ended."""
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise WrongUsage(f"--before: {given!r:.40} is not a cursor; give the one that the last page ended with")
    return int(given)
