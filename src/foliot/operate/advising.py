"""What is known of a run, what is safe to do about it, and what to type. Pure: `now` is an argument.

`foliot.domain.recovery` decides; here its words become sentences and commands for a person who was just woken up.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from foliot.domain.conditions import is_stuck, policy_of, silent_for
from foliot.domain.identity import first_of_lineage, idempotency_key
from foliot.domain.instant import Instant
from foliot.domain.ledger import (
    BatchView,
    EffectState,
    EffectView,
    Facts,
    Then,
    Traits,
    is_unfinished,
    traits_from_json,
)
from foliot.domain.overview import ParkedRun
from foliot.domain.recovery import Action, Advice, Situation, advise
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, Reason, State
from foliot.domain.store import JobCard
from foliot.operate.shapes import Shape
from foliot.operate.words import brief, counted, headline, length, listed, one_line, to_the_second

_NAMED = 5
"""So many effects are named one by one."""
_FAILURES = 3
"""At most this many failed items are named with their errors."""


TRIES = frozenset({Action.RETRY, Action.RESUME, Action.REPAIR})
FIXED = "after the cause is fixed"
"""What stands before a step that cannot help earlier."""


class Step(NamedTuple):
    """Something that a person can do."""

    action: Action
    text: str
    """What it does, or when it is right."""
    command: str | None
    """None when there is nothing to type."""


class Guidance(NamedTuple):
    """Advice in words: what happened, what to look for, what to type, and what is refused."""

    advice: Advice
    lead: str
    look: tuple[str, ...]
    """What to look for in the systems that the job acts upon."""
    steps: tuple[Step, ...]
    """The safest first."""
    refused: tuple[Step, ...]
    """Refused without --override."""
    counts: tuple[str, ...] = ()
    """Items and effects, each counted apart: `accounts: 312 of 400 done, 1 ambiguous, 87 not done`."""


def traits_of(card: JobCard | None) -> Traits:
    return traits_from_json(None if card is None else card.traits)


def facts_of(view: RunView) -> Facts:
    return Facts.of(view.effects, sum(batch.done for batch in view.batches), view.has_checkpoint)


def situation(view: RunView, card: JobCard | None, now: Instant, known: ParkedRun | None = None) -> Situation:
    """`known`: what was looked up for many runs at once; else what the view itself tells, which then is whole."""
    policy = policy_of(view, card)
    return Situation(
        state=view.state,
        reason=view.reason,
        facts=facts_of(view) if known is None else known.facts,
        traits=traits_of(card),
        on_lost=policy.on_lost,
        begun=_has_begun(view) if known is None else known.begun,
        stuck=is_stuck(view, policy, now),
        asked_to_stop=view.cancel_requested,
        forced=view.cancel_forced,
    )


def _has_begun(view: RunView) -> bool:
    """Whether a handler may have done anything. A vanished worker did not always live to say that it began."""
    began = (attempt.started_at is not None or attempt.outcome is Outcome.LOST for attempt in view.attempts)
    return view.started_at is not None or any(began)


# Guidance


def guidance(view: RunView, card: JobCard | None, now: Instant, known: ParkedRun | None = None) -> Guidance | None:
    """What to do about a run; None when nothing needs to be done."""
    advice = advise(situation(view, card, now, known))
    if advice is None:
        return None
    steps = [step for action in (advice.action, *advice.also) for step in _steps(view, action)]
    if advice.fix_first:
        steps = [step._replace(text=f"{FIXED}: {step.text}") if step.action in TRIES else step for step in steps]
    return Guidance(
        advice=advice,
        lead=_lead(view, now),
        look=tuple(_look(view)),
        steps=tuple(steps),
        refused=tuple(_refused(view, action) for action in advice.unsafe),
        counts=counts(view, facts_of(view) if known is None else known.facts),
    )


def guidance_shape(told: Guidance | None) -> Shape | None:
    """The same for programs."""
    if told is None:
        return None

    return {
        "class": str(told.advice.recovery),
        "why": told.advice.why,
        "action": str(told.advice.action),
        "fix_first": told.advice.fix_first,
        "lead": told.lead,
        "counts": list(told.counts),
        "look": list(told.look),
        "steps": list(map(step_shape, told.steps)),
        "refused": list(map(step_shape, told.refused)),
    }


def step_shape(step: Step) -> Shape:
    return {"action": str(step.action), "text": step.text, "command": step.command}


def refusal(view: RunView, told: Guidance) -> str:
    """Why an action was refused, and the safe step instead, on one line."""
    instead = next((step.command for step in told.steps if step.command), None)
    find_out = (
        "First find out whether the work was done, then record the answer"
        if told.advice.action is Action.RECONCILE
        else "Safe step"
    )
    safe = f" {find_out}: {instead}" if instead else ""
    unsettled = listed([shown_effect(effect) for effect in open_effects(view)], _NAMED)
    known = told.advice.why + (f" ({unsettled})" if unsettled else "")
    return f"{view.id} is {view.state}: {known}. Foliot refuses the action without an override and a reason.{safe}"


def counts(view: RunView, facts: Facts) -> tuple[str, ...]:
    """Items and effects, each counted apart."""
    in_doubt = facts.open + facts.maybe
    known = (("done", facts.done), ("ambiguous", in_doubt), ("not done", facts.undone))
    effects = ", ".join(f"{count:,} {word}" for word, count in known if count)
    return (*map(batch_words, view.batches), *([f"effects: {effects}"] if effects else []))


def batch_name(batch: BatchView) -> str:
    return batch.name or "items"


def batch_words(batch: BatchView) -> str:
    """`accounts: 397 of 412 done, 1 ambiguous, 14 not done`; with the first that failed, and why."""
    text = f"{batch_name(batch)}: {batch} done"
    for word, count in (("ambiguous", batch.in_doubt), ("not done", batch.left)):
        text += f", {count:,} {word}" if count else ""
    if batch.failed:
        named = [
            f"{key} ({one_line(headline(error), 80)})" if error else key for key, error in batch.failures[:_FAILURES]
        ]
        rest = batch.failed - len(named)
        text += f", {batch.failed:,} failed: {', '.join(named)}" + (f" and {rest:,} more" if rest > 0 else "")
    return text


def open_effects(view: RunView) -> list[EffectView]:
    """Those that began and have no recorded end."""
    return [effect for effect in view.effects if effect.state is EffectState.STARTED]


def shown_effect(effect: EffectView) -> str:
    """`payout:7`: what the command line takes."""
    return f"{effect.name}:{effect.key}"


def told_detail(detail: str | None) -> str:
    """A detail or an error on one line, without saying again that a check says no, as its reason does."""
    return one_line(brief(detail), 300)


def _lead(view: RunView, now: Instant) -> str:
    """What happened, in one sentence."""
    said = f": {detail}" if (detail := told_detail(view.detail)) else ""
    match view.state:
        case State.AMBIGUOUS if view.reason == Reason.LOST:
            return "The worker was lost, and the progress of the run is unknown."
        case State.AMBIGUOUS if view.reason in (Reason.CHECK, Reason.CHECK_FAILED):
            return f"It is unknown whether the work was done, and the check could not confirm it{said}."
        case State.SETTLED:
            return f"The effects are reconciled, and part of the work is not done{said}."
        case State.AMBIGUOUS:
            return "The run may have caused an external effect, and no record proves whether it did."
        case State.UNVERIFIED if view.reason == Reason.INCOMPLETE:
            return f"Too few members are done{said}."
        case State.UNVERIFIED if view.reason == Reason.CHECK_FAILED:
            return f"The handler finished, and the check raised an error{said}."
        case State.UNVERIFIED:
            return f"The handler finished, and the check rejected the result{said}."
        case State.RETRYING:
            return f"The last attempt did not succeed. The scheduler retries the run at {to_the_second(view.fire_at)}."
        case State.RUNNING if view.cancel_forced:
            return (
                "The cancellation was forced: if the handler does not stop, its worker ends the process. If nothing "
                f"happens, end the process of worker {view.worker} yourself; foliot workers list names the host."
            )
        case State.RUNNING if view.cancel_requested:
            return "Cancellation was requested, and the run has not stopped yet."
        case State.RUNNING:
            return f"The worker sends heartbeats, and the run reported no progress for {length(silent_for(view, now))}."
    known = _DEAD.get(view.reason or "", "The run failed for good")
    text = known.format(tries=counted(view.attempt, "attempt"), deaths=counted(view.deaths or 0, "time"))
    error = said.rstrip(".") if view.reason in (Reason.ATTEMPTS, Reason.PERMANENT) else ""
    return f"{text}{error}" + ("" if error.endswith("…") else ".")


_DEAD: dict[str, str] = {
    Reason.ATTEMPTS: "No attempts are left after {tries}. Fix the cause of the last error first",
    Reason.PERMANENT: "The handler reported a permanent error. Fix its cause first",
    Reason.TOO_OLD: "The run became too old for another retry (give_up_after)",
    Reason.POISON: "A worker process that executed only this run crashed {deaths}. Find the cause before a retry",
    Reason.BAD_PAYLOAD: "The arguments do not match the job's parameters. Deploy code that accepts them first",
    Reason.BAD_ROW: "This release cannot read the row of the run; a newer release may have written it",
}


def _look(view: RunView) -> list[str]:
    """Each effect without an end, with what the other side knows it by."""
    found, first = open_effects(view), first_of_lineage(view.id)
    told = [
        f"{shown_effect(effect)} started at {to_the_second(effect.started_at)}, in attempt {effect.attempt}, and "
        f"has no recorded outcome; its idempotency key is {idempotency_key(first, effect.name, effect.key)}"
        for effect in found[:_NAMED]
    ]
    return told + ([f"and {len(found) - _NAMED:,} more such effects"] if len(found) > _NAMED else [])


def _steps(view: RunView, action: Action) -> list[Step]:
    if action is Action.RECONCILE and open_effects(view):
        resumes = view.reason != Reason.POISON
        return [
            _settling(
                view, "if the effect happened" + (": does only the remaining work" if resumes else ""), EffectState.DONE
            ),
            _settling(
                view,
                "if the effect did not happen: does it now, with the remaining work"
                if resumes
                else "if the effect did not happen",
                EffectState.NOT_DONE,
            ),
        ]
    if action is Action.RECONCILE and is_unfinished(view.effects, view.batches, returned=True):
        resume = Step(
            action,
            "when you know that continuing is safe: does the remaining work",
            _command(view, action, f"--then {Then.RESUME}"),
        )
        close = Step(Action.CLOSE, _DOES[Action.CLOSE], _command(view, Action.CLOSE))
        return [resume, close] if view.state is State.AMBIGUOUS else [close]
    if action is Action.VERIFY and view.reason == Reason.INCOMPLETE:
        return [Step(action, "after the runs of the members are done: counts them again", _command(view, action))]
    if action is Action.VERIFY and view.reason == Reason.CHECK:
        return [Step(action, f"{_DOES[action]}; the check rejected the result last time", _command(view, action))]
    return [Step(action, _DOES[action], _command(view, action))]


_DOES = {
    Action.WAIT: "the run continues automatically",
    Action.RETRY: "retries the run, with new attempts",
    Action.RESUME: "continues where the run stopped: work recorded as done is not repeated",
    Action.REPAIR: "creates a new run that writes all output again",
    Action.RERUN: "creates a new run with the same arguments and ledger",
    Action.VERIFY: "runs the job's check again, which changes nothing else",
    Action.RECONCILE: "when you have resolved the run elsewhere: ends it and stores your evidence",
    Action.CLOSE: "when the remaining work is not needed: ends the run and stores your reason",
    Action.CANCEL: "ends the run; if it is running, requests cancellation",
    Action.FORCE_CANCEL: "if the handler does not stop: ends the worker process; previews the other runs in that "
    "process, which are interrupted and restart",
}
_VERBS = {
    Action.RETRY: "retry",
    Action.RESUME: "resume",
    Action.REPAIR: "rerun",
    Action.RERUN: "rerun",
    Action.VERIFY: "verify",
    Action.RECONCILE: "reconcile",
    Action.CLOSE: "reconcile",
    Action.CANCEL: "cancel",
    Action.FORCE_CANCEL: "cancel",
}


def _command(view: RunView, action: Action, *extra: str) -> str | None:
    if action not in _VERBS:
        return None
    words = ["foliot", "runs", _VERBS[action], quoted(view.id), *extra]
    words += _OPTIONS.get(action, [])
    if action is Action.RECONCILE or (action is Action.CLOSE and view.state is not State.SETTLED):
        words += ["--evidence", '"..."']
    if action is not Action.RECONCILE:
        words += ["--reason", '"..."']
    return " ".join(words)


_OPTIONS = {Action.REPAIR: ["--repair"], Action.FORCE_CANCEL: ["--force"], Action.CLOSE: ["--then close"]}


def _settling(view: RunView, text: str, state: EffectState) -> Step:
    named = [f"--effect {quoted(f'{shown_effect(effect)}={state}')}" for effect in open_effects(view)]
    then = [] if view.reason == Reason.POISON else [f"--then {Then.RESUME}"]
    return Step(Action.RECONCILE, text, _command(view, Action.RECONCILE, *named, *then))


def _refused(view: RunView, action: Action) -> Step:
    found = [shown_effect(effect) for effect in open_effects(view)]
    risk = (
        f"{listed(found, _NAMED)} may happen a second time" if found else ("completed work may be done a second time")
    )
    return Step(action, risk, _command(view, action, "--override"))


def quoted(text: str) -> str:
    """As a shell reads it: in the double quotes that people are used to, where these do not change it."""
    return shlex.quote(text) if any(letter in '"$`\\!' for letter in text) else f'"{text}"'
