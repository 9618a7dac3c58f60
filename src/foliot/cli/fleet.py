"""`foliot workers` and `foliot queues`: who is there, what they take, and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.dead import Place
from foliot.cli.options import (
    ActorOption,
    AppOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    acting,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, print_json, print_table, say
from foliot.cli.pauses import PAUSED, add_pausing, paused_words, with_pauses
from foliot.clock import SystemClock
from foliot.domain.instant import Instant
from foliot.domain.pauses import Pause
from foliot.domain.store import Instance
from foliot.operate.fleet import QueueStanding, queue_shape
from foliot.operate.shapes import instance_shape

workers = typer.Typer(help="Workers that are there: list, drain, quarantine, resume.", no_args_is_help=True)
queues = typer.Typer(help="Queues, and who serves them: list, pause, resume.", no_args_is_help=True)

WorkerArgument = Annotated[
    int, typer.Argument(metavar="WORKER", help="Its number, as `workers list` prints it.", min=0)
]


@workers.command("list")
def list_workers(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Workers that have not ended: what each takes, and how much at a time."""
    found = with_store(app, store, lambda foliot: foliot.operate.workers_async())
    if as_json:
        print_json([instance_shape(one) for one in found])
        return
    columns = (
        Column("worker", right=True),
        Column("where"),
        Column("queues", shrinks=True),
        Column("labels", shrinks=True),
        Column("slots", right=True),
        Column("reserved"),
        Column("heard of", rank=1),
        Column("wanted", coloured=True, shrinks=True),
    )
    now = SystemClock().now()
    print_table(columns, [_worker(one, now) for one in found], nothing="no worker is there")


def _worker(one: Instance, now: Instant) -> tuple[str, ...]:
    where = f"{one.host.partition(' ')[0]} ({one.pid})"
    having = ", ".join(one.labels) or "-"
    heard = words.relative(one.beat_at, now)
    wanted = "-" if one.wish is None else f"{one.wish} ({words.one_line(one.wish_note or '')})"
    kept = reserved_words(one.reserved)
    return str(one.number), where, ", ".join(one.queues), having, f"{one.slots:,}", kept, heard, wanted


@workers.command("drain")
def drain(
    worker: WorkerArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """It takes nothing more, ends what runs, however long that takes, and leaves. Nobody starts it again: under
    `foliot up` not before that is started anew."""
    _wish(worker, "drain", reason, actor, Place(app, store), as_json)


@workers.command("quarantine")
def quarantine(
    worker: WorkerArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """It takes nothing more, ends what runs, and stays, for somebody to look at."""
    _wish(worker, "quarantine", reason, actor, Place(app, store), as_json)


@workers.command("resume")
def resume(
    worker: WorkerArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """It works again. One that was drained can be had back until it has left."""
    _wish(worker, None, reason, actor, Place(app, store), as_json)


_TOLD = {
    "drain": "worker {} takes nothing more, and leaves when what runs has ended",
    "quarantine": "worker {} takes nothing more, and stays",
    None: "worker {} works again",
}


def _wish(worker: int, wish: str | None, reason: str | None, actor: str | None, place: Place, as_json: bool) -> None:
    why = stated_reason(reason)
    is_new = place.call(lambda foliot: foliot.operate.wish_async(worker, wish, reason=why, actor=acting(actor)))
    if as_json:
        print_json({"number": worker, "wish": wish, "outcome": "told" if is_new else "unchanged"})
    else:
        say(_TOLD[wish].format(worker) + ("; it hears of it within a second" if is_new else ": it was told already"))


def reserved_words(reserved: Mapping[str, int]) -> str:
    return ", ".join(f"{queue}={most}" for queue, most in reserved.items()) or "-"


@queues.command("list")
def list_queues(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Queues in which something waits, that a worker serves, or that a job names. SLOTS are those that runs of the
    queue may take, RESERVED those that no others do."""

    async def look(foliot: Foliot) -> tuple[list[QueueStanding], list[Pause]]:
        return await foliot.operate.queues_async(), await foliot.operate.pauses_async()

    found, paused = with_store(app, store, look)
    if as_json:
        print_json([with_pauses(queue_shape(one), paused, f"queue:{one.queue}") for one in found])
        return
    columns = (
        Column("queue"),
        Column("waiting", right=True),
        Column("since", rank=1),
        Column("workers", right=True),
        Column("slots", right=True),
        Column("reserved", right=True),
        Column("jobs", right=True, rank=2),
        PAUSED,
    )
    now = SystemClock().now()
    rows = [(*_queue(one, now), paused_words(paused, f"queue:{one.queue}")) for one in found]
    print_table(columns, rows, nothing="no queue is known yet")


def _queue(one: QueueStanding, now: Instant) -> tuple[str, ...]:
    since = "-" if one.oldest is None else words.relative(one.oldest, now)
    counts = (one.workers, one.slots, one.reserved, one.jobs)
    return one.queue, f"{one.waiting:,}", since, *(f"{count:,}" for count in counts)


add_pausing(queues, "queue")
