"""Real processes: they do their work, end in order when told to, and do not outlive their supervisor."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.support import EXAMPLES, is_alive, process, run, run_json, until

pytestmark = pytest.mark.faults

JOBS = """
import asyncio, time
from foliot import Context, Foliot, every

app = Foliot(lease="2s", timeout="1m", backoff="0s")

@app.job
async def tick() -> None: ...

@app.job
async def finish_soon(ctx: Context) -> str:
    await asyncio.sleep(3)
    return "done"

@app.job(queue="slow")
def stubborn() -> None:
    time.sleep(60)

app.schedule("tick", tick, every("200ms"))
app.schedule("finishing", finish_soon, every("1h"))
app.schedule("stubborn", stubborn, every("1h"))
"""
WHY = ("--reason", "a test")


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.py"
    file.write_text(JOBS, "utf-8")
    return file


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/foliot.db"


def states(url: str, *filters: str) -> list[str]:
    """At one moment: what is asked twice may have gone on in between."""
    listed = run("runs", "list", *filters, "--store", url, "--json")
    return [] if listed.exit_code else [shape["state"] for shape in json.loads(listed.stdout)]


def ended(url: str, job: str) -> int:
    return states(url, "--job", job, "--limit", "100").count("succeeded")


def test_the_example_shows_every_ending_and_ends_in_order(tmp_path: Path, url: str):
    app = EXAMPLES / "learning_platform.py"
    with process(tmp_path, "up", "--app", app, "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: run("schedules", "show", "campus", "--store", url).exit_code == 0, "schedules were applied")
        run_json("schedules", "trigger", "campus", *WHY, "--store", url)
        until(lambda: {"ended", "retrying"} <= {line["kind"] for line in up.lines()}, "the account told of a retry")
        until(lambda: _verdicts(up.lines()) >= {"succeeded", "cancelled"}, "the account told of a cancelled reminder")
        children = [up.started(name)[0] for name in ("scheduler", "worker")]
        began = time.monotonic()
        assert up.end() == 0
        assert time.monotonic() - began < 10
        assert not any(map(is_alive, children))
        assert up.lines()[-1]["text"] == "ended"
    found = run_json("doctor", "--store", url)
    assert (found["ok"], found["counts"]["early"], found["instances"]) == (True, 0, [])


def _verdicts(lines: list[dict[str, object]]) -> set[object]:
    return {line["state"] for line in lines if line["kind"] == "ended"}


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path, jobs: Path, url: str):
    with process(tmp_path, "up", "--app", "jobs.py", "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: ended(url, "tick") >= 2, "the first runs ended")
        os.kill(up.started("worker")[0], signal.SIGKILL)
        until(lambda: len(up.started("worker")) == 2, "the worker was started again")
        told = [line["what"] for line in up.lines() if line["kind"] == "process"]
        assert "died (SIGKILL); starts again in 1 s" in told
        before = ended(url, "tick")
        until(lambda: ended(url, "tick") > before, "work went on")
        assert up.end(signal.SIGINT) == 0


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path, jobs: Path, url: str):
    with process(tmp_path, "up", "--app", "jobs.py", "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: ended(url, "tick") >= 1, "the first run ended")
        children = [up.started(name)[0] for name in ("scheduler", "worker")]
        assert all(map(is_alive, children))
        up.popen.kill()
        until(lambda: not any(map(is_alive, children)), "the children had ended")
    assert run_json("doctor", "--store", url)["instances"] == []


def test_a_worker_lets_running_work_finish_and_leaves_a_thread_that_does_not_end(tmp_path: Path, jobs: Path, url: str):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "worker").mkdir()
    with (
        process(tmp_path / "scheduler", "scheduler", "--app", jobs, "--store", url) as scheduler,
        process(
            tmp_path / "worker", "worker", "--app", jobs, "--store", url, "--grace", "5s", "--slots", "4"
        ) as worker,
    ):
        until(lambda: run("schedules", "show", "tick", "--store", url).exit_code == 0, "schedules were applied")
        run_json("schedules", "trigger", "finishing", *WHY, "--store", url)
        run_json("schedules", "trigger", "stubborn", *WHY, "--store", url)
        until(lambda: states(url, "--state", "running", "--job", "finish_soon"), "it runs")
        until(lambda: states(url, "--state", "running", "--job", "stubborn"), "that in a queue of its own runs too")
        began = time.monotonic()
        assert worker.end() == 0
        assert time.monotonic() - began < 10
        assert "left without waiting any longer for stubborn@" in worker.err.read_text("utf-8")
        assert ended(url, "finish_soon") == 1
        assert scheduler.end() == 0


def test_a_second_signal_ends_a_worker_at_once(tmp_path: Path, jobs: Path, url: str):
    (tmp_path / "scheduler").mkdir()
    with (
        process(tmp_path / "scheduler", "scheduler", "--app", jobs, "--store", url) as scheduler,
        process(tmp_path, "worker", "--app", "jobs.py", "--store", url, "--grace", "60s") as worker,
    ):
        until(lambda: run("schedules", "show", "tick", "--store", url).exit_code == 0, "schedules were applied")
        run_json("schedules", "trigger", "stubborn", *WHY, "--store", url)
        until(lambda: states(url, "--state", "running", "--job", "stubborn"), "it runs")
        worker.popen.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert worker.popen.poll() is None
        assert worker.end() == 128 + signal.SIGTERM
        assert scheduler.end() == 0


def test_a_scheduler_without_an_app_serves_what_is_in_the_store(tmp_path: Path, store: str):
    with process(tmp_path, "scheduler", "--store", store) as scheduler:
        until(lambda: run_json("doctor", "--store", store)["instances"], "it registered")
        made = run_json("schedules", "trigger", "greetings", *WHY, "--store", store)
        until(lambda: run_json("runs", "show", made["id"], "--store", store)["state"] == "ready", "it was handed off")
        assert scheduler.end() == 0
    assert run_json("doctor", "--store", store)["instances"] == []
