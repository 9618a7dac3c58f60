"""How what operators see of all of it at once looks in JSON, and in a few signs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foliot.domain.instant import MINUTE, Duration, Instant
from foliot.domain.listing import ListedRun, RunPage
from foliot.domain.overview import Holding, Tally
from foliot.domain.pauses import Pause
from foliot.domain.standing import Active, Mark, Standing
from foliot.domain.store import Duty, Instance
from foliot.operate.advising import step_shape
from foliot.operate.shapes import Shape, instance_shape, moment, run_shape, schedule_shape, seconds
from foliot.operate.surveying import Need, NeedPage, Overview, Signal, StandingPage

SIGNS = {
    Mark.KEPT: "▪",
    Mark.LATE: "◔",
    Mark.RETRIED: "↻",
    Mark.PARTIAL: "◐",
    Mark.SKIPPED: "·",
    Mark.MISSED: "○",
    Mark.FAILED: "✗",
    Mark.SETTLED: "✓",
}
"""One for each tick of a strip."""
_BARS = "▁▂▃▄▅▆▇█"


def strip_signs(marks: Sequence[Mark]) -> str:
    return "".join(SIGNS[mark] for mark in marks)


def sparkline(lengths: Sequence[Duration]) -> str:
    """Each as a block beside the longest."""
    most = max(lengths, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, length * len(_BARS) // most)] for length in lengths)


def listed_shape(one: ListedRun) -> Shape:
    """A run in a list, with what holds of it."""
    return run_shape(one.view) | {"conditions": [str(condition) for condition in one.conditions]}


def run_page_shape(page: RunPage) -> Shape:
    return {"runs": [listed_shape(one) for one in page.runs], "cursor": page.cursor, "complete": page.complete}


def standing_shape(one: Standing, now: Instant, coming: int = 0, pauses: Iterable[Pause] = ()) -> Shape:
    """A schedule, and how it stands. `pauses`: all that there are now."""
    useful_at = one.facts.useful_at
    return schedule_shape(one.as_view, now, coming, pauses) | {
        "last_created": one.schedule.last_created,
        "last_useful_at": moment(useful_at),
        "last_useful_age": None if useful_at is None else seconds(now - useful_at),
        "at_work": [_active_shape(active) for active in one.active],
        "waiting": one.waiting,
        "waiting_since": moment(one.waits_since),
        "retrying": one.retrying,
        "queue_delay": seconds(one.queue_delay),
        "late": seconds(one.lateness),
        "latest": seconds(one.worst),
        "runtime_to_interval": None if one.ratio is None else round(one.ratio, 4),
        "retries": one.retries,
        "overlaps": one.overlaps,
        "backlog": one.backlog,
        "useful_per_attempt": None if one.useful_per_attempt is None else round(one.useful_per_attempt, 3),
        "partial": one.partial,
        "emitted": one.emitted,
        "completed": one.completed,
        "failures_in_a_row": one.in_a_row,
        "failures_by_tenant": {tenant or "": count for tenant, count in one.facts.tenants.items()},
        "strip": [str(mark) for mark in one.strip],
        "durations": [seconds(length) for length in one.durations],
        "needs_person": list(one.needs),
    }


def _active_shape(active: Active) -> Shape:
    shown = run_shape(active.view)
    return {
        "id": active.view.id,
        "state": str(active.view.state),
        "attempt": active.view.attempt,
        "worker": active.view.worker,
        "age": seconds(active.age),
        "heard_of": seconds(active.heard),
        "progress": shown["progress"],
    }


def standing_page_shape(page: StandingPage) -> Shape:
    return {
        "schedules": [standing_shape(one, page.now, pauses=page.pauses) for one in page.schedules],
        "cursor": page.cursor,
        "complete": page.complete,
    }


def need_shape(need: Need) -> Shape:
    lists = {"counts": list(need.counts), "look": list(need.look), "in_doubt": list(need.in_doubt)}
    steps = [step_shape(step) for step in need.steps]
    return need._asdict() | {"kind": str(need.kind), "since": moment(need.since), **lists, "steps": steps}


def need_page_shape(page: NeedPage) -> Shape:
    return {"needs": [need_shape(need) for need in page.needs], "cursor": page.cursor}


def tally_shape(tally: Tally) -> Shape:
    return {**tally._asdict(), "promised": tally.promised}


def overview_shape(view: Overview) -> Shape:
    pulse = view.pulse
    return {
        "now": moment(pulse.now),
        "last_hour": tally_shape(pulse.hour),
        "last_day": tally_shape(pulse.day),
        "counted_at": moment(pulse.counted_at),
        "running": pulse.running,
        "retrying": pulse.retrying,
        "held": pulse.held,
        "waiting": pulse.waiting,
        "waiting_since": moment(pulse.oldest),
        "queue_delay": seconds(view.queue_delay),
        "lanes": {str(lane): {"waiting": one.waiting, "since": moment(one.since)} for lane, one in pulse.lanes.items()},
        "overdue": pulse.overdue,
        "overdue_since": moment(pulse.overdue_since),
        "early": pulse.early,
        "needs_person": {str(kind): count for kind, count in view.needs.items()},
        "coming": [
            {"from": moment(pulse.now + minute * MINUTE), "runs": count}
            for minute, count in sorted(pulse.coming.items())
        ],
        "next": [run_shape(run) for run in view.next],
        "ended": [run_shape(run) for run in view.ended],
        "schedulers": {**_signal_shape(view.scheduling), "last_tick": moment(pulse.last_tick)}
        | {"instances": [_instance_shape(one, view) for one in view.schedulers]},
        "workers": {**_signal_shape(view.working), "instances": [_instance_shape(one, view) for one in view.workers]},
    }


def _signal_shape(signal: Signal) -> Shape:
    return {"verdict": signal.verdict, "what": signal.what}


def _instance_shape(one: Instance, view: Overview) -> Shape:
    held = [holding for holding in view.pulse.holdings if holding.owner == one.number]
    return instance_shape(one) | {
        "heard_of": seconds(max(view.pulse.now - one.beat_at, 0)),
        "clock_offset": [seconds(one.offset_low), seconds(one.offset_high)],
        "fenced": one.fenced,
        "shards": [holding.shard for holding in held if holding.shard >= 0],
        "duties": duties(held),
        "running": view.pulse.at_work.get(one.number, 0),
    }


def duties(held: Sequence[Holding]) -> list[str]:
    known = {int(duty): duty.name.lower() for duty in Duty}
    return [known.get(one.shard, str(one.shard)) for one in held if one.shard < 0]
