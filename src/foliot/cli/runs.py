"""`foliot runs list` and `show`. Actions on runs are in `recover`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from shlex import quote
from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import (
    MOST_LOOKS,
    AppOption,
    JsonOption,
    RunJobOption,
    RunPrefixOption,
    RunQueueOption,
    RunScheduleOption,
    RunSinceOption,
    RunStateOption,
    RunTenantOption,
    RunUntilOption,
    StoreOption,
    WrongUsage,
    legible,
    read_instant,
    with_store,
)
from foliot.cli.output import (
    Column,
    complain,
    heading,
    print_facts,
    print_items,
    print_json,
    print_table,
    print_timeline,
    say,
    say_indented,
)
from foliot.domain.conditions import Condition, conditions, policy_of
from foliot.domain.identity import attempt_id
from foliot.domain.instant import FIRST, LAST, MILLISECOND, Instant
from foliot.domain.listing import MOST, ListedRun, Order, RunFilter, RunPage, checked, cursor_of
from foliot.domain.listing import read_cursor as place_of
from foliot.domain.members import Lacking
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import PARKED, Outcome, Reason, State
from foliot.errors import InvalidInput
from foliot.operate.advising import Step, batch_name, batch_words
from foliot.operate.limits import held_words
from foliot.operate.members import interval_words
from foliot.operate.shapes import arguments, took
from foliot.operate.story import Kind, Lineage, how_far, lineage_shape, story
from foliot.operate.surveyed import listed_shape

commands = typer.Typer(
    help="Manage runs: list, show, cancel, retry, resume, reconcile, …",
    no_args_is_help=True,
)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, as `runs list` prints it.", callback=legible)
]

COLUMNS = (
    Column("run"),
    Column("state", coloured=True),
    Column("due", right=True),
    Column("late", rank=3, right=True),
    Column("duration", rank=4, right=True),
    Column("attempt", rank=5, right=True),
    Column("job", rank=2),
    Column("reason", rank=1, shrinks=True, least=20),
)
_ERROR_LINES = 12
_MEMBERS = 20


@commands.command("list")
def list_(
    state: RunStateOption = None,
    condition: Annotated[
        list[str] | None,
        typer.Option("--condition", help="Only runs with this condition: late, stuck, … Repeatable, or as a,b."),
    ] = None,
    schedule: RunScheduleOption = None,
    member: Annotated[
        str | None,
        typer.Option("--member", help="Only runs for this member of --schedule.", callback=legible),
    ] = None,
    job: RunJobOption = None,
    tenant: RunTenantOption = None,
    queue: RunQueueOption = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", help="Only runs of this origin: scheduled, delayed, backfill, … Repeatable, or as a,b."
        ),
    ] = None,
    lane: Annotated[
        list[str] | None,
        typer.Option("--lane", help="Only runs in this lane: live, catch-up, backfill. Repeatable, or as a,b."),
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            "--reason", help="Only runs with this reason of their state: overlap, attempts, … Repeatable, or as a,b."
        ),
    ] = None,
    since: RunSinceOption = None,
    until: RunUntilOption = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", help="Only runs with this text in name, detail or error; or a whole id.", callback=legible
        ),
    ] = None,
    prefix: RunPrefixOption = None,
    needs_person: Annotated[bool, typer.Option("--needs-person", help="Only runs that need attention.")] = False,
    soonest: Annotated[bool, typer.Option("--soonest", help="Upcoming runs, soonest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of runs to list.")] = 20,
    cursor: Annotated[
        str | None,
        typer.Option(
            "--cursor",
            "--before",
            help="Continue after this cursor, from the end of the previous page.",
            metavar="CURSOR",
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List waiting, running and ended runs, newest first."""
    if member is not None and schedule is None:
        raise WrongUsage("--member requires --schedule: --schedule NAME --member MEMBER")
    order = Order.SOONEST if soonest else Order.NEWEST
    start, end = (FIRST if since is None else read_instant(since, "--since")), LAST
    end = end if until is None else read_instant(until, "--until")
    wanted = RunFilter(
        states=tuple(states_named(state or [])),
        conditions=tuple(Condition(one) for one in named(condition, Condition, "--condition")),
        schedule=schedule,
        member=member,
        job=job,
        tenant=tenant,
        queue=queue,
        origins=tuple(Origin[one.upper()] for one in named(origin, Origin, "--origin")),
        lanes=tuple(Lane[one.upper().replace("-", "_")] for one in named(lane, Lane, "--lane")),
        reasons=tuple(named(reason, Reason, "--reason")),
        nominal_from=start,
        nominal_to=end,
        prefix=prefix,
        text=text,
        needs_person=needs_person,
        order=order,
    )

    async def look(foliot: Foliot) -> tuple[RunPage, Instant]:
        return await _pages(foliot, wanted, cursor, limit), await foliot.operate.now_async()

    try:
        checked(wanted, 1)
        place_of(order, cursor)
    except InvalidInput as error:
        raise WrongUsage(str(error)) from None
    page, now = with_store(app, store, look)
    if as_json:
        print_json([listed_shape(one) | {"cursor": cursor_of(order, one.view)} for one in page.runs])
    else:
        print_table(COLUMNS, [row(one.view, now, one.conditions) for one in page.runs], nothing="no matching runs")
    if page.cursor is not None and not page.complete:
        complain(f"the search was cut short and may have missed runs: continue with --cursor {page.cursor}")
    elif page.cursor is not None and not as_json:
        say(f"\nmore results: add --cursor {page.cursor}", "dim")


