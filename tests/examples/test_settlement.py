"""A settlement that dies at 78 percent, goes on, pays nobody twice, and can say so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import settlement
from tests.faults.processes import ROOT, Fleet, eventually

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

APP = str(ROOT / "examples" / "settlement.py")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, BANK=str(tmp_path / "bank"), FOLIOT_APP=APP)
    yield fleet
    fleet.close()


def test_killed_at_78_percent_it_pays_everybody_once_and_says_so(fleet: Fleet) -> None:
    bank = Path(fleet.environment["BANK"])
    fleet.start("scheduler", "-m", "foliot", "scheduler")
    fleet.start("worker", "-m", "foliot", "worker")
    eventually(lambda: "settlement" in told(fleet, "schedules", "list", may_fail=True), within=120, what="a schedule")
    told(fleet, "schedules", "trigger", "settlement", "--reason", "the books close early")
    eventually(lambda: paid(bank) >= 0.78 * 412, within=120, what="78 percent")
    assert fleet.kill("worker") == -signal.SIGKILL
    assert paid(bank) < 412
    [run] = json.loads(told(fleet, "runs", "list", "--job", "settle", "--json", "--state", "running,ready,retrying"))
    fleet.start("another", "-m", "foliot", "worker")
    eventually(lambda: shown(fleet, run["id"])["state"] == "verified", within=120, what="it goes on, and is checked")
    found = shown(fleet, run["id"])
    assert Counter(line.split()[1] for line in bank.read_text().splitlines()) == Counter(settlement.ACCOUNTS)
    assert [one["outcome"] for one in found["attempts"]] == ["lost", "succeeded", "succeeded"]
    assert found["detail"] == "412 of 412 accounts"
    # The tick of the evening may still be to come, so that not all of the day is done: then the command exits with 1.
    report = json.loads(told(fleet, "report", "settlement", "--on", run["nominal"][:10], "--json", may_fail=True))
    [statement] = [one for one in report["statements"] if one["run"] == run["id"]]
    assert (statement["verdict"], statement["ok"]) == ("complete", True)
    assert "completed for all 412 accounts, exactly once, verified" in statement["text"]


def paid(bank: Path) -> int:
    return len(bank.read_text().splitlines()) if bank.exists() else 0


def shown(fleet: Fleet, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(fleet, "runs", "show", run, "--json"))
    return found


def told(fleet: Fleet, *words: str, may_fail: bool = False) -> str:
    """What a command prints, as anybody would type it."""
    command = [sys.executable, "-m", "foliot", *words]
    answer = subprocess.run(command, env=fleet.environment, check=not may_fail, stdout=subprocess.PIPE, text=True)
    return answer.stdout
