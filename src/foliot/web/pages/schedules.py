"""Schedules: the list of them, and one with its ticks, charts, rule and policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from foliot.domain.instant import Duration, Instant, rfc3339, spell
from foliot.domain.listing import RunFilter
from foliot.domain.pauses import Pause, What, pauses_about
from foliot.domain.run import RunView
from foliot.domain.standing import ScheduleFilter, ScheduleOrder, Standing, begun_after, mark_of
from foliot.operate.rules import clock_changes, local
from foliot.operate.shapes import (
    attempt_shape,
    coming_ticks,
    moment,
    policy_words,
    readable_rule,
    run_shape,
    schedule_shape,
    schedule_state,
    took,
)
from foliot.operate.words import counted, length
from foliot.web.caller import Caller
from foliot.web.pages import charts
from foliot.web.pages.asked import Asked
from foliot.web.pages.members import members_part
from foliot.web.pages.words import NOTHING, absolute, fact, lasting, number, quoted

_PAGE = 30
_TICKS = 30
_NESTED = 10
"""So many ticks that were tried more than once are shown with their attempts."""
_COMING = 8


async def schedules_page(caller: Caller, asked: Asked) -> dict[str, Any]:
    paused = {"true": True, "false": False}.get(asked.get("paused"))
    wanted = ScheduleFilter(
        text=asked.get("text") or None,
        job=asked.get("job") or None,
        tenant=caller.narrowed(asked.get("tenant") or None),
        paused=paused,
        needs_person=asked.has("needs_person"),
        order=ScheduleOrder.NEXT if asked.get("order") == "next" else ScheduleOrder.NAME,
    )
    page = await caller.operate.schedule_page_async(wanted, cursor=asked.cursor, limit=_PAGE)
    return {
        "heading": "Schedules",
        "asked": asked.filled("text", "job", "tenant", "paused", "order", "needs_person"),
        "any_asked": asked.any,
        "page": {
            "schedules": [_row(one, page.now, _pauses(caller, one, page.pauses)) for one in page.schedules],
            "complete": page.complete,
            "next": asked.next(page.cursor),
        },
        "first": asked.first,
    }


def _pauses(caller: Caller, one: Standing, pauses: Sequence[Pause]) -> list[Pause]:
    """What pauses it; but for a token that is bound to a tenant, not what operators said of things that all share."""
    mine = (f"schedule:{one.schedule.id}", f"tenant:{caller.tenant}")
    return [
        each if caller.tenant is None or each.name in mine else each._replace(name="", note="", actor="")
        for each in pauses_about(one.schedule, pauses)
    ]


def _paused_tags(one: Standing, pauses: Sequence[Pause]) -> list[str]:
    """By what, but for a pause of its own ticks, which is its state."""
    own = (f"schedule:{one.schedule.id}", What.CREATION)
    others = [each for each in pauses if (each.name, each.what) != own]
    return [f"{each.what} paused: {each.told}" if each.name else f"{each.what} paused" for each in others]


def _row(one: Standing, now: Instant, pauses: Sequence[Pause]) -> dict[str, Any]:
    view, interval = one.as_view, _interval(one)
    rule = readable_rule(view)
    takes = fact("durations.-1", lasting(one.durations[-1])) if one.durations else Markup("")
    if one.ratio is not None:
        takes += Markup(", {} of interval").format(fact("runtime_to_interval", _part(one.ratio)))
    title = f"durations of the last {counted(len(one.durations), 'run')}" + (
        "" if interval is None else f"; the interval is {spell(interval)}"
    )
    return {
        "id": one.schedule.id,
        "words": None if rule is None else rule.explain(),
        "state": schedule_state(view, now, pauses),
        "pauses": _paused_tags(one, pauses),
        "needs": _needs(one),
        "fault": one.schedule.fault,
        "paused_until": moment(one.schedule.paused_until) if one.schedule.paused(now) else None,
        "paused_note": one.schedule.paused_note if one.schedule.paused(now) else None,
        "next_fire_at": moment(view.next_fire_at),
        "last_success_at": moment(view.last_success_at),
        "active": len(one.active),
        "strip": charts.strip([str(mark) for mark in one.strip]),
        "sparkline": charts.sparkline(list(one.durations), interval, title),
        "takes": takes,
    }


def _interval(one: Standing) -> Duration | None:
    spans = [view.nominal - view.since for view in one.facts.recent if view.since and view.nominal > view.since]
    return spans[0] if spans else None


# One of them


async def schedule_page(caller: Caller, schedule: str) -> dict[str, Any]:
    view = await caller.schedule(schedule)
    operate = caller.operate
    standing, now = await operate.standing_async(schedule), await operate.now_async()
    ticks = (await operate.run_page_async(RunFilter(schedule=schedule), limit=_TICKS)).runs
    retried = [one.view for one in ticks if one.view.attempt > 1][:_NESTED]
    attempts = {one.number: (await operate.run_async(one.id)) for one in retried}
    rule = readable_rule(view)
    tz = rule.tz if rule else "UTC"
    coming = coming_ticks(view, now, _COMING)
    return {
        "heading": schedule,
        "schedule": schedule_shape(view, now),
        "tags": _tags(standing, now, _pauses(caller, standing, await operate.pauses_async())),
        "acts": _acts(standing, now),
        "figures": _figures(standing, now),
        "takes": _takes(standing),
        "durations_drawing": _durations(standing, [one.view for one in ticks]),
        "lateness_drawing": _lateness(standing, [one.view for one in ticks]),
        "ticks": [
            run_shape(one.view)
            | {
                "conditions": list(one.conditions),
                "attempts": [attempt_shape(one.view, each) for each in attempts[one.view.number].attempts]
                if one.view.number in attempts
                else [],
            }
            for one in ticks
            if one.view.fired_at is not None or one.view.fire_at <= now or one.view.finished_at is not None
        ],
        # Sets of members are the whole installation's.
        "members": None
        if caller.tenant is not None
        else await members_part(operate, view.schedule, [one.view for one in ticks], now),
        "upcoming": list(_upcoming(coming, tz, now)),
        "surprises": [] if rule is None else clock_changes(rule, now, tz)[:4],
        "policies": list(policy_words(view.schedule.policy).items()),
        "drift": await operate.declared_otherwise_async(schedule),
        "edits": _edits(view),
    }


def _edits(view: Any) -> list[Markup]:
    edit = getattr(view, "edit", None)
    if edit is None:
        return []
    at = fact("edited.at", absolute(moment(edit.at)))
    return [Markup("{}, by {}, {}").format(", ".join(edit.fields), edit.actor, at)]


def _tags(one: Standing, now: Instant, pauses: Sequence[Pause]) -> list[dict[str, str]]:
    state = schedule_state(one.as_view, now, pauses)
    meanings = {"paused": "late", "set aside": "bad", "busy": "busy", "waiting": "ok", "ended": "idle"}
    text = Markup(state)
    if one.schedule.paused(now) and state == "paused":
        until = one.schedule.paused_until
        text += Markup(" until {}").format(fact("paused_until", absolute(moment(until)))) if until else ""
        text += Markup(": {}").format(one.schedule.paused_note) if one.schedule.paused_note else ""
    if state == "set aside":
        text += Markup(": {}").format(one.schedule.fault)
    found = [{"meaning": meanings[state], "text": text}]
    found += [{"meaning": "late", "text": told} for told in _paused_tags(one, pauses)]
    return found + [{"meaning": "bad", "text": need} for need in _needs(one)]


def _needs(one: Standing) -> list[str]:
    """What waits for a person, beside being set aside, which is its state."""
    words = {"in_a_row": "failing in a row"}
    return [words.get(need, need.replace("_", " ")) for need in one.needs if need != "set_aside"]


def _acts(one: Standing, now: Instant) -> list[dict[str, str]]:
    at = f"/act/schedules/{quoted(one.schedule.id)}"
    paused = one.schedule.paused(now)
    return [
        {"href": f"{at}/trigger", "text": "Trigger…", "kind": ""},
        {"href": f"{at}/resume", "text": "Resume…", "kind": "safe"}
        if paused
        else {"href": f"{at}/pause", "text": "Pause…", "kind": ""},
        {"href": f"{at}/backfill", "text": "Backfill…", "kind": ""},
        {"href": f"{at}/edit", "text": "Edit…", "kind": ""},
        {"href": f"{at}/delete", "text": "Delete…", "kind": "unsafe"},
    ]


def _figures(one: Standing, now: Instant) -> list[dict[str, str]]:
    def figure(name: str, field: str, value: str, note: str = "", meaning: str = "") -> dict[str, str]:
        shown = NOTHING if value == NOTHING else fact(field, value)
        return {"name": name, "value": shown, "note": note, "meaning": meaning}

    useful = one.facts.useful_at
    heard = [each.heard for each in one.active if each.heard is not None]
    found = [
        figure(
            "Next due",
            "next_fire_at",
            "never" if one.next is None else _until(one.next.fire_at, now),
            "no tick left" if one.next is None else fact("next_fire_at", absolute(moment(one.next.fire_at))),
        ),
        figure(
            "Last useful completion",
            "last_success_at",
            "never" if useful is None else f"{length(now - useful)} ago",
            "" if useful is None else fact("last_success_at", absolute(moment(useful))),
        ),
        figure(
            "Running",
            "active",
            number(len(one.active)),
            Markup("for {}, last heartbeat {} ago").format(
                fact("#oldest", lasting(max(each.age for each in one.active))), fact("#heard", lasting(min(heard)))
            )
            if one.active and heard
            else "no active run",
        ),
        figure("Median queue delay", "queue_delay", lasting(one.queue_delay), "from hand-off to claim"),
        figure(
            "Lateness",
            "late",
            lasting(one.lateness),
            Markup("last run; maximum {}").format(fact("latest", lasting(one.worst))),
        ),
        figure(
            "Retries",
            "retries",
            number(one.retries),
            Markup("{} waiting").format(fact("retrying", number(one.retrying))),
            "late" if one.retrying else "",
        ),
        figure(
            "Useful completions per attempt",
            "useful_per_attempt",
            NOTHING if one.useful_per_attempt is None else f"{one.useful_per_attempt:.0%}",
        ),
        figure(
            "Partial ticks",
            "partial",
            number(one.partial) if one.schedule.over else NOTHING,
            "some members failed",
            "late" if one.partial else "",
        ),
        figure(
            "Completed",
            "completed",
            number(one.completed),
            Markup("of {} created, among the last thirty ticks").format(fact("emitted", number(one.emitted))),
        ),
        figure("Overlaps", "overlaps", number(one.overlaps)),
        figure(
            "Consecutive failures",
            "failures_in_a_row",
            number(one.in_a_row),
            meaning="bad" if one.in_a_row >= 3 else "",
        ),
    ]
    found += [figure("Backfill", "backlog", number(one.backlog), "runs remaining")] if one.backlog else []
    return [each for each in found if each["value"] != NOTHING]  # what nobody can know yet is not a figure


def _until(at: Instant, now: Instant) -> str:
    return f"in {length(at - now)}" if at > now else f"due {length(now - at)} ago"


def _takes(one: Standing) -> str | Markup:
    if not one.durations:
        return "no completed run yet"
    middle = sorted(one.durations)[len(one.durations) // 2]
    text = Markup("median {}").format(fact("#median", length(middle)))
    if one.ratio is None:
        return text
    return text + Markup(", {} of its interval").format(fact("runtime_to_interval", _part(one.ratio)))


def _part(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.01 else "<1%"


def _durations(one: Standing, views: Sequence[RunView]) -> Markup | None:
    return _dots(one, views, took, _interval(one), "run durations")


def _lateness(one: Standing, views: Sequence[RunView]) -> Markup | None:
    return _dots(one, views, begun_after, one.schedule.policy.missed_after, "start lateness of runs")


def _dots(one: Standing, views: Sequence[RunView], value: Any, limit: Duration | None, title: str) -> Markup | None:
    """The runs that have such a length, each at its height; the dashed line is the limit, where it is near."""
    found = [(view, max(value(view), 0)) for view in views if value(view) is not None]
    if not found:
        return None
    policy = one.schedule.policy
    low, high = min(view.nominal for view, _ in found), max(view.nominal for view, _ in found)
    top = max(size for _, size in found) or 1
    near = limit if limit is not None and limit <= 2 * top else None
    top = max(top, near or 0) * 1.1
    dots = [
        charts.Dot(
            (view.nominal - low) / (high - low) if high > low else 0.5,
            size,
            str(mark_of(view, policy.missed_after, policy.jitter or 0) or "running"),
            f"{view.id}: {length(size)}, {view.state}",
            f"/runs/{quoted(view.id)}",
        )
        for view, size in found
    ]
    words = [(0.0, "0"), (top / 2, length(round(top / 2))), (top, length(round(top)))]
    edges = (absolute(rfc3339(low)), absolute(rfc3339(high)))
    return charts.dots(dots, top, words, edges, near, title)


def _upcoming(ticks: Sequence[Instant], tz: str, now: Instant) -> Iterator[dict[str, Any]]:
    """By the clocks of the place, and in UTC; where those clocks have changed since the tick before, that is said."""
    before = local(now, tz).utcoffset()
    for tick in ticks:
        here = local(tick, tz)
        changed, before = before != here.utcoffset(), here.utcoffset()
        note = "after a clock change" if changed else None
        yield {"at": moment(tick), "local": f"{here:%a %d %b %H:%M %z}", "note": note}
