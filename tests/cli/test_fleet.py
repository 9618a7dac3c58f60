"""`foliot workers` and `foliot queues`, and what a worker says of itself on its command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from foliot import bootstrap
from foliot.clock import SystemClock
from foliot.domain.run import Promise
from foliot.domain.store import JobCard
from tests.cli.support import EXAMPLES, run, run_json
from tests.contract.stage import Stage

APP = EXAMPLES / "learning_platform.py"
JOBS = [JobCard("send", b"{}", "mail"), JobCard("tidy", b"{}", "default"), JobCard("print", b"{}", "paper")]


@pytest.fixture
def office(tmp_path: Path) -> str:
    """The URL of a store with two workers, in which mail waits."""
    url = f"sqlite:///{tmp_path}/office.db"
    asyncio.run(_open_office(url))
    return url


async def _open_office(url: str) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    both = ("default", "mail")
    await store.register(
        "worker", version="1", queues=both, slots=10, jobs=JOBS, labels=["gpu", "region=eu"], reserved={"mail": 2}
    )
    await store.register("worker", version="1", queues=("default",), slots=5, jobs=JOBS[1:2])
    stage = Stage(store, SystemClock())  # type: ignore[arg-type]
    await store.promise([Promise("send", b"{}", stage.now, queue="mail") for _ in range(7)])
    lease = await stage.lease()
    await store.fire([lease], await stage.loaded(lease), lease.cursor, lambda facts, now: [])
    await store.close()


def test_workers_are_listed_with_what_they_take(office: str) -> None:
    first, second = run_json("workers", "list", "--store", office)
    assert (first["queues"], first["labels"], first["slots"], first["reserved"]) == (
        ["default", "mail"],
        ["gpu", "region=eu"],
        10,
        {"mail": 2},
    )
    assert (second["queues"], second["labels"], second["reserved"]) == (["default"], [], {})
    shown = run("workers", "list", "--store", office).stdout
    for text in ("default, mail", "gpu, region=eu", "mail=2"):
        assert text in shown


def test_queues_are_listed_with_what_waits_and_who_serves_them(office: str) -> None:
    listed = {one["queue"]: one for one in run_json("queues", "list", "--store", office)}
    told = {name: tuple(one[of] for of in ("waiting", "workers", "slots", "reserved")) for name, one in listed.items()}
    assert told == {"default": (0, 2, 13, 0), "mail": (7, 1, 10, 2), "paper": (0, 0, 0, 0)}
    assert listed["mail"]["waiting_since"]
    assert listed["paper"]["waiting_since"] is None
    assert listed["paper"]["jobs"] == 1
    assert "paper" in run("queues", "list", "--store", office).stdout


def test_a_store_without_workers_says_so(store: str) -> None:
    assert "no workers" in run("workers", "list", "--store", store).stdout


@pytest.mark.parametrize("command", ["worker", "up"])
@pytest.mark.parametrize(
    ("given", "code", "taught"),
    [
        (["--reserve-slots", "mail"], 2, "as in mail=2"),
        (["--reserve-slots", "mail=two"], 2, "as in mail=2"),
        (["--queues", "default,mail", "--reserve-slots", "mail=1", "--reserve-slots", "mail=2"], 2, "twice"),
        (["--reserve-slots", "fax=1"], 1, "does not serve"),
        (["--queues", "default,mail", "--slots", "2", "--reserve-slots", "mail=2"], 1, "leaves none for default"),
        (["--label", "g p u"], 1, "is not a label"),
    ],
)
def test_what_a_worker_cannot_be_told_is_refused_before_it_starts(
    tmp_path: Path, command: str, given: list[str], code: int, taught: str
) -> None:
    found = run(command, "--app", APP, "--store", f"sqlite:///{tmp_path}/new.db", *given)
    assert found.exit_code == code, found.output
    assert taught in found.output
