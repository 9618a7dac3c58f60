"""`foliot runs`, `report` and `jobs` on a store in which things are uncertain."""

from __future__ import annotations

import json
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from foliot.cli.report import _print
from foliot.operate.report import CAVEATS, Report, Statement, Verdict
from tests.cli.support import refused, run, run_json

WHY = ("--reason", "a test", "--actor", "tester")
KNOWN = ("--evidence", "on the statement", "--actor", "tester")


def shown(name: str, store: str) -> Any:
    return run_json("runs", "show", name, "--store", store)


def typed(command: str, store: str) -> Any:
    """Types a command that was shown, with its dots filled in."""
    words = [word.replace("...", "as I was told to") for word in shlex.split(command)[1:]]
    return run(*words, "--actor", "tester", "--store", store)


def test_a_run_that_may_have_acted_says_what_to_look_for_and_what_to_type(doubts: str) -> None:
    told = run("runs", "show", "wire:1#1", "--store", doubts).stdout
    assert "effect wire:1 started (attempt 1)" in told
    assert "its idempotency key is wire:1#1/wire/1" in told
    assert "owner    treasury" in told
    assert "unsafe steps, which require --override:" in told
    assert told.index("runs reconcile") < told.index("runs retry")


def test_the_story_is_one_line_for_each_thing_with_the_time_since_the_one_before(doubts: str) -> None:
    told = run("runs", "show", "tally#1", "--store", doubts).stdout.splitlines()
    story = told[told.index("timeline (UTC)") + 1 :]
    story = story[: story.index("")]
    assert len({line.index(text) for line in story for text in ("promised", "attempt 1 failed") if text in line}) == 1
    assert any("progress 397 of 412: ValueError: account 398 has no owner" in line for line in story)


def test_the_whole_story_is_there_for_programs(doubts: str) -> None:
    shape = shown("wire:1#1", doubts)
    assert [(one["name"], one["key"], one["maybe"]) for one in shape["effects"]] == [("wire", "1", True)]
    assert shape["attempts"][0]["stage"] == "inside_effect"
    assert (shape["advice"]["class"], shape["advice"]["action"]) == ("maybe", "reconcile")
    assert shape["story"][0]["kind"] == "made"


def test_every_safe_command_that_is_shown_works_as_it_is_typed(doubts: str) -> None:
    for name in ("wire:1#1", "tally#1", "books#1"):
        command = shown(name, doubts)["advice"]["steps"][0]["command"]
        assert typed(command, doubts).exit_code == 0, command


def test_every_refused_command_is_refused_and_works_with_its_override(doubts: str) -> None:
    [retry, rerun] = shown("wire:1#1", doubts)["advice"]["refused"]
    for command in (retry["command"], rerun["command"]):
        told = refused(typed(command.replace(" --override", ""), doubts), 1)
        assert "it may have happened (wire:1)" in told
        assert "foliot runs reconcile" in told
    assert typed(retry["command"], doubts).exit_code == 0
    audit = shown("wire:1#1", doubts)["audit"]
    assert [(row["actor"], row["action"]) for row in audit] == [("tester", "retry")]
    assert audit[0]["note"].startswith("override: as I was told to")


def test_a_run_goes_on_where_it_stopped_only_if_that_is_known(doubts: str) -> None:
    assert "cannot be resumed" in refused(run("runs", "resume", "wire:1#1", *WHY, "--store", doubts), 1)
    assert run_json("runs", "resume", "tally#1", *WHY, "--store", doubts)["state"] == "scheduled"


def test_a_rerun_answers_for_the_run_that_it_repeats(doubts: str) -> None:
    made = run_json("runs", "rerun", "books#1", "--repair", *WHY, "--store", doubts)
    assert (made["id"], made["outcome"]) == ("books#1#r1", "rerun")
    assert shown("books#1", doubts)["state"] == "reconciled"
    assert shown("books#1", doubts)["reruns"] == ["books#1#r1"]
    assert shown("books#1#r1", doubts)["story"][0]["text"].startswith("created as a repair by tester: rerun of books#1")


def test_a_done_effect_is_not_repeated_without_an_override(doubts: str) -> None:
    run("runs", "reconcile", "wire:1#1", "--effect", "wire:1=done", *KNOWN, "--store", doubts)
    told = refused(run("runs", "rerun", "wire:1#1", "--repeat", "wire", *WHY, "--store", doubts), 1)
    assert "wire would happen again" in told


