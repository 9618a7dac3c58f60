"""`foliot schedules`: list, show, pause, resume, trigger, delete. What changes them is in `editing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.bulk import Bulk, are_many
from foliot.cli.dead import Place
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    ForOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    UntilOption,
    WhatOption,
    YesOption,
    acting,
    legible,
    read_ending,
    read_whats,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, heading, print_facts, print_json, print_table, say
from foliot.cli.pauses import PAUSED, CatchUpOption, print_paused
from foliot.cli.runs import COLUMNS as RUN_COLUMNS
from foliot.cli.runs import row as run_row
from foliot.domain.instant import Instant, rfc3339, spell
from foliot.domain.pauses import Pause, pauses_about
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.operate.pausing import ScheduleWanted, Steered
from foliot.operate.shapes import (
    bound_arguments,
    coming_ticks,
    kept_shape,
    policy_words,
    readable_rule,
    run_shape,
    schedule_shape,
    schedule_state,
)

commands = typer.Typer(
    help="Standing rules: list, show, pause, resume, trigger, edit, apply, delete.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name of a schedule.", callback=legible)]
MaybeNameArgument = Annotated[
    str | None, typer.Argument(metavar="[SCHEDULE]", help="The name of a schedule.", callback=legible)
]
OfJobOption = Annotated[str | None, typer.Option("--job", help="All schedules of this job.", callback=legible)]
OfTenantOption = Annotated[str | None, typer.Option("--tenant", help="All of this tenant.", callback=legible)]
OfQueueOption = Annotated[str | None, typer.Option("--queue", help="All in this queue.", callback=legible)]
OfOwnerOption = Annotated[str | None, typer.Option("--owner", help="All of this owner.", callback=legible)]
PrefixOption = Annotated[str | None, typer.Option("--prefix", help="All whose names begin so.", callback=legible)]
_COMING, _LAST = 5, 8


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """All schedules: what they mean, when they are due, how they last ended."""

    async def look(foliot: Foliot) -> tuple[list[ScheduleView], list[Pause], Instant]:
        operate = foliot.operate
        return await operate.schedules_async(), await operate.pauses_async(), await operate.now_async()

    views, paused, now = with_store(app, store, look)
    if as_json:
        print_json([schedule_shape(view, now, pauses=paused) for view in views])
        return
    columns = (
        Column("schedule"),
        Column("state", coloured=True),
        *([PAUSED] if paused else ()),
        Column("next", right=True),
        Column("last", rank=1, coloured=True),
        Column("last success", rank=3, right=True),
        Column("rule", rank=2, shrinks=True),
        Column("job", rank=4),
    )
    print_table(columns, [_row(view, paused, now) for view in views], nothing="no schedules")


def _row(view: ScheduleView, paused: list[Pause], now: Instant) -> tuple[str, ...]:
    about = pauses_about(view.schedule, paused)
    told = ", ".join(f"{one.what} ({one.name.partition(':')[0]})" for one in about) or "-"
    return (
        view.schedule.id,
        schedule_state(view, now, about),
        *([told] if paused else ()),
        words.relative(view.next_fire_at, now),
        view.last_run_state or "-",
        words.relative(view.last_success_at, now),
        _rule_words(view),
        view.schedule.job,
    )


def _rule_words(view: ScheduleView) -> str:
    rule = readable_rule(view)
    return rule.explain() if rule else f"unreadable: {view.schedule.rule}"


@commands.command("show")
def show(schedule: NameArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """One schedule: its rule and policies in words, what comes, and what its last runs did."""

    async def look(foliot: Foliot) -> tuple[ScheduleView, list[RunView], list[str], list[Pause], Instant]:
        view = await foliot.operate.schedule_async(schedule)
        last = await foliot.operate.runs_async(schedule=schedule, limit=_LAST)
        drift = await foliot.operate.declared_otherwise_async(schedule)
        return view, last, drift, await foliot.operate.pauses_async(), await foliot.operate.now_async()

    view, last, drift, paused, now = with_store(app, store, look)
    if as_json:
        shape = schedule_shape(view, now, _COMING, paused)
        print_json(shape | {"runs": [run_shape(run) for run in last], "drift": drift})
        return
    facts = _facts(view, pauses_about(view.schedule, paused), now)
    if drift:
        facts["drift"] = f"declared otherwise by the code of {', '.join(drift)}"
    print_facts(facts)
    heading("comes next (UTC)")
    for tick in coming_ticks(view, now, _COMING):
        say(f"{rfc3339(tick)}  {words.relative(tick, now)}")
    heading("last runs")
    print_table(RUN_COLUMNS, [run_row(run, now) for run in last], nothing="none yet")


def _facts(view: ScheduleView, paused: list[Pause], now: Instant) -> dict[str, str]:
    schedule = view.schedule
    facts = {
        "schedule": f"{schedule.id} (revision {schedule.revision})",
        "state": schedule_state(view, now, paused),
        "rule": _rule_words(view),
        "job": schedule.job,
    }
    if schedule.fault is not None:
        facts["fault"] = words.one_line(schedule.fault)
    for one in paused:
        told = one.words.partition(" is ")[2]
        facts[f"{one.what}"] = f"{told}; since {words.relative(one.since, now)}" + (
            "" if one.name.startswith("schedule:") else f" ({one.name})"
        )
    if view.edit is not None:
        by = f"{view.edit.actor}, {words.relative(view.edit.at, now)}"
        facts["edited"] = f"by {by}: {', '.join(view.edit.fields)}; otherwise than {schedule.source} states it"
    if schedule.over is not None:
        facts["over"] = f"{schedule.over}: a run for each member; see foliot members served {schedule.id}"
    for label in ("tenant", "queue", "owner", "runbook", "changes"):
        if getattr(schedule, label):
            facts[label] = str(getattr(schedule, label))
    if schedule.payload not in (b"", b"{}"):
        facts["arguments"] = words.one_line(schedule.payload.decode("utf-8", "replace"), 1_000)
    if bound := bound_arguments(view):
        facts["bound"] = ", ".join(f"{argument} to {source}" for argument, source in bound.items())
    facts |= policy_words(schedule.policy)
    if schedule.over is not None:
        facts["overlap"] += ", of the same member"
        facts |= {"jitter": f"members start within {spell(schedule.policy.jitter)}"} if schedule.policy.jitter else {}
    facts["last success"] = "never" if view.last_success_at is None else words.relative(view.last_success_at, now)
    return facts


def _wanted(
    job: str | None, tenant: str | None, queue: str | None, owner: str | None, prefix: str | None
) -> ScheduleWanted:
    return {"job": job, "tenant": tenant, "queue": queue, "owner": owner, "prefix": prefix}


@commands.command("pause")
def pause(
    schedule: MaybeNameArgument = None,
    what: WhatOption = None,
    length: ForOption = None,
    until: UntilOption = None,
    job: OfJobOption = None,
    tenant: OfTenantOption = None,
    queue: OfQueueOption = None,
    owner: OfOwnerOption = None,
    prefix: PrefixOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """No tick runs from now on: the one that falls due is held. Other parts of it with --what. Many at once by what
    they have in common: shows them first, and asks."""
    whats, ending, place = read_whats(what), read_ending(length, until), Place(app, store)
    wanted = _wanted(job, tenant, queue, owner, prefix)
    why = "" if dry_run else stated_reason(reason)
    if are_many(schedule, "schedule", dry_run, said=any(wanted.values())):
        bulk = Bulk("pause", dry_run, yes, as_json, place)

        async def act_on_many(foliot: Foliot, shown: Callable[[int], None]) -> list[Steered]:
            end = await ending.instant(foliot)
            return await foliot.operate.pause_many_async(
                reason=why, actor=acting(actor), what=whats, until=end, progress=shown, **wanted
            )

        bulk.of_schedules(wanted, act_on_many)
        return

    async def act(foliot: Foliot) -> list[Pause]:
        end = await ending.instant(foliot)
        name = schedule or ""
        return await foliot.operate.pause_of_async(
            "schedule", name, what=whats, until=end, reason=why, actor=acting(actor)
        )

    made = place.call(act)
    if as_json:
        until_then = None if made[0].until is None else rfc3339(made[0].until)
        parts = [str(one.what) for one in made]
        print_json({"id": schedule, "outcome": "paused", "until": until_then, "what": parts})
    else:
        print_paused(schedule or "", made)


@commands.command("resume")
def resume(
    schedule: MaybeNameArgument = None,
    what: WhatOption = None,
    catch_up: CatchUpOption = False,
    job: OfJobOption = None,
    tenant: OfTenantOption = None,
    queue: OfQueueOption = None,
    owner: OfOwnerOption = None,
    prefix: PrefixOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The next tick runs again; ticks of the pause are skipped, in one row, unless they are to be caught up."""
    whats, place = read_whats(what), Place(app, store)
    wanted = _wanted(job, tenant, queue, owner, prefix)
    why = "" if dry_run else stated_reason(reason)
    if are_many(schedule, "schedule", dry_run, said=any(wanted.values())):
        bulk = Bulk("resume", dry_run, yes, as_json, place)

        async def act_on_many(foliot: Foliot, shown: Callable[[int], None]) -> list[Steered]:
            return await foliot.operate.resume_many_async(
                reason=why, actor=acting(actor), what=whats, catch_up=catch_up, progress=shown, **wanted
            )

        bulk.of_schedules(wanted, act_on_many)
        return

    async def act(foliot: Foliot) -> tuple[list[Pause], ScheduleView, Instant]:
        name = schedule or ""
        ended = await foliot.operate.resume_of_async(
            "schedule", name, what=whats, reason=why, actor=acting(actor), catch_up=catch_up
        )
        return ended, await foliot.operate.schedule_async(name), await foliot.operate.now_async()

    ended, view, now = place.call(act)
    if as_json:
        due = None if view.next_fire_at is None else rfc3339(view.next_fire_at)
        parts = [str(one.what) for one in ended]
        outcome = "resumed" if ended else "unchanged"
        print_json({"id": schedule, "outcome": outcome, "next_fire_at": due, "what": parts})
    elif ended:
        say(f"resumed {schedule}; next due {words.relative(view.next_fire_at, now)}")
    else:
        say(f"{schedule} was not paused; next due {words.relative(view.next_fire_at, now)}")


@commands.command("delete")
def delete(
    schedule: NameArgument,
    revision: Annotated[int | None, typer.Option("--revision", help="Only if it is still this one.", min=1)] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Removes a schedule and its next run; its history stays. One that code declares comes back with the code."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> ScheduleView:
        view = await foliot.operate.schedule_async(schedule)
        await foliot.operate.delete_async(schedule, reason=why, actor=acting(actor), revision=revision)
        return view

    source = with_store(app, store, act).schedule.source
    if as_json:
        print_json({"id": schedule, "outcome": "deleted", "source": source})
    else:
        back = "; it comes back when the app that declares it is started" if source == "code" else ""
        say(f"deleted {schedule}{back}")


@commands.command("trigger")
def trigger(
    schedule: NameArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One run now, beside the schedule's ticks; it obeys overlap."""
    why = stated_reason(reason)
    kept = with_store(
        app, store, lambda foliot: foliot.operate.trigger_async(schedule, reason=why, actor=acting(actor))
    )
    if as_json:
        print_json(kept_shape(kept))
    else:
        say(f"{kept.outcome} {kept.id}")
