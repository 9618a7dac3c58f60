"""`foliot tokens`: create, list, revoke."""

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
    acting,
    legible,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, complain, print_json, print_table, say
from foliot.domain.access import Scope, Token
from foliot.domain.instant import Instant
from foliot.operate.tokens import Minted, token_shape, token_state
from foliot.operate.words import to_the_second

commands = typer.Typer(help="Manage API tokens: create, list, revoke.", no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a token, which the audit log shows.", callback=legible)
]
_COLUMNS = (
    Column("name"),
    Column("scope"),
    Column("tenant"),
    Column("bound to", rank=1, shrinks=True),
    Column("state", coloured=True),
    Column("expires", rank=1),
    Column("last used"),
    Column("created by", rank=2),
    Column("created", rank=3),
)


@commands.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            help="Permissions: read; operate (read and act); admin (operate, and manage tokens); work (remote worker: "
            "only claim runs of --job and --queue).",
            metavar="SCOPE",
            callback=legible,
        ),
    ] = "read",
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            help="Restrict the token to this tenant's runs, schedules and promises. Without it, a token of scope work "
            "claims only runs without a tenant.",
            metavar="TENANT",
            callback=legible,
        ),
    ] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Scope work: claim runs of all tenants.")] = False,
    job: Annotated[
        list[str] | None,
        typer.Option("--job", help="Scope work: claim runs of this job. Repeatable.", metavar="JOB"),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="Scope work: claim runs in this queue. Repeatable.",
            metavar="QUEUE",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="Lifetime of the token: 90d. Default: no expiry.", metavar="DURATION"),
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it once. The store keeps only a hash."""
    why = stated_reason(reason)

    async def make(foliot: Foliot) -> tuple[Minted, Instant]:
        made = await foliot.operate.create_token_async(
            name,
            reason=why,
            actor=acting(actor),
            scope=scope,
            tenant=tenant,
            all_tenants=all_tenants,
            jobs=job or (),
            queues=queue or (),
            expires_in=expires,
        )
        return made, await foliot.operate.now_async()

    made, now = with_store(app, store, make)
    if as_json:
        print_json(token_shape(made.token, now) | {"token": made.text})
        return
    say(made.text)
    work = made.token.bound
    bound = f", for tenant {made.token.tenant} only" if made.token.tenant else ""
    bound = f" ({work.words})" if work else bound
    until = f", until {to_the_second(made.token.expires_at)}" if made.token.expires_at else ""
    complain(
        f"created token {made.token.name} with scope {made.token.scope}{bound}{until}; it cannot be shown again: store "
        "it now"
    )


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List tokens with their permissions and last use. Includes revoked tokens."""

    async def look(foliot: Foliot) -> tuple[list[Token], Instant]:
        return await foliot.operate.tokens_async(), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([token_shape(one, now) for one in found])
    else:
        print_table(_COLUMNS, [_row(one, now) for one in found], nothing="no tokens")


def _row(one: Token, now: Instant) -> tuple[str, ...]:
    def when(moment: Instant | None) -> str:
        return "-" if moment is None else words.relative(moment, now)

    state, expires = token_state(one, now), "never" if one.expires_at is None else when(one.expires_at)
    return (
        one.name,
        str(one.scope),
        one.tenant or ("all" if one.all_tenants else "-"),
        _bound(one),
        state,
        expires,
        when(one.used_at),
        one.made_by,
        when(one.made_at),
    )


def _bound(one: Token) -> str:
    if one.scope is not Scope.WORK:
        return "-"
    names = [f"job {name}" for name in one.jobs] + [f"queue {name}" for name in one.queues]
    return ", ".join(names) or "nothing: claims no runs"


@commands.command("revoke")
def revoke(
    name: NameArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token. Its sessions end at once."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> tuple[Token, Instant]:
        revoked = await foliot.operate.revoke_token_async(name, reason=why, actor=acting(actor))
        return revoked, await foliot.operate.now_async()

    revoked, now = with_store(app, store, act)
    if as_json:
        print_json(token_shape(revoked, now))
    else:
        say(f"revoked {revoked.name}")
