"""`foliot backfill`: start, list, show, pause, resume, rate, cancel."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import date
from typing import Annotated, Any, NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    FollowOption,
    JsonOption,
    ReasonOption,
    ScheduleArgument,
    StoreOption,
    WrongUsage,
    acting,
    legible,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, console, heading, print_facts, print_json, print_table, say
from foliot.domain.backfill import MOST_AT_ONCE, MOST_IN_A_ROW, MOST_TICKS, Backfill, BackfillState, Preview
from foliot.domain.instant import Instant, parse_rfc3339, rfc3339
from foliot.errors import InvalidInput
from foliot.operate.backfilling import (
    BackfillView,
    backfill_shape,
    pace_words,
    preview_shape,
    progress_shape,
    taken_words,
)

commands = typer.Typer(help="Manage backfills of past ticks: start, list, show, pause, …", no_args_is_help=True)

_AT_ONCE = "Maximum number of unfinished runs of the backfill."
NumberArgument = Annotated[
    int, typer.Argument(metavar="ID", min=1, help="The number of a backfill, as `backfill list` prints it.")
]
RateOption = Annotated[
    str | None,
    typer.Option("--rate", help="Runs to create per unit of time: 10/m, 5/s, 500/h.", metavar="RATE", callback=legible),
]
WindowOption = Annotated[
    str | None,
    typer.Option("--window", help="Create runs only in these hours: 22:00-06:00.", metavar="HOURS", callback=legible),
]
ZoneOption = Annotated[
    str, typer.Option("--tz", help="Time zone of --window: Europe/Paris.", metavar="ZONE", callback=legible)
]


_MOST_WITH_YES = 100 * MOST_TICKS
_SHOWN = 20
"""Ticks with a run that a preview lists one by one."""
_LOOK_EVERY = 0.5
"""Seconds between two looks of --follow."""


@commands.command("start")
def start(
    schedule: ScheduleArgument,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Start of the period: 2026-04-01T00:00:00Z, or a date (midnight in the rule's zone).",
            metavar="TIME",
            callback=legible,
        ),
    ],
    end: Annotated[
        str, typer.Option("--to", help="End of the period; a tick at this instant is not included.", metavar="TIME")
    ],
    rate: RateOption = None,
    at_once: Annotated[int, typer.Option("--at-once", help=_AT_ONCE, min=1, max=MOST_AT_ONCE)] = 1,
    window: WindowOption = None,
    tz: ZoneOption = "UTC",
    newest_first: Annotated[
        bool, typer.Option("--newest-first", help="Create runs for the newest ticks first.")
    ] = False,
    stop_after: Annotated[
        int,
        typer.Option(
            "--stop-after", help="Pause after this number of failures in a row; 0: never.", min=0, max=MOST_TICKS
        ),
    ] = MOST_IN_A_ROW,
    dry_run: DryRunOption = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation; allow more than 100,000 ticks.")
    ] = False,
    follow: FollowOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create runs for past ticks that have none. They use the backfill lane.

    Shows a preview and asks for confirmation.
    """
    why = "" if dry_run else stated_reason(reason)
    if not (dry_run or yes) and (as_json or not sys.stdin.isatty()):
        raise WrongUsage("confirmation needs a terminal: preview with --dry-run, then add --yes")
    pace: dict[str, Any] = {"rate": rate, "at_once": at_once, "window": window, "tz": tz}
    edges = _edge(begin, "--from"), _edge(end, "--to")
    most = _MOST_WITH_YES if yes else MOST_TICKS
    seen: Preview | None = None
    if dry_run or not as_json:
        seen = with_store(
            app, store, lambda foliot: foliot.operate.preview_backfill_async(schedule, *edges, **pace, most=most)
        )
        if as_json:
            print_json(preview_shape(seen))
        else:
            _print_preview(seen)
        if dry_run or not (yes or typer.confirm(f"create {words.counted(seen.new, 'run')}?")):
            return
    made = with_store(
        app,
        store,
        lambda foliot: foliot.operate.backfill_async(
            schedule,
            *edges,
            **pace,
            reason=why,
            actor=acting(actor),
            newest_first=newest_first,
            stop_after=stop_after or None,
            most=most,
            revision=None if seen is None else seen.revision,
        ),
    )
    if follow:
        _follow(made.number, app, store, as_json)
    else:
        _tell(made, f"started backfill {made.number}: {words.counted(made.total, 'tick')}", as_json)


def _edge(text: str, option: str) -> date | Instant:
    """A date, or an instant with its offset."""
    try:
        return date.fromisoformat(text) if len(text) == len("2026-04-01") else parse_rfc3339(text)
    except (ValueError, InvalidInput):
        message = f"{option} {text!r:.80}: write it as 2026-04-03T02:00:00Z, or as a date: 2026-04-03"
        raise WrongUsage(message) from None


