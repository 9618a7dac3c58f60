"""Actions on runs: `foliot runs cancel`, `skip`, `release`, `retry`, `resume`, `rerun`, `verify`, `reconcile`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from foliot.cli import words
from foliot.cli.bulk import Bulk, are_many
from foliot.cli.dead import Place, bar, print_outcomes, refuse_blind, tell, when
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    JsonOption,
    OverrideOption,
    ReasonOption,
    ReplayRateOption,
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
    YesOption,
    acting,
    legible,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, print_json, print_table, say
from foliot.cli.runs import RunArgument, commands, states_named
from foliot.domain.listing import RunFilter
from foliot.domain.run import Kept
from foliot.domain.state import State
from foliot.operate.advising import quoted
from foliot.operate.bulk import MOST_RUNS
from foliot.operate.cancelling import ForcedCancel, forced_shape, forced_words
from foliot.operate.replaying import Outcome
from foliot.operate.settling import Reconciled, reconciled_shape, reconciled_words
from foliot.operate.shapes import kept_shape

__all__ = ["commands"]


MaybeRunArgument = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="The id of a run, as `runs list` prints it.", callback=legible)
]
BulkLimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=MOST_RUNS, help="Act on at most this number of runs.")
]
EvidenceOption = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        help="Evidence, stored with the run. Required, except with --dry-run, or to close a settled run.",
        callback=legible,
    ),
]


@commands.command("cancel")
def cancel(
    run: MaybeRunArgument = None,
    state: RunStateOption = None,
    schedule: RunScheduleOption = None,
    job: RunJobOption = None,
    tenant: RunTenantOption = None,
    queue: RunQueueOption = None,
    prefix: RunPrefixOption = None,
    limit: BulkLimitOption = MOST_RUNS,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="If the run does not stop, end its worker process. One run only. Shows a preview first."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a run that has not started. Request cancellation of a running one.

    Filters select many runs. The command shows their number and asks for confirmation.
    """
    why_ = "" if dry_run else stated_reason(reason)
    wanted = _filter(state, schedule, job, tenant, queue, prefix)
    if force:
        if run is None or wanted != RunFilter():
            raise WrongUsage("--force requires the id of one run and no filters: it may end a worker with other runs")
        _Force(run, why_, acting(actor), Place(app, store), as_json).cancel(dry_run=dry_run, yes=yes)
        return
    if are_many(run, "run", dry_run, said=wanted != RunFilter()):
        Bulk("cancel", dry_run, yes, as_json, Place(app, store)).of_runs(wanted, limit, why_, acting(actor))
        return
    name = run or ""
    kept = with_store(app, store, lambda foliot: foliot.operate.cancel_async(name, reason=why_, actor=acting(actor)))
    asked = (
        f"requested cancellation of {kept.id}; its handler must check `ctx.cancelled`. "
        f"To end the run without its handler: foliot runs cancel {quoted(kept.id)} --force"
    )
    _tell(kept, asked if kept.state is State.RUNNING else f"{kept.outcome} {kept.id}", as_json)


class _Force(NamedTuple):
    """A forced cancellation, as requested."""

    run: str
    reason: str
    actor: str
    place: Place
    as_json: bool

    def cancel(self, *, dry_run: bool, yes: bool) -> None:
        """1. Read the preview. 2. Show it, and ask. 3. Request the cancellation."""
        refuse_blind(dry_run=dry_run, yes=yes, as_json=self.as_json)
        seen = self.place.call(lambda foliot: foliot.operate.preview_force_async(self.run))
        if not self.as_json:
            _print_forced(seen)
        elif dry_run:
            print_json(forced_shape(seen))
        if dry_run or not (yes or typer.confirm(f"force the cancellation of {seen.view.id}?")):
            return
        kept = self.place.call(
            lambda foliot: foliot.operate.cancel_async(self.run, reason=self.reason, actor=self.actor, force=True)
        )
        if self.as_json:
            print_json(forced_shape(seen, kept))
        else:
            say(f"requested; to check whether the run has ended: foliot runs show {quoted(kept.id)}")


