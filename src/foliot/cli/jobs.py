"""`foliot jobs`: the jobs that workers have registered, and advice on their settings."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, legible, with_store
from foliot.cli.output import Column, heading, print_facts, print_items, print_json, print_table
from foliot.cli.pauses import PAUSED, add_pausing, paused_words, with_pauses
from foliot.domain.conditions import job_policy
from foliot.domain.pauses import Pause
from foliot.domain.store import JobCard
from foliot.operate.advising import traits_of
from foliot.operate.jobs import advise_lease, advise_recovery, card_shape, job_shape, lost_words, trait_words
from foliot.operate.pausing import pauses_of
from foliot.operate.shapes import policy_words
from foliot.operate.telling import JobView

commands = typer.Typer(help="Manage jobs: list, show, pause, resume.", no_args_is_help=True)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The name of a job.", callback=legible)]


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List jobs that workers have registered. Shows the traits that their code declares."""

    async def look(foliot: Foliot) -> tuple[dict[str, JobCard], list[Pause]]:
        return await foliot.operate.jobs_async(), await foliot.operate.pauses_async()

    cards, paused = with_store(app, store, look)
    listed = [cards[name] for name in sorted(cards)]
    if as_json:
        print_json([with_pauses(card_shape(card), paused, f"job:{card.name}") for card in listed])
        return
    columns = (
        Column("job"),
        Column("queue", rank=2),
        Column("owner", rank=1),
        PAUSED,
        Column("traits", wraps=True, least=24),
    )
    rows = [_row(card, paused_words(paused, f"job:{card.name}")) for card in listed]
    print_table(columns, rows, nothing="no jobs: no worker has registered any")


def _row(card: JobCard, paused: str) -> tuple[str, ...]:
    return card.name, card.queue, card.owner or "-", paused, "; ".join(trait_words(traits_of(card)))


@commands.command("show")
def show(job: JobArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one job: traits, policies, durations and advice."""

    async def look(foliot: Foliot) -> tuple[JobView, list[Pause]]:
        return await foliot.operate.job_async(job), await foliot.operate.pauses_async()

    view, paused = with_store(app, store, look)
    if as_json:
        print_json(with_pauses(job_shape(view.card, view.counts, view.taken), paused, f"job:{job}"))
        return
    policy, traits = job_policy(view.card), traits_of(view.card)
    print_facts(
        _facts(view) | {f"{one.what}": one.words.partition(" is ")[2] for one in pauses_of(paused, f"job:{job}")}
    )
    heading("traits")
    print_items(trait_words(traits))
    heading("policies")
    print_facts(policy_words(policy) | {"lost worker": lost_words(policy, traits)})
    if told := [*advise_lease(policy, view.taken), *advise_recovery(policy, traits)]:
        heading("advice")
        print_items(told)


def _facts(view: JobView) -> dict[str, str]:
    card, taken = view.card, view.taken
    facts = {"job": card.name, "queue": card.queue}
    for label in ("owner", "runbook", "changes"):
        if getattr(card, label):
            facts[label] = str(getattr(card, label))
    facts["runs"] = ", ".join(f"{count:,} {state}" for state, count in view.counts.items())
    facts["runs"] = facts["runs"] or ("none yet" if view.complete else "none among the latest runs of all jobs")
    if taken.count:
        median, high, longest = (words.length(one) for one in (taken.p50, taken.p99, taken.longest))
        counted = words.counted(taken.count, "successful run")
        facts["duration"] = f"median {median}, p99 {high}, longest {longest} ({counted})"
    return facts


add_pausing(commands, "job")
