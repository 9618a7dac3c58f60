"""What can be done about schedules, backfills, workers and alerts."""

from __future__ import annotations

import json
from typing import Any

from foliot.domain.instant import Instant, duration, rfc3339
from foliot.errors import FoliotError, InvalidInput
from foliot.operate.backfilling import pace_words, taken_words
from foliot.operate.words import counted, length
from foliot.web.pages.acting import Acts, Desk, Example, Field, Prospect
from foliot.web.pages.asked import number_in
from foliot.web.pages.lists import moment_of
from foliot.web.pages.run_acts import examples
from foliot.web.pages.words import absolute

_PAUSES = (
    ("creation", "ticks: due runs are held"),
    ("retries", "retries: failed runs wait"),
    ("claims", "claims: workers take no runs"),
)
PAUSED_FOR = (
    ("", "until it is resumed"),
    ("1h", "an hour"),
    ("8h", "8 hours"),
    ("1d", "a day"),
    ("7d", "a week"),
)
SNOOZED_FOR = (("30m", "half an hour"), ("2h", "2 hours"), ("8h", "8 hours"), ("1d", "a day"), ("7d", "a week"))


def add_schedule_acts(acts: Acts) -> None:
    acts.add("schedules", "trigger", _look_trigger, _trigger)
    acts.add("schedules", "pause", _look_pause, _pause)
    acts.add("schedules", "resume", _look_resume, _resume)
    acts.add("schedules", "delete", _look_delete, _delete)
    acts.add("schedules", "edit", _look_edit, _edit)
    acts.add("schedules", "make", _look_new, _new, is_for_all=True)
    acts.add("schedules", "backfill", _look_backfill, _backfill)
    acts.add("backfills", "pause", _look_backfill_pause, _backfill_pause)
    acts.add("backfills", "resume", _look_backfill_resume, _backfill_resume)
    acts.add("backfills", "rate", _look_backfill_rate, _backfill_rate)
    acts.add("backfills", "cancel", _look_backfill_cancel, _backfill_cancel)
    for verb, words in _WISHES.items():
        acts.add("workers", verb, _look_wish(verb, words), _wish(verb), is_for_all=True)
    acts.add("alerts", "snooze", _look_snooze, _snooze, is_for_all=True)
    acts.add("alerts", "unsnooze", _look_unsnooze, _unsnooze, is_for_all=True)


# Schedules


async def _look_trigger(desk: Desk) -> Prospect:
    foreseen = await desk.operate.preview_trigger_async(desk.subject)
    will = [
        "Creates one run now, in addition to the ticks of the schedule.",
        f"{foreseen.words[0].upper()}{foreseen.words[1:]}.",
    ]
    text = "start the run beside active runs: overlap, limits and pauses do not hold it"
    box = Field("override_overlap", text, "", "checkbox", required=foreseen.is_skipped)
    return Prospect(f"Trigger {desk.subject}", will, "Trigger run", [box])


async def _trigger(desk: Desk) -> str:
    override = desk.form.has("override_overlap")
    kept = await desk.operate.trigger_async(desk.subject, override_overlap=override, **desk.said)
    return f"{kept.id} created"


async def _look_pause(desk: Desk) -> Prospect:
    fields = [
        Field("what", "Pause", "creation", "select", choices=_PAUSES),
        Field("for", "Duration", "", "select", choices=PAUSED_FOR),
    ]
    will = ["Running attempts continue. Until you resume, the next due run is held and no later ticks are created."]
    return Prospect(f"Pause {desk.subject}", will, "Pause schedule", fields)


async def _pause(desk: Desk) -> str:
    what = desk.form.get("what", "creation")
    until = await paused_until(desk)
    await desk.operate.pause_of_async("schedule", desk.subject, what=[what], until=until, **desk.said)
    return f"{desk.subject}: {what} paused" + ("" if until is None else f" until {absolute(rfc3339(until))} UTC")


async def paused_until(desk: Desk) -> Instant | None:
    given = desk.form.get("for")
    return None if not given else await desk.operate.now_async() + duration(given)


async def _look_resume(desk: Desk) -> Prospect:
    will = ["The next tick runs. One row records ticks due during the pause as skipped, unless you choose catch-up."]
    fields = [Field("catch_up", "apply the catch-up policy to the ticks due during the pause", "", "checkbox")]
    return Prospect(f"Resume {desk.subject}", will, "Resume schedule", fields)


async def _resume(desk: Desk) -> str:
    ended = await desk.operate.resume_of_async(
        "schedule", desk.subject, catch_up=desk.form.has("catch_up"), **desk.said
    )
    return f"{desk.subject} resumed" if ended else f"{desk.subject} was not paused"


async def _look_delete(desk: Desk) -> Prospect:
    view = await desk.operate.schedule_async(desk.subject)
    will = ["Deletes the schedule and its pending run. Its history stays."]
    if view.schedule.source == "code":
        will.append("Code declares this schedule: the next start of that code creates it again.")
    return Prospect(f"Delete {desk.subject}", will, "Delete schedule", unsafe=True)


