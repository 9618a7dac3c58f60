"""The first page: is everything kept, what needs a person, what comes next."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.listing import RunFilter
from foliot.domain.overview import Tally
from foliot.domain.state import State
from foliot.operate.shapes import moment, run_shape
from foliot.operate.surveying import Kind, Need, Overview
from foliot.operate.words import counted
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.run import answer_links
from foliot.web.pages.words import day_and_time, lasting, number, quoted, share

_ROWS = 8
_LOOKED_AT = 100
"""So many things that need a person are put together by what they are about."""
_TICK = re.compile(r"@[0-9TZ:.+-]+")
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
    "retry": "Retry…",
    "resume": "Resume…",
    "repair": "Repair…",
    "rerun": "Rerun…",
    "verify": "Ask its check…",
    "reconcile": "Settle it…",
    "cancel": "Ask it to stop…",
    "pause": "Pause it…",
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
        operate.needs_person_async(limit=_LOOKED_AT),
        operate.run_page_async(RunFilter(states=(State.RUNNING,)), limit=_ROWS),
        operate.kept_by_minute_async(60),
    )
    return {
        "heading": "Now",
        "answer": answer(seen),
        "figures": figures(seen),
        "needs": need_rows(needs.needs)[:_ROWS],
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


def need_rows(needs: Sequence[Need]) -> list[dict[str, Any]]:
    """One row for all that has one cause, most likely: runs of one schedule and member, or of one job, of one kind."""
    groups: dict[tuple[Any, ...], list[Need]] = {}
    for need in needs:
        groups.setdefault((need.kind, about(need), need.tenant, need.what, need.action), []).append(need)
    return [need_row(group[0]) if len(group) == 1 else group_row(group) for group in groups.values()]


def about(need: Need) -> str:
    """`schools[atlantis]` of `schools@2026-04-03T02:00:00Z[atlantis]`; of a promise, its job."""
    return need.job if need.schedule is None else _TICK.sub("", need.subject, count=1)


def group_row(group: Sequence[Need]) -> dict[str, Any]:
    """The newest speaks for the others. What is safe for each is offered for all, where there is such a verb."""
    one, name = group[0], about(group[0])
    by = {"job": one.job} if one.schedule is None else {"schedule": one.schedule}
    by |= {} if one.tenant is None else {"tenant": one.tenant}
    chosen = urlencode(by)
    state = {"state": str(one.kind)} if one.kind is not Kind.STUCK else {"condition": str(one.kind)}
    safe = None
    if one.kind is Kind.DEAD and one.action in ("retry", "resume"):
        safe = {"href": f"/act/dead/all/replay?{chosen}", "text": "Replay…"}
    return need_row(one) | {
        "kind": f"{len(group):,} {one.kind}",
        "id": name,
        "href": f"/runs?{urlencode(state)}&{chosen}",
        "since": moment(min(each.since or 0 for each in group)),
        "newest": moment(one.since),
        "counts": (),
        "look": (),
        "safe": safe,
        "answers": [],
    }


def need_row(need: Need) -> dict[str, Any]:
    is_schedule = need.kind in (Kind.IN_A_ROW, Kind.SET_ASIDE)
    kind = "schedules" if is_schedule else "runs"
    href = f"/{kind}/{quoted(need.subject)}"
    safe = None
    if need.action in _SAFE:
        safe = {"href": f"/act/{kind}/{quoted(need.subject)}/{need.action}", "text": _SAFE[need.action]}
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
