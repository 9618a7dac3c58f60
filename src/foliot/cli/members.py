"""`foliot members`: the member sets of fan-out schedules: list, show, add, remove, set, served."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
from foliot.domain.instant import Instant
from foliot.domain.members import Member, MembersChanged, Standing
from foliot.operate.members import age, changed_shape, member_set_shape, member_shape, standing_shape

commands = typer.Typer(help="Manage fan-out members: list, show, add, remove, set, served.", no_args_is_help=True)

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="The name of a member set, as `members list` prints it.", callback=legible)
]
MembersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="MEMBER...", help="Names of members; - reads them from standard input."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Number of members to list.")]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after", help="Continue after this member, the last of the previous page.", metavar="MEMBER", callback=legible
    ),
]


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List member sets and the schedules that use them."""
    found = with_store(app, store, lambda foliot: foliot.operate.member_sets_async())
    if as_json:
        print_json([member_set_shape(one) for one in found])
        return
    columns = (Column("set"), Column("members", right=True), Column("schedules", shrinks=True))
    rows = [(one.name, f"{one.members:,}", ", ".join(one.schedules) or "none") for one in found]
    print_table(columns, rows, nothing="no member sets")


@commands.command("show")
def show(
    member_set: SetArgument,
    limit: LimitOption = 50,
    after: AfterOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the members of one set by name."""

    async def look(foliot: Foliot) -> tuple[list[Member], Instant]:
        found = await foliot.operate.members_async(member_set, after=after or "", limit=limit)
        return found, await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([member_shape(one) for one in found])
        return
    rows = [(one.key, words.relative(one.added_at, now), one.source) for one in found]
    print_table(
        (Column("member"), Column("added", right=True), Column("added by")), rows, nothing=f"no members in {member_set}"
    )
    if len(rows) == limit:
        say(f"\nmore results: add --after {rows[-1][0]}", "dim")


def _changing(verb: str, does: str) -> Callable[..., None]:
    """One of the three commands that change a set."""

    def change(
        member_set: SetArgument,
        members: MembersArgument = None,
        reason: ReasonOption = None,
        actor: ActorOption = None,
        app: AppOption = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
    ) -> None:
        keys, why, who = _given(members), stated_reason(reason), acting(actor)

        async def act(foliot: Foliot) -> MembersChanged:
            verbs = foliot.operate
            does = {
                "add": verbs.add_members_async,
                "remove": verbs.remove_members_async,
                "set": verbs.set_members_async,
            }
            return await does[verb](member_set, keys, reason=why, actor=who)

        _tell(member_set, with_store(app, store, act), as_json)

    change.__doc__ = does
    return change


for _verb, _does in (
    ("add", "Add members. Schedules over the set create runs for them from the next tick on."),
    ("remove", "Remove members. Their runs that have not started are skipped; running ones continue."),
    ("set", "Replace the members of a set with exactly these."),
):
    commands.command(_verb)(_changing(_verb, _does))


@commands.command("served")
def served(
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="The name of a schedule with a member set.", callback=legible)
    ],
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Only members without a useful completion in this time: 2h, 1d.",
            metavar="DURATION",
            callback=legible,
        ),
    ] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the last useful completion of each member."""

    async def look(foliot: Foliot) -> tuple[list[Standing], Instant]:
        found = await foliot.operate.member_standings_async(
            schedule, older_than=older_than, after=after or "", limit=limit
        )
        return found, await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([standing_shape(one, now) for one in found])
        return
    columns = (
        Column("member"),
        Column("last useful run", right=True),
        Column("tick", rank=1),
        Column("", shrinks=True),
    )
    print_table(
        columns, [_row(one, now) for one in found], nothing="no matching members" if older_than else "no members"
    )
    if len(found) == limit:
        say(f"\nmore results: add --after {found[-1].member}", "dim")


def _row(one: Standing, now: Instant) -> tuple[str, ...]:
    if one.useful_at is None:
        return one.member, "never", "-", f"a member for {words.length(age(one, now))}"
    tick = "-" if one.useful_tick is None else words.date_time(one.useful_tick)
    return one.member, words.relative(one.useful_at, now), tick, ""


def _given(members: list[str] | None) -> list[str]:
    """Names from the command line, or one per line from standard input."""
    if members == ["-"]:
        return [line.strip() for line in sys.stdin if line.strip()]
    if not members:
        raise WrongUsage("no member is given: name members, or give - to read them from standard input")
    return members


def _tell(member_set: str, changed: MembersChanged, as_json: bool) -> None:
    if as_json:
        print_json(changed_shape(member_set, changed))
        return
    done = [
        text
        for count, text in (
            (changed.added, f"{words.counted(changed.added, 'member')} added"),
            (changed.removed, f"{words.counted(changed.removed, 'member')} removed"),
            (changed.skipped, f"{words.counted(changed.skipped, 'run')} skipped"),
        )
        if count
    ]
    say(f"{member_set}: {', '.join(done) or 'unchanged'}")
