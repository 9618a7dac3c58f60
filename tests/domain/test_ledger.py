"""The values of the ledger: stages, facts, and what a job's code says of itself."""

from __future__ import annotations

import pytest
from hypothesis import given

from foliot.domain.identity import first_of_lineage, idempotency_key, rerun_stem
from foliot.domain.ledger import BatchView, Facts, Stage, Traits, stage_of, traits_from_json, traits_to_json
from tests.domain.test_decisions import natures


@pytest.mark.parametrize(
    ("facts", "stage"),
    [
        (Facts(), Stage.BEFORE_EFFECT),
        (Facts(items=3, checkpoint=True), Stage.BEFORE_EFFECT),
        (Facts(done=1), Stage.AFTER_EFFECT),
        (Facts(done=1, open=1), Stage.INSIDE_EFFECT),
        (Facts(maybe=1), Stage.INSIDE_EFFECT),
    ],
)
def test_the_stage_follows_from_the_ledger(facts: Facts, stage: Stage) -> None:
    assert stage_of(facts) is stage


@given(natures)
def test_traits_are_read_as_they_were_written(traits: Traits) -> None:
    assert traits_from_json(traits_to_json(traits)) == traits


def test_a_job_that_says_nothing_of_itself_costs_nothing() -> None:
    assert traits_to_json(Traits()) is None
    assert traits_to_json(Traits(effects=())) is not None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"idempotent": 1, "effects": "pay"}', b'{"later": 1}'])
def test_traits_that_cannot_be_read_count_as_not_said(data: bytes) -> None:
    assert traits_from_json(data) == Traits()


def test_a_batch_says_how_far_it_came() -> None:
    assert str(BatchView("", 412, 397, 15, [])) == "397 of 412"
    assert str(BatchView("", None, 1_397, 15, [])) == "1,397 of 1,412"


def test_reruns_are_named_after_the_first_run_of_their_lineage() -> None:
    assert rerun_stem("class:7#1") == rerun_stem("class:7#1#r3") == "class:7#1#r"
    assert first_of_lineage("class:7#1#r12") == "class:7#1"
    assert first_of_lineage("class:7#r") == "class:7#r"


def test_an_idempotency_key_is_the_same_in_every_rerun() -> None:
    keys = {idempotency_key(first_of_lineage(run), "pay", "7") for run in ("books#1", "books#1#r1", "books#1#r2")}
    assert keys == {"books#1/pay/7"}