async def _delete(desk: Desk) -> str:
    await desk.operate.delete_async(desk.subject, **desk.said)
    return f"deleted {desk.subject}"


async def _look_edit(desk: Desk) -> Prospect:
    """Shows what would change once something was typed; asks for it before."""
    view = await desk.operate.schedule_async(desk.subject)
    text = desk.form.get("changes") or json.dumps(_editable(view), indent=2, ensure_ascii=False)
    fields = [
        Field(
            "changes",
            "Definition",
            text,
            "textarea",
            hint="JSON: rule (an object, or cron as text), tz, args, owner …",
        ),
        Field("revision", "", str(view.schedule.revision), "hidden"),
    ]
    will, refused = ["Only changed fields are saved. The pending run moves to the next tick of the new rule."], None
    if desk.form.has("changes"):
        try:
            planned = await desk.operate.preview_edit_async(desk.subject, _changes(desk, text))
            will += [f"{one.field}: {_shown(one.before)} becomes {_shown(one.after)}" for one in planned.fields]
            will += ["No changes."] if not planned.fields else []
            if planned.ticks.before != planned.ticks.after:
                will.append(f"Next: {_ticks(planned.ticks.after)} (now: {_ticks(planned.ticks.before)})")
        except FoliotError as error:
            refused = error
    return Prospect(f"Edit {desk.subject}", will, "Save changes", fields, previews=True, refused=refused)


def _editable(view: Any) -> dict[str, Any]:
    """What people change most, as it is now."""
    schedule = view.schedule
    shown: dict[str, Any] = {"rule": json.loads(schedule.rule)}
    shown |= {"overlap": str(schedule.policy.overlap), "catch_up": str(schedule.policy.catch_up)}
    return shown | {"owner": schedule.owner, "runbook": schedule.runbook}


async def _edit(desk: Desk) -> str:
    planned = await desk.operate.edit_schedule_async(
        desk.subject,
        _changes(desk, desk.form.typed("changes")),
        revision=number_in(desk.form.get("revision")),
        **desk.said,
    )
    changed = ", ".join(one.field for one in planned.fields)
    return f"{desk.subject}: {changed or 'nothing'} changed, now revision {planned.revision}"


async def _look_new(desk: Desk) -> Prospect:
    jobs = sorted(await desk.operate.jobs_async())
    fields = [
        Field("name", "Name", desk.form.get("name"), required=True),
        Field("job", "Job", desk.form.get("job"), "select", choices=[(job, job) for job in jobs]),
        Field("rule", "Rule", desk.form.get("rule") or "0 2 * * *", hint="cron, or every('15m')", required=True),
        Field("tz", "Zone", desk.form.get("tz") or "UTC"),
        Field("args", "Arguments", desk.form.get("args") or "{}", "textarea", hint="JSON"),
    ]
    return Prospect("New schedule", ["The schedule starts with its first tick after now."], "Create", fields)


async def _new(desk: Desk) -> str:
    given = {"name": desk.form.get("name"), "job": desk.form.get("job"), "rule": desk.form.get("rule")}
    tz, args = desk.form.get("tz"), _json(desk.form.get("args") or "{}", "args")
    planned = await desk.operate.put_schedule_async(
        given | ({"tz": tz} if tz and tz != "UTC" else {}) | {"args": args},
        **desk.said,
    )
    return f"{planned.schedule}: {planned.outcome}"


def _changes(desk: Desk, text: str) -> dict[str, Any]:
    given = _json(text, "changes")
    desk.caller.check_fields(given)
    return given


