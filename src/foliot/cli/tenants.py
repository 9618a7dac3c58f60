"""`foliot tenants`: the share of each tenant in the workers."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, with_store
from foliot.cli.output import Column, print_json, print_table, say
from foliot.cli.pauses import add_pausing, with_pauses
from foliot.domain.pauses import Pause
from foliot.operate.tenants import NOBODY, TenantShare, tenant_shape, tenant_words

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of tenants to list.")]


commands = typer.Typer(help="Manage tenants: list (default), pause, resume.", invoke_without_command=True)


@commands.callback()
def tenants(
    context: typer.Context,
    limit: LimitOption = 20,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Manage tenants: list (default), pause, resume."""
    if context.invoked_subcommand is None:
        list_(limit, app, store, as_json)


@commands.command("list")
def list_(
    limit: LimitOption = 20, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """List tenants with waiting or running runs, most waiting first.

    SHARE is the tenant's fair share of the running attempts, by weight among the tenants with work. The list marks
    tenants that flood a queue, or clearly exceed their share while others wait.
    """

    async def look(foliot: Foliot) -> tuple[list[TenantShare], list[Pause]]:
        return await foliot.operate.tenants_async(), await foliot.operate.pauses_async()

    found, paused = with_store(app, store, look)
    if as_json:
        print_json([with_pauses(tenant_shape(one), paused, f"tenant:{one.view.tenant}") for one in found[:limit]])
        return
    columns = (
        Column("tenant"),
        Column("waiting", right=True),
        Column("oldest wait", right=True, rank=1),
        Column("running", right=True),
        Column("share", right=True),
        Column("weight", right=True, rank=2),
        Column("", shrinks=True),
    )
    print_table(columns, [_row(share, found) for share in found[:limit]], nothing="no waiting or running runs")
    for one in paused:
        if one.name.startswith("tenant:"):
            say(f"{one.name.removeprefix('tenant:')}: {one.what} {one.words.partition(' is ')[2]}", "yellow")
    if len(found) > limit:
        say(f"and {words.counted(len(found) - limit, 'tenant')} more", "dim")


def _row(share: TenantShare, everyone: list[TenantShare]) -> tuple[str, ...]:
    view = share.view
    return (
        NOBODY if view.tenant is None else view.tenant,
        f"{view.waiting:,}",
        words.length(share.delay),
        f"{view.running:,}",
        f"{share.share:.0f}",
        f"{view.weight:g}",
        tenant_words(share, everyone),
    )


add_pausing(commands, "tenant")
