"""Keys and destinations that name arguments: what they become, and what is refused."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.policy import BlocksUntil, Policy, choices, wants_of
from foliot.domain.templates import Carried, Template, template
from foliot.errors import InvalidInput


class Region(Enum):
    WEST = "eu-west"


def _filled(text: str, setting: str = "destination", **values: Any) -> str:
    return template(setting, text).filled(values)


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("bank", {}, "bank"),
        ("account:{account_id}", {"account_id": 7}, "account:7"),
        ("{a}{b}", {"a": "x", "b": "y"}, "xy"),
        ("{{{a}}}", {"a": 1}, "{1}"),
        ("{{a}}", {"a": 1}, "{a}"),
        ("{day}", {"day": date(2026, 4, 1)}, "2026-04-01"),
        ("api.{region}.example", {"region": Region.WEST}, "api.eu-west.example"),
        ("{price}", {"price": Decimal("1.50")}, "1.50"),
        ("{id}", {"id": UUID(int=7)}, "00000000-0000-0000-0000-000000000007"),
        ("{name}", {"name": "{other}"}, "{other}"),
    ],
)
def test_names_in_braces_become_what_the_arguments_say(text: str, values: dict[str, Any], filled: str) -> None:
    assert _filled(text, **values) == filled


@pytest.mark.parametrize("text", ["{a.b}", "{a[0]}", "{a!r}", "{a:>3}", "{}", "{0}", "{a b}"])
def test_braces_hold_a_plain_name_and_nothing_else(text: str) -> None:
    with pytest.raises(InvalidInput, match="braces may only contain the name of an argument, as"):
        template("concurrency_key", text)


@pytest.mark.parametrize("text", ["{", "}", "a{b", "a}b", "{a!}"])
def test_braces_that_do_not_match_are_told_with_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"unbalanced braces.*\{\{ and \}\}"):
        template("concurrency_key", text)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, (1,), object()])
def test_a_value_that_is_no_single_text_or_number_makes_no_key(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"names a, which is .*; give a text or a number"):
        _filled("k:{a}", a=value)


@pytest.mark.parametrize("value", ["", "x" * 201, "two\nlines", "\x1b[0m"])
def test_a_text_that_is_empty_too_long_or_cannot_be_printed_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="must have 1 to 200 printable characters"):
        _filled("{a}", a=value)


def test_a_key_is_never_taken_for_another_tenants() -> None:
    with pytest.raises(InvalidInput, match="which marks a tenant"):
        _filled("account:7[acme]", setting="concurrency_key")
    assert _filled("[::1]") == "[::1]", "a destination has no tenant"


@given(some.text(alphabet="ab{}", max_size=12))
def test_a_template_is_refused_or_has_every_letter_where_it_was(text: str) -> None:
    try:
        read = template("destination", text)
    except InvalidInput:
        return
    written = "".join(
        letters.replace("{", "{{").replace("}", "}}") + ("" if name is None else f"{{{name}}}")
        for letters, name in read.pieces
    )
    assert written == text
    assert isinstance(read, Template)


# ----------------------------------------------------------------------------------------------------- what runs carry


def _carried(policy: Policy | None = None, arguments: tuple[str, ...] = ("account_id",), **chosen: Any) -> Carried:
    return Carried("pay", policy or Policy(), choices(chosen), arguments)


def test_a_run_that_nobody_said_anything_about_carries_nothing() -> None:
    assert _carried().constant is None
    assert _carried().names == frozenset()
    assert _carried(Policy(key_limit=3, blocks_until=BlocksUntil.VERIFIED)).constant is None, "they go with a key"


def test_what_the_job_chose_travels_with_its_runs_because_firing_has_no_code() -> None:
    policy = Policy(concurrency_key="books", key_limit=2, blocks_until=BlocksUntil.VERIFIED, destination="bank")
    assert json.loads(_carried(policy).constant or b"") == {
        "concurrency_key": "books",
        "key_limit": 2,
        "blocks_until": "verified",
        "destination": "bank",
    }


def test_what_is_the_default_is_not_carried_and_what_was_chosen_is() -> None:
    assert json.loads(_carried(Policy(concurrency_key="books")).constant or b"") == {"concurrency_key": "books"}
    assert json.loads(_carried(Policy(concurrency_key="books"), attempts=2).constant or b"") == {
        "concurrency_key": "books",
        "attempts": 2,
    }


def test_the_last_word_is_that_of_the_promise() -> None:
    policy = Policy(concurrency_key="account:{account_id}", key_limit=5)
    assert wants_of(_carried(policy, concurrency_key=None).constant).key is None
    assert wants_of(_carried(policy, concurrency_key="one", key_limit=1).constant) == ("one", 1, None)


def test_names_are_filled_for_each_call() -> None:
    carried = _carried(concurrency_key="account:{account_id}", destination="bank")
    assert (carried.constant, carried.names) == (None, {"account_id"})
    assert wants_of(carried.encoded({"account_id": 7})) == ("account:7", 1, "bank")
    assert wants_of(carried.encoded({"account_id": 8})).key == "account:8"


def test_an_argument_that_the_job_does_not_have_is_told_with_those_that_it_has() -> None:
    with pytest.raises(InvalidInput, match=r"pay: concurrency_key names 'acount_id'.*did you mean account_id"):
        _carried(concurrency_key="{acount_id}")
    with pytest.raises(InvalidInput, match="it takes: account_id"):
        _carried(destination="{zzz}")
    with pytest.raises(InvalidInput, match="it takes: none"):
        _carried(arguments=(), destination="{zzz}")


def test_a_function_that_takes_any_name_is_asked_only_when_it_is_called() -> None:
    carried = Carried("pay", Policy(destination="{region}"), {}, (), others=True)
    with pytest.raises(InvalidInput, match="pay: destination names region, which is missing; give region"):
        carried.encoded({})
    assert wants_of(carried.encoded({"region": "west"})).destination == "west"
