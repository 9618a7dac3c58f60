"""`foliot schedules`: list, show, pause, resume, trigger, delete. `edit` and `apply` are in `editing`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from shlex import quote
from statistics import median
from typing import Annotated

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.bulk import Bulk, are_many
from foliot.cli.dead import Place
from foliot.cli.options import (
    MOST_LOOKS,
    ActorOption,
    AppOption,
    CursorOption,
    DryRunOption,
    ForOption,
    JsonOption,
    ReasonOption,
    ScheduleArgument,
    ScheduleJobOption,
    ScheduleTenantOption,
    StoreOption,
    UntilOption,
    WhatOption,
    WrongUsage,
    YesOption,
    acting,
    legible,
    read_ending,
    read_whats,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, complain, heading, print_facts, print_json, print_table, say
from foliot.cli.pauses import PAUSED, CatchUpOption, print_paused
from foliot.cli.runs import COLUMNS as RUN_COLUMNS
from foliot.cli.runs import row as run_row
from foliot.cli.runs import states_named
from foliot.domain.instant import Instant, rfc3339, spell
from foliot.domain.listing import MOST
from foliot.domain.pauses import Pause, pauses_about
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.standing import (
    Mark,
    ScheduleFilter,
    ScheduleOrder,
    Standing,
    checked_schedules,
    read_schedule_cursor,
)
from foliot.errors import InvalidInput
from foliot.operate.pausing import ScheduleWanted, Steered
from foliot.operate.shapes import (
    bound_arguments,
    coming_ticks,
    kept_shape,
    policy_words,
    readable_rule,
    run_shape,
    schedule_state,
)
from foliot.operate.story import how_far
from foliot.operate.surveyed import sparkline, standing_shape, strip_signs
from foliot.operate.surveying import StandingPage

commands = typer.Typer(help="Manage schedules: list, show, pause, trigger, edit, apply, …", no_args_is_help=True)


MaybeNameArgument = Annotated[
    str | None, typer.Argument(metavar="[SCHEDULE]", help="The name of a schedule.", callback=legible)
]
OfQueueOption = Annotated[str | None, typer.Option("--queue", help="Only schedules in this queue.", callback=legible)]
OfOwnerOption = Annotated[str | None, typer.Option("--owner", help="Only schedules of this owner.", callback=legible)]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="Only schedules whose name starts with this.", callback=legible)
]
_COMING, _LAST = 5, 8
_SHOWN = 12
"""Ticks in a list."""
_TENANTS = 8


@commands.command("list")
def list_(
    text: Annotated[
        str | None,
        typer.Option("--text", help="Only schedules with this text in name, job or owner.", callback=legible),
    ] = None,
    job: ScheduleJobOption = None,
    tenant: ScheduleTenantOption = None,
    paused: Annotated[
        bool,
        typer.Option("--paused", help="Only schedules that are paused, directly or by their job, queue or tenant."),
    ] = False,
    not_paused: Annotated[bool, typer.Option("--not-paused", help="Only schedules without any pause.")] = False,
    needs_person: Annotated[
        bool, typer.Option("--needs-person", help="Only schedules that need attention, or have such runs.")
    ] = False,
    last: Annotated[
        list[str] | None,
        typer.Option("--last", help="Only schedules whose last run is in this state: dead, … Repeatable, or as a,b."),
    ] = None,
    soonest: Annotated[bool, typer.Option("--soonest", help="Sort by next due time.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of schedules to list.")] = 50,
    cursor: CursorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List schedules with rules, due times and latest outcomes.

    TICKS, oldest first: ▪ on time, ◔ late, ↻ retried, ◐ partial, · skipped, ○ missed, ✗ failed, ✓ settled by a person.
    """
    if paused and not_paused:
        raise WrongUsage("give --paused or --not-paused, not both")
    order = ScheduleOrder.NEXT if soonest else ScheduleOrder.NAME
    wanted = ScheduleFilter(
        text=text,
        job=job,
        tenant=tenant,
        paused=paused if paused or not_paused else None,
        needs_person=needs_person,
        last=tuple(states_named(last or [])),
        order=order,
    )
    try:
        checked_schedules(wanted, 1)
        read_schedule_cursor(order, cursor)
    except InvalidInput as error:
        raise WrongUsage(str(error)) from None
    page = with_store(app, store, lambda foliot: _pages(foliot, wanted, cursor, limit))
    if as_json:
        print_json([standing_shape(one, page.now, pauses=page.pauses) for one in page.schedules])
    else:
        columns = (
            Column("schedule"),
            Column("state", coloured=True),
            *([PAUSED] if page.pauses else ()),
            Column("next due", right=True),
            Column("last run", rank=1, coloured=True),
            Column("last useful run", rank=3, right=True),
            Column("ticks", rank=4, right=True),
            Column("rule", rank=2, shrinks=True, least=20),
            Column("job", rank=5),
        )
        print_table(columns, [_row(one, page.pauses, page.now) for one in page.schedules], nothing="no schedules")
    if page.cursor is not None and not page.complete:
        complain(f"the search was cut short and may have missed schedules: continue with --cursor {quote(page.cursor)}")
    elif page.cursor is not None and not as_json:
        say(f"\nmore results: add --cursor {quote(page.cursor)}", "dim")


