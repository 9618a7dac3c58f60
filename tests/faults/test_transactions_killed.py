"""kill -9 before every statement of a handler's transaction: its rows, effect, promise and completion are one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
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

pytestmark = pytest.mark.faults


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("job", "engine"),
    [
        ("book", "sqlite"),
        ("book_in_thread", "sqlite"),
        pytest.param("book", "postgres", marks=pytest.mark.needs("postgres")),
        pytest.param("book_in_thread", "postgres", marks=pytest.mark.needs("postgres")),
        pytest.param("book_in_own", "postgres", marks=pytest.mark.needs("postgres")),
    ],
)
def test_a_transaction_that_is_killed_before_any_of_its_statements_happens_once(
    job: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    on_server = engine == "postgres"
    url = str(request.getfixturevalue("database")) if on_server else f"sqlite:///{tmp_path / 'books.db'}"
    died = killed_at_every_statement("tests.faults.books", url, job)["died"]
    assert died > 5, "a row, an effect, a promise and a completion are more statements than that"
    rows, runs, promised = asyncio.run(look(url, job))
    # One of them was killed before the first statement, one before each of the others, and the last one never.
    cases = range(1, died + 2)
    assert rows == Counter(cases), "each row is there, and once"
    assert promised == Counter(cases), "each promise was made, and once"
    for n, run in zip(cases, runs, strict=True):
        assert (run.state, run.result) == (State.SUCCEEDED, b"%d" % n)
        assert [(one.key, one.state) for one in run.effects] == [(str(n), EffectState.DONE)]
        assert [one.outcome for one in run.attempts] == [Outcome.LOST] * (n <= died) + [Outcome.SUCCEEDED]


def killed_at_every_statement(module: str, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    told = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=environment, check=True, timeout=580, stdout=subprocess.PIPE
    )
    return json.loads(told.stdout)


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
