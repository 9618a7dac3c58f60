"""The first page: is everything kept, what needs a person, what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from foliot.domain.identity import series_name
from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.listing import RunFilter
from foliot.domain.overview import Tally
from foliot.domain.state import State
from foliot.operate.advising import TRIES
from foliot.operate.shapes import moment, run_shape
from foliot.operate.surveying import Kind, Need, NeedGroup, Overview
from foliot.operate.words import counted
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.run import answer_links
from foliot.web.pages.words import day_and_time, lasting, number, quoted, share

_ROWS = 8
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
    "verify": "Ask its check",
    "reconcile": "Settle it",
    "cancel": "Ask it to stop",
    "pause": "Pause it",
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
    kept = f"{number(hour.kept)} of {number(hour.promised)} promises of the last hour kept, {number(hour.late)} late"
    if seen.scheduling.verdict == "wrong":
        return _answer("bad", "Nothing fires.", seen.scheduling.what)
    if seen.working.verdict == "wrong":
        return _answer("bad", "Nothing runs.", seen.working.what)
    if waiting:
        return _answer("late", f"{counted(waiting, 'thing')} {'needs' if waiting == 1 else 'need'} a person.", kept)
    for signal in (seen.scheduling, seen.working):
        if signal.verdict != "ok":
            return _answer("late", "Something is behind.", signal.what)
    if not hour.promised:
        return _answer("ok", "All is well.", "nothing fell due in the last hour")
    return _answer("ok", "Every promise is kept.", kept)


def _answer(meaning: str, text: str, more: str) -> dict[str, Any]:
    return {"meaning": meaning, "text": text, "more": more, "icon": _YES if meaning == "ok" else _NO}


def figures(seen: Overview) -> list[dict[str, str]]:
    pulse = seen.pulse
    hour, day = pulse.hour, pulse.day
    delay: Duration | None = seen.queue_delay
    backlog = ", ".join(f"{number(lane.waiting)} {name}" for name, lane in pulse.lanes.items() if lane.waiting)
    return [
        _figure("Kept on time, last hour", share(hour.on_time, hour.promised), f"of {number(hour.promised)}"),
        _figure("Kept on time, last day", share(day.on_time, day.promised), f"of {number(day.promised)}"),
        _figure("Late, last hour", number(hour.late), f"{number(day.late)} in a day", "late" if hour.late else ""),
        _figure(
            "Missed or failed",
            number(hour.missed + hour.failed),
            f"last hour; {number(day.missed + day.failed)} in a day",
            "bad" if hour.missed + hour.failed else "",
        ),
        _figure("Running", number(pulse.running), f"{number(pulse.retrying)} retrying, {number(pulse.held)} held"),
        _figure("Waiting for a worker", number(pulse.waiting), backlog or "nothing waits"),
        _figure("Queue delay", "none" if delay is None else lasting(delay), "the first that waits"),
        _figure("Early starts", number(pulse.early), "must be 0", "bad" if pulse.early else "ok"),
    ]


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
    by = {"job": need.job} if need.schedule is None else {"schedule": need.schedule}
    by |= {} if group.member is None else {"member": group.member}
    by |= {} if need.tenant is None else {"tenant": need.tenant}
    why = group.reason or ""
    state = {"condition": str(need.kind)} if need.kind is Kind.STUCK else {"state": str(need.kind)}
    safe = None
    if need.kind is Kind.DEAD and need.action in ("retry", "resume"):
        safe = _step(need, f"/act/dead/all/replay?{_query(by | {'why': why})}", "Replay", "their causes are")
    return need_row(need) | {
        "kind": f"{group.size:,} {need.kind}",
        "id": about(group),
        "href": f"/runs?{_query(state | by | {'reason': why})}",
        "since": moment(group.since),
        "newest": moment(need.since),
        "counts": (),
        "look": (),
        "safe": safe,
        "answers": [],
    }


def _step(need: Need, href: str, words: str, causes: str) -> dict[str, str]:
    """A button. A try that helps only after its cause is removed says so, and is not the primary one."""
    if need.fix_first and need.action in TRIES:
        return {"href": href, "text": f"{words}, {causes} removed…", "kind": ""}
    return {"href": href, "text": f"{words}…", "kind": "safe"}


def _query(asked: Mapping[str, str]) -> str:
    return urlencode({name: value for name, value in asked.items() if value})


def need_row(need: Need) -> dict[str, Any]:
    is_schedule = need.kind in (Kind.IN_A_ROW, Kind.SET_ASIDE)
    kind = "schedules" if is_schedule else "runs"
    href = f"/{kind}/{quoted(need.subject)}"
    safe = None
    if need.action in _SAFE:
        safe = _step(need, f"/act/{kind}/{quoted(need.subject)}/{need.action}", _SAFE[need.action], "its cause is")
    answers = []
    if need.action == "reconcile":
        resumes = any("--then resume" in (step.command or "") for step in need.steps)
        answers = answer_links(need.subject, need.in_doubt, resumes=resumes)
    return {
        "kind": str(need.kind).replace("_", " "),
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
    return charts.bars(columns, ticks, title="how promises were kept in the last hour")


def house(seen: Overview) -> list[tuple[str, str, str]]:
    meanings = {"ok": "", "warning": "late", "wrong": "bad"}
    rows = [
        ("Schedulers", seen.scheduling.what, meanings[seen.scheduling.verdict]),
        ("Workers", seen.working.what, meanings[seen.working.verdict]),
    ]
    clocks = [
        f"{one.role} {one.number} is {lasting(max(abs(one.offset_low or 0), abs(one.offset_high or 0)))} off"
        for one in (*seen.schedulers, *seen.workers)
        if one.fenced
    ]
    rows.append(("Clocks", ", ".join(clocks) or "none is known to be wrong", "bad" if clocks else ""))
    return rows
