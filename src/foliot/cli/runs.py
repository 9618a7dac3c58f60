"""`foliot runs`: list, show (the whole lineage), cancel, retry."""

from __future__ import annotations

import json
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
from foliot.cli.output import STYLES, Column, heading, print_facts, print_json, print_table, say
from foliot.domain.identity import attempt_id
from foliot.domain.instant import Instant
from foliot.domain.run import AttemptView, RunView
from foliot.domain.state import State
from foliot.domain.store import EventRow, JobCard
from foliot.operate.shapes import advice, arguments, attempt_took, kept_shape, lineage_shape, run_shape, took

commands = typer.Typer(help="Occurrences: list, show, cancel, retry.", no_args_is_help=True)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, as `runs list` prints it.", callback=legible)
]

COLUMNS = (
    Column("run"),
    Column("state", coloured=True),
    Column("due", right=True),
    Column("late", rank=3, right=True),
    Column("took", rank=4, right=True),
    Column("try", rank=5, right=True),
    Column("job", rank=2),
    Column("why", rank=1, shrinks=True),
)
_ERROR_LINES = 12


@commands.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only these: dead, running, … Several are allowed.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="Only runs of this schedule.", callback=legible)
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only runs of this job.", callback=legible)] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only runs of this tenant.", callback=legible)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", help="Go on after the page that ended with this cursor.", metavar="CURSOR")
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs, newest first: waiting, running and ended ones together."""
    states = _states(state or [])
    position = _cursor(before)

    async def look(foliot: Foliot) -> tuple[list[RunView], Instant]:
        found = await foliot.operate.runs_async(
            states=states, schedule=schedule, job=job, tenant=tenant, limit=limit, before=position
        )
        return found, await foliot.operate.now_async()

    views, now = with_store(app, store, look)
    if as_json:
        print_json([run_shape(view) for view in views])
        return
    print_table(COLUMNS, [row(view, now) for view in views], nothing="no such runs")
    if len(views) == limit:
        say(f"\nthere may be more: --before {views[-1].number}", "dim")


def row(view: RunView, now: Instant) -> tuple[str, ...]:
    """One run in a table with COLUMNS."""
    return (
        view.id,
        str(view.state),
        words.relative(view.fire_at, now),
        words.lateness(view.late_by),
        words.length(took(view)),
        str(view.attempt) if view.attempt else "-",
        view.job,
        why(view),
    )


def why(view: RunView) -> str:
    """Reason and detail in one phrase; empty for a run about which there is nothing to explain."""
    told = ": ".join(text for text in (view.reason, words.headline(view.detail or "")) if text)
    merged = f" ({view.span_count:,} ticks)" if view.span_count > 1 else ""
    asked = "asked to stop" if view.cancel_requested else ""
    return words.one_line(told + merged or asked)


@commands.command("show")
def show(run: RunArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """One run's whole lineage: made, due, fired, claimed, every attempt, and what to do if it waits for you."""

    async def look(foliot: Foliot) -> tuple[RunView, list[EventRow], JobCard | None, Instant]:
        view = await foliot.operate.run_async(run)
        events = await foliot.operate.events_of_async(view.id)
        return view, events, (await foliot.operate.jobs_async()).get(view.job), await foliot.operate.now_async()

    view, events, card, now = with_store(app, store, look)
    if as_json:
        print_json(lineage_shape(view, events))
        return
    print_facts(_facts(view))
    heading("its life (UTC)")
    print_facts(_life(view, now))
    if view.attempts:
        heading("attempts")
        for attempt in view.attempts:
            _print_attempt(view, attempt)
    if events:
        heading("events")
        for event in events:
            say(f"{words.date_time(event.at)}  {event.kind}  {words.one_line(event.detail)}")
    _print_advice(view, card)


def _facts(view: RunView) -> dict[str, str]:
    facts = {"run": view.id, "state": str(view.state)}
    if told := why(view):
        facts["why"] = told
    facts["job"] = view.job
    if view.schedule:
        facts["schedule"] = f"{view.schedule} (revision {view.revision})"
    if view.tenant:
        facts["tenant"] = view.tenant
    facts["origin"] = str(view.origin)
    facts["queue"] = f"{view.queue}, lane {view.lane}" + (f", priority {view.priority}" if view.priority else "")
    facts["arguments"] = words.one_line(json.dumps(arguments(view), ensure_ascii=False), 1_000)
    if view.progress is not None:
        facts["progress"] = words.one_line(view.progress.decode("utf-8", "replace"))
    if view.result is not None:
        facts["result"] = words.one_line(view.result.decode("utf-8", "replace"))
    return facts


