"""`foliot retention`: show and set the retention of history."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli.options import (
    ActorOption,
    AppOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    WrongUsage,
    acting,
    stated_reason,
    with_store,
)
from foliot.cli.output import print_json, say
from foliot.operate.words import counted

commands = typer.Typer(help="Manage history retention: show, set.", no_args_is_help=True)


@commands.command("show")
def show(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the retention of ended runs, their attempts and events."""
    days = with_store(app, store, lambda foliot: foliot.operate.retention_async())
    print_json({"days": days}) if as_json else say(_words(days))


@commands.command("set")
def set_(
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="Delete ended runs after this number of days.")
    ] = None,
    forever: Annotated[bool, typer.Option("--forever", help="Never delete ended runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the retention of ended runs. Foliot deletes older runs permanently, within minutes.

    Foliot keeps the audit log, and runs that need attention.
    """
    why = stated_reason(reason)
    if (days is None) == (not forever):
        raise WrongUsage("give either --days N or --forever")

    async def act(foliot: Foliot) -> bool:
        before = await foliot.operate.retention_async()
        is_shorter = days is not None and (before is None or days < before)
        if is_shorter and not yes and not typer.confirm(f"{_words(before)}; delete history older than {days} days?"):
            return False
        await foliot.operate.set_retention_async(days, reason=why, actor=acting(actor))
        return True

    done = with_store(app, store, act)
    if as_json:
        print_json({"days": days, "outcome": "set" if done else "left"})
    else:
        say(_words(days) if done else "unchanged")


def _words(days: int | None) -> str:
    return "history is never deleted" if days is None else f"history is kept for {counted(days, 'day')}"
