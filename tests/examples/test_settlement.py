"""A settlement that dies at 78 percent, goes on, pays each account once, and can say so."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from examples import settlement
from foliot.domain.state import State
from tests.examples import settlement_held
from tests.faults.processes import ROOT, Fleet
from tests.servers.forked import Forked
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = settlement_held.__file__
HELD_AT = int(0.78 * len(settlement.ACCOUNTS))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, BANK=str(tmp_path / "bank"), FOLIOT_APP=APP)
    yield fleet
    fleet.close()


def test_killed_at_78_percent_it_pays_each_account_once_and_says_so(fleet: Fleet) -> None:
    bank = Path(fleet.environment["BANK"])
    fleet.start("scheduler", "foliot", "scheduler")
    fleet.start("worker", "foliot", "worker", HELD_AT=str(HELD_AT))
    until(lambda: fleet.ask(lambda app: app.operate.schedules_async()), "the scheduler has applied the schedule")
    printed(fleet, "schedules", "trigger", "settlement", "--reason", "the books close early")
    until(lambda: paid(bank) >= HELD_AT, "78 percent are paid")
    assert fleet.kill("worker") == -signal.SIGKILL
    assert paid(bank) == HELD_AT
    [run] = json.loads(printed(fleet, "runs", "list", "--job", "settle", "--json", "--state", "running,ready,retrying"))
    fleet.start("another", "foliot", "worker")
    until(lambda: fleet.run(run["id"]).state is State.VERIFIED, "the run goes on, and is checked")
    found = json.loads(printed(fleet, "runs", "show", run["id"], "--json"))
    assert Counter(line.split()[1] for line in bank.read_text().splitlines()) == Counter(settlement.ACCOUNTS)
    assert [one["outcome"] for one in found["attempts"]] == ["lost", "succeeded", "succeeded"]
    assert found["detail"] == "412 of 412 accounts"
    # The tick of the evening may still be to come, so that not all of the day is done: then the command exits with 1.
    report = json.loads(printed(fleet, "report", "settlement", "--on", run["nominal"][:10], "--json", may_fail=True))
    [statement] = [one for one in report["statements"] if one["run"] == run["id"]]
    assert (statement["verdict"], statement["ok"]) == ("complete", True)
    assert "completed for all 412 accounts, exactly once, verified" in statement["text"]


def paid(bank: Path) -> int:
    return len(bank.read_text().splitlines()) if bank.exists() else 0


_numbers = count()


def printed(fleet: Fleet, *words: str, may_fail: bool = False) -> str:
    """The output of a command, as a person would type it."""
    output = fleet.output.with_name(f"printed-{next(_numbers)}")
    command = Forked("foliot", *words, environment=fleet.environment, output=output, folder=ROOT)
    status = command.wait()
    text = output.read_text()
    assert may_fail or status == 0, text
    return text
