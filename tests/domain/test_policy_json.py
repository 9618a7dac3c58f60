"""Policies in their stored form: they come back equal, a newer release's fields are passed over, damage is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import LAST, MINUTE, SECOND
from foliot.domain.policy import (
    CatchUp,
    OnLost,
    Overlap,
    Policy,
    choices,
    choices_from_json,
    choices_to_json,
    policy_from_json,
    policy_to_json,
)
from foliot.errors import InvalidInput

lengths = some.integers(SECOND, LAST)
policies = some.builds(
    Policy,
    attempts=some.integers(1, 10_000),
    backoff=lengths,
    backoff_cap=lengths,
    give_up_after=some.none() | lengths,
    timeout=lengths,
    lease=lengths,
    on_lost=some.sampled_from(OnLost),
    overlap=some.sampled_from(Overlap),
    catch_up=some.sampled_from(CatchUp),
    catch_up_window=some.none() | lengths,
    missed_after=lengths,
    useful_until=some.none() | lengths,
    jitter=lengths,
)


@given(policies)
def test_a_policy_comes_back_equal(policy: Policy) -> None:
    back = policy_from_json(policy_to_json(policy))
    assert back == policy
    assert [type(getattr(back, field.name)) for field in fields(back)] == [
        type(getattr(policy, field.name)) for field in fields(policy)
    ]


def test_choices_come_back_equal_and_say_nothing_of_what_was_not_chosen() -> None:
    chosen = choices({"attempts": 2, "timeout": "10m", "on_lost": "ask", "useful_until": None})
    assert json.loads(choices_to_json(chosen) or b"") == {
        "attempts": 2,
        "timeout": 10 * MINUTE,
        "on_lost": "ask",
        "useful_until": None,
    }
    assert choices_from_json(choices_to_json(chosen)) == chosen


def test_nothing_chosen_is_stored_as_nothing() -> None:
    assert choices_to_json({}) is None
    assert choices_from_json(None) == choices_from_json(b"") == choices_from_json(b"{}") == {}
    assert policy_from_json(None) == policy_from_json(b"{}") == Policy()


def test_settings_of_a_newer_release_are_passed_over() -> None:
    assert policy_from_json(b'{"attempts": 2, "mood": "bright", "limits": {"a": [1]}}') == Policy(attempts=2)


@pytest.mark.parametrize(
    "blob",
    [
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"7",
        b'{"attempts": 0}',
        b'{"attempts": true}',
        b'{"attempts": null}',
        b'{"attempts": "4"}',
        b'{"lease": 999999}',
        b'{"lease": "30s"}',
        b'{"lease": 3e7}',
        b'{"lease": null}',
        b'{"lease": NaN}',
        b'{"jitter": -1}',
        b'{"timeout": 1%s}' % (b"0" * 30),
        b'{"timeout": 1%s}' % (b"0" * 5_000),
        b'{"overlap": "someday"}',
        b'{"overlap": ["skip"]}',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_refused_in_one_way(blob: bytes) -> None:
    with pytest.raises(InvalidInput):
        choices_from_json(blob)


@given(some.binary(max_size=60))
def test_damage_never_raises_anything_else(blob: bytes) -> None:
    with suppress(InvalidInput):
        policy_from_json(blob)