async def _pages(foliot: Foliot, wanted: RunFilter, cursor: str | None, limit: int) -> RunPage:
    """Pages up to the limit. Continues a search that the store cut short, up to MOST_LOOKS times."""
    looks = 0
    found: list[ListedRun] = []
    while True:
        page = await foliot.operate.run_page_async(wanted, cursor=cursor, limit=min(limit - len(found), MOST))
        found += page.runs
        cursor = page.cursor
        looks += not page.complete
        if cursor is None or looks >= MOST_LOOKS or len(found) >= limit:
            return RunPage(found, cursor, page.complete)


def row(view: RunView, now: Instant, held: Sequence[str] = ()) -> tuple[str, ...]:
    """One run in a table with COLUMNS; `held`: the conditions that hold of it."""
    return (
        view.id,
        str(view.state),
        words.relative(view.fire_at, now),
        words.lateness(view.late_by),
        words.length(took(view)),
        str(view.attempt) if view.attempt else "-",
        view.job,
        "; ".join(filter(None, (", ".join(held), _how_far(view), why(view)))),
    )


def _how_far(view: RunView) -> str:
    """`397 of 412`, for a run that has not ended."""
    if view.state not in (State.RUNNING, State.RETRYING, *PARKED):
        return ""
    return ", ".join(f"{batch} {batch_name(batch)}" for batch in view.batches) or how_far(view.progress) or ""


def why(view: RunView) -> str:
    """Reason and detail of a run's state in one phrase; empty without them."""
    told = held_words(view) or ": ".join(text for text in (view.reason, words.brief(view.detail)) if text)
    merged = f" ({view.span_count:,} ticks)" if view.span_count > 1 else ""
    asked = "cancellation requested" if view.cancel_requested else ""
    return words.one_line(told + merged or asked)


