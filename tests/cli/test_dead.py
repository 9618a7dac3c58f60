"""`foliot dead`, and `foliot runs rerun` of several: what many runs have in store is shown before it happens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from foliot import Foliot, bootstrap
from foliot.cli import dead
from foliot.cli import foliot as command
from foliot.clock import ManualClock
from foliot.domain.instant import parse_rfc3339
from foliot.testing import World
from tests.cli.support import refused, run, run_json

WHY = ("--reason", "the bank is back", "--actor", "tester")


def _make_letters(url: str) -> None:
    """Three payments that are dead, one that must not be tried blindly, and one that is too late by now."""
    app = Foliot(url, attempts=1)

    @app.job
    async def pay(number: int) -> None:
        raise OSError("no answer")

    @app.job(on_lost="ask")
    async def charge(number: int) -> None:
        raise OSError("no answer")

    clock = ManualClock(parse_rfc3339("2026-04-01T00:00:00Z"))
    store = bootstrap.make_store(url, clock)
    asyncio.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock)
        world.start()
        for number in range(3):
            pay.using(key=f"pay:{number}", tenant="acme").now(number=number)
        charge.using(key="charge").now(number=7)
        pay.using(key="late", useful_until="1h").now(number=8)
        world.run_for("1m")
        world.close()


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    _make_letters(f"sqlite:///{folder}/foliot.db")
    return folder


@pytest.fixture
def url(letters: Path, tmp_path: Path) -> str:
    for file in letters.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return f"sqlite:///{tmp_path}/foliot.db"


def states(url: str) -> dict[str, str]:
    return {one["id"]: one["state"] for one in run_json("runs", "list", "--store", url)}


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str, *words: str) -> Result:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(dead, "sys", terminal)
    return CliRunner().invoke(command, list(words), input=answer)


# -------------------------------------------------------------------------------------------------------------- list


def test_dead_letters_are_listed_with_what_a_replay_would_do(url: str) -> None:
    told = run("dead", "list", "--store", url).stdout
    assert told.count("\n") == 6
    rows = {line.split()[0]: line for line in told.splitlines()[1:]}
    assert "yes" in rows["pay:0[acme]#1"]
    assert "attempts: OSError: no answer" in rows["pay:0[acme]#1"]
    assert "refused" in rows["charge#1"]
    assert "too late" in rows["late#1"]


def test_dead_letters_are_there_for_programs_and_can_be_chosen(url: str) -> None:
    shapes = {one["id"]: one for one in run_json("dead", "list", "--store", url)}
    assert {name: shape["replay"] for name, shape in shapes.items()} == {
        "pay:0[acme]#1": "would",
        "pay:1[acme]#1": "would",
        "pay:2[acme]#1": "would",
        "charge#1": "refused",
        "late#1": "too_late",
    }
    chosen = run_json("dead", "list", "--store", url, "--tenant", "acme", "--job", "pay", "--why", "attempts")
    assert len(chosen) == 3
    assert run_json("dead", "list", "--store", url, "--until", "2020-01-01T00:00:00Z") == []
    assert "no dead letters" in run("dead", "list", "--store", url, "--job", "nobody").stdout


# ------------------------------------------------------------------------------------------------------------ replay


def test_a_replay_shows_what_it_would_do_and_asks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("dead", "replay", "--store", url, "--rate", "1/m", *WHY)
    shown = at_a_terminal(monkeypatch, "n\n", *words)
    assert shown.exit_code == 0
    assert "dead letters  5" in shown.stdout
    assert "replays       3, in the backfill lane" in shown.stdout
    assert "rate          1/m, the last run in 2 min" in shown.stdout
    assert "too late      1: its useful time has passed (late#1)" in shown.stdout
    assert "(charge#1)" in shown.stdout
    assert "replay 3 runs?" in shown.stdout
    assert set(states(url).values()) == {"dead"}
    done = at_a_terminal(monkeypatch, "y\n", *words)
    assert "replayed 3 runs; 1 refused; 1 too late" in done.stdout
    assert done.exit_code == 1, "one of them was refused"
    assert sorted(states(url).values()) == ["dead", "dead", "scheduled", "scheduled", "scheduled"]
    assert run("dead", "replay", "--store", url, "--yes", "--why", "poison", *WHY).exit_code == 0


def test_a_replay_for_programs_says_what_became_of_each(url: str) -> None:
    seen = run_json("dead", "replay", "--store", url, "--dry-run")
    assert (seen["total"], seen["would"], seen["sample"]) == (5, 3, ["pay:0[acme]#1", "pay:1[acme]#1", "pay:2[acme]#1"])
    result = run("dead", "replay", "--store", url, "--yes", "--json", "--tenant", "acme", *WHY)
    told = json.loads(result.stdout)
    assert (result.exit_code, told["total"], told["replayed"], told["refused"]) == (0, 3, 3, 0)
    assert {one["outcome"] for one in told["runs"]} == {"replayed"}
    story = [line["text"] for line in run_json("runs", "show", "pay:0[acme]#1", "--store", url)["story"]]
    assert "tester replayed the run with others: the bank is back" in story
    again = json.loads(run("dead", "replay", "--store", url, "--yes", "--json", "--tenant", "acme", *WHY).stdout)
    assert again["total"] == 0


def test_an_override_takes_what_may_do_harm_and_not_what_is_too_late(url: str) -> None:
    result = run("dead", "replay", "--store", url, "--yes", "--override", *WHY)
    assert "replayed 4 runs; 1 too late" in result.stdout
    assert result.exit_code == 0
    assert states(url)["charge#1"] == "scheduled"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--yes",), 2, "--reason is required"),
        (WHY, 2, "preview with --dry-run"),
        (("--json", *WHY), 2, "preview with --dry-run"),
        (("--yes", "--since", "yesterday", *WHY), 2, "write it as"),
        (("--yes", "--rate", "fast", *WHY), 1, "write a count and a unit of time"),
        (("--yes", "--why", "bad luck", *WHY), 1, "not a reason of dead runs; give one of"),
    ],
)
def test_what_cannot_be_replayed_is_refused(url: str, words: tuple[str, ...], code: int, told: str) -> None:
    assert told in refused(run("dead", "replay", "--store", url, *words), code)


# ------------------------------------------------------------------------------------------------------------- rerun


def test_several_runs_are_rerun_behind_all_that_is_live(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("runs", "rerun", "pay:0[acme]#1", "charge#1", "pay:1[acme]#1", "--store", url, *WHY)
    shown = at_a_terminal(monkeypatch, "n\n", *words)
    assert "would rerun 2 runs; 1 refused" in shown.stdout
    assert set(states(url).values()) == {"dead"}
    done = at_a_terminal(monkeypatch, "y\n", *words)
    assert done.exit_code == 0
    assert "created 2 runs" in done.stdout
    made = run_json("runs", "show", "pay:0[acme]#1#r1", "--store", url)
    assert (made["lane"], made["origin"]) == ("backfill", "rerun")
    alone = run("runs", "rerun", "pay:2[acme]#1", "--store", url, *WHY)
    assert alone.stdout == "created pay:2[acme]#1#r1; due now\n"
    assert run_json("runs", "show", "pay:2[acme]#1#r1", "--store", url)["lane"] == "live"


def test_runs_are_rerun_by_job_and_time(url: str) -> None:
    span = ("--of", "pay", "--since", "2020-01-01T00:00:00Z", "--until", "2100-01-01T00:00:00Z")
    seen = run_json("runs", "rerun", *span, "--state", "dead", "--dry-run", "--store", url)
    assert (seen["total"], seen["would"]) == (4, 4)
    told = run("runs", "rerun", *span, "--yes", "--rate", "10/s", "--store", url, *WHY)
    assert told.stdout == "created 4 runs\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give either ids of runs"),
        (("pay:0[acme]#1", "--of", "pay"), "give either ids of runs"),
        (("--of", "pay", "--yes"), "requires a period"),
        (("pay:0[acme]#1", "pay:1[acme]#1"), "preview with --dry-run"),
        (("pay:0[acme]#1", "pay:1[acme]#1", "--repeat", "wire"), "one run at a time"),
    ],
)
def test_reruns_that_are_not_meant_are_refused(url: str, words: tuple[str, ...], told: str) -> None:
    assert told in refused(run("runs", "rerun", *words, "--store", url, *WHY), 2)
