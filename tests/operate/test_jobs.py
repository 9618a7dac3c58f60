"""Whether a job's limits fit what it does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foliot.domain.instant import MINUTE, SECOND
from foliot.domain.ledger import Traits
from foliot.domain.policy import Policy, choices
from foliot.operate.jobs import advise_lease, advise_recovery, durations, job_shape, lost_words, trait_words
from tests.operate.values import card

OF_MINUTES = durations([10 * MINUTE] * 50 + [12 * MINUTE + 36 * SECOND])


def policy(**chosen: Any) -> Policy:
    return Policy().merged(choices(chosen))


def test_a_timeout_that_p99_comes_near_is_pointed_out_with_a_better_one() -> None:
    assert advise_lease(policy(timeout="15m"), OF_MINUTES) == [
        "p99 is 84 % of the timeout (12 min of 15m): on a slow day, healthy runs would time out. "
        "Set timeout to at least 26m."
    ]
    assert advise_lease(policy(timeout="30m"), OF_MINUTES) == []


def test_a_few_runs_prove_nothing() -> None:
    assert advise_lease(policy(timeout="15m"), durations([14 * MINUTE] * 3)) == []
    assert advise_lease(policy(), durations([])) == []


def test_a_short_lease_is_pointed_out_whatever_the_runs_take() -> None:
    [told] = advise_lease(policy(lease="2s"), durations([]))
    assert "Long runs need no long lease" in told
    assert advise_lease(policy(lease="30s", timeout="30m"), OF_MINUTES) == []


def test_stall_after_is_held_against_the_longest_run() -> None:
    assert "has no effect" in advise_lease(policy(stall_after="15m", timeout="15m"), durations([]))[0]
    [told] = advise_lease(policy(stall_after="1m", timeout="30m"), OF_MINUTES)
    assert told.startswith("Runs take up to 12 min: each must report progress at least every 1m")
    assert "has no stall_after" in advise_lease(policy(timeout="2h"), durations([]))[0]


@pytest.mark.parametrize(
    ("chosen", "traits", "told"),
    [
        ({}, Traits(), "When a worker is lost, its run restarts from the beginning"),
        ({"on_lost": "ask"}, Traits(), None),
        ({}, Traits(idempotent=True), None),
        ({}, Traits(effects=("payout",), checked=True), None),
        ({}, Traits(effects=("payout",)), "is not verified"),
        ({"attempts_after_effect": 0}, Traits(effects=("a",), checked=True), "only a person can retry a run"),
        ({"attempts_after_effect": 2}, Traits(idempotent=True), "have no effect: the job declares no effects"),
        ({"on_stall": "kill", "stall_after": "1m"}, Traits(idempotent=True), "ends the whole worker"),
        ({"on_stall": "kill", "stall_after": "1m"}, Traits(idempotent=True, isolated=True), None),
    ],
)
def test_what_may_surprise_when_a_run_breaks_is_said_before(
    chosen: dict[str, Any], traits: Traits, told: str | None
) -> None:
    found = advise_recovery(policy(**chosen), traits)
    assert [told in line for line in found] == [True] if told else found == []


def test_a_job_that_declares_nothing_is_called_what_it_is() -> None:
    assert trait_words(Traits()) == ["effects: not declared", "check: none"]
    assert trait_words(Traits(effects=("a", "b")))[0] == "effects: a and b"
    assert trait_words(Traits(effects=()))[0] == "effects: none"


@pytest.mark.parametrize(
    ("traits", "told"),
    [
        (Traits(), "park it as ambiguous until a person decides"),
        (Traits(idempotent=True), "retried: a repetition is safe"),
        (Traits(effects=()), "by the ledger: retried, unless an effect started and has no"),
    ],
)
def test_what_becomes_of_a_lost_run_depends_on_what_its_job_says_of_itself(traits: Traits, told: str) -> None:
    assert told in lost_words(policy(on_lost="ask"), traits)


def test_percentiles_are_of_what_was_seen() -> None:
    found = durations([SECOND * number for number in range(1, 101)])
    assert (found.count, found.p50, found.p99, found.longest) == (100, 51 * SECOND, 100 * SECOND, 100 * SECOND)


def test_counts_are_shown_as_counts_and_times_in_seconds() -> None:
    shape = job_shape(card({"retries_per_hour": 20, "stall_after": "1m"}), {"dead": 2}, OF_MINUTES)
    assert json.loads(json.dumps(shape)) == shape
    assert (shape["policy"]["retries_per_hour"], shape["policy"]["stall_after"]) == (20, 60.0)
    assert (shape["policy"]["poison_after"], shape["policy"]["attempts_after_effect"]) == (3, None)
    assert shape["durations"]["p50"] == 600.0
