"""Choosing settings: what is given is checked by name and value, and errors teach. (Stored forms: test_policy_json.)"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.instant import HOUR, LAST, MINUTE, SECOND
from foliot.domain.policy import CatchUp, OnLost, Overlap, Policy, choices, policy_from_json, policy_to_json
from foliot.errors import InvalidInput


def test_the_defaults_are_those_of_our_language() -> None:
    policy = Policy()
    assert (policy.attempts, policy.timeout, policy.lease, policy.missed_after) == (
        4,
        15 * MINUTE,
        30 * SECOND,
        MINUTE,
    )
    assert (policy.overlap, policy.catch_up, policy.on_lost) == (Overlap.SKIP, CatchUp.ONCE, OnLost.RETRY)
    assert (policy.useful_until, policy.give_up_after, policy.catch_up_window, policy.jitter) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("name", "given", "held"),
    [
        ("attempts", 1, 1),
        ("attempts", 10_000, 10_000),
        ("timeout", "10m", 10 * MINUTE),
        ("timeout", timedelta(hours=1), HOUR),
        ("timeout", 90, 90 * SECOND),
        ("timeout", 0.5, SECOND // 2),
        ("lease", "1s", SECOND),
        ("backoff", 0, 0),
        ("missed_after", "0s", 0),
        ("give_up_after", None, None),
        ("useful_until", None, None),
        ("catch_up_window", None, None),
        ("useful_until", "1h30m", 90 * MINUTE),
        ("overlap", "allow", Overlap.ALLOW),
        ("overlap", Overlap.SKIP, Overlap.SKIP),
        ("catch_up", "all", CatchUp.ALL),
        ("on_lost", "ask", OnLost.ASK),
    ],
)
def test_choices_are_turned_into_the_forms_that_a_policy_holds(name: str, given: Any, held: Any) -> None:
    chosen = choices({name: given})
    assert chosen == {name: held}
    assert type(chosen[name]) is type(held)
    assert getattr(Policy().merged(chosen), name) == held


def test_nothing_chosen_changes_nothing() -> None:
    policy = Policy(attempts=7)
    assert choices({}) == {}
    assert policy.merged({}) is policy


def test_settings_inherit_and_the_last_word_counts() -> None:
    app, job, schedule = {"attempts": 2, "timeout": "1m"}, {"attempts": 3}, {"overlap": "allow"}
    policy = Policy().merged(choices(app)).merged(choices(job)).merged(choices(schedule))
    assert (policy.attempts, policy.timeout, policy.overlap, policy.lease) == (3, MINUTE, Overlap.ALLOW, 30 * SECOND)


# --------------------------------------------------------------------------------------------------------- errors teach


def test_a_misspelt_setting_is_told_the_nearest_right_one() -> None:
    with pytest.raises(InvalidInput, match="there is no setting 'atempts'; did you mean 'attempts'"):
        choices({"atempts": 3})


def test_a_setting_like_no_other_is_told_all_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"give one of attempts, .*backoff.*jitter"):
        choices({"zzz": 3})


@pytest.mark.parametrize("given", [0, -1, 10_001, 2.0, "3", None, True])
def test_attempts_are_a_whole_number_in_bounds(given: Any) -> None:
    with pytest.raises(InvalidInput, match="give a whole number from 1 to 10000"):
        choices({"attempts": given})


@pytest.mark.parametrize(
    ("name", "given", "taught"),
    [
        ("overlap", "skipp", "'skip', 'queue', 'coalesce', 'replace', 'allow'"),
        ("overlap", None, "give one of"),
        ("overlap", 3, "give one of"),
        ("catch_up", "never", "'once', 'all', 'skip'"),
        ("on_lost", "panic", "'retry', 'ask'"),
    ],
)
def test_a_wrong_choice_is_told_the_right_ones(name: str, given: Any, taught: str) -> None:
    with pytest.raises(InvalidInput, match=taught):
        choices({name: given})


def test_a_preset_is_what_it_says_and_what_is_said_beside_it_has_the_last_word() -> None:
    chosen = choices({"attempts": 2, "preset": "latest_only"})
    assert chosen == {"overlap": "coalesce", "catch_up": "once", "on_lost": "retry", "attempts": 2}
    with pytest.raises(InvalidInput, match="give one of 'best_effort'"):
        choices({"preset": "latest"})


@pytest.mark.parametrize(
    ("name", "given", "taught"),
    [
        ("lease", "999ms", "at least 1 s"),
        ("timeout", 0, "too short"),
        ("timeout", "soon", "not a duration"),
        ("timeout", None, "not a duration"),
        ("timeout", -1, "negative"),
        ("jitter", True, "not a duration"),
        ("useful_until", float("nan"), "not a duration"),
        ("backoff_cap", 10**30, "the duration is too long: the calendar ends in the year 9999; give a shorter one"),
    ],
)
def test_a_wrong_duration_is_told_what_a_right_one_is(name: str, given: Any, taught: str) -> None:
    with pytest.raises(InvalidInput, match=taught):
        choices({name: given})


_NONSENSE: list[tuple[str, Any]] = [
    (name, given)
    for name in sorted(Policy.__dataclass_fields__)
    for given in ([], {}, set(), b"skip", object())
    if name not in ("labels", "no_alerts") or given not in ([], set())  # none at all is a choice, too
]


@pytest.mark.parametrize(("name", "given"), _NONSENSE)
def test_nonsense_is_refused_and_never_crashes(name: str, given: Any) -> None:
    with pytest.raises(InvalidInput):
        choices({name: given})


durations = some.integers(SECOND, LAST)


@given(
    some.builds(
        Policy,
        attempts=some.integers(1, 10_000),
        timeout=durations,
        lease=durations,
        give_up_after=some.none() | durations,
        overlap=some.sampled_from(Overlap),
        catch_up=some.sampled_from(CatchUp),
        on_lost=some.sampled_from(OnLost),
    )
)
def test_a_policy_survives_being_stored(policy: Policy) -> None:
    assert policy_from_json(policy_to_json(policy)) == policy
