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

commands = typer.Typer(help="How many at a time, and how many in a time: list, set, drop.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="What is limited: job:X, queue:X, schedule:X, tenant:X, tenant:* (each), to:X (a destination), "
        "lane:catch-up, lane:backfill, or one thing in a lane: lane:backfill/job:X.",
        callback=legible,
    ),
]
_COLUMNS = (
    Column("name"),
    Column("at a time", right=True),
    Column("rate", right=True),
    Column("used", right=True),
    Column("waiting", right=True),
    Column("weight", rank=3, right=True),
    Column("says who", rank=1),
    Column("why", rank=2, shrinks=True),
)


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """All limits: what is allowed, how many run under each, and how many wait. Keys that runs have are listed, too."""

    async def look(foliot: Foliot) -> tuple[list[GateView], Instant]:
        return await foliot.operate.limits_async(), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([limit_shape(view) for view in found])
    else:
        print_table(_COLUMNS, [_row(view, now) for view in found], nothing="nothing is limited")


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
        typer.Option("--concurrency", min=0, max=1_000_000, help="So many at a time; 0 lets nobody in.", metavar="N"),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", help="So many may start in a time: 10/s, 500/h.", metavar="RATE", callback=legible),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst", min=1, max=10_000, help="So many at once, where the rate was not used before.", metavar="N"
        ),
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--weight", help="Of a tenant: its share of the workers; 1 is usual.", metavar="W")
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limits something, while it runs. What is not said stays as it is; who waits and has room now goes at once."""
    why = stated_reason(reason)
    if concurrency is None and rate is None and weight is None:
        raise WrongUsage("say what is allowed: --concurrency, --rate or --weight")
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
            help="As `limits list` prints it; breaker:X closes the circuit breaker of a destination.",
            callback=legible,
        ),
    ],
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lifts a limit; whoever waits for it goes. What code declares comes back when a process of it starts."""
    why = stated_reason(reason)
    with_store(app, store, lambda foliot: foliot.operate.unlimit_async(name, reason=why, actor=acting(actor)))
    if as_json:
        print_json({"name": name, "outcome": "dropped"})
    else:
        say(f"{name} is not limited any more")
