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

commands = typer.Typer(help="Who may act over HTTP: create, list, revoke.", no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name: the actor of whatever is done.", callback=legible)
]
_COLUMNS = (
    Column("name"),
    Column("scope"),
    Column("tenant"),
    Column("bound to", rank=1, shrinks=True),
    Column("state", coloured=True),
    Column("expires", rank=1),
    Column("last used"),
    Column("made by", rank=2),
    Column("made", rank=3),
)


@commands.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            help="What it allows: read; operate (read and act); admin (operate, and tokens); work (only take runs, as "
            "a worker elsewhere, of the jobs or queues that --job and --queue name).",
            metavar="SCOPE",
            callback=legible,
        ),
    ] = "read",
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            help="Only this tenant's runs, schedules and promises exist for it. A token of scope work without it takes "
            "runs that have no tenant.",
            metavar="TENANT",
            callback=legible,
        ),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="For the scope work: takes runs of all tenants.")
    ] = False,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job", help="For the scope work: takes only runs of this job; several times: of these.", metavar="JOB"
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="For the scope work: takes only runs of this queue; several times: of these.",
            metavar="QUEUE",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="For how long it is good: 90d. By default for ever.", metavar="DURATION"),
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Makes a token and prints it, once: only a hash of it is kept."""
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
    bound = f", for {made.token.tenant} alone" if made.token.tenant else ""
    bound = f" ({work.words})" if work else bound
    until = f", until {to_the_second(made.token.expires_at)}" if made.token.expires_at else ""
    complain(
        f"{made.token.name} may {made.token.scope}{bound}{until}; nobody can tell this token again, so keep it now"
    )


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """All tokens that were ever made: what each allows, and when it was last used, to the minute."""

    async def look(foliot: Foliot) -> tuple[list[Token], Instant]:
        return await foliot.operate.tokens_async(), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([token_shape(one, now) for one in found])
    else:
        print_table(_COLUMNS, [_row(one, now) for one in found], nothing="no token was made yet")


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
    return ", ".join(names) or "nothing: takes no runs"


@commands.command("revoke")
def revoke(
    name: NameArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """From now on it opens nothing, and whoever logged in with it is logged out."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> tuple[Token, Instant]:
        revoked = await foliot.operate.revoke_token_async(name, reason=why, actor=acting(actor))
        return revoked, await foliot.operate.now_async()

    revoked, now = with_store(app, store, act)
    if as_json:
        print_json(token_shape(revoked, now))
    else:
        say(f"{revoked.name} is revoked")
