"""What people and programs are shown, as plain dicts: the one place that says how a thing looks in JSON.

Instants are RFC 3339 in UTC, durations are seconds, cursors are text (they outgrow a double). A field that has nothing
to say is null, never absent: programs can rely on the names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from foliot.domain.gates import Rate
from foliot.domain.identity import attempt_id, first_of_lineage, idempotency_key
from foliot.domain.instant import SECOND, Duration, Instant, rfc3339, spell
from foliot.domain.ledger import BatchView, EffectView
from foliot.domain.pauses import Pause, What, pauses_about
from foliot.domain.policy import AtCutoff, BlocksUntil, CatchUp, OnLost, OnStall, Overlap, Policy
from foliot.domain.rule import Rule
from foliot.domain.run import AttemptView, Kept, RunView
from foliot.domain.schedule import Edit, ScheduleView
from foliot.domain.state import TERMINAL
from foliot.domain.store import AuditRow, EventRow, Instance
from foliot.errors import InvalidInput
from foliot.operate.words import counted
from foliot.timing import decode, upcoming
from foliot.timing.binding import Binding, binding_in

Shape = dict[str, Any]

COUNTS = tuple(field.name for field in fields(Policy) if str(field.type) in ("int", "int | None"))
DURATIONS = tuple(field.name for field in fields(Policy) if str(field.type) in ("Duration", "Duration | None"))
"""Settings that are numbers, and no lengths of time."""


def moment(when: Instant | None) -> str | None:
    return None if when is None else rfc3339(when)


def seconds(length: Duration | None) -> float | None:
    return None if length is None else length / SECOND


def run_shape(view: RunView) -> Shape:
    """A run as it stands in a list."""
    return {
        "id": view.id,
        "state": str(view.state),
        "reason": view.reason,
        "detail": view.detail,
        "job": view.job,
        "schedule": view.schedule,
        "member": view.member,
        "revision": view.revision,
        "tenant": view.tenant,
        "origin": str(view.origin),
        "queue": view.queue,
        "lane": str(view.lane),
        "priority": view.priority,
        "arguments": arguments(view),
        "attempt": view.attempt,
        "spent": view.spent,
        "worker": view.worker,
        "nominal": moment(view.nominal),
        "since": moment(view.since),
        "made_at": moment(view.made_at),
        "fire_at": moment(view.fire_at),
        "fired_at": moment(view.fired_at),
        "claimed_at": moment(view.claimed_at),
        "started_at": moment(view.started_at),
        "finished_at": moment(view.finished_at),
        "late": seconds(view.late_by),
        "took": seconds(took(view)),
        "progress": _decoded(view.progress),
        "result": _decoded(view.result),
        "span_until": moment(view.span_until),
        "span_count": view.span_count,
        "cancel_requested": view.cancel_requested,
        "repair": view.repair,
        "deaths": view.deaths,
        "cursor": str(view.number),
    }


def arguments(view: RunView) -> Any:
    """What its handler is given: what was stated, and what its tick gives."""
    stated, bound = _decoded(view.payload), _binding(view.options)
    if bound is None or not isinstance(stated, dict):
        return stated
    try:
        return stated | bound.values(view.id, view.nominal, view.since, view.member)
    except InvalidInput:  # it has no interval: its attempt will say so
        return stated | dict(bound.arguments)


def bound_arguments(view: ScheduleView) -> dict[str, str] | None:
    """By argument, what each run gets it from; None when there are none."""
    bound = _binding(view.schedule.options)
    return None if bound is None else dict(bound.arguments)


def _binding(options: bytes | None) -> Binding | None:
    try:
        return binding_in(options)
    except InvalidInput:
        return None


def attempt_shape(view: RunView, attempt: AttemptView) -> Shape:
    return {
        "id": attempt_id(view.id, attempt.attempt),
        "attempt": attempt.attempt,
        "outcome": None if attempt.outcome is None else str(attempt.outcome),
        "stage": None if attempt.stage is None else str(attempt.stage),
        "reason": attempt.reason,
        "worker": attempt.worker,
        "started_at": moment(attempt.started_at),
        "finished_at": moment(attempt.finished_at),
        "took": seconds(attempt_took(attempt)),
        "progress": _decoded(attempt.progress),
        "error": attempt.error,
    }


def effect_shape(view: RunView, effect: EffectView) -> Shape:
    return {
        "name": effect.name,
        "key": effect.key,
        "state": str(effect.state),
        "maybe": effect.is_maybe,
        "settles": None if effect.settles is None else str(effect.settles),
        "attempt": effect.attempt,
        "own": effect.run == view.number,
        "idempotency_key": idempotency_key(first_of_lineage(view.id), effect.name, effect.key),
        "started_at": moment(effect.started_at),
        "ended_at": moment(effect.ended_at),
        "result": _decoded(effect.result),
        "note": effect.note,
        "undo": effect.undo,
    }


def batch_shape(batch: BatchView) -> Shape:
    return {
        "name": batch.name,
        "of": batch.of,
        "done": batch.done,
        "in_doubt": batch.in_doubt,
        "not_done": batch.left,
        "failed": batch.failed,
        "failures": [{"key": key, "error": error} for key, error in batch.failures],
    }


def audit_shape(row: AuditRow) -> Shape:
    return {"at": moment(row.at), "actor": row.actor, "action": row.action, "note": row.note}


def pause_shape(pause: Pause) -> Shape:
    return {
        "name": pause.name,
        "what": str(pause.what),
        "since": moment(pause.since),
        "until": moment(pause.until),
        "actor": pause.actor or None,
        "note": pause.note or None,
    }


def schedule_shape(view: ScheduleView, now: Instant, coming: int = 0, pauses: Iterable[Pause] = ()) -> Shape:
    """A schedule; with `coming`, so many of its next nominal times too. `pauses`: all that there are now."""
    schedule, rule = view.schedule, readable_rule(view)
    about = pauses_about(schedule, pauses)
    return {
        "id": schedule.id,
        "job": schedule.job,
        "rule": _decoded(schedule.rule.encode()),
        "words": rule.explain() if rule else None,
        "state": schedule_state(view, now, about),
        "fault": schedule.fault,
        "paused_until": moment(schedule.paused_until) if schedule.paused(now) else None,
        "paused_note": schedule.paused_note if schedule.paused(now) else None,
        "paused_by": schedule.paused_by if schedule.paused(now) else None,
        "pauses": [pause_shape(one) for one in about],
        "edited": _edit_shape(view.edit),
        "revision": schedule.revision,
        "tenant": schedule.tenant,
        "queue": schedule.queue,
        "priority": schedule.priority,
        "owner": schedule.owner,
        "runbook": schedule.runbook,
        "changes": schedule.changes,
        "arguments": _decoded(schedule.payload),
        "bind": bound_arguments(view),
        "over": schedule.over,
        "tz": rule.tz if rule else None,
        "source": schedule.source,
        "tables": schedule.tables,
        "policy": policy_shape(schedule.policy),
        "next_run": view.next_id,
        "next_nominal": moment(view.next_nominal),
        "next_fire_at": moment(view.next_fire_at),
        "last_run": view.last_run_id,
        "last_run_state": view.last_run_state,
        "last_success_at": moment(view.last_success_at),
        "active": view.active,
        "evaluated_through": moment(schedule.evaluated_through),
        "made_at": moment(schedule.made_at),
    } | ({"upcoming": [moment(tick) for tick in coming_ticks(view, now, coming)]} if coming else {})


def _edit_shape(edit: Edit | None) -> Shape | None:
    return None if edit is None else {"at": moment(edit.at), "actor": edit.actor, "fields": list(edit.fields)}


def without_secrets(url: str) -> str:
    """Where an address leads, without what is behind its host: whoever knows that can ping it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/***"


def policy_shape(policy: Policy) -> Shape:
    def shown(name: str) -> Any:
        value = getattr(policy, name)
        if name == "ping" and value is not None:
            return without_secrets(value)
        if isinstance(value, str | Rate):
            return str(value)
        if isinstance(value, tuple):
            return list(value)
        return value if name in COUNTS or isinstance(value, float) else seconds(value)

    return {field.name: shown(field.name) for field in fields(policy)}


def event_shape(event: EventRow) -> Shape:
    return {
        "at": moment(event.at),
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
        "cursor": str(event.position),
    }


def instance_shape(instance: Instance) -> Shape:
    return {
        "number": instance.number,
        "role": instance.role,
        "host": instance.host,
        "pid": instance.pid,
        "version": instance.version,
        "queues": list(instance.queues),
        "labels": list(instance.labels),
        "slots": instance.slots,
        "reserved": dict(instance.reserved),
        "wish": instance.wish,
        "wish_note": instance.wish_note,
        "started_at": moment(instance.started_at),
        "beat_at": moment(instance.beat_at),
    }


def kept_shape(kept: Kept) -> Shape:
    return {
        "id": kept.id,
        "outcome": kept.outcome,
        "state": str(kept.state),
        "fire_at": moment(kept.fire_at),
        "differs": list(kept.differs),
    }


# What the shapes are made of, for those who show the same in words.


def took(view: RunView) -> Duration | None:
    """How long the attempt that ended the run lasted."""
    if view.started_at is None or view.finished_at is None:
        return None
    return max(view.finished_at - view.started_at, 0)


def attempt_took(attempt: AttemptView) -> Duration | None:
    if attempt.started_at is None or attempt.finished_at is None:
        return None
    return max(attempt.finished_at - attempt.started_at, 0)


def schedule_state(view: ScheduleView, now: Instant, pauses: Iterable[Pause] = ()) -> str:
    """`set aside`, `paused`, `busy`, `waiting`, or `ended`: a rule that has no further tick. `pauses`: those of it, and
    of its job, queue and tenant."""
    if view.schedule.fault is not None:
        return "set aside"
    if view.schedule.paused(now) or any(one.what is What.CREATION for one in pauses):
        return "paused"
    if view.active:
        return "busy"
    return "waiting" if view.next_id is not None else "ended"


def readable_rule(view: ScheduleView) -> Rule | None:
    """The schedule's rule; None when a newer release wrote one that this one cannot read."""
    try:
        return decode(view.schedule.rule)
    except InvalidInput:
        return None


def last_tick(view: ScheduleView, now: Instant) -> Instant | None:
    """The nominal time before now: where the interval of a run begins that is made now."""
    rule = readable_rule(view)
    if rule is None or rule.delay is not None:
        return None  # a fixed delay has no intervals
    try:
        before = rule.previous(now)
    except InvalidInput:  # it gave its search up; a run by hand must not fail for that
        before = None
    return view.schedule.made_at if before is None else before


def coming_ticks(view: ScheduleView, now: Instant, count: int) -> list[Instant]:
    """The next nominal times; a fixed delay knows at most the one that is waiting."""
    rule = readable_rule(view)
    if rule is None or rule.delay is not None:
        return [] if view.next_nominal is None else [view.next_nominal]
    return upcoming(rule, now, count)


def policy_words(policy: Policy) -> dict[str, str]:
    """What was chosen, in sentences, by the question that each answers."""
    return {
        "overlap": {
            Overlap.SKIP: "skip a tick while an earlier run is busy",
            Overlap.QUEUE: f"queue up to {policy.queue_limit:,} ticks while an earlier run is busy; skip the others",
            Overlap.COALESCE: "merge ticks into one while an earlier run is busy",
            Overlap.REPLACE: "stop an earlier run, and start when it has ended",
            Overlap.ALLOW: "runs may overlap",
        }[policy.overlap]
        + _BLOCKS[policy.blocks_until],
        "catch-up": _catch_up_words(policy),
        "retry": _retry_words(policy),
        "time limit": f"at most {spell(policy.timeout)} per attempt; a worker without heartbeats is lost after "
        f"{spell(policy.lease)}",
        "lost worker": {
            OnLost.RETRY: "retry (the handler may run twice)",
            OnLost.ASK: "park it as ambiguous until a person decides",
        }[policy.on_lost],
    } | _optional_words(policy)


def _catch_up_words(policy: Policy) -> str:
    chosen = {
        CatchUp.ONCE: "run the latest missed tick, once",
        CatchUp.ALL: "run every missed tick, oldest first",
        CatchUp.SKIP: "skip missed ticks",
    }[policy.catch_up]
    window = f", none older than {spell(policy.catch_up_window)}" if policy.catch_up_window is not None else ""
    return f"{chosen}{window} (missed: more than {spell(policy.missed_after)} late)"


def _retry_words(policy: Policy) -> str:
    if policy.attempts == 1:
        return "one attempt, no retry"
    limit = f", none after {spell(policy.give_up_after)}" if policy.give_up_after is not None else ""
    return (
        f"up to {policy.attempts} attempts, waiting up to {spell(policy.backoff)} after the first, doubling to "
        f"{spell(policy.backoff_cap)}{limit}"
    )


def _optional_words(policy: Policy) -> dict[str, str]:
    words = {}
    if policy.requires is not None:
        then = "is skipped" if policy.at_cutoff is AtCutoff.SKIP else "runs without it"
        words["required result"] = (
            f"a useful result of {policy.requires}; a tick waits for it up to {spell(policy.cutoff)}, then {then}"
        )
    stages = [
        f"{most} {where}"
        for most, where in (
            (policy.attempts_after_effect, "once an effect is done"),
            (policy.attempts_inside_effect, "after a failure inside an effect"),
        )
        if most is not None
    ]
    if stages:
        words["attempts"] = f"at most {', '.join(stages)}"
    if policy.retries_per_hour is not None:
        words["budget"] = f"{policy.retries_per_hour} retries per hour for all runs of the job; further retries wait"
    if policy.stall_after is not None:
        words["stuck attempt"] = f"after {spell(policy.stall_after)} without progress {_ON_STALL[policy.on_stall]}"
    if policy.poison_after != Policy().poison_after:
        words["poison"] = (
            f"dead when worker processes that executed only this run crashed {counted(policy.poison_after, 'time')}"
        )
    if policy.useful_until is not None:
        words["usefulness"] = f"a run is skipped if it cannot start within {spell(policy.useful_until)} of its time"
    if policy.concurrency_key is not None:
        words["key"] = f"{policy.key_limit} at a time with the key {policy.concurrency_key}"
    expected = [
        f"{how} {spell(length)}"
        for how, length in (("every", policy.expect_every), ("of each tick within", policy.expect_within))
        if length is not None
    ]
    if expected:
        words["expected result"] = f"a useful result {', and '.join(expected)}; else an alert"
    if policy.ping is not None:
        words["ping"] = f"{without_secrets(policy.ping)} receives the start and end of each run"
    if policy.no_alerts:
        words["no alerts"] = ", ".join(policy.no_alerts)
    if policy.labels:
        words["labels"] = f"only on workers that have {', '.join(policy.labels)}"
    if policy.destination is not None:
        words["destination"] = policy.destination + (
            f"; held after {counted(policy.breaker_after, 'failure')} in a row, and probed "
            f"{spell(policy.breaker_probe)} later"
            if policy.breaker_after is not None
            else ""
        )
    limits = [] if policy.concurrency is None else [f"{policy.concurrency:,} at a time"]
    limits += [] if policy.rate is None else [str(policy.rate)]
    if limits:
        words["limit"] = f"{', '.join(limits)}, for all runs of the job"
    if policy.complete is not None:
        words["completion"] = f"a tick is verified when {policy.complete:.4g} of its members are done, or more"
    if policy.jitter:
        words["jitter"] = f"each tick is moved by up to {spell(policy.jitter)}"
    return words


_BLOCKS = {
    BlocksUntil.ENDED: "",
    BlocksUntil.SUCCEEDED: "; a dead or ambiguous run counts as busy",
    BlocksUntil.VERIFIED: "; a run that needs attention counts as busy",
}
_ON_STALL = {
    OnStall.ALERT: "the watch opens an alert",
    OnStall.CANCEL: "the worker cancels the attempt",
    OnStall.KILL: "the worker cancels the attempt, and ends its process if it does not stop",
}


def has_ended(view: RunView) -> bool:
    return view.state in TERMINAL


def _decoded(data: bytes | None) -> Any:
    """JSON as it was given; text when it is none, because showing something beats failing."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")
