"""What must not be shown, by key, by form and by place; and what must be shown all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.ledger import Traits, traits_from_json, traits_to_json
from foliot.domain.redaction import (
    REDACTED,
    Secrets,
    is_harmless,
    is_secret_key,
    redacted,
    redacted_json,
    redacted_text,
    secret_values,
    stated_secrets,
)
from foliot.errors import InvalidInput

CANARY = "c4nary-of-8-or-more"


@pytest.mark.parametrize(
    "key",
    "password Password db_password userPassword PASSWD secret client_secret clientSecret token access_token "
    "accessToken authtoken Authorization X-Api-Key apiKey api.key card card_number cardNumber CreditCard iban IBAN "
    "cvv cookie Set-Cookie privateKey aws_secret_access_key credentials sessionId ssn connection_string".split(),
)
def test_a_key_is_secret_in_any_spelling(key: str) -> None:
    assert is_secret_key(key)
    assert redacted({"a": [{key: CANARY}]}) == {"a": [{key: REDACTED}]}


@pytest.mark.parametrize(
    "key",
    "tokens max_tokens tokenizer secretary class_id key author pinned card_id discard day".split(),
)
def test_other_keys_are_shown(key: str) -> None:
    assert not is_secret_key(key)
    assert redacted({key: CANARY}) == {key: CANARY}


EXAMPLES = [
    ("GET failed, sent Bearer abc123def456ghi", "abc123def456ghi"),
    ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ("postgresql://app:hunter2@db/school refused", "hunter2"),
    ("redis://:hunter2@cache:6379", "hunter2"),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
        "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    ),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
    ("cut off: -----BEGIN PRIVATE KEY-----\nMIIEabc", "MIIEabc"),
    ("foliot_A7f0dK29xQmZ81hhLwQpR5tUvW", "A7f0dK29xQmZ81hhLwQpR5tUvW"),
    ("card 4111 1111 1111 1111 was declined", "4111 1111 1111 1111"),
    ("card 4111-1111-1111-1111.", "4111-1111-1111-1111"),
    ("371449635398431 (amex)", "371449635398431"),
    ("to GB82 WEST 1234 5698 7654 32", "GB82 WEST 1234 5698 7654 32"),
    ("DE89370400440532013000", "DE89370400440532013000"),
    ("login with password=hunter2&user=7", "hunter2"),
    ('{"api_key": "k-12345"}', "k-12345"),
    ("db_password: 'hun ter2'", "hun ter2"),
    ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912E7710c838347Ae178B4a"),
]
FORMS = [text for text, _ in EXAMPLES]


@pytest.mark.parametrize(("text", "secret"), EXAMPLES)
def test_a_secret_is_known_by_its_form(text: str, secret: str) -> None:
    told = redacted_text(text)
    assert secret not in told
    assert REDACTED in told
    assert redacted_text(told) == told


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: class 7 was called off",
        "the bearer of bad news",
        "basic understanding of arithmetic",
        "https://example.com:8443/a/b@c",
        "see https://user@example.com/path",
        "the attempt with token 912673627364872 no longer owns its run",
        "order 4111111111111112 (a number that does not add up)",
        "parcel 5111111111111111119 (no card of 19 figures begins like this)",
        "at 2026-04-03T02:00:00.123456Z, run 0E5C3N8QZJ3RT of nightly-report@2026-04-03T06:30:00Z",
        "1775181600123456",
        "foliot_app_learning_platform_of_schools",
        "412 of 412 accounts",
        'File "/srv/app/tokens.py", line 7, in refresh_token',
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redacted_text(text) == text


def test_the_place_that_a_job_names_is_hidden_and_lists_are_gone_through() -> None:
    value = {"order": {"lines": [{"note": CANARY, "n": 1}, {"note": CANARY, "n": 2}]}, "note": "shown"}
    told = redacted(value, [("order", "lines", "note")])
    assert told == {"order": {"lines": [{"note": REDACTED, "n": 1}, {"note": REDACTED, "n": 2}]}, "note": "shown"}
    assert redacted({"whole": {"a": 1}, "b": 4111111111111111}, [("whole",)]) == {"whole": REDACTED, "b": REDACTED}


def test_what_gives_nothing_away_stays() -> None:
    assert redacted({"password": None, "token": True, "secret": ""}) == {"password": None, "token": True, "secret": ""}


@given(some.text(min_size=4, max_size=40).filter(lambda text: text.isprintable() and not text.isspace()))
def test_the_value_of_a_secret_argument_is_found_in_whatever_repeats_it(value: str) -> None:
    secrets = stated_secrets("pay", ["holder.name"])
    payload = json.dumps({"holder": {"name": value}}).encode()
    known = secret_values(payload, secrets)
    for text in (f"no account: {value}", f"KeyError: {value!r}", json.dumps({"for": value}), f"{[value]}"):
        said = redacted_text(text, known)
        assert REDACTED in said
        assert value not in said.replace(REDACTED, "") or value in REDACTED


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, some.lists(some.lists(some.text(min_size=1, max_size=3), min_size=1, max_size=3).map(tuple), max_size=3))
def test_any_value_can_be_redacted_and_doing_so_twice_changes_nothing(value: Any, paths: list[tuple[str, ...]]) -> None:
    once = redacted(value, paths)
    assert redacted(once, paths) == once
    assert redacted_json(json.dumps(value).encode(), paths) is not None


@given(some.binary(max_size=200))
def test_bytes_that_are_no_json_are_a_text(data: bytes) -> None:
    assert isinstance(redacted_json(data), bytes)


def test_a_value_without_secrets_is_not_written_anew() -> None:
    data = b'{ "day" : 7, "password": null }'
    assert redacted_json(data) is data


@pytest.mark.parametrize("given", ["card.number", 7, [""], ["a..b"], [7], ["a\n"]])
def test_a_path_that_cannot_be_read_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="secret="):
        stated_secrets("pay", given)


def test_a_card_carries_what_is_secret() -> None:
    traits = Traits(secret=("card.number", "result.receipt"), secret_keys=("ssn",))
    assert traits_from_json(traits_to_json(traits)) == traits
    assert traits.secrets == Secrets((("card", "number"), ("result", "receipt")), frozenset({"ssn"}))
    assert traits.secrets.of_result == (("receipt",),)
    assert traits_to_json(Traits()) is None
    assert json.loads(traits_to_json(Traits(effects=())) or b"") == {"effects": []}


@given(some.dictionaries(some.sampled_from(["day", "Pass-Word", "api key", "a", "n"]), JSON | some.sampled_from(FORMS)))
def test_the_quick_look_lets_no_secret_pass(value: dict[str, Any]) -> None:
    for data in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")):
        if is_harmless(data):
            assert redacted(json.loads(data)) == json.loads(data)
