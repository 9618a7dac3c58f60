"""`foliot limits`, and `foliot runs` on a store in which runs wait for one another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foliot import bootstrap
from foliot.clock import SystemClock
from foliot.domain.gates import Gate
from foliot.domain.policy import choices, choices_to_json
from foliot.domain.run import Promise
from tests.cli.support import refused, run, run_json
from tests.contract.stage import Stage

WHY = ("--reason", "the bank asked", "--actor", "ana")


@pytest.fixture
def crowded(tmp_path: Path) -> str:
    """The URL of a store in which two of three runs wait for a limit, and one of two for a key."""
    url = f"sqlite:///{tmp_path}/crowded.db"
    asyncio.run(_crowd(url))
    return url


async def _crowd(url: str) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    stage = Stage(store, SystemClock())  # type: ignore[arg-type]
    await store.declare_limits([Gate("job:pay", most=1, source="code")])
    keyed = choices_to_json(choices({"concurrency_key": "account:7"}))
    promises = [Promise("pay", b"{}", stage.now, key=f"wage:{n}") for n in range(3)]
    promises += [Promise("settle", b"{}", stage.now, key=f"books:{n}", options=keyed) for n in range(2)]
    await store.promise(promises)
    lease = await stage.lease()
    await store.fire([lease], await stage.loaded(lease), lease.cursor, lambda facts, now: [])
    await store.close()


def _limits(store: str) -> dict[str, Any]:
    return {shape["name"]: shape for shape in run_json("limits", "list", "--store", store)}


def test_limits_are_listed_with_who_has_who_waits_and_who_says_so(crowded: str) -> None:
    shapes = _limits(crowded)
    told = {name: (shape["concurrency"], shape["used"], shape["waiting"]) for name, shape in shapes.items()}
    assert told == {"job:pay": (1, 1, 2), "key:account:7": (1, 1, 1)}
    assert (shapes["job:pay"]["source"], shapes["key:account:7"]["source"]) == ("code", "runs")
    heads, *rows = run("limits", "list", "--store", crowded).stdout.splitlines()
    assert heads.split("  ")[0] == "name"
    assert [row.split()[0] for row in rows] == ["job:pay", "key:account:7"]


def test_where_nothing_is_limited_that_is_said(store: str) -> None:
    assert run("limits", "list", "--store", store).stdout == "no limits\n"


def test_a_limit_is_set_and_what_is_not_said_stays(crowded: str) -> None:
    told = run("limits", "set", "job:pay", "--rate", "10/s", "--burst", "3", *WHY, "--store", crowded)
    assert told.stdout == "job:pay: 1 at a time, 10/s (3 at once)\n"
    shape = run_json("limits", "set", "job:pay", "--concurrency", "5", *WHY, "--store", crowded)
    assert shape == {
        "name": "job:pay",
        "concurrency": 5,
        "rate": "10/s",
        "burst": 3,
        "weight": None,
        "source": "operator",
        "note": "the bank asked",
    }
    assert run_json("limits", "set", "tenant:acme", "--weight", "2.5", *WHY, "--store", crowded)["weight"] == 2.5
    assert "10/s (burst 3)" in run("limits", "list", "--store", crowded).stdout


def test_a_limit_is_dropped_and_nobody_waits_for_it_any_more(crowded: str) -> None:
    assert run_json("limits", "drop", "job:pay", *WHY, "--store", crowded) == {"name": "job:pay", "outcome": "dropped"}
    assert "job:pay" not in _limits(crowded)
    waiting = run_json("runs", "list", "--state", "held", "--store", crowded)
    assert [shape["job"] for shape in waiting] == ["settle"]
    assert "no limit for 'job:pay'" in refused(run("limits", "drop", "job:pay", *WHY, "--store", crowded), 1)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("set", "job:pay", "--concurrency", "5"), 2, "--reason is required"),
        (("set", "job:pay", *WHY), 2, "no limit is given"),
        (("set", "pay", "--concurrency", "5", *WHY), 1, "is not the name of a limit; use job:X, queue:X, schedule:X"),
        (("set", "job:pay", "--rate", "often", *WHY), 1, "write a count and a unit of time"),
        (("set", "job:pay", "--concurrency", "-1", *WHY), 2, "--concurrency"),
        (("drop", "job:pay"), 2, "--reason is required"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(crowded: str, words: tuple[str, ...], code: int, told: str) -> None:
    assert told in refused(run("limits", *words, "--store", crowded), code)


def test_a_run_that_is_held_says_in_words_what_it_waits_for(crowded: str) -> None:
    listed = run("runs", "list", "--state", "held", "--store", crowded).stdout
    assert listed.count("waits for a slot of job:pay") == 2
    assert listed.count("waits for the end of another run with the key account:7") == 1
    told = run("runs", "show", "wage:2#1", "--store", crowded).stdout
    assert "held: waits for a slot of job:pay" in told
    assert "foliot runs release 'wage:2#1' --reason" in told
    assert "runs release" not in run("runs", "show", "wage:0#1", "--store", crowded).stdout


def test_a_run_is_released_with_who_and_why(crowded: str) -> None:
    kept = run_json("runs", "release", "wage:2#1", *WHY, "--store", crowded)
    assert (kept["id"], kept["outcome"], kept["state"]) == ("wage:2#1", "released", "scheduled")
    [row] = run_json("runs", "show", "wage:2#1", "--store", crowded)["audit"]
    assert (row["actor"], row["action"], row["note"]) == ("ana", "release", "the bank asked")
    again = refused(run("runs", "release", "wage:2#1", *WHY, "--store", crowded), 1)
    assert "only held runs can be released" in again
    assert "--reason is required" in refused(run("runs", "release", "wage:1#1", "--store", crowded), 2)
