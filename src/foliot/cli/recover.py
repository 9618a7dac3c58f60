"""What people do about runs: `foliot runs cancel`, `skip`, `release`, `retry`, `resume`, `rerun`, `verify`,
`reconcile`."""

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
    ReasonOption,
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

OverrideOption = Annotated[
    bool, typer.Option("--override", help="Do it against advice: what it did may be done a second time.")
]
MaybeRunArgument = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="The id of a run, as `runs list` prints it.", callback=legible)
]
OfStateOption = Annotated[list[str] | None, typer.Option("--state", help="Only these. Several are allowed.")]
OfScheduleOption = Annotated[str | None, typer.Option("--schedule", help="All runs of it.", callback=legible)]
OfJobOption = Annotated[str | None, typer.Option("--job", help="All runs of this job.", callback=legible)]
OfTenantOption = Annotated[str | None, typer.Option("--tenant", help="All of this tenant.", callback=legible)]
OfQueueOption = Annotated[str | None, typer.Option("--queue", help="All in this queue.", callback=legible)]
PrefixOption = Annotated[str | None, typer.Option("--prefix", help="All whose ids begin so.", callback=legible)]
BulkLimitOption = Annotated[int, typer.Option("--limit", min=1, max=MOST_RUNS, help="How many at most.")]
EvidenceOption = Annotated[
    str | None,
    typer.Option("--evidence", help="How you know; stays with the run. Required, but for a dry run.", callback=legible),
]


@commands.command("cancel")
def cancel(
    run: MaybeRunArgument = None,
    state: OfStateOption = None,
    schedule: OfScheduleOption = None,
    job: OfJobOption = None,
    tenant: OfTenantOption = None,
    queue: OfQueueOption = None,
    prefix: PrefixOption = None,
    limit: BulkLimitOption = MOST_RUNS,
    force: Annotated[
        bool,
        typer.Option("--force", help="Of one run: if it does not stop, end its worker's process; shown first."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ends a run that has not begun; asks a running one to stop. Many at once by what they have in common: shows how
    many first, and asks."""
    why_ = "" if dry_run else stated_reason(reason)
    wanted = _filter(state, schedule, job, tenant, queue, prefix)
    if force:
        if run is None or wanted != RunFilter():
            raise WrongUsage("--force: name one run; its worker's process may end, and other runs with it")
        _Force(run, why_, acting(actor), Place(app, store), as_json).cancel(dry_run=dry_run, yes=yes)
        return
    if are_many(run, "run", dry_run, said=wanted != RunFilter()):
        Bulk("cancel", dry_run, yes, as_json, Place(app, store)).of_runs(wanted, limit, why_, acting(actor))
        return
    name = run or ""
    kept = with_store(app, store, lambda foliot: foliot.operate.cancel_async(name, reason=why_, actor=acting(actor)))
    asked = (
        f"asked {kept.id} to stop; it runs until its handler reacts. "
        f"If it does not: foliot runs cancel {quoted(kept.id)} --force"
    )
    _tell(kept, asked if kept.state is State.RUNNING else f"{kept.outcome} {kept.id}", as_json)


class _Force(NamedTuple):
    """A forced cancellation, as it was asked for."""

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
        if dry_run or not (yes or typer.confirm(f"cancel {seen.view.id} with force?")):
            return
        kept = self.place.call(
            lambda foliot: foliot.operate.cancel_async(self.run, reason=self.reason, actor=self.actor, force=True)
        )
        if self.as_json:
            print_json(forced_shape(seen, kept))
        else:
            say(f"requested; foliot runs show {quoted(kept.id)} says when it has ended")


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
    state: OfStateOption = None,
    schedule: OfScheduleOption = None,
    job: OfJobOption = None,
    tenant: OfTenantOption = None,
    queue: OfQueueOption = None,
    prefix: PrefixOption = None,
    limit: BulkLimitOption = MOST_RUNS,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ends a run that nobody has begun, whether it is still to come, held or ready; a schedule's next tick is skipped
    when it is due. Many at once as with `cancel`."""
    why_ = "" if dry_run else stated_reason(reason)
    wanted = _filter(state, schedule, job, tenant, queue, prefix)
    if are_many(run, "run", dry_run, said=wanted != RunFilter()):
        Bulk("skip", dry_run, yes, as_json, Place(app, store)).of_runs(wanted, limit, why_, acting(actor))
        return
    name = run or ""
    kept = with_store(app, store, lambda foliot: foliot.operate.skip_async(name, reason=why_, actor=acting(actor)))
    later = f"withdrew {kept.id}; it is skipped when it is due"
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
    """Lets a run go that is held, against overlap, keys and limits. It takes their slots all the same."""
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
    """Makes a run that waits for a person due again now, with its attempts renewed. Refused where that is unsafe."""
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
    """Has a run go on where it stopped. Refused unless what it did is on record, or it had done nothing."""
    why = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.resume_run_async(run, reason=why, actor=acting(actor)))
    _tell(kept, f"{kept.id} goes on; due now", as_json)


@commands.command("rerun")
def rerun(
    run: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="The id of a run. Several ride the lane backfill; none with --of."),
    ] = None,
    reason: ReasonOption = None,
    repair: Annotated[bool, typer.Option("--repair", help="It is to write again what was written wrongly.")] = False,
    repeat: Annotated[
        list[str] | None,
        typer.Option(
            "--repeat", help="An effect to do again, although it is done. Needs --override.", metavar="EFFECT"
        ),
    ] = None,
    override: OverrideOption = False,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", help="All of this job or schedule, from --since to --until, that have ended.", callback=legible
        ),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="With --of: those due from then on.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="With --of: those due before.")] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="With --of: only these, as succeeded,dead.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Of several: so many are due in a time: 50/s.", metavar="RATE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Of several: only show what it would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Of several: do not ask.")] = False,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """A new run with the same arguments and the same ledger: what is done stays done, but for --repeat.

    Several at once ride the lane backfill, behind all that is live: they are shown first, and it asks.
    """
    runs = [legible(one) or "" for one in run or []]
    if (of is None) == (not runs):
        raise WrongUsage("give a run, several, or --of with --since and --until")
    again = [legible(name) or "" for name in repeat or []]
    if of is not None or len(runs) > 1:
        if again:
            raise WrongUsage("--repeat: what was done is repeated for one run at a time")
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
    _tell(kept, f"made {kept.id}; due now", as_json)


class _Span(NamedTuple):
    """The runs of a job or schedule, in a time."""

    name: str
    since: str | None
    until: str | None
    states: list[State]


class _Reruns(NamedTuple):
    """What `rerun` of several was asked for."""

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
            raise WrongUsage("--of: say from when to when: --since and --until")
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
    """1. Look what it would do. 2. Show that, and ask. 3. Rerun each by itself, and say what became of it."""
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
    tell(told, as_json, "made")


@commands.command("verify")
def verify(
    run: RunArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Has the job's check look again at an unverified or ambiguous run. It changes nothing but the verdict."""
    why = stated_reason(reason)
    kept = with_store(app, store, lambda foliot: foliot.operate.verify_async(run, reason=why, actor=acting(actor)))
    _tell(kept, f"{kept.id} waits for its check", as_json)