@commands.command("show")
def show(run: RunArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one run: facts, timeline and safe next steps."""
    lineage = with_store(app, store, lambda foliot: foliot.operate.lineage_async(run))
    if as_json:
        print_json(lineage_shape(lineage))
        return
    print_facts(_facts(lineage))
    heading("timeline (UTC)")
    print_timeline(timeline(lineage))
    _print_lacking(lineage.view)
    _print_error(lineage.view)
    _print_guidance(lineage)


def timeline(lineage: Lineage) -> list[tuple[str, str, str, str]]:
    """Each line with its time, how long after the line before it was, and its style."""
    rows, before = [], None
    for line in story(lineage):
        passed = "" if before is None or line.at - before < MILLISECOND else f"+{words.length(line.at - before)}"
        rows.append((words.date_time(line.at), passed, line.text, _KINDS.get(line.kind, "")))
        before = line.at
    return rows


_KINDS = {Kind.PERSON: "magenta", Kind.EFFECT: "cyan", Kind.EVENT: "yellow", Kind.ENDED: "bold", Kind.NOW: "bold"}


def _facts(lineage: Lineage) -> dict[str, str]:
    view = lineage.view
    facts = {"run": view.id, "state": str(view.state)}
    if held := conditions(view, policy_of(view, lineage.card), lineage.now):
        facts["condition"] = ", ".join(held)
    if told := why(view):
        facts["reason"] = told
    facts["job"] = view.job
    if view.schedule:
        facts["schedule"] = f"{view.schedule} (revision {view.revision})"
    if view.member:
        facts["member"] = view.member
    if view.interval is not None and interval_words(view.interval) != view.detail:
        facts["members"] = interval_words(view.interval)
    if view.tenant and view.tenant != view.member:
        facts["tenant"] = view.tenant
    facts["origin"] = str(view.origin)
    facts["queue"] = f"{view.queue}, lane {view.lane}" + (f", priority {view.priority}" if view.priority else "")
    if view.interval is None:
        facts["arguments"] = words.one_line(json.dumps(arguments(view), ensure_ascii=False), 1_000)
    for batch in view.batches:
        text = batch_words(batch).removeprefix("items: ")  # the label of the line
        facts["items"] = f"{facts['items']}; {text}" if "items" in facts else text
    if view.progress is not None and not view.batches:
        facts["progress"] = how_far(view.progress) or words.one_line(view.progress.decode("utf-8", "replace"))
    if view.result is not None:
        facts["result"] = words.one_line(view.result.decode("utf-8", "replace"))
    return facts


def _print_lacking(view: RunView) -> None:
    """Prints the unfinished members of a fan-out tick."""
    if view.interval is None or not view.interval.lacking:
        return
    heading("unfinished members")
    rows = [(one.member, str(one.state), _because(one)) for one in view.interval.lacking[:_MEMBERS]]
    columns = (Column("member"), Column("state", coloured=True), Column("reason", shrinks=True))
    print_table(columns, rows, nothing="")
    left = view.interval.members - view.interval.done - len(rows)
    if left > 0:
        say(f"and {left:,} more", "dim")


def _because(one: Lacking) -> str:
    return words.one_line(": ".join(text for text in (one.reason, words.headline(one.detail or "")) if text))


def _print_error(view: RunView) -> None:
    """Prints the error of the last attempt; cuts out the middle of a long one."""
    last = next((attempt for attempt in reversed(view.attempts) if attempt.error), None)
    if last is None or last.error is None or last.outcome is Outcome.SUCCEEDED:
        return
    heading(f"last error ({attempt_id(view.id, last.attempt)})")
    lines = last.error.splitlines()
    cut = [f"… {len(lines) - _ERROR_LINES} lines …"] if len(lines) > _ERROR_LINES else []
    for line in lines[:1] + cut + lines[1:][-(_ERROR_LINES - 1) :]:
        say(f"    {_harmless(line)}", "dim")


def _harmless(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line.expandtabs())


def _print_guidance(lineage: Lineage) -> None:
    told, card = lineage.guidance, lineage.card
    if lineage.view.state is State.HELD:
        say(f'\nto start it now despite the hold: foliot runs release {quote(lineage.view.id)} --reason "..."', "dim")
    if told is None:
        return
    heading("next steps")
    for label in ("owner", "runbook", "changes"):
        if card is not None and getattr(card, label):
            say(f"{label:<9}{getattr(card, label)}")
    say_indented(told.lead, 0)
    say_indented(f"Known facts: {told.advice.why} (class {told.advice.recovery}).", 0)
    print_items(told.counts)
    if told.look:
        say("\ncheck first:")
    print_items(told.look)
    _print_steps("safe steps, safest first:", told.steps, "bold")
    _print_steps("unsafe steps, which require --override:", told.refused, "red")


def _print_steps(title: str, steps: Sequence[Step], style: str) -> None:
    if steps:
        say(f"\n{title}")
    for step in steps:
        say(f"  {step.command or step.action}", style)
        say_indented(step.text, 6, "dim")


def named(given: list[str] | None, known: type[Enum], option: str) -> list[str]:
    """The words of an option with members of an enum, given repeatedly or separated by commas."""
    words = [word.strip().lower() for text in given or () for word in text.split(",")]
    there = [str(one) for one in known]
    for word in words:
        if word not in there:
            raise WrongUsage(f"{option}: unknown value {word!r:.60}; give one of: {', '.join(there)}")
    return words


def states_named(given: list[str]) -> list[State]:
    names = [name.strip().upper() for text in given for name in text.split(",")]
    for name in names:
        if name not in State.__members__:
            raise WrongUsage(f"--state: unknown state {name.lower()!r}; give one of: {', '.join(map(str, State))}")
    return [State[name] for name in names]
