"""The story of a run, as a person would tell it: who made it, what became of it, and what is safe now. Pure.

It is put together from what is on record: the run's own times, its attempts, the ledger, events, and the audit log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from foliot.domain.conditions import conditions, policy_of, silent_for
from foliot.domain.identity import first_of_lineage
from foliot.domain.instant import Duration, Instant, spell
from foliot.domain.ledger import EffectState, EffectView, Stage
from foliot.domain.policy import labels_of
from foliot.domain.run import AttemptView, Origin, Phase, RunView
from foliot.domain.state import PARKED, Outcome, Reason, State
from foliot.domain.store import AuditRow, EventRow, JobCard
from foliot.domain.suspicion import SUSPECTED_FROM, is_tried_apart, most_together
from foliot.operate.advising import (
    FIXED,
    TRIES,
    Guidance,
    batch_words,
    counts,
    facts_of,
    guidance,
    guidance_shape,
    shown_effect,
    told_detail,
)
from foliot.operate.limits import held_words
from foliot.operate.members import interval_shape, interval_words
from foliot.operate.shapes import (
    Shape,
    attempt_shape,
    audit_shape,
    batch_shape,
    effect_shape,
    event_shape,
    moment,
    run_shape,
)
from foliot.operate.words import counted, lateness, length, listed, one_line, to_the_second

_MOST_EFFECTS = 12
"""With more effects, those that are done share a line, except at most this many that a person or a probe settled."""


class Kind(StrEnum):
    """What a line of a story is about."""

    MADE = "made"
    DUE = "due"
    WAITING = "waiting"
    ATTEMPT = "attempt"
    EFFECT = "effect"
    ITEMS = "items"
    CHECK = "check"
    EVENT = "event"
    PERSON = "person"
    ENDED = "ended"
    NOW = "now"


class StoryLine(NamedTuple):
    at: Instant
    text: str
    kind: Kind


class Lineage(NamedTuple):
    """Everything that is on record about one run."""

    view: RunView
    """With its attempts."""
    now: Instant
    card: JobCard | None = None
    events: Sequence[EventRow] = ()
    audit: Sequence[AuditRow] = ()
    """What people did to it."""
    maker: AuditRow | None = None
    """Who made it, where a person did."""
    slots: int | None = None
    """Those of the largest live worker. Read only where the run waits under suspicion."""

    @property
    def guidance(self) -> Guidance | None:
        return guidance(self.view, self.card, self.now)


def listed_once(attempts: Sequence[AttemptView]) -> list[AttemptView]:
    """Each attempt once. The late write of an attempt that lost its run has a row of its own, and an event that tells
    it: only where there is no other row, it stands for the attempt."""
    others = {one.attempt for one in attempts if one.outcome is not Outcome.FENCED}
    return [one for one in attempts if one.outcome is not Outcome.FENCED or one.attempt not in others]


def lineage_shape(lineage: Lineage) -> Shape:
    """A run with everything that is known of it."""
    view, now = lineage.view, lineage.now
    return {
        **run_shape(view),
        "conditions": conditions(view, policy_of(view, lineage.card), now),
        "attempts": [attempt_shape(view, attempt) for attempt in view.attempts],
        "effects": [effect_shape(view, effect) for effect in view.effects],
        "batches": [batch_shape(batch) for batch in view.batches],
        "interval": None if view.interval is None else interval_shape(view.interval),
        "reruns": view.reruns,
        "events": [event_shape(event) for event in lineage.events],
        "audit": [audit_shape(row) for row in lineage.audit],
        "story": [{"at": moment(line.at), "kind": str(line.kind), "text": line.text} for line in story(lineage)],
        "advice": guidance_shape(lineage.guidance),
    }


def story(lineage: Lineage) -> list[StoryLine]:
    """In the order of time; what happened at one moment, in the order in which things happen."""
    view = lineage.view
    told: list[tuple[int, StoryLine]] = [
        *((0, line) for line in _beginning(lineage)),
        *((4 * view.attempt, line) for line in _handing_over(view)),
        *(placed for attempt in view.attempts for placed in _attempt(view, attempt)),
        *_effects(view),
        *((_LAST, line) for line in _events(lineage)),
        *((_LAST, _person(row)) for row in lineage.audit),
    ]
    told += [(_LAST, line) for line in _ending(lineage, max(line.at for _, line in told))]
    told.sort(key=lambda placed: (placed[1].at, placed[0]))
    return [*(line for _, line in told), *_today(lineage)]


_LAST = 1 << 32
"""The place, within one moment, of what follows from everything else. Attempt n has the places from 4n to 4n + 3:
handed over, begun, its effects, ended."""


# How it began


def _beginning(lineage: Lineage) -> Iterator[StoryLine]:
    view = lineage.view
    yield StoryLine(view.made_at, _made(lineage), Kind.MADE)
    if view.nominal <= lineage.now and view.origin is not Origin.RERUN:  # what a rerun repeats was due long before it
        # "Now" is read before a promise is written: what is due at once was not due before it was made.
        promised = view.origin in (Origin.DELAYED, Origin.MANUAL)
        yield StoryLine(max(view.nominal, view.made_at) if promised else view.nominal, "due", Kind.DUE)


def _handing_over(view: RunView) -> Iterator[StoryLine]:
    """Of its last attempt: the row remembers no others."""
    if view.fired_at is not None:
        is_check = view.state in (State.VERIFIED, State.UNVERIFIED, State.VERIFYING)  # not due at the run's own time
        late = "" if is_check else f" ({lateness(view.fired_at - view.fire_at)})"
        if view.interval is not None:
            made = counted(view.interval.members, "run")
            yield StoryLine(view.fired_at, f"created {made}, one per member", Kind.WAITING)
            return
        yield StoryLine(view.fired_at, f"handed off to workers{late}", Kind.WAITING)
    if view.claimed_at is not None:
        yield StoryLine(view.claimed_at, f"claimed by worker {view.worker}", Kind.WAITING)


def _made(lineage: Lineage) -> str:
    view, maker = lineage.view, lineage.maker
    by = "" if maker is None else f" by {maker.actor}" + (f": {one_line(maker.note)}" if maker.note else "")
    match view.origin:
        case Origin.SCHEDULED | Origin.BACKFILL:
            since = "" if view.since is None else f", for the interval since {to_the_second(view.since)}"
            member = f" for {view.member}" if view.member else ""
            return f"created by schedule {view.schedule}{member}, revision {view.revision}{since}"
        case Origin.MANUAL:
            return f"triggered on schedule {view.schedule}{by or ' manually'}"
        case Origin.RERUN:
            what = "created as a repair" if view.repair else "created as a rerun"
            return what + (by or f" of {first_of_lineage(view.id)}")
    return "promised" + (f" for tenant {view.tenant}" if view.tenant else "")


# What its attempts did


def _attempt(view: RunView, attempt: AttemptView) -> Iterator[tuple[int, StoryLine]]:
    check = _is_check(view, attempt)
    kind = Kind.CHECK if check else Kind.ATTEMPT
    what = "the check" if check else f"attempt {attempt.attempt}"
    worker = "" if attempt.worker is None else f" on worker {attempt.worker}"
    if attempt.started_at is not None:
        yield 4 * attempt.attempt + 1, StoryLine(attempt.started_at, f"{what} started{worker}", kind)
    if attempt.outcome is not None and attempt.finished_at is not None:
        yield 4 * attempt.attempt + 3, StoryLine(attempt.finished_at, _attempt_end(attempt, what), kind)


def _is_check(view: RunView, attempt: AttemptView) -> bool:
    """The attempt that only the run's own row tells of has no stage: where it was verified, that was its check."""
    is_last = attempt.attempt == view.attempt and attempt.stage is None
    return attempt.stage is Stage.CHECK or (is_last and (view.state is State.VERIFIED or view.phase is not None))