def _print_forced(seen: ForcedCancel) -> None:
    for line in forced_words(seen):
        say(line)
    if seen.others:
        columns = (Column("run"), Column("job"), Column("age"))
        rows = [(one.run, one.job, words.length(seen.age(one))) for one in seen.others]
        print_table(columns, rows, nothing="")


@commands.command("skip")
def skip(
    run: MaybeRunArgument = None,
    state: RunStateOption = None,
    schedule: RunScheduleOption = None,
    job: RunJobOption = None,
    tenant: RunTenantOption = None,
    queue: RunQueueOption = None,
    prefix: RunPrefixOption = None,
    limit: BulkLimitOption = MOST_RUNS,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Skip a run that is scheduled, held or ready. A schedule's next tick is skipped when it is due.

    Filters select many runs. The command shows their number and asks for confirmation.
    """
    why_ = "" if dry_run else stated_reason(reason)
    wanted = _filter(state, schedule, job, tenant, queue, prefix)
    if are_many(run, "run", dry_run, said=wanted != RunFilter()):
        Bulk("skip", dry_run, yes, as_json, Place(app, store)).of_runs(wanted, limit, why_, acting(actor))
        return
    name = run or ""
    kept = with_store(app, store, lambda foliot: foliot.operate.skip_async(name, reason=why_, actor=acting(actor)))
    later = f"the scheduler skips {kept.id} when it is due"
    _tell(kept, later if kept.outcome == "withdrawn" else f"{kept.outcome} {kept.id}", as_json)


def _filter(
    state: list[str] | None,
    schedule: str | None,
    job: str | None,
    tenant: str | None,
    queue: str | None,
    prefix: str | None,
) -> RunFilter:
    states = tuple(states_named(state or []))
    return RunFilter(states=states, schedule=schedule, job=job, tenant=tenant, queue=queue, prefix=prefix)


@commands.command("release")
def release(
    run: RunArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release a held run. It starts despite overlap, concurrency keys and limits, and still takes their slots."""
    why = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.release_async(run, reason=why, actor=acting(actor)))
    _tell(kept, f"released {kept.id}; due now", as_json)


@commands.command("retry")
def retry(
    run: RunArgument,
    reason: ReasonOption = None,
    override: OverrideOption = False,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry a run that needs attention, with new attempts. Refused where it is unsafe."""
    why = stated_reason(reason)
    kept = with_store(
        app, store, lambda foliot: foliot.operate.retry_async(run, reason=why, actor=acting(actor), override=override)
    )
    _tell(kept, f"{kept.outcome} {kept.id}; due now", as_json)


@commands.command("resume")
def resume(
    run: RunArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a run from its recorded progress. Refused when its completed work is not recorded."""
    why = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.resume_run_async(run, reason=why, actor=acting(actor)))
    _tell(kept, f"resumed {kept.id}; due now", as_json)


