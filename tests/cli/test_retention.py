"""`foliot retention`: for how long history is kept."""

from __future__ import annotations

from tests.cli.support import refused, run, run_json

WHY = ("--reason", "a test", "--actor", "tester")


def test_the_term_of_history_is_shown_and_set(store: str):
    assert run_json("retention", "show", "--store", store) == {"days": None}
    assert run_json("retention", "set", "--days", "90", "--yes", *WHY, "--store", store)["outcome"] == "set"
    assert run("retention", "show", "--store", store).stdout == "history is kept for 90 days\n"
    assert run_json("retention", "set", "--forever", *WHY, "--store", store) == {"days": None, "outcome": "set"}
    logged = run_json("audit", "list", "--subject", "history", "--store", store)
    assert [row["action"] for row in logged] == ["keep", "keep"]


def test_a_shorter_term_asks_first(store: str):
    told = run("retention", "set", "--days", "1", *WHY, "--store", store)  # nobody answers
    assert told.exit_code == 1
    assert run_json("retention", "show", "--store", store) == {"days": None}


def test_a_term_is_stated_once(store: str):
    assert "--forever" in refused(run("retention", "set", *WHY, "--store", store), 2)
    assert "--forever" in refused(run("retention", "set", "--days", "3", "--forever", *WHY, "--store", store), 2)
    assert "--reason" in refused(run("retention", "set", "--days", "3", "--store", store), 2)