@commands.command("reconcile")
def reconcile(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The id of a run; none with --all.", callback=legible)
    ] = None,
    evidence: EvidenceOption = None,
    effect: Annotated[
        list[str] | None,
        typer.Option(
            "--effect", help="What became of an effect: payout:7=done, or =not_done. Several.", metavar="NAME:KEY=STATE"
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every run with such an effect open: --job, --effect-name.")
    ] = False,
    job: Annotated[str | None, typer.Option("--job", help="With --all: only of this job.", callback=legible)] = None,
    effect_name: Annotated[
        str | None, typer.Option("--effect-name", help="With --all: only effects of this name.", callback=legible)
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="With --all: what became of these effects: done, not_done.", metavar="STATE"),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(
            "--then",
            help="What is left of its work: resume (do it now) or close (it is not needed; with --reason).",
            metavar="WHAT",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="With --all: how many effects.")] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --all: only list what would be settled.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why, where the evidence does not say it.", callback=legible)
    ] = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Records what you found out about a run that waits for a person. Work that is left is resumed or closed; until
    then the run stays parked and listed. With --all, many at once."""
    if every == (run is not None):
        raise WrongUsage("give a run, or --all with --job or --effect-name")
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
    """What `reconcile --all` was asked for."""

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
    """1. Look what it would touch. 2. Show that, and ask. 3. Settle each by itself, and say what became of it."""
    if bulk.job is None and bulk.effect is None:
        raise WrongUsage("--all: say which: --job, --effect-name, or both")
    if not dry_run:
        _stated_evidence(bulk.evidence)
        if not yes and (as_json or not sys.stdin.isatty()):
            raise WrongUsage("--all: look first with --dry-run, then say --yes")
    settled = bulk.settle(dry_run=True) if dry_run or not yes else []
    if not dry_run:
        if not yes:
            _print_settled(settled)
            if not settled or not typer.confirm(f"settle {words.counted(len(settled), 'run')}?"):
                return
        settled = bulk.settle(dry_run=False)
    if as_json:
        print_json([reconciled_shape(one) for one in settled])
    else:
        _print_settled(settled)
    if not all(one.is_good for one in settled):
        raise typer.Exit(1)


def _print_settled(settled: list[Reconciled]) -> None:
    columns = (Column("run"), Column("outcome", coloured=True), Column("effects", rank=1), Column("why", shrinks=True))
    rows = [(one.run, one.outcome, words.listed(one.effects), one.problem or "") for one in settled]
    print_table(columns, rows, nothing="no run waits with such an effect open")


def _stated_evidence(evidence: str | None) -> str:
    if evidence is None or not evidence.strip():
        raise WrongUsage('say how you know: --evidence "..." (it stays with the run)')
    return evidence


def _tell(kept: Kept, text: str, as_json: bool) -> None:
    if as_json:
        print_json(kept_shape(kept))
    else:
        say(text)
