"""`foliot runs cancel --force`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foliot import bootstrap
from foliot.cli import foliot as command
from foliot.clock import SystemClock
from tests.cli.support import refused, run, run_json
from tests.contract.stage import Stage

WHY = ("--reason", "hangs", "--actor", "ana")


@pytest.fixture
def held(tmp_path: Path) -> str:
    """The URL of a store in which a worker executes two runs, and one waits."""
    url = f"sqlite:///{tmp_path}/held.db"
    asyncio.run(_hold(url))
    return url


async def _hold(url: str) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    stage = Stage(store, SystemClock())  # type: ignore[arg-type]
    worker = await stage.register(recycles=True)
    for key in ("class:1", "class:2"):
        await stage.running(key, worker=worker)
    await stage.promise("class:3", after=3_600_000_000)
    await store.close()


def test_what_would_end_is_shown_and_nothing_is_changed(held: str) -> None:
    shown = run("runs", "cancel", "class:1#1", "--force", "--dry-run", "--store", held)
    assert shown.exit_code == 0, shown.output
    assert f"(process {os.getpid()} on " in shown.stdout
    assert "1 other run in this process would end as interrupted" in shown.stdout
    assert "class:2#1" in shown.stdout
    shape = run_json("runs", "cancel", "class:1#1", "--force", "--dry-run", "--store", held)
    assert (shape["outcome"], [one["id"] for one in shape["process"]["others"]]) == ("would", ["class:2#1"])
    assert run_json("runs", "show", "class:1#1", "--store", held)["cancel_requested"] is False


def test_a_forced_cancellation_asks_first_unless_it_is_answered(held: str) -> None:
    asked = ("runs", "cancel", "class:1#1", "--force", *WHY, "--store", held)
    assert "preview with --dry-run, then add --yes" in refused(run(*asked), 2)
    assert "preview with --dry-run, then add --yes" in refused(run(*asked, "--json"), 2)
    assert run_json("runs", "show", "class:1#1", "--store", held)["cancel_requested"] is False
    shape = run_json(*asked, "--yes")
    assert (shape["id"], shape["outcome"], shape["process"]["pid"]) == ("class:1#1", "forced", os.getpid())
    audit = run_json("runs", "show", "class:1#1", "--store", held)["audit"]
    assert [(one["actor"], one["action"], one["note"]) for one in audit] == [("ana", "force_cancel", "hangs")]


@pytest.mark.parametrize(("answer", "is_asked"), [("n\n", False), ("y\n", True)])
def test_a_person_at_a_terminal_sees_what_would_end_and_answers(
    held: str, monkeypatch: pytest.MonkeyPatch, answer: str, is_asked: bool
) -> None:
    monkeypatch.setattr("foliot.cli.dead.refuse_blind", lambda **_: None)
    monkeypatch.setattr("foliot.cli.recover.refuse_blind", lambda **_: None)
    words = ["runs", "cancel", "class:1#1", "--force", *WHY, "--store", held]
    shown = CliRunner().invoke(command, words, input=answer)
    assert "class:2#1" in shown.stdout
    assert run_json("runs", "show", "class:1#1", "--store", held)["cancel_requested"] is is_asked


def test_force_needs_a_reason_and_one_run_that_a_worker_executes(held: str) -> None:
    force = ("--force", "--yes", "--store", held)
    assert "--reason" in refused(run("runs", "cancel", "class:1#1", *force), 2)
    assert "--force requires the id of one run" in refused(run("runs", "cancel", "--job", "job", *WHY, *force), 2)
    reply = refused(run("runs", "cancel", "class:3#1", *WHY, *force), 1)
    assert "class:3#1 is scheduled: force applies only to a run that a worker executes" in reply


def test_a_run_that_was_asked_to_stop_shows_how_to_force_that(held: str) -> None:
    typed = 'foliot runs cancel "class:1#1" --force --reason "..."'
    assert typed not in run("runs", "show", "class:1#1", "--store", held).stdout
    reply = run("runs", "cancel", "class:1#1", *WHY, "--store", held)
    assert 'foliot runs cancel "class:1#1" --force' in reply.stdout
    shown = run("runs", "show", "class:1#1", "--store", held).stdout
    assert "Cancellation was requested, and the run has not stopped yet." in shown
    assert typed in shown
    run_json("runs", "cancel", "class:1#1", "--force", "--yes", *WHY, "--store", held)
    shown = run("runs", "show", "class:1#1", "--store", held).stdout
    assert "The cancellation was forced" in shown
    assert typed not in shown
