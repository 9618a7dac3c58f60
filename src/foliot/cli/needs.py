"""`foliot needs`: runs and schedules that need attention, with the safe next steps."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot.cli import words
from foliot.cli.options import AppOption, CursorOption, JsonOption, RunTenantOption, StoreOption, WrongUsage, with_store
from foliot.cli.output import STYLES, print_json, say, say_indented
from foliot.cli.runs import named
from foliot.domain.instant import Instant
from foliot.domain.listing import Order
from foliot.domain.listing import read_cursor as place_of
from foliot.errors import InvalidInput
from foliot.operate.surveyed import need_shape
from foliot.operate.surveying import Kind, Need, kind_words


def needs(
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", help="Only these kinds: ambiguous, settled, dead, stuck, in_a_row, … Repeatable, or as a,b."
        ),
    ] = None,
    tenant: RunTenantOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Number of runs to list.")] = 20,
    cursor: CursorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs and schedules that need attention. Shows the cause of each, and the safe next steps.
    These are ambiguous, settled, unverified, dead and stuck runs, and schedules that failed three times in a row or
    were set aside.
    """
    kinds = [Kind(one) for one in named(kind, Kind, "--kind")]
    try:
        place_of(Order.NEWEST, cursor)
    except InvalidInput as error:
        raise WrongUsage(str(error)) from None
    page = with_store(
        app,
        store,
        lambda foliot: foliot.operate.needs_person_async(kinds, tenant=tenant, cursor=cursor, limit=limit),
    )
    if as_json:
        print_json([need_shape(need) for need in page.needs])
        return
    if not page.needs:
        say("no run or schedule needs attention", "green")
    for need in page.needs:
        _print(need, page.now)
    if page.cursor is not None:
        say(f"\nmore results: add --cursor {page.cursor}", "dim")


def _print(need: Need, now: Instant) -> None:
    since = "" if need.since is None else f", {words.relative(need.since, now)}"
    kind = kind_words(need.kind)
    say(f"{need.subject}: {kind}{since}", STYLES.get(str(need.kind), "bold yellow"))
    whose = [f"owner {need.owner}" if need.owner else "", f"runbook {need.runbook}" if need.runbook else ""]
    for line in (f"{need.what} {need.why[:1].upper()}{need.why[1:]}.", "; ".join(filter(None, whose))):
        if line:
            say_indented(words.one_line(line, 600), 2, "dim")
    for text in need.counts:
        say_indented(words.one_line(text, 400), 2)
    for text in need.look:
        say_indented(f"check first: {words.one_line(text, 400)}", 2)
    commands = [step for step in need.steps if step.command]
    for step in commands:
        say(f"  {step.command}")
        say_indented(step.text, 6, "dim")
    if need.command and not commands:
        say(f"  {need.command}")