def _attempt_end(attempt: AttemptView, what: str) -> str:
    assert attempt.outcome is not None
    assert attempt.finished_at is not None
    lasted = "" if attempt.started_at is None else f" after {length(max(attempt.finished_at - attempt.started_at, 0))}"
    word = _WORDS.get(attempt.reason or "", _OUTCOMES[attempt.outcome])
    text = f"{what} {word}{lasted}"
    if attempt.outcome is not Outcome.SUCCEEDED and attempt.stage in _STAGES:
        text += f", {_STAGES[attempt.stage]}"
    # A check reports no progress: its row repeats that of the attempt which it checks.
    if attempt.outcome is not Outcome.SUCCEEDED and attempt.stage is not Stage.CHECK:
        lost = attempt.outcome is Outcome.LOST  # its later work is on record as effects only
        if came := how_far(attempt.progress):
            text += f"; last reported progress {came}" if lost else f"; progress {came}"
    if cause := _cause(attempt):
        text += f": {cause}"
    if followed := _FOLLOWED.get(attempt.reason or ""):
        text += f"; {followed}"
    return text


def _cause(attempt: AttemptView) -> str:
    """What went wrong. Where an effect was left open the error says that first, and then what the handler raised."""
    first, *rest = (attempt.error or "").splitlines() or [""]
    return told_detail(rest[0] if rest and attempt.reason == Reason.EFFECT else first)


