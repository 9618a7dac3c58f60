"""`foliot limits`: list, set, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import (
    ActorOption,
    AppOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    WrongUsage,
    acting,
    legible,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, print_json, print_table, say
from foliot.domain.gates import GateView, Rate, in_words
from foliot.domain.instant import Instant
from foliot.operate.limits import gate_shape, limit_shape

commands = typer.Typer(help="Manage concurrency and rate limits: list, set, drop.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Subject of the limit: job:X, queue:X, schedule:X, tenant:X, tenant:* (each tenant), to:X (destination), "
        "lane:catch-up, lane:backfill, or one subject in a lane: lane:backfill/job:X.",
        callback=legible,
    ),
]
_COLUMNS = (
    Column("name"),
    Column("concurrency", right=True),
    Column("rate", right=True),
    Column("slots in use", right=True),
    Column("waiting", right=True),
    Column("weight", rank=3, right=True),
    Column("source", rank=1),
    Column("reason", rank=2, shrinks=True),
)


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List limits with their running and waiting runs. Includes concurrency keys in use."""

    async def look(foliot: Foliot) -> tuple[list[GateView], Instant]:
        return await foliot.operate.limits_async(), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([limit_shape(view) for view in found])
    else:
        print_table(_COLUMNS, [_row(view, now) for view in found], nothing="no limits")


def _row(view: GateView, now: Instant) -> tuple[str, ...]:
    gate = view.gate
    burst = f" (burst {gate.burst:,})" if gate.burst else ""
    return (
        gate.name,
        "-" if gate.most is None else f"{gate.most:,}",
        "-" if gate.every is None else f"{Rate(gate.every)}{burst}",
        f"{view.used:,}",
        f"{view.waiting:,}",
        "-" if gate.weight is None else f"{gate.weight:g}",
        gate.source + (f", {words.relative(gate.changed_at, now)}" if gate.changed_at else ""),
        gate.note,
    )


@commands.command("set")
def set_(
    name: NameArgument,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=0, max=1_000_000, help="Maximum number of active runs; 0 starts none.", metavar="N"
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", help="Starts per unit of time: 10/s, 500/h.", metavar="RATE", callback=legible),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst", min=1, max=10_000, help="Number of starts allowed at once after unused rate.", metavar="N"
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option("--weight", help="Weight of a tenant in the fair share of workers. Usually 1.", metavar="W"),
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a limit, effective at once. Values that are not given keep their setting."""
    why = stated_reason(reason)
    if concurrency is None and rate is None and weight is None:
        raise WrongUsage("no limit is given: use --concurrency, --rate or --weight")
    gate = with_store(
        app,
        store,
        lambda foliot: foliot.operate.limit_async(
            name, reason=why, actor=acting(actor), concurrency=concurrency, rate=rate, burst=burst, weight=weight
        ),
    )
    if as_json:
        print_json(gate_shape(gate))
    else:
        say(f"{gate.name}: {in_words(gate)}")


@commands.command("drop")
def drop(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The name of a limit, as `limits list` prints it; breaker:X closes a destination's circuit breaker.",
            callback=legible,
        ),
    ],
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a limit and start the runs that wait for it. A limit from code returns when its app starts again."""
    why = stated_reason(reason)
    with_store(app, store, lambda foliot: foliot.operate.unlimit_async(name, reason=why, actor=acting(actor)))
    if as_json:
        print_json({"name": name, "outcome": "dropped"})
    else:
        say(f"removed the limit of {name}")
