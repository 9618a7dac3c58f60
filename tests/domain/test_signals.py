"""Where a run came from travels among its options, and nothing is decided by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.policy import choices_from_json, choices_to_json, wants_of
from foliot.domain.signals import trace_in, wants_traces, with_trace, without_trace

MADE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

chosen = some.dictionaries(
    some.sampled_from(["concurrency_key", "destination"]), some.text(some.characters(codec="ascii"), min_size=1)
)


@given(chosen)
def test_options_keep_their_meaning_with_a_trace(choices: dict[str, Any]) -> None:
    options = choices_to_json(choices)
    traced = with_trace(options, MADE)
    assert json.loads(traced) == {**choices, "traceparent": MADE}
    assert trace_in(traced) == MADE
    assert without_trace(traced) == options
    assert trace_in(options) is None
    assert without_trace(options) == options


@given(chosen)
def test_a_trace_takes_the_place_of_another(choices: dict[str, Any]) -> None:
    assert with_trace(with_trace(choices_to_json(choices), OTHER), MADE) == with_trace(choices_to_json(choices), MADE)


def test_decisions_pass_a_trace_over() -> None:
    options = with_trace(choices_to_json({"destination": "api.bank.example"}), MADE)
    assert choices_from_json(options) == {"destination": "api.bank.example"}
    assert wants_of(options).destination == "api.bank.example"


def test_what_only_looks_like_a_trace_is_none() -> None:
    assert trace_in(b'{"destination":"traceparent"}') is None
    assert trace_in(b'{"traceparent":"short"}') is None
    assert trace_in(b"") is None


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_wanted_where_the_environment_names_a_place_for_them(
    environment: dict[str, str], wanted: bool
) -> None:
    assert wants_traces(environment) is wanted
