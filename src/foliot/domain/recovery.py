"""Recovery: how safe it is to try a run again, and what the safest next action is. Computed, shown, and enforced."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from foliot.domain.ledger import Facts, Traits
from foliot.domain.policy import OnLost
from foliot.domain.state import Reason, State


class Recovery(StrEnum):
    """What is known of a run whose work did not come to a good end."""

    CLEAN = "clean"
    """No effect had begun."""
    RESUMABLE = "resumable"
    """What was done is in the ledger, a checkpoint or the items; the rest can be done."""
    REWRITABLE = "rewritable"
    """All of it can be done again, and comes out the same."""
    UNTRACKED = "untracked"
    """Nothing is declared: the ledger is blind here."""
    MAYBE = "maybe"
    """An effect may have escaped, and nothing proves it."""


def recovery_class(facts: Facts, traits: Traits, *, begun: bool) -> Recovery:
    """The most dangerous truth wins: an effect that has no recorded end may have escaped, whatever else is known."""
    if facts.maybe or facts.open:
        return Recovery.MAYBE
    if not begun:
        return Recovery.CLEAN
    if facts.checkpoint or facts.items or facts.done:
        return Recovery.RESUMABLE
    if traits.repeatable:
        return Recovery.REWRITABLE
    return Recovery.CLEAN if traits.tracked else Recovery.UNTRACKED


class Action(StrEnum):
    """What an operator can do about a run."""

    WAIT = "wait"
    RETRY = "retry"
    RESUME = "resume"
    REPAIR = "repair"
    """Rerun it, to write again what was written."""
    RERUN = "rerun"
    VERIFY = "verify"
    RECONCILE = "reconcile"
    CLOSE = "close"
    """Declare the rest of its work not needed."""
    CANCEL = "cancel"
    FORCE_CANCEL = "force_cancel"
    """End it, if it must be with its worker's process."""


class Advice(NamedTuple):
    """What to do about a run, and what not to do without saying why."""

    recovery: Recovery
    why: str
    action: Action
    """The safest one."""
    also: tuple[Action, ...] = ()
    """Safe as well."""
    unsafe: tuple[Action, ...] = ()
    """Refused without an override and a reason."""
    fix_first: bool = False
    """An unchanged try fails again: its cause must be removed before it is tried again."""


class Situation(NamedTuple):
    """Everything that advice depends on."""

    state: State
    reason: str | None
    facts: Facts
    traits: Traits
    on_lost: OnLost
    begun: bool
    stuck: bool = False
    asked_to_stop: bool = False
    forced: bool = False
    """An operator forced its cancellation."""


FIX_FIRST = frozenset({Reason.PERMANENT, Reason.BAD_PAYLOAD, Reason.BAD_ROW})
"""Reasons of a death that trying again without a change cannot help."""
_WORDS = {
    Recovery.CLEAN: "no effect had started",
    Recovery.RESUMABLE: "completed effects are recorded, so only the remaining work is done",
    Recovery.REWRITABLE: "the job is declared idempotent",
    Recovery.UNTRACKED: "the job declares no effects, so Foliot cannot tell what it completed",
    Recovery.MAYBE: "an effect started and has no recorded outcome: it may have happened",
}


def advise(situation: Situation) -> Advice | None:
    """None for a run about which nothing needs to be done."""
    state, facts, traits = situation.state, situation.facts, situation.traits
    recovery = recovery_class(facts, traits, begun=situation.begun)
    if state is State.AMBIGUOUS:
        return _of_ambiguous(situation, recovery)
    if state is State.SETTLED:
        why = "a person reconciled the effects, so only the remaining work is done"
        return Advice(Recovery.RESUMABLE, why, Action.RESUME, (Action.CLOSE,))
    why = _WORDS[recovery]
    if state is State.RETRYING:
        return Advice(recovery, why, Action.WAIT, (Action.CANCEL,))
    if situation.asked_to_stop and state is State.RUNNING:
        also = () if situation.forced else (Action.FORCE_CANCEL,)
        return Advice(recovery, f"the handler has not stopped yet; {why}", Action.WAIT, also)
    if situation.stuck and state is State.RUNNING:
        return Advice(recovery, f"the run makes no progress; {why}", Action.CANCEL, (Action.WAIT,))
    if state is State.DEAD:
        return _of_dead(situation, recovery, why)._replace(fix_first=situation.reason in FIX_FIRST)
    if situation.reason == Reason.INCOMPLETE:
        why = "runs of some members are not done; resolve these, then the watch counts the tick again"
        return Advice(recovery, why, Action.VERIFY, (Action.RECONCILE, Action.RERUN))
    if state is State.UNVERIFIED:
        return _of_unverified(situation, recovery, why)
    return None


def _of_ambiguous(situation: Situation, recovery: Recovery) -> Advice:
    """Whatever class the ledger alone would give it: somebody decided that nobody knows."""
    unsafe = (Action.RETRY, Action.RERUN)
    if recovery is Recovery.MAYBE:
        why = _WORDS[recovery]
    elif situation.reason == Reason.LOST:
        why = "the worker was lost, and the job declares no effects that record the progress"
    else:
        why = "it is unknown whether the work was done"
    if not situation.traits.checked:
        return Advice(Recovery.MAYBE, why, Action.RECONCILE, (), unsafe)
    if situation.reason == Reason.CHECK:  # it has answered no already
        return Advice(Recovery.MAYBE, why, Action.RECONCILE, (Action.VERIFY,), unsafe)
    return Advice(Recovery.MAYBE, why, Action.VERIFY, (Action.RECONCILE,), unsafe)


def _of_dead(situation: Situation, recovery: Recovery, why: str) -> Advice:
    if situation.reason == Reason.POISON:
        why = f"the run crashed its workers, so inspect the code before a retry; {why}"
        return Advice(recovery, why, Action.RECONCILE, (), (Action.RETRY, Action.RERUN))
    match recovery:
        case Recovery.MAYBE:
            return Advice(recovery, why, Action.RECONCILE, (), (Action.RETRY, Action.RERUN))
        case Recovery.CLEAN:
            return Advice(recovery, why, Action.RETRY, (Action.RECONCILE,))
        case Recovery.RESUMABLE:
            return Advice(recovery, why, Action.RESUME, (Action.RECONCILE,))
        case Recovery.REWRITABLE:
            return Advice(recovery, why, Action.RETRY, (Action.REPAIR, Action.RECONCILE))
        case Recovery.UNTRACKED if situation.on_lost is OnLost.RETRY:
            return Advice(recovery, f'{why}; on_lost="retry" allows another attempt', Action.RETRY, (Action.RECONCILE,))
        case Recovery.UNTRACKED:
            return Advice(recovery, why, Action.RECONCILE, (), (Action.RETRY, Action.RERUN))


def _of_unverified(situation: Situation, recovery: Recovery, why: str) -> Advice:
    """Its handler said that all is done, and its check did not."""
    if situation.reason == Reason.CHECK_FAILED:
        why = "the work is done, and the check raised an error"
        return Advice(recovery, why, Action.VERIFY, (Action.RECONCILE,), (Action.RETRY,))
    if situation.traits.repeatable:
        why = "the work is done and the check rejected the result; the job is declared idempotent"
        return Advice(Recovery.REWRITABLE, why, Action.REPAIR, (Action.VERIFY, Action.RECONCILE))
    why = "the work is done and the check rejected the result: find and fix the cause, then verify the run again"
    return Advice(recovery, why, Action.RECONCILE, (Action.VERIFY,), (Action.RETRY, Action.RERUN))
