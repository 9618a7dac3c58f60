"""`foliot dead`: list dead letters, and replay them in bulk."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    JsonOption,
    OverrideOption,
    ReasonOption,
    ReplayRateOption,
    RunJobOption,
    RunScheduleOption,
    RunSinceOption,
    RunTenantOption,
    RunUntilOption,
    StoreOption,
    WrongUsage,
    YesOption,
    acting,
    legible,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, console, print_facts, print_json, print_table, say
from foliot.domain.instant import Instant, parse_rfc3339
from foliot.domain.replay import Fate
from foliot.errors import InvalidInput
from foliot.operate.replaying import (
    MOST_LETTERS,
    DeadWanted,
    Judged,
    Outcome,
    ReplayPreview,
    dead_shape,
    outcomes_shape,
    replay_preview_shape,
)

T = TypeVar("T")

commands = typer.Typer(help="Manage dead letters, runs that failed for good: list, replay.", no_args_is_help=True)

WhyOption = Annotated[
    str | None,
    typer.Option(
        "--why", help="Only runs that failed for this reason: attempts, permanent, too_old, …", callback=legible
    ),
]

_SHOWN = 20
"""Runs that were not replayed and are listed one by one."""


@commands.command("list")
def list_(
    job: RunJobOption = None,
    schedule: RunScheduleOption = None,
    tenant: RunTenantOption = None,
    why: WhyOption = None,
    since: RunSinceOption = None,
    until: RunUntilOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Number of runs to list.")] = 50,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, oldest first. Shows the cause of each and whether a replay is safe."""
    wanted = _wanted(job, schedule, tenant, why, since, until)

    async def look(foliot: Foliot) -> tuple[list[Judged], Instant]:
        return await foliot.operate.dead_async(limit=limit, **wanted), await foliot.operate.now_async()

    found, now = with_store(app, store, look)
    if as_json:
        print_json([dead_shape(one) for one in found])
        return
    columns = (
        Column("run"),
        Column("due", right=True),
        Column("attempt", rank=4, right=True),
        Column("job", rank=2),
        Column("tenant", rank=3),
        Column("replay", coloured=True),
        Column("reason", rank=1, wraps=True, least=16),
    )
    print_table(columns, [_row(one, now) for one in found], nothing="no dead letters")
    if len(found) == limit:
        say(f"\nonly the first {limit:,} dead letters are shown: raise --limit", "dim")


def _row(one: Judged, now: Instant) -> tuple[str, ...]:
    view = one.letter.view
    died = ": ".join(text for text in (view.reason, words.headline(view.detail or "")) if text)
    return (
        view.id,
        words.relative(view.nominal, now),
        str(view.attempt) if view.attempt else "-",
        view.job,
        view.tenant or "-",
        "yes" if one.goes else _said(one.fate),
        died if one.problem is None else f"{died}; {one.problem}",
    )


@commands.command("replay")
def replay(
    job: RunJobOption = None,
    schedule: RunScheduleOption = None,
    tenant: RunTenantOption = None,
    why: WhyOption = None,
    since: RunSinceOption = None,
    until: RunUntilOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST_LETTERS, help="Replay at most this number of runs.")
    ] = MOST_LETTERS,
    rate: ReplayRateOption = None,
    override: OverrideOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry dead letters in the backfill lane, with new attempts. Shows a preview and asks for confirmation."""
    stated = "" if dry_run else stated_reason(reason)
    refuse_blind(dry_run=dry_run, yes=yes, as_json=as_json)
    wanted = _wanted(job, schedule, tenant, why, since, until)
    given: dict[str, Any] = {"rate": rate, "override": override, "limit": limit}
    place = Place(app, store)
    if dry_run or not as_json:
        seen = place.call(lambda foliot: foliot.operate.preview_replay_async(**given, **wanted))
        if as_json:
            print_json(replay_preview_shape(seen))
        else:
            _print_preview(seen, rate)
        if dry_run or not seen.would or not (yes or typer.confirm(f"replay {words.counted(seen.would, 'run')}?")):
            return
        given["limit"] = max(seen.total, 1)
    with bar(is_shown=not as_json, title="replayed", total=given["limit"]) as shown:
        told = place.call(
            lambda foliot: foliot.operate.replay_dead_async(
                reason=stated, actor=acting(actor), progress=shown, **given, **wanted
            )
        )
    tell(told, as_json, "replayed")


def _wanted(
    job: str | None, schedule: str | None, tenant: str | None, why: str | None, since: str | None, until: str | None
) -> DeadWanted:
    return {
        "job": job,
        "schedule": schedule,
        "tenant": tenant,
        "why": why,
        "since": None if since is None else when(since, "--since"),
        "until": None if until is None else when(until, "--until"),
    }


def when(text: str, option: str) -> Instant:
    try:
        return parse_rfc3339(text)
    except InvalidInput:
        raise WrongUsage(f"{option} {text!r:.80}: write it as 2026-04-03T02:00:00Z") from None


def _print_preview(seen: ReplayPreview, rate: str | None) -> None:
    facts = {
        "dead letters": f"{seen.total:,}",
        "replays": f"{seen.would:,}, in the backfill lane",
        "rate": "all at once" if rate is None else f"{rate}, the last run in {words.length(seen.lasting)}",
    }
    for fate in sorted({kind[0] for kind in seen.refused}):
        kinds = [kind for kind in seen.refused if kind[0] is fate]
        facts[_said(fate)] = "; ".join(f"{seen.refused[kind]:,}: {kind[1]} ({seen.examples[kind]})" for kind in kinds)
    if seen.would:
        more = seen.would - len(seen.sample)
        listed = ", ".join(one.letter.view.id for one in seen.sample)
        facts["examples"] = listed + (f", and {more:,} more" if more else "")
    print_facts(facts)


# ------------------------------------------------------------------------------------------- what bulks have in common


class Place(NamedTuple):
    """The app and store options of a command."""

    app: str | None
    store: str | None

    def call(self, verb: Callable[[Foliot], Awaitable[T]]) -> T:
        return with_store(self.app, self.store, verb)


def refuse_blind(*, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Requires --dry-run or --yes where no person can confirm: operators see the number of runs before they act."""
    if not (dry_run or yes) and (as_json or not sys.stdin.isatty()):
        raise WrongUsage("confirmation needs a terminal: preview with --dry-run, then add --yes")


@contextmanager
def bar(*, is_shown: bool, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, on a terminal."""
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        console=console(),
        disable=not is_shown or not console().is_terminal,
        transient=True,
    )
    with shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.update(task, completed=done)


def tell(told: list[Outcome], as_json: bool, done: str) -> None:
    """Prints the outcomes; exits with 1 when an action was refused or failed."""
    if as_json:
        print_json(outcomes_shape(told))
    else:
        print_outcomes(told, done)
    if not all(one.is_good for one in told):
        raise typer.Exit(1)


def print_outcomes(told: list[Outcome], done: str) -> None:
    left = [one for one in told if not one.is_done]
    counts = Counter(_said(one.fate) for one in left)
    others = [f"{count:,} {fate}" for fate, count in sorted(counts.items())]
    say("; ".join([f"{done} {words.counted(len(told) - len(left), 'run')}", *others]))
    if left:
        columns = (Column("run"), Column("outcome", coloured=True), Column("reason", shrinks=True))
        rows = [(one.run, _said(one.fate), one.problem or "") for one in left[:_SHOWN]]
        print_table(columns, rows, nothing="")
    if len(left) > _SHOWN:
        say(f"... and {len(left) - _SHOWN:,} more")


def _said(fate: Fate) -> str:
    return fate.replace("_", " ")
