"""The first page: is everything kept, what needs attention, what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from foliot.domain.identity import series_name
from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.listing import NONE, RunFilter
from foliot.domain.overview import Tally
from foliot.domain.state import State
from foliot.operate.advising import TRIES
from foliot.operate.shapes import moment, run_shape
from foliot.operate.surveying import Kind, Need, NeedGroup, Overview, kind_words
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.run import answer_links
from foliot.web.pages.words import day_and_time, fact, lasting, number, quoted, share

_ROWS = 8
_FIXED = "after the cause is fixed"
_MARKS = {
    Kind.AMBIGUOUS: "maybe",
    Kind.SETTLED: "held",
    Kind.UNVERIFIED: "failed",
    Kind.DEAD: "failed",
    Kind.STUCK: "held",
    Kind.IN_A_ROW: "failed",
    Kind.SET_ASIDE: "failed",
}
_SAFE = {
    "retry": "Retry",
    "resume": "Resume",
    "repair": "Repair",
    "rerun": "Rerun",
    "verify": "Verify",
    "reconcile": "Reconcile",
    "cancel": "Cancel",
    "pause": "Pause",
}
_YES = Markup(
    '<svg viewBox="0 0 32 32" fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round" '
    'stroke-linejoin="round" aria-hidden="true"><circle cx="16" cy="16" r="13" stroke-width="2"/>'
    '<path d="M10 16.5l4.2 4.2L22.5 12"/></svg>'
)
_NO = Markup(
    '<svg viewBox="0 0 32 32" fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round" '
    'aria-hidden="true"><circle cx="16" cy="16" r="13" stroke-width="2"/><path d="M16 9.5v8M16 22.4v.1"/></svg>'
)


async def now_page(caller: Caller) -> dict[str, Any]:
    operate = caller.operate
    # At once: a server answers one of them while we read what it said to another.
    seen, needs, running, hour = await asyncio.gather(
        operate.overview_async(),
        operate.need_groups_async(limit=_ROWS),
        operate.run_page_async(RunFilter(states=(State.RUNNING,)), limit=_ROWS),
        operate.kept_by_minute_async(60),
    )
    return {
        "heading": "Now",
        "answer": answer(seen),
        "figures": figures(seen),
        "needs": need_rows(needs)[:_ROWS],
        "needs_count": sum(seen.needs.values()),
        "hour_drawing": hour_drawing(hour, seen.pulse.now),
        "coming": [run_shape(view) for view in seen.next],
        "running": [run_shape(one.view) | {"conditions": list(one.conditions)} for one in running.runs],
        "house": house(seen),
    }


def answer(seen: Overview) -> dict[str, Any]:
    """Is everything kept? In a sentence, and a second one that says what it rests on."""
    hour, waiting = seen.pulse.hour, sum(seen.needs.values())
    kept = Markup("Last hour: {} of {} runs done, {} late").format(
        fact("last_hour.on_time+last_hour.late", number(hour.kept)),
        fact("last_hour.promised", number(hour.promised)),
        fact("last_hour.late", number(hour.late)),
    )
    if seen.scheduling.verdict == "wrong":
        return _answer("bad", "Scheduling has stopped", fact("schedulers.what", seen.scheduling.what))
    if seen.working.verdict == "wrong":
        return _answer("bad", "Execution has stopped", fact("workers.what", seen.working.what))
    if waiting:
        things = Markup("{} item{} attention").format(
            fact("needs_person", number(waiting)), " needs" if waiting == 1 else "s need"
        )
        return _answer("late", things, kept)
    for name, signal in (("schedulers", seen.scheduling), ("workers", seen.working)):
        if signal.verdict != "ok":
            return _answer("late", "Work is delayed", fact(f"{name}.what", signal.what))
    if not hour.promised:
        return _answer("ok", "No problems", "no runs were due in the last hour")
    return _answer("ok", "All runs on schedule", kept)


def _answer(meaning: str, text: str, more: str) -> dict[str, Any]:
    return {"meaning": meaning, "text": text, "more": more, "icon": _YES if meaning == "ok" else _NO}


def figures(seen: Overview) -> list[dict[str, str]]:
    pulse = seen.pulse
    hour, day = pulse.hour, pulse.day
    delay: Duration | None = seen.queue_delay
    backlog = Markup(", ").join(
        Markup("{} {}").format(fact(f"lanes.{name}.waiting", number(lane.waiting)), name)
        for name, lane in pulse.lanes.items()
        if lane.waiting
    )
    return [
        _on_time("last hour", "last_hour", hour),
        _on_time("last day", "last_day", day),
        _figure(
            "Late, last hour",
            fact("last_hour.late", number(hour.late)),
            Markup("{} in a day").format(fact("last_day.late", number(day.late))),
            "late" if hour.late else "",
        ),
        _figure(
            "Missed or failed",
            fact("last_hour.missed+last_hour.failed", number(hour.missed + hour.failed)),
            Markup("last hour; {} in a day").format(
                fact("last_day.missed+last_day.failed", number(day.missed + day.failed))
            ),
            "bad" if hour.missed + hour.failed else "",
        ),
        _figure(
            "Running",
            fact("running", number(pulse.running)),
            Markup("{} retrying, {} held").format(
                fact("retrying", number(pulse.retrying)), fact("held", number(pulse.held))
            ),
        ),
        _figure("Waiting for a worker", fact("waiting", number(pulse.waiting)), backlog or "no runs waiting"),
        _figure("Queue delay", "none" if delay is None else fact("queue_delay", lasting(delay)), "oldest waiting run"),
        _figure("Early starts", fact("early", number(pulse.early)), "must be zero", "bad" if pulse.early else "ok"),
    ]


def _on_time(when: str, field: str, tally: Tally) -> dict[str, str]:
    kept = fact(f"{field}.on_time/{field}.promised", share(tally.on_time, tally.promised))
    return _figure(f"On time, {when}", kept, Markup("of {}").format(fact(f"{field}.promised", number(tally.promised))))


def _figure(name: str, value: str, note: str = "", meaning: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "note": note, "meaning": meaning}


def need_rows(groups: Sequence[NeedGroup]) -> list[dict[str, Any]]:
    return [need_row(group.newest) if group.size == 1 else group_row(group) for group in groups]


def about(group: NeedGroup) -> str:
    """A job, a schedule, or `schools[atlantis]`."""
    need = group.newest
    if need.schedule is None:
        return need.job
    return need.schedule if group.member is None else series_name(need.schedule, group.member)


def group_row(group: NeedGroup) -> dict[str, Any]:
    """The newest run speaks for the group. Both links choose the runs that the row counts."""
    need = group.newest
    by = {"schedule": need.schedule} if need.schedule else {"job": need.job, "schedule": NONE}
    by |= {} if group.member is None else {"member": group.member}
    by |= {"tenant": need.tenant} if need.tenant else {} if need.schedule else {"tenant": NONE}
    why = group.reason or ""
    state = {"condition": str(need.kind)} if need.kind is Kind.STUCK else {"state": str(need.kind)}
    safe = None
    if need.kind is Kind.DEAD and need.action in ("retry", "resume"):
        safe = _step(need, f"/act/dead/all/replay?{_query(by | {'why': why})}", "Replay", _FIXED)
    return need_row(need) | {
        "kind": Markup("{} {}").format(fact("#", number(group.size)), kind_words(need.kind)),
        "id": about(group),
        "href": f"/runs?{_query(state | by | {'reason': why})}",
        "since": moment(group.since),
        "newest": moment(need.since),
        "of": f"runs?{_query(state | by | {'reason': why})}",
        "counts": (),
        "look": (),
        "safe": safe,
        "answers": [],
    }


def _step(need: Need, href: str, words: str, condition: str) -> dict[str, str]:
    """A button. A try that helps only after the cause is fixed says so, and is not the primary one."""
    if need.fix_first and need.action in TRIES:
        return {"href": href, "text": f"{words} {condition}…", "kind": ""}
    return {"href": href, "text": f"{words}…", "kind": "safe"}


def _query(asked: Mapping[str, str]) -> str:
    return urlencode({name: value for name, value in asked.items() if value})


def need_row(need: Need) -> dict[str, Any]:
    is_schedule = need.kind in (Kind.IN_A_ROW, Kind.SET_ASIDE)
    kind = "schedules" if is_schedule else "runs"
    href = f"/{kind}/{quoted(need.subject)}"
    safe = None
    if need.action in _SAFE:
        safe = _step(need, f"/act/{kind}/{quoted(need.subject)}/{need.action}", _SAFE[need.action], _FIXED)
    answers = []
    if need.action == "reconcile":
        resumes = any("--then resume" in (step.command or "") for step in need.steps)
        answers = answer_links(need.subject, need.in_doubt, resumes=resumes)
    return {
        "of": f"{kind}/{need.subject}",
        "speaks": f"{kind}/{need.subject}",
        "what": "#what" if is_schedule else "advice.lead",
        "kind": kind_words(need.kind),
        "mark": _MARKS[need.kind],
        "id": need.subject,
        "href": href,
        "job": need.job,
        "owner": need.owner,
        "why": need.what,
        "counts": need.counts,
        "look": need.look,
        "runbook": need.runbook,
        "since": moment(need.since),
        "newest": None,
        "safe": safe,
        "answers": answers,
    }


def hour_drawing(minutes: Sequence[tuple[int, Tally]], now: Instant) -> Markup:
    columns = [
        charts.Bar(
            f"{day_and_time(minute * MINUTE)}: {tally.on_time:,} on time, {tally.late:,} late, "
            f"{tally.missed + tally.failed:,} missed or failed, {tally.skipped:,} skipped",
            (
                ("ok", tally.on_time),
                ("late", tally.late),
                ("bad", tally.missed + tally.failed),
                ("idle", tally.skipped),
            ),
        )
        for minute, tally in minutes
    ]
    ticks = [(place, day_and_time(minute * MINUTE)) for place, (minute, _) in enumerate(minutes) if minute % 15 == 0]
    return charts.bars(columns, ticks, title="outcomes of the last hour")


def house(seen: Overview) -> list[tuple[str, str, str, str]]:
    meanings = {"ok": "", "warning": "late", "wrong": "bad"}
    rows = [
        ("Schedulers", seen.scheduling.what, meanings[seen.scheduling.verdict], "schedulers.what"),
        ("Workers", seen.working.what, meanings[seen.working.verdict], "workers.what"),
    ]
    clocks = [
        f"{one.role} {one.number}: off by {lasting(max(abs(one.offset_low or 0), abs(one.offset_high or 0)))}"
        for one in (*seen.schedulers, *seen.workers)
        if one.fenced
    ]
    rows.append(("Clocks", ", ".join(clocks) or "in sync", "bad" if clocks else "", "#clocks"))
    return rows
