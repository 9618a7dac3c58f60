"""`foliot workers` and `foliot queues`: live workers, the queues that they serve, and waiting runs."""

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

workers = typer.Typer(help="Manage workers: list, drain, quarantine, resume.", no_args_is_help=True)
queues = typer.Typer(help="Manage queues: list, pause, resume.", no_args_is_help=True)

WorkerArgument = Annotated[
    int, typer.Argument(metavar="WORKER", help="The number of a worker, as `workers list` prints it.", min=0)
]


@workers.command("list")
def list_workers(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List live workers with their queues, labels and slots."""
    found = with_store(app, store, lambda foliot: foliot.operate.workers_async())
    if as_json:
        print_json([instance_shape(one) for one in found])
        return
    columns = (
        Column("worker", right=True),
        Column("host"),
        Column("queues", shrinks=True),
        Column("labels", shrinks=True),
        Column("slots", right=True),
        Column("reserved"),
        Column("heartbeat", rank=1),
        Column("request", coloured=True, shrinks=True),
    )
    now = SystemClock().now()
    print_table(columns, [_worker(one, now) for one in found], nothing="no workers")


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
    """Drain a worker. It claims no more runs, finishes its attempts without a time limit, and exits.

    `foliot up` does not restart a drained worker; restart `foliot up` to start the worker again.
    """
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
    """Quarantine a worker. It claims no more runs, finishes its attempts, and keeps running for inspection."""
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
    """Let a worker claim runs again. A drained worker can be resumed until it exits."""
    _wish(worker, None, reason, actor, Place(app, store), as_json)


_TOLD = {
    "drain": "worker {} claims no more runs and exits when its attempts have ended",
    "quarantine": "worker {} claims no more runs and keeps running",
    None: "worker {} claims runs again",
}


def _wish(worker: int, wish: str | None, reason: str | None, actor: str | None, place: Place, as_json: bool) -> None:
    why = stated_reason(reason)
    is_new = place.call(lambda foliot: foliot.operate.wish_async(worker, wish, reason=why, actor=acting(actor)))
    if as_json:
        print_json({"number": worker, "wish": wish, "outcome": "told" if is_new else "unchanged"})
    else:
        say(_TOLD[wish].format(worker) + (", within a second" if is_new else ": requested before"))


def reserved_words(reserved: Mapping[str, int]) -> str:
    return ", ".join(f"{queue}={most}" for queue, most in reserved.items()) or "-"


@queues.command("list")
def list_queues(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List queues with waiting runs, a worker or a job.

    SLOTS counts worker slots that can take runs of the queue; RESERVED counts those that take no other runs.
    """

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
    print_table(columns, rows, nothing="no queues")


def _queue(one: QueueStanding, now: Instant) -> tuple[str, ...]:
    since = "-" if one.oldest is None else words.relative(one.oldest, now)
    counts = (one.workers, one.slots, one.reserved, one.jobs)
    return one.queue, f"{one.waiting:,}", since, *(f"{count:,}" for count in counts)


add_pausing(queues, "queue")
