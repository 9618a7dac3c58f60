"""The settlement story: a process is killed in the middle of payment 312 of 400, and a person finishes the day.

The person has the commands and the pages alone. Each command that is typed here was printed by `foliot needs`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest

from foliot import Foliot
from foliot.domain.state import State
from tests.cli.support import run
from tests.faults import settlement
from tests.faults.processes import Fleet
from tests.tiers import full_only, only_in_full
from tests.waiting import until

pytestmark = pytest.mark.faults

APP = Path(settlement.__file__)
RUN = "settlement#1"


@pytest.fixture(params=["sqlite", only_in_full("postgres")])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)
    yield fleet
    fleet.close()


@pytest.mark.parametrize(
    "moment", ["after the payment", pytest.param("before the payment", marks=full_only)], ids=["paid", "unpaid"]
)
def test_a_settlement_that_was_killed_in_one_payment_is_finished_exactly_once(
    fleet: Fleet, tmp_path: Path, moment: str
) -> None:
    person = Person(fleet)
    fleet.ask(lambda app: promised(app, tmp_path))
    fleet.start_scheduler(app=APP)
    fleet.start("worker", "foliot", "worker", "--app", str(APP), SETTLEMENT_DIES=moment)
    until(lambda: (tmp_path / "died").exists() and fleet.run(RUN).state is State.AMBIGUOUS, "its loss is noticed")
    fleet.fallen()

    # What is known, everywhere in the same numbers.
    counts = "accounts: 312 of 400 done, 1 ambiguous, 87 not done", "effects: 312 done, 1 ambiguous"
    needs, shown = person.sees("needs"), person.sees("runs", "show", RUN)
    pages = [person.opens("/"), person.opens(f"/runs/{RUN.replace('#', '%23')}")]
    for text in (needs, shown, *pages):
        assert all(one in text for one in counts), text
        for clue in ("settlement#1/payout/312", "treasury", "https://runbooks.example/settlement"):
            assert clue in text, text
    for page in pages:
        assert "It happened…" in page
        assert "It did not happen…" in page
    report = person.reports(1)
    assert "Started, without a recorded outcome: payout:312." in report
    assert counts[0] in report

    # The person looks into the bank by the idempotency key, and types the answer that was offered.
    paid = "settlement#1/payout/312" in (tmp_path / "bank").read_text().split()
    assert paid == (moment == "after the payment")
    [offer] = [line for line in commands(needs) if f"payout:312={'done' if paid else 'not_done'}" in line]
    assert "is a placeholder; write" in person.types(offer, 1)
    known = {"--evidence": "bank statement 17, line 312"}
    told = person.types(offer.replace(" --then resume", ""), 0, **known)
    assert "its effects are reconciled; part of its work is not done, so it" in told

    # It is not dropped: settled, listed, counted, reported, with a next action.
    counts = (
        f"accounts: {312 + paid} of 400 done, {88 - paid} not done",
        "effects: 313 done" if paid else "effects: 312 done, 1 not done",
    )
    needs, shown = person.sees("needs"), person.sees("runs", "show", RUN)
    for text in (needs, shown, person.opens("/"), person.opens(f"/runs/{RUN.replace('#', '%23')}")):
        assert all(one in text for one in counts), text
    assert counts[0] in person.reports(1)
    assert "1 settled" in person.sees("top", "--once")

    # The rest is done, exactly once.
    [resume, close] = commands(needs)
    assert ("runs resume" in resume, "--then close" in close) == (True, True)
    person.types(resume, 0, **{"--reason": "the bank confirmed account 312"})
    fleet.start_worker("another", app=APP)
    fleet.succeeded(RUN)
    assert person.sees("needs") == "no run or schedule needs attention\n"
    assert "all 400 accounts" in person.reports(0)
    payments = (tmp_path / "bank").read_text().split()
    assert sorted(payments) == sorted(f"settlement#1/payout/{account}" for account in range(400))


async def promised(app: Foliot, folder: Path) -> None:
    job = app.job(name="settle")(_unknown)
    await job.using(key="settlement").now_async(folder=str(folder))


async def _unknown(folder: str) -> None: ...


def commands(text: str) -> list[str]:
    """The commands that a screen offers."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith("foliot ")]


class Person:
    """An operator who has never seen the source."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._address = ""

    def sees(self, *words: str) -> str:
        found = run(*words, "--store", self._fleet.store)
        assert found.exit_code == 0, found.output
        return found.stdout

    def types(self, command: str, code: int, **options: str) -> str:
        """Types a command that was shown, with its dots filled in where the person has an answer."""
        words = shlex.split(command)[1:]
        for place, word in enumerate(words):
            if word == "..." and words[place - 1] in options:
                words[place] = options[words[place - 1]]
        found = run(*words, "--store", self._fleet.store)
        assert found.exit_code == code, found.output
        return found.output

    def reports(self, code: int) -> str:
        found = run("report", "settle", "--store", self._fleet.store, "--json")
        assert found.exit_code == code, found.output
        [statement] = json.loads(found.stdout)["statements"]
        return str(statement["text"])

    def opens(self, path: str) -> str:
        """A page, as text."""
        if not self._address:
            self._fleet.start("web", "foliot", "web", "--port", "0")
            pattern = re.compile(r"http://127\.0\.0\.1:\d+")
            until(lambda: pattern.search(self._fleet.output.read_text()), "the pages are served")
            [self._address] = set(pattern.findall(self._fleet.output.read_text()))
        answer = httpx.get(self._address + path, headers={"accept": "text/html"})
        assert answer.status_code == 200, answer.text
        return unescape(answer.text)