@commands.command("rerun")
def rerun(
    run: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids of runs, as `runs list` prints them; none with --of."),
    ] = None,
    reason: ReasonOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Let the handler overwrite wrong results (`ctx.repair`).")
    ] = False,
    repeat: Annotated[
        list[str] | None,
        typer.Option(
            "--repeat", help="A completed effect to repeat. Requires --override. Repeatable.", metavar="EFFECT"
        ),
    ] = None,
    override: OverrideOption = False,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", help="Rerun the ended runs of this job or schedule, from --since to --until.", callback=legible
        ),
    ] = None,
    since: RunSinceOption = None,
    until: RunUntilOption = None,
    state: RunStateOption = None,
    rate: ReplayRateOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a new run with the same arguments and ledger. Completed effects stay done, except with --repeat.

    Several reruns use the backfill lane, at lower priority than live runs. The command shows a preview and asks for
    confirmation. --since, --until and --state need --of; --rate, --dry-run and --yes apply to several runs.
    """
    runs = [legible(one) or "" for one in run or []]
    if (of is None) == (not runs):
        raise WrongUsage("give either ids of runs, or --of with --since and --until")
    again = [legible(name) or "" for name in repeat or []]
    if of is not None or len(runs) > 1:
        if again:
            raise WrongUsage("--repeat: give the id of one run; effects are repeated for one run at a time")
        span = None if of is None else _Span(of, since, until, states_named(state or []))
        many = _Reruns(runs, span, reason, repair, override, rate, acting(actor), Place(app, store))
        _rerun_many(many, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    why = stated_reason(reason)
    kept = with_store(
        app,
        store,
        lambda foliot: foliot.operate.rerun_async(
            runs[0], reason=why, actor=acting(actor), repair=repair, repeat=again, override=override
        ),
    )
    _tell(kept, f"created {kept.id}; due now", as_json)


class _Span(NamedTuple):
    """The runs of a job or schedule in a period."""

    name: str
    since: str | None
    until: str | None
    states: list[State]


class _Reruns(NamedTuple):
    """The options of a `rerun` of several runs."""

    runs: list[str]
    span: _Span | None
    reason: str | None
    repair: bool
    override: bool
    rate: str | None
    actor: str
    place: Place

    def chosen(self) -> list[str]:
        """The runs that are meant."""
        if self.span is None:
            return self.runs
        name, since, until, states = self.span
        if since is None or until is None:
            raise WrongUsage(f"--of {name!r:.80} requires a period: add --since and --until")
        begin, end = when(since, "--since"), when(until, "--until")
        found = self.place.call(lambda foliot: foliot.operate.ended_between_async(name, begin, end, states=states))
        return [view.id for view in found]

    def act(self, runs: list[str], *, dry_run: bool, progress: Callable[[int], None] | None = None) -> list[Outcome]:
        return self.place.call(
            lambda foliot: foliot.operate.rerun_many_async(
                runs,
                reason=self.reason or "",
                actor=self.actor,
                repair=self.repair,
                override=self.override,
                rate=self.rate,
                dry_run=dry_run,
                progress=progress,
            )
        )


def _rerun_many(many: _Reruns, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """1. Preview. 2. Show the preview, and ask. 3. Rerun each on its own, and print the outcomes."""
    if not dry_run:
        stated_reason(many.reason)
    refuse_blind(dry_run=dry_run, yes=yes, as_json=as_json)
    runs = many.chosen()
    if dry_run or not yes:
        seen = many.act(runs, dry_run=True)
        if dry_run:
            tell(seen, as_json, "would rerun")
            return
        print_outcomes(seen, "would rerun")
        runs = [one.run for one in seen if one.is_done]
        if not runs or not typer.confirm(f"rerun {words.counted(len(runs), 'run')}?"):
            return
    with bar(is_shown=not as_json, title="rerun", total=len(runs)) as shown:
        told = many.act(runs, dry_run=False, progress=shown)
    tell(told, as_json, "created")


@commands.command("verify")
def verify(
    run: RunArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an unverified or ambiguous run again. The job's check changes only the verdict."""
    why = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.verify_async(run, reason=why, actor=acting(actor)))
    _tell(kept, f"requested the check of {kept.id}", as_json)