def _print_preview(preview: Preview) -> None:
    facts = {
        "schedule": preview.schedule,
        "interval": f"{rfc3339(preview.start)} to {rfc3339(preview.end)}",
        "ticks": f"{preview.total:,}, from {_shown(preview.first)} to {_shown(preview.last)}",
        "new runs": f"{preview.new:,}",
        "pace": pace_words(preview.pace),
        "takes": "unknown: no run of this job has ended yet, and there is no rate",
    }
    if preview.lasting is not None:
        end = "" if preview.ends_at is None else f"; would end at about {_minute(preview.ends_at)}"
        facts["duration"] = f"about {words.length(preview.lasting)}{end}"
    print_facts(facts)
    if preview.taken:
        _print_taken(preview)


def _print_taken(preview: Preview) -> None:
    say("")
    say(taken_words(preview))
    columns = (Column("tick"), Column("state", coloured=True), Column("run", rank=1), Column("reason", shrinks=True))
    rows = [(rfc3339(one.nominal), str(one.state), one.run, one.reason or "") for one in preview.taken[:_SHOWN]]
    print_table(columns, rows, nothing="")
    if len(preview.taken) > _SHOWN:
        counts = Counter(str(one.state) for one in preview.taken)
        listed = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
        say(f"... and {len(preview.taken) - _SHOWN:,} more; in total {listed}")


def _shown(when: Instant | None) -> str:
    return "-" if when is None else rfc3339(when)


def _minute(when: Instant) -> str:
    """As exact as an estimate is."""
    return rfc3339(when)[:16].replace("T", " ") + " UTC"


# --------------------------------------------------------------------------------------------------------------- seeing


@commands.command("list")
def list_(
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="Only backfills of this schedule.", callback=legible)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Number of backfills to list.")] = 50,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List backfills, newest first."""

    async def look(foliot: Foliot) -> tuple[list[Backfill], Instant]:
        return await foliot.operate.backfills_async(schedule=schedule, limit=limit), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([backfill_shape(one) for one in found])
        return
    columns = (
        Column("id", right=True),
        Column("schedule"),
        Column("state", coloured=True),
        Column("ticks", right=True),
        Column("remaining", right=True),
        Column("period start", rank=2),
        Column("period end", rank=2),
        Column("started", rank=1, right=True),
        Column("reason", rank=3, shrinks=True),
    )
    print_table(columns, [_row(one, now) for one in found], nothing="no backfills")


def _row(backfill: Backfill, now: Instant) -> tuple[str, ...]:
    return (
        str(backfill.number),
        backfill.schedule,
        str(backfill.state),
        f"{backfill.total:,}",
        f"{backfill.left:,}",
        rfc3339(backfill.start),
        rfc3339(backfill.end),
        words.relative(backfill.made_at, now),
        backfill.reason or backfill.note,
    )