_OUTCOMES = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.PERMANENT: "failed for good",
    Outcome.TIMED_OUT: "timed out",
    Outcome.STALLED: "stalled",
    Outcome.LOST: "was lost",
    Outcome.CANCELLED: "stopped after its cancellation",
    Outcome.INTERRUPTED: "was interrupted by the shutdown of its worker",
    Outcome.FENCED: "was fenced: it reported after its lease expired",
}
_WORDS: dict[str, str] = {Reason.CHECK: "rejected the result", Reason.LOCKED: "could not start"}
_STAGES = {
    Stage.BEFORE_EFFECT: "before any effect",
    Stage.AFTER_EFFECT: "after an effect was done",
    Stage.INSIDE_EFFECT: "during an effect",
}
_FOLLOWED: dict[str, str] = {
    Reason.ATTEMPTS: "no attempts left",
    Reason.PERMANENT: "not retried",
    Reason.TOO_OLD: "too old for a retry",
    Reason.POISON: "its isolated process crashed each time",
    Reason.BUDGET: "the job has used up this hour's retries; the run waits for the next hour",
    Reason.ASKED_TO_WAIT: "to be retried when the destination allows it",
    Reason.LOCKED: "the run waits for a worker with the encryption key",
    Reason.FAILED: "to be retried",
    Reason.TIMED_OUT: "to be retried",
    Reason.STALLED: "to be retried",
    Reason.LOST: "to be retried",
    Reason.EFFECT: "not retried, because it is unknown whether the effect happened",
    Reason.CHECK_FAILED: "it raised an error",
}


def how_far(progress: bytes | None) -> str | None:
    """`397 of 412 (reading)`, from what an attempt last said of itself; None when it said nothing."""
    try:
        said = json.loads(progress or b"null")
        done, of, note = said["done"], said.get("of"), said.get("note")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(done, int | float):
        return None
    text = f"{done:,}" + (f" of {of:,}" if isinstance(of, int | float) else "")
    return text + (f" ({one_line(str(note), 100)})" if note else "")


# What it did to the world outside


def _effects(view: RunView) -> Iterator[tuple[int, StoryLine]]:
    together = len(view.effects) > _MOST_EFFECTS
    settled = [effect for effect in view.effects if effect.state is EffectState.DONE and effect.note]
    apart = {(effect.name, effect.key) for effect in settled[:_MOST_EFFECTS]}
    for effect in view.effects:
        if not together or effect.state is not EffectState.DONE or (effect.name, effect.key) in apart:
            place = 4 * effect.attempt + 2 if effect.run == view.number else 1
            yield from ((place, line) for line in _effect(view, effect))
    done = [effect for effect in view.effects if together and effect.state is EffectState.DONE]
    by_name = sorted(done, key=lambda effect: effect.name)
    for name, same in groupby(by_name, key=lambda effect: effect.name):
        lines = list(same)
        last = max(lines, key=lambda effect: effect.ended_at or effect.started_at)
        text = f"effect {name} done for the last of {counted(len(lines), 'key')}"
        yield 4 * last.attempt + 2, StoryLine(last.ended_at or last.started_at, text, Kind.EFFECT)


def _effect(view: RunView, effect: EffectView) -> Iterator[StoryLine]:
    name = f"effect {shown_effect(effect)}"
    whose = f"attempt {effect.attempt}" if effect.run == view.number else "another run of its lineage"
    yield StoryLine(effect.started_at, f"{name} started ({whose})", Kind.EFFECT)
    if effect.ended_at is None:
        return
    result = "" if effect.result is None else f": {one_line(effect.result.decode('utf-8', 'replace'), 200)}"
    how = f" ({one_line(effect.note, 200)})" if effect.note else ""
    word = "done" if effect.state is EffectState.DONE else "did not happen"
    yield StoryLine(effect.ended_at, f"{name} {word}{result}{how}", Kind.EFFECT)


# What others did


def _events(lineage: Lineage) -> Iterator[StoryLine]:
    """But for those that an attempt tells already."""
    told = {str(attempt.outcome) for attempt in lineage.view.attempts}
    for event in lineage.events:
        if event.kind not in told:
            text = f"{event.kind.replace('_', ' ')}: {one_line(event.detail)}"
            yield StoryLine(event.at, text, Kind.EVENT)


def _person(row: AuditRow) -> StoryLine:
    did = _DID.get(row.action, row.action.replace("_", " "))
    return StoryLine(row.at, f"{row.actor} {did}" + (f": {one_line(row.note)}" if row.note else ""), Kind.PERSON)


