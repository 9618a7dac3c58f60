"""`foliot report`: the outcomes of a day's runs in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Annotated

import typer

from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, WrongUsage, legible, with_store
from foliot.cli.output import STYLES, print_json, say
from foliot.errors import FoliotError
from foliot.operate.report import CAVEATS, Report, Statement, report_shape

_MOST_GOOD = 20
"""Number of successful runs to print; others are always printed."""


def report(
    subject: Annotated[
        str, typer.Argument(metavar="JOB_OR_SCHEDULE", help="The name of a job or a schedule.", callback=legible)
    ],
    on: Annotated[
        str | None,
        typer.Option("--on", help="Day of the report: 2026-04-03. Default: today.", metavar="DATE", callback=legible),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option(
            "--tz",
            help="Time zone of the day. Default: the schedule's zone, else UTC.",
            metavar="ZONE",
            callback=legible,
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report the outcome of each run of a day, from recorded facts.

    Exit 1 if a run is not done. Exit 2 if there is no report: wrong usage, no store, an unknown name.
    """
    day = None if on is None else _read_date(on)
    try:
        made = with_store(app, store, lambda foliot: foliot.operate.report_async(subject, day, tz))
    except FoliotError as error:  # exit 1 would mean to a waiting script: not done yet
        raise WrongUsage(str(error)) from error
    if as_json:
        print_json(report_shape(made))
    else:
        _print(made)
    if not made.is_good:
        raise typer.Exit(1)


def _print(made: Report) -> None:
    where = f"{made.subject} on {made.date.isoformat()} ({made.tz})"
    if not made.statements:
        say(f"{where}: no run was due")
        return
    tally = Counter(str(one.verdict) for one in made.statements)
    say(f"{where}: {words.listed([f'{count:,} {verdict}' for verdict, count in tally.most_common()], 20)}", "bold")
    shown = _worth_telling(made.statements)
    caveats = Counter(one.caveat for one in made.statements if one.caveat)
    for one in shown:
        text = one.text.removesuffix(one.caveat).rstrip() if caveats[one.caveat] > 1 else one.text
        say(text, "" if one.is_good else STYLES.get(str(one.verdict), "yellow"))
    if left := len(made.statements) - len(shown):
        say(f"{left:,} more succeeded; use --json to list them", "dim")
    for caveat, count in caveats.items():
        if count > 1:
            say(f"{count:,} of these runs {CAVEATS[caveat]}", "dim")


def _worth_telling(statements: Sequence[Statement]) -> list[Statement]:
    good = {id(one) for one in [one for one in statements if one.is_good][:_MOST_GOOD]}
    return [one for one in statements if not one.is_good or id(one) in good]


def _read_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"--on: {text!r:.40} is not a date; write it as 2026-04-03") from None
