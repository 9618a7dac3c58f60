"""`pause` and `resume` of jobs, queues and tenants, and pauses in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli.options import (
    ActorOption,
    AppOption,
    ForOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    UntilOption,
    WhatOption,
    acting,
    legible,
    read_ending,
    read_whats,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, print_json, say
from foliot.domain.pauses import Pause
from foliot.operate.pausing import brief, pauses_of
from foliot.operate.shapes import Shape, pause_shape
from foliot.operate.words import to_the_second

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name, as the `list` command prints it.", callback=legible)
]
CatchUpOption = Annotated[
    bool, typer.Option("--catch-up", help="Treat ticks due during the pause as missed: the catch-up policy applies.")
]
PAUSED = Column("paused", coloured=True, shrinks=True)
_HINTS = {
    "job": "no worker has registered this job",
    "queue": "no worker serves this queue, and no job uses it",
    "tenant": "",
}


def add_pausing(commands: typer.Typer, kind: str) -> None:
    """Adds `pause` and `resume` to a group of commands."""

    def pause(
        name: NameArgument,
        what: WhatOption = None,
        length: ForOption = None,
        until: UntilOption = None,
        reason: ReasonOption = None,
        actor: ActorOption = None,
        app: AppOption = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
    ) -> None:
        why, whats, ending = stated_reason(reason), read_whats(what), read_ending(length, until)

        async def act(foliot: Foliot) -> tuple[list[Pause], bool]:
            end = await ending.instant(foliot)
            made = await foliot.operate.pause_of_async(
                kind, name, what=whats, until=end, reason=why, actor=acting(actor)
            )
            is_known = kind != "queue" or name in {one.queue for one in await foliot.operate.queues_async()}
            return made, is_known

        made, is_known = with_store(app, store, act)
        if as_json:
            print_json([pause_shape(one) for one in made])
            return
        print_paused(name, made)
        if not is_known:
            say(f"note: {_HINTS[kind]}", "yellow")

    def resume(
        name: NameArgument,
        what: WhatOption = None,
        catch_up: CatchUpOption = False,
        reason: ReasonOption = None,
        actor: ActorOption = None,
        app: AppOption = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
    ) -> None:
        why, whats = stated_reason(reason), read_whats(what)
        ended = with_store(
            app,
            store,
            lambda foliot: foliot.operate.resume_of_async(
                kind, name, what=whats, catch_up=catch_up, reason=why, actor=acting(actor)
            ),
        )
        if as_json:
            print_json([pause_shape(one) for one in ended])
        else:
            print_resumed(name, ended)

    pause.__doc__ = f"Pause a {kind}. Its waiting runs do not start; running ones continue. --what pauses other parts."
    resume.__doc__ = f"End all pauses of a {kind}, or those of --what. Held runs continue."
    commands.command("pause")(pause)
    commands.command("resume")(resume)


def print_paused(name: str, made: Sequence[Pause]) -> None:
    for one in made:
        end = "until it is resumed" if one.until is None else f"until {to_the_second(one.until)}"
        say(f"paused {one.what} of {name} {end}")


def print_resumed(name: str, ended: Sequence[Pause]) -> None:
    for one in ended:
        say(f"resumed {one.what} of {name}, paused {one.actor and 'by ' + one.actor} since {to_the_second(one.since)}")
    if not ended:
        say(f"{name} was not paused")


def with_pauses(shape: Shape, pauses: Iterable[Pause], name: str) -> Shape:
    """A JSON object with the pauses of its subject."""
    return shape | {"pauses": [pause_shape(one) for one in pauses_of(pauses, name)]}


def paused_words(pauses: Iterable[Pause], name: str) -> str:
    return brief(pauses_of(pauses, name)).removeprefix("paused ").strip("()") or "-"