def _json(text: str, field: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the text is not JSON: {error}").about(field) from None
    if not isinstance(found, dict):
        raise InvalidInput('not a JSON object; give an object such as {"rule": "0 2 * * *"}').about(field)
    return found


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _ticks(ticks: Any) -> str:
    return ", ".join(absolute(rfc3339(tick)) for tick in list(ticks)[:3]) or "none"


# Backfills


async def _look_backfill(desk: Desk) -> Prospect:
    form = desk.form
    fields = [
        Field("from", "From (UTC)", form.get("from"), "datetime-local", required=True),
        Field("to", "To (UTC), exclusive", form.get("to"), "datetime-local", required=True),
        Field("rate", "Rate", form.get("rate") or "10/m", hint="runs created per unit of time, such as 10/m"),
        Field("at_once", "Concurrent runs", form.get("at_once") or "1", "number"),
    ]
    will = ["Creates one run for each tick without a run, at lower priority than live runs. No tick runs twice."]
    sample: list[Example] = []
    refused = None
    if form.has("from") and form.has("to"):
        try:
            seen = await desk.operate.preview_backfill_async(desk.subject, *_edges(desk), **_pace(desk))
            lasts = "" if seen.lasting is None else f", about {length(seen.lasting)}"
            pace = f"{pace_words(seen.pace)}{lasts}"
            will.append(f"{counted(seen.total, 'tick')}, {seen.new:,} without a run, {pace}.")
            will += [taken_words(seen)] if seen.taken else []
            sample = examples([one.run for one in seen.taken if one.run])
        except FoliotError as error:
            refused = error
    return Prospect(f"Backfill {desk.subject}", will, "Start backfill", fields, sample, previews=True, refused=refused)


async def _backfill(desk: Desk) -> str:
    made = await desk.operate.backfill_async(desk.subject, *_edges(desk), **_pace(desk), **desk.said)
    return f"started backfill {made.number} of {desk.subject}: {counted(made.total, 'tick')}"


def _edges(desk: Desk) -> tuple[Any, Any]:
    return moment_of(desk.form.get("from"), 0), moment_of(desk.form.get("to"), 0)


def _pace(desk: Desk) -> dict[str, Any]:
    at_once = desk.form.get("at_once") or "1"
    if not at_once.isascii() or not at_once.isdigit():
        raise InvalidInput(f"concurrent runs: {at_once!r:.40} is not a number; give digits").about("at_once")
    return {"rate": desk.form.get("rate") or None, "at_once": int(at_once)}


async def _look_backfill_pause(desk: Desk) -> Prospect:
    will = ["The backfill creates no more runs. Existing runs continue."]
    return Prospect(f"Pause backfill {desk.subject}", will, "Pause backfill")


async def _backfill_pause(desk: Desk) -> str:
    await desk.operate.pause_backfill_async(_number(desk), **desk.said)
    return f"backfill {desk.subject} paused"


async def _look_backfill_resume(desk: Desk) -> Prospect:
    will = ["The backfill continues with its next tick."]
    return Prospect(f"Resume backfill {desk.subject}", will, "Resume backfill")


async def _backfill_resume(desk: Desk) -> str:
    await desk.operate.resume_backfill_async(_number(desk), **desk.said)
    return f"backfill {desk.subject} resumed"


async def _look_backfill_rate(desk: Desk) -> Prospect:
    view = await desk.operate.backfill_progress_async(_number(desk))
    pace = view.backfill.pace
    fields = [
        Field("rate", "Rate", "" if pace.rate is None else str(pace.rate), hint="such as 10/m"),
        Field("at_once", "Concurrent runs", str(pace.at_once), "number"),
    ]
    return Prospect(f"Rate of backfill {desk.subject}", [f"Now: {pace_words(pace)}."], "Change rate", fields)


async def _backfill_rate(desk: Desk) -> str:
    chosen = {name: value for name, value in _pace(desk).items() if value is not None}
    made = await desk.operate.pace_backfill_async(_number(desk), **desk.said, **chosen)
    return f"backfill {desk.subject}: {pace_words(made.pace)}"


async def _look_backfill_cancel(desk: Desk) -> Prospect:
    view = await desk.operate.backfill_progress_async(_number(desk))
    left = f"The backfill creates no runs for {view.backfill.left:,} remaining ticks"
    will = [f"{left}. Runs that have not started are cancelled; the others continue."]
    return Prospect(f"Cancel backfill {desk.subject}", will, "Cancel backfill", unsafe=True)


async def _backfill_cancel(desk: Desk) -> str:
    await desk.operate.cancel_backfill_async(_number(desk), **desk.said)
    return f"backfill {desk.subject} cancelled"


def _number(desk: Desk) -> int:
    return number_in(desk.subject)


# Workers


_WISHES = {
    "drain": ("drain", "The worker takes no new runs, finishes its current ones, and exits."),
    "quarantine": ("quarantine", "The worker takes no new runs and keeps running, for inspection."),
    "resume": (None, "The worker takes runs again."),
}


def _look_wish(verb: str, words: tuple[str | None, str]) -> Any:
    async def look(desk: Desk) -> Prospect:
        button = f"{verb.capitalize()} worker"
        return Prospect(
            f"{button} {desk.subject}",
            [words[1], "The request takes effect with the next heartbeat of the worker."],
            button,
        )

    return look


def _wish(verb: str) -> Any:
    async def do(desk: Desk) -> str:
        changed = await desk.operate.wish_async(_number(desk), _WISHES[verb][0], **desk.said)
        return f"worker {desk.subject}: {verb} {'requested' if changed else 'was requested before'}"

    return do


# Alerts


async def _look_snooze(desk: Desk) -> Prospect:
    alert = await desk.operate.alert_async(_number(desk))
    fields = [Field("for", "Duration", "2h", "select", choices=SNOOZED_FOR)]
    will = [
        alert.cause,
        "Foliot sends no notifications for this alert during the snooze. The alert stays in this list.",
    ]
    return Prospect("Snooze alert", will, "Snooze", fields)


async def _snooze(desk: Desk) -> str:
    alert = await desk.operate.snooze_async(_number(desk), desk.form.get("for") or "2h", **desk.said)
    return f"snoozed until {absolute(rfc3339(alert.snoozed_until or 0))} UTC"


async def _look_unsnooze(desk: Desk) -> Prospect:
    alert = await desk.operate.alert_async(_number(desk))
    return Prospect("Unsnooze alert", [alert.cause, "Foliot notifies again while the alert is open."], "Unsnooze")


async def _unsnooze(desk: Desk) -> str:
    await desk.operate.unsnooze_async(_number(desk), **desk.said)
    return "alert unsnoozed"
