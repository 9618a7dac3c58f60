"""kill -9 before every statement of a handler's transaction: its rows, effect, promise and completion are one."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foliot import bootstrap
from foliot.domain.ledger import EffectState
from foliot.domain.run import RunView
from foliot.domain.state import Outcome, State
from foliot.domain.store import Store
from tests.faults.processes import ROOT
from tests.servers.forked import Forked
from tests.tiers import by_tier

HOUR = 3_600
"""Seconds that no program of these tests takes, with all that it does."""

pytestmark = [pytest.mark.faults, pytest.mark.timeout(HOUR)]


@pytest.mark.parametrize(
    ("job", "engine", "first", "every"),
    [
        ("book", "sqlite", 1, 1),
        ("book_in_thread", "sqlite", *by_tier((2, 4), (1, 1))),
        # Three ways to the same transaction: in the short form, together they die before most of its statements.
        pytest.param("book", "postgres", *by_tier((1, 6), (1, 1)), marks=pytest.mark.needs("postgres")),
        pytest.param("book_in_thread", "postgres", *by_tier((4, 6), (1, 1)), marks=pytest.mark.needs("postgres")),
        pytest.param("book_in_own", "postgres", *by_tier((2, 2), (1, 1)), marks=pytest.mark.needs("postgres")),
    ],
)
def test_a_transaction_that_is_killed_before_any_of_its_statements_happens_once(
    job: str, engine: str, first: int, every: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    on_server = engine == "postgres"
    url = str(request.getfixturevalue("database")) if on_server else f"sqlite:///{tmp_path / 'books.db'}"
    killed = killed_at_statements("tests.faults.books", tmp_path, url, job, str(first), str(every))
    assert killed[0] == first
    assert killed[-1] > 5, "a row, an effect, a promise and a completion are more statements than that"
    rows, runs, promised = asyncio.run(look(url, job))
    # The last one was never killed: its transaction has fewer statements.
    cases = [*killed, killed[-1] + every]
    assert rows == Counter(cases), "each row is there, and once"
    assert promised == Counter(cases), "each promise was made, and once"
    for case, run in zip(cases, runs, strict=True):
        assert (run.state, run.result) == (State.SUCCEEDED, b"%d" % case)
        assert [(one.key, one.state) for one in run.effects] == [(str(case), EffectState.DONE)]
        assert [one.outcome for one in run.attempts] == [Outcome.LOST] * (case in killed) + [Outcome.SUCCEEDED]


def killed_at_statements(module: str, folder: Path, *arguments: str) -> Any:
    """The result of a program that kills its own children. It writes that to the file that is its last argument."""
    result = folder / "result.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    output = folder / "output"
    program = Forked(module, *arguments, str(result), environment=environment, output=output, folder=ROOT)
    assert program.wait(HOUR) == 0, output.read_text()
    return json.loads(result.read_text())


async def look(url: str, job: str) -> tuple[Counter[int], list[RunView], Counter[int]]:
    store = bootstrap.make_store(url)
    await store.open()
    rows = Counter(await booked(store))
    found = await store.runs(job=job, limit=1_000)
    runs = [await store.run(view.id) for view in sorted(found, key=lambda view: view.number)]
    promised = Counter(json.loads(view.payload)["n"] for view in await store.runs(job="follow", limit=1_000))
    await store.close()
    return rows, runs, promised


async def booked(store: Store) -> list[int]:
    transaction = store.transaction()
    await transaction.begin()
    answer: Any = transaction.connection
    query = "SELECT n FROM booked"
    found = answer.execute(query).fetchall() if transaction.is_blocking else await answer.fetch(query)
    await transaction.roll_back()
    return [row[0] for row in found]
