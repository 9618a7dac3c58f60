"""`foliot backfill`, on a store with a schedule of its own and somebody who works."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from foliot import Foliot, bootstrap, cron
from foliot.cli import backfill
from foliot.cli import foliot as command
from foliot.domain.instant import SECOND
from tests.cli.support import live_through, refused, run, run_json
from tests.waiting import HANG

WHY = ("--reason", "the disk was full", "--actor", "tester")
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FROM, TO = f"{TODAY - timedelta(days=5):%Y-%m-%d}", f"{TODAY - timedelta(days=1):%Y-%m-%dT00:00:00Z}"
"""Four nights, before the schedule was made."""
NIGHTS = ("--from", FROM, "--to", TO)


def make_app(url: str, *, fails: bool = False) -> Foliot:
    app = Foliot(url)

    @app.job(attempts=1)
    async def count_cash() -> None:
        if fails:
            raise ValueError("the till is locked")

    app.schedule("count", count_cash, cron("0 2 * * *"), overlap="allow")
    return app


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/foliot.db"
    with make_app(url) as app:
        app.apply()
    return url


async def work(app: Foliot, ended: int) -> None:
    await live_through(app, ended)
    await app.close_async()


async def work_until(app: Foliot, over: threading.Event) -> None:
    """Scheduler and worker, until somebody else has seen enough."""
    stop = asyncio.Event()
    opened, handlers = await app.opened(), {name: job.handler for name, job in app.jobs.items()}
    processes = asyncio.gather(
        bootstrap.run_scheduler(opened, stop),
        bootstrap.run_worker(opened, handlers, stop, grace=SECOND, queues=["default"], slots=4),
    )
    await asyncio.to_thread(over.wait, HANG)
    stop.set()
    await processes
    await app.close_async()


def started(store: str, *more: str) -> dict[str, Any]:
    shape: dict[str, Any] = run_json("backfill", "start", "count", *NIGHTS, *WHY, "--yes", *more, "--store", store)
    return shape


def night(days_ago: int) -> str:
    return f"{TODAY - timedelta(days=days_ago):%Y-%m-%d}T02:00:00Z"


def test_a_dry_run_shows_the_ticks_and_changes_nothing(store: str) -> None:
    shape = run_json("backfill", "start", "count", *NIGHTS, "--rate", "1/h", "--dry-run", "--store", store)
    assert (shape["ticks"], shape["new"], shape["taken"]) == (4, 4, [])
    assert (shape["first"], shape["last"]) == (night(5), night(2))
    assert (shape["rate"], shape["at_once"], shape["seconds"]) == ("1/h", 1, 4 * 3600.0)
    told = run("backfill", "start", "count", *NIGHTS, "--rate", "1/h", "--dry-run", "--store", store).stdout
    assert f"4, from {night(5)} to {night(2)}" in told
    assert "about 4.0 h" in told
    assert run_json("backfill", "list", "--store", store) == []


def test_a_preview_without_anything_to_go_by_says_so(store: str) -> None:
    assert (
        "unknown: no run of this job"
        in run("backfill", "start", "count", *NIGHTS, "--dry-run", "--store", store).stdout
    )


def test_nothing_is_started_without_a_reason_or_a_yes(store: str) -> None:
    assert "--reason is required" in refused(run("backfill", "start", "count", *NIGHTS, "--yes", "--store", store), 2)
    assert "--dry-run" in refused(run("backfill", "start", "count", *NIGHTS, *WHY, "--store", store), 2)
    assert run_json("backfill", "list", "--store", store) == []


@pytest.mark.parametrize(("answer", "count"), [("y\n", 1), ("n\n", 0)])
def test_on_a_terminal_it_shows_first_and_asks(
    store: str, answer: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(backfill, "sys", terminal)
    words = ["backfill", "start", "count", *NIGHTS, *WHY, "--store", store]
    result = CliRunner().invoke(command, words, input=answer)
    assert result.exit_code == 0, result.output
    assert "create 4 runs?" in result.output
    assert ("started backfill 1: 4 ticks" in result.output) == bool(count)
    assert len(run_json("backfill", "list", "--store", store)) == count


def test_it_is_shown_from_its_start_to_its_end(store: str) -> None:
    assert started(store, "--at-once", "4")["state"] == "running"
    shown = run_json("backfill", "show", "1", "--store", store)
    assert (shown["made"], shown["settled"], shown["left"], shown["states"]) == (0, 0, 4, {})
    asyncio.run(work(make_app(store), 4))
    followed = run_json("backfill", "show", "1", "--store", store)
    assert (followed["made"], followed["settled"], followed["states"]) == (4, 4, {"succeeded": 4})
    told = run("backfill", "show", "1", "--store", store).stdout
    assert "4 of 4 ticks (100%)" in told
    assert "tester: the disk was full" in told
    [listed] = run_json("backfill", "list", "--schedule", "count", "--store", store)
    assert {**listed, "state": "x"} == {**{name: followed[name] for name in listed}, "state": "x"}
    assert "count" in run("backfill", "list", "--store", store).stdout
    preview = run("backfill", "start", "count", *NIGHTS, "--dry-run", "--store", store).stdout
    assert "4 of these ticks have a run already" in preview
    assert f"{night(5)}  succeeded  count@{night(5)}" in preview
    assert "foliot runs rerun" in preview


def test_follow_stays_until_it_is_done(store: str) -> None:
    """Somebody works in a thread of their own, as another process would."""
    over = threading.Event()
    worker = threading.Thread(target=lambda: asyncio.run(work_until(make_app(store), over)))
    worker.start()
    try:
        followed = started(store, "--at-once", "4", "--follow")
    finally:
        over.set()
        worker.join()
    assert (followed["state"], followed["settled"]) == ("done", 4)


def test_follow_of_one_that_is_paused_ends_and_says_why(store: str) -> None:
    started(store)
    run_json("backfill", "pause", "1", *WHY, "--store", store)
    result = run("backfill", "show", "1", "--follow", "--store", store)
    assert result.exit_code == 1
    assert "paused    the disk was full" in result.stdout


def test_it_can_be_paused_resumed_paced_and_cancelled(store: str) -> None:
    started(store)
    paused = run_json("backfill", "pause", "1", *WHY, "--store", store)
    assert (paused["state"], paused["reason"]) == ("paused", "the disk was full")
    assert run_json("backfill", "resume", "1", *WHY, "--store", store)["state"] == "running"
    paced = run_json(
        "backfill", "rate", "1", "5/s", "--window", "22:00-06:00", "--tz", "Europe/Paris", *WHY, "--store", store
    )
    assert (paced["rate"], paced["window"], paced["tz"]) == ("5/s", "22:00-06:00", "Europe/Paris")
    told = run("backfill", "rate", "1", "any", "--at-once", "3", *WHY, "--store", store).stdout
    assert told == "backfill 1: 3 at a time, only 22:00-06:00 Europe/Paris\n"
    assert run_json("backfill", "cancel", "1", *WHY, "--store", store)["state"] == "cancelled"
    assert "is cancelled" in refused(run("backfill", "cancel", "1", *WHY, "--store", store), 1)
    assert run("backfill", "pause", "1", "--store", store).exit_code == 2


def test_runs_that_wait_for_a_person_are_pointed_to(store: str) -> None:
    started(store, "--at-once", "4", "--stop-after", "0")
    asyncio.run(work(make_app(store, fails=True), 4))
    told = run("backfill", "show", "1", "--store", store).stdout
    assert "4 dead" in told
    assert "foliot runs list --schedule count --state dead,ambiguous,unverified" in told


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("start", "count", "--from", "yesterday", "--to", TO, "--dry-run"), 2, "--from 'yesterday'"),
        (("start", "count", "--from", FROM, "--to", "2026-04-01T00:00", "--dry-run"), 2, "--to"),
        (("start", "count", "--from", FROM, "--to", FROM, "--dry-run"), 1, "is empty"),
        (("start", "count", "--from", FROM, "--to", "2100-01-01", "--dry-run"), 1, "which is in the future: now is"),
        (("start", "count", *NIGHTS, "--rate", "fast", "--dry-run"), 1, "fast"),
        (("start", "count", *NIGHTS, "--window", "22-6", "--dry-run"), 1, "22:00-06:00"),
        (("start", "nobody", *NIGHTS, "--dry-run"), 1, "no schedule 'nobody'"),
        (("show", "7"), 1, "no backfill 7"),
        (("rate", "7", *WHY), 1, "no change is given: give rate, at_once or window"),
        (("cancel", "7", *WHY), 1, "no backfill 7"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(words: tuple[str, ...], code: int, told: str, store: str) -> None:
    assert told in refused(run("backfill", *words, "--store", store), code)