@commands.command("reconcile")
def reconcile(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="The id of a run, as `runs list` prints it; none with --all.", callback=legible
        ),
    ] = None,
    evidence: EvidenceOption = None,
    effect: Annotated[
        list[str] | None,
        typer.Option(
            "--effect",
            help="State of an effect: payout:7=done, or payout:7=not_done. Repeatable.",
            metavar="NAME:KEY=STATE",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All runs with an ambiguous effect, selected by --job or --effect-name.")
    ] = False,
    job: Annotated[
        str | None, typer.Option("--job", help="With --all: only runs of this job.", callback=legible)
    ] = None,
    effect_name: Annotated[
        str | None, typer.Option("--effect-name", help="With --all: only effects of this name.", callback=legible)
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="With --all: state of these effects: done, not_done.", metavar="STATE"),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(
            "--then",
            help="Remaining work: resume (do it now) or close (not needed; requires --reason).",
            metavar="ACTION",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="With --all: at most this number of effects.")
    ] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --all: show a preview and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask for confirmation.")] = False,
    reason: Annotated[
        str | None,
        typer.Option("--reason", help="Reason for the audit log, if the evidence is not enough.", callback=legible),
    ] = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reconcile a run that needs attention. Records which of its effects happened, with evidence.

    --then resumes or closes its remaining work; until then, the run stays parked. --all reconciles many runs.
    """
    if every == (run is not None):
        raise WrongUsage("give either the id of a run, or --all with --job or --effect-name")
    if every:
        bulk = _Bulk(evidence, job, effect_name, state, reason, then, actor, limit, app, store)
        _reconcile_all(bulk, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    answers = [legible(text) or "" for text in effect or []]
    how = evidence or "" if then is not None and not answers else _stated_evidence(evidence)
    kept = with_store(
        app,
        store,
        lambda foliot: foliot.operate.reconcile_async(
            run or "", evidence=how, actor=acting(actor), effects=answers, reason=reason or "", then=then
        ),
    )
    _tell(kept, reconciled_words(kept), as_json)


class _Bulk(NamedTuple):
    """The options of `reconcile --all`."""

    evidence: str | None
    job: str | None
    effect: str | None
    state: str | None
    reason: str | None
    then: str | None
    actor: str | None
    limit: int
    app: str | None
    store: str | None

    def settle(self, *, dry_run: bool) -> list[Reconciled]:
        return with_store(
            self.app,
            self.store,
            lambda foliot: foliot.operate.reconcile_many_async(
                evidence=self.evidence or "",
                actor=acting(self.actor),
                job=self.job,
                effect=self.effect,
                state=self.state,
                reason=self.reason or "",
                then=self.then,
                limit=self.limit,
                dry_run=dry_run,
            ),
        )


def _reconcile_all(bulk: _Bulk, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """1. Preview. 2. Show the preview, and ask. 3. Reconcile each on its own, and print the outcomes."""
    if bulk.job is None and bulk.effect is None:
        raise WrongUsage("--all requires --job, --effect-name, or both")
    if not dry_run:
        _stated_evidence(bulk.evidence)
        if not yes and (as_json or not sys.stdin.isatty()):
            raise WrongUsage("confirmation needs a terminal: preview with --dry-run, then add --yes")
    settled = bulk.settle(dry_run=True) if dry_run or not yes else []
    if not dry_run:
        if not yes:
            _print_settled(settled)
            if not settled or not typer.confirm(f"reconcile {words.counted(len(settled), 'run')}?"):
                return
        settled = bulk.settle(dry_run=False)
    if as_json:
        print_json([reconciled_shape(one) for one in settled])
    else:
        _print_settled(settled)
    if not all(one.is_good for one in settled):
        raise typer.Exit(1)


def _print_settled(settled: list[Reconciled]) -> None:
    columns = (
        Column("run"),
        Column("outcome", coloured=True),
        Column("effects", rank=1),
        Column("reason", shrinks=True),
    )
    rows = [(one.run, one.outcome, words.listed(one.effects), one.problem or "") for one in settled]
    print_table(columns, rows, nothing="no run with a matching ambiguous effect")


def _stated_evidence(evidence: str | None) -> str:
    if evidence is None or not evidence.strip():
        raise WrongUsage('--evidence is required: add --evidence "...", which is stored with the run')
    return evidence


def _tell(kept: Kept, text: str, as_json: bool) -> None:
    if as_json:
        print_json(kept_shape(kept))
    else:
        say(text)
