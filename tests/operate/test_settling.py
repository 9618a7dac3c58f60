"""A person's word about effects, as it is typed."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.domain.ledger import EffectState, Settled
from foliot.errors import InvalidInput
from foliot.operate.acting import evident, is_placeholder
from foliot.operate.settling import left_open, settled, then_of
from tests.operate.values import done, effect, view

RUN = view(effects=[done("6"), effect("7"), effect("a=b:c", name="mail")])


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (["payout:7=done"], Settled("payout", "7", EffectState.DONE)),
        (["payout:7=not_done"], Settled("payout", "7", EffectState.NOT_DONE)),
        (["payout:7=Not-Done"], Settled("payout", "7", EffectState.NOT_DONE)),
        ("payout:7=done", Settled("payout", "7", EffectState.DONE)),
        (["mail:a=b:c=done"], Settled("mail", "a=b:c", EffectState.DONE)),
        ({("payout", "7"): "not_done"}, Settled("payout", "7", EffectState.NOT_DONE)),
    ],
)
def test_what_is_said_is_looked_up_in_the_ledger(said: Any, meant: Settled) -> None:
    assert settled(RUN, said) == [meant]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (["payout:8=done"], "did you mean payout:7?"),
        (["refund=done"], "no effect 'refund'"),
        (["payout:7"], "write it as payout:7=done"),
        (["payout:7=perhaps"], "is not a state of an effect; give done or not_done"),
        (["payout:7=started"], "is not a state of an effect; give done or not_done"),
        ({("payout", "8"): "done"}, "no effect 'payout:8'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_nearest_right_thing(said: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint.replace("?", r"\?")):
        settled(RUN, said)


def test_what_nobody_spoke_of_stays_open_and_is_seen() -> None:
    answers = [Settled("payout", "7", EffectState.DONE)]
    assert [(one.name, one.key) for one in left_open(RUN, answers)] == [("mail", "a=b:c")]


@pytest.mark.parametrize(
    "text",
    ["...", "…", "-", "???", "x", "XXX", "aaa", "todo", "TODO:", "TBD", "n/a", "N.A.", "none", "test", "done", "1"],
)
def test_a_placeholder_is_no_evidence(text: str) -> None:
    assert is_placeholder(text)
    with pytest.raises(InvalidInput, match="is a placeholder; write"):
        evident(text)


@pytest.mark.parametrize("text", ["INC-17", "statement 3", "the bank says so", "42", "银行对账单"])
def test_a_reference_is_evidence_however_short(text: str) -> None:
    assert evident(f" {text} ") == text


def test_what_comes_then_is_one_of_two_words() -> None:
    assert (then_of(None), str(then_of("resume")), str(then_of("close"))) == (None, "resume", "close")
    with pytest.raises(InvalidInput, match=r"give resume .* close"):
        then_of("retry")