_DID = {
    "cancel": "cancelled the run",
    "force_cancel": "forced the cancellation of the run",
    "move": "moved the run",
    "skip": "skipped the run",
    "retry": "retried the run",
    "replay": "replayed the run with others",
    "resume": "resumed the run",
    "rerun": "reran the run",
    "repair": "reran the run as a repair",
    "recheck": "requested the check again",
    "verify": "requested the check again",
    "reconcile": "reconciled the run",
    "trigger": "triggered the run",
    "release": "released the run despite its hold",
}


# How it ended, and what is so now


def _ending(lineage: Lineage, last: Instant) -> Iterator[StoryLine]:
    view = lineage.view
    at = last if view.finished_at is None else view.finished_at
    if view.state in PARKED:
        lines = counts(view, facts_of(view))
    else:
        lines = tuple(map(batch_words, view.batches))
    for text in lines:
        yield StoryLine(at, text, Kind.ITEMS)
    if view.finished_at is not None:
        yield StoryLine(view.finished_at, _ended(view), Kind.ENDED)
    elif view.state is State.SETTLED:
        yield StoryLine(at, "settled: remaining work must be resumed or closed", Kind.ENDED)
    elif view.state in PARKED:
        yield StoryLine(at, f"{view.state}{_because(view)}: needs attention", Kind.ENDED)


def _ended(view: RunView) -> str:
    text = str(view.state) + _because(view)
    if view.span_count > 1 and view.span_until is not None:
        text += f"; this row represents {view.span_count:,} ticks, up to {to_the_second(view.span_until)}"
    return text


def _because(view: RunView) -> str:
    detail = told_detail(view.detail)
    if view.state is State.VERIFIED:
        return f": {detail}" if detail else ""
    return "".join(f"{mark}{text}" for mark, text in ((": ", view.reason), (", ", detail)) if text)


def _today(lineage: Lineage) -> Iterator[StoryLine]:
    """What holds at this moment."""
    view, now = lineage.view, lineage.now
    if text := _suspected(view, lineage.slots) or _standing(view, now):
        yield StoryLine(now, text, Kind.NOW)
    if again := [name for name in view.reruns if name != view.id]:
        yield StoryLine(now, f"reruns: {listed(again)}", Kind.NOW)
    told = lineage.guidance
    if told is not None and told.steps[0].command:
        when = FIXED if told.advice.fix_first and told.steps[0].action in TRIES else "safe now"
        yield StoryLine(now, f"{when}: {told.advice.action} ({told.advice.why})", Kind.NOW)


def _standing(view: RunView, now: Instant) -> str | None:
    came = how_far(view.progress)
    match view.state:
        case State.RUNNING:
            silence = silent_for(view, now)
            said = "" if silence is None else f"; no progress reported for {length(silence)}"
            return f"attempt {view.attempt} is running" + (f", at {came}" if came else "") + said
        case State.VERIFYING if view.interval is not None:
            return f"waits for its members: {interval_words(view.interval)}"
        case State.VERIFYING:
            doubt = " it is unknown whether the work was done, and" if view.phase == Phase.DOUBT else ""
            return f"verifying:{doubt} the check decides{_needing(view)}"
        case State.HELD:
            return f"held: {held_words(view)}"
        case State.READY:
            return f"ready: waits for a worker with its job and a free slot{_needing(view)}"
        case State.RETRYING:
            return f"retry {_in(view.fire_at - now)}, at {to_the_second(view.fire_at)}"
        case State.SCHEDULED:
            return f"due {_in(view.fire_at - now)}{_needing(view)}"
    return None


def _suspected(view: RunView, slots: int | None) -> str | None:
    """The reason why a worker with free slots may leave a run to wait; None where it is under no suspicion."""
    if view.deaths is None or view.state is not State.READY:
        return None
    losses = max(view.losses, SUSPECTED_FROM)
    lost = f"suspected of crashing workers: lost {losses} times in a row"
    if slots is None:
        return f"{lost}; a worker executes at most slots / {2 ** (losses - 1):,} such runs together, at least one"
    if is_tried_apart(slots, losses):
        return f"{lost}; a worker with {counted(slots, 'slot')} executes it in an isolated process"
    most = counted(most_together(slots, losses), "such run")
    return f"{lost}; a worker with {counted(slots, 'slot')} executes at most {most} together"


def _needing(view: RunView) -> str:
    needed = labels_of(view.options)
    return f"; it needs a worker with the labels {', '.join(needed)}" if needed else ""


def _in(left: Duration) -> str:
    return f"in {spell(left - left % 1_000_000)}" if left >= 1_000_000 else "now"
