"""Three identities, never blurred: each name leads back to what it names, and to nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from foliot.domain.identity import (
    SPREAD,
    attempt_id,
    checked_key,
    checked_name,
    checked_tenant,
    generation,
    made_at,
    number_at,
    promise_stem,
    run_id,
    run_number,
    tick_name,
    trigger_name,
)
from foliot.domain.instant import MILLISECOND, Instant, parse_rfc3339
from foliot.errors import InvalidInput

BEGINNING = parse_rfc3339("2020-01-01T00:00:00Z")
END = parse_rfc3339("2089-01-01T00:00:00Z")
TICK = parse_rfc3339("2026-04-03T02:00:00Z")

numbers = some.integers(0, (1 << 63) - 1)
moments = some.integers(BEGINNING, END)
spreads = some.integers(0, SPREAD - 1)
printable = some.text(some.characters(exclude_categories=["C", "Z"]) | some.just(" "), min_size=1, max_size=30)
keys = (printable | some.text("a1#[]$@", min_size=1, max_size=8)).filter(lambda key: not key.endswith("]"))
tenants = some.none() | some.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,9}", fullmatch=True).filter(str.isascii)


# -------------------------------------------------------------------------------------------------------------- numbers


@given(numbers)
def test_an_unnamed_runs_id_leads_back_to_its_number(number: int) -> None:
    identifier = run_id(number, None)
    assert run_number(identifier) == number
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{13}", identifier)


@given(numbers, numbers)
def test_ids_sort_as_their_numbers_do(one: int, other: int) -> None:
    assert (run_id(one, None) < run_id(other, None)) == (one < other)


@given(numbers, printable)
def test_a_named_run_is_called_by_its_name(number: int, name: str) -> None:
    assert run_id(number, name) == name


@given(some.text(max_size=20))
def test_what_is_not_an_id_has_no_number(text: str) -> None:
    number = run_number(text)
    assert number is None or run_id(number, None) == text


@pytest.mark.parametrize("text", ["", "class:7#1", "0E5C3N8QZJ3R", "0e5c3n8qzj3rt", "0E5C3N8QZJ3RU", "ZZZZZZZZZZZZZ"])
def test_names_and_near_misses_have_no_number(text: str) -> None:
    assert run_number(text) is None


@given(moments, spreads)
def test_a_number_tells_when_it_was_made_to_the_millisecond(moment: Instant, spread: int) -> None:
    number = number_at(moment, spread)
    assert 0 <= number < 1 << 63
    assert made_at(number) <= moment < made_at(number) + MILLISECOND


@given(moments, spreads, moments, spreads)
def test_numbers_grow_with_time(one: Instant, spread: int, other: Instant, other_spread: int) -> None:
    assume(other - one >= MILLISECOND)
    assert number_at(one, spread) < number_at(other, other_spread)


def test_a_clock_before_our_time_gives_the_first_numbers() -> None:
    assert number_at(0, 7) == 7
    assert made_at(7) == BEGINNING


# ---------------------------------------------------------------------------------------------------------------- names


def test_each_identity_has_its_form() -> None:
    assert tick_name("daily-revenue", TICK) == "daily-revenue@2026-04-03T02:00:00Z"
    assert trigger_name("daily-revenue", TICK) == "daily-revenue@2026-04-03T02:00:00Z#m"
    assert promise_stem("class:7", None) + "1" == "class:7#1"
    assert promise_stem("class:7", "acme") + "1" == "class:7[acme]#1"
    assert attempt_id("class:7#1", 2) == "class:7#1/2"


@given(keys, tenants, keys, tenants)
def test_promises_of_different_keys_or_tenants_never_share_a_name(
    key: str, tenant: str | None, other: str, other_tenant: str | None
) -> None:
    assume((key, tenant) != (other, other_tenant))
    stem, other_stem = promise_stem(key, tenant), promise_stem(other, other_tenant)
    assert stem != other_stem
    for which in (1, 2, 10):
        assert generation(f"{other_stem}{which}", stem) is None


@given(keys, tenants, some.integers(1, 10**9))
def test_a_promises_name_leads_back_to_its_generation(key: str, tenant: str | None, which: int) -> None:
    stem = promise_stem(key, tenant)
    assert generation(f"{stem}{which}", stem) == which


@pytest.mark.parametrize("name", ["a", "a#", "a#x", "a#1x", "a#1#1", "a#-1", "a#٣", "b#1", "#1", "aa#1"])
def test_a_name_that_merely_begins_alike_is_no_generation(name: str) -> None:
    assert generation(name, "a#") is None


@given(keys, tenants, numbers)
def test_no_promise_is_called_like_an_unnamed_run_or_a_trigger(key: str, tenant: str | None, number: int) -> None:
    name = f"{promise_stem(key, tenant)}1"
    assert run_number(name) is None
    assert not name.endswith("#m")


# -------------------------------------------------------------------------------------------------------------- checked


@pytest.mark.parametrize("name", ["a", "_a", "0", "daily-revenue", "app.jobs:send/now", "x" * 200])
def test_good_names_pass(name: str) -> None:
    assert checked_name(name, "job") == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a@b", "a#1", "ä", "a\n", "x" * 201, None, 7, b"a"])
def test_bad_names_are_refused_with_what_a_good_one_is(name: object) -> None:
    with pytest.raises(InvalidInput, match="cannot name a schedule; use 1 to 200 letters"):
        checked_name(name, "schedule")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["a", "class:7", "a b", "Grüße 🙂", "a#1", "a[b]c", "x" * 300])
def test_good_keys_pass(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 301, "a\nb", "a\x00", "\ud800", "a\u200b", None, 7])
def test_bad_keys_are_refused_with_what_a_good_one_is(key: object) -> None:
    with pytest.raises(InvalidInput, match="give 1 to 300 printable characters"):
        checked_key(key)  # type: ignore[arg-type]


def test_a_key_cannot_look_like_one_with_a_tenant() -> None:
    with pytest.raises(InvalidInput, match="must not end with"):
        checked_key("class:7[acme]")


@pytest.mark.parametrize("tenant", ["acme", "a.b_c:d@e-f", "0", "x" * 100])
def test_good_tenants_pass(tenant: str) -> None:
    assert checked_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", "a]", "a[b", "a#", "a b", "-a", "x" * 101, None, 7])
def test_bad_tenants_are_refused(tenant: object) -> None:
    with pytest.raises(InvalidInput, match="cannot name a tenant"):
        checked_tenant(tenant)  # type: ignore[arg-type]


@given(keys)
def test_the_keys_of_these_tests_are_ones_that_are_accepted(key: str) -> None:
    assume(key.isprintable())
    assert checked_key(key) == key
