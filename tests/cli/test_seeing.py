"""`foliot top`, `foliot needs`, and the filters of lists: what operators see of all of it at once."""

from __future__ import annotations

import pytest

from foliot.cli.top import frame
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.overview import Pulse, Tally
from foliot.operate.surveying import Kind, Overview, Signal
from tests.cli.support import refused, run, run_json
from tests.contract.stage import START


def test_one_frame_tells_how_everything_stands(doubts: str):
    told = run("top", "--once", "--store", doubts).stdout
    assert "needs attention 2 ambiguous, 1 unverified, 1 dead" in told
    assert "schedulers      wrong  no live scheduler" in told
    shape = run_json("top", "--store", doubts)
    assert shape["needs_person"] == {
        "ambiguous": 2,
        "settled": 0,
        "unverified": 1,
        "dead": 1,
        "stuck": 0,
        "in_a_row": 0,
        "set_aside": 0,
    }
    assert (shape["last_hour"]["failed"], shape["early"], shape["workers"]["verdict"]) == (4, 0, "wrong")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_frame_fits_the_terminal(width: int):
    pulse = Pulse(
        START, Tally(on_time=1_000_000, late=12), Tally(), None, 5, 2, 1, overdue=3, overdue_since=START - HOUR
    )
    needs = dict.fromkeys(Kind, 1_000)
    view = Overview(pulse, needs, [], [], [], [], Signal("wrong", "no run becomes due"), Signal("ok", "1 worker"))
    lines = frame(view, width)
    assert max(len(line.plain) for line in lines) <= width


def test_each_need_comes_with_the_safe_thing_to_type(doubts: str):
    needs = {need["subject"]: need for need in run_json("needs", "--store", doubts)}
    assert {subject: (need["kind"], need["action"]) for subject, need in needs.items()} == {
        "wire:1#1": ("ambiguous", "reconcile"),
        "wire:2#1": ("ambiguous", "reconcile"),
        "tally#1": ("dead", "retry"),
        "books#1": ("unverified", "repair"),
    }
    assert '--effect "wire:1=done"' in needs["wire:1#1"]["command"]
    assert needs["wire:1#1"]["owner"] == "treasury"
    assert [need["subject"] for need in run_json("needs", "--kind", "dead", "--store", doubts)] == ["tally#1"]
    told = run("needs", "--limit", "1", "--store", doubts).stdout
    assert "foliot runs rerun" in told
    assert "more results: add --cursor" in told


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("runs", "show", "nope"), "runs list"),
        (("schedules", "show", "nope"), "schedules list"),
        (("alerts", "show", "99"), "alerts list --all"),
        (("limits", "drop", "job:nope", "--reason", "x"), "limits list"),
    ],
)
def test_an_unknown_name_comes_with_the_command_that_lists_the_names(doubts: str, words: tuple[str, ...], command: str):
    assert refused(run(*words, "--store", doubts), 1).endswith(f"; see foliot {command}\n")


def test_a_need_is_advised_as_the_run_itself_is(doubts: str):
    """The list looks runs up together; the story of each looks at all of it."""
    for need in run_json("needs", "--store", doubts):
        advice = run_json("runs", "show", need["subject"], "--store", doubts)["advice"]
        commands = [step["command"] for step in advice["steps"] if step["command"]]
        assert (need["action"], need["why"], need["command"]) == (advice["action"], advice["why"], commands[0])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--needs-person", "--text", "ACCOUNT 398"), ["tally#1"]),
        (("--prefix", "wire:"), ["wire:2#1", "wire:1#1"]),
        (("--reason", "attempts"), ["tally#1"]),
        (("--origin", "scheduled"), []),
        (("--until", "2020-01-01T00:00:00Z"), []),
        (("--condition", "late"), []),
    ],
)
def test_runs_are_found_by_what_is_known_of_them(doubts: str, filters: tuple[str, ...], found: list[str]):
    assert [shape["id"] for shape in run_json("runs", "list", *filters, "--store", doubts)] == found


def test_schedules_are_listed_page_by_page_in_either_order(store: str):
    [first] = run_json("schedules", "list", "--limit", "1", "--store", store)
    assert first["id"] == "greetings"
    assert "--cursor greetings" in run("schedules", "list", "--limit", "1", "--store", store).stdout
    [second] = run_json("schedules", "list", "--cursor", "greetings", "--store", store)
    assert second["id"] == "sweep"
    assert len(run_json("schedules", "list", "--soonest", "--store", store)) == 2
    assert run_json("schedules", "list", "--needs-person", "--store", store) == []
    assert run_json("schedules", "list", "--text", "SALES", "--store", store)[0]["id"] == "greetings"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("runs", "list", "--lane", "fast"), "live, catch-up, backfill"),
        (("runs", "list", "--since", "noon"), "2026-04-03T02:00:00Z"),
        (("runs", "list", "--soonest", "--needs-person"), "order=soonest lists only"),
        (("runs", "list", "--cursor", "x"), "not a cursor"),
        (("schedules", "list", "--paused", "--not-paused"), "not both"),
        (("needs", "--kind", "sad"), "ambiguous"),
        (("top", "--every", "0"), "0.2"),
    ],
)
def test_a_filter_that_makes_no_sense_is_wrong_usage(store: str, words: tuple[str, ...], told: str):
    assert told in refused(run(*words, "--store", store), 2)


def test_waiting_is_told_since_when():
    pulse = Pulse(START, Tally(), Tally(), None, 0, 0, 0, overdue=3, overdue_since=START - 5 * MINUTE)
    view = Overview(pulse, {}, [], [], [], [], Signal("ok", ""), Signal("ok", ""))
    assert any("3 due, the oldest 5 min ago" in line.plain for line in frame(view, 80))