def _life(view: RunView, now: Instant) -> dict[str, str]:
    life = {"made": words.date_time(view.made_at)}
    if view.nominal != view.fire_at:
        life["nominal"] = words.date_time(view.nominal)
    life["due"] = f"{words.date_time(view.fire_at)}  ({words.relative(view.fire_at, now)})"
    for label, when in (("fired", view.fired_at), ("claimed", view.claimed_at)):
        if when is not None:
            life[label] = f"{words.date_time(when)}  ({words.lateness(when - view.fire_at)})"
    if view.started_at is not None:
        life["started"] = f"{words.date_time(view.started_at)}  ({words.lateness(view.late_by)})"
    if view.finished_at is not None:
        ended = took(view)
        lasted = "" if ended is None else f"  (took {words.length(ended)})"
        life["ended"] = f"{words.date_time(view.finished_at)}{lasted}"
    return life


def _print_attempt(view: RunView, attempt: AttemptView) -> None:
    outcome = "running" if attempt.outcome is None else str(attempt.outcome)
    worker = "" if attempt.worker is None else f" on worker {attempt.worker}"
    began = "" if attempt.started_at is None else f", began {words.date_time(attempt.started_at)}"
    lasted = attempt_took(attempt)
    took_words = "" if lasted is None else f", took {words.length(lasted)}"
    say(f"{attempt_id(view.id, attempt.attempt)}  {outcome}{worker}{began}{took_words}", STYLES.get(outcome, ""))
    if attempt.error:
        lines = attempt.error.splitlines()
        cut = [f"… {len(lines) - _ERROR_LINES} lines …"] if len(lines) > _ERROR_LINES else []
        for line in lines[:1] + cut + lines[1:][-(_ERROR_LINES - 1) :]:
            say(f"    {_harmless(line)}", "dim")


def _harmless(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line.expandtabs())


def _print_advice(view: RunView, card: JobCard | None) -> None:
    told = advice(view)
    if told is None:
        return
    heading("what to do")
    for label in ("owner", "runbook", "changes"):
        if card is not None and getattr(card, label):
            say(f"{label:<9}{getattr(card, label)}")
    override = " --override" if view.state is State.AMBIGUOUS else ""
    say(told)
    say(f'foliot runs retry "{view.id}"{override} --reason "..."', "bold")


@commands.command("cancel")
def cancel(
    run: RunArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ends a run that has not begun; asks a running one to stop."""
    why_ = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.cancel_async(run, reason=why_, actor=acting(actor)))
    if as_json:
        print_json(kept_shape(kept))
    elif kept.state is State.RUNNING:
        say(f"asked {kept.id} to stop; it runs until its handler heeds that")
    else:
        say(f"{kept.outcome} {kept.id}")


@commands.command("retry")
def retry(
    run: RunArgument,
    reason: ReasonOption = None,
    override: Annotated[
        bool, typer.Option("--override", help="Retry an ambiguous run: its effect may happen a second time.")
    ] = False,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Makes a dead, unverified or ambiguous run due again now, with its attempts renewed."""
    why_ = stated_reason(reason)
    kept = with_store(
        app,
        store,
        lambda foliot: foliot.operate.retry_async(run, reason=why_, actor=acting(actor), override=override),
    )
    if as_json:
        print_json(kept_shape(kept))
    else:
        say(f"{kept.outcome} {kept.id}; due now")


def _states(given: list[str]) -> list[State]:
    names = [name.strip().upper() for text in given for name in text.split(",")]
    for name in names:
        if name not in State.__members__:
            raise WrongUsage(f"--state: there is no state {name.lower()!r}; there are: {', '.join(map(str, State))}")
    return [State[name] for name in names]


def _cursor(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 19:
        raise WrongUsage(f"--before: {given!r:.40} is not a cursor; give the one that the last page ended with")
    return int(given)