def test_a_check_is_asked_again(doubts: str) -> None:
    assert run_json("runs", "verify", "books#1", *WHY, "--store", doubts)["state"] == "verifying"
    assert "has no check" in refused(run("runs", "verify", "wire:1#1", *WHY, "--store", doubts), 1)


def test_a_person_settles_a_run_with_evidence(doubts: str) -> None:
    assert "--evidence is required" in refused(run("runs", "reconcile", "wire:1#1", "--store", doubts), 2)
    unknown = run("runs", "reconcile", "wire:1#1", "--effect", "wire:9=done", *KNOWN, "--store", doubts)
    assert "did you mean wire:1?" in refused(unknown, 1)
    kept = run_json("runs", "reconcile", "wire:1#1", "--effect", "wire:1=done", *KNOWN, "--store", doubts)
    assert kept["state"] == "reconciled"
    shape = shown("wire:1#1", doubts)
    assert (shape["detail"], shape["effects"][0]["note"]) == ("on the statement", "tester: on the statement")


def test_work_that_is_left_keeps_a_run_listed_until_it_is_resumed_or_closed(doubts: str) -> None:
    name = ("runs", "reconcile", "wire:1#1", "--store", doubts)
    told = run(*name, "--effect", "wire:1=not_done", *KNOWN).stdout
    assert "its effects are reconciled; part of its work is not done, so it" in told
    assert shown("wire:1#1", doubts)["state"] == "settled"
    needs = run("needs", "--kind", "settled", "--store", doubts).stdout
    assert "effects: 1 not done" in needs
    assert [line.strip() for line in needs.splitlines() if line.strip().startswith("foliot ")] == [
        'foliot runs resume "wire:1#1" --reason "..."',
        'foliot runs reconcile "wire:1#1" --then close --reason "..."',
    ]
    assert "1 settled" in run("doctor", "--store", doubts).stdout
    assert "is not complete: a person reconciled its effects" in run("report", "transfer", "--store", doubts).stdout
    assert "reason is missing" in refused(run(*name, "--then", "close"), 1)
    assert "is a placeholder" in refused(run(*name, "--then", "close", "--reason", "todo"), 1)
    kept = run_json(*name, "--then", "close", "--reason", "the customer withdrew the order")
    assert (kept["outcome"], kept["state"]) == ("closed", "reconciled")
    closed = run("report", "transfer", "--store", doubts).stdout
    assert "the remaining work is not needed: the customer withdrew the order" in closed


def test_what_needs_a_person_offers_both_answers_and_says_what_to_check_first(doubts: str) -> None:
    lines = [line.strip() for line in run("needs", "--kind", "ambiguous", "--store", doubts).stdout.splitlines()]
    assert lines.count("owner treasury") == 2
    [check] = [line for line in lines if line.startswith("check first: wire:1 started at ")]
    assert check.endswith("its idempotency key is wire:1#1/wire/1")
    for state in ("done", "not_done"):
        assert f'foliot runs reconcile "wire:1#1" --effect "wire:1={state}" --then resume --evidence "..."' in lines


def test_answers_and_the_next_step_are_typed_together(doubts: str) -> None:
    name = ("runs", "reconcile", "wire:1#1", "--effect", "wire:1=not_done", "--store", doubts)
    assert "give resume" in refused(run(*name, *KNOWN, "--then", "retry"), 1)
    assert "is a placeholder" in refused(run(*name, "--evidence", "..."), 1)
    kept = run_json(*name, *KNOWN, "--then", "resume")
    assert (kept["outcome"], kept["state"]) == ("resumed", "retrying")
    unanswered = run("runs", "reconcile", "wire:2#1", *KNOWN, "--store", doubts)
    assert "the state of wire:2 is missing" in refused(unanswered, 1)


def test_many_are_settled_after_a_look_and_a_yes(doubts: str) -> None:
    every = ("runs", "reconcile", "--all", "--job", "transfer", "--state", "done", "--store", doubts)
    found = run_json(*every, "--dry-run")
    assert [(one["id"], one["outcome"]) for one in found] == [("wire:1#1", "would"), ("wire:2#1", "would")]
    assert "then add --yes" in refused(run(*every, *KNOWN), 2)
    assert "--evidence is required" in refused(run(*every, "--yes"), 2)
    assert "requires --job" in refused(run("runs", "reconcile", "--all", "--dry-run", "--store", doubts), 2)
    assert [one["outcome"] for one in run_json(*every, *KNOWN, "--yes")] == ["reconciled"] * 2
    assert run(*every, "--dry-run").stdout == "no run with a matching ambiguous effect\n"


