"""What can be done to many at once: those that were chosen in a list, and dead letters by a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from foliot.domain.alerts import Alert
from foliot.domain.instant import duration, rfc3339
from foliot.errors import Conflict, FoliotError
from foliot.operate.alerting import alert_shape
from foliot.operate.words import counted
from foliot.web.pages.acting import Acts, Desk, Example, Field, Prospect
from foliot.web.pages.alerts import LOOKED_AT, about
from foliot.web.pages.run_acts import examples, summary
from foliot.web.pages.schedule_acts import PAUSED_FOR, SNOOZED_FOR, paused_until
from foliot.web.pages.words import absolute

_RUNS: dict[str, tuple[str, str, bool]] = {
    # By verb: the verb of operate, what will happen, and whether that could do harm.
    "cancel": ("cancel_async", "Pending runs will not start. For running ones, Foliot requests cancellation.", True),
    "skip": ("skip_async", "The runs end as skipped. Started runs are refused.", False),
    "retry": ("retry_async", "Foliot retries each run if that is safe. The other runs stay unchanged.", False),
    "rerun": ("rerun_async", "Creates a rerun of each run with the same arguments and ledger, if that is safe.", False),
}
_SCHEDULES: dict[str, tuple[str, str]] = {
    "resume": ("resume_async", "The next ticks run. Ticks that were due during the pause are skipped."),
    "trigger": ("trigger_async", "Creates one run of each schedule now, in addition to its ticks."),
}


def add_bulk_acts(acts: Acts) -> None:
    for verb, (do, will, unsafe) in _RUNS.items():
        acts.add("runs", f"{verb}-many", _look("run", verb, will, unsafe), _do("run", do))
    for verb, (do, will) in _SCHEDULES.items():
        acts.add("schedules", f"{verb}-many", _look("schedule", verb, will, False), _do("schedule", do))
    acts.add("schedules", "pause-many", _look_pause, _pause)
    acts.add("dead", "replay", _look_replay, _replay)
    acts.add("alerts", "snooze-many", _look_snooze, _snooze, is_for_all=True)


def _look(noun: str, verb: str, will: str, unsafe: bool) -> Callable[[Desk], Awaitable[Prospect]]:
    async def look(desk: Desk) -> Prospect:
        chosen = desk.form.all(noun)
        heading = f"{verb.capitalize()} {counted(len(chosen), noun)}"
        if not chosen:
            return Prospect(heading, ["Nothing is selected."], "", may_go=False)
        said = [
            f"{counted(len(chosen), noun)}. {will}",
            "Foliot decides about each one separately and writes an audit entry for it.",
        ]
        return Prospect(heading, said, heading, sample=examples(chosen), unsafe=unsafe)

    return look


def _do(noun: str, verb: str, **more: Any) -> Callable[[Desk], Awaitable[str]]:
    async def do(desk: Desk) -> str:
        done, problems = 0, []
        chosen = desk.form.all(noun)
        for one in chosen:
            try:
                await _owned(desk, noun, one)
                await getattr(desk.operate, verb)(one, **more, **desk.said)
            except FoliotError as error:
                problems.append(str(error))
            else:
                done += 1
        said = f"{done:,} of {counted(len(chosen), noun)} done"
        return said + (f"; {len(problems):,} refused, for example: {problems[0]}" if problems else "")

    return do


async def _look_pause(desk: Desk) -> Prospect:
    will = "Foliot holds the next due run of each schedule and creates no later ticks."
    seen = await _look("schedule", "pause", will, False)(desk)
    return replace(seen, fields=[Field("for", "Duration", "", "select", choices=PAUSED_FOR)])


async def _pause(desk: Desk) -> str:
    until = await paused_until(desk)
    said = await _do("schedule", "pause_async", until=until)(desk)
    return said if until is None else f"{said}; paused until {absolute(rfc3339(until))} UTC"


async def _owned(desk: Desk, noun: str, one: str) -> Any:
    """What is another tenant's does not exist."""
    return await (desk.caller.run(one) if noun == "run" else desk.caller.schedule(one))


async def _look_snooze(desk: Desk) -> Prospect:
    chosen = await _alike(desk)
    heading = f"Snooze {counted(len(chosen), 'alert')}"
    if not chosen:
        return Prospect(heading, ["These alerts are closed already."], "", may_go=False)
    will = [
        f"{counted(len(chosen), 'alert')} about {desk.form.get('about')}, the newest: {chosen[0].cause}",
        "Foliot sends no notifications for these alerts during the snooze. It sends them for later alerts as usual.",
    ]
    return Prospect(heading, will, heading, [Field("for", "Duration", "2h", "select", choices=SNOOZED_FOR)])


async def _snooze(desk: Desk) -> str:
    quiet, length = 0, desk.form.get("for") or "2h"
    until = await desk.operate.now_async() + duration(length)
    for one in await _alike(desk):
        if one.snoozed_until is not None and one.snoozed_until >= until:
            continue  # quiet for longer already
        try:
            await desk.operate.snooze_async(one.number, length, **desk.said)
        except Conflict:
            continue  # resolved meanwhile
        quiet += 1
    return f"{counted(quiet, 'alert')} snoozed"


async def _alike(desk: Desk) -> list[Alert]:
    """The open ones of a row, as they are now, the newest first."""
    found = await desk.operate.alerts_async(kind=desk.form.get("kind") or None, limit=LOOKED_AT)
    alike = [
        one
        for one in found.alerts
        if one.is_open
        and about(alert_shape(one, found.now)) == desk.form.get("about")
        and desk.form.get("severity") in ("", str(one.severity))
    ]
    return sorted(alike, key=lambda one: -one.opened_at)


async def _look_replay(desk: Desk) -> Prospect:
    rate = desk.form.get("rate")
    fields = [
        Field("rate", "Rate", rate, hint="such as 50/s; empty: all now, at lower priority than live runs"),
        Field("override", "include runs whose effects may happen twice", "", "checkbox"),
    ]
    try:
        seen = await desk.operate.preview_replay_async(
            rate=rate or None, override=desk.form.has("override"), **_wanted(desk)
        )
    except FoliotError as error:
        return Prospect("Replay dead letters", [str(error)], "Replay runs", fields)
    will = [f"{seen.would:,} of {counted(seen.total, 'dead letter')} are retried with a full number of attempts."]
    will += [f"{count:,} {kind[0]}: {kind[1]}" for kind, count in seen.refused.items()]
    sample = [Example(one.letter.view.id) for one in seen.sample]
    return Prospect("Replay dead letters", will, f"Replay {seen.would:,}", fields, sample, may_go=bool(seen.would))


async def _replay(desk: Desk) -> str:
    override = desk.form.has("override")
    rate = desk.form.get("rate") or None
    told = await desk.operate.replay_dead_async(rate=rate, override=override, **_wanted(desk), **desk.said)
    return summary(told)


def _wanted(desk: Desk) -> dict[str, Any]:
    wanted = {name: desk.form.get(name) for name in ("job", "schedule", "member", "why")}
    tenant = desk.caller.narrowed(desk.form.get("tenant") or None)
    return {name: value for name, value in (wanted | {"tenant": tenant}).items() if value}
