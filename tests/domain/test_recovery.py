"""Advice is computed: from what is known, the safest next action, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.ledger import Facts, Traits
from foliot.domain.policy import OnLost
from foliot.domain.recovery import Action, Advice, Recovery, Situation, advise, recovery_class
from foliot.domain.state import PARKED, Reason, State
from tests.domain.test_decisions import ledgers, natures

TRACKED = Traits(effects=("pay",))
situations = some.builds(
    Situation,
    state=some.sampled_from(list(State)),
    reason=some.none() | some.sampled_from([str(reason) for reason in Reason]),
    facts=ledgers,
    traits=natures,
    on_lost=some.sampled_from(list(OnLost)),
    begun=some.booleans(),
    stuck=some.booleans(),
)


@given(ledgers, natures, some.booleans())
def test_an_effect_that_may_have_escaped_always_wins(facts: Facts, traits: Traits, begun: bool) -> None:
    assert (recovery_class(facts, traits, begun=begun) is Recovery.MAYBE) == bool(facts.maybe or facts.open)


@given(ledgers, natures, some.booleans())
def test_blindness_is_never_called_clean(facts: Facts, traits: Traits, begun: bool) -> None:
    if recovery_class(facts, traits, begun=begun) is Recovery.CLEAN:
        assert not begun or (traits.tracked and not facts.done)


@pytest.mark.parametrize(
    ("facts", "traits", "begun", "expected"),
    [
        (Facts(), Traits(), False, Recovery.CLEAN),
        (Facts(), Traits(), True, Recovery.UNTRACKED),
        (Facts(), TRACKED, True, Recovery.CLEAN),
        (Facts(done=1), TRACKED, True, Recovery.RESUMABLE),
        (Facts(items=1), Traits(), True, Recovery.RESUMABLE),
        (Facts(checkpoint=True), Traits(), True, Recovery.RESUMABLE),
        (Facts(), Traits(rewritable=True), True, Recovery.REWRITABLE),
        (Facts(), Traits(idempotent=True), True, Recovery.REWRITABLE),
        (Facts(maybe=1, checkpoint=True), TRACKED, True, Recovery.MAYBE),
        (Facts(open=1), TRACKED, False, Recovery.MAYBE),
    ],
)
def test_each_recovery_class_has_its_facts(facts: Facts, traits: Traits, begun: bool, expected: Recovery) -> None:
    assert recovery_class(facts, traits, begun=begun) is expected


@given(situations)
def test_whatever_waits_for_a_person_has_advice_and_no_action_is_both_safe_and_unsafe(situation: Situation) -> None:
    advice = advise(situation)
    if situation.state in PARKED:
        assert advice is not None
    if advice is not None:
        assert not {advice.action, *advice.also} & set(advice.unsafe)
        assert advice.why


@given(situations)
def test_a_maybe_that_waits_for_a_person_is_never_advised_to_be_tried_again(situation: Situation) -> None:
    advice = advise(situation)
    if advice is not None and situation.state in PARKED and advice.recovery is Recovery.MAYBE:
        assert advice.action in (Action.RECONCILE, Action.VERIFY)
        assert Action.RETRY in advice.unsafe


def advised(state: State, **more: object) -> Advice:
    known = {"reason": None, "facts": Facts(), "traits": TRACKED, "on_lost": OnLost.RETRY, "begun": True} | more
    advice = advise(Situation(state, **known))  # type: ignore[arg-type]
    assert advice is not None
    return advice


def test_the_safest_action_comes_first() -> None:
    assert advised(State.DEAD).action is Action.RETRY
    assert advised(State.DEAD, facts=Facts(done=3)).action is Action.RESUME
    assert advised(State.DEAD, reason="poison").action is Action.RECONCILE
    assert advised(State.DEAD, facts=Facts(open=1)).action is Action.RECONCILE
    assert advised(State.DEAD, traits=Traits()).action is Action.RETRY
    assert advised(State.DEAD, traits=Traits(), on_lost=OnLost.ASK).action is Action.RECONCILE
    assert advised(State.AMBIGUOUS).action is Action.RECONCILE
    assert advised(State.AMBIGUOUS, traits=Traits(checked=True)).action is Action.VERIFY
    rejected = advised(State.AMBIGUOUS, reason="check", traits=Traits(checked=True))
    assert (rejected.action, rejected.also) == (Action.RECONCILE, (Action.VERIFY,))
    assert advised(State.UNVERIFIED, reason="check_failed").action is Action.VERIFY
    assert advised(State.UNVERIFIED, reason="check").action is Action.RECONCILE
    assert advised(State.UNVERIFIED, reason="check", traits=Traits(rewritable=True)).action is Action.REPAIR
    assert advised(State.RETRYING).action is Action.WAIT
    assert advised(State.RUNNING, stuck=True).action is Action.CANCEL


def test_a_run_that_is_well_needs_no_advice() -> None:
    for state in set(State) - PARKED - {State.RETRYING}:
        assert advise(Situation(state, None, Facts(), TRACKED, OnLost.RETRY, begun=True)) is None
