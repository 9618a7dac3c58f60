"""`foliot next`, `foliot explain`, and what any command does with a mistake."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import refused, run, run_json


def test_next_lists_instants_strictly_after_the_start():
    listed = run_json("next", "0 2 * * *", "--from", "2025-03-08T17:00:00Z", "-n", "3")
    assert listed == ["2025-03-09T02:00:00Z", "2025-03-10T02:00:00Z", "2025-03-11T02:00:00Z"]
    assert run_json("next", "0 2 * * *", "--from", listed[0], "-n", "1") == [listed[1]]


def test_next_without_json_prints_one_instant_per_line():
    result = run("next", "every 15m", "--from", "2025-03-08T17:00:00+01:00", "-n", "2")
    assert result.stdout == "2025-03-08T16:15:00Z\n2025-03-08T16:30:00Z\n"


def test_next_begins_now_when_nothing_is_said():
    assert len(run_json("next", "* * * * *")) == 5


def test_a_rule_without_a_calendar_has_nothing_to_list():
    assert run_json("next", "after 10m") == []
    assert "the end of each run makes the next" in run("next", "after 10m").stdout


def test_a_rule_that_has_passed_never_comes_again():
    assert run("next", "at 2020-01-01T00:00:00Z").stdout == "never again\n"


def test_explain_says_a_rule_in_words_and_when_it_comes():
    told = run_json("explain", "0 9 * * 1-5", "--from", "2025-03-07T10:00:00Z", "-n", "1")
    assert told["words"] == "at 09:00 UTC on Monday to Friday"
    assert told["next"] == ["2025-03-10T09:00:00Z"]
    assert run("explain", "every 15m").stdout.startswith("every 15 minutes\n  ")


def test_a_bad_rule_is_refused_in_one_line_that_points_at_the_character():
    told = refused(run("next", "0 0 * 13 *"), 1)
    assert "'0 0 * 13 *', character 7" in told


def test_a_zone_that_is_not_supported_yet_is_refused_with_the_reason():
    assert "Europe/Paris" in refused(run("next", "0 2 * * *", "--tz", "Europe/Paris", "--json"), 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("next",),
        ("next", "0 2 * * *", "-n", "0"),
        ("next", "0 2 * * *", "--nonsense"),
        ("schedules", "nonsense"),
        ("runs", "list", "--limit", "many"),
        ("runs", "list", "--state", "nonsense"),
        ("runs", "list", "--before", "nonsense"),
        ("worker",),
        ("worker", "--app", "jobs.py", "--grace", "nonsense"),
        ("up",),
        ("schedules", "pause", "greetings", "--reason", "x", "--for", "nonsense"),
        ("schedules", "pause", "greetings", "--reason", "x", "--until", "nonsense"),
        ("schedules", "pause", "greetings", "--reason", "x", "--for", "1h", "--until", "2030-01-01T00:00:00Z"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: tuple[str, ...]):
    refused(run(*arguments), 2)


def test_the_version_is_told_in_both_forms():
    assert run("version").stdout.startswith("foliot ")
    assert set(json.loads(run("version", "--json").stdout)) == {"foliot", "python"}


def test_every_command_has_help():
    for arguments in ((), ("schedules",), ("runs",), ("runs", "list"), ("up",), ("worker",), ("doctor",)):
        result = run(*arguments, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
    assert "--supervised-by" not in run("worker", "--help").stdout
