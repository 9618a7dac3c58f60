"""`foliot schedules`: list, show, pause, resume, trigger."""

from __future__ import annotations

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
    read_duration,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, heading, print_facts, print_json, print_table, say
from foliot.cli.runs import COLUMNS as RUN_COLUMNS
from foliot.cli.runs import row as run_row
from foliot.domain.instant import Instant, parse_rfc3339, rfc3339, spell
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.errors import InvalidInput
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

commands = typer.Typer(help="Standing rules: list, show, pause, resume, trigger.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The name of a schedule.", callback=legible)]
_COMING, _LAST = 5, 8


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """All schedules: what they mean, when they are due, how they last ended."""

    async def look(foliot: Foliot) -> tuple[list[ScheduleView], Instant]:
        return await foliot.operate.schedules_async(), await foliot.operate.now_async()

    views, now = with_store(app, store, look)
    if as_json:
        print_json([schedule_shape(view, now) for view in views])
        return
    columns = (
        Column("schedule"),
        Column("state", coloured=True),
        Column("next", right=True),
        Column("last", rank=1, coloured=True),
        Column("last success", rank=3, right=True),
        Column("rule", rank=2, shrinks=True),
        Column("job", rank=4),
    )
    print_table(columns, [_row(view, now) for view in views], nothing="no schedules")


def _row(view: ScheduleView, now: Instant) -> tuple[str, ...]:
    return (
        view.schedule.id,
        schedule_state(view, now),
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

    async def look(foliot: Foliot) -> tuple[ScheduleView, list[RunView], list[str], Instant]:
        view = await foliot.operate.schedule_async(schedule)
        last = await foliot.operate.runs_async(schedule=schedule, limit=_LAST)
        drift = await foliot.operate.declared_otherwise_async(schedule)
        return view, last, drift, await foliot.operate.now_async()

    view, last, drift, now = with_store(app, store, look)
    if as_json:
        shape = schedule_shape(view, now, _COMING)
        print_json(shape | {"runs": [run_shape(run) for run in last], "drift": drift})
        return
    facts = _facts(view, now)
    if drift:
        facts["drift"] = f"declared otherwise by the code of {', '.join(drift)}"
    print_facts(facts)
    heading("comes next (UTC)")
    for tick in coming_ticks(view, now, _COMING):
        say(f"{rfc3339(tick)}  {words.relative(tick, now)}")
    heading("last runs")
    print_table(RUN_COLUMNS, [run_row(run, now) for run in last], nothing="none yet")


def _facts(view: ScheduleView, now: Instant) -> dict[str, str]:
    schedule = view.schedule
    facts = {
        "schedule": f"{schedule.id} (revision {schedule.revision})",
        "state": schedule_state(view, now),
        "rule": _rule_words(view),
        "job": schedule.job,
    }
    if schedule.fault is not None:
        facts["fault"] = words.one_line(schedule.fault)
    if schedule.paused(now):
        until = "until it is resumed" if schedule.paused_until is None else f"until {rfc3339(schedule.paused_until)}"
        facts["paused"] = f"{words.relative(schedule.paused_at, now)}, {until}: {schedule.paused_note or 'no reason'}"
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


@commands.command("pause")
def pause(
    schedule: NameArgument,
    reason: ReasonOption = None,
    length: Annotated[str | None, typer.Option("--for", help="How long: 2h.", metavar="DURATION")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Until when.", metavar="RFC3339")] = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ticks that fall due from now on are skipped, each with a row that says so."""
    why = stated_reason(reason)
    if length is not None and until is not None:
        raise WrongUsage("give --for or --until, not both")
    lasting = None if length is None else read_duration(length, "--for")
    end = None if until is None else _read_instant(until)

    async def act(foliot: Foliot) -> Instant | None:
        stop = end if lasting is None else await foliot.operate.now_async() + lasting
        await foliot.operate.pause_async(schedule, reason=why, actor=acting(actor), until=stop)
        return stop

    stop = with_store(app, store, act)
    if as_json:
        print_json({"id": schedule, "outcome": "paused", "until": None if stop is None else rfc3339(stop)})
    else:
        say(f"paused {schedule} " + ("until it is resumed" if stop is None else f"until {rfc3339(stop)}"))


@commands.command("resume")
def resume(
    schedule: NameArgument,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Ticks of the pause were missed: the schedule's policy speaks.")
    ] = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The next tick runs again; ticks of the pause are skipped, in one row, unless they are to be caught up."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> tuple[ScheduleView, Instant]:
        await foliot.operate.resume_async(schedule, reason=why, actor=acting(actor), catch_up=catch_up)
        return await foliot.operate.schedule_async(schedule), await foliot.operate.now_async()

    view, now = with_store(app, store, act)
    if as_json:
        due = None if view.next_fire_at is None else rfc3339(view.next_fire_at)
        print_json({"id": schedule, "outcome": "resumed", "next_fire_at": due})
    else:
        say(f"resumed {schedule}; next due {words.relative(view.next_fire_at, now)}")


@commands.command("delete")
def delete(
    schedule: NameArgument,
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
        await foliot.operate.delete_async(schedule, reason=why, actor=acting(actor))
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


def _read_instant(text: str) -> Instant:
    try:
        return parse_rfc3339(text)
    except InvalidInput as error:
        raise WrongUsage(f"--until: {error}") from None