async def _pages(foliot: Foliot, wanted: ScheduleFilter, cursor: str | None, limit: int) -> StandingPage:
    """Pages up to the limit. Continues a search that the store cut short, up to MOST_LOOKS times."""
    looks = 0
    found: list[Standing] = []
    while True:
        most = min(limit - len(found), MOST)
        page = await foliot.operate.schedule_page_async(wanted, cursor=cursor, limit=most)
        found += page.schedules
        cursor = page.cursor
        looks += not page.complete
        if cursor is None or looks >= MOST_LOOKS or len(found) >= limit:
            return page._replace(schedules=found)


def _whose(pause: Pause) -> str:
    return "schedule" if pause.name.startswith("schedule:") else pause.name


def _row(one: Standing, paused: Sequence[Pause], now: Instant) -> tuple[str, ...]:
    view, about = one.as_view, pauses_about(one.schedule, paused)
    told = ", ".join(f"{each.what} ({_whose(each)})" for each in about) or "-"
    return (
        view.schedule.id,
        schedule_state(view, now, about),
        *([told] if paused else ()),
        words.relative(view.next_fire_at, now),
        view.last_run_state or "-",
        words.relative(one.facts.useful_at, now),
        strip_signs(one.strip[-_SHOWN:]) or "-",
        _rule_words(view),
        view.schedule.job,
    )


def _rule_words(view: ScheduleView) -> str:
    rule = readable_rule(view)
    return rule.explain() if rule else f"unreadable: {view.schedule.rule}"


