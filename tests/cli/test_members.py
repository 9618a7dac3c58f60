"""`foliot members`, and what `runs` and `schedules` say of a schedule over many members."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foliot import bootstrap
from foliot.cli import foliot as command
from foliot.clock import SystemClock
from foliot.dispatch import decide_ticks
from foliot.timing import every
from tests.cli.support import refused, run, run_json
from tests.contract.stage import Stage, declared

WHY = ("--reason", "a new customer", "--actor", "ana")


@pytest.fixture
def clinic(tmp_path: Path) -> str:
    """The URL of a store in which a tick over three tenants has served one, failed one, and is at the third."""
    url = f"sqlite:///{tmp_path}/clinic.db"
    asyncio.run(_serve(url))
    return url


async def _serve(url: str) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    stage = Stage(store, SystemClock())  # type: ignore[arg-type]
    await store.change_members("tenants", add=["acme", "globex", "initech"], actor="ben", note="")
    await stage.apply(declared("health", stage.now, rule=every("1h").encode(), over="tenants"))
    for _ in range(2):
        lease = await stage.lease()
        due = [entry for entry in await stage.loaded(lease) if entry[0] <= stage.now]
        await store.fire([lease], due, lease.cursor, decide_ticks)
    acme, globex, _ = sorted(await stage.claim(), key=lambda one: one.id)
    await stage.finish(stage.succeeded(acme), stage.died(globex))
    await store.close()


def test_sets_are_listed_with_the_schedules_over_them(clinic: str) -> None:
    assert run_json("members", "list", "--store", clinic) == [
        {"name": "tenants", "members": 3, "schedules": ["health"]}
    ]
    assert "tenants        3  health" in run("members", "list", "--store", clinic).stdout


def test_a_set_is_shown_page_by_page(clinic: str) -> None:
    page = run_json("members", "show", "tenants", "--limit", "2", "--store", clinic)
    assert [one["member"] for one in page] == ["acme", "globex"]
    rest = run_json("members", "show", "tenants", "--after", "globex", "--store", clinic)
    assert [(one["member"], one["source"]) for one in rest] == [("initech", "ben")]
    assert "--after globex" in run("members", "show", "tenants", "--limit", "2", "--store", clinic).stdout


def test_members_are_added_removed_and_set(clinic: str) -> None:
    told = run("members", "add", "tenants", "umbrella", "acme", *WHY, "--store", clinic)
    assert told.stdout == "tenants: 1 member added\n"
    told = run("members", "remove", "tenants", "umbrella", *WHY, "--store", clinic)
    assert told.stdout == "tenants: 1 member removed\n"
    told = run("members", "set", "tenants", "acme", "globex", "initech", *WHY, "--store", clinic)
    assert told.stdout == "tenants: unchanged\n"
    shape = run_json("members", "set", "tenants", "acme", *WHY, "--store", clinic)
    assert shape == {"name": "tenants", "added": 0, "removed": 2, "skipped": 0}


def test_members_are_read_from_the_input(clinic: str) -> None:
    arguments = ["members", "add", "tenants", "-", *WHY, "--store", clinic]
    told = CliRunner().invoke(command, arguments, input="hooli\n\n  vandelay \n")
    assert told.stdout == "tenants: 2 members added\n"


def test_an_empty_input_does_not_remove_everybody(clinic: str) -> None:
    arguments = ["members", "set", "tenants", "-", *WHY, "--store", clinic]
    told = CliRunner().invoke(command, arguments, input="\n")
    assert "remove all members of tenants" in refused(told, 1)


def test_who_was_served_when_is_told(clinic: str) -> None:
    found = run_json("members", "served", "health", "--store", clinic)
    assert [(one["member"], one["useful_at"] is not None) for one in found] == [
        ("acme", True),
        ("globex", False),
        ("initech", False),
    ]
    shown = run("members", "served", "health", "--store", clinic).stdout
    assert "globex never" in " ".join(shown.split())
    assert run("members", "served", "health", "--older-than", "1h", "--store", clinic).stdout == "no matching members\n"


def test_a_tick_is_shown_with_how_complete_it_is_and_who_lacks(clinic: str) -> None:
    [tick] = [one for one in run_json("runs", "list", "--schedule", "health", "--store", clinic) if one["fired_at"]]
    shape = run_json("runs", "show", tick["id"], "--store", clinic)
    assert shape["interval"]["done"] == 1
    assert shape["interval"]["states"] == {"running": 1, "succeeded": 1, "dead": 1}
    shown = run("runs", "show", tick["id"], "--store", clinic).stdout
    assert "waits for its members: 1 of 3; 1 dead, 1 running" in shown
    assert "unfinished members" in shown
    assert "globex   dead" in shown


def test_the_runs_of_one_member_are_listed(clinic: str) -> None:
    found = run_json("runs", "list", "--schedule", "health", "--member", "acme", "--store", clinic)
    assert [(one["member"], one["schedule"], one["state"]) for one in found] == [("acme", "health", "succeeded")]
    assert "requires --schedule" in refused(run("runs", "list", "--member", "acme", "--store", clinic), 2)


def test_a_schedule_says_whom_it_goes_over(clinic: str) -> None:
    assert run_json("schedules", "show", "health", "--store", clinic)["over"] == "tenants"
    shown = run("schedules", "show", "health", "--store", clinic).stdout
    assert "tenants: one run per member" in shown
    assert "while an earlier run is busy, of the same member" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("members", "add", "tenants", "a b", *WHY), 1, "cannot name a member"),
        (("members", "add", "tenants", *WHY), 2, "no member is given"),
        (("members", "served", "nothing"), 1, "no schedule 'nothing'"),
        (("members", "add", "tenants", "x"), 2, "--reason"),
    ],
)
def test_a_mistake_is_told_in_one_line(clinic: str, arguments: tuple[str, ...], code: int, told: str) -> None:
    assert told in refused(run(*arguments, "--store", clinic), code)