def test_a_run_or_all_but_not_both(doubts: str) -> None:
    assert "give either the id of a run, or --all" in refused(run("runs", "reconcile", *KNOWN, "--store", doubts), 2)
    assert "give either the id of a run, or --all" in refused(
        run("runs", "reconcile", "wire:1#1", "--all", "--store", doubts), 2
    )


def test_the_list_says_how_far_a_run_came(doubts: str) -> None:
    told = run("runs", "list", "--state", "dead", "--store", doubts).stdout
    assert "397 of 412; attempts: ValueError: account 398 has no owner" in told
    assert all(shape["conditions"] == [] for shape in run_json("runs", "list", "--store", doubts))


def test_a_report_that_is_not_all_well_ends_with_1(doubts: str) -> None:
    found = run("report", "transfer", "--store", doubts)
    assert found.exit_code == 1
    assert "has an unknown outcome" in found.stdout
    shape = json.loads(run("report", "tally", "--json", "--store", doubts).stdout)
    assert (shape["ok"], shape["statements"][0]["verdict"]) == (False, "failed")


def test_a_report_of_what_is_done_ends_with_0(store: str) -> None:
    day = run_json("runs", "show", "class:1[acme]#1", "--store", store)["finished_at"][:10]
    shape = json.loads(run("report", "greet", "--on", day, "--json", "--store", store).stdout)
    complete = [one for one in shape["statements"] if one["verdict"] == "complete"]
    assert complete[0]["text"].startswith("Run class:1[acme]#1 of greet for tenant acme finished at ")
    assert complete[0]["text"].endswith("so it is not recorded whether it happened exactly once.")
    told = run("report", "greet", "--on", day, "--store", store).stdout
    assert told.count("it is not recorded whether") == told.count("happened exactly once") == 1
    quiet = run("report", "greetings", "--on", "2020-01-01", "--store", store)
    assert (quiet.exit_code, quiet.stdout) == (0, "greetings on 2020-01-01 (UTC): no run was due\n")


@pytest.mark.parametrize(
    ("options", "complaint", "code"),
    [
        (("nobody",), "there is no job and no schedule", 2),
        (("greet", "--on", "today"), "--on: 'today' is not a date", 2),
        (("greet", "--tz", "Mars/Base"), "there is no time zone", 2),
    ],
)
def test_a_report_that_cannot_be_made_says_why(options: tuple[str, ...], complaint: str, code: int, store: str) -> None:
    assert complaint in refused(run("report", *options, "--store", store), code)


def test_a_report_without_a_store_is_not_one_that_waits(tmp_path: Path) -> None:
    assert "there is no store" in refused(run("report", "greet", "--store", f"sqlite:///{tmp_path}/none.db"), 2)


def test_jobs_are_listed_with_what_their_code_says_of_itself(doubts: str) -> None:
    listed = {shape["name"]: shape for shape in run_json("jobs", "list", "--store", doubts)}
    assert set(listed) == {"transfer", "tally", "close_books"}
    assert (listed["transfer"]["effects"], listed["close_books"]["checked"]) == (["wire"], True)
    assert "effects: wire" in run("jobs", "list", "--store", doubts).stdout


def test_a_job_is_shown_with_policies_counts_and_advice(doubts: str) -> None:
    shape = run_json("jobs", "show", "transfer", "--store", doubts)
    assert (shape["counts"], shape["durations"]["count"]) == ({"ambiguous": 2}, 0)
    assert any("has effects and no check" in line for line in shape["advice"])
    told = run("jobs", "show", "transfer", "--store", doubts).stdout
    assert "one attempt, no retry" in told
    assert "there is no job" in refused(run("jobs", "show", "nobody", "--store", doubts), 1)


def test_a_report_says_a_sentence_about_many_runs_once(capsys: pytest.CaptureFixture[str]) -> None:
    caveat = next(sentence for sentence in CAVEATS if "finished without a check" in sentence)
    statements = [
        Statement(f"r{n}", n, Verdict.COMPLETE, f"The 0{n}:00 run of x finished at 0{n}:00. {caveat}", caveat)
        for n in range(3)
    ]
    _print(Report("x", date(2026, 4, 1), "UTC", statements))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [f"The 0{n}:00 run of x finished at 0{n}:00." for n in range(3)]
    assert lines[4:] == [f"3 of these runs {CAVEATS[caveat]}"]