@commands.command("show")
def show(
    schedule: ScheduleArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show one schedule: rule, policies, health and latest runs."""

    async def look(foliot: Foliot) -> tuple[Standing, list[RunView], list[str], bool, list[Pause], Instant]:
        stands = await foliot.operate.standing_async(schedule)
        last = await foliot.operate.runs_async(schedule=schedule, limit=_LAST)
        drift = await foliot.operate.declared_otherwise_async(schedule)
        lacks = await foliot.operate.lacks_required_async(stands.schedule)
        return stands, last, drift, lacks, await foliot.operate.pauses_async(), await foliot.operate.now_async()

    stands, last, drift, lacks, paused, now = with_store(app, store, look)
    if as_json:
        shape = standing_shape(stands, now, _COMING, paused)
        print_json(shape | {"runs": [run_shape(run) for run in last], "drift": drift, "lacks_required": lacks})
        return
    facts = _facts(stands.as_view, pauses_about(stands.schedule, paused), now)
    if lacks:
        facts["warning"] = f"the required schedule {stands.schedule.policy.requires} does not exist: declare it"
    if drift:
        facts["drift"] = f"declared differently by the code of {', '.join(drift)}"
    print_facts(facts)
    heading("health")
    print_facts(standing_facts(stands, now))
    heading("upcoming (UTC)")
    for tick in coming_ticks(stands.as_view, now, _COMING):
        say(f"{rfc3339(tick)}  {words.relative(tick, now)}")
    heading("latest runs")
    print_table(RUN_COLUMNS, [run_row(run, now) for run in last], nothing="none yet")


def standing_facts(one: Standing, now: Instant) -> dict[str, str]:
    """The health of a schedule from its latest runs; facts without findings are left out."""
    facts = {"last useful run": "never" if one.facts.useful_at is None else words.relative(one.facts.useful_at, now)}
    if one.strip:
        facts["last ticks"] = f"{strip_signs(one.strip)}  (oldest first)"
        counts = Counter(one.strip).most_common()
        facts["counts"] = ", ".join(f"{count} {'on time' if mark is Mark.KEPT else mark}" for mark, count in counts)
    if one.durations:
        took = words.length(int(median(one.durations)))
        share = "" if one.ratio is None else f", {one.ratio:.1%} of its interval"
        facts["duration"] = f"{sparkline(one.durations)}  median {took}{share}"
    if one.lateness is not None:
        facts["lateness"] = f"{words.length(one.lateness)}; worst {words.length(one.worst)}"
    if one.queue_delay is not None:
        facts["queue delay"] = words.length(one.queue_delay)
    for active in one.active:
        heard = "" if active.heard is None else f", last heartbeat {words.length(active.heard)} ago"
        far = how_far(active.view.progress)
        text = f"{active.view.id}, attempt {active.view.attempt}, for {words.length(active.age)}{heard}"
        facts[f"running {len(facts)}" if "running" in facts else "running"] = text + (f": {far}" if far else "")
    if one.waiting:
        facts["waiting"] = f"{words.counted(one.waiting, 'run')}, the oldest due {words.relative(one.waits_since, now)}"
    if one.backlog:
        facts["backfill"] = f"{words.counted(one.backlog, 'run')} left"
    if one.emitted:
        each = "" if one.useful_per_attempt is None else f", {one.useful_per_attempt:.2f} useful per attempt"
        facts["runs"] = f"{one.emitted:,} created, {one.completed:,} ended, {one.useful:,} useful{each}"
        facts["runs"] += f", {one.partial:,} partial" if one.partial else ""
    if one.retries or one.overlaps:
        facts["retries"] = f"{one.retries:,}; {one.overlaps:,} overlaps"
    if one.needs:
        facts["needs attention"] = ", ".join(_NEEDS.get(need, need) for need in one.needs).format(one.in_a_row)
    if one.facts.tenants:
        failing = sorted(one.facts.tenants.items(), key=lambda item: -item[1])[:_TENANTS]
        facts["failing"] = ", ".join(f"{tenant or '(no tenant)'} {count:,}" for tenant, count in failing)
    return facts


_NEEDS = {"in_a_row": "{} failures in a row", "set_aside": "set aside"}


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
        told += f"; since {words.relative(one.since, now)}"
        told += "" if one.name.startswith("schedule:") else f" ({one.name})"
        facts[f"{one.what}"] = ", ".join([*([facts[one.what]] if one.what in facts else []), told])
    if view.edit is not None:
        by = f"{view.edit.actor}, {words.relative(view.edit.at, now)}"
        facts["edited"] = f"by {by}: {', '.join(view.edit.fields)}; differs from its declaration in {schedule.source}"
    if schedule.over is not None:
        facts["over"] = f"{schedule.over}: one run per member; see foliot members served {schedule.id}"
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
    job: ScheduleJobOption = None,
    tenant: ScheduleTenantOption = None,
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
    """Pause a schedule: its ticks are held when they fall due. --what pauses other parts.

    Filters select many schedules. The command lists them and asks for confirmation.
    """
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
    job: ScheduleJobOption = None,
    tenant: ScheduleTenantOption = None,
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
    """Resume a schedule. Ticks due during the pause are skipped and recorded in one row, unless --catch-up is given.

    Filters select many schedules. The command lists them and asks for confirmation.
    """
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
    schedule: ScheduleArgument,
    revision: Annotated[
        int | None,
        typer.Option("--revision", help="Refuse the deletion unless the schedule is at this revision.", min=1),
    ] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a schedule and its next run. Its history stays. A schedule from code returns when its app starts again."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> ScheduleView:
        view = await foliot.operate.schedule_async(schedule)
        await foliot.operate.delete_async(schedule, reason=why, actor=acting(actor), revision=revision)
        return view

    source = with_store(app, store, act).schedule.source
    if as_json:
        print_json({"id": schedule, "outcome": "deleted", "source": source})
    else:
        back = "; it returns when the app that declares it starts again" if source == "code" else ""
        say(f"deleted {schedule}{back}")


@commands.command("trigger")
def trigger(
    schedule: ScheduleArgument,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="Idempotency key: the same key within a day returns the same run.", callback=legible
        ),
    ] = None,
    override_overlap: Annotated[
        bool,
        typer.Option("--override-overlap", help="Start beside active runs, despite overlap, limits and pauses."),
    ] = False,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create one run now, in addition to the schedule's ticks. Refused when its overlap policy would skip the run.

    Each call creates a run. Give --key in a script that may repeat the call.
    """
    place, why = Place(app, store), "" if dry_run else stated_reason(reason)
    if dry_run or not as_json:
        seen = place.call(
            lambda foliot: foliot.operate.preview_trigger_async(schedule, override_overlap=override_overlap)
        )
        if dry_run and as_json:
            print_json({"id": schedule, "outcome": "skipped" if seen.is_skipped else "made", "detail": seen.words})
        elif dry_run or not seen.is_skipped:  # the store refuses the other, or answers the run that the key made
            say(f"{schedule}: {seen.words}")
    if dry_run:
        return
    kept = place.call(
        lambda foliot: foliot.operate.trigger_async(
            schedule, reason=why, actor=acting(actor), key=key, override_overlap=override_overlap
        )
    )
    if as_json:
        print_json(kept_shape(kept))
    else:
        say(f"{kept.outcome} {kept.id}")
