"""`foliot members`: whom schedules go over. List, show, add, remove, set; and who was not served of late."""

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

commands = typer.Typer(help="Whom schedules go over: list, show, add, remove, set, served.", no_args_is_help=True)

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="The name of a set, as `members list` prints it.", callback=legible)
]
MembersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="MEMBER...", help="Their names; or - to read them from the input."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many.")]
AfterOption = Annotated[
    str | None, typer.Option("--after", help="Go on after this one.", metavar="MEMBER", callback=legible)
]


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """All sets of members, and the schedules that go over them."""
    found = with_store(app, store, lambda foliot: foliot.operate.member_sets_async())
    if as_json:
        print_json([member_set_shape(one) for one in found])
        return
    columns = (Column("set"), Column("members", right=True), Column("schedules over it", shrinks=True))
    rows = [(one.name, f"{one.members:,}", ", ".join(one.schedules) or "none") for one in found]
    print_table(columns, rows, nothing="there are no members of anything")


@commands.command("show")
def show(
    member_set: SetArgument,
    limit: LimitOption = 50,
    after: AfterOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The members of one set, by name."""

    async def look(foliot: Foliot) -> tuple[list[Member], Instant]:
        found = await foliot.operate.members_async(member_set, after=after or "", limit=limit)
        return found, await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([member_shape(one) for one in found])
        return
    rows = [(one.key, words.relative(one.added_at, now), one.source) for one in found]
    print_table((Column("member"), Column("added", right=True), Column("by")), rows, nothing=f"{member_set} has nobody")
    if len(rows) == limit:
        say(f"\nthere may be more: --after {rows[-1][0]}", "dim")


def _changing(verb: str, does: str) -> Callable[..., None]:
    """The three commands that change a set differ in the verb alone."""

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
    ("add", "Adds members: from the next tick on, each schedule over the set has a run for them."),
    ("remove", "Removes members. Their runs that nobody has begun are skipped; what runs goes on."),
    ("set", "Brings a set to exactly these: adds who is missing, and removes who is not named."),
):
    commands.command(_verb)(_changing(_verb, _does))


@commands.command("served")
def served(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="One that goes over members.", callback=legible)],
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Only members without a useful completion for so long: 2h, 1d.",
            metavar="TIME",
            callback=legible,
        ),
    ] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """When each member was last served: its last useful completion, by name."""

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
        Column("served", right=True),
        Column("for the tick of", rank=1),
        Column("", shrinks=True),
    )
    print_table(columns, [_row(one, now) for one in found], nothing="nobody" if older_than else "there are no members")
    if len(found) == limit:
        say(f"\nthere may be more: --after {found[-1].member}", "dim")


def _row(one: Standing, now: Instant) -> tuple[str, ...]:
    if one.useful_at is None:
        return one.member, "never", "-", f"a member for {words.length(age(one, now))}"
    tick = "-" if one.useful_tick is None else words.date_time(one.useful_tick)
    return one.member, words.relative(one.useful_at, now), tick, ""


def _given(members: list[str] | None) -> list[str]:
    """Names from the command line, or by line from the input."""
    if members == ["-"]:
        return [line.strip() for line in sys.stdin if line.strip()]
    if not members:
        raise WrongUsage("name the members, or give - to read them from the input")
    return members


def _tell(member_set: str, changed: MembersChanged, as_json: bool) -> None:
    if as_json:
        print_json(changed_shape(member_set, changed))
        return
    done = [
        told
        for count, told in (
            (changed.added, f"{words.counted(changed.added, 'member')} added"),
            (changed.removed, f"{words.counted(changed.removed, 'member')} removed"),
            (changed.skipped, f"{words.counted(changed.skipped, 'run')} of theirs skipped"),
        )
        if count
    ]
    say(f"{member_set}: {', '.join(done) or 'it was so already'}")