@commands.command("show")
def show(
    backfill: NumberArgument,
    follow: FollowOption = False,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one backfill: progress, outcomes and expected end."""
    if follow:
        _follow(backfill, app, store, as_json)
        return
    view = with_store(app, store, lambda foliot: foliot.operate.backfill_progress_async(backfill))
    if as_json:
        print_json(progress_shape(view))
    else:
        print_facts(_facts(view))
        if view.progress.waiting_for_people:
            heading("needs attention")
            say(f"foliot runs list --schedule {view.backfill.schedule} --state dead,ambiguous,unverified,settled")


def _facts(view: BackfillView) -> dict[str, str]:
    backfill, progress = view.backfill, view.progress
    now = progress.at
    facts = {
        "backfill": f"{backfill.number} of {backfill.schedule} (revision {backfill.revision})",
        "state": str(backfill.state),
        "interval": f"{rfc3339(backfill.start)} to {rfc3339(backfill.end)}",
        "order": "newest first" if backfill.newest_first else "oldest first",
        "pace": pace_words(backfill.pace),
        "progress": f"{progress.settled:,} of {backfill.total:,} ticks ({_share(view):.0%})",
        "created": f"{backfill.made:,}; {backfill.existed:,} ticks had a run; {backfill.left:,} left",
        "runs": ", ".join(f"{count:,} {state}" for state, count in sorted(progress.states.items())) or "none yet",
        "started": f"{words.relative(backfill.made_at, now)} by {backfill.actor}: {words.one_line(backfill.note)}",
    }
    if backfill.reason is not None:
        facts["paused"] = words.one_line(backfill.reason)
    if backfill.ended_at is not None:
        facts["ended"] = words.relative(backfill.ended_at, now)
    elif view.ends_at is not None:
        facts["ends"] = f"{words.relative(view.ends_at, now)}, at about {_minute(view.ends_at)}"
    return facts


def _share(view: BackfillView) -> float:
    return view.progress.settled / max(view.backfill.total, 1)


# --------------------------------------------------------------------------------------------------------------- acting


@commands.command("pause")
def pause(
    backfill: NumberArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create no further runs until the backfill is resumed. Runs that exist continue."""
    turn = _Turn(stated_reason(reason), acting(actor), app, store)
    made = turn.act(lambda foliot, said: foliot.operate.pause_backfill_async(backfill, **said))
    _tell(made, f"paused backfill {backfill}; {made.left:,} ticks left", as_json)


@commands.command("resume")
def resume(
    backfill: NumberArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue a paused backfill. The count of failures in a row restarts."""
    turn = _Turn(stated_reason(reason), acting(actor), app, store)
    made = turn.act(lambda foliot, said: foliot.operate.resume_backfill_async(backfill, **said))
    _tell(made, f"resumed backfill {backfill}; {made.left:,} ticks left", as_json)


@commands.command("rate")
def change_rate(
    backfill: NumberArgument,
    rate: Annotated[
        str | None,
        typer.Argument(metavar="RATE", help="Runs to create per unit of time: 5/s; any: no limit.", callback=legible),
    ] = None,
    at_once: Annotated[int | None, typer.Option("--at-once", help=_AT_ONCE, min=1, max=MOST_AT_ONCE)] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            help="Create runs only in these hours: 22:00-06:00; any: always.",
            metavar="HOURS",
            callback=legible,
        ),
    ] = None,
    tz: ZoneOption = "UTC",
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the pace of a backfill: rate, runs at a time, or window."""
    turn = _Turn(stated_reason(reason), acting(actor), app, store)
    made = turn.act(
        lambda foliot, said: foliot.operate.pace_backfill_async(
            backfill, **said, rate=rate, at_once=at_once, window=window, tz=tz
        )
    )
    _tell(made, f"backfill {backfill}: {pace_words(made.pace)}", as_json)


@commands.command("cancel")
def cancel(
    backfill: NumberArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a backfill. Its runs that have not started are cancelled; running ones continue."""
    turn = _Turn(stated_reason(reason), acting(actor), app, store)
    made = turn.act(lambda foliot, said: foliot.operate.cancel_backfill_async(backfill, **said))
    _tell(made, f"cancelled backfill {backfill}; {made.left:,} ticks got no run", as_json)


class _Turn(NamedTuple):
    """An action on a backfill, with its actor, reason, app and store."""

    reason: str
    actor: str
    app: str | None
    store: str | None

    def act(self, verb: Callable[[Foliot, dict[str, str]], Coroutine[Any, Any, Backfill]]) -> Backfill:
        said = {"reason": self.reason, "actor": self.actor}
        return with_store(self.app, self.store, lambda foliot: verb(foliot, said))


def _tell(backfill: Backfill, text: str, as_json: bool) -> None:
    if as_json:
        print_json(backfill_shape(backfill))
    else:
        say(text)


# ------------------------------------------------------------------------------------------------------------ following


def _follow(number: int, app: str | None, store: str | None, as_json: bool) -> None:
    """Shows progress until the backfill ends or is paused. Exits with 1 when it is paused: it needs attention."""
    try:
        view = with_store(app, store, lambda foliot: _followed(foliot, number, is_shown=not as_json))
    except KeyboardInterrupt:
        say(f"backfill {number} continues; see foliot backfill show {number}")
        return
    if as_json:
        print_json(progress_shape(view))
    else:
        print_facts(_facts(view))
    if view.backfill.state is not BackfillState.DONE:
        raise typer.Exit(1)


async def _followed(foliot: Foliot, number: int, *, is_shown: bool) -> BackfillView:
    view = await foliot.operate.backfill_progress_async(number)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        console=console(),
        disable=not is_shown or not console().is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(view.backfill.schedule, total=view.backfill.total, counts="")
        while view.backfill.state is BackfillState.RUNNING:
            bar.update(task, completed=view.progress.settled, counts=_glance(view))
            await asyncio.sleep(_LOOK_EVERY)
            view = await foliot.operate.backfill_progress_async(number)
    return view


def _glance(view: BackfillView) -> str:
    """`3 running, 1 dead; done in 12 min`."""
    states = {state: count for state, count in sorted(view.progress.states.items()) if str(state) != "succeeded"}
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    counts = counts or ("waiting" if view.backfill.left else "all runs ended")
    end = "" if view.ends_at is None else f"; done {words.relative(view.ends_at, view.progress.at)}"
    return f"{counts}{end}"
