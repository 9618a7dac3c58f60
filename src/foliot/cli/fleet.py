"""`foliot workers` and `foliot queues`: who is there, what they take, and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, with_store
from foliot.cli.output import Column, print_json, print_table
from foliot.clock import SystemClock
from foliot.domain.instant import Instant
from foliot.domain.store import Instance
from foliot.operate.fleet import QueueStanding, queue_shape
from foliot.operate.shapes import instance_shape

workers = typer.Typer(help="Workers that are there: list.", no_args_is_help=True)
queues = typer.Typer(help="Queues, and who serves them: list.", no_args_is_help=True)


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
    )
    now = SystemClock().now()
    print_table(columns, [_worker(one, now) for one in found], nothing="no worker is there")


def _worker(one: Instance, now: Instant) -> tuple[str, ...]:
    where = f"{one.host.partition(' ')[0]} ({one.pid})"
    having = ", ".join(one.labels) or "-"
    heard = words.relative(one.beat_at, now)
    return str(one.number), where, ", ".join(one.queues), having, f"{one.slots:,}", reserved_words(one.reserved), heard


def reserved_words(reserved: Mapping[str, int]) -> str:
    return ", ".join(f"{queue}={most}" for queue, most in reserved.items()) or "-"


@queues.command("list")
def list_queues(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Queues in which something waits, that a worker serves, or that a job names. SLOTS are those that runs of the
    queue may take, RESERVED those that no others do."""
    found = with_store(app, store, lambda foliot: foliot.operate.queues_async())
    if as_json:
        print_json([queue_shape(one) for one in found])
        return
    columns = (
        Column("queue"),
        Column("waiting", right=True),
        Column("since", rank=1),
        Column("workers", right=True),
        Column("slots", right=True),
        Column("reserved", right=True),
        Column("jobs", right=True, rank=2),
    )
    now = SystemClock().now()
    print_table(columns, [_queue(one, now) for one in found], nothing="no queue is known yet")


def _queue(one: QueueStanding, now: Instant) -> tuple[str, ...]:
    since = "-" if one.oldest is None else words.relative(one.oldest, now)
    counts = (one.workers, one.slots, one.reserved, one.jobs)
    return one.queue, f"{one.waiting:,}", since, *(f"{count:,}" for count in counts)
